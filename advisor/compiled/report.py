"""What `advisor inspect` shows, as text and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.compiled.analysis import CONSIDERABLE, PROBLEM_NOTE, KernelAnalysis
from advisor.compiled.demand.assembly import CodeFacts
from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.launches.launch import Inspection, author_file
from advisor.compiled.launches.written_values import symbol_text
from advisor.compiled.source_lines import source_text
from advisor.result.schema import Finding

BAR = 12
ESTIMATED = ("alu", "issue")
"""Pipelines whose times no bound counts (`pipelines.bound.config_bound`)."""
LEAST_ALU = 0.1
"""Share of the line with most integer work below which a line is not shown for that alone: nearly every line computes some address."""
LINE_FIELDS = ("tensor_flop", "fma_flop", "fp64_flop", "xu_op", "alu_op", "smem_bytes", "load_bytes", "store_bytes", "atomic_bytes")
ACCESS_FIELDS = (
    "kind",
    "argument",
    "element",
    "line",
    "executions",
    "issued_bytes",
    "requested_bytes",
    "extent_bytes",
    "lanes",
    "masked",
    "active_fraction",
    "contiguous",
    "in_loop",
)


def quantity(value: float) -> str:
    """A number with a decimal prefix."""
    for factor, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g} "


def as_json(inspection: Inspection, facts: CodeFacts, analysis: KernelAnalysis | None, findings: Sequence[Finding]) -> dict[str, Any]:
    """The inspection as a JSON object; amounts are of the whole launch, in FLOP, operations and bytes."""
    compiled, demand = inspection.compiled, inspection.demand
    document: dict[str, Any] = {
        "kernel": compiled.name,
        "file": str(inspection.launch.source.path),
        "target": compiled.target.name,
        "triton": compiled.triton_version,
        "signature": dict(compiled.signature),
        "constexprs": {
            k: v if isinstance(v, (int, float, str, bool, type(None))) else symbol_text(v) for k, v in compiled.constexprs.items()
        },
        "options": dict(compiled.options),
        "resources": dataclasses.asdict(compiled.resources),
        "grid": list(demand.grid),
        "demand": _totals(demand),
        "classes": [dataclasses.asdict(c) for c in demand.classes],
        "loops": [
            {**dataclasses.asdict(loop), "reasons": list(loop.reasons), "unrolled": facts.unrolled(loop.line, loop.depth)}
            for loop in demand.loops
        ],
        "accesses": [
            {
                **{name: getattr(access, name) for name in ACCESS_FIELDS},
                "bytes_per_thread": list(facts.widths.get((access.kind, access.line or 0), ()))[:16],
            }
            for access in demand.accesses
        ],
        "lines": [
            {"file": author_file(compiled, line.file), "line": line.line, **{n: getattr(line, n) for n in LINE_FIELDS}}
            for line in demand.lines
        ],
        "instructions": _instructions(facts),
        "assumptions": list(inspection.assumptions),
        "findings": [dataclasses.asdict(f) for f in findings],
    }
    return document if analysis is None else {**document, **_on_gpu(analysis)}


def _totals(demand: KernelDemand) -> dict[str, Any]:
    return {
        "programs": demand.programs,
        "exact": demand.exact,
        "tensor_flop": dict(demand.tensor_flop),
        "fma_flop": demand.fma_flop,
        "fp64_flop": demand.fp64_flop,
        "xu_op": demand.xu_op,
        "alu_op": demand.alu_op,
        "smem_bytes": demand.smem_bytes,
        "load_bytes": demand.load_bytes,
        "store_bytes": demand.store_bytes,
        "atomic_bytes": demand.atomic_bytes,
        "requested_load_bytes": demand.requested_load_bytes,
        "requested_store_bytes": demand.requested_store_bytes,
        "distinct_bytes": dict(demand.footprint_bytes),
    }


def _instructions(facts: CodeFacts) -> dict[str, Any]:
    return {
        "static": facts.instructions,
        "mix": dict(facts.mix),
        "matrix_instruction": facts.matrix_instruction,
        "async_copies": facts.async_copies,
        "loops": [
            {
                "line": loop.first_line,
                "depth": loop.depth,
                "instructions": loop.instructions,
                "mix": dict(loop.mix),
                "wide_integer": loop.wide_integer,
            }
            for loop in facts.loops
        ],
    }


def _on_gpu(analysis: KernelAnalysis) -> dict[str, Any]:
    return {
        "gpu": analysis.gpu.name,
        "occupancy": dataclasses.asdict(analysis.occupancy),
        "pipelines": [dataclasses.asdict(p) for p in analysis.pipelines],
        "bound_us": analysis.bound.us,
        "bound_note": PROBLEM_NOTE,
        "likely_bound_us": analysis.likely_bound.us,
        "config_bound_us": analysis.config_bound.us,
        "predicted_us": analysis.predicted.us if analysis.predicted else None,
        "predicted_low_us": analysis.predicted.low_us if analysis.predicted else None,
        "predicted_high_us": analysis.predicted.high_us if analysis.predicted else None,
        "binding_pipeline": analysis.binding_pipeline,
    }


def as_text(inspection: Inspection, facts: CodeFacts, analysis: KernelAnalysis | None, findings: Sequence[Finding]) -> str:
    """The inspection for a terminal."""
    compiled = inspection.compiled
    constants = " ".join(f"{k}={symbol_text(v)}" for k, v in compiled.constexprs.items())
    return "\n".join(
        [
            f"{compiled.name}  {inspection.launch.source.path}  for {compiled.target.name}, Triton {compiled.triton_version}",
            f"  {constants} num_warps={compiled.resources.num_warps} num_stages={compiled.num_stages}".rstrip(),
            *_resources(inspection, facts, analysis),
            *_amounts(inspection.demand, facts),
            *_accesses(inspection, facts),
            *(_times(analysis) if analysis is not None else ()),
            *_source_lines(inspection),
            *_findings(findings),
            *(("", "Not specified, or unknown", *(f"  {text}" for text in inspection.assumptions)) if inspection.assumptions else ()),
        ]
    )


def _resources(inspection: Inspection, facts: CodeFacts, analysis: KernelAnalysis | None) -> list[str]:
    resources = inspection.compiled.resources
    rows = [
        ("registers per thread", resources.registers),
        ("spilled bytes per thread", resources.spill_bytes),
        ("shared memory", f"{resources.shared_memory_bytes:,} bytes"),
        ("warps", resources.num_warps),
        ("matrix instruction", facts.matrix_instruction or "none"),
        ("async copies", facts.async_copies or None),
        ("instructions", facts.instructions or None),
    ]
    if facts.mix:
        rows.append(("mix", _mix(facts.mix)))
    rows += [(f"loop at line {code.first_line}", f"{code.instructions} instructions a trip: {_mix(code.mix)}") for code in facts.loops]
    if analysis is not None:
        rows.append(("CTAs per SM", f"{analysis.occupancy.ctas_per_sm} ({analysis.gpu.name})"))
    return ["", "Resources", *(f"  {name:<26}{value}" for name, value in rows if value is not None)]


def _mix(mix: Mapping[str, int]) -> str:
    """Instructions by class, the most first."""
    return ", ".join(f"{kind} {count}" for kind, count in sorted(mix.items(), key=lambda item: -item[1]))


def _amounts(demand: KernelDemand, facts: CodeFacts) -> list[str]:
    """What the launch asks for in all, in its loops, and in each class of programs."""
    many = "s" if demand.programs != 1 else ""
    out = ["", f"Demand of {demand.programs:,} program{many}{_how(demand)}, grid {'x'.join(map(str, demand.grid))}"]
    rows = [(f"tensor, {kind}", f"{quantity(flop)}FLOP") for kind, flop in demand.tensor_flop.items()]
    rows += [
        ("fma", f"{quantity(demand.fma_flop)}FLOP"),
        ("xu", f"{quantity(demand.xu_op)}op"),
        ("alu", f"{quantity(demand.alu_op)}op"),
        ("loads", f"{quantity(demand.load_bytes)}B"),
        ("stores", f"{quantity(demand.store_bytes)}B"),
    ]
    if demand.atomic_bytes:
        rows.append(("atomics", f"{quantity(demand.atomic_bytes)}B"))
    for loop in demand.loops:
        why = f", unknown: {'; '.join(loop.reasons)}" if loop.reasons else ", unrolled" * facts.unrolled(loop.line, loop.depth)
        rows.append((f"loop at line {loop.line}", f"{loop.mean_trips:.4g} trips{why}"))
    for kind in demand.classes:
        rows.append(
            (
                f"{kind.programs:,.0f} program{'s' if round(kind.programs) != 1 else ''}, {kind.label}",
                f"{quantity(kind.tensor_flop + kind.fma_flop)}FLOP, {quantity(kind.load_bytes)}B loaded, "
                f"{quantity(kind.store_bytes)}B stored, {kind.trips:.4g} trips",
            )
        )
    return out + [f"  {name:<26}{value}" for name, value in rows]


def _findings(findings: Sequence[Finding]) -> list[str]:
    out = ["", "Findings"] if findings else []
    for finding in findings:
        where = f" (line {finding.source_line})" if finding.source_line else ""
        where += f", saves about {finding.saving_us:.2f} µs ({finding.saving_origin})" if finding.saving_us is not None else ""
        out += [f"  {finding.severity}: {finding.title} [{finding.rule}]{where}", f"      {finding.evidence}", f"      -> {finding.remedy}"]
    return out


def _how(demand: KernelDemand) -> str:
    """How the demand was found, where it is not exact."""
    if demand.exact:
        return ""
    return " (sampled)" if demand.scale > 1 or demand.approximations else " (in part assumed)"


def _accesses(inspection: Inspection, facts: CodeFacts) -> list[str]:
    if not inspection.demand.accesses:
        return []
    out = [
        "",
        f"  {'line':>5} {'access':<7} {'argument':<24} {'type':<6} {'issued':>10} {'distinct':>10} {'active':>7} "
        f"{'in a row':>8} {'bytes/thread':>12}",
    ]
    for access in inspection.demand.accesses:
        widths = facts.widths.get((access.kind, access.line or 0), ())
        shown = "/".join(str(w) for w in sorted(set(widths), reverse=True)) or "-"
        row = str(access.contiguous) if access.contiguous is not None else "?"
        out.append(
            f"  {access.line or '-':>5} {access.kind:<7} {access.argument or '?':<24} {access.element:<6} "
            f"{quantity(access.issued_bytes) + 'B':>10} {quantity(access.requested_bytes) + 'B':>10} "
            f"{100 * access.active_fraction:>6.1f}% {row:>8} {shown:>12}"
        )
    return out


def _times(analysis: KernelAnalysis) -> list[str]:
    out = ["", f"Time on {analysis.gpu.name} (predicted)"]
    longest = max((p.time_us for p in analysis.pipelines if p.pipeline != "launch"), default=0.0)
    for pipeline in analysis.pipelines:
        if pipeline.demand <= 0:
            continue
        bar = "" if pipeline.pipeline == "launch" or not longest else "█" * max(1, round(BAR * pipeline.time_us / longest))
        estimated = "estimated" if pipeline.pipeline in ESTIMATED else ""
        out.append(f"  {pipeline.pipeline:<8} {pipeline.time_us:>12.3f} µs  {bar:<{BAR}} {estimated}".rstrip())
    predicted = f"{analysis.predicted.us:.2f} µs" if analysis.predicted else "cannot launch"
    out.append(
        f"  bound of this work {analysis.bound.us:.2f} µs ({analysis.binding_pipeline}), of this configuration "
        f"{analysis.config_bound.us:.2f} µs, predicted {predicted}"
    )
    out.append(f"  {PROBLEM_NOTE}")
    if any(p.time_us > analysis.config_bound.us for p in analysis.pipelines if p.pipeline in (*ESTIMATED, "l2")):
        out.append("  The bounds count neither alu and issue, which are estimates of the machine code, nor what the L2 carries again.")
    if analysis.likely_bound.us > CONSIDERABLE * analysis.bound.us:
        likely = f"{analysis.likely_bound.us:.2f} µs"
        out.append(f"  The bound counts what is certain; were all work certain that is likely, it would be {likely}.")
    return out


def _source_lines(inspection: Inspection) -> list[str]:
    demand, compiled = inspection.demand, inspection.compiled
    texts: dict[str, list[str]] = {}
    most = {n: max((getattr(line, n) for line in demand.lines), default=0.0) for n in LINE_FIELDS}
    names = [n for n in LINE_FIELDS if most[n] > 0]
    shown = {
        "tensor_flop": "tensor",
        "fma_flop": "fma",
        "fp64_flop": "fp64",
        "xu_op": "xu",
        "alu_op": "alu",
        "smem_bytes": "smem",
        "load_bytes": "loads",
        "store_bytes": "stores",
        "atomic_bytes": "atomics",
    }
    if not names:
        return []
    out = ["", "Source lines", "  " + f"{'line':>5} " + " ".join(f"{shown[n]:<8}" for n in names)]
    for line in demand.lines:
        file = author_file(compiled, line.file) or line.file
        if file not in texts:
            texts[file] = (source_text(inspection, file) or "").splitlines()
        text = texts[file]
        source = text[line.line - 1].strip() if 0 < line.line <= len(text) else f"({Path(file).name})"
        bars = " ".join(f"{_bar(getattr(line, n) / most[n]):<8}" for n in names)
        if any(getattr(line, n) >= (LEAST_ALU if n == "alu_op" else 0.005) * most[n] for n in names):
            out.append(f"  {line.line:>5} {bars} {source[:90]}")
    return out


def _bar(share: float) -> str:
    eighths = round(share * 64)
    return "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")
