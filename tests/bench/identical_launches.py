"""How well the published sweeps agree with themselves: how often a launch identical to the best is within 1 % of it.

Run it: `python tests/bench/identical_launches.py [--data DIR]`.

GROUP_SIZE_M says how many row tiles share the columns of B before the next ones are begun; at or above the number of row tiles all its
values order the CTAs alike. Configurations that differ in nothing else are one launch measured several times. Where the best of a sweep is
one of such a set, the share of the others that the file has too (those within 1 % of the best) is about the most that any order of
configurations can be right at its first pick: it cannot know which of them came out ahead.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

from advisor.configs.rows import read_rows  # noqa: E402
from advisor.hardware import load_gpu  # noqa: E402
from advisor.learned.configurations import as_configuration  # noqa: E402
from advisor.learned.launch import moe_launch  # noqa: E402
from advisor.learned.machine import machine  # noqa: E402
from advisor.pipelines import problem_batch  # noqa: E402
from advisor.schema import Problem  # noqa: E402
from tests.bench.sweeps import NAMES, SIZES  # noqa: E402

Blocks = tuple[int, ...]
"""All of `NAMES` but GROUP_SIZE_M."""

UP_TO_US = (50.0, 200.0, np.inf)


def read(data: Path) -> Mapping[tuple, Mapping[Blocks, Mapping[int, float]]]:
    """By GPU and sizes: latencies in microseconds of the near-optimal configurations, by their blocks and GROUP_SIZE_M."""
    rows = read_rows(data / "fused_moe_near_optimal.csv.gz")
    columns = {name: rows.columns[name].astype(int).tolist() for name in (*SIZES, *NAMES)}
    found: dict[tuple, dict[Blocks, dict[int, float]]] = {}
    for i, (gpu, us) in enumerate(zip(rows.text["gpu"], rows.columns["latency_us"].tolist(), strict=True)):
        sizes, blocks = (tuple(columns[name][i] for name in names if name != "GROUP_SIZE_M") for names in (SIZES, NAMES))
        found.setdefault((gpu, *sizes), {}).setdefault(blocks, {})[columns["GROUP_SIZE_M"][i]] = us
    return found


def row_tiles(gpu: str, sizes: tuple[int, ...], blocks: Blocks) -> int:
    """Row tiles of one launch."""
    problem = Problem(family="fused_moe", op="w13", sizes=dict(zip(SIZES, sizes, strict=True)))
    configuration = as_configuration(np.array([[*blocks[:3], 1, *blocks[3:]]], dtype=np.float64))
    return int(moe_launch(problem_batch([problem]), configuration, machine(load_gpu(gpu), problem.dtype)).row_tiles[0])


def shares(sweeps: Mapping[tuple, Mapping[Blocks, Mapping[int, float]]]) -> list[tuple[str, float, float]]:
    """Of every sweep whose best was measured several times: GPU, best latency in microseconds, share of its repeats that are within 1 %."""
    swept: dict[tuple, set[int]] = {}
    for (gpu, *_), near in sweeps.items():
        for blocks, groups in near.items():
            swept.setdefault((gpu, blocks), set()).update(groups)
    out = []
    for (gpu, *sizes), near in sweeps.items():
        best_us, blocks, group = min((us, blocks, group) for blocks, groups in near.items() for group, us in groups.items())
        alike = {g for g in swept[(gpu, blocks)] if g > 1 and g >= row_tiles(gpu, tuple(sizes), blocks)}
        if group in alike and len(alike) > 1:
            repeats = alike - {group}
            out.append((gpu, best_us, len(repeats & near[blocks].keys()) / len(repeats)))
    return out


def main() -> None:
    """Prints the shares by GPU and latency."""
    parser = argparse.ArgumentParser()
    default = os.environ.get("ADVISOR_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data"
    parser.add_argument("--data", default=default, type=Path)
    found = shares(read(Path(parser.parse_args().data)))
    print("a launch identical to the best of its sweep is within 1 % of it")
    for gpu in [*dict.fromkeys(gpu for gpu, _, _ in found), "all"]:
        mine = [(us, share) for name, us, share in found if gpu in (name, "all")]
        cells = [f"{gpu:6s} {100 * np.mean([share for _, share in mine]):5.1f} % of {len(mine):3d} sweeps"]
        for low, high in zip((0.0, *UP_TO_US), UP_TO_US, strict=False):
            some = [share for us, share in mine if low < us <= high]
            if some:
                cells.append(f"{low:.0f} to {high:.0f} us {100 * np.mean(some):3.0f} % of {len(some):2d}")
        print("   ".join(cells))


if __name__ == "__main__":
    main()
