"""What a torch profiler (Kineto) trace says of a step: kernels by kind, the operators that launched them, and the gaps between them."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Predictor
from advisor.pipelines.elementwise import OPERATORS
from advisor.result.step import MeasuredKind, Memory, StepOperator, StepResult, StepTime
from advisor.steps.collectives import load_constants
from advisor.steps.latency import Cost, costs
from advisor.steps.operators import Operator
from advisor.steps.step import advice, problem_words
from advisor.system import grouped
from advisor.system.errors import InputError, UsageError, shorten
from advisor.system.reading import read_bytes, read_start

TYPES = {"float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16", "c10::Float8_e4m3fn": "fp8"}
"""Types as traces name them."""
FACTORS = {"mm": (0, 1), "addmm": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2), "_scaled_mm": (0, 1), "linear": (0, 1)}
"""Products, and which of their arguments are multiplied."""
CAUSAL = {
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_flash_attention_for_cpu": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
}
"""Attention over [sequences, heads, tokens, size], and the argument that says whether it is causal (`native_functions.yaml`)."""
NORMS = {"native_layer_norm": "layer_norm", "_softmax": "softmax", "_log_softmax": "softmax", "rms_norm": "rms_norm"}
STREAMS = {name: name for name in OPERATORS if name != "sum"} | {"clone": "copy", "_to_copy": "copy"}
SCALAR = ("add", "sub", "mul", "div", "pow")
"""Operators that have two operands or one and a scalar."""
TRITON = "triton_"
"""How the names of Inductor's kernels begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Calls of one operator of PyTorch with the same shapes in a step: how many, microseconds of all their kernels together, the name of
    the longest kernel, and of every argument its shape, type and value as the trace has them."""

    op: str
    kernel: str
    count: int
    us: float
    dims: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    values: tuple[str, ...]


def plain(op: str) -> str:
    """The name without its library, and of what works in place as of what does not."""
    return op.rpartition("::")[2].rstrip("_")


def is_known(op: str) -> bool:
    """Whether `problem_of` knows an operator by its name."""
    return op.startswith(TRITON) or any(plain(op) in names for names in (FACTORS, CAUSAL, NORMS, STREAMS))


def is_whole(op: str) -> bool:
    """Whether other operators that run within an operator are parts of it: the bias that is copied, the transposed view."""
    return any(plain(op) in names for names in (FACTORS, CAUSAL, NORMS))


def problem_of(call: Call) -> Operator | None:
    """The problem that the kernels of a call solve; None where its name, shapes or types are not known."""
    name, dims = plain(call.op), call.dims
    first = FACTORS.get(name, (0, 0))[0]
    unshaped = len(dims) <= first or len(call.types) <= first or 0 in dims[first]
    if not is_known(call.op) or unshaped or "HtoD" in call.kernel or "DtoH" in call.kernel:  # over PCIe
        return None
    shape, dtype = dims[first] or (1,), TYPES.get(call.types[first], "")
    if not dtype:
        return None

    def of(kind: str, family: str, op: str, **sizes: float) -> Operator:
        return Operator(name=call.op, kind=kind, count=call.count, family=family, op=op, sizes=sizes, dtype=dtype)

    rows = {"B": prod(shape[:-1]), "H": shape[-1]}
    if name in FACTORS:
        other = dims[FACTORS[name][1]] if len(dims) > FACTORS[name][1] else ()
        if len(shape) < 2 or len(other) < 2:
            return None
        if "1688" in call.kernel or "tf32" in call.kernel:
            dtype = "tf32"
        n = other[-2 if name == "linear" else -1]
        if len(other) > 2:
            return of("gemm", "gemm", "gemm", M=shape[-2], N=n, K=shape[-1], B=prod(shape[:-2]))
        return of("gemm", "gemm", "gemm", M=prod(shape[:-1]), N=n, K=shape[-1])
    if name in CAUSAL:
        if len(dims) < 2 or not len(shape) == len(dims[1]) == 4:
            return None
        (batch, heads, m, size), (_, kv_heads, n, _) = shape, dims[1]
        causal_flag = call.values[CAUSAL[name]] if len(call.values) > CAUSAL[name] else str(m == n)
        sizes = {"B": batch, "H": heads, "H_kv": kv_heads, "D": size, "M": m, "N": n, "causal": int(causal_flag == "True" or m == 1)}
        return of("attention", "attention", "prefill" if m > 1 else "decode", **sizes)
    if name in NORMS:
        return of("norm", "normalization", NORMS[name], **rows)
    if call.op.startswith(TRITON):  # whatever it computes, its arguments pass once
        elements = sum(prod(dim) for dim, of_type in zip(dims, call.types, strict=False) if of_type in TYPES)
        return of("elementwise", "elementwise", "copy", B=elements / 2 / shape[-1], H=shape[-1])
    op = STREAMS[name]
    if op in SCALAR and dims[1:2] != (shape,):
        op = "addu" if op == "sub" else f"{op}u"
    return of("elementwise", "elementwise", op, **rows)


KINDS: tuple[tuple[str, str], ...] = (
    ("collective", r"nccl|all_?reduce|cross_device_reduce|all_?gather|reduce_?scatter"),
    ("moe", r"moe|experts|topk|grouped_gemm|align_block"),
    ("attention", r"flash|fmha|attention|attn|mla_|paged"),
    ("gemm", r"gemm|gemv|cutlass|cublas|nvjet|matmul|splitk|::(add|b)?mm\b|::linear|convolution"),
    ("norm", r"norm|softmax"),
    ("elementwise", r"elementwise|vectorized|act_and_mul|silu|gelu|relu|rotary|rope|cache|copy|memcpy|memset|embedding|index|"
     r"triton_(poi|red|per)|::(add|mul|cat|tanh|div|where|pow|sub|_to_copy|clone|fill_)"),
)  # fmt: skip
"""Kinds of operators by kernels' names, the first that fits: of cuBLAS, CUTLASS, FlashAttention, NCCL, the engines, Inductor and ATen."""
UNKNOWN = "unknown"
NAMED = 5
"""Unknown kernels that are listed."""
LARGEST_BYTES = 2_000_000_000
LONGEST_US = 10**17
"""Of an event and of its beginning, which is counted from 1970 on or from when the machine started: three thousand years."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """One step of a trace, microseconds: from beginning to end, while any kernel ran, by kind, and the kernels nobody knows, the longest
    first. `on_cpu`: it holds no GPU kernel, and its operators stand for them. `calls` are the operators that launched them, `gpu` is the
    device's name, where the trace says."""

    steps: int
    wall_us: float
    busy_us: float
    kinds: dict[str, float]
    unknown: tuple[tuple[str, float], ...]
    on_cpu: bool
    calls: tuple[Call, ...]
    gpu: str


def is_trace(path: str | Path) -> bool:
    """Whether a file is such a trace, by its name and its first bytes."""
    place = Path(path)
    if not place.name.endswith((".json", ".json.gz")) or not os.path.isfile(place):  # noqa: PTH113 - pathlib raises where a name is too long
        return False
    return b'"traceEvents"' in read_start(place, 1 << 16)


def read_trace(path: str | Path) -> Trace:
    """The mean step of a trace (`.json` or `.json.gz`), by its `ProfilerStep#` marks; all of it where there are none.

    Raises:
        UsageError: No such file.
        InputError: It is no such trace, or nothing ran in it.
    """
    if not Path(path).exists():
        raise UsageError(f"{path}: no such file", None, "a torch profiler trace", "check the path")
    text = read_bytes(path, str(path), "a torch profiler trace", LARGEST_BYTES, unpack=True).decode("utf-8", "replace")
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: no trace ({shorten(str(error))})", None, "the JSON that torch.profiler exports", None) from None
    events = values.get("traceEvents") if isinstance(values, dict) else values
    if not isinstance(events, list):
        raise InputError(f"{path}: no traceEvents", None, "the JSON that torch.profiler exports", None)
    spans = [
        event for event in events if isinstance(event, dict) and event.get("ph") == "X" and _number(event, "ts") and _number(event, "dur")
    ]
    odd = next((span for span in spans if not (abs(span["ts"]) <= LONGEST_US and 0 <= span["dur"] <= LONGEST_US)), None)
    if odd is not None:
        got = f"ts {odd['ts']!r}, dur {odd['dur']!r} of {shorten(str(odd.get('name')), 60)}"
        raise InputError(f"{path}: an event of no time that is one", got, f"microseconds, at most {LONGEST_US:,}", "profile again")
    marks = {str(span.get("name")): span for span in spans if str(span.get("name")).startswith("ProfilerStep#")}
    ran = [span for span in spans if str(span.get("cat")).lower() in ("kernel", "gpu_memcpy", "gpu_memset")]
    on_cpu = not ran
    if on_cpu:
        ran = _leaves([span for span in spans if str(span.get("cat")).lower() in ("cpu_op", "operator")])
    if not ran:
        raise InputError(f"{path}: no kernel and no operator ran", None, "a trace of a step", "profile with activities CPU and CUDA")
    devices = values.get("deviceProperties") if isinstance(values, dict) else None
    named = devices[0].get("name") if isinstance(devices, list) and devices and isinstance(devices[0], dict) else None
    steps = len(marks) or 1
    return _summed(ran, steps, on_cpu, _calls(ran, ran if on_cpu else spans, steps), str(named or ""))


def _owners(ran: list[dict[str, Any]], spans: list[dict[str, Any]]) -> list[dict[str, Any] | None]:
    """The operator that launched each kernel: the innermost one that is known around the launch, else the innermost one at all."""
    threads: dict[object, list[tuple[float, int, dict[str, Any]]]] = defaultdict(list)
    starts: dict[object, dict[str, Any]] = {}
    for span in spans:
        kind, arguments = str(span.get("cat")).lower(), span.get("args") or {}
        if kind in ("cpu_op", "operator"):
            threads[_thread(span)].append((span["ts"], -1, span))
            if "External id" in arguments:
                starts.setdefault(("id", arguments["External id"]), span)
        elif "correlation" in arguments and span.get("name") and kind not in ("kernel", "gpu_memcpy", "gpu_memset"):
            starts[arguments["correlation"]] = span
    for i, entry in enumerate(ran):
        arguments = entry.get("args") or {}
        start = starts.get(arguments.get("correlation")) or starts.get(("id", arguments.get("External id"))) or entry
        threads[_thread(start)].append((start["ts"], i, entry))
    owners: list[dict[str, Any] | None] = [None] * len(ran)
    for events in threads.values():
        around: list[dict[str, Any]] = []
        for ts, i, item in sorted(events, key=lambda event: (event[0], event[1] >= 0, -event[2]["dur"])):
            while around and around[-1]["ts"] + around[-1]["dur"] < ts:
                around.pop()
            if i < 0:
                around.append(item)
            elif around:
                owners[i] = next((outer for outer in reversed(around) if is_known(str(outer["name"]))), around[-1])
    return owners


def _thread(event: dict[str, Any]) -> tuple[str, str]:
    return str(event.get("pid")), str(event.get("tid"))


_Asked = tuple[str, tuple[tuple[int, ...], ...], tuple[str, ...], tuple[str, ...]]


def _calls(ran: list[dict[str, Any]], spans: list[dict[str, Any]], steps: int) -> tuple[Call, ...]:
    """The operators of one step, those that take longest first; a kernel that no operator launched stands for itself."""
    groups: dict[_Asked, list[tuple[dict[str, Any], dict[str, Any]]]] = defaultdict(list)
    for kernel, owner in zip(ran, _owners(ran, spans), strict=True):
        by = owner or kernel
        arguments = by.get("args") or {}
        dims = tuple(tuple(item) if _sizes(item) else () for item in arguments.get("Input Dims") or ())
        types, values = (tuple(map(str, arguments.get(key) or ())) for key in ("Input type", "Concrete Inputs"))
        groups[str(by["name"]), dims, types, values].append((kernel, by))
    calls = []
    for (op, dims, types, values), members in groups.items():
        longest = max((kernel for kernel, _ in members), key=lambda kernel: float(kernel["dur"]))
        count = max(round(len({id(by) for _, by in members}) / steps), 1)
        us = sum(kernel["dur"] for kernel, _ in members) / steps
        calls.append(Call(op=op, kernel=str(longest["name"]), count=count, us=us, dims=dims, types=types, values=values))
    return tuple(sorted(calls, key=lambda call: -call.us))


def _sizes(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, int) for item in value)


def _number(event: dict[str, Any], name: str) -> bool:
    return isinstance(event.get(name), int | float) and not isinstance(event[name], bool)


def _leaves(operators: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The operators within which no other of their thread runs; what runs within a product, attention or norm is part of that."""
    leaves: list[dict[str, Any]] = []
    threads = grouped((_thread(operator), operator) for operator in sorted(operators, key=lambda event: (event["ts"], -event["dur"])))
    for mine in threads.values():
        wholes = {id(entry): entry for entry in _innermost([item for item in mine if is_whole(str(item["name"]))])}
        end, outside = -float("inf"), []
        for element in mine:
            if element["ts"] >= end or id(element) in wholes:
                outside.append(element)
            if id(element) in wholes:
                end = element["ts"] + element["dur"]
        leaves += _innermost(outside)
    return leaves


def _innermost(ordered: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that end before the next begins."""
    after = [item["ts"] for item in ordered[1:]] + [float("inf")]
    return [item for item, ts in zip(ordered, after, strict=False) if ts >= item["ts"] + item["dur"]]


def _summed(ran: list[dict[str, Any]], steps: int, on_cpu: bool, calls: tuple[Call, ...], gpu: str) -> Trace:
    kinds: dict[str, float] = defaultdict(float)
    unknown: dict[str, float] = defaultdict(float)
    for entry in ran:
        kind = kind_of(str(entry.get("name")))
        kinds[kind] += entry["dur"] / steps
        if kind == UNKNOWN:
            unknown[str(entry.get("name"))] += entry["dur"] / steps
    ran.sort(key=lambda item: item["ts"])
    busy, end = 0.0, -float("inf")
    for element in ran:
        last = element["ts"] + element["dur"]
        busy += max(last - max(end, element["ts"]), 0.0)
        end = max(end, last)
    return Trace(
        steps=steps,
        wall_us=(end - ran[0]["ts"]) / steps,
        busy_us=busy / steps,
        kinds=dict(kinds),
        unknown=tuple(sorted(unknown.items(), key=lambda pair: -pair[1])),
        on_cpu=on_cpu,
        calls=calls,
        gpu=gpu,
    )


def kind_of(name: str) -> str:
    """The kind of operator a kernel's name tells of, or `UNKNOWN`."""
    return next((kind for kind, pattern in KINDS if re.search(pattern, name, re.IGNORECASE)), UNKNOWN)


def with_measured(result: StepResult, trace: Trace) -> StepResult:
    """The step beside what a trace of it measured: by kind, and what contradicts the bounds or is not known."""
    kinds = {row.kind for row in result.operators if row.kind != "gaps"} | set(trace.kinds)
    rows = []
    for kind in sorted(kinds, key=lambda item: -trace.kinds.get(item, 0.0)):
        mine = [row for row in result.operators if row.kind == kind]
        rows.append(
            MeasuredKind(
                kind=kind,
                measured_us=trace.kinds.get(kind, 0.0),
                predicted_us=sum(row.total_us for row in mine),
                bound_us=sum(row.count * row.bound_us for row in mine),
            )
        )
    gaps = next(row.total_us for row in result.operators if row.kind == "gaps")
    rows.append(MeasuredKind(kind="gaps", measured_us=trace.wall_us - trace.busy_us, predicted_us=gaps, bound_us=0.0))
    caveats = [
        f"{row.kind}: measured {row.measured_us:,.0f} µs is below the bound {row.bound_us:,.0f} µs: "
        "a fault of the model or of the measurement"
        for row in rows
        if 0 < row.measured_us < row.bound_us
    ]
    share = sum(us for _, us in trace.unknown) / trace.busy_us
    if trace.unknown:
        names = "; ".join(f"{shorten(name, 60)} {us:,.0f} µs" for name, us in trace.unknown[:NAMED])
        caveats.append(f"{100 * share:.1f} % of the measured time is spent in unknown kernels: {names}")
    if trace.on_cpu:
        caveats.append("the trace holds no GPU kernel: operators on the CPU stand beside what is predicted for the GPU")
    return replace(result, measured_us=trace.wall_us, measured=tuple(rows), caveats=(*result.caveats, *caveats))


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
    problems = [(call, problem_of(call)) for call in trace.calls]
    known = [
        (call, operator)
        for call, operator in problems
        if operator is not None and operator.dtype in (*gpu.tensor_flop_per_clock_per_sm, "fp32")
    ]
    priced = costs([operator for _, operator in known], gpu, predictor, "torch", references=False)
    rows = [_row(*item, cost, trace.wall_us) for item, cost in zip(known, priced, strict=True)]
    others = [call for call in trace.calls if all(call is not item for item, _ in known)]
    kinds: dict[str, list[float]] = {}
    for row in rows:
        sums = kinds.setdefault(row.kind, [0.0, 0.0, 0.0])
        for i, us in enumerate((row.measured_us or 0.0, row.us, row.bound_us)):
            sums[i] += row.count * us
    for call in others:
        kinds.setdefault(f"{kind_of(call.kernel)}, not predicted", [0.0, 0.0, 0.0])[0] += call.us
    measured = [MeasuredKind(kind=kind, measured_us=a, predicted_us=b, bound_us=c) for kind, (a, b, c) in kinds.items()]
    measured.sort(key=lambda item: -item.measured_us)
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
    us, low, high = (max(item + alone, cost.bound_us, LEAST_US) for item in (cost.us, cost.low_us, cost.high_us))
    mean_us = call.us / call.count
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
        measured_us=mean_us,
    )


def _caveats(trace: Trace, rows: list[StepOperator], others: list[Call]) -> list[str]:
    caveats = []
    if trace.on_cpu:
        caveats.append("the trace holds no GPU kernel: operators on the CPU stand beside what is predicted for the GPU")
    else:
        caveats += [
            f"{row.name[:60]}: measured {row.measured_us:,.1f} µs is below the bound {row.bound_us:,.1f} µs: "
            "a fault of the model or of the measurement"
            for row in rows
            if row.measured_us is not None and row.measured_us < 0.98 * row.bound_us
        ][:LISTED]
    if any(row.name.startswith(TRITON) for row in rows):
        caveats.append(f"{TRITON}…: by the bytes of their arguments; `advisor advise output_code.py::KERNEL` reads what Inductor generated")
    if not rows:
        caveats.append("the trace holds no shapes of the operators that are predicted: profile with record_shapes=True")
    if others:
        by_name: dict[str, float] = {}
        for call in others:
            by_name[call.kernel] = by_name.get(call.kernel, 0.0) + call.us
        longest = sorted(by_name.items(), key=lambda pair: -pair[1])[:LISTED]
        whole = sum(call.us for call in trace.calls)
        caveats.append(
            f"{100 * sum(by_name.values()) / whole:.1f} % of the measured time is of kernels that are not predicted, the longest first:"
        )
        caveats += [f"{shorten(name, 60)} {us:,.0f} µs, {100 * us / whole:.1f} %" for name, us in longest]
    return caveats
