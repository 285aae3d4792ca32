"""Prints what the drop-in saves and costs: pytest -m bench -s tests/bench/test_autotune_figures.py.

The published sweeps (ADVISOR_DATA) are replayed as first calls of a tuned kernel: how many configurations it measures, and how often
it ends within 1 % of the sweep's best. A configuration that is not among those within 1 % counts as 2 % slower, also where the sweep
never tried it; so the share printed is a lower bound. Weights that were trained on these sweeps have seen the answers: for an honest
figure, name weights trained without a GPU or model in ADVISOR_BENCH_WEIGHTS, and those left out in ADVISOR_BENCH_GPUS (names) or
ADVISOR_BENCH_MODELS (E,topk,H,N; blanks between). ADVISOR_BENCH_PROBLEMS: how many problems per GPU.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

pytestmark = pytest.mark.bench

NAMES = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
SIZES = ("M", "E", "topk", "H", "N")
WITHIN = 1.01
SWEPT = {"A100": 1092, "H800": 1102, "A40": 564, "L40": 564}
"""How many configurations the published sweeps measured (data/README.md)."""


def fused_moe_kernel(a, M, E, topk, H, N, BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M):
    """Replayed: never runs."""


def sweeps(data_dir: Path) -> dict:
    """(gpu, sizes) → configuration → microseconds, of the configurations within 1 % of the best."""
    import csv
    import gzip

    found: dict = defaultdict(dict)
    with gzip.open(data_dir / "fused_moe_near_optimal.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            problem = (row["gpu"], *(int(row[name]) for name in SIZES))
            found[problem][tuple(int(row[name]) for name in NAMES)] = float(row["latency_us"])
    return found


def test_print_first_calls(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import triton
    from autotuning.fakes import Bench, FakeDriver, FakeKernel, Tensor
    from triton.runtime.driver import driver

    from advisor.autotuning import ranking
    from advisor.autotuning.decorator import autotune
    from advisor.gpus.hardware import load_gpu
    from advisor.learned import load_predictor
    from advisor.pipelines.space import SPACES

    weights = os.environ.get("ADVISOR_BENCH_WEIGHTS")
    model = load_predictor(Path(weights) if weights else None)
    monkeypatch.setattr(ranking, "predictor", lambda: model)
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path))
    per_gpu = int(os.environ.get("ADVISOR_BENCH_PROBLEMS", "24"))
    # A space of the kind the sweeps tried (about 1,100 of these fit a large GPU, 560 a small one).
    tried = {**SPACES["fused_moe"], "BLOCK_SIZE_N": (32, 64, 128, 256), "GROUP_SIZE_M": (1, 16, 32, 64)}
    space = [
        triton.Config(dict(zip(NAMES[:4], values[:4], strict=True)), num_warps=values[4], num_stages=values[5])
        for values in _product(tried)
    ]
    problems = defaultdict(list)
    known = sweeps(data_dir)
    gpus, models = (os.environ.get(f"ADVISOR_BENCH_{name}", "").split() for name in ("GPUS", "MODELS"))
    for problem in sorted(known):
        if (not gpus or problem[0] in gpus) and (not models or ",".join(map(str, problem[2:])) in models):
            problems[problem[0]].append(problem)
    print(f"\nreplayed first calls, {len(space)} configurations, {model.name}")
    hits_of_all, measured_of_all, swept_of_all, count = 0, 0, 0, 0
    for gpu, members in problems.items():
        chosen = random.Random(1).sample(members, min(per_gpu, len(members)))
        hits, measured, seconds = 0, 0, []
        monkeypatch.setattr(driver, "_active", FakeDriver(load_gpu(gpu).device_names[0]))
        kernel = FakeKernel(fused_moe_kernel)
        near: dict = {}

        def latency(launch: dict) -> float:
            return near.get(tuple(launch[name] for name in NAMES), WITHIN * 1.01 * max(near.values())) / 1e3  # noqa: B023

        bench = Bench(kernel, latency)
        tuner = autotune(
            space,
            list(SIZES),
            do_bench=bench,
            compile_ahead=False,
            cache_results=False,
            noise=0.0,
            problem=lambda args: {"family": "fused_moe", "op": "w13", **{name: args[name] for name in SIZES}},
        )(kernel)
        for problem in chosen:
            near = known[problem]
            bench.measured.clear()
            start = time.perf_counter()
            tuner[(1,)](Tensor(), *problem[1:])
            seconds.append(time.perf_counter() - start)
            measured += len(bench.measured)
            best = tuner.best_config
            hits += (*(best.kwargs[name] for name in NAMES[:4]), best.num_warps, best.num_stages) in near
        swept = SWEPT[gpu] * len(chosen)
        share, middle = 100 * hits / len(chosen), 1e3 * sorted(seconds)[len(seconds) // 2]
        print(
            f"{gpu:>6}: {len(chosen)} problems, {swept / measured:.0f} times fewer measurements, regret <= 1 % for {share:.0f} %, "
            f"deciding took {middle:.0f} ms (median, without measuring)"
        )
        hits_of_all, measured_of_all, swept_of_all = hits_of_all + hits, measured_of_all + measured, swept_of_all + swept
        count += len(chosen)
    print(
        f"   all: {count} problems, {swept_of_all / measured_of_all:.0f} times fewer measurements, "
        f"regret <= 1 % for {100 * hits_of_all / count:.0f} %"
    )


def test_print_share_by_top_k(data_dir: Path) -> None:
    """How the share within 1 % grows with top_k, over every sweep, by the ranking alone."""
    import numpy as np

    from advisor.gpus.hardware import load_gpu
    from advisor.learned import load_predictor
    from advisor.pipelines import ProblemBatch, column
    from advisor.pipelines.space import family_space

    weights = os.environ.get("ADVISOR_BENCH_WEIGHTS")
    model = load_predictor(Path(weights) if weights else None)
    space = family_space("fused_moe")
    columns = np.stack([*(space.parameters[name] for name in NAMES[:4]), space.num_warps, space.num_stages], axis=1).astype(int)
    places = {tuple(row): i for i, row in enumerate(columns.tolist())}
    found: Counter = Counter()
    known = sweeps(data_dir)
    chosen = random.Random(2).sample(sorted(known), min(len(known), int(os.environ.get("ADVISOR_BENCH_PROBLEMS", "24")) * 8))
    for problem in chosen:
        batch = ProblemBatch(
            family="fused_moe", op="w13", sizes={name: column(value) for name, value in zip(SIZES, problem[1:], strict=True)}
        )
        order = np.argsort(model.scores(batch, space, load_gpu(problem[0])), kind="stable")
        near = {places[each] for each in known[problem] if each in places}
        rank = next((i for i, place in enumerate(order.tolist()) if place in near), len(order))
        for k in (1, 2, 4, 8, 16, 32, 64):
            found[k] += rank < k
    print(f"\n{model.name}, {len(space)} configurations, {len(chosen)} sweeps: share with one within 1 % among the first k")
    print("  ".join(f"k={k}: {100 * n / len(chosen):.0f} %" for k, n in sorted(found.items())))


def _product(space: dict) -> list[tuple[int, ...]]:
    import itertools

    return list(itertools.product(*(space[name] for name in NAMES)))
