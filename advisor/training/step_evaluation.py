"""Constants of whole steps, fitted and judged: `advisor evaluate` on a folder of measured steps, `advisor train --steps`."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from advisor.learned.base import Predictor
from advisor.steps.constants import Constants, load_constants, read_constants
from advisor.training.collective_curves import fit_curves, read_collectives
from advisor.training.step_cases import DECODE, PREFILL, TOTAL, Case, read_cases

SUITES = {"sglang": (DECODE,), "torch": ("fp32 inference", "fp32 training")}
"""Which steps the gaps of an engine are fitted to; those not named are taken over: vLLM's from SGLang's, the compiler's from PyTorch's."""
SAME = {"vllm": "sglang", "inductor": "torch"}
THROTTLED = ("L40", "RTX 6000 Ada", "P4")
"""Boards that ran for seconds far below what their power limit allows (L40 and RTX 6000 Ada prefilled at about 100 TFLOP/s, the P4 slowed
down by a third as runs grew longer): told apart, and nothing is fitted to them."""


def fit_gaps(cases: Sequence[Case], start: Constants) -> Constants:
    """The constants with gaps fitted to the cases: least squares of the relative error in `kernel_us` and `step_us`, per engine.

    The time that the host takes per launch is never seen by these (their kernels are long): it stays.
    """
    gaps = dict(start.gaps)
    for engine, suites in SUITES.items():
        mine = [case for case in cases if case.suite in suites and case.gpu not in THROTTLED]
        if len(mine) < 2:
            continue
        counts = np.array([case.priced.count for case in mine], dtype=float)
        left = np.array([case.measured_us - case.priced.busy_us for case in mine])
        measured = np.array([case.measured_us for case in mine])
        gaps[engine] = replace(gaps[engine], kernel_us=round(_ratio(counts, left, measured), 3))
    for engine, like in SAME.items():
        gaps[engine] = gaps[like]
    return replace(start, gaps=gaps)


def train_steps(
    collectives: str | Path, steps: str | Path, predictor: Predictor, progress: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """The constants as `ceilings/steps.json` stores them: curves of the tables below the first folder, gaps and spread of the second."""
    curves = fit_curves(read_collectives(collectives))
    start = {"gpus": [], "gaps": START, "spread": 1.0, "collectives": curves}
    cases = read_cases(steps, predictor, read_constants(json.loads(json.dumps(start))), progress)
    fitted = fit_gaps(cases, read_constants(json.loads(json.dumps(start))))
    fitted = fit_spread(cases, fitted)
    return {
        "source": SOURCE,
        "gpus": sorted({case.gpu for case in cases if case.gpu not in THROTTLED}),
        "gaps": {engine: asdict(gaps) for engine, gaps in fitted.gaps.items()},
        "spread": fitted.spread,
        "collectives": curves,
    }


SOURCE = (
    "Collectives: fitted to the performance tables of ai-dynamo/aiconfigurator (NVIDIA, Apache-2.0). Gaps: fitted to measured steps of "
    "PipeWeave (zksainx/pipeweave, Apache-2.0) and NeuSight (sitar-lab/NeuSight, MIT)."
)
START = {
    "sglang": {"kernel_us": 1.0, "step_us": 0.0, "launch_us": 5.0},
    "vllm": {"kernel_us": 1.0, "step_us": 0.0, "launch_us": 5.0},
    "torch": {"kernel_us": 0.0, "step_us": 0.0, "launch_us": 10.0},
    "inductor": {"kernel_us": 0.0, "step_us": 0.0, "launch_us": 5.0},
}
"""Gaps before fitting. What the host takes per launch is assumed: the engines launch kernels from compiled code in about 5 µs, PyTorch an
operator in about 10 (both of public profiles); the measured steps keep the GPU busy, and do not tell."""


def _ratio(counts: np.ndarray, left: np.ndarray, measured: np.ndarray) -> float:
    """The median of what is left per kernel, each weighted by its part in the step."""
    each, weight = left / counts, counts / measured
    order = np.argsort(each)
    return float(each[order][np.searchsorted(np.cumsum(weight[order]), weight.sum() / 2)])


def fit_spread(cases: Sequence[Case], fitted: Constants) -> Constants:
    """The constants with the factor that makes the 80 % intervals of the cases hold 80 %."""
    plain = replace(fitted, spread=1.0)
    ratios = []
    for case in cases:
        if case.gpu not in THROTTLED:
            time = case.priced.time(plain)
            ratios.append(abs(np.log(case.measured_us / time.us)) / np.log(time.high_us / time.us))
    return replace(fitted, spread=round(float(np.quantile(ratios, 0.8)), 3)) if ratios else fitted


def evaluate_steps(folder: str | Path, predictor: Predictor, progress: Callable[[str], None] = lambda text: None) -> dict[str, Any]:
    """Errors of ours and of the published predictors on the steps of a folder; every GPU with constants fitted without it.

    Returns:
        `suites`: by suite, errors in percent by predictor (on the cases that it predicts), coverage of our intervals, cases; `cases`.
    """
    shipped = load_constants()
    cases = read_cases(folder, predictor, shipped, progress)
    gpus = {case.gpu for case in cases}
    without = {gpu: _without(cases, gpu, shipped) for gpu in gpus}
    judged = [_judged(case, without[case.gpu]) for case in cases]
    judged += _totals(cases, without)
    suites: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for each in judged:
        suites[each["suite"]].append(each)
        if each["gpu"] in THROTTLED:
            suites[f"{each['suite']}, throttled boards"].append(each)
        else:
            suites[f"{each['suite']}, others"].append(each)
    return {
        "suites": {name: _figures(rows) for name, rows in sorted(suites.items())},
        "cases": judged,
        "throttled": list(THROTTLED),
        "gaps": {engine: asdict(gaps) for engine, gaps in shipped.gaps.items()},
        "fitted_with": list(shipped.gpus),
    }


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


def _totals(cases: Sequence[Case], without: dict[str, Constants]) -> list[dict[str, Any]]:
    """Whole runs: the prefill and every decode step."""
    runs: dict[str, dict[str, Case]] = defaultdict(dict)
    for case in cases:
        runs[case.run][case.suite] = case
    found = []
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
        found.append(row)
    return found


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
