"""What is run on a borrowed GPU: the commands keep its limits, and the scripts say the truth of what the fake device gave."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.measurement.kernel_file import configurations, find_kernels
from advisor.measurement.launch import Launch
from advisor.measurement.measured_rows import read_measured
from advisor.measurement.measuring import measure
from advisor.measurement.plan import launches_of
from advisor.result.schema import Problem
from tests.gpu import judge, ncu_one, rehearse, timer_check


@pytest.mark.parametrize("hour", [1, 2, 3])
def test_commands_keep_the_limits(hour):
    commands = rehearse.HOURS[hour - 1]
    assert sum(command.seconds for command in commands) + rehearse.START_S <= rehearse.HALF_HOUR_S
    for command in commands:
        text = command.text("cuda", rehearse.COMMAND_S)
        assert command.seconds <= rehearse.COMMAND_S and len(text) <= rehearse.COMMAND_CHARACTERS
        assert "{" not in text.replace("{i}", "") and "fake" not in text
        for step in command.steps:
            assert step.plan is None or (rehearse.ROOT / "tests" / "gpu" / f"{step.plan}.toml").exists()


def test_broken_limits_are_told(tmp_path):
    machine, out = tmp_path / "machine", tmp_path / "out"
    (out / "a" / "b" / "c").mkdir(parents=True)
    machine.mkdir()
    assert rehearse.broken_limits("true", machine, out, 1.0, 10) == []
    for number in range(8):
        (out / f"{number}.csv").touch()
    assert rehearse.broken_limits("true", machine, out, 1.0, 10) == []
    (out / "a" / "b" / "c" / "deep.csv").touch()
    with (machine / "large").open("wb") as file:
        file.truncate(rehearse.CARRIED_BYTES + 1)
    with (out / "0.csv").open("wb") as file:
        file.truncate(rehearse.FILE_BYTES + 1)
    found = " ".join(rehearse.broken_limits("x" * 2001, machine, out, 601.0, 10))
    for part in ("took 601 s", "2001 characters", "64 MiB travel", "9 files", "deep.csv does not", "0.csv does not"):
        assert part in found, found


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A file with one whole space, and one of which the default alone was measured."""
    path, gpu = tmp_path_factory.mktemp("judged") / "rows.csv", load_gpu("H200")
    (kernel,) = find_kernels("rms_norm_kernel")
    one, other = (Problem(family="normalization", op="rms_norm", sizes={"B": rows, "H": 4096}) for rows in (16, 4096))
    launches = launches_of(kernel, [one], gpu, None)
    measure([*launches, Launch(kernel=kernel, problem=other, configuration=configurations(kernel, other, gpu)[0])], path, device="fake")
    return path


def test_judge(swept, capsys):
    whole, started = judge.judge(read_measured(swept))
    rows = [row for row in read_measured(swept) if row.problem == whole.problem]
    assert whole.complete and whole.whole and whole.measured == len(rows) == whole.launchable
    assert (
        whole.best_us
        == min(row.latency_us for row in rows)
        <= whole.recommended_us[8]
        <= whole.recommended_us[4]
        <= whole.recommended_us[1]
    )
    assert whole.default_us == rows[0].latency_us and whole.bound_us < whole.best_us
    assert not started.whole and np.isfinite(started.default_us)
    assert started.complete == (started.recommended_us[1] == started.default_us)  # nothing but the default of it was measured
    judge.main([str(swept)])
    said = capsys.readouterr().out
    assert f"2 problems, {1 + started.complete} with default, recommended and best, 1 of them whole spaces" in said
    assert "0 below the bound" in said


def test_every_kernel_has_a_launch_for_the_counters(capsys):
    ncu_one.main("fake")
    said = capsys.readouterr().out
    assert all(f"{kernel} " in said for kernel in ("fused_moe_kernel", "gemm_persistent_kernel", "decode_kernel", "softmax_kernel"))


def test_timers_of_every_case(capsys):
    assert timer_check.main("fake") == 0
    assert capsys.readouterr().out.count("simulated") == 2 * len(timer_check.CASES)


def test_times_of_a_launch_of_two_kernels():
    """A product in parts and the sum of its parts: 10 and 2 us, a gap of 1 us before each kernel."""
    one = [(0.0, 10.0, "gemm_kernel"), (11.0, 13.0, "sum_splits_kernel")]
    warm = [(start + 14 * n, end + 14 * n, name) for n in range(4) for start, end, name in one]
    assert timer_check.times_of(warm, "gemm_kernel", ()) == (12.0, 14.0)
    cold = [(start + 100 * n, end + 100 * n, name) for n in range(4) for start, end, name in [(-21.0, -1.0, "reduce"), *one]]
    assert timer_check.times_of(cold, "gemm_kernel", {"reduce"}) == (12.0, 14.0)
