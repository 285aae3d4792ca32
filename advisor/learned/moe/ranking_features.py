"""Feature columns of the rankers: what tells the configurations of one problem apart.

Which configuration wins is a matter of the others: what it needs of each pipeline is also told as compared with the least that any rival
needs, and as its place among them. Such columns mean the same on GPUs and problems of any size, where absolute ones do not
(`ceilings/ATTEMPTS.md` has what they gave).

Feature columns of the learned models: ratios of the launch's quantities, so that sizes and GPUs meet on common ground.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor.learned.moe.launch import Launch
from advisor.pipelines import Array

Columns = dict[str, Array]

SERVED, EXACT, BEST = 1.0, 0.0, -1.0
"""Values of the feature `source`: as served (a campaign of its own), an exact configuration of a sweep, the best of a sweep."""


def latency_features(launch: Launch, predicted_us: Array, stack: Array, source: float | Array) -> Columns:
    """Features of the forest that corrects the physics: its terms and the launch's ratios.

    Args:
        launch: Columns [n].
        predicted_us: What the physics predicts, [n].
        stack: Its terms, [7, n].
        source: `SERVED`, `EXACT` or `BEST`.
    """
    log = np.log
    reference = launch.config_bound_us
    columns: Columns = {f"term {i}": log((stack[i] + 1e-3) / predicted_us) for i in range(stack.shape[0])}
    columns |= {
        "latency": log(predicted_us),
        "last wave": launch.full_waves / launch.waves,
        "busiest over mean": launch.per_sm * launch.sms / launch.ctas,
        "waves": log(launch.waves),
        "ctas per sm": log(launch.ctas / launch.sms),
        "l2 fill": log(launch.compulsory_bytes / launch.l2_capacity),
        "resident": launch.resident,
        "k iterations": log(launch.k_iterations),
        "block m": launch.block_m,
        "block n": launch.block_n,
        "block k": launch.block_k,
        "row fill": launch.slots / (launch.row_tiles * launch.block_m),
        "row tiles per expert": launch.row_tiles / launch.experts,
        "rows of an expert": log(launch.most_rows),
        "group m": launch.group_m,
        "dram share": log(launch.dram_us / reference),
        "l2 share": log(launch.least_l2_us / reference),
        "weights": log(launch.weight_bytes / launch.compulsory_bytes),
        "balance": log(launch.peak_flop / launch.pin_rate),
        "l2 over dram": log(launch.l2_rate / launch.pin_rate),
        "capability": launch.capability,
        "sms": launch.sms,
        "clock": launch.clock_mhz,
        "flop per clock": launch.flop_per_clock,
        "source": source + np.zeros(len(launch)),
        "warps": launch.warps,
        "stages": launch.stages,
    }
    return columns


def matrix(columns: Columns) -> Array:
    """Columns side by side, [n, f], in their order."""
    return np.stack([np.asarray(v, dtype=np.float64) for v in columns.values()], axis=1)


GPU_FIGURES = ("capability", "sms", "balance", "shared of the sm")
"""Of `ranking_features` those that only tell GPUs apart."""

COMPARISONS = ("share of term", "over the least", "place by")
"""What the names hold of columns that compare: pipelines with each other, or a configuration with its rivals."""

NOTHING_US = 1e-3
"""Added to the times of pipelines, so that those which have nothing to do have a logarithm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rivals:
    """Needs of the configurations that may win a problem.

    Attributes:
        fastest_us: The least latency that the physics predicts for any of them.
        least: The least of every quantity of `_needs`.
        ordered: The values of every quantity of `_placed`, ascending.
    """

    fastest_us: float
    least: Mapping[str, float]
    ordered: Mapping[str, Array]


def rivals(launch: Launch, predicted_us: Array, stack: Array) -> Rivals:
    """Of the configurations that may win one problem, [r]; arguments as those of `ranking_features`."""
    return Rivals(
        fastest_us=float(predicted_us.min()),
        least={name: float(values.min()) for name, values in _needs(launch, stack).items()},
        ordered={name: np.sort(values) for name, values in _placed(launch, predicted_us).items()},
    )


def ranking_features(launch: Launch, predicted_us: Array, stack: Array, others: Rivals) -> Columns:
    """Features of the forests that put near-optimal configurations first.

    Args:
        launch: Configurations of one problem, [n].
        predicted_us: What the physics predicts, [n].
        stack: Its terms, [7, n].
        others: Of the problem.
    """
    needs = _needs(launch, stack)
    columns = {f"term {i}": np.log((term + NOTHING_US) / others.fastest_us) for i, term in enumerate(stack)}
    columns |= _launched(launch, predicted_us, others.fastest_us) | _under_way(launch)
    columns |= {f"share of term {i}": share for i, share in enumerate(np.log(stack + NOTHING_US) - np.log(stack.max(axis=0)))}
    columns |= {f"{name} over the least": values - others.least[name] for name, values in needs.items()}
    for name, values in _placed(launch, predicted_us).items():
        columns[f"place by {name}"] = np.searchsorted(others.ordered[name], values) / others.ordered[name].size
    return columns


def _launched(launch: Launch, predicted_us: Array, fastest_us: float) -> Columns:
    """The configuration, the problem, the grid and the GPU."""
    log = np.log
    return {
        "block m": log(launch.block_m),
        "block n": log(launch.block_n),
        "block k": log(launch.block_k),
        "group m": log(launch.group_m),
        "warps": launch.warps,
        "stages": launch.stages,
        "relative": log(predicted_us / fastest_us),
        "rows of an expert": log(launch.most_rows),
        "mean rows": log(launch.slots / launch.all_experts),
        "tokens": log(launch.tokens),
        "row fill": launch.slots / (launch.row_tiles * launch.block_m),
        "row tiles per expert": launch.row_tiles / launch.experts,
        "waves": log(launch.waves),
        "last wave": launch.full_waves / launch.waves,
        "busiest over mean": launch.per_sm * launch.sms / launch.ctas,
        "ctas per sm": log(launch.ctas / launch.sms),
        "resident": launch.resident,
        "k iterations": log(launch.k_iterations),
        "column fill": launch.width / (launch.column_tiles * launch.block_n),
        "shared": launch.shared_bytes / launch.smem_capacity,
        "l2 fill": log(launch.compulsory_bytes / launch.l2_capacity),
        "intensity": log(launch.slots / launch.experts),
        "column tiles": log(launch.column_tiles),
        "depth": log(launch.depth),
        "width": log(launch.width),
        "experts": log(launch.experts),
        "fastest": np.full(len(launch), log(fastest_us)),
        "iterations per stage": launch.k_iterations / launch.stages,
        "accumulators": log(launch.accumulators),
        "group over rows": log(launch.group_m / np.maximum(launch.row_tiles, 1)),
        "capability": launch.capability,
        "sms": launch.sms,
        "balance": log(launch.peak_flop / launch.pin_rate),
        "shared of the sm": launch.smem_capacity,
    }


def _under_way(launch: Launch) -> Columns:
    """Feature columns of the bytes, warps and CTAs that a launch keeps under way at a time."""
    log, trip = np.log, (launch.block_m + launch.block_n) * launch.block_k
    return {
        "dram time in flight": log(launch.in_flight_bytes / launch.pin_rate),
        "l2 in flight": log(launch.in_flight_bytes / launch.l2_capacity),
        "in flight of the sm": log(launch.in_flight_bytes / launch.sms),
        "warps of the sm": log(_warps_of_the_sm(launch)),
        "trip of a warp": log(trip / launch.warps),
        "elements of a cta": log((launch.block_m + launch.block_n) * launch.depth),
        "ctas of the busiest sm": log(launch.per_sm),
    }


def _warps_of_the_sm(launch: Launch) -> Array:
    return np.minimum(launch.resident, launch.per_sm) * launch.warps


def _needs(launch: Launch, stack: Array) -> Columns:
    """Logarithms of what a configuration needs."""
    log = np.log
    return {f"term {i}": log(term + NOTHING_US) for i, term in enumerate(stack)} | {
        "ctas": log(launch.ctas),
        "l2 traffic": log(launch.l2_traffic_bytes),
        "shared memory": log(launch.smem_sm_us + NOTHING_US),
        "tensor": log(launch.tensor_sm_us + NOTHING_US),
        "in flight": log(launch.in_flight_bytes),
    }


def _placed(launch: Launch, predicted_us: Array) -> Columns:
    """Quantities by which configurations are put in a row."""
    return {
        "latency": predicted_us,
        "in flight": launch.in_flight_bytes,
        "ctas": launch.ctas,
        "warps of the sm": _warps_of_the_sm(launch),
        "l2 traffic": launch.l2_traffic_bytes,
    }
