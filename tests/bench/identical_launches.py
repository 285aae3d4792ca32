"""How well the published sweeps agree with themselves: how often a launch identical to the best is within 1 % of it, and how often a first
pick is that had measured every configuration on that GPU before.

Run it: `python tests/bench/identical_launches.py [--data DIR]`.

GROUP_SIZE_M says how many row tiles share the columns of B before the next ones are begun; at or above the number of row tiles all its
values order the CTAs alike. Configurations that differ in nothing else are one launch measured several times. Where the best of a sweep is
one of such a set, the share of the others that the file has too (those within 1 % of the best) is about the most that any order of
configurations can be right at its first pick: it cannot know which of them came out ahead.

The second figure asks for more than an order can know: of every set all measurements but one are given, the set with the fastest mean is
picked, and its last measurement judged, each in turn. Only sets of three and more take part, and sweeps whose best is in one.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

sys.path[:0] = [str(Path(__file__).resolve().parents[n]) for n in (1, 2)]

from advisor.gpus.hardware import load_gpu  # noqa: E402
from advisor.learned.machine import machine  # noqa: E402
from advisor.learned.moe.launch import as_configuration, moe_launch  # noqa: E402
from advisor.pipelines import problem_batch  # noqa: E402
from advisor.result.schema import Problem  # noqa: E402
from advisor.rows.rows import read_rows  # noqa: E402
from tests.bench.sweeps import NAMES, SIZES  # noqa: E402

Blocks = tuple[int, ...]
"""All of `NAMES` but GROUP_SIZE_M."""

Sweeps = Mapping[tuple, Mapping[Blocks, Mapping[int, float]]]
"""By GPU and sizes: latencies in microseconds of the near-optimal configurations, by their blocks and GROUP_SIZE_M."""

Share = tuple[str, float, float]
"""Of one sweep: its GPU, best latency in microseconds, and a share."""

UP_TO_US = (50.0, 200.0, np.inf)

LEAST_REPEATS = 3
SLOWER = 1.015
"""Times the best that stand for a measurement which the file lacks: it was more than 1 % slower."""


def read(data: Path) -> Sweeps:
    """The near-optimal configurations of all sweeps."""
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


def repeats(sweeps: Sweeps) -> Iterator[tuple[str, Mapping[Blocks, Mapping[int, float]], Mapping[Blocks, list[int]]]]:
    """Of every sweep: its GPU, its near-optimal configurations, and the values of GROUP_SIZE_M that make one launch of their blocks."""
    swept: dict[tuple, set[int]] = {}
    for (gpu, *_), near in sweeps.items():
        for blocks, groups in near.items():
            swept.setdefault((gpu, blocks), set()).update(groups)
    for (gpu, *sizes), near in sweeps.items():
        yield (
            gpu,
            near,
            {blocks: sorted(g for g in swept[(gpu, blocks)] if g > 1 and g >= row_tiles(gpu, tuple(sizes), blocks)) for blocks in near},
        )


def best_of(near: Mapping[Blocks, Mapping[int, float]]) -> tuple[float, Blocks, int]:
    """The fastest: its latency in microseconds, blocks and GROUP_SIZE_M."""
    return min((us, blocks, group) for blocks, groups in near.items() for group, us in groups.items())


def shares(sweeps: Sweeps) -> list[Share]:
    """Of every sweep whose best was measured several times: the share of its repeats that are within 1 %."""
    out = []
    for gpu, near, alike in repeats(sweeps):
        best_us, blocks, group = best_of(near)
        others = set(alike[blocks]) - {group}
        if group in alike[blocks] and others:
            out.append((gpu, best_us, len(others & near[blocks].keys()) / len(others)))
    return out


def picked_by_the_others(sweeps: Sweeps) -> list[Share]:
    """Of every sweep whose best was measured three times or more: how often the last measurement of a set is within 1 % that all the
    other measurements find fastest."""
    out = []
    for gpu, near, alike in repeats(sweeps):
        sets = {blocks: groups for blocks, groups in alike.items() if len(groups) >= LEAST_REPEATS}
        best_us, blocks, group = best_of(near)
        if group not in sets.get(blocks, ()):
            continue
        found = []
        for turn in range(max(map(len, sets.values()))):
            held = {each: groups[turn % len(groups)] for each, groups in sets.items()}
            mean = {
                each: np.mean([near[each].get(g, SLOWER * best_us) for g in groups if g != held[each]]) for each, groups in sets.items()
            }
            picked = min(sets, key=mean.__getitem__)
            found.append(held[picked] in near[picked])
        out.append((gpu, best_us, float(np.mean(found))))
    return out


def show(found: Sequence[Share]) -> None:
    """Prints shares by GPU and latency."""
    for gpu in [*dict.fromkeys(gpu for gpu, _, _ in found), "all"]:
        mine = [(us, share) for name, us, share in found if gpu in (name, "all")]
        cells = [f"{gpu:6s} {100 * np.mean([share for _, share in mine]):5.1f} % of {len(mine):3d} sweeps"]
        for low, high in zip((0.0, *UP_TO_US), UP_TO_US, strict=False):
            some = [share for us, share in mine if low < us <= high]
            if some:
                cells.append(f"{low:.0f} to {high:.0f} us {100 * np.mean(some):3.0f} % of {len(some):2d}")
        print("   ".join(cells))


def main() -> None:
    """Prints both figures by GPU and latency."""
    parser = argparse.ArgumentParser()
    default = os.environ.get("ADVISOR_DATA") or Path(__file__).resolve().parents[3] / "shared" / "data"
    parser.add_argument("--data", default=default, type=Path)
    sweeps = read(Path(parser.parse_args().data))
    print("a launch identical to the best of its sweep is within 1 % of it")
    show(shares(sweeps))
    print("a launch whose repeats were the fastest of their sweep is within 1 % of the best")
    show(picked_by_the_others(sweeps))


if __name__ == "__main__":
    main()
