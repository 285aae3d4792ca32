"""Which tuned tables ran in place of the stacks' defaults while layers were measured.

Errors of layers whose models or GPU were left out, beside what else would have been said of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned.layers.layer_model import Ran, own_kind
from advisor.learned.layers.layer_time import layer_time
from advisor.learned.layers.moe_layer import Launched, TunedTables, keys
from advisor.pipelines import Array
from advisor.steps.latency import layer_bound
from advisor.system import grouped
from advisor.tables.entries import FIELDS
from advisor.training import quality
from advisor.training.silicon.library_kernels import summed

LEAST_GAIN = 0.02
"""Log error by which a table has to explain the rows better than the default, for it to be believed to have run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Layers of one GPU as they were launched, [n] each; `model` is (H, inter, topk, E) as one number."""

    launch: Launched
    latency_us: Array
    model: NDArray[np.int64]

    def __len__(self) -> int:
        return self.latency_us.size

    def take(self, rows: NDArray[Any]) -> Measured:
        """Some of them."""
        launch = self.launch
        loads = replace(launch.loads, **{name: getattr(launch.loads, name)[rows] for name in launch.loads.__slots__})
        some = replace(
            launch,
            layers=launch.layers.take(rows),
            loads=loads,
            kept=launch.kept[rows],
            configuration={name: values[rows] for name, values in launch.configuration.items()},
        )
        return Measured(launch=some, latency_us=self.latency_us[rows], model=self.model[rows])


def choose_launches(parts: Sequence[Measured], tuned: TunedTables, constants: Array) -> tuple[list[Measured], list[Ran]]:
    """The rows with the configuration that ran: of every table that there is, it or the default, whichever explains the rows better; and
    of which layers and versions which of the two ran."""
    out: list[Measured] = []
    ran: list[Ran] = []
    for part in parts:
        layers = part.launch.layers
        configuration = {name: values.copy() for name, values in part.launch.configuration.items()}
        groups = grouped(
            ((key, version), row)
            for row, (key, version) in enumerate(zip(keys(part.launch), layers.version.tolist(), strict=True))
            if key in tuned
        )
        for (key, version), members in groups.items():
            rows = np.array(members)
            some = part.take(rows)
            entry = tuned.running(key, version, some.launch.kept)
            if entry is None:
                continue
            theirs = replace(some.launch, configuration=entry)
            default, other = (
                np.median(np.abs(np.log(layer_time(launch, constants).total / some.latency_us))) for launch in (some.launch, theirs)
            )
            is_tuned = bool(other + LEAST_GAIN < default)
            for name in FIELDS if is_tuned else ():
                configuration[name][rows] = entry[name]
            ran.append(Ran(*key, int(version), is_tuned))
        out.append(replace(part, launch=replace(part.launch, configuration=configuration)))
    return out, ran


GAIN = 1.2


def held_out(parts: Sequence[Measured], seen: Sequence[Array], strange: Sequence[Array], physics: Sequence[Array]) -> dict[str, Any]:
    """By kind and GPU, mean absolute errors in percent of layers; besides, words on two stacks' defaults.

    Args:
        parts: The layers, on one rank each.
        seen: log(predicted / measured) where their models were left out, by part.
        strange: Where their GPU was.
        physics: Of `layer_time` alone.
    """
    bound = [np.log(layer_bound(part.launch, np.zeros(len(part), dtype=bool)).us / part.latency_us) for part in parts]
    near = [_by_nearest_models(part, error) for part, error in zip(parts, bound, strict=True)]
    columns = {"left out": seen, "nearest shapes": near, "physics alone": physics, "bound": bound, "GPU left out": strange}
    gpu = np.concatenate([np.full(len(part), part.launch.gpu.name) for part in parts])
    kinds = np.concatenate([part.launch.layers.kind for part in parts])
    errors = {name: np.concatenate(errors_of) for name, errors_of in columns.items()}
    out: dict[str, Any] = {}
    for kind in np.unique(kinds).tolist():
        out[own_kind(kind)] = quality.side_by_side(gpu[kinds == kind], {name: item[kinds == kind] for name, item in errors.items()})
    return out | {name: errors_of["words"] for name, errors_of in of_two_defaults(parts, seen).items()}


def _by_nearest_models(part: Measured, bound: Array) -> Array:
    """log(predicted / measured) of layers by the nearest of other models that the same stack ran in the same version, [n]; NaN where there
    are none; `bound`: log of the bound to the latency."""
    layers = part.launch.layers
    sizes = np.log1p(np.stack([layers.tokens, layers.hidden, layers.inner, layers.topk, layers.experts], axis=1))
    keys = np.stack([layers.sglang, layers.version, layers.kind, np.round(100 * layers.routing)], axis=1)
    _, series = np.unique(keys, axis=0, return_inverse=True)
    error = np.full(len(part), np.nan)
    for item in np.unique(series):
        mine = np.flatnonzero(series.ravel() == item)
        for model in np.unique(part.model[mine]):
            known, judged = mine[part.model[mine] != model], mine[part.model[mine] == model]
            if known.size >= quality.NEAREST:
                error[judged] = quality.nearest(sizes[known], -bound[known], sizes[judged]) + bound[judged]
    return error


def of_two_defaults(parts: Sequence[Measured], errors: Sequence[Array]) -> dict[str, Any]:
    """How well it is foreseen which of two stacks is faster at the same layer of more tokens than experts, and by how much: what a finding
    about a configuration is worth, for their defaults are most of the difference. Errors are of the ratio of their latencies."""
    measured, foreseen = [], []
    for part, error in zip(parts, errors, strict=True):
        layers = part.launch.layers
        sizes = (layers.tokens, layers.experts, layers.topk, layers.hidden, layers.inner, layers.kind, np.round(100 * layers.routing))
        rows = np.flatnonzero((layers.ranks == 1) & (layers.tokens > layers.experts))
        keys = list(zip(*(column[rows].tolist() for column in sizes), strict=True))
        sides: list[dict[Any, int]] = [{}, {}]
        for key, row in zip(keys, rows.tolist(), strict=True):
            sides[int(layers.sglang[row])][key] = row
        pairs = np.array([(sides[0][key], sides[1][key]) for key in sides[0].keys() & sides[1].keys()], dtype=np.int64).reshape(-1, 2)
        latency = np.log(part.latency_us)
        measured.append(latency[pairs[:, 1]] - latency[pairs[:, 0]])
        foreseen.append(measured[-1] + error[pairs[:, 1]] - error[pairs[:, 0]])
    true, predicted = np.concatenate(measured), np.concatenate(foreseen)
    large = np.abs(true) > np.log(GAIN)
    if large.sum() < 2:
        return {}
    correlation, seen = np.corrcoef(true, predicted)[0, 1], (true * predicted > 0)[large].mean()
    words = f"correlation {correlation:.3f}; of {large.sum()} gains above 20 % foreseen which is faster: {100 * seen:.1f} %"
    return {"SGLang's default against vLLM's": summed(predicted - true, None, np.zeros(true.size, dtype=bool)) | {"words": words}}
