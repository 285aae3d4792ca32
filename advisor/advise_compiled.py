"""From a kernel in source, or a record of launches, to a Result: what the compiler makes of it takes the place of the closed forms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from advisor import __version__
from advisor.advise import gpu_figures, triton_config
from advisor.compiled.analysis import KernelAnalysis
from advisor.compiled.assembly import read_facts
from advisor.compiled.launch_options import LaunchOptions
from advisor.compiled.launch_report import PROBLEM_NOTE, KernelTarget, Unreadable, analyse_targets, launch_report, targets_from
from advisor.compiled.source_lines import source_texts
from advisor.compiled.triton_cache import UNRECORDED, staleness
from advisor.diagnosis import actions
from advisor.diagnosis.compiled_rules import COMPILED_RULES, check_compiled
from advisor.errors import InputError
from advisor.fingerprint import offline
from advisor.hardware import GpuSpec, match_device_name
from advisor.schema import Latency, LaunchReport, Recommendation, Result, SourceText
from advisor.verdict import verdict

WORTH_CHANGING = 1.02
"""As for tables: a predicted speedup below the noise floor of a good measurement is not recommended."""


def advise_compiled(
    text: str, gpu: GpuSpec, *, cache: str, command: str, asked: LaunchOptions | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Result:  # fmt: skip
    """Compile and count every launch that TARGET stands for, and diagnose it.

    The configurations of one kernel (its `@triton.autotune` list, those given, recorded launches that differ in nothing else) are one
    space: the best of them is the tunable ceiling. Without a grid their work cannot be told to be the same, and no ceiling is named.

    Args:
        text: FILE.py::KERNEL, a file that TorchInductor generated, a record of `advisor record`, or a cache of Triton.
        gpu: GPU to compile for.
        cache: What the L2 holds at launch, cold or warm.
        command: The command line that repeats this.
        asked: What the user says of the launch.
        progress: Called with (done, total) launches.

    Raises:
        UsageError, InputError: It is none of these, or nothing of it can be compiled.
        MissingDependencyError: triton is not installed.
    """
    targets = targets_from(text, asked, gpu)
    reports: list[LaunchReport] = []
    sources: dict[SourceText, None] = {}
    unknowns: dict[str, None] = {PROBLEM_NOTE: None}
    warnings: list[str] = []
    for target, found in analyse_targets(targets, gpu, cache, progress=progress):
        if isinstance(found, Unreadable):
            warnings.append(f"{found.id}: {found.reason}")
            continue
        reports.append(_report(target, found, gpu))
        sources |= dict.fromkeys(source_texts(found.inspection, reports[-1].source_lines))
        unknowns |= dict.fromkeys(_assumptions(target, found))
        stale = staleness(target.cached, target.launch) if target.cached is not None else None
        warnings += [stale] if stale else []
    if not reports:
        raise InputError(f"{text}: no launch could be compiled", warnings[0] if warnings else None, None,
                         "see `advisor inspect`, where types, constants and the grid can be given")  # fmt: skip
    gridless = {report.id for report, target in zip(reports, _kept(targets, reports), strict=True) if target.launch.grid is None}
    launches = tuple(_with_ceilings(reports, gridless))
    if gridless:
        unknowns["Without a grid (--grid) the work of a launch is not known, so its configurations cannot be compared."] = None
    elif any(report.ceiling is None for report in launches):
        unknowns["Where only one configuration of a kernel is known, nothing is said of what tuning could win."] = None
    return Result(
        tool_version=__version__, command=command, target=text, fingerprint=offline(gpu), gpu=gpu.name, gpu_figures=gpu_figures(gpu),
        model=None, verdict=verdict(launches, tuple(unknowns)), actions=actions(launches), launches=launches, table_findings=(),
        exports=(), sources=tuple(sources), warnings=tuple(warnings),
    )  # fmt: skip


def _kept(targets: Sequence[KernelTarget], reports: Sequence[LaunchReport]) -> list[KernelTarget]:
    """The targets that have a report, in the reports' order."""
    by_id = {target.id: target for target in targets}
    return [by_id[report.id] for report in reports]


def _report(target: KernelTarget, analysis: KernelAnalysis, gpu: GpuSpec) -> LaunchReport:
    findings = check_compiled(analysis.inspection, read_facts(analysis.inspection.compiled), gpu)
    fired = {finding.rule for finding in findings}
    passed = tuple(rule.id for rule in COMPILED_RULES if rule.id not in fired)
    elsewhere = target.device is not None and (match_device_name(target.device) or gpu).name != gpu.name
    # A time recorded on another GPU says nothing of this one.
    return launch_report(replace(target, measured_us=None) if elsewhere else target, analysis, findings, passed)


MOST_ASSUMPTIONS = 12
"""Of one launch; `advisor inspect` shows all."""


def _assumptions(target: KernelTarget, analysis: KernelAnalysis) -> list[str]:
    """What is not known of a launch, or was taken from elsewhere, each a sentence with the kernel's name."""
    if target.cached is not None:
        return [UNRECORDED]
    name = analysis.inspection.compiled.name
    found = [text for text in analysis.inspection.assumptions if not text.startswith("Assumed the first configuration of @triton.autotune")]
    if not found:
        return []
    if target.launch.grid is None and not target.launch.assumed:
        return [f"{name}: its arguments and grid are guessed from the source (--arg, --constexpr, --signature and --grid say them)."]
    return [f"{name}: {text[0].lower()}{text[1:]}" for text in found[:MOST_ASSUMPTIONS]]


def _with_ceilings(reports: list[LaunchReport], gridless: Collection[str]) -> list[LaunchReport]:
    """The best of the launches that differ only in their configuration is the ceiling of each, and what to change to."""
    alike: dict[tuple[object, ...], list[LaunchReport]] = defaultdict(list)
    for report in reports:
        alike[(report.kernel, report.problem.op, tuple(sorted(report.problem.sizes.items())), report.problem.dtype)].append(report)
    out: dict[str, LaunchReport] = {}
    for group in alike.values():
        able = [report for report in group if report.predicted is not None]
        best = min(able, key=lambda report: report.predicted.us if report.predicted else 0.0, default=None)
        known = len(group) > 1 and best is not None and not any(report.id in gridless for report in group)
        for report in group:
            out[report.id] = _with_ceiling(report, best, len(group)) if known and best is not None else report
    return [out[report.id] for report in reports]


def _with_ceiling(report: LaunchReport, best: LaunchReport, count: int) -> LaunchReport:
    if best.predicted is None or best.configuration is None:
        return report
    source = f"analytical model, best of {count} configurations ({best.id})"
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
