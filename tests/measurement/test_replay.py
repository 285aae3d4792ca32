"""Recorded launches, measured again: rebuilt kernels, tensors as they were."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.autotuning.recognise import problem_of_record
from advisor.cli import main
from advisor.measurement.replay import recorded_launches

pytest.importorskip("triton")
torch = pytest.importorskip("torch")

PROGRAM = """
import pathlib
import torch
import triton
import triton.language as tl

pathlib.Path({mark!r}).touch()  # whoever runs this file, and not only the kernel, leaves a mark
WIDTH = 2

@triton.jit
def shifted(x_ptr, index_ptr, y_ptr, n, stride, scale, KIND: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.load(index_ptr + offsets, mask=offsets < n) * stride, mask=offsets < n)
    tl.store(y_ptr + offsets, (x * scale * WIDTH).to(KIND), mask=offsets < n)

if __name__ == "__main__":
    for n in (40, 100):
        x, index = torch.randn(n, 3)[:, 1], torch.arange(n).flip(0)
        y = torch.empty(n + 1, dtype=torch.float16)[1:]
        shifted[(triton.cdiv(n, 32),)](x, index, y, n, x.stride(0), 1.5, KIND=tl.float16, BLOCK=32, num_warps=2)
        assert torch.allclose(y.float(), x.flip(0) * 3, atol=1e-2)
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A record of the program, made in Triton's interpreter, and the mark that running its file leaves."""
    folder = tmp_path_factory.mktemp("recorded")
    program, record, mark = folder / "program.py", folder / "launches.jsonl", folder / "mark"
    program.write_text(PROGRAM.format(mark=str(mark)))
    arguments = ["record", "--contents", "index_ptr", "-o", str(record), "--", sys.executable, str(program)]
    done = subprocess.run([sys.executable, "-m", "advisor", *arguments], env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    mark.unlink()
    return record, mark


def rows_of(path):
    with Path(path).open(newline="") as file:
        return list(csv.DictReader(file))


def test_each_launch_is_measured_and_measured_once(recorded, tmp_path, capsys):
    record, mark = recorded
    output = str(tmp_path / "rows.csv")
    assert main(["measure", str(record), "--device", "fake", "-o", output]) == 0
    assert "are not checked: a record has no reference" in capsys.readouterr().err
    rows = rows_of(output)
    assert len(rows) == 2 and {row["kernel"] for row in rows} == {"shifted"} and all(row["status"] == "ok" for row in rows)
    assert {row["op"] for row in rows} == {"recorded_shifted"} and all(row["bound_us"] == "" for row in rows)
    assert {row["B"] for row in rows} == {"2", "4"} and {row["num_warps"] for row in rows} == {"2"}
    assert all(json.loads(row["parameters"])["BLOCK"] == 32 for row in rows)
    assert main(["measure", str(record), "--device", "fake", "-o", output]) == 0
    assert len(rows_of(output)) == 2 and not mark.exists()
    assert main(["predict", output, "-o", str(tmp_path / "predicted.csv")]) in (0, 2)


REPLAY = """
import sys, torch
sys.path[:0] = {path!r}
from pathlib import Path
from advisor.measurement.kernel_file import KernelRef, function_of
ref = KernelRef(file=sys.argv[1], function="shifted")
inputs = function_of(ref, "make_inputs")({{}}, "cpu", torch.Generator().manual_seed(3))
x, index, y = (inputs["tensors"][name] for name in ("x_ptr", "index_ptr", "y_ptr"))
assert x.stride() == (3,) and y.data_ptr() % 16 != 0 and y.dtype == torch.float16, (x.stride(), y.dtype)
assert index.tolist() == list(range(len(index)))[::-1]
y.zero_()
function_of(ref, "prepare")(inputs, {{}})()
assert torch.allclose(y.float(), x.flip(0) * 3, atol=2e-2), (y, x)
again = function_of(ref, "make_inputs")({{}}, "cpu", torch.Generator().manual_seed(3))["tensors"]["x_ptr"]
assert torch.equal(again, x) and function_of(ref, "reference")(inputs) == ()
print("right", len(x))
"""


def test_the_rebuilt_launch_computes_what_the_kernel_computes(recorded, tmp_path):
    record, mark = recorded
    launches, left_out = recorded_launches(record, tmp_path, problem_of_record)
    assert len(launches) == 2 and not left_out
    sizes = set()
    for launch in launches:
        script = REPLAY.format(path=[entry for entry in sys.path if entry])
        done = subprocess.run([sys.executable, "-c", script, launch.kernel.file], env={**os.environ, "TRITON_INTERPRET": "1"},
                              capture_output=True, text=True, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr
        sizes.add(done.stdout.split()[-1])
    assert sizes == {"40", "100"} and not mark.exists()


def test_on_the_fake_device_the_kernels_run_too_where_that_is_asked_for(recorded, tmp_path, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    output = tmp_path / "rows.csv"
    assert main(["measure", f"{recorded[0]}::shifted", "--device", "fake,execute=1", "--rounds", "2", "-o", str(output)]) == 0
    assert [row["status"] for row in rows_of(output)] == ["ok", "ok"]


def changed(record, tmp_path, change):
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    for line in lines:
        change(line)
    path = tmp_path / "changed.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_a_described_kernel_is_the_problem_of_its_family(recorded, tmp_path):
    literal = ('\nKERNELS = {"shifted": {"family": "elementwise", "ops": {"mul": {"sizes": {"B": "1", "H": "x_ptr.shape[0]"}}}, '
               '"dtype": "x_ptr", "space": {"BLOCK": [32, 64], "num_warps": [2, 4]}}}\n')  # fmt: skip

    def change(line):
        if "text" in line:
            line["text"] += literal

    path = changed(recorded[0], tmp_path, change)
    output = tmp_path / "rows.csv"
    assert main(["measure", path, "--device", "fake", "-o", str(output)]) == 0
    rows = rows_of(output)
    assert {(row["op"], row["H"]) for row in rows} == {("mul", "40"), ("mul", "100")} and all(float(row["bound_us"]) > 0 for row in rows)


@pytest.mark.parametrize("kind", ["type", "strides", "source", "call"])
def test_odd_and_hostile_records(recorded, tmp_path, capsys, kind):
    mark = recorded[1]

    def change(line):
        if "launch" in line:
            if kind == "type":
                line["tensors"]["x_ptr"]["dtype"] = "__import__('os')"
            elif kind == "strides":
                line["tensors"]["x_ptr"]["strides"] = []
            elif kind == "source":
                line["source"] = "gone"
        elif "text" in line and kind == "call":
            line["text"] = line["text"].replace("tl.program_id(0)", "open('x')")

    path = changed(recorded[0], tmp_path, change)
    output = tmp_path / "rows.csv"
    code = main(["measure", path, "--device", "fake,execute=1", "--rounds", "2", "-o", str(output)])
    if kind in ("source", "call"):  # nothing can be rebuilt
        assert code == 5 and "no launch that can be measured" in capsys.readouterr().err
    else:  # it is found out in the worker, and is the launch's failure
        assert code == 3 and all(row["status"] != "ok" for row in rows_of(output))
    assert not mark.exists()


def test_options_that_a_record_leaves_no_room_for(recorded, tmp_path, capsys):
    output = ["--device", "fake", "-o", str(tmp_path / "rows.csv")]
    assert main(["measure", str(recorded[0]), "--tokens", "4", *output]) == 2
    assert main(["measure", str(recorded[0]), "--configurations", "4", *output]) == 2
    assert main(["measure", f"{recorded[0]}::other", *output]) == 5
    assert "no launch of this kernel" in capsys.readouterr().err
