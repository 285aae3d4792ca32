"""Measuring on a real GPU: faults by their names, A/A, the bound on every row, and the campaign's beginning.

`ADVISOR_TEST_DEVICE=fake pytest -m gpu tests/gpu/test_measure_gpu.py` rehearses it where there is none.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path

import pytest

from advisor.gpus.hardware import match_device_name
from advisor.measurement.devices.device import parse_device
from advisor.measurement.kernel_file import KernelRef, find_kernels, kernel_entry
from advisor.measurement.launch import Batch, Launch
from advisor.measurement.measured_rows import read_measured
from advisor.measurement.measuring import compare_launches, measure, run_plan
from advisor.measurement.plan import launches_of
from advisor.measurement.scheduler import Limits, Scheduler
from advisor.result.schema import Configuration, Problem
from tests.measurement.conftest import violations

pytestmark = pytest.mark.gpu

FOLDER = Path(__file__).parent
DEVICE = os.environ.get("ADVISOR_TEST_DEVICE", "cuda")
FAULTS = {
    "right": None,
    "illegal": "illegal-access",
    "hang": "hang",
    "memory": "out-of-memory",
    "resources": "out-of-resources",
    "compile": "compile-error",
    "wrong": "wrong-output",
    "unwritten": "wrong-output",
}
TRIALS = 200
AGAINST_ITSELF_S = 200.0
CAMPAIGN_S = 120.0 if DEVICE == "cuda" else 20.0


@pytest.fixture(scope="module")
def scheduler():
    """One open device for all comparisons; skips where there is none."""
    if DEVICE == "cuda":
        torch = pytest.importorskip("torch")
        if not torch.cuda.is_available():
            pytest.skip("torch sees no GPU")
    with Scheduler(parse_device(DEVICE)) as opened:
        yield opened


@pytest.fixture(scope="module")
def gpu(scheduler):
    """Its description; None where `ceilings/` has none."""
    return match_device_name(scheduler.description.gpu)


def moe(tokens, op="w13", **changes):
    sizes = {"M": tokens, "E": 128, "topk": 8, "H": 2048, "N": 768}
    return Problem(family="fused_moe", op=op, sizes=sizes, **changes)


def faulty(mode):
    """A launch of the kernel file whose kernels go wrong."""
    return Configuration(parameters={"MODE": mode}, num_stages=3 if mode == "resources" else 1)


def default(kernel, problem, gpu=None):
    """The kernel's default launch of a problem."""
    return launches_of(find_kernels(kernel)[0], [problem], gpu, 1)[0]


def problems():
    """One small and one larger problem for every kernel with an example, cold and warm."""
    for kernel in ("fused_moe_kernel", "gemm_kernel", "attention_kernel", "decode_kernel", "rms_norm_kernel", "softmax_kernel"):
        entry = kernel_entry(find_kernels(kernel)[0])
        for op in entry["ops"]:
            for cache in ("warm", "cold"):
                yield kernel, Problem(family=entry["family"], op=op, sizes=dict(entry["example"]), cache=cache)


@pytest.mark.skipif(DEVICE != "cuda", reason="the fake device's faults have tests of their own")
def test_each_fault_by_its_name_and_the_rest_completes(gpu, capsys):
    kernel = KernelRef(file=str(FOLDER / "faulty_triton_kernels.py"), function="copy_kernel")
    problem = Problem(family="elementwise", op="copy", sizes={"B": 64, "H": 1024}, dtype="fp32")
    modes = [*FAULTS, "right"]
    launches = [Launch(kernel=kernel, problem=problem, configuration=faulty(m)) for m in modes]
    with Scheduler(parse_device(DEVICE), limits=Limits(launch_s=8, check_s=8, rounds_s=8)) as scheduler:
        ((_, outcomes),) = scheduler.run([Batch(launches=tuple(launches))])
    found = {mode: outcome.failure and outcome.failure.kind for mode, outcome in zip(modes, outcomes, strict=True)}
    with capsys.disabled():
        for mode, outcome in zip(modes, outcomes, strict=True):
            print(f"\n  {mode:<10} {outcome.failure or f'{len(outcome.rounds)} rounds'}", end="")
    assert found == FAULTS and len(outcomes[-1].rounds) >= 10


def test_a_against_a_is_no_change(scheduler, gpu, capsys):
    """Over kernels and sizes from a few microseconds to a millisecond; a cold launch scatters, and may be unsettled, but is no change."""
    cases = [default(kernel, problem, gpu) for kernel, problem in problems()]
    cases += [default("fused_moe_kernel", moe(tokens, op), gpu) for tokens in (1, 64, 1024) for op in ("w13", "w2")]
    verdicts, floors = {"warm": Counter(), "cold": Counter()}, []
    begin = time.monotonic()
    for trial in range(TRIALS):
        if trial >= 2 * len(cases) and time.monotonic() - begin > AGAINST_ITSELF_S:
            break
        launch = cases[trial % len(cases)]
        found = compare_launches(launch, launch, seed=trial, scheduler=scheduler)
        verdicts[launch.problem.cache][found.comparison.verdict] += 1
        floors.append(found.base.noise_floor or 0.0)
    with capsys.disabled():
        told = {cache: dict(counted) for cache, counted in verdicts.items()}
        print(f"\n  A/A over {len(floors)} trials: {told}; floor median {sorted(floors)[len(floors) // 2]:.4f}, highest {max(floors):.4f}")
    wrong = sum(counted[verdict] for counted in verdicts.values() for verdict in ("regressed", "improved", "failed"))
    assert wrong <= len(floors) // 100
    warm = verdicts["warm"]
    assert warm.total() - warm["unchanged"] <= max(1, warm.total() // 100)


def test_a_slower_configuration_is_found(scheduler, gpu):
    fast = default("fused_moe_kernel", moe(1024), gpu)
    slow = Launch(
        kernel=fast.kernel,
        problem=fast.problem,
        configuration=Configuration(
            parameters={"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1}, num_stages=2
        ),
    )
    assert compare_launches(fast, slow, scheduler=scheduler).comparison.verdict == "regressed"
    assert compare_launches(slow, fast, scheduler=scheduler).comparison.verdict == "improved"


def test_the_bound_holds_for_every_kernel_warm_and_cold(gpu, results, capsys):
    launches = []
    for kernel, problem in problems():
        launches += launches_of(find_kernels(kernel)[0], [problem], gpu, 6)
    summary = measure(launches, results / "bound.csv", device=DEVICE)
    rows = list(read_measured(results / "bound.csv"))
    with capsys.disabled():
        for row in rows:
            bound = float(row.cells["bound_us"] or "nan")
            if row.latency_us is not None:
                share = 100 * bound / row.latency_us
                print(
                    f"\n  {row.kernel:<18} {row.problem.op:<10} {row.problem.cache} {row.latency_us:10.2f} us {share:5.1f} % of bound"
                    f"  {row.cells['timer']:<6} floor {row.noise_floor:.4f}",
                    end="",
                )
            else:
                print(f"\n  {row.kernel:<18} {row.problem.op:<10} {row.failure}", end="")
    assert len(rows) == len(launches) and summary.measured >= 0.9 * len(launches)
    assert "wrong-output" not in summary.failed and "illegal-access" not in summary.failed
    assert violations(rows) == []


def test_the_beginning_of_the_campaign(gpu, results, capsys):
    """Two minutes of it, cut in two: rows of several kernels, none wrong, none below the bound, and the GPU's ceilings."""
    first = run_plan(FOLDER / "campaign.toml", results / "beginning.csv", CAMPAIGN_S * 0.6, device=DEVICE, ceilings_folder=results)
    second = run_plan(FOLDER / "campaign.toml", results / "beginning.csv", CAMPAIGN_S * 0.4, device=DEVICE, ceilings_folder=results)
    rows = list(read_measured(results / "beginning.csv"))
    with capsys.disabled():
        print(f"\n  {first.measured} + {second.measured} rows, failed {dict(first.failed + second.failed)}, {first.warnings}")
        print((results / first.ceilings).read_text() if first.ceilings else "  no ceilings")
    tried = sum(s.measured + sum(s.failed.values()) for s in (first, second))
    again = sum(first.failed[kind] for kind in ("crash", "out-of-memory", "discarded"))  # these at most are tried twice
    assert len(rows) == len({row.key() for row in rows}) and tried - again <= len(rows) <= tried
    assert first.measured + second.measured > 50 and len({row.kernel for row in rows}) >= 2
    assert "wrong-output" not in first.failed + second.failed
    assert first.ceilings is not None and not second.ceilings
    assert violations(rows) == []
