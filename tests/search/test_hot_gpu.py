"""Winners of a search on a fake GPU at its power limit."""

from __future__ import annotations

import itertools
import random

from advisor.measurement.devices.fake import FakeDevice, OutOfResources
from advisor.measurement.kernel_file import find_kernels
from advisor.result.schema import Configuration, Problem
from advisor.search.contest import Reading, contest
from advisor.search.storage import Task
from advisor.tuning.backends import MeasuringBackend

PROBLEM = Problem(family="gemm", op="gemm", sizes={"M": 4096, "N": 4096, "K": 4096}, dtype="bf16")


def _rested_us() -> list[tuple[float, Configuration]]:
    """What configurations take rested, as the fake device has it."""
    device, found = FakeDevice({"gpu": "H100", "power_limit": 700.0}), []
    for m, n, k, group, warps, stages in itertools.product((64, 128), (64, 128, 256), (32, 64), (1, 4, 8), (4, 8), (3, 4)):
        values = {"BLOCK_SIZE_M": m, "BLOCK_SIZE_N": n, "BLOCK_SIZE_K": k, "GROUP_SIZE_M": group}
        configuration = Configuration(parameters=values, num_warps=warps, num_stages=stages)
        try:
            found.append((device.latency_us(PROBLEM, configuration), configuration))
        except OutOfResources:
            continue
    return found


def test_pairs_on_a_fake_device_with_a_power_limit_are_decided_right():
    pairs = [(a, b) for a, b in itertools.combinations(_rested_us(), 2) if 1.03 < max(a[0], b[0]) / min(a[0], b[0]) < 1.15]
    random.Random(1).shuffle(pairs)
    (kernel,) = find_kernels("gemm_kernel")
    task, right, once = Task(id="t", launches=("x",)), 0, 0
    device = "fake,gpu=H100,power_limit=700,outliers=0"
    with MeasuringBackend(device, kernel, {"x": PROBLEM}, lambda configuration, launch: configuration) as backend:
        for pair in pairs[:200]:
            first = {}
            for place, (_, configuration) in enumerate(pair):
                measured = backend.measure(task, configuration, lambda rounds, us: False)
                first[place] = Reading(us=measured.us, clock_mhz=measured.clock_mhz)
            found = contest(first, lambda place, pair=pair: backend.again(task, pair[place][1]))
            fastest = min((0, 1), key=lambda place: pair[place][0])
            right += min(found.us, key=found.us.__getitem__) == fastest
            once += (first[0].us < first[1].us) == (fastest == 0)
    assert right >= 198 and once < 195
