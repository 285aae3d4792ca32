"""What `advisor inspect` shows, as text and as JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from advisor.compiled.analysis import CONSIDERABLE, PROBLEM_NOTE, KernelAnalysis
from advisor.compiled.assembly import CodeFacts
from advisor.compiled.counts import KernelDemand
from advisor.compiled.launch import Inspection, author_file
from advisor.compiled.source_lines import source_text
from advisor.compiled.target import symbol_text
from advisor.schema import Finding

BAR = 12
LINE_FIELDS = ("tensor_flop", "fma_flop", "fp64_flop", "xu_op", "alu_op", "smem_bytes", "load_bytes", "store_bytes", "atomic_bytes")


def quantity(value: float) -> str:
    """A number with a decimal prefix."""
    for factor, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.3g} "


def as_json(
    inspection: Inspection, facts: CodeFacts, analysis: KernelAnalysis | None, findings: Sequence[Finding]
) -> dict[str, Any]:
    """The inspection as a JSON object; amounts are of the whole launch, in FLOP, operations and bytes."""
    compiled, demand = inspection.compiled, inspection.demand
    resources = dataclasses.asdict(compiled.resources)
    found: dict[str, Any] = {
        "kernel": compiled.name,
        "file": str(inspection.launch.source.path),
        "target": compiled.target.name,
        "triton": compiled.triton_version,
        "signature": dict(compiled.signature),
        "constexprs": {k: v if isinstance(v, (int, float, str, bool, type(None))) else symbol_text(v)
                       for k, v in compiled.constexprs.items()},
        "options": dict(compiled.options),
        "resources": resources,
        "grid": list(demand.grid),
        "demand": {
            "programs": demand.programs, "exact": demand.exact, "tensor_flop": dict(demand.tensor_flop),
            "fma_flop": demand.fma_flop, "fp64_flop": demand.fp64_flop, "xu_op": demand.xu_op, "alu_op": demand.alu_op,
            "smem_bytes": demand.smem_bytes, "load_bytes": demand.load_bytes, "store_bytes": demand.store_bytes,
            "atomic_bytes": demand.atomic_bytes, "requested_load_bytes": demand.requested_load_bytes,
            "requested_store_bytes": demand.requested_store_bytes, "distinct_bytes": dict(demand.footprint_bytes),
        },
        "classes": [dataclasses.asdict(c) for c in demand.classes],
        "loops": [{**dataclasses.asdict(loop), "reasons": list(loop.reasons)} for loop in demand.loops],
        "accesses": [
            {k: getattr(a, k) for k in ("kind", "argument", "element", "line", "executions", "issued_bytes", "requested_bytes",
                                        "extent_bytes", "lanes", "masked", "active_fraction", "contiguous", "in_loop")}
            | {"bytes_per_thread": list(facts.widths.get((a.kind, a.line or 0), ()))[:16]}
            for a in demand.accesses
        ],
        "lines": [
            {"file": author_file(compiled, line.file), "line": line.line, **{n: getattr(line, n) for n in LINE_FIELDS}}
            for line in demand.lines
        ],
        "instructions": {
            "static": facts.instructions, "mix": dict(facts.mix), "matrix_instruction": facts.matrix_instruction,
            "async_copies": facts.async_copies,
            "loops": [{"line": loop.first_line, "depth": loop.depth, "instructions": loop.instructions, "mix": dict(loop.mix),
                       "wide_integer": loop.wide_integer} for loop in facts.loops],
        },
        "assumptions": list(inspection.assumptions),
        "findings": [dataclasses.asdict(f) for f in findings],
    }
    if analysis is not None:
        found["gpu"] = analysis.gpu.name
        found["occupancy"] = dataclasses.asdict(analysis.occupancy)
        found["pipelines"] = [dataclasses.asdict(p) for p in analysis.pipelines]
        found["bound_us"] = analysis.bound.us
        found["bound_note"] = PROBLEM_NOTE
        found["likely_bound_us"] = analysis.likely_bound.us
        found["config_bound_us"] = analysis.config_bound.us
        found["predicted_us"] = analysis.predicted.us if analysis.predicted else None
        found["binding_pipeline"] = analysis.binding_pipeline
    return found


def as_text(
    inspection: Inspection, facts: CodeFacts, analysis: KernelAnalysis | None, findings: Sequence[Finding]
) -> str:
    """The inspection for a terminal."""
    compiled, demand, resources = inspection.compiled, inspection.demand, inspection.compiled.resources
    out = [f"{compiled.name}  {inspection.launch.source.path}  for {compiled.target.name}, Triton {compiled.triton_version}"]
    constants = " ".join(f"{k}={symbol_text(v)}" for k, v in compiled.constexprs.items())
    out.append(f"  {constants} num_warps={resources.num_warps} num_stages={compiled.num_stages}".rstrip())
    out += ["", "Resources"]
    rows = [("registers per thread", resources.registers), ("spilled bytes per thread", resources.spill_bytes),
            ("shared memory", f"{resources.shared_memory_bytes:,} bytes"), ("warps", resources.num_warps),
            ("matrix instruction", facts.matrix_instruction or "none"), ("async copies", facts.async_copies or None),
            ("instructions", facts.instructions or None)]  # fmt: skip
    if facts.mix:
        rows.append(("mix", ", ".join(f"{k} {v}" for k, v in sorted(facts.mix.items(), key=lambda i: -i[1]))))
    for code in facts.loops:
        mix = ", ".join(f"{k} {v}" for k, v in sorted(code.mix.items(), key=lambda i: -i[1]))
        rows.append((f"loop at line {code.first_line}", f"{code.instructions} instructions a trip: {mix}"))
    if analysis is not None:
        occupancy = analysis.occupancy
        rows.append(("CTAs per SM", f"{occupancy.resident_ctas_per_sm}, limited by {occupancy.limiter} ({analysis.gpu.name})"))
    out += [f"  {name:<26}{value}" for name, value in rows if value is not None]
    out += ["", f"Demand of {demand.programs:,} program{'s' if demand.programs != 1 else ''}"
                f"{_how(demand)}, grid {'x'.join(map(str, demand.grid))}"]  # fmt: skip
    amounts = [(f"tensor, {kind}", f"{quantity(flop)}FLOP") for kind, flop in demand.tensor_flop.items()]
    amounts += [("fma", f"{quantity(demand.fma_flop)}FLOP"), ("xu", f"{quantity(demand.xu_op)}op"),
                ("alu", f"{quantity(demand.alu_op)}op"), ("loads", f"{quantity(demand.load_bytes)}B"),
                ("stores", f"{quantity(demand.store_bytes)}B")]  # fmt: skip
    if demand.atomic_bytes:
        amounts.append(("atomics", f"{quantity(demand.atomic_bytes)}B"))
    out += [f"  {name:<26}{value}" for name, value in amounts]
    for loop in demand.loops:
        why = f", not known: {'; '.join(loop.reasons)}" if loop.reasons else ""
        out.append(f"  {'loop at line ' + str(loop.line):<26}{loop.mean_trips:.4g} trips{why}")
    for kind in demand.classes:
        out.append(f"  {f'{kind.programs:,.0f} programs, {kind.label}':<26}{quantity(kind.tensor_flop + kind.fma_flop)}FLOP, "
                   f"{quantity(kind.load_bytes)}B loaded, {quantity(kind.store_bytes)}B stored, {kind.trips:.4g} trips")  # fmt: skip
    out += _accesses(inspection, facts)
    if analysis is not None:
        out += _times(analysis)
    out += _source_lines(inspection)
    if findings:
        out += ["", "Findings"]
        for finding in findings:
            where = f" (line {finding.source_line})" if finding.source_line else ""
            where += f", saves about {finding.saving_us:.2f} µs ({finding.saving_origin})" if finding.saving_us is not None else ""
            out += [f"  {finding.severity}: {finding.title} [{finding.rule}]{where}", f"      {finding.evidence}",
                    f"      -> {finding.remedy}"]  # fmt: skip
    if inspection.assumptions:
        out += ["", "Not given, or not known", *(f"  {text}" for text in inspection.assumptions)]
    return "\n".join(out)


def _how(demand: KernelDemand) -> str:
    """How the demand was found, where it is not exact."""
    if demand.exact:
        return ""
    return " (sampled)" if demand.scale > 1 or demand.approximations else " (in part assumed)"


def _accesses(inspection: Inspection, facts: CodeFacts) -> list[str]:
    if not inspection.demand.accesses:
        return []
    out = ["", f"  {'line':>5} {'access':<7} {'argument':<24} {'type':<6} {'issued':>10} {'distinct':>10} {'active':>7} "
               f"{'in a row':>8} {'bytes/thread':>12}"]  # fmt: skip
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
        out.append(f"  {pipeline.pipeline:<8} {pipeline.time_us:>12.3f} µs  {bar}")
    predicted = f"{analysis.predicted.us:.2f} µs" if analysis.predicted else "cannot launch"
    out.append(f"  bound of this work {analysis.bound.us:.2f} µs ({analysis.binding_pipeline}), of this configuration "
               f"{analysis.config_bound.us:.2f} µs, predicted {predicted}")  # fmt: skip
    out.append(f"  {PROBLEM_NOTE}")
    if analysis.likely_bound.us > CONSIDERABLE * analysis.bound.us:
        likely = f"{analysis.likely_bound.us:.2f} µs"
        out.append(f"  The bound counts what is certain; were all work certain that is likely, it would be {likely}.")
    return out


def _source_lines(inspection: Inspection) -> list[str]:
    demand, compiled = inspection.demand, inspection.compiled
    texts: dict[str, list[str]] = {}
    most = {n: max((getattr(line, n) for line in demand.lines), default=0.0) for n in LINE_FIELDS}
    names = [n for n in LINE_FIELDS if most[n] > 0]
    shown = {"tensor_flop": "tensor", "fma_flop": "fma", "fp64_flop": "fp64", "xu_op": "xu", "alu_op": "alu", "smem_bytes": "smem",
             "load_bytes": "loads", "store_bytes": "stores", "atomic_bytes": "atomics"}  # fmt: skip
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
        if any(getattr(line, n) >= 0.005 * most[n] for n in names if n != "alu_op" or len(names) == 1):
            out.append(f"  {line.line:>5} {bars} {source[:90]}")
    return out


def _bar(share: float) -> str:
    eighths = round(share * 64)
    return "█" * (eighths // 8) + (" ▏▎▍▌▋▊▉"[eighths % 8] if eighths % 8 else "")
