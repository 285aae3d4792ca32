"""Constants of whole steps, fitted and judged: `advisor evaluate` on a folder of measured steps, `advisor train --steps`.

Curves of collectives from measured tables (`data/silicon`, in their publisher's layout).
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from advisor.gpus.hardware import load_gpu, match_device_name
from advisor.learned.base import Predictor
from advisor.rows.silicon import GPUS
from advisor.steps.collectives import ENGINES, Constants, load_constants, read_constants, read_curves
from advisor.system.errors import InputError
from advisor.training.step_cases import (
    CACHED,
    COMPILED,
    DECODE,
    INFERENCE,
    PARALLEL,
    PREFILL,
    SERVED,
    SERVED_POINT,
    TOTAL,
    TRAINING,
    Case,
    Point,
    read_cases,
    read_points,
)

LOG2_BYTES = tuple(range(8, 31))
"""Where a curve has a point: every size that was measured, for the libraries change their algorithm between any two."""
SPIKE = 2.0
"""A measurement of so many times both its neighbours was disturbed (38 µs between 3.3 and 3.5): a larger message is not faster."""
Key = tuple[str, str, int]


def read_collectives(folder: str | Path) -> dict[Key, tuple[list[float], list[float]]]:
    """Measured collectives, by GPU, collective and library (`all_reduce/sglang-eager`) and ranks: bytes, and microseconds.

    Of every library the newest version alone.

    Raises:
        InputError: The folder holds no such tables.
    """
    import pyarrow.parquet as parquet

    versions: dict[tuple[str, str], list[Path]] = defaultdict(list)
    for path in Path(folder).glob("*/comm/*/*/*.parquet"):
        gpu, _, stack = path.relative_to(folder).parts[:3]
        versions[gpu, stack].append(path)
    if not versions:
        raise InputError(f"{folder}: no tables of collectives", None, "GPU/comm/STACK/VERSION/*.parquet", "name the folder above")
    curves: dict[Key, tuple[list[float], list[float]]] = defaultdict(lambda: ([], []))
    for (gpu, stack), paths in versions.items():
        spec = match_device_name(GPUS.get(gpu, gpu))
        if spec is None:
            continue
        columns = parquet.read_table(max(paths, key=lambda path: _version(path.parent.name))).to_pydict()
        types = columns.get("nccl_dtype") or columns["allreduce_dtype"]
        for op, source, ranks, dtype, elements, ms in zip(
            *(columns[name] for name in ("op_name", "kernel_source", "num_gpus")),
            types,
            columns["message_size"],
            columns["latency"],
            strict=True,
        ):
            sizes, us = curves[spec.name, f"{op}/{stack}{'-eager' if source.endswith('eager') else ''}", ranks]
            sizes.append(elements * (1 if dtype == "int8" else 2))
            us.append(ms * 1e3)
    return curves


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def fit_curves(measured: Mapping[Key, tuple[list[float], list[float]]]) -> dict[str, Any]:
    """Curves as `steps.constants` reads them, latencies in microseconds at `LOG2_BYTES`."""
    curves: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(dict))
    for (gpu, op, ranks), (sizes, us) in sorted(measured.items()):
        curves[gpu][op][str(ranks)] = [round(float(item), 2) for item in _fitted(sizes, us)]
    return {"log2_bytes": LOG2_BYTES, "curves": curves}


def judge_curves(measured: Mapping[Key, tuple[list[float], list[float]]]) -> dict[str, dict[str, float]]:
    """By GPU, mean absolute errors in percent of the engines' own all-reduces in a graph: `seen`, with every second size left out of its
    curve, and `left out`, by the curves of the other GPUs; over PCIe also `host known`, the same where what the host passes
    of the largest message is known."""
    mine = {key: rows for key, rows in measured.items() if key[1] in ("all_reduce/vllm", "all_reduce/sglang")}
    halves = read_curves(fit_curves({key: (sizes[::2], us[::2]) for key, (sizes, us) in mine.items()}))
    by_kind = {}
    for gpu in sorted({key[0] for key in mine}):
        others = read_curves(fit_curves({key: rows for key, rows in mine.items() if key[0] != gpu}))
        errors: dict[str, list[float]] = defaultdict(list)
        spec = load_gpu(gpu)
        for (name, op, ranks), (sizes, us) in mine.items():
            if name != gpu:
                continue
            of_host = replace(spec, host_bytes_per_s=2 * (ranks - 1) / ranks * max(sizes) / us[int(np.argmax(sizes))] * 1e6)
            ways = [("seen", halves, spec, 1, 2), ("left out", others, spec, 0, 1), ("host known", others, of_host, 0, 1)]
            for which, curves, judged, first, step in ways if spec.fabric_bytes_per_s is None else ways[:2]:
                for size, item in zip(sizes[first::step], us[first::step], strict=True):
                    predicted = curves.latency_us("all_reduce", size, ranks, judged, op.partition("/")[2])[0]
                    errors[which].append(100 * abs(predicted / item - 1))
        by_kind[gpu] = {which: float(np.mean(values)) for which, values in errors.items()}
    return by_kind


def _fitted(sizes: Sequence[float], us: Sequence[float]) -> np.ndarray:
    """The curve's values at `LOG2_BYTES`: the median of each size without spikes, linear in the bytes between sizes and beyond them."""
    points, known = np.exp2(LOG2_BYTES), np.unique(sizes)
    values = np.array([np.median(np.asarray(us)[np.asarray(sizes) == item]) for item in known])
    left, here, right = values[:-2], values[1:-1], values[2:]
    values[1:-1] = np.where(here > SPIKE * np.maximum(left, right), np.sqrt(left * right), here)
    return np.asarray(np.interp(points, known, values) * np.maximum(points / known[-1], 1.0))


FITTED = (INFERENCE, TRAINING)
"""Steps that PyTorch's `busy` is fitted to; the compiler takes it over."""
PYTORCH = (*FITTED, COMPILED, PARALLEL)
THROTTLED = ("L40", "RTX 6000 Ada", "P4")
"""Boards that ran for seconds far below what their power limit allows (L40 and RTX 6000 Ada prefilled at about 100 TFLOP/s, the P4 slowed
down by a third as runs grew longer): told apart, and nothing is fitted to them."""


def fit_gaps(cases: Sequence[Case], start: Constants) -> Constants:
    """The constants with `busy` of PyTorch fitted to the cases: the median of what the step leaves for its kernels.

    Its kernels were each timed alone, and the fastest of the steps were kept. The engines' kernels were timed in graphs: nothing is fitted.
    """
    mine = [case for case in cases if case.suite in FITTED and case.gpu not in THROTTLED]
    if not mine:
        return start
    torch = start.gaps["torch"]
    ratios = [(case.measured_us - torch.kernel_us * case.priced.count) / case.priced.busy_us for case in mine]
    busy = round(float(np.median(ratios)), 4)
    return replace(start, gaps=start.gaps | {engine: replace(start.gaps[engine], busy=busy) for engine in ("torch", "inductor")})


def train_steps(
    collectives: str | Path, steps: str | Path, predictor: Predictor, progress: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """The constants as `ceilings/steps.json` stores them: curves of the tables and the doubt of served points below the first folder, gaps
    and spread of the second."""
    curves = fit_curves(read_collectives(collectives))
    start = {"gpus": [], "gaps": START, "spread": dict.fromkeys(itertools.chain(*ALIKE), 1.0), "served": {"": 0.0}, "collectives": curves}
    cases = read_cases(steps, predictor, read_constants(json.loads(json.dumps(start))), progress)
    fitted = fit_gaps(cases, read_constants(json.loads(json.dumps(start))))
    fitted = fit_spread(cases, fitted)
    if (Path(collectives) / SERVED).is_file():
        fitted = fit_served(read_points(Path(collectives) / SERVED, predictor, fitted, progress), fitted)
    return {
        "source": SOURCE,
        "gpus": sorted({case.gpu for case in cases if case.gpu not in THROTTLED}),
        "gaps": {engine: asdict(gaps) for engine, gaps in fitted.gaps.items()},
        "spread": fitted.spread,
        "served": fitted.served,
        "collectives": curves,
    }


SOURCE = (
    "Collectives: fitted to the performance tables of ai-dynamo/aiconfigurator (NVIDIA, Apache-2.0). Gaps: fitted to measured steps of "
    "PipeWeave (zksainx/pipeweave, Apache-2.0) and NeuSight (sitar-lab/NeuSight, MIT)."
)
START = {
    "sglang": {"kernel_us": 1.0, "launch_us": 5.0},
    "vllm": {"kernel_us": 1.0, "launch_us": 5.0},
    "torch": {"kernel_us": -8.0, "launch_us": 10.0},
    "inductor": {"kernel_us": -8.0, "launch_us": 5.0},
}
"""Gaps before fitting. Kernels of a CUDA graph follow one another in 0.8 to 1.3 µs (`launch_latency_us` in `ceilings/`). The operators that
NeuSight timed one by one took 6 to 11 µs where they launch nothing (`view`, `size`). What the host takes per launch is assumed: engines
launch compiled code in about 5 µs, PyTorch an operator in about 10; the measured steps keep their GPUs busy and do not tell."""


ALIKE = (ENGINES, tuple(f"{engine}-eager" for engine in ENGINES), ("torch-eager", "inductor-eager"))
"""Launchers whose steps are as far off: the engines' in CUDA graphs (decoding), without (prefills), and PyTorch."""


def fit_spread(cases: Sequence[Case], fitted: Constants) -> Constants:
    """The constants with the factors that make the 80 % intervals of the cases hold 80 %."""
    plain = replace(fitted, spread=dict.fromkeys(fitted.spread, 1.0))
    ratios: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for case in cases:
        if case.gpu not in THROTTLED:
            time = case.priced.time(plain)
            ratios[next(item for item in ALIKE if case.priced.launcher in item)].append(
                abs(np.log(case.measured_us / time.us)) / np.log(time.high_us / time.us)
            )
    spread = {name: round(float(np.quantile(mine, 0.8)), 3) for names, mine in ratios.items() for name in names}
    return replace(fitted, spread=fitted.spread | spread)


def fit_served(points: Sequence[Point], fitted: Constants) -> Constants:
    """The constants with what makes the 80 % intervals of the served points of all models but one hold 80 %."""
    plain = replace(fitted, served={"": 0.0})
    beyond: dict[str, list[float]] = defaultdict(list)
    for point in points:
        if not point.cached:
            time = point.time(plain)
            beyond[point.model].append(np.log(point.measured_us / time.us) ** 2 - np.log(time.high_us / time.us) ** 2)

    def spread(without: str) -> float:
        some = [item for model, mine in beyond.items() if model != without for item in mine]
        return round(float(np.sqrt(max(np.quantile(some, 0.8), 0.0))), 3) if some else 0.0

    return replace(fitted, served={model: spread(model) for model in ("", *beyond)})


def evaluate_steps(folder: str | Path, predictor: Predictor, progress: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Errors of ours and of the published predictors on the steps of a folder, and on the served points of a folder `silicon` beside it;
    every GPU with constants fitted without it.

    Returns:
        `suites`: by suite, errors in percent by predictor (on the cases that it predicts), coverage of our intervals, cases, with those of
        boards that throttle apart and of GPUs whose operators the weights know, or do not; `cases`; `all_reduce`: see `judge_curves`.
    """
    shipped = load_constants()
    cases = read_cases(folder, predictor, shipped, progress)
    gpus = {case.gpu for case in cases}
    without = {gpu: _without(cases, gpu, shipped) for gpu in gpus}
    judged = [_judged(case, without[case.gpu]) for case in cases]
    judged += _totals(cases, without)
    silicon = Path(folder).parent / "silicon"
    if (silicon / SERVED).is_file():
        judged += [_judged_point(point, shipped) for point in read_points(silicon / SERVED, predictor, shipped, progress)]
    suites: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for item in judged:
        suites[item["suite"]].append(item)
        if item["gpu"] in THROTTLED:
            suites[f"{item['suite']}, throttled boards"].append(item)
            continue
        if item["suite"] not in (TOTAL, SERVED_POINT, CACHED):
            suites["all steps, others"].append(item)
        suites[f"{item['suite']}, others"].append(item)
        seen = item["gpu"] in _learned(predictor, item["suite"] in PYTORCH)
        suites[f"{item['suite']}, {'GPUs seen' if seen else 'GPUs left out'}"].append(item)
    return {
        "suites": {name: _figures(rows) for name, rows in sorted(suites.items())},
        "cases": judged,
        "all_reduce": judge_curves(read_collectives(silicon)) if any(silicon.glob("*/comm")) else {},
        "throttled": list(THROTTLED),
        "gaps": {engine: asdict(gaps) for engine, gaps in shipped.gaps.items()},
        "fitted_with": list(shipped.gpus),
    }


def _learned(predictor: Predictor, fp32: bool) -> set[str]:
    """The GPUs whose operators the weights know, those of PyTorch in fp32 or those of the engines."""
    weights: Any = getattr(predictor, "weights", None)
    if weights is None:
        return set()
    models = [model for model in weights.direct.values() if model.kind.endswith("fp32")] if fp32 else weights.library.values()
    return {gpu for model in models for gpu in model.gpus}


def _without(cases: Sequence[Case], gpu: str, shipped: Constants) -> Constants:
    """Constants fitted without a GPU: the shipped ones, where it had no part in them."""
    if gpu not in shipped.gpus:
        return shipped
    others = [case for case in cases if case.gpu != gpu and case.gpu in shipped.gpus]
    return fit_spread(others, fit_gaps(others, shipped))


def _judged(case: Case, fitted: Constants) -> dict[str, Any]:
    time = case.priced.time(fitted)
    return {
        "suite": case.suite,
        "gpu": case.gpu,
        "run": case.run,
        "measured_ms": case.measured_us / 1e3,
        "predicted_ms": time.us / 1e3,
        "low_ms": time.low_us / 1e3,
        "high_ms": time.high_us / 1e3,
        "peers_ms": {name: us / 1e3 for name, us in case.peers.items()},
    }


def _judged_point(point: Point, fitted: Constants) -> dict[str, Any]:
    time = point.time(fitted)
    figures = {
        "suite": CACHED if point.cached else SERVED_POINT,
        "gpu": point.gpu,
        "run": point.run,
        "measured_ms": point.measured_us / 1e3,
        "peers_ms": {},
    }
    return figures | {"predicted_ms": time.us / 1e3, "low_ms": time.low_us / 1e3, "high_ms": time.high_us / 1e3}


def _totals(cases: Sequence[Case], without: dict[str, Constants]) -> list[dict[str, Any]]:
    """Whole runs: the prefill and every decode step."""
    runs: dict[str, dict[str, Case]] = defaultdict(dict)
    for case in cases:
        runs[case.run][case.suite] = case
    totals = []
    for run, parts in runs.items():
        if set(parts) != {PREFILL, DECODE}:
            continue
        judged = {suite: _judged(case, without[case.gpu]) for suite, case in parts.items()}
        steps = parts[DECODE].steps
        row: dict[str, Any] = {"suite": TOTAL, "gpu": parts[DECODE].gpu, "run": run}
        for name in ("measured_ms", "predicted_ms", "low_ms", "high_ms"):
            row[name] = judged[PREFILL][name] + steps * judged[DECODE][name]
        both = judged[PREFILL]["peers_ms"].keys() & judged[DECODE]["peers_ms"].keys()
        row["peers_ms"] = {name: judged[PREFILL]["peers_ms"][name] + steps * judged[DECODE]["peers_ms"][name] for name in both}
        totals.append(row)
    return totals


def _figures(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    def error(name: str | None) -> list[float]:
        values = [(row["predicted_ms"] if name is None else row["peers_ms"].get(name), row["measured_ms"]) for row in rows]
        return [100 * abs(value / measured - 1) for value, measured in values if value is not None]

    ours = error(None)
    names = sorted({name for row in rows for name in row["peers_ms"]})
    inside = [row["low_ms"] <= row["measured_ms"] <= row["high_ms"] for row in rows]
    bias = [np.log(row["predicted_ms"] / row["measured_ms"]) for row in rows]
    return {
        "cases": len(rows),
        "mape_percent": float(np.mean(ours)),
        "median_percent": float(np.median(ours)),
        "bias_percent": 100 * float(np.mean(bias)),
        "coverage_percent": 100 * float(np.mean(inside)),
        "peers_mape_percent": {name: float(np.mean(error(name))) for name in names},
        "peers_cases": {name: len(error(name)) for name in names},
    }
