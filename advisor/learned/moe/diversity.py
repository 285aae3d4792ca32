"""Later picks that win where earlier ones lose.

Configurations that resemble each other win and lose together, so the eight that rank highest may all fail for one reason. The published
sweeps say which configurations were near-optimal for which problem: after each pick, problems like the one asked about that the pick
solves count less, and what solves the others moves up. On a GPU whose sweeps are not known, those of others say less of it, and what looks
like an earlier pick moves down as well. Configurations that make the very same launch are picked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned.machine import Machine
from advisor.learned.moe.launch import FIELDS, Launch
from advisor.pipelines import Array
from advisor.pipelines.batch import repeats

PICKS = 24
"""How many picks are made so; the rest follow in their order."""

SURE = 8
"""Picks after which, should all have lost, what won elsewhere counts ever more against the odds, which were mistaken."""

DOUBLINGS = np.array([1.5, 1.0, 0.7, 0.7, 0.3, 0.5]) * np.sqrt(0.3)
"""How fast problems grow unlike each other, per doubling of `coordinates`."""

SOLVED = 0.3
"""What a problem that a pick solves still counts."""

STRENGTH = 0.5
"""How much what won elsewhere counts beside the odds, up to `SURE` picks."""

UNLIKE, REACH = 5.0, 0.65
"""On GPUs without sweeps: log-odds that the very neighbour of a pick loses by it, the less the more picks there are beyond `SURE`; and the
distance over which a pick's neighbours do. 3 to 6 over .6 to .8 give the same within a point of the first eight."""

EVERY_ROW_TILE = 128.0
"""GROUP_SIZE_M that stands for all that hold every row tile of a launch: they order its CTAs alike."""

FLOOR = 0.002
TINY = 1e-300
SAME = 1e-6
"""Squared distance below which two GPUs are one."""

STAGES = FIELDS.index("num_stages")
"""Column of the known configurations."""

SHARED = 1
"""Column of `machine_coordinates`."""

NEAR = 0.01
"""Doublings of shared memory below which it is the same."""


def coordinates(launch: Launch) -> Array:
    """Coordinates of problems, [n, 6]: doublings of rows per expert, columns per SM, depth, width, experts, bytes per L2."""
    rows, columns = launch.slots / launch.experts, launch.experts * launch.width / launch.sms
    fill = launch.compulsory_bytes / launch.l2_capacity
    return np.log2(np.stack([rows, columns, launch.depth, launch.width, launch.experts, fill], axis=1))


def machine_coordinates(launch: Launch) -> Array:
    """Coordinates of GPUs, [n, 4]: doublings of FLOP per byte, of shared memory in KiB and of SMs; and wgmma."""
    balance, shared = launch.peak_flop / launch.pin_rate, launch.smem_capacity
    return np.stack([np.log2(balance), np.log2(shared), 2.0 * (launch.capability >= 9), np.log2(launch.sms)], axis=1)


def configuration_coordinates(launch: Launch) -> Array:
    """Coordinates of configurations, [n, 6]: those at distance 1 resemble each other by exp(-1/2).

    Doublings of the blocks, of GROUP_SIZE_M as far as it tells launches apart, and of the warps; stages.
    """
    group = np.where(launch.group_m >= launch.row_tiles, EVERY_ROW_TILE, np.minimum(launch.group_m, EVERY_ROW_TILE))
    return np.stack(
        [
            np.log2(launch.block_m),
            np.log2(launch.block_n),
            np.log2(launch.block_k),
            0.35 * np.log2(group),
            np.log2(launch.warps),
            0.6 * launch.stages,
        ],
        axis=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Wins:
    """Near-optimal configurations of published sweeps.

    Attributes:
        problems: `coordinates` of the swept problems, [p, 6].
        machines: `machine_coordinates` of their GPUs, [p, 4].
        problem: Of each win, its problem's row, [w].
        configuration: Of each win, its row in the ranker's known configurations, [w].
    """

    problems: NDArray[np.float32]
    machines: NDArray[np.float32]
    problem: NDArray[np.unsignedinteger[Any]]
    configuration: NDArray[np.unsignedinteger[Any]]

    def picks(
        self, opinions: Array, turns: Iterable[int], known: NDArray[np.int64], launch: Launch, count: int, most: int = PICKS
    ) -> NDArray[np.int64]:
        """The first `most` places, which several opinions fill in turn; each sees what the others picked.

        Args:
            opinions: Log-odds of the candidates, [o, n]; -inf where an opinion has no say.
            turns: Whose turn it is, place by place, without end: rows of `opinions`. One that has none left is passed over.
            known: The candidates' rows among the known configurations, [n].
            launch: Their launches, [n], of one problem.
            count: Number of known configurations.
        """
        where = configuration_coordinates(launch)
        by_odds = np.argsort(-opinions[0], kind="stable")
        again = np.zeros(known.size, dtype=bool)
        again[by_odds] = repeats(where[by_odds])
        left = np.where(again, -np.inf, opinions.astype(np.float64))
        if most == 1:  # nothing was picked before that it could resemble
            return np.array([next(int(np.argmax(left[turn])) for turn in turns if np.isfinite(left[turn]).any())])
        unlike = 0.0 if self.know(launch) else UNLIKE
        weight = self._likeness(launch)
        table = self._won(known, weight, count)
        won, total = table.sum(axis=0, dtype=np.float64), max(float(weight.sum()), TINY)
        before = np.log(won / total + FLOOR)
        change, alike = np.zeros(known.size), np.zeros(known.size)
        picks: list[int] = []
        for turn in turns:
            number = len(picks)
            if number == most or not np.isfinite(left).any():
                break
            later = max(1.0, number / SURE)
            best = int(np.argmax(left[turn] + STRENGTH * later * change - unlike / later * alike))
            if not np.isfinite(left[turn, best]):
                continue
            picks.append(best)
            left[:, best] = -np.inf
            solved = np.flatnonzero(table[:, best])
            table[solved] *= SOLVED
            won = won - (1 / SOLVED - 1) * table[solved].sum(axis=0)
            total = max(total - (1 - SOLVED) * float(weight[solved].sum()), TINY)
            weight[solved] *= SOLVED
            change = np.log(np.maximum(won, 0.0) / total + FLOOR) - before
            if unlike:
                alike = np.maximum(alike, np.exp(-0.5 * ((where - where[best]) ** 2).sum(axis=1) / REACH**2))
        return np.array(picks)

    def _won(self, known: NDArray[np.int64], weight: Array, count: int) -> NDArray[np.float32]:
        """The wins of like problems, [p, n]: row by row what a problem, of `weight` [p], counts for each candidate that won it."""
        place = np.full(count, -1)
        place[known] = np.arange(known.size)
        some = np.flatnonzero((weight[self.problem] > 0) & (place[self.configuration] >= 0))
        problem, candidate = self.problem[some], place[self.configuration[some]]
        table = np.zeros((weight.size, known.size), dtype=np.float32)
        table[problem, candidate] = (weight / np.sqrt(np.maximum(np.bincount(self.problem, minlength=weight.size), 1)))[problem]
        return table

    def know(self, launch: Launch) -> bool:
        """Whether sweeps of the launches' GPU are among them."""
        return bool((self._apart(launch) < SAME).any())

    def most_stages(self, known: Array, gpu: Machine) -> float:
        """The most `num_stages` that won on the swept GPUs whose SMs have the shared memory nearest to that of a GPU's.

        Sweeps of GPUs with 100 KiB tried up to 4 buffers, of larger ones up to 5. Of what was not tried nothing is known: on such a GPU it
        must not come before what was.

        Args:
            known: The ranker's known configurations, [k, 6].
            gpu: The GPU.
        """
        apart = np.abs(self.machines[:, SHARED] - np.log2(gpu.smem_bytes_per_sm))
        nearest = apart <= apart.min() + NEAR
        return float(known[self.configuration[nearest[self.problem]], STAGES].max())

    def _apart(self, launch: Launch) -> Array:
        """Squared distance from the GPU of each swept problem to that of the launches, [p]."""
        gpu = machine_coordinates(launch.take(slice(0, 1)))
        return ((self.machines - gpu) ** 2).sum(axis=1).astype(np.float64)

    def _likeness(self, launch: Launch) -> Array:
        """Likeness [p] of each swept problem to the one asked about; only those of the same GPU where there are some."""
        here, apart = coordinates(launch.take(slice(0, 1))), self._apart(launch)
        square = (((self.problems - here) * DOUBLINGS) ** 2).sum(axis=1)
        same = apart < SAME
        return np.where(same, 1.0, 0.0 if same.any() else np.exp(-apart / 2)) * np.exp(-square / 2)

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The model as named arrays."""
        return {f"{prefix}/{name}": getattr(self, name) for name in ("problems", "machines", "problem", "configuration")}


def from_arrays(stored: Mapping[str, NDArray[Any]], prefix: str) -> Wins:
    """The reverse of `Wins.arrays`."""
    return Wins(**{name: stored[f"{prefix}/{name}"] for name in ("problems", "machines", "problem", "configuration")})
