"""Logs of TritonParse as launch records; the one that is read was written by tritonparse 0.6.0 under Triton 3.9, without its IR."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from advisor.rows.launches import is_launch_record, read_launches

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
