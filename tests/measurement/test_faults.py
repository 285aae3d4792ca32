"""Kernels that go wrong, in worker processes: each is reported as exactly what it is, and the rest of the run completes."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from advisor.measurement.devices.device import DeviceSpec, parse_device
from advisor.measurement.launch import FAILURE_KINDS, Batch, Failure, Launch, classify, is_fatal
from advisor.measurement.measured_rows import read_measured
from advisor.measurement.measuring import measure
from advisor.measurement.scheduler import Limits, Scheduler
from advisor.result.schema import Configuration
from advisor.system.errors import MeasurementError

from .conftest import elementwise, kernel, launches

EXPECTED = {
    "right": None,
    "illegal": "illegal-access",
    "hang": "hang",
    "oom": "out-of-memory",
    "resources": "out-of-resources",
    "compile": "compile-error",
    "wrong": "wrong-output",
    "unwritten": "wrong-output",
    "segfault": "crash",
    "exit": "crash",
    "raise": "crash",
    "late": "illegal-access",
}
EXECUTE = "fake,execute=1,samples=2"


def faulty(mode: str) -> Launch:
    return Launch(
        kernel=kernel("faulty_kernel"), problem=elementwise(), configuration=Configuration(parameters={"MODE": mode}, num_stages=1)
    )


@pytest.fixture(scope="module")
def outcomes():
    """All of them in one batch, between two that are right."""
    modes = [*EXPECTED, "right again"]
    batch = Batch(launches=tuple(faulty(mode.split()[0]) for mode in modes))
    with Scheduler(parse_device(EXECUTE), limits=Limits(launch_s=1.5, check_s=5, rounds_s=5)) as scheduler:
        ((_, found),) = scheduler.run([batch])
        pid = scheduler._worker.process.pid
    assert gone(pid)
    return dict(zip(modes, found, strict=True))


@pytest.mark.parametrize("mode", EXPECTED)
def test_each_fault_by_its_name(outcomes, mode):
    found = outcomes[mode].failure
    assert (found and found.kind) == EXPECTED[mode]


def test_the_rest_completes(outcomes):
    for mode in ("right", "right again"):
        assert len(outcomes[mode].rounds) >= 10
    assert outcomes["late"].failure.stage == "rounds"  # it was right at first
    assert "SIGSEGV" in outcomes["segfault"].failure.message
    assert "status 3" in outcomes["exit"].failure.message and "what it said last" in outcomes["exit"].failure.message
    said = outcomes["hang"].failure.message
    assert "nothing within 1.5 s, the limit for the first run: given up" in said and "`advisor measure --timeout TIME` raises it" in said
    assert "100 %" in outcomes["unwritten"].failure.message


def test_inputs_that_do_not_fit_fail_the_batch_and_nothing_else():
    bad = [Launch(kernel=kernel("inputs_kernel"), problem=elementwise(), configuration=each.configuration) for each in launches(1)[:2]]
    with Scheduler(parse_device(EXECUTE)) as scheduler:
        (_, first), (_, second) = scheduler.run([Batch(launches=tuple(bad)), Batch(launches=tuple(launches(1)[:2]))])
    assert [o.failure.kind for o in first] == ["out-of-memory"] * 2 and first[0].failure.no_memory_for_inputs
    assert all(o.failure is None for o in second)


def test_simulated_faults_land_in_the_file(tmp_path):
    """The fake device's own faults, through `measure`: as many rows as launches, failures with their kind and reason."""
    kinds = "illegal-access+out-of-memory+out-of-resources+compile-error+wrong-output+crash"
    todo = launches(4)
    summary = measure(todo, tmp_path / "rows.csv", device=f"fake,faults={kinds}:0.3")
    rows = list(read_measured(tmp_path / "rows.csv"))
    assert len(rows) == len(todo) == summary.measured + sum(summary.failed.values())
    failed = [row for row in rows if row.status != "ok"]
    assert 3 <= len(failed) < len(todo) and {row.status for row in failed} <= set(FAILURE_KINDS)
    assert all(row.latency_us is None and row.failure.message and not row.rounds for row in failed)
    lasting = [row for row in rows if row.lasting]
    assert 0 < len(lasting) < len(rows) and len(lasting) > summary.measured
    again = measure(todo, tmp_path / "rows.csv", device="fake")  # what may have been the machine's is tried again
    assert again.skipped == len(lasting) and again.measured == len(rows) - len(lasting)
    after = list(read_measured(tmp_path / "rows.csv"))
    assert [row.key() for row in after] == [row.key() for row in rows], "each has one row, where it had one"
    assert [row.status for row in after] == ["ok" if not row.lasting else row.status for row in rows]


def test_failures_of_every_launch_are_told_with_a_reason(tmp_path):
    summary = measure(launches(6), tmp_path / "rows.csv", device="fake,faults=wrong-output:1")  # the configurations' own doing
    assert summary.finished and summary.skipped == 0 and summary.failed == {"wrong-output": 36}
    assert summary.reasons["wrong-output"].startswith("launch: the output differs")


@pytest.mark.parametrize("stage", ["open", "inputs", "compile", "launch", "check", "rounds"])
def test_every_limit_says_what_raises_it(stage):
    said = Limits(**{f"{stage}_s": 7.5}).exceeded(stage)
    assert "7.5 s, the limit for" in said and "without a latency" in said
    raised = Limits.uniform(99).of(stage) == 99
    assert ("--timeout" if raised else f"Limits({stage}_s=…)") in said


def test_a_device_that_does_not_answer_says_for_how_long(monkeypatch):
    monkeypatch.setattr("advisor.measurement.scheduler.wait", lambda *_: [])
    with pytest.raises(MeasurementError, match=r"did not answer.*nothing within 3 s.*limit.*nvidia-smi"):
        Scheduler(parse_device(EXECUTE), limits=Limits(open_s=3))


def test_a_device_that_cannot_open_is_an_error_not_a_hang(tmp_path):
    with pytest.raises(MeasurementError, match=r"worker died|did not answer|unknown GPU"):
        measure(launches(1), tmp_path / "rows.csv", device=DeviceSpec(kind="fake", options={"gpu": "no such GPU"}))


def gone(pid: int) -> bool:
    """Whether the process is gone, or dead and not yet asked for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.skipif(sys.platform != "linux", reason="PR_SET_PDEATHSIG is Linux's")
def test_workers_die_with_their_parent():
    """SIGKILL to the run while a kernel hangs: the worker is gone too."""
    script = (
        "import sys; sys.path[:0] = sys.argv[1:3]\n"
        "from measurement.test_faults import faulty, EXECUTE\n"
        "from advisor.measurement.devices.device import parse_device\n"
        "from advisor.measurement.launch import Batch\n"
        "from advisor.measurement.scheduler import Scheduler\n"
        "s = Scheduler(parse_device(EXECUTE)); print(s._worker.process.pid, flush=True)\n"
        "list(s.run([Batch(launches=(faulty('hang'),))]))\n"
    )
    tests = Path(__file__).resolve().parents[1]
    with subprocess.Popen([sys.executable, "-c", script, str(tests.parent), str(tests)], stdout=subprocess.PIPE, text=True) as run:
        pid = int(run.stdout.readline())
        time.sleep(0.3)
        assert not gone(pid)
        run.kill()
    deadline = time.monotonic() + 5
    while not gone(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert gone(pid)


@pytest.mark.parametrize(
    ("error", "kind", "fatal"),
    [
        (RuntimeError("CUDA error: an illegal memory access was encountered"), "illegal-access", True),
        (RuntimeError("Triton Error [CUDA]: misaligned address"), "illegal-access", True),
        (RuntimeError("CUDA error: unspecified launch failure"), "illegal-access", True),
        (RuntimeError("CUDA error: device-side assert triggered"), "crash", True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out-of-memory", False),
        (type("OutOfMemoryError", (RuntimeError,), {})("x"), "out-of-memory", False),
        (type("OutOfResources", (Exception,), {})("shared memory"), "out-of-resources", False),
        (type("PTXASError", (Exception,), {})("ptxas fatal"), "compile-error", False),
        (ValueError("bad\nvalue"), "crash", False),
        (RuntimeError("Internal Triton PTX codegen error"), "compile-error", False),
        (RuntimeError("PassManager::run failed"), "compile-error", False),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"), "out-of-memory", False),
        (RuntimeError("CUDA error: uncorrectable ECC error encountered"), "crash", True),
        (PermissionError(13, "Permission denied", "/root/.triton"), "crash", False),
        (type("PTXASError", (Exception,), {})("ptxas fatal: No space left on device"), "crash", False),
    ],
)
def test_classification(error, kind, fatal):
    failure = classify(error, "launch")
    assert failure.kind == kind and is_fatal(error, failure) is fatal and "\n" not in failure.message
    assert failure.lasting == (kind not in ("crash", "out-of-memory"))


@pytest.mark.parametrize("stage", ["inputs", "compile", "launch"])
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), RuntimeError("Failed to find C compiler"), MemoryError()])
def test_what_the_machine_lacks_does_not_last(error, stage):
    assert not classify(error, stage).lasting


def test_a_hang_lasts_where_a_launch_hung():
    assert [Failure(kind="hang", message="", stage=stage).lasting for stage in ("open", "inputs", "compile", "launch")] == [
        False,
        False,
        False,
        True,
    ]


def test_unknown_kinds_are_refused():
    with pytest.raises(ValueError, match="failure kind"):
        Failure(kind="inf", message="", stage="launch")
