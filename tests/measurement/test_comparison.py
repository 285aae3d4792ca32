"""Two launches against each other: A/A is unchanged, drift is nobody's fault, a real change is found."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace

import pytest

from advisor.measurement.devices.device import parse_device
from advisor.measurement.devices.fake import FakeDevice
from advisor.measurement.launch import Batch
from advisor.measurement.measuring import compare_launches
from advisor.measurement.rounds import run_batch
from advisor.measurement.scheduler import Scheduler
from advisor.measurement.statistics import Side, verdict
from advisor.system.errors import MeasurementError

from .conftest import KERNELS, KernelRef, configuration, launches


def in_process(device, base, head):
    """As `compare_launches`, without a worker: 10 rounds, 30 where they do not settle it."""
    for rounds in (10, 30):
        batch = Batch(launches=(base, head), rounds=rounds, max_rounds=rounds, together=True)
        outcomes = run_batch(device, batch)
        found = verdict(*(Side(rounds=o.rounds, session="one") for o in outcomes), floor=outcomes[0].noise_floor)
        if not found.wants_more_rounds:
            break
    return found


def simulated(trials, **options):
    launch = launches(1)[0]
    verdicts = Counter()
    for seed in range(trials):
        device = FakeDevice({"seed": float(seed), **options})
        verdicts[in_process(device, launch, launch).verdict] += 1
    return verdicts


def test_a_against_a_is_unchanged_in_99_of_100_trials():
    verdicts = simulated(200, outliers=0.02)
    assert verdicts["unchanged"] >= 198, verdicts


def test_drift_and_throttling_alone_are_never_a_regression():
    verdicts = simulated(60, drift=0.5, throttle=0.15, outliers=0.02)
    assert not verdicts["regressed"] and not verdicts["improved"], verdicts


@pytest.fixture(scope="module")
def scheduler():
    with Scheduler(parse_device("fake")) as opened:
        yield opened


def test_through_a_worker(scheduler):
    launch = launches(1)[0]
    found = compare_launches(launch, launch, scheduler=scheduler)
    assert found.comparison.verdict == "unchanged" and found.comparison.effect.rounds in (10, 30)
    assert found.fingerprint.gpu == "H200"


def test_a_change_is_found_in_either_direction(scheduler):
    device = FakeDevice()
    choices = [replace(launches(1)[0], configuration=configuration(block, warps)) for block in (256, 512, 1024) for warps in (1, 2, 4)]
    choices.sort(key=lambda launch: device.latency_us(launch.problem, launch.configuration))
    fast, slow = choices[0], choices[-1]
    assert device.latency_us(slow.problem, slow.configuration) > 1.04 * device.latency_us(fast.problem, fast.configuration)
    assert compare_launches(fast, slow, scheduler=scheduler).comparison.verdict == "regressed"
    assert compare_launches(slow, fast, scheduler=scheduler).comparison.verdict == "improved"


def test_two_revisions_of_a_kernel_that_do_the_same(scheduler, tmp_path):
    """Two files, one problem: each makes its own inputs."""
    other = tmp_path / "revised.py"
    shutil.copy(KERNELS, other)
    base = launches(1)[0]
    head = replace(base, kernel=KernelRef(file=str(other), function=base.kernel.function))
    assert compare_launches(base, head, scheduler=scheduler).comparison.verdict == "unchanged"


def test_failures_and_other_problems():
    launch = launches(1)[0]
    with Scheduler(parse_device("fake,faults=wrong-output:1")) as scheduler:
        found = compare_launches(launch, launch, scheduler=scheduler)
        with pytest.raises(MeasurementError, match="one problem"):
            compare_launches(launch, launches(2)[-1], scheduler=scheduler)
    assert found.comparison.verdict == "failed" and "wrong-output" in found.comparison.reason and found.comparison.effect is None
