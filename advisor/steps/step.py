"""A whole step: operators, collectives and gaps, summed, with the interval of the sum."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Predictor
from advisor.result.step import StepOperator, StepResult, StepTime
from advisor.steps import collectives
from advisor.steps.constants import Constants, load_constants
from advisor.steps.latency import Cost, costs
from advisor.steps.memory import memory
from advisor.steps.model_config import Architecture
from advisor.steps.operators import Operator, step_operators
from advisor.steps.workload import Load, Split

GAP_SPREAD = 0.35
"""Half an 80 % interval of the log of what gaps take together: hosts differ more than GPUs."""


def predict_step(
    model: Architecture,
    load: Load,
    split: Split,
    gpu: GpuSpec,
    predictor: Predictor,
    *,
    engine: str = "vllm",
    dtype: str | None = None,
    eager: bool | None = None,
    constants: Constants | None = None,
    command: str = "",
) -> StepResult:
    """What a step of the model takes.

    Args:
        model: The whole model.
        load: The sequences of the step.
        split: Over how many GPUs.
        gpu: Each of them.
        predictor: Of the operators.
        engine: `vllm` or `sglang`.
        dtype: Of the products' operands; None: as the model is stored.
        eager: Without CUDA graphs; None: as the engine does, whose graphs are of steps that decode alone.
        constants: None: those shipped.
        command: What the user typed, for the result.

    Raises:
        UsageError: The split is refused, or the GPU lacks a type or a link.
    """
    split.check(model)
    fitted = constants or load_constants()
    eager = bool(load.prompts) if eager is None else eager
    operators = step_operators(model, load, split, dtype)
    found = _priced(operators, gpu, predictor, fitted, engine, eager)
    kernels = [(operator, cost) for operator, cost in zip(operators, found, strict=True)]
    busy = sum(operator.count * cost.us for operator, cost in kernels)
    gap = _gap_us(sum(operator.count for operator in operators), busy, fitted, engine, eager)
    total = busy + gap
    half = fitted.spread * _spread(kernels, gap)
    step = StepTime(us=total, low_us=total * math.exp(-half), high_us=total * math.exp(half))
    rows = [_row(operator, cost, total) for operator, cost in kernels]
    rows.append(_gap_row(gap, total, eager))
    stages = split.pipeline  # each works on another batch while this one passes the others
    result = StepResult(
        model=model.name,
        gpu=gpu.name,
        load=describe(load),
        split=f"tp {split.tensor}, pp {split.pipeline}" + (", ep" if split.experts else ""),
        engine=engine,
        dtype=dtype or model.dtype,
        step=step,
        tokens_per_s=load.tokens * stages / total * 1e6,
        memory=memory(model, load, split, gpu, dtype),
        operators=tuple(sorted(rows, key=lambda row: -row.total_us)),
        command=command,
        predictor=predictor.name,
    )
    return replace(result, advice=tuple(advice(result)))


def describe(load: Load) -> str:
    """The load in words: `prefill of 8 prompts, 27,966 tokens`."""
    said = []
    if load.prompts:
        new = sum(each for each, _ in load.prompts)
        said.append(f"prefill of {len(load.prompts)} prompt{'s' if len(load.prompts) > 1 else ''}, {new:,} tokens")
    if load.contexts:
        mean = sum(load.contexts) / len(load.contexts)
        said.append(f"decode of {len(load.contexts)} sequence{'s' if len(load.contexts) > 1 else ''}, context {mean:,.0f}")
    return " and ".join(said)


def _priced(operators: Sequence[Operator], gpu: GpuSpec, predictor: Predictor, fitted: Constants, engine: str, eager: bool) -> list[Cost]:
    local = [each for each in operators if each.kind != "collective"]
    found = dict(zip(map(id, local), costs(local, gpu, predictor), strict=True))
    for each in operators:
        if each.kind == "collective":
            found[id(each)] = _collective(each, gpu, fitted, f"{engine}-eager" if eager else engine)
    return [found[id(each)] for each in operators]


def _collective(operator: Operator, gpu: GpuSpec, fitted: Constants, engine: str) -> Cost:
    library = engine if operator.op == "all_reduce" else "nccl"
    us, measured = fitted.curves.latency_us(operator.op, operator.message_bytes, operator.ranks, gpu, library)
    half = collectives.SPREAD[measured]
    moved = operator.message_bytes * (operator.ranks - 1) / operator.ranks
    bound = moved * (2 if operator.op == "all_reduce" else 1) / collectives.link_rate(gpu) * 1e6
    bound = min(bound / (2 if operator.op == "all_reduce" and gpu.fabric_bytes_per_s else 1), us)  # a switch may add up on the way
    return Cost(
        us=us, low_us=us * math.exp(-half), high_us=us * math.exp(half), bound_us=bound, binding="link", ceiling_us=us, tunable=False
    )


def _gap_us(kernels: int, busy: float, fitted: Constants, engine: str, eager: bool) -> float:
    """What the GPU waits, in microseconds: between the kernels of a graph; or for a host that launches more slowly than they end."""
    gaps = fitted.gaps[engine]
    if eager:
        return gaps.step_us + max(gaps.launch_us * kernels - busy, 0.0)
    return gaps.step_us + gaps.graph_us * kernels


def _spread(kernels: list[tuple[Operator, Cost]], gap: float) -> float:
    """Half the 80 % interval of the log of the sum: errors of one kind on one GPU go together, those of different kinds do not."""
    by_kind: dict[str, float] = defaultdict(float)
    total = gap
    for operator, cost in kernels:
        us = operator.count * cost.us
        total += us
        by_kind[operator.kind] += us * math.log(max(cost.high_us, cost.us) / min(cost.low_us, cost.us)) / 2
    by_kind["gaps"] = GAP_SPREAD * gap
    return math.sqrt(sum(each * each for each in by_kind.values())) / total


def _row(operator: Operator, cost: Cost, total: float) -> StepOperator:
    all_us = operator.count * cost.us
    library = cost.us if operator.kind in ("gemm", "attention") or operator.kind == "collective" else None
    return StepOperator(
        name=operator.name,
        kind=operator.kind,
        problem=_problem(operator),
        count=operator.count,
        cache=operator.cache if operator.kind != "collective" else "",
        us=cost.us,
        low_us=cost.low_us,
        high_us=cost.high_us,
        bound_us=cost.bound_us,
        binding=cost.binding,
        ceiling_us=cost.ceiling_us,
        library_us=library,
        tunable=cost.tunable,
        total_us=all_us,
        share=all_us / total,
        gain=operator.count * (cost.us - cost.ceiling_us) / total if cost.tunable else 0.0,
        gain_at_bound=operator.count * (cost.us - cost.bound_us) / total,
    )


def _problem(operator: Operator) -> str:
    if operator.kind == "collective":
        return f"{operator.message_bytes / 1e6:.4g} MB over {operator.ranks} GPUs"
    shown = " ".join(f"{name}={value:.6g}" for name, value in operator.sizes.items())
    return f"{shown} {operator.dtype}"


def _gap_row(gap: float, total: float, eager: bool) -> StepOperator:
    how = "host time, eager" if eager else "CUDA graph, and the host around it"
    return StepOperator(
        name="gaps",
        kind="gaps",
        problem=how,
        count=1,
        cache="",
        us=gap,
        low_us=gap * math.exp(-GAP_SPREAD),
        high_us=gap * math.exp(GAP_SPREAD),
        bound_us=0.0,
        binding="launch",
        ceiling_us=gap,
        library_us=None,
        tunable=False,
        total_us=gap,
        share=gap / total,
        gain=0.0,
        gain_at_bound=gap / total,
    )


LEAST_GAIN = 0.005
"""Of a step: less is not worth a line."""


def advice(result: StepResult) -> list[str]:
    """Which kernel first, and what the step gains: a line each, the largest gain first."""
    lines = []
    tunable = [row for row in result.operators if row.gain >= LEAST_GAIN]
    for row in sorted(tunable, key=lambda row: -row.gain)[:3]:
        lines.append(f"tune {row.name}: {row.share:.0%} of the step; at its tunable ceiling the step gains {row.gain:.1%}")
    rest = [row for row in result.operators if not row.tunable and row.kind != "gaps" and row.gain_at_bound >= 2 * LEAST_GAIN]
    for row in sorted(rest, key=lambda row: -row.gain_at_bound)[: 4 - len(lines)]:
        lines.append(
            f"replace or fuse {row.name}: {row.share:.0%} of the step; nothing to tune here, and at its bound the step would gain "
            f"{row.gain_at_bound:.1%}"
        )
    return lines
