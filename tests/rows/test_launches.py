"""Records of launches whose lines are JSON, and not what `advisor record` writes."""

from __future__ import annotations

import json

import pytest

from advisor.rows.launches import read_launches

FORMAT = {"format": "triton-advisor launches 1"}
LAUNCH = {
    "launch": "l1",
    "kernel": "k",
    "line": 1,
    "source": "s",
    "signature": {"i": "i32"},
    "constexprs": {},
    "arguments": {},
    "tensors": {},
    "grid": [1],
}
COUNT = {"count_of": "l1", "process": 1, "count": 3, "times_us": [4.0]}


def read(tmp_path, *lines):
    path = tmp_path / "launches.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in (FORMAT, *lines)))
    return read_launches(path)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("process", ["a"], None),
        ("count", -1, "no count"),
        ("count", True, "no count"),
        ("count", "3", "no count"),
        ("times_us", None, "no times"),
        ("times_us", 4.0, "no times"),
        ("times_us", [float("inf")], "no times"),
        ("at_most_us", {}, "no times"),
    ],
)
def test_counts_and_times_that_are_none_are_damage(tmp_path, field, value, said):
    found = read(tmp_path, LAUNCH, {**COUNT, field: value})
    assert [launch.id for launch in found.launches] == ["l1"] and found.damaged is (said is not None)
    assert said is None or f"line 3 has {said}" in found.problems[0]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("tensors", {"x": 1}),
        ("tensors", []),
        ("grid", [float("inf")]),
        ("grid", 1),
        ("options", [1]),
        ("tensors", {"x": {"shape": 5}}),
        ("tensors", {"x": {"shape": ["5"]}}),
        ("arguments", {"i": float("nan")}),
        ("tensors", {"x": {"strides": [float("inf")]}}),
        ("contents", {"x": [1, None]}),
        ("contents", {"x": [10**40]}),
        ("contents", {"x": [float("nan")]}),
        ("arguments", {"n": 10**40}),
        ("source", {"a": 1}),
        ("device", -0.5),
    ],
)
def test_a_launch_that_is_none_is_damage(tmp_path, field, value):
    found = read(tmp_path, {**LAUNCH, field: value}, COUNT)
    assert not found.launches and found.damaged and found.problems[0].startswith("launch l1 of k: ")
