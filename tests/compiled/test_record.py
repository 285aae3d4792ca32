"""`advisor record` on a program with three kernels, in the interpreter, and reports from the record alone."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.advising.kernel_report import advise_compiled
from advisor.cli import main
from advisor.compiled.demand.footprints import certain_footprint
from advisor.compiled.launch_report import KernelTarget, Unreadable, analyse_targets, is_compiled_target, launch_report, targets_from
from advisor.compiled.launches.records import MOST_SHOWN, heaviest, record_target
from advisor.gpus.hardware import load_gpu
from advisor.python_source.literal_values import Symbol
from advisor.rows.launches import FORMAT, is_launch_record, read_launches
from advisor.system.errors import InputError
from tests import loaded

pytest.importorskip("torch")
pytest.importorskip("triton")

pytestmark = pytest.mark.usefixtures("not_disassembled")
HELPERS = "import triton\nimport triton.language as tl\n@triton.jit\ndef double(x):\n    return x * 2.0\n"
PROGRAM = """
import sys
import torch, triton
import triton.language as tl
from helpers import double
LIMIT = tl.constexpr(3.0)

@triton.jit
def first(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, double(tl.load(x + o, mask=o < n)), mask=o < n)

@triton.jit
def second(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.minimum(tl.load(x + o, mask=o < n), LIMIT), mask=o < n)

@triton.jit
def third(x, y, ids, n, B: tl.constexpr):
    row = tl.load(ids + tl.program_id(0))
    o = tl.arange(0, B)
    tl.store(y + tl.program_id(0) * n + o, tl.load(x + row * n + o, mask=o < n), mask=o < n)

x = torch.arange(100, dtype=torch.float32)
y = torch.empty_like(x)
for _ in range(3):
    first[(2,)](x, y, 100, B=64)
assert torch.equal(y, 2 * x)
second[lambda meta: (triton.cdiv(100, meta["B"]),)](x, y, 100, B=64, num_warps=2)
assert torch.equal(y, x.clamp(max=3))
third[(5,)](x.view(10, 10), y, torch.tensor([3, 1, 1, 9, 0]), 10, B=16)
assert torch.equal(y[:10], x[30:40])
sys.exit(7)
"""


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("record")
    (folder / "helpers.py").write_text(HELPERS)
    (folder / "program.py").write_text(PROGRAM)
    output = folder / "launches.jsonl"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    record_it = ["-m", "advisor", "record", "-o", str(output), "--contents", "ids"]
    done = subprocess.run(
        [*loaded.python(), *record_it, "--", *loaded.python(), str(folder / "program.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 7, done.stderr
    for name in ("helpers.py", "program.py"):
        (folder / name).unlink()  # the record must do alone
    return output


TUNED = """
import torch, triton, advisor
import triton.language as tl

@{decorator}(configs=[triton.Config({{"B": b}}) for b in (64, 128)], key=["n"], do_bench=lambda run, quantiles: run() or [1.0] * 3{more})
@triton.jit
def copy(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n), mask=o < n)

for _ in range(3):
    copy[lambda meta: (triton.cdiv(100, meta["B"]),)](torch.ones(100), torch.empty(100), 100)
"""


@pytest.mark.parametrize(("decorator", "more"), [("triton.autotune", ""), ("advisor.autotune", ", check_output=True")])
def test_trials_are_told_from_what_the_program_launches(decorator: str, more: str, tmp_path: Path) -> None:
    program, output = tmp_path / "program.py", tmp_path / "launches.jsonl"
    program.write_text(TUNED.format(decorator=decorator, more=more))
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parents[2]), "ADVISOR_CACHE_DIR": str(tmp_path)}
    command = [*loaded.python(), "-m", "advisor", "record", "-o", str(output), "--", *loaded.python(), str(program)]
    subprocess.run(
        command,
        env=environment,
        capture_output=True,
        timeout=120,
        check=True,
    )
    launches = read_launches(output).launches
    assert sum(launch.count for launch in launches if not launch.tuning) == 3
    assert {launch.constexprs["B"] for launch in launches if launch.tuning} == {64, 128}


def test_launches_are_written_down(record: Path) -> None:
    records = read_launches(record)
    assert not records.problems
    launches = {launch.kernel: launch for launch in records.launches}
    assert set(launches) == {"first", "second", "third"}
    assert launches["first"].count == 3 and launches["first"].grid == (2,)
    assert launches["first"].signature == {"x": "*fp32", "y": "*fp32", "n": "i32", "B": "constexpr"}
    assert launches["second"].options == {"num_warps": 2} and launches["second"].grid == (2,)
    assert launches["second"].constants == {"LIMIT": 3.0}
    assert launches["third"].contents == {"ids": [3, 1, 1, 9, 0]}
    assert launches["third"].tensors["x"]["shape"] == [10, 10]


def test_reports_from_the_record_alone(record: Path) -> None:
    assert is_launch_record(record) and is_compiled_target(str(record))
    reports = {}
    for target, analysis in analyse_targets(targets_from(str(record)), load_gpu("H200")):
        assert isinstance(target, KernelTarget)
        assert not isinstance(analysis, Unreadable), analysis
        reports[analysis.inspection.compiled.name] = (launch_report(target, analysis), analysis.inspection.demand)
    assert set(reports) == {"first", "second", "third"}
    assert reports["first"][1].load_bytes == 400 and reports["first"][1].store_bytes == 400
    assert reports["third"][1].load_bytes == 5 * 8 + 5 * 40
    assert reports["third"][1].unknown == {}
    report = reports["second"][0]
    assert report.bound.us <= report.config_bound.us and report.predicted is not None
    assert report.configuration is not None and report.configuration.num_warps == 2


def test_a_cut_off_line_is_left_out(record: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.jsonl"
    text = record.read_text()
    cut.write_text(text + '{"launch": "abc", "ker')
    assert "cut off" in read_launches(cut).problems[0]
    assert len(read_launches(cut).launches) == 3


def test_a_record_without_a_whole_launch_is_to_be_made_again(record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut, empty = tmp_path / "cut.jsonl", tmp_path / "empty.jsonl"
    lines = record.read_text().splitlines(keepends=True)
    cut.write_text(lines[0] + '{"launch": "abc", "ker')
    empty.write_text(lines[0])
    assert main(["advise", str(cut), "--gpu", "H200"]) == 2
    error = capsys.readouterr().err
    assert "cut off" in error and "record again" in error and "record a program" not in error
    assert main(["advise", str(empty), "--gpu", "H200"]) == 5 and "record a program" in capsys.readouterr().err


def test_other_files_are_no_records(tmp_path: Path) -> None:
    other = tmp_path / "x.jsonl"
    other.write_text("{}\n")
    with pytest.raises(InputError, match="not a launch record"):
        read_launches(other)
    assert is_launch_record(other)  # by its name: reading it says what is wrong with it
    assert not is_launch_record(other.rename(tmp_path / "x.csv"))


def test_mistakes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "-o", str(tmp_path / "l.jsonl"), "--", "no-such-program"]) == 2
    assert main(["record", "-o", str(tmp_path / "l.jsonl")]) == 2
    assert "advisor: error:" in capsys.readouterr().err


ENDLESS = PROGRAM.replace("sys.exit(7)", "import os, time\nprint(os.getpid(), flush=True)\nwhile True:\n    time.sleep(0.05)")


@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
def test_a_program_that_is_stopped_does_not_go_on_and_its_launches_are_there(ends: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text(HELPERS)
    (tmp_path / "program.py").write_text(ENDLESS)
    output = tmp_path / "launches.jsonl"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "advisor", "record", "-o", str(output), "--", sys.executable, str(tmp_path / "program.py")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as recording:
        assert recording.stdout is not None
        program = int(recording.stdout.readline())
        try:
            recording.send_signal(ends)
            assert recording.wait(60) == 130
            assert not Path(f"/proc/{program}").exists()
            assert recording.stderr is not None
            said = recording.stderr.read().splitlines()[-1]
            assert said == f"advisor: error: interrupted; what was launched until then is in {output}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(program, signal.SIGKILL)
    assert {launch.kernel for launch in read_launches(output).launches} == {"first", "second", "third"}


ENDS = """
import multiprocessing, os, signal, sys, threading
import torch, triton
import triton.language as tl

@triton.jit
def copy(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n), mask=o < n)

def launch(times, blocks=2):
    for _ in range(times):
        copy[(blocks,)](torch.ones(100), torch.empty(100), 100, B=64)

if __name__ == "__main__":
    launch(5)
"""


def recorded(folder: Path, program: str, code: int = 0) -> Path:
    """The record of a program, in the interpreter."""
    (folder / "program.py").write_text(program)
    output = folder / "launches.jsonl"
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [*loaded.python(), "-m", "advisor", "record", "-o", str(output), "--", *loaded.python(), str(folder / "program.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return output


@pytest.mark.parametrize(
    ("lines", "counts", "code"),
    [
        (["os._exit(3)"], {2: 5}, 3),
        (["child = os.fork()", "launch(6)", "launch(1, 4)", "os._exit(0) if child == 0 else os.waitpid(child, 0)"], {2: 5 + 12, 4: 2}, 0),
        (["child = os.fork()", "if child == 0: launch(3), sys.exit(0)", "os.waitpid(child, 0)"], {2: 5 + 3}, 0),
        (['child = multiprocessing.get_context("fork").Process(target=launch, args=(6,))', "child.start()", "child.join()"], {2: 5 + 6}, 0),
        (["if sys.argv[1:] == []: os.execv(sys.executable, [sys.executable, __file__, 'again'])"], {2: 10}, 0),
        (["os.kill(os.getpid(), signal.SIGTERM)"], {2: 4}, 143),  # nothing of Python's runs: half is known at least
    ],
)
def test_launches_are_counted_however_the_program_ends(lines: list[str], counts: dict[int, int], code: int, tmp_path: Path) -> None:
    records = read_launches(recorded(tmp_path, ENDS + "".join(f"    {line}\n" for line in lines), code))
    assert not records.problems
    assert {launch.grid[0]: launch.count for launch in records.launches} == counts


def test_a_program_that_exits_at_once_does_not_wait_for_the_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A watchdog's `os._exit` ends what hangs; what the GPU had done by then is known all the same."""
    from advisor.compiled.recorder import hook

    class Kernel:
        @staticmethod
        def fn(x: float, n: int) -> None: ...

    class Hanging(Event):
        def synchronize(self) -> None:
            raise AssertionError("waited")

    states = iter([True, True, False])
    monkeypatch.setattr(hook, "timer_pair", lambda: (lambda state: (Hanging(state), Hanging(state)))(next(states)))
    recorder = hook.Recorder(str(tmp_path / "l.jsonl"), "")
    recorder.start()
    run = hook.wrap_run(recorder, lambda self, *arguments, grid, warmup: None)
    for _ in range(3):
        run(Kernel(), 1.0, 100, grid=(1,), warmup=False)
    assert hook.ends(recorder, lambda code: code)(5) == 5
    recorder.finish()  # of what was said, nothing is said again
    (launch,) = read_launches(tmp_path / "l.jsonl").launches
    assert (launch.count, launch.times_us, launch.at_most_us) == (3, (), pytest.approx((30.0,)))


def test_a_reinterpreted_tensor_has_the_type_that_the_kernel_sees(tmp_path: Path) -> None:
    bytes_, float8 = "torch.zeros(64, dtype=torch.uint8)", "torch.zeros(64, dtype=torch.float8_e5m2)"
    call = f"copy[(1,)](triton.reinterpret({bytes_}, tl.float8e5), {float8}, 64, B=64)"
    (launch,) = read_launches(recorded(tmp_path, ENDS.replace("launch(5)", call))).launches
    assert launch.signature == {"x": "*fp8e5", "y": "*fp8e5", "n": "i32", "B": "constexpr"}
    assert launch.tensors["x"]["dtype"] == launch.tensors["y"]["dtype"] == "float8_e5m2"


TWICE = """
@triton.jit
def add(x, y, out, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(out + o, tl.load(x + o, mask=o < n) + tl.load(y + o, mask=o < n), mask=o < n)

if __name__ == "__main__":
    x, other = torch.ones(100), torch.ones(100)
"""


@pytest.mark.parametrize(
    ("arguments", "passing", "same"),
    [
        ("x, other, torch.empty(100)", (800, 400, 0), {}),
        ("x, x, torch.empty(100)", (400, 400, 0), {"y": "x"}),
        ("x, x.view(100), x", (400, 400, 400), {"y": "x", "out": "x"}),
        ("x, other, other", (800, 400, 400), {"out": "y"}),
    ],
)
def test_a_tensor_that_is_passed_twice_is_there_once(
    arguments: str, passing: tuple[int, int, int], same: dict[str, str], tmp_path: Path
) -> None:
    path = recorded(tmp_path, ENDS.replace("    launch(5)", "    pass") + TWICE + f"    add[(2,)]({arguments}, 100, B=64)\n")
    (launch,) = read_launches(path).launches
    assert {name: said["same_as"] for name, said in launch.tensors.items() if "same_as" in said} == same
    ((_, analysis),) = analyse_targets(targets_from(str(path)), load_gpu("H200"))
    assert not isinstance(analysis, Unreadable), analysis
    found = certain_footprint(analysis.inspection.demand)
    assert (found.read, found.written, found.in_place) == passing


@pytest.mark.parametrize("same", ['"z"', '"y"', "[]", '"out"'])
def test_a_tensor_that_is_said_to_be_another_is_like_it(same: str, tmp_path: Path) -> None:
    path = recorded(tmp_path, ENDS.replace("    launch(5)", "    pass") + TWICE + "    add[(2,)](x, x, torch.empty(50), 50, B=64)\n")
    path.write_text(path.read_text().replace('"same_as": "x"', f'"same_as": {same}'))
    (problem,) = read_launches(path).problems
    assert "same_as of y: no other tensor of the same type, shape and strides" in problem


def test_launches_beyond_what_a_record_holds_are_said_to_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from advisor.compiled.recorder import hook

    monkeypatch.setattr(hook, "MAX_DISTINCT", 2)
    monkeypatch.setattr(hook, "timer_pair", lambda: None)
    recorder = hook.Recorder(str(tmp_path / "l.jsonl"), "")
    recorder.start()
    run = hook.wrap_run(recorder, lambda self, *arguments, grid, warmup: None)

    class Kernel:
        @staticmethod
        def fn(x: float, n: int) -> None: ...

    for n in (1, 2, 3, 4, 1):
        run(Kernel(), 1.0, n, grid=(1,), warmup=False)
    recorder.finish()
    records = read_launches(tmp_path / "l.jsonl")
    assert [launch.count for launch in records.launches] == [2, 1]
    assert records.problems == ("there are more than 2 distinct launches: those after them are missing",)


def test_what_cannot_be_read_of_a_launch_names_its_kernel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And does not pass for a damaged record, which would be whole if it were made again."""
    record = recorded(tmp_path, ENDS.replace("y, n, B: tl.constexpr", "y, n, B: tl.constexpr, D: tl.constexpr = print"))
    records = read_launches(record)
    (problem,) = records.problems
    assert problem.startswith("copy, launch ") and not records.damaged
    assert problem.endswith(": left out, for D holds a builtin_function_or_method, of which a record can tell nothing")
    assert main(["advise", str(record), "--gpu", "H200"]) == 5
    assert problem in (said := capsys.readouterr().err) and "damaged" not in said


PASSED = {
    "more.py": "import triton\nimport triton.language as tl\n@triton.jit\ndef half(x):\n    return x * 0.5\n",
    "acts.py": """
import triton
import triton.language as tl
from more import half

@triton.jit
def square(x):
    return half(x) * x
""",
    "program.py": """
import torch, triton
import triton.language as tl
import acts

@triton.jit
def square(x):
    return x * x

@triton.jit
def apply(x, y, n, F: tl.constexpr, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, F(tl.load(x + o, mask=o < n)), mask=o < n)

@triton.jit
def chain(x, y, n, F: tl.constexpr, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, F[0](F[1](tl.load(x + o, mask=o < n))) + F[2], mask=o < n)

x = torch.randn(100)
for function, want in ((square, x * x), (acts.square, x * x / 2), (tl.sigmoid, x.sigmoid())):
    y = torch.empty(100)
    apply[(2,)](x, y, 100, function, B=64)
    assert torch.allclose(y, want)
chain[(2,)](x, y, 100, (acts.square, square, 3), B=64)
assert torch.allclose(y, x**4 / 2 + 3)
""",
}
"""A program that gives kernels functions as constants: of its own file, of another's of the same name, and of Triton's."""


@pytest.fixture(scope="module")
def passing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The record of `PASSED`, whose files are gone."""
    folder = tmp_path_factory.mktemp("passing")
    for name, text in PASSED.items():
        (folder / name).write_text(text)
    record = recorded(folder, PASSED["program.py"])
    for name in PASSED:
        (folder / name).unlink()
    return record


def test_functions_that_kernels_are_given_are_recorded(passing: Path) -> None:
    records = read_launches(passing)
    assert not records.problems
    given = [launch.constexprs["F"] for launch in records.launches]
    own, other = given[:2]
    assert (own.name, Path(own.path).name, other.name, Path(other.path).name) == ("square", "program.py", "square", "acts.py")
    assert given[2:] == [Symbol("tl.sigmoid"), (other, own, 3)] and own.alias != other.alias


def test_a_launch_with_a_function_is_reported_on_for_itself(passing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With another function the work is another, and no configuration of the same."""
    assert main(["advise", str(passing), "--gpu", "H200", "--format", "json", "--output", str(tmp_path)]) == 0
    launches = json.loads(capsys.readouterr().out)["launches"]
    assert sorted(each["kernel"] for each in launches) == ["apply"] * 3 + ["chain"]
    assert all(each["ceiling"] is None for each in launches)
    mixes = [part for each in launches if each["kernel"] == "apply" for part in each["pipelines"] if part["pipeline"] == "xu"]
    assert len({part["demand"] for part in mixes}) > 1, "the exponential of one of them is seen"


def test_a_function_that_is_not_in_the_record_is_said(passing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "launches.jsonl"
    record.write_text(passing.read_text().replace("def square(x):", "def cube(x):"))
    assert main(["advise", str(record), "--gpu", "H200", "--output", str(tmp_path)]) == 0
    assert "the kernel is given the function square of acts.py, which is not there" in capsys.readouterr().err


TWO = """
import torch, triton
import triton.language as tl
from helpers import double

@triton.jit
def plain(x, y, B: tl.constexpr):
    tl.store(y + tl.arange(0, B), tl.load(x + tl.arange(0, B)))

@triton.jit
def doubled(x, y, B: tl.constexpr):
    tl.store(y + tl.arange(0, B), double(tl.load(x + tl.arange(0, B))))

for kernel in (plain, doubled):
    kernel[(1,)](torch.ones(64), torch.empty(64), B=64)
"""


def test_kernels_of_one_file_need_not_call_the_same_files(tmp_path: Path) -> None:
    (tmp_path / "helpers.py").write_text(HELPERS)
    record = recorded(tmp_path, TWO)
    (tmp_path / "helpers.py").unlink()
    found = [analysis for _, analysis in analyse_targets(targets_from(str(record)), load_gpu("H200"))]
    assert len(found) == 2 and not [each for each in found if isinstance(each, Unreadable)]


class Event:
    """A CUDA event; the GPU has reached it at once where it was idle."""

    def __init__(self, idle: bool) -> None:
        self.idle = idle

    def query(self) -> bool:
        return self.idle

    def record(self) -> None: ...

    def synchronize(self) -> None: ...

    def elapsed_time(self, other: Event) -> float:
        return 0.030 if self.idle else 0.005


@pytest.mark.parametrize(
    ("idle", "times", "at_most"),
    [
        ([True, True, False, True], (5.0,), (30.0, 30.0)),
        ([True] * 4, (), (30.0,) * 3),
        ([False] * 2, (5.0,), ()),
    ],
)
def test_a_time_that_holds_the_launch_from_python_is_an_upper_limit(record, tmp_path, monkeypatch, idle, times, at_most):
    """A 5 µs kernel behind an idle GPU takes as long as Python takes to launch it."""
    from advisor.compiled.recorder import hook

    class Kernel:
        @staticmethod
        def fn(x: float, n: int) -> None: ...  # what Triton's JITFunction wraps

    states = iter(idle)
    monkeypatch.setattr(hook, "timer_pair", lambda: (lambda state: (Event(state), Event(state)))(next(states)))
    output = tmp_path / "timed.jsonl"
    recorder = hook.Recorder(str(output), "")
    recorder.start()
    run = hook.wrap_run(recorder, lambda self, *arguments, grid, warmup: None)
    for _ in idle:  # the first compiles: it is not timed
        run(Kernel(), 1.0, 100, grid=(1,), warmup=False)
    recorder.finish()
    assert not recorder.complaints
    (launch,) = read_launches(output).launches
    assert (launch.count, launch.times_us, launch.at_most_us) == (len(idle), pytest.approx(times), pytest.approx(at_most))
    assert launch.cost_us == pytest.approx(len(idle) * (5.0 if times else 30.0))


def test_a_launch_that_fails_is_in_the_record(tmp_path: Path) -> None:
    from advisor.compiled.recorder import hook

    class Kernel:
        @staticmethod
        def fn(x: float, n: int) -> None: ...

    def fails(self: object, *arguments: object, grid: object, warmup: bool) -> None:
        assert FORMAT in (tmp_path / "failed.jsonl").read_text() and '"launch"' in (tmp_path / "failed.jsonl").read_text()
        raise ZeroDivisionError

    recorder = hook.Recorder(str(tmp_path / "failed.jsonl"), "")
    recorder.start()
    with pytest.raises(ZeroDivisionError):
        hook.wrap_run(recorder, fails)(Kernel(), 1.0, 100, grid=(7,), warmup=False)
    (launch,) = read_launches(tmp_path / "failed.jsonl").launches
    assert (launch.kernel, launch.grid, launch.count, launch.arguments["n"]) == ("fn", (7,), 1, 100)


def test_it_is_said_that_sums_do_not_count_how_often_launches_ran(record: Path) -> None:
    unknowns = advise_compiled(str(record), load_gpu("H200"), cache="warm", command="").verdict.unknowns
    (said,) = (text for text in unknowns if text.startswith("Sums count each launch once"))
    assert "first-" in said and said.endswith("ran 3 times.")


def test_an_upper_limit_is_said_to_be_one(record: Path, tmp_path: Path) -> None:
    key = next(launch.id for launch in read_launches(record).launches if launch.kernel == "first")
    timed = tmp_path / "timed.jsonl"
    timed.write_text(record.read_text() + f'{{"count_of": "{key}", "process": 0, "count": 3, "at_most_us": [31.5, 40.0]}}\n')
    target = next(t for t in targets_from(str(timed)) if t.launch.kernel == "first")
    assert target.measured_us is None and "at most 31.5 µs" in target.source


SIZES = """import triton
import triton.language as tl

@triton.jit
def scale(x, y, n, B: tl.constexpr):
    o = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + o, tl.load(x + o, mask=o < n) * 2.0, mask=o < n)

@triton.jit
def rows(x, y, COLS: tl.constexpr, B: tl.constexpr):
    o = tl.arange(0, B)
    tl.store(y + tl.program_id(0) * COLS + o, tl.load(x + tl.program_id(0) * COLS + o, mask=o < COLS), mask=o < COLS)
"""


def _record_of(path: Path, launches: list[tuple[str, dict[str, int], dict[str, int], list[int], int]]) -> Path:
    """A record of launches: kernel, arguments, constants, grid, elements of each tensor."""
    digest = hashlib.sha256(SIZES.encode()).hexdigest()
    lines: list[dict[str, Any]] = [{"format": FORMAT, "process": "1", "versions": {}, "argv": []}]
    lines.append({"source": digest, "path": "k.py", "text": SIZES})
    for number, (kernel, arguments, constants, grid, elements) in enumerate(launches):
        types = {"x": "*fp16", "y": "*fp16", **dict.fromkeys(arguments, "i32"), **dict.fromkeys(constants, "constexpr")}
        tensor = {"shape": [elements], "strides": [1], "dtype": "float16", "aligned": True}
        launch = {"kernel": kernel, "line": 5, "source": digest, "signature": types, "constexprs": constants, "arguments": arguments}
        name = hashlib.sha256(str(number).encode()).hexdigest()[:16]
        lines.append({"launch": name, "process": "1", **launch, "tensors": {"x": tensor, "y": tensor}, "grid": grid, "options": {}})
    path.write_text("\n".join(map(json.dumps, lines)) + "\n")
    return path


def test_of_very_many_launches_the_heaviest_are_looked_at_and_all_are_summed(tmp_path: Path) -> None:
    many = [("scale", {"n": 16 * (i + 1)}, {"B": 64}, [(i + 4) // 4], 16 * (i + 1)) for i in range(200)]
    recorded = record_target(_record_of(tmp_path / "many.jsonl", [*many, ("rows", {}, {"COLS": 8, "B": 8}, [1], 8)]))
    shown, said = heaviest(recorded)
    assert len(shown) == MOST_SHOWN and shown[0].launch.given.scalars["n"] == 3200
    assert [each.launch.kernel for each in shown].count("rows") == 1, "the heaviest of every kernel, light as it may be"
    assert "201 launches with other arguments" in said[0] and "80 heaviest" in said[0]
    assert said[1] == "scale: 200 launches with other arguments ran 200 times; 79 shown."
    assert heaviest(recorded[:5]) == (recorded[:5], [])


@pytest.mark.parametrize(
    ("second", "one_problem"),
    [
        (("scale", {"n": 4096}, {"B": 128}, [32], 4096), True),
        (("scale", {"n": 4096}, {"B": 64}, [32], 4096), False),  # another grid with the same configuration
        (("scale", {"n": 4096}, {"B": 128}, [32], 8192), False),  # other tensors
    ],
)
def test_launches_are_configurations_of_one_problem_only_if_all_but_these_agrees(
    second: tuple[str, dict[str, int], dict[str, int], list[int], int], one_problem: bool, tmp_path: Path
) -> None:
    path = _record_of(tmp_path / "two.jsonl", [("scale", {"n": 4096}, {"B": 64}, [64], 4096), second])
    result = advise_compiled(str(path), load_gpu("H100"), cache="warm", command="")
    assert [report.ceiling is not None for report in result.launches] == [one_problem] * 2


def test_constants_that_are_sizes_make_other_problems(tmp_path: Path) -> None:
    both = [("rows", {}, {"COLS": columns, "B": columns}, [4], 16384) for columns in (128, 4096)]
    result = advise_compiled(str(_record_of(tmp_path / "rows.jsonl", both)), load_gpu("H100"), cache="warm", command="")
    assert [report.ceiling for report in result.launches] == [None, None]
