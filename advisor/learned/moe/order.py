"""The order of a problem's configurations beside the trees: by physics (`start`, `log_odds`), and moved by what earlier picks solve
(`Wins`).

Physics: what a GPU's figures say of tiles, stages and groups where no sweep of it is known. The constants are fitted to say which
configurations win published sweeps (`training.rank_training`), not how long launches take: `moe_physics` is fitted to latencies of
configurations that are all good, and says little about the others. Two dozen constants that all GPUs share carry over to a GPU never swept
better than trees do, which learn the tiles that won elsewhere.

Picks: configurations that resemble each other win and lose together, so the eight that rank highest may all fail for one reason. The
published sweeps say which configurations were near-optimal for which problem: after each pick, problems like the one asked about that the
pick solves count less, and what solves the others moves up. On a GPU whose sweeps are not known, those of others say less of it, and what
looks like an earlier pick moves down as well. Configurations that make the very same launch are picked once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned.machine import Machine
from advisor.learned.moe.launch import FIELDS, Launch
from advisor.learned.moe.moe_physics import SPLIT_L2, TYPICAL_FLOP_PER_CLOCK
from advisor.pipelines import Array
from advisor.pipelines.batch import repeats

CONSTANTS: dict[str, float] = {
    "launch_us": 3.0,
    "dram_share": 0.95,
    "short_rows": 0.15,
    "short_rows_hbm": 0.05,
    "l2_share": 0.9,
    "resident_share": 1.0,
    "resident_slope": 10.0,
    "read_again": 0.5,
    "tensor_share": 0.9,
    "tensor_share_wgmma": 0.9,
    "small_tile": 8.0,
    "smem_share": 0.9,
    "start_us": 1.5,
    "start_clocks": 1500.0,
    "epilogue_clocks": 10.0,
    "trip_clocks": 60.0,
    "copy_clocks": 2.0,
    "l2_latency_us": 0.3,
    "dram_latency_us": 0.8,
    "depth": 0.8,
    "sharpness": 4.0,
    "tail": 0.3,
    "noise": 0.05,
}
"""Name -> where fitting starts. All are positive and fitted as logarithms. `noise` is the scale of the logarithms of latencies at which
configurations win: of two that differ by it, the faster wins e times as often."""

LEANINGS = ("grouped", "group doublings", "eight warps", "one buffer", "deep tiles of resident sets", "tall tiles")
"""What the terms do not explain, in steps of `LEANING` of the logarithm; 0 where fitting starts."""

LEANING = 0.1

COLUMNS = (
    "block_m",
    "block_n",
    "block_k",
    "group_m",
    "warps",
    "stages",
    "slots",
    "experts",
    "depth",
    "width",
    "compulsory_bytes",
    "weight_bytes",
    "row_tiles",
    "column_tiles",
    "ctas",
    "per_sm",
    "resident",
    "full_waves",
    "k_iterations",
    "accumulators",
    "warp_group",
    "l2_us",
    "tensor_sm_us",
    "smem_sm_us",
    "sms",
    "clock_mhz",
    "flop_per_clock",
    "pin_rate",
    "l2_capacity",
    "capability",
)
"""Fields of `Launch` that the order reads."""

COPY_ELEMENTS = 512.0
"""Elements of 2 bytes that a warp copies with two instructions of 16 bytes per lane."""


def start() -> Array:
    """The parameters before fitting: logarithms of `CONSTANTS`, then `LEANINGS`."""
    return np.concatenate([np.log(np.array(list(CONSTANTS.values()))), np.zeros(len(LEANINGS))])


def columns(launch: Launch) -> dict[str, Array]:
    """The fields that `log_odds` reads, by name."""
    return {name: getattr(launch, name) for name in COLUMNS}


def log_odds(launch: Mapping[str, Any], parameters: Any, xp: Any = np) -> Any:
    """Log-odds that configurations win: among those of one problem, exp(log_odds) over its sum is the share of wins expected.

    Args:
        launch: `COLUMNS`, arrays of one shape; those of numpy or tensors of torch.
        parameters: Of `start`, of the same library.
        xp: The library: numpy, or torch while fitting.
    """
    names = (*CONSTANTS, *LEANINGS)
    v = {name: xp.exp(parameters[i]) if i < len(CONSTANTS) else parameters[i] for i, name in enumerate(names)}
    c = launch
    per_us = c["clock_mhz"]
    resident = xp.minimum(c["resident"], xp.clip(c["ctas"] / c["sms"], 1.0, None))
    fill = xp.log(c["compulsory_bytes"] / (v["resident_share"] * c["l2_capacity"]))
    missed = 1 / (1 + xp.exp(-xp.clip(v["resident_slope"] * fill, -50.0, 50.0)))
    again = xp.clip(_wave_bytes(c, resident, xp) - c["compulsory_bytes"], 0.0, None)
    # HBM sits behind L2s of two partitions, GDDR behind the others; rows of a B tile are runs of BLOCK_SIZE_K elements in DRAM.
    hbm = sum((c["capability"] == capability) for capability in SPLIT_L2) > 0
    short = 1 + xp.where(hbm, v["short_rows_hbm"], v["short_rows"]) * 64 / c["block_k"]
    dram = (c["compulsory_bytes"] + again * v["read_again"]) * missed * short / (c["pin_rate"] * v["dram_share"])
    harmonic = c["block_m"] * c["block_n"] / (c["block_m"] + c["block_n"])
    small = 1 + v["small_tile"] * c["flop_per_clock"] / TYPICAL_FLOP_PER_CLOCK / harmonic
    share = xp.where(c["warp_group"] > 0, v["tensor_share_wgmma"], v["tensor_share"])
    tensor = c["tensor_sm_us"] / share * small
    copies = v["copy_clocks"] * (c["block_m"] + c["block_n"]) * c["block_k"] / COPY_ELEMENTS
    ahead = xp.clip(c["stages"] - 1, 1.0, None) ** v["depth"]
    trip = (v["l2_latency_us"] + v["dram_latency_us"] * missed) / ahead + (v["trip_clocks"] + copies) / per_us
    # What one CTA takes that has the SM to itself: the others of the SM hide it.
    alone = v["start_us"] + (v["start_clocks"] + v["epilogue_clocks"] * c["accumulators"]) / per_us
    alone = alone + c["k_iterations"] * trip + tensor / c["per_sm"]
    terms = xp.stack([dram, c["l2_us"] / v["l2_share"], tensor, c["smem_sm_us"] / v["smem_share"], c["per_sm"] / resident * alone]) + 1e-3
    largest = xp.amax(terms, 0)
    soft = largest * ((terms / largest) ** v["sharpness"]).sum(0) ** (1 / v["sharpness"])
    grouped = xp.log2(xp.minimum(c["group_m"], c["row_tiles"]))
    leaning = (
        v["grouped"] * (grouped > 0)
        + v["group doublings"] * grouped
        + v["eight warps"] * (c["warps"] >= 8)
        + v["one buffer"] * (c["stages"] <= 2)
        + v["deep tiles of resident sets"] * xp.log2(c["block_k"] / 64) * (1 - missed)
        + v["tall tiles"] * xp.log2(c["block_m"] / 16)
    )
    return -(xp.log(v["launch_us"] + soft + v["tail"] * alone) + LEANING * leaning) / v["noise"]


def _wave_bytes(c: Mapping[str, Any], resident: Any, xp: Any) -> Any:
    """Distinct bytes that each wave of CTAs reads, summed over the waves: `group_m` row tiles times the columns that fill the wave."""
    element = c["weight_bytes"] / (c["experts"] * c["width"] * c["depth"])
    running = xp.minimum(c["ctas"], c["sms"] * resident)
    rows = xp.minimum(c["group_m"], c["row_tiles"])
    of_one_expert = xp.minimum(rows, c["row_tiles"] / c["experts"])
    across = xp.minimum(xp.clip(running / rows, 1.0, None), c["column_tiles"])
    blocks = running / xp.clip(across * of_one_expert, 1.0, None)
    filled = c["slots"] / c["row_tiles"]
    return blocks * element * c["depth"] * (of_one_expert * filled + across * c["block_n"]) * c["full_waves"]


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
