"""How the fused-MoE model does beyond the sizes that it was trained on, beside the analytical model.

Run it: `python tests/bench/extrapolation.py [--data DIR]` (about half a minute per limit).

The model is trained on the rows within a limit (of token slots, M topk; of N; of E) and judged on those beyond it, by how many times they
are beyond. What it prints decided how far outside of what was learned the model answers (`DOMAIN_FADES`, `DOMAIN_END`).
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

from advisor.learned.analytical import AnalyticalPredictor  # noqa: E402
from advisor.pipelines import Array  # noqa: E402
from advisor.training import data as measured_data  # noqa: E402
from advisor.training.data import Measured  # noqa: E402
from advisor.training.moe_tables import tables, winning_configurations  # noqa: E402
from advisor.training.moe_training import GROWTH, SOURCES, fit_core  # noqa: E402

KINDS = {"served": "as served", "exact": "known configuration"}
LIMITS = (
    ("slots", "<=", 4096),
    ("slots", "<=", 16384),
    ("N", "<=", 768),
    ("N", "<=", 1536),
    ("N", ">=", 2048),
    ("N", ">=", 1024),
    ("E", "<=", 32),
)
TIMES = ((1, 2), (2, 4), (4, 8), (8, 64))
LEAST_ROWS = 20


def size_of(part: Measured, name: str) -> Array:
    """A size of every row, [n]; "slots" are M times topk."""
    sizes = part.problem.sizes
    return np.broadcast_to(sizes["M"] * sizes["topk"] if name == "slots" else sizes[name], (len(part),)).astype(np.float64)


def beyond(part: Sequence[Measured], name: str, relation: str, limit: float) -> Array:
    """By how many times each row lies beyond the limit, [n]; at most 1 within."""
    value = np.concatenate([size_of(p, name) for p in part])
    return value / limit if relation == "<=" else limit / value


def judge(measured: Sequence[Measured], name: str, relation: str, limit: float) -> None:
    """Train within the limit, and print the errors beyond it."""
    found = tables(measured)
    by_kind = {kind: [m for m in measured if m.kind == kind] for kind in KINDS}
    times = {kind: beyond(parts, name, relation, limit) for kind, parts in by_kind.items()}
    keep = {kind: times[kind] <= 1 if kind in KINDS else np.zeros(t.latency_us.size, dtype=bool) for kind, t in found.items()}
    core = fit_core(found, keep, winning_configurations(by_kind["exact"], [m for m in measured if m.kind == "best"]), **GROWTH)
    plain = AnalyticalPredictor()
    for kind, parts in by_kind.items():
        analytical = np.concatenate([plain.predict(p.problem, p.configuration, p.gpu).us for p in parts])
        for least, most in TIMES:
            some = (times[kind] > least) & (times[kind] <= most)
            if some.sum() < LEAST_ROWS:
                continue
            launches = found[kind].launches(core.physics, np.flatnonzero(some))
            learned, us = np.exp(core.estimate(launches, SOURCES[kind]).log_us), found[kind].latency_us[some]
            errors = [100 * np.abs(each / us - 1).mean() for each in (learned, analytical[some])]
            print(
                f"{name} {relation} {limit:<6} {KINDS[kind]:<20} {least:>2} to {most:<2} times {some.sum():>6} rows  MAPE: "
                f"learned {errors[0]:5.1f} %  analytical {errors[1]:5.1f} %",
                flush=True,
            )


def main() -> int:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("ADVISOR_DATA", "../shared/data")))
    measured = measured_data.read(sorted(parser.parse_args().data.glob("fused_moe_*.csv.gz")))
    for limit in LIMITS:
        judge(measured, *limit)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
