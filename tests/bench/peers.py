"""The baselines that the learned model is judged against, fitted to the same rows as it and judged on those that it was judged on.

Run it: `python tests/bench/peers.py DATA --leave-out gpu` (model, gpu, sweep, shape or nk, as `advisor evaluate` has them; needs torch).
Prints JSON.

- a linear model: ridge regression of log latency on the logarithms of the pipelines' times;
- PipeWeave's features and network (arXiv 2601.14910; repository `zksainx/pipeweave`, `mlp_model.py`, `train_mlp.py`: log1p features,
  256-128-64 with batch norm and dropout, a sigmoid for the efficiency, mean relative error, AdamW), refitted here for the tasks it was made
  for, launches as served and library gemms, and its ceiling: the same network with a pinball loss at 0.8 (`train_mlp_quantile.py`), by
  which a launch counts as improvable where ceiling - efficiency > 0.1.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from advisor import pipelines
from advisor.learned.analytical import served_configuration
from advisor.learned.machine import machine
from advisor.learned.moe.launch import Launch, concatenate, moe_launch
from advisor.pipelines import Array
from advisor.training import data, evaluate, moe_tables, quality
from advisor.training.data import Measured
from advisor.training.grow import torch_on_one_thread
from advisor.training.judging import task_of

RIDGE = 1e-3
FLAG_MARGIN = 0.1
"""PipeWeave's own threshold: a launch is flagged where its ceiling exceeds its efficiency by more."""

LINEAR, PIPEWEAVE, BOUND = "linear model", "PipeWeave's network", "bound alone"
GEMM_TILE = 128
"""Block of the fp8 gemms in PipeWeave's data (its counts follow from 128 x 128)."""


@dataclass(slots=True, kw_only=True)
class Found:
    """Predictions of one fold: (task, baseline) -> columns of gpu, measured, predicted, weight; and of the diagnosis."""

    errors: dict[tuple[str, str], dict[str, list[Any]]] = field(default_factory=dict)
    diagnosis: dict[str, dict[str, list[Any]]] = field(default_factory=dict)  # gpu, score, label, flag


def judge(kept: Sequence[Measured], test: Sequence[Measured]) -> Found:
    """Fit every baseline to `kept` and predict `test`."""
    out = Found()
    for task in sorted({task_of(part) for part in test}):
        mine, other = ([p for p in parts if task_of(p) == task] for parts in (kept, test))
        if not mine:
            continue
        _add(out, task, LINEAR, other, np.exp(_ridge(_times(mine), np.log(_latency(mine)))(_times(other))))
        if task == "served" or (task.startswith("gemm/") and task != "gemm/fp32"):
            counts, cycles = _counts(mine)
            network = fit_network(counts, cycles / _latency(mine))
            counts, cycles = _counts(other)
            _add(out, task, PIPEWEAVE, other, cycles / np.maximum(network(counts), 1e-9))
    _diagnose(out, kept, test)
    return out


def _diagnose(out: Found, kept: Sequence[Measured], test: Sequence[Measured]) -> None:
    """ "At least 10 % can be won" from the default's latency in the sweeps, by ceilings of three kinds."""
    swept = [p for p in test if p.kind == "best" and p.paired_us is not None]
    served, best = [p for p in kept if p.kind == "served"], [p for p in kept if p.kind == "best"]
    if not swept:
        return
    paired = np.concatenate([p.paired_us for p in swept if p.paired_us is not None])
    known = np.isfinite(paired)
    now, label = paired[known], paired[known] / _latency(swept)[known] >= quality.WIN
    gpu = np.array([p.gpu.name for p in swept for _ in range(len(p))])[known].tolist()
    if not known.any():
        return

    def add(name: str, score: Array, flag: NDArray[np.bool_]) -> None:
        out.diagnosis[name] = {"gpu": gpu, "score": score.tolist(), "label": label.tolist(), "flag": flag.tolist()}

    bound = np.concatenate(
        [np.broadcast_to(pipelines.bound(pipelines.work(p.problem, p.gpu), p.gpu, p.problem.cache).us, (len(p),)) for p in swept]
    )[known]
    add(BOUND, now / bound, now / bound >= quality.WIN)
    if best:
        ceiling = np.exp(_ridge(_times(best), np.log(_latency(best)))(_times(swept)))[known]
        add(LINEAR, now / ceiling, now / ceiling >= quality.WIN)
    if served:
        counts, cycles = _counts(served)
        network: Network = fit_network(counts, cycles / _latency(served), quantile=0.8)
        counts, cycles = _counts(swept)
        room = network(counts)[known] - cycles[known] / now
        add(f"{PIPEWEAVE}, 80 % ceiling", room, room > FLAG_MARGIN)


def figures(found: Sequence[Found]) -> dict[str, Any]:
    """Errors by task and baseline, and the quality of the diagnosis by baseline, over all folds, as JSON values."""
    tasks: dict[str, dict[str, Any]] = {}
    for (task, name), columns in _joined([f.errors for f in found]).items():
        values = [np.array(columns[n]) for n in ("measured", "predicted", "weight")]
        tasks.setdefault(task, {})[name] = quality.errors(*values) | {"per_gpu": quality.by(columns["gpu"], quality.errors, *values)}
    diagnosis = {}
    for name, columns in _joined([f.diagnosis for f in found]).items():
        values = [np.array(columns[n]) for n in ("score", "label", "flag")]
        diagnosis[name] = {"all": _flags(*values), "per_gpu": quality.by(columns["gpu"], _flags, *values)}
    return {"tasks": tasks, "diagnosis": diagnosis}


def _flags(score: Array, label: NDArray[np.bool_], flag: NDArray[np.bool_]) -> dict[str, float]:
    return {
        "auc": quality.area_under_curve(score, label),
        "precision": float(label[flag].mean()) if flag.any() else float("nan"),
        "recall": float(flag[label].mean()) if label.any() else float("nan"),
        "rows": int(label.size),
    }


def _joined(parts: Sequence[dict[Any, dict[str, list[Any]]]]) -> dict[Any, dict[str, list[Any]]]:
    out: dict[Any, dict[str, list[Any]]] = {}
    for part in parts:
        for key, columns in part.items():
            for name, values in columns.items():
                out.setdefault(key, {}).setdefault(name, []).extend(values)
    return out


def _add(out: Found, task: str, name: str, test: Sequence[Measured], predicted: Array) -> None:
    weight = [moe_tables.weights_of(p) if p.problem.family == "fused_moe" else np.ones(len(p)) for p in test]
    out.errors[(task, name)] = {
        "gpu": [p.gpu.name for p in test for _ in range(len(p))],
        "measured": _latency(test).tolist(),
        "predicted": predicted.tolist(),
        "weight": np.concatenate(weight).tolist(),
    }


def _latency(parts: Sequence[Measured]) -> Array:
    return np.concatenate([p.latency_us for p in parts])


def _ridge(x: Array, y: Array) -> Any:
    """Ridge regression on standardised columns; the returned function predicts."""
    mean, spread = x.mean(axis=0), x.std(axis=0) + 1e-9

    def scaled(z: Array) -> Array:
        return np.column_stack([(z - mean) / spread, np.ones(len(z))])

    z = scaled(x)
    weights = np.linalg.solve(z.T @ z + RIDGE * len(x) * np.eye(z.shape[1]), z.T @ y)
    return lambda other: scaled(other) @ weights


def _times(parts: Sequence[Measured]) -> Array:
    """Logarithms of what every pipeline needs, [n, t]."""
    out = []
    for part in parts:
        if part.problem.family == "fused_moe":
            one = _launch(part)
            times = [one.dram_us, one.warm_dram_us + 1e-3, one.l2_us, one.tensor_sm_us, one.smem_sm_us, one.full_waves]
        else:
            bound = pipelines.bound(pipelines.work(part.problem, part.gpu), part.gpu, part.problem.cache)
            times = [np.broadcast_to(bound.times_us[n], (len(part),)) + 1e-3 for n in ("tensor", "fma", "l2", "dram")]
            times += [np.broadcast_to(column, (len(part),)) for _, column in sorted(part.problem.sizes.items()) if column.size > 1]
        out.append(np.log(np.stack(times, axis=1)))
    return np.concatenate(out)


def _launch(part: Measured) -> Launch:
    """Launches of fused-MoE rows: as measured, else as PipeWeave's rule says."""
    gpu = machine(part.gpu, part.problem.dtype)
    return moe_launch(part.problem, part.configuration or served_configuration(part.problem, gpu), gpu)


def _counts(parts: Sequence[Measured]) -> tuple[Array, Array]:
    """PipeWeave's eleven features before log1p, [n, 11], and what the tensor pipeline needs, in microseconds."""
    if parts[0].problem.family == "fused_moe":
        one = concatenate([_launch(p) for p in parts])
        all_bytes, per_sm_bytes = (2 * (one.block_m + one.block_n) * one.depth * n for n in (one.ctas, one.per_sm))
        return _features(
            one.padded_tensor_us,
            one.tensor_sm_us,
            all_bytes,
            per_sm_bytes,
            one.sms,
            one.clock_mhz,
            one.peak_flop,
            one.pin_rate,
            one.l2_rate,
        ), one.padded_tensor_us
    rows, cycles = [], []
    for part in parts:
        gpu = machine(part.gpu, part.problem.dtype)
        m, n, k = (np.broadcast_to(part.problem.sizes[name], (len(part),)) for name in "MNK")
        tall, wide = np.ceil(m / GEMM_TILE), np.ceil(n / GEMM_TILE)
        tensor = 2 * GEMM_TILE * GEMM_TILE * k / gpu.peak_flop
        per_sm = np.ceil(tall * wide / gpu.num_sms)
        size = part.problem.operand_bytes
        rows.append(
            _features(
                tall * wide * tensor,
                per_sm * tensor * gpu.num_sms,
                size * GEMM_TILE * (tall + wide) * k,
                size * 2 * GEMM_TILE * k * per_sm,
                gpu.num_sms,
                gpu.clock_mhz,
                gpu.peak_flop,
                gpu.pin_bytes,
                gpu.l2_rate_bytes,
            )
        )
        cycles.append(tall * wide * tensor)
    return np.concatenate(rows), np.concatenate(cycles)


def _features(
    tensor_us: Array,
    tensor_sm_us: Array,
    all_bytes: Array,
    sm_bytes: Array,
    sms: Array | float,
    clock_mhz: Array | float,
    peak_flop: Array | float,
    pin_rate: Array | float,
    l2_rate: Array | float,
) -> Array:
    """Operations, cycles and KiB of the whole GPU and of the busiest SM, in PipeWeave's order."""
    columns = (
        tensor_us * peak_flop,
        tensor_us * clock_mhz,
        tensor_sm_us * peak_flop / sms,
        tensor_sm_us * clock_mhz,
        all_bytes / 1024,
        all_bytes / pin_rate * clock_mhz,
        all_bytes / l2_rate * clock_mhz,
        sm_bytes / 1024,
        sm_bytes / pin_rate * sms * clock_mhz,
        sm_bytes / 128,
        sm_bytes / l2_rate * sms * clock_mhz,
    )
    return np.stack(np.broadcast_arrays(*columns), axis=1)


Network = Callable[[Array], Array]
WIDTHS = (256, 128, 64)
EPOCHS = 120
BATCH = 1024
LEAST_EFFICIENCY = 1e-6


def fit_network(counts: Array, efficiency: Array, quantile: float | None = None, epochs: int = EPOCHS, seed: int = 0) -> Network:
    """Fit; the returned function gives efficiencies [n] for counts [n, f].

    Args:
        counts: Features before log1p, [n, f].
        efficiency: Tensor time / latency, in (0, 1].
        quantile: Level of the pinball loss; None for the mean relative error.
        epochs: Passes over the rows; the learning rate falls to nothing along a cosine (the original waits for a plateau).
        seed: Of the weights, the order of rows and the dropout.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    with torch_on_one_thread("PipeWeave's network") as torch:
        return _fit(counts, efficiency, quantile, epochs, seed, torch)


def _fit(counts: Array, efficiency: Array, quantile: float | None, epochs: int, seed: int, torch: Any) -> Network:
    torch.manual_seed(seed)
    layers: list[Any] = []
    width = counts.shape[1]
    for out in WIDTHS:
        layers += [torch.nn.Linear(width, out), torch.nn.ReLU(), torch.nn.BatchNorm1d(out), torch.nn.Dropout(0.1)]
        width = out
    network = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1), torch.nn.Sigmoid())
    x = torch.tensor(np.log1p(counts), dtype=torch.float32)
    y = torch.tensor(efficiency, dtype=torch.float32)[:, None].clamp(LEAST_EFFICIENCY, 1.0)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    draw = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=draw).split(BATCH):
            if rows.numel() < 2:  # batch norm needs two
                continue
            optimizer.zero_grad()
            missed = y[rows] - network(x[rows])
            loss = (missed / y[rows]).abs() if quantile is None else torch.maximum(quantile * missed, (quantile - 1) * missed)
            loss.mean().backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), max_norm=1.0)
            optimizer.step()
        schedule.step()
    network.eval()

    def predict(other: Array) -> Array:
        with torch.no_grad():
            found = network(torch.tensor(np.log1p(other), dtype=torch.float32))[:, 0].numpy()
        return np.asarray(found, dtype=np.float64)

    return predict


def main() -> None:
    """Fits and judges the baselines on every split, and prints their figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("data", nargs="+", help="measured rows, as `advisor evaluate` reads them")
    parser.add_argument("--leave-out", choices=evaluate.BY, required=True)
    arguments = parser.parse_args()
    chosen = evaluate.splits_of(data.read(arguments.data), arguments.leave_out)
    print(json.dumps(figures([judge(split.kept, split.test) for split in chosen]), indent=1))


if __name__ == "__main__":
    main()
