"""How near the configurations that the analytical ceiling is taken of come to the best of the whole space.

Run it: `python tests/bench/covering.py [--problems N]` (about 20 seconds).

For random problems on several GPUs: least predicted latency of `typical_configurations` over that of `problem_space`, and which
configuration of the space would take most from the mean. What it printed, over several seeds, is in `space._COVERING`.
"""

from __future__ import annotations

import argparse
import random
import sys
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[2])]

from advisor.gpus.hardware import load_gpu  # noqa: E402
from advisor.learned.analytical import AnalyticalPredictor  # noqa: E402
from advisor.pipelines import problem_batch  # noqa: E402
from advisor.pipelines.space import configuration_at, problem_space  # noqa: E402
from advisor.result.schema import Problem  # noqa: E402

GPUS = ("H200", "A100", "L40S", "B200", "MI300X", "MI355X", "A40", "T4", "H20", "RTX 4090")
TYPES = (("fp8", "int8"), ("bf16",), ("tf32", "fp32"))
EXPERTS = ((128, 8, 2048, 768), (8, 2, 4096, 14336), (256, 8, 7168, 256), (64, 6, 2048, 1408), (160, 8, 5120, 384), (16, 1, 5120, 4096))


def random_problem(chosen: random.Random, family: str, dtype: str) -> Problem:
    """A layer of a published model, or a product of usual sizes."""
    tokens = 2 ** chosen.randint(0, 14)
    if family == "gemm":
        sizes = {"M": tokens, "N": chosen.choice((512, 2048, 4096, 11008)), "K": chosen.choice((512, 4096, 14336))}
        return Problem(family=family, op="gemm", sizes=sizes, dtype=dtype)
    experts, top_k, hidden, width = chosen.choice(EXPERTS)
    sizes = {"M": tokens, "E": experts, "topk": top_k, "H": hidden, "N": width}
    return Problem(family=family, op=chosen.choice(("w13", "w2")), sizes=sizes, dtype=dtype)


def ratios(family: str, dtypes: tuple[str, ...], problems: int, seed: int = 3) -> tuple[list[float], dict[str, list[float]]]:
    """Of each problem: the ceiling over the best of the space; and what that ratio would be with one configuration more, by its name."""
    chosen, predictor = random.Random(seed), AnalyticalPredictor()
    found: list[float] = []
    more: dict[str, list[float]] = {}
    for _ in range(problems):
        gpu, problem = load_gpu(chosen.choice(GPUS)), random_problem(chosen, family, chosen.choice(dtypes))
        batch, space = problem_batch([problem]), problem_space(problem, gpu.vendor)
        us = predictor.predict(batch, space, gpu).us
        if not np.isfinite(us).any():
            continue
        ratio = float(predictor.ceiling(batch, gpu).us[0] / us.min())
        found.append(ratio)
        for i in np.flatnonzero(us < ratio * us.min()):
            with_it = more.setdefault(str(configuration_at(space, int(i))), [])
            with_it.append(ratio - float(us[i] / us.min()))
    return found, more


def main() -> None:
    """Print a line per family and types."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=150)
    asked = parser.parse_args()
    for family in ("fused_moe", "gemm"):
        for dtypes in TYPES:
            found, more = ratios(family, dtypes, asked.problems)
            best = max(more, key=lambda name: sum(more[name]), default="nothing")
            print(
                f"{family} {'/'.join(dtypes)}: mean {np.mean(found):.3f}, 95 % {np.quantile(found, 0.95):.3f}, most {max(found):.3f}; "
                f"next: {best}, {sum(more.get(best, [])) / len(found):.4f} less"
            )


if __name__ == "__main__":
    main()
