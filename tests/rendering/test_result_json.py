"""The result as JSON, and back."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from typing import Any

import pytest

from advisor.result import result_json
from advisor.result.schema import Configuration, Result
from advisor.system.errors import InputError

from . import factory

RESULTS = {
    "table": lambda: factory.result((1, 64, 3072)),
    "measured": lambda: factory.result((64,), measured=True, searched=True),
    "hostile": factory.hostile,
    "empty": factory.empty,
}


@pytest.mark.parametrize("name", RESULTS)
def test_round_trip_loses_nothing(name: str) -> None:
    result = RESULTS[name]()
    text = result_json.to_json(result)
    again = result_json.from_json(text)
    assert again == result
    assert result_json.to_json(again) == text
    assert result_json.from_json(text.encode()) == result


def test_equal_results_give_equal_text() -> None:
    assert result_json.to_json(factory.result((8,))) == result_json.to_json(factory.result((8,)))
    launch = factory.launch(8)
    whole = replace(launch, headroom=1)  # type: ignore[arg-type]
    result = factory.result((8,), ("w13",))
    text = result_json.to_json(replace(result, launches=(whole,)))
    assert json.loads(text)["launches"][0]["headroom"] == 1.0
    assert '"headroom": 1.0' in text


def test_unknown_keys_are_ignored() -> None:
    result = factory.result((1,), ("w13",))
    data = result_json.to_dict(result)
    data["later"] = {"more": 1}
    data["launches"][0]["bound"]["later"] = [1]
    assert result_json.from_dict(data) == result


def test_minor_version_is_read_and_major_refused() -> None:
    data = result_json.to_dict(factory.empty())
    assert result_json.from_dict({**data, "schema_version": "1.99"}).schema_version == "1.99"
    for version in ("2.0", "0.9"):
        with pytest.raises(InputError, match="unknown major schema_version"):
            result_json.from_dict({**data, "schema_version": version})
    for version in (None, 1.0, "", "1", "one.two", "1.0.0"):
        with pytest.raises(InputError, match="schema_version is missing or malformed"):
            result_json.from_dict({**data, "schema_version": version})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_with_its_path(value: float) -> None:
    result = factory.result((1,), ("w13",))
    launch = replace(result.launches[0], bound=replace(result.launches[0].bound, us=value))
    with pytest.raises(InputError, match=r"result\.launches\[0\]\.bound\.us"):
        result_json.to_json(replace(result, launches=(launch,)))


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '"x"', '{"schema_version": NaN}', "[" * 100_000, b"\xff\xfe{"])
def test_what_is_no_result_is_refused_in_one_line(text: str | bytes) -> None:
    with pytest.raises(InputError) as caught:
        result_json.from_json(text, name="bad.json")
    assert "bad.json" in str(caught.value)
    assert "\n" not in str(caught.value)


def _set(path: str, value: Any) -> Any:
    data = copy.deepcopy(result_json.to_dict(factory.result((1,), ("w13",))))
    at: Any = data
    *parts, last = path.split("/")
    for part in parts:
        at = at[int(part)] if part.isdigit() else at[part]
    if value is KeyError:
        del at[last]
    else:
        at[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("gpu", KeyError, "lacks the key 'gpu'"),
        ("gpu", 3, "result.json.gpu"),
        ("launches", {}, "result.json.launches"),
        ("launches/0/bound/us", "fast", "launches[0].bound.us"),
        ("launches/0/bound/us", True, "launches[0].bound.us"),
        ("launches/0/bound/origin", "guessed", "launches[0].bound.origin"),
        ("launches/0/problem/sizes", {"M": 1.5}, "problem.sizes.M"),
        ("launches/0/problem/block_shape", [128], "problem.block_shape"),
        ("launches/0/configuration/parameters", {"BLOCK": [1]}, "configuration.parameters.BLOCK"),
        ("launches/0/measured", 7, "launches[0].measured"),
    ],
)
def test_wrong_fields_are_refused_with_their_path(path: str, value: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        result_json.from_dict(_set(path, value))
    assert says in str(caught.value)


def test_kinds_of_parameters_are_kept() -> None:
    launch = replace(factory.launch(8), configuration=Configuration(parameters={"A": True, "B": 1, "C": "x"}), recommendation=None)
    result: Result = replace(factory.result((8,), ("w13",)), launches=(launch,))
    read = result_json.from_json(result_json.to_json(result)).launches[0].configuration
    assert read is not None
    assert [type(value) for value in read.parameters.values()] == [bool, int, str]


def test_names_that_no_encoding_carries_survive() -> None:
    result = replace(factory.empty(), target="table\udcff.json")
    text = result_json.to_json(result)
    assert result_json.from_json(text.encode("utf-8")) == result


def test_numbers_of_numpy_are_written_as_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    launch = factory.launch(8)
    launch = replace(launch, headroom=numpy.float32(0.5), problem=replace(launch.problem, sizes={"M": numpy.int64(8)}))
    data = result_json.to_dict(replace(factory.result((8,), ("w13",)), launches=(launch,)))
    assert type(data["launches"][0]["headroom"]) is float
    assert type(data["launches"][0]["problem"]["sizes"]["M"]) is int


def test_schema_describes_every_field_and_resolves() -> None:
    schema = result_json.json_schema()
    assert schema["$schema"].endswith("2020-12/schema")
    definitions = schema["$defs"]
    assert {"Result", "LaunchReport", "PipelineTime", "Finding"} <= set(definitions)
    text = json.dumps(schema)
    for name in {part.split('"')[0] for part in text.split("#/$defs/")[1:]}:
        assert name in definitions
    assert definitions["Occupancy"]["properties"]["limiter"]["description"].startswith("registers |")
    assert definitions["Result"]["description"]
    assert "schema_version" in definitions["Result"]["required"]


@pytest.mark.parametrize("name", RESULTS)
def test_results_are_valid_against_the_schema(name: str) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = result_json.json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(result_json.to_dict(RESULTS[name]()), schema)


@pytest.mark.parametrize(("kind", "field"), [("Problem", "weight_dtype"), ("LaunchReport", "peak_pipeline"), ("Latency", "source")])
def test_the_schema_describes_fields_by_the_comments_beside_them(kind: str, field: str) -> None:
    assert len(result_json.json_schema()["$defs"][kind]["properties"][field].get("description", "")) > 10
