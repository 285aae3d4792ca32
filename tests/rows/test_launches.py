"""Records of launches whose lines are JSON, and not what `advisor record` writes; and logs of TritonParse read as records."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from advisor.rows.launches import is_launch_record, read_launches

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


LOG = Path(__file__).parents[1] / "data" / "tritonparse.ndjson.gz"


@pytest.fixture
def events():
    return [json.loads(line) for line in gzip.decompress(LOG.read_bytes()).splitlines()]


def _read(tmp_path, events):
    path = tmp_path / "log.ndjson"
    path.write_text("".join(json.dumps(each) + "\n" for each in events))
    return read_launches(path)


def test_launches_are_read_as_they_were():
    assert is_launch_record(LOG)
    records = read_launches(LOG)
    (launch,) = records.launches
    assert launch.kernel == "add_kernel" and launch.grid == (64,) and launch.count == 1 and not launch.tuning
    assert launch.signature == {"x_ptr": "*fp16", "y_ptr": "*fp16", "out_ptr": "*fp16", "n": "i32", "BLOCK": "constexpr"}
    assert launch.constexprs == {"BLOCK": 1024} and launch.arguments == {"n": 65536}
    assert launch.tensors["x_ptr"]["shape"] == [65536] and launch.tensors["x_ptr"]["strides"] == [1]
    assert launch.options["num_warps"] == 4 and records.versions == {"triton": "3.9.0"}
    path, text = records.sources[launch.source]
    assert path == "/home/user/program.py" and text.splitlines()[launch.line].startswith("def add_kernel")


def test_what_the_log_lacks_is_asked_for(tmp_path, events):
    asked = " ".join(read_launches(LOG).problems)
    assert "scale_kernel calls helper" in asked and "run this where /home/user/program.py is as it was" in asked
    only = [each for each in events if each["event_type"] == "compilation"]
    assert "TRITON_TRACE_LAUNCH=1" in _read(tmp_path, only).problems[0]
    only = [each for each in events if each["event_type"] == "launch"]
    assert "clear Triton's cache" in _read(tmp_path, only).problems[0]
    noted = [{**each, "extracted_args": {"_note": "argument extraction skipped"}} if "grid" in each else each for each in events]
    assert "argument extraction skipped" in _read(tmp_path, noted).problems[0]


def test_the_kernel_s_own_file_holds_what_it_calls(tmp_path, events):
    code = {each["payload"]["python_source"]["code"] for each in events if each["event_type"] == "compilation"}
    program = tmp_path / "program.py"
    program.write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef helper(v, s: tl.constexpr):\n    return v * s\n\n\n"
        + "\n".join(code)
    )
    for each in events:
        if each["event_type"] == "compilation":
            each["payload"]["python_source"]["file_path"] = str(program)
    records = _read(tmp_path, events)
    assert not records.problems
    counts = {(launch.kernel, launch.grid): launch.count for launch in records.launches}
    assert counts == {("scale_kernel", (64,)): 3, ("scale_kernel", (128,)): 1, ("add_kernel", (64,)): 1}


def test_trials_of_an_autotuner_are_told(tmp_path, events):
    for each in events:
        each["stack"].append({"line": 1, "name": "do_bench", "filename": "testing.py", "loc": ""})
    assert _read(tmp_path, events).launches[0].tuning


@pytest.mark.parametrize(
    "change",
    [{"grid": None}, {"extracted_args": {"x_ptr": {"type": "tensor", "shape": 1}}}, {"compilation_metadata": None}, {"name": None}],
)
def test_damaged_events_end_in_a_word(change, tmp_path, events):
    records = _read(tmp_path, [{**each, **change} if each["event_type"] == "launch" else each for each in events])
    assert not records.launches or change == {"name": None}
    assert records.problems
