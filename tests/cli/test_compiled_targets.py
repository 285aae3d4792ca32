"""Kernels nobody described: from source, and from a record of a running program, to a report."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from advisor.cli import main
from tests import loaded

pytestmark = pytest.mark.usefixtures("not_disassembled")
ROOT = Path(__file__).resolve().parents[2]

SCALE = """
import triton
import triton.language as tl

raise SystemExit("this file must never run")


@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=1), triton.Config({"BLOCK": 1024}, num_warps=4)], key=["n"])
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, 2 * tl.load(x_ptr + offsets, mask=offsets < n), mask=offsets < n)
"""

PROGRAM = """
import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask), mask=mask)


@triton.jit
def exp_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.exp(tl.load(x_ptr + offsets, mask=offsets < n)), mask=offsets < n)


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, K, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(0, K, BLOCK):
        total += tl.dot(tl.load(a_ptr + rows * K + k + columns), tl.load(b_ptr + (k + rows) * BLOCK + columns))
    tl.store(c_ptr + rows * BLOCK + columns, total)


x, y, out = torch.randn(1000), torch.randn(1000), torch.empty(1000)
add_kernel[(4,)](x, y, out, 1000, BLOCK=256)
assert torch.allclose(out, x + y)
exp_kernel[(4,)](x, out, 1000, BLOCK=256)
a, b, c = torch.randn(16, 64), torch.randn(64, 16), torch.empty(16, 16)
product_kernel[(1,)](a, b, c, 64, BLOCK=16)
assert torch.allclose(c, a @ b, atol=1e-3)
print("done")
"""


def test_a_kernel_in_source(tmp_path, capsys):
    file = tmp_path / "kernels.py"
    file.write_text(SCALE)
    assert main(["advise", f"{file}::scale_kernel", "--gpu", "H200", "--output", str(tmp_path / "out")]) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    [launch] = result["launches"]  # nothing could be compared without a grid, so that the other configuration is not compiled
    assert launch["occupancy"]["registers_origin"] == "compiled"
    assert launch["bound"]["us"] <= launch["config_bound"]["us"] <= launch["predicted"]["us"]
    assert any("1 more configuration is compared once the grid is known" in unknown for unknown in result["verdict"]["unknowns"])
    assert any("guessed" in unknown for unknown in result["verdict"]["unknowns"])


def test_configurations_are_one_launch_where_the_grid_is_known(tmp_path, capsys):
    file = tmp_path / "kernels.py"
    file.write_text(SCALE)
    arguments = ["advise", f"{file}::scale_kernel", "--gpu", "H200", "--arg", "n=1000000", "--output", str(tmp_path / "out")]
    assert main([*arguments, "--grid", "cdiv(n, BLOCK)"]) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    (launch,), (search,) = result["launches"], result["searches"]
    assert [trial["configuration"]["parameters"] for trial in search["trials"]] == [{"BLOCK": 64}, {"BLOCK": 1024}]
    times = [trial["predicted_us"] for trial in search["trials"]]
    assert launch["ceiling"]["us"] == launch["predicted"]["us"] == min(times) < max(times)
    assert launch["configuration"] is None, "which of them runs is unknown, and none is at 100 % of anything"
    assert launch["recommendation"]["configuration"]["parameters"] == {"BLOCK": 1024}
    assert "best of 2 configurations" in launch["ceiling"]["source"]
    assert result["verdict"]["sentence"].endswith("The configuration is not set: the time is of the best one.")
    assert any("which of its 2 configurations runs is unknown" in text for text in result["verdict"]["unknowns"])
    assert "Nothing worth changing" not in (tmp_path / "out" / "report.html").read_text()
    assert main([*arguments, "--grid", "cdiv(n, BLOCK)", "--constexpr", "BLOCK=64", "--num-warps", "1"]) == 0
    (launch,) = json.loads((tmp_path / "out" / "result.json").read_text())["launches"]
    assert launch["configuration"]["parameters"] == {"BLOCK": 64} and launch["ceiling"] is None
    assert main(arguments) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert len(result["launches"]) == 1 and not result["searches"] and result["launches"][0]["ceiling"] is None
    assert result["verdict"]["sentence"].startswith("Cannot predict a time yet") and result["verdict"]["current_us"] == 0


def test_the_first_configuration_that_compiles_stands_for_all_without_a_grid(tmp_path, capsys):
    file = tmp_path / "kernels.py"
    file.write_text(SCALE.replace('triton.Config({"BLOCK": 64}', 'triton.Config({"BLOCK": 65}'))  # no power of two
    assert main(["advise", f"{file}::scale_kernel", "--gpu", "H200", "--output", str(tmp_path / "out")]) == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert [launch["configuration"]["parameters"] for launch in result["launches"]] == [{"BLOCK": 1024}]
    assert "scale_kernel-config0" in result["warnings"][0]


def test_what_is_missing_for_a_time_is_the_first_thing_to_do(tmp_path, capsys):
    """One program says nothing of a launch: no sum of such times, but the options that say how large it is."""
    file = tmp_path / "kernels.py"
    launch = 'def scale(x, y):\n    size = x.numel()\n    scale_kernel[lambda meta: (triton.cdiv(size, meta["BLOCK"]),)](x, y, size)\n'
    file.write_text(SCALE + "\n\n" + launch)
    arguments = ["advise", str(file), "--gpu", "H200", "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("Cannot predict a time yet: ") and " --arg n=…\n" in shown and "all 2 launches" not in shown
    assert "Nothing worth changing" not in (tmp_path / "out" / "report.html").read_text()
    assert main([*arguments, "--arg", "n=1000"]) == 0
    assert "the time is of the best one" in (shown := capsys.readouterr().out) and "Cannot predict" not in shown
    file.write_text(SCALE.replace("n, BLOCK: tl", "n, WIDTH: tl.constexpr, BLOCK: tl").replace("offsets < n", "offsets < n * WIDTH"))
    assert main(arguments) == 0
    assert " --arg n=… --constexpr WIDTH=… --grid …\n" in capsys.readouterr().out, "no launch says the grid"


def test_a_guess_that_decides_the_work_is_the_first_thing_to_settle(tmp_path, capsys):
    """A time for the guessed STAGE of a kernel, or for a loop of unknown length, looks like any other."""
    file = tmp_path / "kernels.py"
    stored = "tl.store(y_ptr + offsets, STAGE * tl.load(x_ptr + offsets + k, mask=offsets < n), mask=offsets < n)"
    body = f"    for k in range(0, K, BLOCK * STAGE):\n        {stored}\n"
    staged = SCALE.replace("n, BLOCK: tl", "n, K, STAGE: tl.constexpr, GROUP_SIZE_M: tl.constexpr, BLOCK: tl")
    file.write_text(staged.partition("    tl.store")[0] + body)
    arguments = ["advise", str(file), "--gpu", "H200", "--arg", "n=4096", "--grid", "cdiv(n, BLOCK)", "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert " --arg K=… --constexpr STAGE=…\n" in capsys.readouterr().out, "GROUP_SIZE_M is tuned"
    actions = json.loads((tmp_path / "out" / "result.json").read_text())["actions"]
    action = next(each for each in actions if each["title"].startswith("Specify assumed values"))
    assert action["snippet"].endswith(" --arg K=… --constexpr STAGE=…") and action["saving_us"] == 0
    assert main([*arguments, "--arg", "K=64", "--constexpr", "STAGE=3"]) == 0
    assert "Specify assumed" not in capsys.readouterr().out


def test_the_grid_is_found_where_the_file_launches_the_kernel(tmp_path, capsys):
    file = tmp_path / "kernels.py"
    launch = 'def scale(x, y):\n    size = x.numel()\n    scale_kernel[lambda meta: (triton.cdiv(size, meta["BLOCK"]),)](x, y, size)\n'
    file.write_text(SCALE + "\n\n" + launch)
    arguments = ["inspect", f"{file}::scale_kernel", "--target", "sm_90", "--format", "json"]
    assert main([*arguments, "--arg", "n=1000"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["grid"] == [16, 1, 1] and found["demand"]["load_bytes"] == 2000
    assert any("the grid of the launch in line" in text for text in found["assumptions"])
    assert main(arguments) == 0
    assert any("The grid is not given" in text for text in json.loads(capsys.readouterr().out)["assumptions"])


def test_configurations_from_a_file(tmp_path, capsys):
    file, described = tmp_path / "kernels.py", tmp_path / "launch.toml"
    file.write_text(SCALE)
    configs = "[[configs]]\nBLOCK = 128\nnum_warps = 2\n[[configs]]\nBLOCK = 256\n"
    described.write_text('grid = "cdiv(n, BLOCK)"\n[arguments]\nn = 4096\n' + configs)
    arguments = ["advise", f"{file}::scale_kernel", "--gpu", "H200", "--toml", str(described), "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    (search,) = json.loads((tmp_path / "out" / "result.json").read_text())["searches"]
    assert [trial["configuration"]["parameters"]["BLOCK"] for trial in search["trials"]] == [128, 256]
    described.write_text("configs = 3\n")
    assert main(arguments) == 2


def test_the_page_shows_the_source_with_its_demand(tmp_path, capsys):
    file = tmp_path / "kernels.py"
    file.write_text(SCALE.replace("2 * tl.load", "2 * tl.load") + "# <script>alert(1)</script>\n")
    first = "offsets = tl.program_id(0)"
    text = file.read_text().replace(first, f'tl.static_assert(BLOCK > 0, "<b>&amp;</b>")\n    {first}')
    file.write_text(text)
    assert (
        main(
            [
                "advise",
                f"{file}::scale_kernel",
                "--gpu",
                "H200",
                "--grid",
                "1000",
                "--arg",
                "n=100000",
                "--constexpr",
                "BLOCK=64",
                "--output",
                str(tmp_path / "out"),
            ]
        )
        == 0
    )
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    lines = {line["line"]: line for line in result["launches"][0]["source_lines"]}
    number = next(i for i, line in enumerate(text.splitlines(), 1) if "tl.store" in line)
    assert lines[number]["demand"]["l2"] == 2 * 1000 * 64 * 2 and lines[number]["time_us"]["l2"] > 0
    assert any("tl.store" in line for line in result["sources"][0]["lines"])
    page = (tmp_path / "out" / "report.html").read_text()
    assert "&lt;b&gt;&amp;amp;&lt;/b&gt;" in page and "<b>&amp;</b>" not in page
    assert 'id="source"' in page and "meter-cell" in page


def test_several_gpus_side_by_side(tmp_path):
    file = tmp_path / "kernels.py"
    file.write_text(SCALE)
    arguments = ["advise", f"{file}::scale_kernel", "--gpu", "H200", "--gpu", "A100", "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    for name in ("h200", "a100"):
        assert (tmp_path / "out" / name / "report.html").exists()


@pytest.mark.parametrize("target", ["nowhere.py::kernel", "kernels.py::no_such_kernel"])
def test_a_kernel_that_is_not_there(tmp_path, monkeypatch, capsys, target):
    (tmp_path / "kernels.py").write_text(SCALE)
    monkeypatch.chdir(tmp_path)
    assert main(["advise", target, "--gpu", "H200"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert main(["advise", "kernels.py::scale_kernel"]) == 2
    assert "--gpu" in capsys.readouterr().err


PADDED = """import triton
import triton.language as tl


@triton.jit
def norm(x, y, width, eps, HEADS: tl.constexpr, POW2: tl.constexpr, MODE: tl.constexpr, CAP: tl.constexpr, LEVEL: tl.constexpr):
    at = tl.arange(0, POW2)
    for head in range(HEADS):
        row = tl.load(x + (tl.program_id(0) * HEADS + head) * width + at, mask=at < width)
        if MODE == 0 or MODE == 1:
            row = row.to(tl.float32)
        if CAP > 0:
            row = tl.minimum(row, CAP)
        if LEVEL == 2:
            y += LEVEL * width
        tl.store(y + (tl.program_id(0) * HEADS + head) * width + at, row + eps, mask=at < width)
"""


def test_what_a_guess_settles_is_not_asked_for(tmp_path, capsys):
    """POW2 follows from the width, and CAP is a switch; HEADS and LEVEL are part of the work, and so is which of two modes is meant."""
    file = tmp_path / "kernels.py"
    file.write_text(PADDED)
    arguments = ["advise", str(file), "--gpu", "H200", "--grid", "64", "-v", "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert "·  Specify assumed values: --arg width=… --constexpr HEADS=… --constexpr MODE=… --constexpr LEVEL=…\n" in shown
    assert "CAP = 0" in shown, "what is taken for it is said all the same"
    assert main([*arguments, "--arg", "width=1000", "--constexpr", "HEADS=2", "--constexpr", "LEVEL=1", "--constexpr", "MODE=1"]) == 0
    shown = capsys.readouterr().out
    assert "POW2 = 1024" in shown and "Specify assumed" not in shown


TWO = (
    SCALE
    + """

@triton.jit
def other_kernel(x_ptr, y_ptr, m, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < m), mask=offsets < m)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


def scale(x, y, n):
    scale_kernel[(triton.cdiv(n, 1024),)](x, y, n)
"""
)


@pytest.mark.parametrize("style", ["text", "md"])
def test_no_latency_is_printed_for_one_program_but_the_command_that_is_lacking(tmp_path, capsys, monkeypatch, style):
    arguments = ["advise", str(ROOT / "tests/data/scale_kernel.py"), "--gpu", "H200", "--output", str(tmp_path), "--format", style]
    monkeypatch.setattr(sys, "argv", ["advisor", *arguments])
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert " µs ±" not in shown and "x the bound" not in shown and "Cannot predict a time yet" in shown
    command = shlex.join(["advisor", *arguments]) + " --arg n=… --grid …"
    assert [line.strip() for line in shown.splitlines()].count(command) == 1


def test_a_file_stands_for_all_its_kernels(tmp_path, capsys, monkeypatch):
    """One report, with a command for each kernel that lacks something; what returns a value is no kernel that is launched."""
    file = tmp_path / "kernels.py"
    file.write_text(TWO)
    arguments = ["advise", str(file), "--gpu", "H200", "--output", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", ["advisor", *arguments])
    assert main(arguments) == 0
    result, shown = json.loads((tmp_path / "out" / "result.json").read_text()), capsys.readouterr().out
    assert [launch["kernel"] for launch in result["launches"]] == ["scale_kernel", "other_kernel"] and not result["warnings"]
    commands = result["actions"][0]["snippet"].splitlines()
    assert [line.split()[2].rpartition("::")[2] for line in commands] == ["scale_kernel", "other_kernel"]
    assert "--arg n=…" in commands[0] and "--arg m=…" in commands[1] and "--grid …" in commands[1]
    assert "\n" + "\n".join(f"  {each}" for each in commands) + "\n" in shown
    monkeypatch.setattr(sys, "argv", ["advisor", *arguments, "--arg", "n=4096"])
    assert main([*arguments, "--arg", "n=4096"]) == 0
    result, shown = json.loads((tmp_path / "out" / "result.json").read_text()), capsys.readouterr().out
    assert result["launches"][0]["occupancy"]["ctas"] == 4 and len(result["searches"]) == 1
    assert "1 of 2 launches have no size" in result["verdict"]["sentence"]
    command = result["actions"][0]["snippet"]
    assert command.partition("::")[2].startswith("other_kernel") and "n=4096" not in command and f"\n  {command}\n" in shown


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--arg", "k=1"], "no kernel of kernels.py has an argument of that name (for --arg); got k; expected one of "),
        (["--grid", "4"], "--grid is for one kernel of a file"),
        (["--signature", "*fp16"], "--signature is for one kernel of a file"),
    ],
)
def test_what_is_no_option_of_all_kernels_of_a_file_is_refused(tmp_path, capsys, more, words):
    file = tmp_path / "kernels.py"
    file.write_text(TWO)
    assert main(["advise", str(file), "--gpu", "H200", "--output", str(tmp_path / "out"), *more]) == 2
    assert words in capsys.readouterr().err


def test_the_only_kernel_of_a_file_needs_no_name(tmp_path, capsys):
    file = tmp_path / "kernels.py"
    file.write_text(SCALE)
    assert main(["advise", str(file), "--gpu", "H200", "--output", str(tmp_path / "out"), "--arg", "n=4096", "--grid", "32"]) == 0
    assert "scale_kernel" in capsys.readouterr().out
    described = str(ROOT / "triton_kernels" / "softmax.py")
    assert main(["advise", described, "--gpu", "H200", "--sizes", "B=64,H=512", "--output", str(tmp_path / "out")]) == 0
    assert "softmax" in capsys.readouterr().out


def test_commands_of_a_notebook_are_told_from_bad_python(tmp_path, capsys):
    file = tmp_path / "notebook.py"
    for line, told in (("%pip install triton", True), ("    !nvidia-smi", True), ("x = (", False)):
        file.write_text(f"{SCALE}\n{line}\n")
        assert main(["advise", str(file), "--gpu", "H200"]) == 2
        assert ("take out the notebook's commands" in capsys.readouterr().err) is told


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--arg", "n=abc"], "NAME=NUMBER"),
        (["--arg", "n=nan", "--grid", "cdiv(n, BLOCK)"], "cdiv(n, BLOCK) = nan"),
        (["--arg", "n=-5", "--grid", "cdiv(n, BLOCK)"], "cdiv(n, BLOCK) = 0"),
        (["--arg", "n=tl.float32"], "NAME=NUMBER"),
        (["--tensor-parallel", "2"], "--tensor-parallel is for tables"),
        (["--weights", "w.npz"], "--weights is for tables"),
        (["--constexpr", "BLOCK=100"], "line 11: ValueError: arange's range must be a power of 2"),
    ],
)
def test_what_is_given_wrongly_is_said_whole(tmp_path, capsys, more, words):
    file = tmp_path / "kernels.py"
    file.write_text(SCALE)
    assert main(["advise", f"{file}::scale_kernel", "--gpu", "H200", "--output", str(tmp_path / "out"), *more]) == 2
    error = capsys.readouterr().err
    assert words in error.splitlines()[-1], error


def test_a_record_is_all_that_advise_needs(tmp_path, monkeypatch):
    program, record = tmp_path / "program.py", tmp_path / "launches.jsonl"
    program.write_text(PROGRAM)
    command = [*loaded.python(), "-m", "advisor", "record", "-o", str(record), "--", *loaded.python(), str(program)]
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "done" in done.stdout
    program.unlink()
    assert main(["advise", str(record), "--gpu", "H200", "--output", str(tmp_path / "out")]) == 0
    launches = json.loads((tmp_path / "out" / "result.json").read_text())["launches"]
    assert {launch["kernel"] for launch in launches} == {"add_kernel", "exp_kernel", "product_kernel"}
    by_name = {launch["kernel"]: {p["pipeline"]: p["demand"] for p in launch["pipelines"]} for launch in launches}
    assert by_name["exp_kernel"]["xu"] >= 1000
    assert by_name["add_kernel"]["l2"] == pytest.approx(3 * 4000)
    monkeypatch.chdir(tmp_path)
    record.rename("launches")  # without a suffix it could be a bundled kernel's name
    assert main(["advise", "launches", "--gpu", "H200"]) == 0


CENTRE = """
import triton
import triton.language as tl


@triton.autotune(configs=[triton.Config({}, num_warps=warps) for warps in (1, 2, 4, 8)], key=["n"])
@triton.jit
def centre_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    columns = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + columns, mask=columns < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + tl.program_id(0) * n + columns, x - tl.sum(x, axis=0) / n, mask=columns < n)
"""


def test_of_configurations_that_cannot_be_told_apart_the_usual_one_is_recommended(tmp_path):
    """Memory decides alike for all numbers of warps: one warp for a row of 4,096 elements is nobody's choice."""
    path = tmp_path / "centre.py"
    path.write_text(CENTRE)
    assert (
        main(
            [
                "advise",
                str(path),
                "--gpu",
                "H100",
                "--arg",
                "n=4096",
                "--constexpr",
                "BLOCK=4096",
                "--grid",
                "8192",
                "--output",
                str(tmp_path / "out"),
            ]
        )
        == 0
    )
    launch = json.loads((tmp_path / "out" / "result.json").read_text())["launches"][0]
    assert launch["recommendation"]["configuration"]["num_warps"] == 4


@pytest.mark.parametrize(("warps", "launches"), [(32, False), (16, True)])
def test_why_a_kernel_cannot_launch_is_said_with_a_remedy(warps, launches, tmp_path, capsys):
    """32 warps are 1,024 threads of an NVIDIA GPU, and twice as many of an AMD one."""
    path = tmp_path / "k.py"
    path.write_text("\n".join(line for line in SCALE.splitlines() if "autotune" not in line))
    arguments = ["--gpu", "MI300X", "--arg", "n=1000000", "--constexpr", "BLOCK=4096", "--grid", "245", "--num-warps", str(warps)]
    assert main(["advise", f"{path}::scale_kernel", *arguments, "--output", str(tmp_path / "out"), "--format", "json"]) == 0
    result = json.loads(capsys.readouterr().out)
    launch = result["launches"][0]
    found = [each for each in launch["findings"] if each["rule"] == "cannot-launch"]
    assert bool(found) is not launches and ("cannot-launch" in launch["passed_rules"]) is launches
    if not launches:
        assert found[0]["severity"] == "error" and "2,048 threads in a CTA" in found[0]["title"]
        assert result["actions"][0]["title"] == "Change how scale_kernel is launched: it cannot run"
        assert "num_warps=16 is the most on MI300X" in result["actions"][0]["detail"]
