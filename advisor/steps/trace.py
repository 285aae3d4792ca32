"""What a torch profiler (Kineto) trace says of a step: kernels by kind, the operators that launched them, and the gaps between them."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.result.step import MeasuredKind, StepResult
from advisor.steps.traced_problems import Call, is_known, is_whole
from advisor.system.errors import InputError, UsageError, shorten
from advisor.system.reading import read_bytes, read_start

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
    spans = [each for each in events if isinstance(each, dict) and each.get("ph") == "X" and _number(each, "ts") and _number(each, "dur")]
    odd = next((each for each in spans if not (abs(each["ts"]) <= LONGEST_US and 0 <= each["dur"] <= LONGEST_US)), None)
    if odd is not None:
        got = f"ts {odd['ts']!r}, dur {odd['dur']!r} of {shorten(str(odd.get('name')), 60)}"
        raise InputError(f"{path}: an event of no time that is one", got, f"microseconds, at most {LONGEST_US:,}", "profile again")
    marks = {str(each.get("name")): each for each in spans if str(each.get("name")).startswith("ProfilerStep#")}
    ran = [each for each in spans if str(each.get("cat")).lower() in ("kernel", "gpu_memcpy", "gpu_memset")]
    on_cpu = not ran
    if on_cpu:
        ran = _leaves([each for each in spans if str(each.get("cat")).lower() in ("cpu_op", "operator")])
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
    for each in spans:
        kind, arguments = str(each.get("cat")).lower(), each.get("args") or {}
        if kind in ("cpu_op", "operator"):
            threads[_thread(each)].append((each["ts"], -1, each))
            if "External id" in arguments:
                starts.setdefault(("id", arguments["External id"]), each)
        elif "correlation" in arguments and each.get("name") and kind not in ("kernel", "gpu_memcpy", "gpu_memset"):
            starts[arguments["correlation"]] = each
    for i, each in enumerate(ran):
        arguments = each.get("args") or {}
        start = starts.get(arguments.get("correlation")) or starts.get(("id", arguments.get("External id"))) or each
        threads[_thread(start)].append((start["ts"], i, each))
    found: list[dict[str, Any] | None] = [None] * len(ran)
    for events in threads.values():
        around: list[dict[str, Any]] = []
        for ts, i, each in sorted(events, key=lambda event: (event[0], event[1] >= 0, -event[2]["dur"])):
            while around and around[-1]["ts"] + around[-1]["dur"] < ts:
                around.pop()
            if i < 0:
                around.append(each)
            elif around:
                found[i] = next((outer for outer in reversed(around) if is_known(str(outer["name"]))), around[-1])
    return found


def _thread(event: dict[str, Any]) -> tuple[str, str]:
    return str(event.get("pid")), str(event.get("tid"))


_Asked = tuple[str, tuple[tuple[int, ...], ...], tuple[str, ...], tuple[str, ...]]


def _calls(ran: list[dict[str, Any]], spans: list[dict[str, Any]], steps: int) -> tuple[Call, ...]:
    """The operators of one step, those that take longest first; a kernel that no operator launched stands for itself."""
    groups: dict[_Asked, list[tuple[dict[str, Any], dict[str, Any]]]] = defaultdict(list)
    for kernel, owner in zip(ran, _owners(ran, spans), strict=True):
        by = owner or kernel
        said = by.get("args") or {}
        dims = tuple(tuple(each) if _sizes(each) else () for each in said.get("Input Dims") or ())
        types, values = (tuple(map(str, said.get(key) or ())) for key in ("Input type", "Concrete Inputs"))
        groups[str(by["name"]), dims, types, values].append((kernel, by))
    calls = []
    for (op, dims, types, values), members in groups.items():
        longest = max((kernel for kernel, _ in members), key=lambda kernel: float(kernel["dur"]))
        count = max(round(len({id(by) for _, by in members}) / steps), 1)
        us = sum(kernel["dur"] for kernel, _ in members) / steps
        calls.append(Call(op=op, kernel=str(longest["name"]), count=count, us=us, dims=dims, types=types, values=values))
    return tuple(sorted(calls, key=lambda call: -call.us))


def _sizes(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, int) for each in value)


def _number(event: dict[str, Any], name: str) -> bool:
    return isinstance(event.get(name), int | float) and not isinstance(event[name], bool)


def _leaves(operators: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The operators within which no other of their thread runs; what runs within a product, attention or norm is part of that."""
    found: list[dict[str, Any]] = []
    threads: dict[object, list[dict[str, Any]]] = defaultdict(list)
    for each in sorted(operators, key=lambda each: (each["ts"], -each["dur"])):
        threads[_thread(each)].append(each)
    for mine in threads.values():
        wholes = {id(each): each for each in _innermost([each for each in mine if is_whole(str(each["name"]))])}
        end, outside = -float("inf"), []
        for each in mine:
            if each["ts"] >= end or id(each) in wholes:
                outside.append(each)
            if id(each) in wholes:
                end = each["ts"] + each["dur"]
        found += _innermost(outside)
    return found


def _innermost(ordered: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those that end before the next begins."""
    after = [each["ts"] for each in ordered[1:]] + [float("inf")]
    return [each for each, ts in zip(ordered, after, strict=False) if ts >= each["ts"] + each["dur"]]


def _summed(ran: list[dict[str, Any]], steps: int, on_cpu: bool, calls: tuple[Call, ...], gpu: str) -> Trace:
    kinds: dict[str, float] = defaultdict(float)
    unknown: dict[str, float] = defaultdict(float)
    for each in ran:
        kind = kind_of(str(each.get("name")))
        kinds[kind] += each["dur"] / steps
        if kind == UNKNOWN:
            unknown[str(each.get("name"))] += each["dur"] / steps
    ran.sort(key=lambda each: each["ts"])
    busy, end = 0.0, -float("inf")
    for each in ran:
        last = each["ts"] + each["dur"]
        busy += max(last - max(end, each["ts"]), 0.0)
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
    for kind in sorted(kinds, key=lambda each: -trace.kinds.get(each, 0.0)):
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
    said = [
        f"{row.kind}: measured {row.measured_us:,.0f} µs is below the bound {row.bound_us:,.0f} µs: "
        "a fault of the model or of the measurement"
        for row in rows
        if 0 < row.measured_us < row.bound_us
    ]
    share = sum(us for _, us in trace.unknown) / trace.busy_us
    if trace.unknown:
        names = "; ".join(f"{shorten(name, 60)} {us:,.0f} µs" for name, us in trace.unknown[:NAMED])
        said.append(f"{share:.1%} of the measured time is of kernels that are not known: {names}")
    if trace.on_cpu:
        said.append("the trace holds no GPU kernel: operators on the CPU stand beside what is predicted for the GPU")
    return replace(result, measured_us=trace.wall_us, measured=tuple(rows), caveats=(*result.caveats, *said))
