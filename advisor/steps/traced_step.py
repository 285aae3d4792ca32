"""A step as a trace measured it: the kernels that are known beside what is predicted for them, and the others with their share."""

from __future__ import annotations

from dataclasses import replace

from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Predictor
from advisor.result.step import MeasuredKind, Memory, StepOperator, StepResult, StepTime
from advisor.steps.constants import load_constants
from advisor.steps.latency import Cost, costs
from advisor.steps.operators import Operator
from advisor.steps.step import advice, problem_words
from advisor.steps.trace import Trace, kind_of
from advisor.steps.traced_problems import TRITON, Call, problem_of
from advisor.system.errors import shorten

LISTED = 10
"""Faults and operators that are not predicted, the longest first."""
LEAST_US = 1.8
"""Of a kernel, however little it does: a tenth of the elementwise kernels in an A100 trace that HolisticTraceAnalysis publishes
(`tests/data/nccl_parser_config`) take less."""


def traced_step(trace: Trace, gpu: GpuSpec, predictor: Predictor, name: str, command: str = "") -> StepResult:
    """What the operators of a trace took, each beside its prediction and bound where it is known.

    Args:
        trace: Of a step.
        gpu: That it ran on, or for which an operator on the CPU is predicted.
        predictor: Of the operators.
        name: Of the trace, for the result.
        command: What the user typed, for the result.
    """
    found = [(call, problem_of(call)) for call in trace.calls]
    known = [
        (call, operator)
        for call, operator in found
        if operator is not None and operator.dtype in (*gpu.tensor_flop_per_clock_per_sm, "fp32")
    ]
    priced = costs([operator for _, operator in known], gpu, predictor, "torch", references=False)
    rows = [_row(*each, cost, trace.wall_us) for each, cost in zip(known, priced, strict=True)]
    others = [call for call in trace.calls if all(call is not each for each, _ in known)]
    kinds: dict[str, list[float]] = {}
    for row in rows:
        sums = kinds.setdefault(row.kind, [0.0, 0.0, 0.0])
        for i, us in enumerate((row.measured_us or 0.0, row.us, row.bound_us)):
            sums[i] += row.count * us
    for call in others:
        kinds.setdefault(f"{kind_of(call.kernel)}, not predicted", [0.0, 0.0, 0.0])[0] += call.us
    measured = [MeasuredKind(kind=kind, measured_us=a, predicted_us=b, bound_us=c) for kind, (a, b, c) in kinds.items()]
    measured.sort(key=lambda each: -each.measured_us)
    measured.append(MeasuredKind(kind="gaps", measured_us=trace.wall_us - trace.busy_us, predicted_us=0.0, bound_us=0.0))
    result = StepResult(
        model=name,
        gpu=gpu.name,
        load=f"a trace of {trace.steps} step{'s' if trace.steps > 1 else ''}",
        split="",
        engine="on the CPU" if trace.on_cpu else "",
        dtype="",
        step=StepTime(**{which: sum(row.count * getattr(row, which) for row in rows) for which in ("us", "low_us", "high_us")}),
        tokens_per_s=0.0,
        memory=Memory(weights_bytes=0.0, kv_bytes=0.0, gpu_bytes=float(gpu.dram_bytes)),
        operators=tuple(sorted(rows, key=lambda row: -row.total_us)),
        command=command,
        predictor=predictor.name,
        caveats=tuple(_caveats(trace, rows, others)),
        measured_us=trace.wall_us,
        measured=tuple(measured),
    )
    return result if trace.on_cpu else replace(result, advice=tuple(advice(result)))


def _row(call: Call, operator: Operator, cost: Cost, step_us: float) -> StepOperator:
    """The operator beside its prediction; what was learned from fp32 kernels timed alone holds their launch, too, of which a trace has
    the beginning and end on the GPU."""
    alone = load_constants().gaps["torch"].kernel_us if operator.dtype == "fp32" else 0.0
    us, low, high = (max(each + alone, cost.bound_us, LEAST_US) for each in (cost.us, cost.low_us, cost.high_us))
    each = call.us / call.count
    return StepOperator(
        name=call.kernel if call.op.startswith(TRITON) else call.op,
        kind=operator.kind,
        problem=problem_words(operator),
        count=call.count,
        cache=operator.cache,
        us=us,
        low_us=low,
        high_us=high,
        bound_us=cost.bound_us,
        binding=cost.binding,
        ceiling_us=us,
        library_us=None,
        library="",
        parts=(),
        tunable=False,
        total_us=call.us,
        share=call.us / step_us,
        gain=0.0,
        gain_at_library=0.0,
        gain_at_bound=max(call.us - call.count * cost.bound_us, 0.0) / step_us,
        measured_us=each,
    )


def _caveats(trace: Trace, rows: list[StepOperator], others: list[Call]) -> list[str]:
    said = []
    if trace.on_cpu:
        said.append("the trace holds no GPU kernel: operators on the CPU stand beside what is predicted for the GPU")
    else:
        said += [
            f"{row.name[:60]}: measured {row.measured_us:,.1f} µs is below the bound {row.bound_us:,.1f} µs: "
            "a fault of the model or of the measurement"
            for row in rows
            if row.measured_us is not None and row.measured_us < 0.98 * row.bound_us
        ][:LISTED]
    if any(row.name.startswith(TRITON) for row in rows):
        said.append(f"{TRITON}…: by the bytes of their arguments; `advisor advise output_code.py::KERNEL` reads what Inductor generated")
    if not rows:
        said.append("the trace holds no shapes of the operators that are predicted: profile with record_shapes=True")
    if others:
        by_name: dict[str, float] = {}
        for call in others:
            by_name[call.kernel] = by_name.get(call.kernel, 0.0) + call.us
        longest = sorted(by_name.items(), key=lambda pair: -pair[1])[:LISTED]
        whole = sum(call.us for call in trace.calls)
        said.append(f"{sum(by_name.values()) / whole:.1%} of the measured time is of kernels that are not predicted, the longest first:")
        said += [f"{shorten(name, 60)} {us:,.0f} µs, {us / whole:.1%}" for name, us in longest]
    return said
