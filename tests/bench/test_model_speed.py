"""Prints how fast the analytical model is: pytest -m bench -s tests/bench/test_model_speed.py."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.pipelines import ProblemBatch, analyse, bound, column, demand, gap, latency_us, work
from advisor.pipelines.space import family_space

pytestmark = pytest.mark.bench


def milliseconds(action: Callable[[], object], repeats: int = 30) -> tuple[float, float]:
    """Best and median of `repeats`."""
    taken = []
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        taken.append((time.perf_counter() - start) * 1e3)
    return min(taken), float(np.median(taken))


@pytest.mark.parametrize("family", ["fused_moe", "gemm", "attention"])
def test_print_ranking_speed(family: str) -> None:
    gpu = load_gpu("H200")
    sizes = {
        "fused_moe": {"M": 256, "E": 128, "topk": 8, "H": 2048, "N": 768},
        "gemm": {"M": 4096, "N": 4096, "K": 4096},
        "attention": {"B": 8, "H": 32, "H_kv": 8, "M": 4096, "N": 4096, "D": 128, "causal": 1},
    }[family]
    op = {"fused_moe": "w13", "gemm": "gemm", "attention": "prefill"}[family]
    problem = ProblemBatch(family=family, op=op, sizes={n: column(v) for n, v in sizes.items()})
    space = family_space(family)
    space = space.take(np.resize(np.arange(len(space)), 2000))
    asked = demand(problem, space, gpu)
    print()
    for name, action in {
        "rank": lambda: np.argsort(latency_us(demand(problem, space, gpu), gpu)),
        "demand": lambda: demand(problem, space, gpu),
        "latency": lambda: latency_us(asked, gpu),
        "analyse": lambda: analyse(problem, space, gpu),
        "gap": lambda: gap(asked, gpu, column(1.0)),
    }.items():
        print("{:10} 2,000 configurations: {:8} {:6.2f} ms best, {:6.2f} ms median".format(family, name, *milliseconds(action)))


def test_print_bound_speed() -> None:
    gpu, rng = load_gpu("H200"), np.random.default_rng(0)
    sizes = {n: rng.integers(1, high, 25_000).astype(float) for n, high in {"M": 8192, "H": 8192, "N": 4096}.items()}
    sizes |= {"E": rng.integers(8, 257, 25_000).astype(float), "topk": rng.integers(1, 9, 25_000).astype(float)}
    problem = ProblemBatch(family="fused_moe", op="w13", sizes=sizes)
    space = family_space("fused_moe")
    launched = space.take(rng.integers(0, len(space), 25_000))
    print(
        "\nbound of 25,000 problems:   {:6.2f} ms best, {:6.2f} ms median".format(
            *milliseconds(lambda: bound(work(problem, gpu), gpu, "warm"))
        )
    )
    print(
        "analyse of 25,000 launches: {:6.2f} ms best, {:6.2f} ms median".format(*milliseconds(lambda: analyse(problem, launched, gpu), 10))
    )
