"""From a kernel in source, or a record of launches, to a Result: what the compiler makes of it takes the place of the closed forms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from advisor import __version__
from advisor.advise import gpu_figures, triton_config
from advisor.compiled.analysis import KernelAnalysis
from advisor.compiled.assembly import read_facts
from advisor.compiled.launch_report import PROBLEM_NOTE, KernelTarget, Unreadable, analyse_targets, launch_report, targets_from
from advisor.compiled.pool import borrowed
from advisor.compiled.source_lines import source_texts
from advisor.diagnosis import actions
from advisor.diagnosis.compiled_rules import COMPILED_RULES, check_compiled
from advisor.errors import InputError
from advisor.fingerprint import offline
from advisor.hardware import GpuSpec, match_device_name
from advisor.schema import Latency, LaunchReport, Recommendation, Result, SourceText
from advisor.verdict import verdict

WORTH_CHANGING = 1.02
"""As for tables: a predicted speedup below the noise floor of a good measurement is not recommended."""


def advise_compiled(text: str, gpu: GpuSpec, *, cache: str, command: str, progress: Callable[[int, int], None] | None = None) -> Result:
    """Compile and count every launch that TARGET stands for, and diagnose it.

    The configurations of one kernel's `@triton.autotune` list, and recorded launches that differ in nothing else, are one space: the
    best of them is the tunable ceiling.

    Args:
        text: FILE.py::KERNEL, a file that TorchInductor generated, or a record of `advisor record`.
        gpu: GPU to compile for.
        cache: What the L2 holds at launch, cold or warm.
        command: The command line that repeats this.
        progress: Called with (done, total) launches.

    Raises:
        UsageError, InputError: It is none of these, or nothing of it can be compiled.
        MissingDependencyError: triton is not installed.
    """
    targets = targets_from(text)
    reports: list[LaunchReport] = []
    sources: dict[SourceText, None] = {}
    unreadable: list[Unreadable] = []
    with borrowed(None) as pool:
        for number, target in enumerate(targets, start=1):
            for _, found in analyse_targets([target], gpu, cache, pool):
                if isinstance(found, Unreadable):
                    unreadable.append(found)
                else:
                    reports.append(_report(target, found, gpu))
                    sources |= dict.fromkeys(source_texts(found.inspection, reports[-1].source_lines))
            if progress:
                progress(number, len(targets))
    if not reports:
        raise InputError(f"{text}: no launch could be compiled", unreadable[0].reason if unreadable else None, None,
                         "see `advisor inspect`, where types, constants and the grid can be given")  # fmt: skip
    launches = tuple(_with_ceilings(reports))
    unknowns = [PROBLEM_NOTE]
    unknowns += sorted({unknown for _, unknown in _assumptions(reports)})
    if len(launches) == len({report.kernel for report in launches}):
        unknowns.append("Only one configuration of each kernel is known, so nothing is said of what tuning could win.")
    return Result(
        tool_version=__version__, command=command, target=text, fingerprint=offline(gpu), gpu=gpu.name, gpu_figures=gpu_figures(gpu),
        model=None, verdict=verdict(launches, tuple(unknowns)), actions=actions(launches), launches=launches, table_findings=(),
        exports=(), sources=tuple(sources), warnings=tuple(f"{failed.id}: {failed.reason}" for failed in unreadable),
    )  # fmt: skip


def _report(target: KernelTarget, analysis: KernelAnalysis, gpu: GpuSpec) -> LaunchReport:
    findings = check_compiled(analysis.inspection, read_facts(analysis.inspection.compiled), gpu)
    fired = {finding.rule for finding in findings}
    passed = tuple(rule.id for rule in COMPILED_RULES if rule.id not in fired)
    elsewhere = target.device is not None and (match_device_name(target.device) or gpu).name != gpu.name
    # A time recorded on another GPU says nothing of this one.
    return launch_report(replace(target, measured_us=None) if elsewhere else target, analysis, findings, passed)


def _assumptions(reports: list[LaunchReport]) -> list[tuple[str, str]]:
    return [(r.id, f"{r.kernel}: its arguments and grid are guessed from the source (`advisor inspect` takes them).")
            for r in reports if r.configuration_source.startswith("guessed")]  # fmt: skip


def _with_ceilings(reports: list[LaunchReport]) -> list[LaunchReport]:
    """The best of the launches that differ only in their configuration is the ceiling of each, and what to change to."""
    alike: dict[tuple[object, ...], list[LaunchReport]] = defaultdict(list)
    for report in reports:
        alike[(report.kernel, tuple(sorted(report.problem.sizes.items())), report.problem.dtype)].append(report)
    out: dict[str, LaunchReport] = {}
    for group in alike.values():
        able = [report for report in group if report.predicted is not None]
        best = min(able, key=lambda report: report.predicted.us if report.predicted else 0.0, default=None)
        for report in group:
            out[report.id] = _with_ceiling(report, best, len(group)) if best is not None else report
    return [out[report.id] for report in reports]


def _with_ceiling(report: LaunchReport, best: LaunchReport, count: int) -> LaunchReport:
    if best.predicted is None or best.configuration is None:
        return report
    source = f"analytical model, best of {count} configurations" if count > 1 else "analytical model, the one configuration known"
    now = report.measured.us if report.measured else (report.predicted.us if report.predicted else None)
    ceiling = min(best.predicted.us, now) if now is not None else best.predicted.us
    speedup = now / best.predicted.us if now is not None else 1.0
    recommendation = None
    if best.id != report.id and speedup >= WORTH_CHANGING:
        recommendation = Recommendation(
            configuration=best.configuration, latency=best.predicted, speedup=speedup, p_speedup_10pct=None,
            reason=f"best predicted of the {count} configurations given", triton_config=triton_config(best.configuration),
        )  # fmt: skip
    return replace(
        report, ceiling=Latency(us=ceiling, origin="predicted", source=source), ceiling_configuration=best.configuration,
        headroom=now / ceiling - 1 if now is not None else None, recommendation=recommendation,
    )  # fmt: skip
