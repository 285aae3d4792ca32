"""Recorded launches, measured again: rebuilt kernels, tensors as they were."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.autotuning.ranking import problem_of_record
from advisor.cli import main
from advisor.measurement.replay import recorded_launches
from advisor.rows.launches import read_launches
from advisor.system.errors import NothingMatchedError
from tests import loaded

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
    arguments = ["record", "--contents", "index_ptr", "-o", str(record), "--", *loaded.python(), str(program)]
    done = subprocess.run(
        [*loaded.python(), "-m", "advisor", *arguments],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
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
    assert main(["predict", output, "-o", str(tmp_path / "predicted.csv")]) == 5
    assert "no model knows what a recorded launch computes" in capsys.readouterr().err


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
        done = subprocess.run(
            [*loaded.python(), "-c", script, launch.kernel.file],
            env={**os.environ, "TRITON_INTERPRET": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
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
    literal = (
        '\nKERNELS = {"shifted": {"family": "elementwise", "ops": {"mul": {"sizes": {"B": "1", "H": "x_ptr.shape[0]"}}}, '
        '"dtype": "x_ptr", "space": {"BLOCK": [32, 64], "num_warps": [2, 4]}}}\n'
    )

    def change(line):
        if "text" in line:
            line["text"] += literal

    path = changed(recorded[0], tmp_path, change)
    output = tmp_path / "rows.csv"
    assert main(["measure", path, "--device", "fake", "-o", str(output)]) == 0
    rows = rows_of(output)
    assert {(row["op"], row["H"]) for row in rows} == {("mul", "40"), ("mul", "100")} and all(float(row["bound_us"]) > 0 for row in rows)


@pytest.mark.parametrize("kind", ["type and strides", "source", "call"])
def test_odd_and_hostile_records(recorded, tmp_path, capsys, kind):
    mark = recorded[1]

    def change(line):
        if "launch" in line:
            if kind == "source":
                line["source"] = "gone"
            elif kind == "type and strides":
                wrong = {"dtype": "__import__('os')"} if line["arguments"]["n"] == 40 else {"strides": []}
                line["tensors"]["x_ptr"] |= wrong
        elif "text" in line and kind == "call":
            line["text"] = line["text"].replace("tl.program_id(0)", "open('x')")

    path = changed(recorded[0], tmp_path, change)
    output = tmp_path / "rows.csv"
    code = main(["measure", path, "--device", "fake,execute=1", "--rounds", "2", "-o", str(output)])
    if kind in ("source", "call"):  # nothing can be rebuilt
        assert code == 5 and "no launch that can be measured" in capsys.readouterr().err
    else:  # it is found out in the worker, and is the launch's failure
        assert code == 3 and [row["status"] != "ok" for row in rows_of(output)] == [True, True]
    assert not mark.exists()


def test_what_a_hostile_record_asks_of_a_module_is_not_done(recorded, tmp_path, monkeypatch, capsys):
    """Neither by a name in its source nor by a constant, although the interpreter runs all that was rebuilt."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    mark, path, output = (tmp_path / name for name in ("opened", "changed.jsonl", "rows.csv"))
    lines = [json.loads(line) for line in recorded[0].read_text().splitlines()]
    (source,) = (line for line in lines if "text" in line)
    lines.insert(lines.index(source), other := {**source, "source": "another"})
    for line, root in ((source, "tl.core"), (other, "KIND")):
        line["text"] = line["text"].replace("    x = tl.load", f"    {root}.builtins.open({str(mark)!r}, 'w')\n    x = tl.load")
    (launch,) = (line for line in lines if line.get("arguments", {}).get("n") == 100)
    launch |= {"source": "another", "constexprs": {**launch["constexprs"], "KIND": {"dtype": "core"}}}
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert main(["measure", str(path), "--device", "fake,execute=1", "--rounds", "2", "-o", str(output)]) == 3
    assert [row["status"] for row in rows_of(output)] == ["crash"] * 2 and not mark.exists()
    reasons = sorted(row["reason"] for row in rows_of(output))
    assert [re.search(r"RefusedError: ((?:tl\.)?core)", reason)[1] for reason in reasons] == ["core", "tl.core"]
    assert re.search(r"crash: 2 \((.*)\)", capsys.readouterr().out)[1] in reasons  # that of the launch that was measured first


def test_options_that_a_record_leaves_no_room_for(recorded, tmp_path, capsys):
    output = ["--device", "fake", "-o", str(tmp_path / "rows.csv")]
    assert main(["measure", str(recorded[0]), "--tokens", "4", *output]) == 2
    assert main(["measure", str(recorded[0]), "--configurations", "4", *output]) == 2
    assert main(["measure", f"{recorded[0]}::other", *output]) == 5
    assert "no launch of this kernel" in capsys.readouterr().err


def recorded_run(tmp_path, text, *options):
    """A record of a program, made in Triton's interpreter, and what `advisor record` said."""
    program, record = tmp_path / "program.py", tmp_path / "launches.jsonl"
    program.write_text(text)
    command = [*loaded.python(), "-m", "advisor", "record", *options, "-o", str(record), "--", *loaded.python(), str(program)]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return record, done.stderr


def replayed(launch):
    """The launch's kernel file, run in the interpreter: its tensors before and after, as lists, and how long each is."""
    script = f"""
import json, sys, torch
sys.path[:0] = {[entry for entry in sys.path if entry]!r}
from advisor.measurement.kernel_file import KernelRef, function_of
ref = KernelRef(file=sys.argv[1], function=sys.argv[2])
tensors = function_of(ref, "make_inputs")({{}}, "cpu", torch.Generator().manual_seed(3))["tensors"]
plain = {{name: getattr(each, "base", each) for name, each in tensors.items()}}
before = {{name: each.clone() for name, each in plain.items()}}
function_of(ref, "prepare")({{"tensors": tensors}}, {{}})()
print(json.dumps({{name: [before[name].flatten().tolist(), each.flatten().tolist()] for name, each in plain.items()}}))
"""
    done = subprocess.run(
        [*loaded.python(), "-c", script, launch.kernel.file, launch.kernel.function],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


GIVEN = """
import torch
import triton
import triton.language as tl
import acts

@triton.jit
def twice(x):
    return 2 * x

@triton.jit
def given(x_ptr, y_ptr, n, F: tl.constexpr, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    tl.store(y_ptr + offsets, F[0](F[1](x)) + F[2](x), mask=offsets < n)

given[(2,)](torch.randn(40), torch.empty(40), 40, F=(twice, acts.cube, tl.sigmoid), BLOCK=32)
"""


def test_a_launch_with_functions_as_constants_is_replayed_with_them(tmp_path):
    (tmp_path / "acts.py").write_text("import triton\nimport triton.language as tl\n@triton.jit\ndef cube(x):\n    return x * x * x\n")
    record, _ = recorded_run(tmp_path, GIVEN)
    (tmp_path / "acts.py").unlink()
    (launch,), left_out = recorded_launches(record, tmp_path / "replay", problem_of_record)
    tensors = replayed(launch)
    x, y = (torch.tensor(tensors[name][1]) for name in ("x_ptr", "y_ptr"))
    assert not left_out and torch.allclose(y, 2 * x**3 + x.sigmoid(), atol=1e-5)


def test_a_tensor_that_was_passed_twice_is_one_again(tmp_path):
    kernel = "@triton.jit\ndef to(x, y, n, B: tl.constexpr):\n    o = tl.arange(0, B)\n    tl.store(y + o, tl.load(x + o) + 1.0)\n"
    head = f"import torch, triton\nimport triton.language as tl\n\n{kernel}\n"
    record, _ = recorded_run(tmp_path, head + "x = torch.ones(64)\nto[(1,)](x, x, 64, B=64)\n")
    (launch,), _ = recorded_launches(record, tmp_path / "kernels", problem_of_record)
    found = replayed(launch)
    (before, after), same = (found[name] for name in ("x", "y"))
    assert after == same[1] == pytest.approx([value + 1 for value in before])


def test_a_launch_whose_indices_were_not_recorded_is_left_out_and_what_to_do_is_said(recorded, tmp_path, capsys):
    def change(line):
        line.pop("contents", None)

    path = changed(recorded[0], tmp_path, change)
    output = tmp_path / "rows.csv"
    assert main(["measure", path, "--device", "fake", "-o", str(output)]) == 5
    error = capsys.readouterr().err
    assert "shifted: what index_ptr held was not recorded" in error and "record again with --contents index_ptr" in error
    assert not output.exists()


QUANTIZED = """
import torch, triton
import triton.language as tl

@triton.jit
def widen(q_ptr, count_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(q_ptr + offsets, mask=offsets < n).to(tl.float32), mask=offsets < n)
    tl.store(count_ptr, n)

widen[(2,)](torch.ones(40, dtype=torch.int8), torch.zeros(1, dtype=torch.int32), torch.empty(40), 40, BLOCK=32)
"""


def test_integers_that_are_only_data_stop_nothing(tmp_path):
    record, _ = recorded_run(tmp_path, QUANTIZED)
    launches, remarks = recorded_launches(record, tmp_path / "kernels", problem_of_record)
    assert len(launches) == 1 and not remarks


LARGE = """
import torch, triton
import triton.language as tl

@triton.jit
def gathered(index_ptr, few_ptr, y_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(y_ptr + tl.load(index_ptr + offsets) + tl.load(few_ptr), 1.0)

for _ in range(2):
    gathered[(1,)](torch.zeros(70_000, dtype=torch.int32), torch.zeros(1, dtype=torch.uint16), torch.empty(64), BLOCK=16)
"""


def test_contents_that_are_too_large_to_record_are_said_then_and_there(tmp_path):
    record, said = recorded_run(tmp_path, LARGE, "--contents", "index_ptr", "--contents", "few_ptr")
    assert said.count("gathered: what index_ptr holds is not recorded: it has 70000 elements, and at most 65536 are") == 1
    assert "few_ptr" not in said
    with pytest.raises(NothingMatchedError, match=r"what index_ptr held was not recorded") as raised:
        recorded_launches(record, tmp_path / "kernels", problem_of_record)
    assert "cannot be replayed: index_ptr has 70,000 elements, and at most 65,536 are recorded" in str(raised.value)
    assert "record again" not in str(raised.value)


ADDRESSES = """
import torch, triton
import triton.language as tl

@triton.jit
def {name}(table_ptr, y_ptr, BLOCK: tl.constexpr):
    x_ptr = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    tl.store(y_ptr + tl.arange(0, BLOCK), tl.load(x_ptr + tl.arange(0, BLOCK)))

x = torch.ones(16)
{name}[(1,)](torch.tensor([x.data_ptr()]), torch.empty(16), BLOCK=16)
"""


def test_a_launch_that_is_given_addresses_cannot_be_replayed_even_where_they_were_recorded(tmp_path):
    record, _ = recorded_run(tmp_path, ADDRESSES.replace("{name}", "through"), "--contents", "all")
    with pytest.raises(NothingMatchedError, match=r"through: table_ptr holds addresses .* cannot be replayed"):
        recorded_launches(record, tmp_path / "kernels", problem_of_record)


@pytest.mark.parametrize("part", ["launch", "source"])
def test_a_record_that_was_cut_off_is_bad_input(recorded, tmp_path, capsys, part):
    """Also where it was cut in the middle of the only source: the launches before it are of no use then."""
    lines = recorded[0].read_text().splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if part in json.loads(line))
    kept = [line for number, line in enumerate(lines) if number < first or (part == "source" and "launch" in json.loads(line))]
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(kept) + lines[first][: len(lines[first]) // 2])
    assert main(["measure", str(cut), "--device", "fake", "-o", str(tmp_path / "rows.csv")]) == 2
    error = capsys.readouterr().err
    assert "cut.jsonl: a damaged record" in error and f"line {len(kept) + 1} is not JSON (cut off)" in error and "record again" in error


def test_where_nothing_can_be_replayed_every_reason_is_given(tmp_path):
    record, _ = recorded_run(tmp_path, LARGE + ADDRESSES.replace("{name}", "through"), "--contents", "all")
    with pytest.raises(NothingMatchedError) as raised:
        recorded_launches(record, tmp_path / "kernels", problem_of_record)
    assert "gathered: what index_ptr held" in str(raised.value) and "through: table_ptr holds" in str(raised.value)


DESCRIPTORS = """
import torch, triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def copy_rows(x_desc, y_desc, BLOCK: tl.constexpr, D: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    y_desc.store([row, 0], x_desc.load([row, 0]))

def of(tensor, **options):  # two dimensions of a tensor that has four, and every other row
    return TensorDescriptor(tensor, shape=[64, 16], strides=[32, 1], block_shape=[32, 16], **options)

copy_rows[(2,)](of(torch.randn(2, 4, 16, 16), padding="nan"), of(torch.zeros(2, 4, 16, 16)), BLOCK=32, D=16)
"""


def test_descriptors_that_see_a_tensor_in_another_shape(tmp_path):
    record, _ = recorded_run(tmp_path, DESCRIPTORS)
    (recorded_launch,) = read_launches(record).launches
    assert recorded_launch.tensors["x_desc"]["descriptor_strides"] == [32, 1]
    assert recorded_launch.tensors["x_desc"]["descriptor_padding"] == "nan"

    (launch,), _ = recorded_launches(record, tmp_path / "kernels", problem_of_record)
    tensors = replayed(launch)
    (x, _), (_, y) = tensors["x_desc"], tensors["y_desc"]
    rows = [slice(start, start + 16) for start in range(0, 64 * 32, 32)]
    assert len(x) == 2048 and all(y[row] == x[row] for row in rows)


def test_what_was_measured_of_a_record_is_matched_to_its_launches(recorded, tmp_path, capsys):
    """`advise RECORD --measured ROWS.csv` takes what `measure RECORD -o ROWS.csv` wrote, launch by launch."""
    from advisor.result.result_json import from_json

    rows, page = tmp_path / "rows.csv", tmp_path / "page"
    assert main(["measure", str(recorded[0]), "--device", "fake", "-o", str(rows)]) == 0
    wanted = {f"shifted-{json.loads(row['parameters'])['launch'][:6]}": float(row["latency_us"]) for row in rows_of(rows)}
    assert main(["advise", str(recorded[0]), "--gpu", "H200", "--measured", str(rows), "--output", str(page)]) == 0
    found = {report.id: report.measured.us for report in from_json((page / "result.json").read_text()).launches}
    assert found == pytest.approx(wanted, rel=1e-3) and len(found) == 2
    lines = rows.read_text().splitlines()
    rows.write_text("\n".join(lines[:2]) + "\n")
    capsys.readouterr()
    assert main(["advise", str(recorded[0]), "--gpu", "H200", "--measured", str(rows), "--output", str(page)]) == 0
    assert "no row is of it" in capsys.readouterr().err
