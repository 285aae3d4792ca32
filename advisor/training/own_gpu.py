"""`advisor calibrate`: rows measured on one's own GPU, put into weights as what they say of their errors there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from advisor import pipelines
from advisor.gpus.hardware import load_gpu
from advisor.learned import own_rows
from advisor.learned.estimator import LearnedPredictor
from advisor.learned.layers import layer_model
from advisor.learned.layers.layer_model import features as layer_features
from advisor.learned.layers.layer_model import own_kind
from advisor.learned.layers.layer_time import layer_time
from advisor.learned.own_predictor import POOLS, demands, features, kind_of, parts_of
from advisor.learned.weights import Weights
from advisor.pipelines import Array
from advisor.pipelines.from_rows import batches
from advisor.rows.rows import Rows
from advisor.rows.types_and_origin import simulated_rows
from advisor.steps.batches_of_rows import has_layers, layer_batches
from advisor.steps.latency import layer_bound
from advisor.system.errors import NothingMatchedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrated:
    """Weights with own rows, and of each GPU and kind of launch how many these are and their mean absolute errors in percent: as the
    weights were, and of rows left out one by one as they are; `left_out`: rows that say nothing, by reason."""

    weights: Weights
    errors: dict[tuple[str, str], tuple[int, float, float]]
    left_out: dict[str, int]


def calibrate(rows: Rows, weights: Weights, gpu: str | None = None) -> Calibrated:
    """Add rows to the weights; where the weights hold some of that GPU and kind already, to these.

    Args:
        rows: Launches of any kind that `advisor predict` reads, with `latency_us`.
        weights: To be corrected.
        gpu: GPU of every row, in place of their column.

    Raises:
        NothingMatchedError: No kind has enough rows.
    """
    latency = np.asarray(rows.columns.get("latency_us", np.full(len(rows), np.nan)), dtype=np.float64).copy()
    left_out = {"without a latency": int((~np.isfinite(latency)).sum()), "simulated, not measured": 0, "below the bound": 0}
    simulated = simulated_rows(rows) & np.isfinite(latency)
    latency[simulated] = np.nan
    left_out["simulated, not measured"] = int(simulated.sum())
    rows_of: dict[tuple[str, str], list[tuple[Array, Array]]] = defaultdict(list)
    for key, matrix, us, bound_us, chosen in _predicted(rows, weights, gpu):
        measured = latency[chosen]
        with np.errstate(invalid="ignore"):
            fine, below = np.isfinite(us) & (measured >= bound_us), measured < bound_us
        left_out["below the bound"] += int(below.sum())
        rows_of[key].append((matrix[fine], np.log(measured[fine] / us[fine])))
    corrections, errors = dict(weights.corrections), {}
    for key, (matrix, error) in _with_earlier(corrections, rows_of).items():
        if error.size < own_rows.LEAST:
            left_out[f"of fewer than {own_rows.LEAST} of their kind ({' '.join(key)})"] = error.size
            continue
        corrections[key] = own_rows.of_rows(matrix, error)
        errors[key] = (len(corrections[key]), _mape(corrections[key].errors), _mape(corrections[key].left_out))
    if not errors:
        reasons = ", ".join(f"{count} {why}" for why, count in left_out.items() if count)
        raise NothingMatchedError(
            f"{rows.path}: nothing to learn from", reasons or "no rows", f"{own_rows.LEAST} measured rows of a kind", "measure more"
        )
    kept = {name: values for name, values in weights.silicon.items() if not name.startswith(own_rows.PREFIX)}
    return Calibrated(weights=replace(weights, silicon=kept | own_rows.arrays(corrections)), errors=errors, left_out=left_out)


def _with_earlier(
    corrections: dict[tuple[str, str], own_rows.OwnRows], errors: dict[tuple[str, str], list[tuple[Array, Array]]]
) -> dict[tuple[str, str], tuple[Array, Array]]:
    """Features and errors of the rows given and, of their kinds, of those that are there; of configured launches by kind as soon as all of
    their pool are more than `own_rows.MOST`, which is taken out of `corrections` then."""
    out = {}
    for key, parts in errors.items():
        gpu, kind = key
        matrix, error = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        before = corrections.get(key)
        if before is not None and before.features.shape[1] == matrix.shape[1]:
            matrix, error = np.concatenate([before.features, matrix]), np.concatenate([before.errors, error])
        pooled = kind in CONFIGURED
        if not pooled or (
            error.size <= own_rows.MOST and not any(name == gpu and item.startswith(f"{kind}:") for name, item in corrections)
        ):
            out[key] = matrix, error
            continue
        corrections.pop(key, None)
        names = np.array(parts_of(kind, matrix))
        for name in np.unique(names).tolist():
            mine, there = names == name, corrections.get((gpu, name))
            columns = (matrix[mine], error[mine])
            if there is not None:
                columns = (np.concatenate([there.features, columns[0]]), np.concatenate([there.errors, columns[1]]))
            out[gpu, name] = columns
    return out


CONFIGURED = {f"configured {pool}" for pool in POOLS.values()}


def _mape(errors: Array) -> float:
    return float(100 * np.abs(np.expm1(-errors)).mean())


def _predicted(rows: Rows, weights: Weights, gpu: str | None) -> Iterator[tuple[tuple[str, str], Array, Array, Array, NDArray[np.int64]]]:
    """Of each batch: GPU and kind, features [n, f], prediction and bound in microseconds [n], and the numbers of its rows [n]."""
    predictor = LearnedPredictor(weights)
    for batch in batches(rows, load_gpu, gpu):
        problem, configuration = batch.problem, batch.configuration
        us = predictor.predict(problem, configuration, batch.gpu).us
        bound = pipelines.bound(pipelines.work(problem, batch.gpu), batch.gpu, problem.cache).us
        if configuration is None:
            matrix = features(problem, batch.gpu, np.where(np.isfinite(us), us, 1.0))
        else:
            matrix = demands(problem, configuration, batch.gpu)
        yield (batch.gpu.name, kind_of(problem, configuration is not None)), matrix, us, bound, batch.rows
    model = layer_model.load(weights.silicon)
    if model is None or not has_layers(rows):
        return
    for item in layer_batches(rows, replace(model, corrections={}), load_gpu, gpu):
        time, kinds = layer_time(item.launch, model.constants), item.launch.layers.kind
        matrix, bound_us = layer_features(item.launch, time).astype(np.float64), layer_bound(item.launch, item.cold).us
        us = replace(model, corrections={}).predict(item.launch).us
        for kind in np.unique(kinds).tolist():
            mine = kinds == kind
            yield (item.launch.gpu.name, own_kind(kind)), matrix[mine], us[mine], bound_us[mine], item.rows[mine]
