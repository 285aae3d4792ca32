"""Running the rules over one launch; the waterfall, bound -> predicted -> measured, split into causes; and findings of a whole table."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from advisor.diagnosis.context import LaunchContext
from advisor.diagnosis.rule import Rule, crashed
from advisor.diagnosis.rules import RULES
from advisor.pipelines.schedule import CAUSES
from advisor.result.schema import INSTRUCTIONS, UNCERTAIN, Finding, GapPart, Severity
from advisor.system.errors import shorten
from advisor.tables.audit import CHECKS, AuditIssue
from advisor.tables.tables import is_token_count

NOTES: dict[str, str] = {
    UNCERTAIN: "Likely work that depends on data which were not specified.",
    f"{UNCERTAIN}, sampled": "Likely work of programs that were not counted: a sample was, and the bound holds for that.",
    INSTRUCTIONS: "Instructions of this code that the bound leaves out, at their peak rate: addresses, masks, conversions.",
    "padding": "Rows and columns of tiles without data.",
    "tail-wave": "SMs idle while the last CTAs finish, or get no CTA.",
    "occupancy": "Too few CTAs are resident per SM to hide loads.",
    "latency": "Warps wait for loads, or for each other at a reduction: too little else is in flight meanwhile.",
    "traffic": "Bytes beyond the bound: data read again, unused parts of sectors, and outputs written back to DRAM.",
    "traffic, warm L2": "Bytes beyond the bound: what the L2 would keep between launches, data read again, unused parts of sectors, "
    "and outputs written back.",
    "launch": "Launch overhead: CTAs start, and the pipeline fills.",
    "power": "The board's power limit lowers the clock.",
    "efficiency": "Pipelines sustain less than their peak.",
}


SAMPLED = NOTES[f"{UNCERTAIN}, sampled"]


def gap_note(cause: str, cache: str) -> str:
    """What a part of the gap is, where the L2 is warm or cold, a sentence; empty of a cause that says it itself."""
    return NOTES.get(f"{cause}, {cache} L2", NOTES.get(cause, ""))


def gap_parts(context: LaunchContext) -> tuple[GapPart, ...]:
    """Steps from the bound to the predicted and, where there is one, the measured latency.

    The analytical model says how the gap divides; its parts are scaled so that they add up to predicted - bound. A prediction
    below the bound has nothing to divide: that difference goes to `unexplained`, the only part that may be negative.

    Returns:
        Parts in the order of `schema.GAP_CAUSES` that add up to measured - bound, or to predicted - bound without a measurement;
        nothing where neither is known.
    """
    bound, measured, origin, cache = context.bound_us, context.measured_us, context.measured_origin, context.problem.cache
    if not context.runs or context.demand is None:
        if measured is None:
            return ()
        return (GapPart(cause="unexplained", us=measured - bound, origin=origin, note="it has no prediction"),)
    total = context.current_us - bound
    if total < 0:
        if measured is None:
            note = "the prediction is below the bound: a fault of the model"
            return (*_split({}, 0.0, cache), GapPart(cause="unexplained", us=total, origin="predicted", note=note))
        rest = GapPart(cause="unexplained", us=measured - bound, origin=origin, note=f"{origin} against the bound")
        return (*_split({}, 0.0, cache), rest)
    parts = _split(context.divided, total, cache)
    if measured is None:
        return parts
    rest_us = measured - bound - math.fsum(part.us for part in parts)
    note = f"{origin} {'slower' if rest_us >= 0 else 'faster'} than predicted"
    return (*parts, GapPart(cause="unexplained", us=rest_us, origin=origin, note=note))


def _split(weights: dict[str, float], total: float, cache: str) -> tuple[GapPart, ...]:
    """`total` divided in proportion to `weights`; all of it is `efficiency` where they say nothing."""
    everything = math.fsum(weights.values())
    parts = {cause: total * weights.get(cause, 0.0) / everything if everything > 0 else 0.0 for cause in CAUSES}
    parts["efficiency"] = max(total - math.fsum(parts.values()), 0.0)
    return tuple(GapPart(cause=cause, us=us, origin="predicted", note=gap_note(cause, cache)) for cause, us in parts.items())


_SEVERITIES = ("error", "warning", "advice", "info")


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The outcome of the rules for one launch.

    Attributes:
        findings: Errors first, then by saving, then by severity.
        passed: Ids of the rules that applied and found nothing.
        gap: Where the time goes; see `gap_parts`.
        faults: What must not be: figures below the bound, rules that crashed.
    """

    findings: tuple[Finding, ...]
    passed: tuple[str, ...]
    gap: tuple[GapPart, ...]
    faults: tuple[str, ...]


UNDIAGNOSED = Diagnosis(findings=(), passed=(), gap=(), faults=())
"""Of a launch that nobody asked the causes of."""


def diagnose(context: LaunchContext, rules: Sequence[Rule[LaunchContext]] = RULES) -> Diagnosis:
    """Try every rule that applies to the launch, and split its gap.

    A rule that crashes becomes an error finding that names it, and the run goes on.
    """
    findings: list[Finding] = []
    passed: list[str] = []
    faults: list[str] = []
    for rule in rules:
        if not all(context.has(need) for need in rule.needs):
            continue
        try:
            finding = rule.check(context)
        except Exception as error:  # the report must not be lost to one rule
            reason = shorten(f"{type(error).__name__}: {error}")
            findings.append(crashed(rule, reason, context.place(None, None)[0]))
            faults.append(f"the rule {rule.id} crashed: {reason}")
            continue
        if finding is None:
            passed.append(rule.id)
            continue
        findings.append(_bounded(finding, context, changes_type=rule.changes_type))
        if rule.id == "below-bound":
            faults.append(f"{finding.title}: model or measurement fault")
    predicted = context.predicted_us
    if predicted is not None and predicted < context.bound_us:
        faults.append(f"predicted {predicted:.2f} µs is below the bound {context.bound_us:.2f} µs: model fault")
    return Diagnosis(findings=tuple(sorted(findings, key=order)), passed=tuple(passed), gap=gap_parts(context), faults=tuple(faults))


def order(finding: Finding) -> tuple[bool, float, int]:
    """Sort key: errors first, then by saving (unknown ones last), then by severity."""
    saving = finding.saving_us if finding.saving_us is not None else 0.0
    return finding.severity != "error", -saving, _SEVERITIES.index(finding.severity)


def _bounded(finding: Finding, context: LaunchContext, *, changes_type: bool) -> Finding:
    """No rule may promise more than there is above the bound: the launch's own, or, of a rule that `changes_type`, another type's."""
    if finding.saving_us is None:
        return finding
    if not math.isfinite(finding.saving_us) or context.predicted_us is None:
        return replace(finding, saving_us=None, net_saving_us=None)
    saving = min(finding.saving_us, context.now_us if changes_type else context.available_us)
    net = finding.net_saving_us - (finding.saving_us - saving) if finding.net_saving_us is not None else None
    return replace(finding, saving_us=saving, net_saving_us=net)


REMEDIES: dict[str, str] = {
    "unreadable": "restore the file or tune it again",
    "bad-entry": "correct the entry or tune it again",
    "odd-key": "correct the entry or remove it",
    "not-ours": "nothing: the advisor has no model of that kernel",
    "unreachable-name": "rename the file to the name that the serving stack loads, or remove it",
    "device-alias": "ship a copy under every name that drivers report",
    "duplicate-key": "remove all duplicates",
    "unknown-gpu": "describe it in a TOML file (ceilings/README.md), or correct the name",
    "unknown-dtype": "correct the name, or specify --dtype",
    "refused-dtype": "serve bf16 there, or fp8 weights through a kernel that unpacks them (Marlin)",
    "does-not-fit": "fewer num_stages or smaller blocks",
    "num-warps": "use 4 or 8 warps",
    "num-ctas": "remove num_ctas, or use 2, 4 or 8 where the GPU has clusters",
    "shallow-dot": "use the next larger BLOCK_SIZE_K, or tune it again",
    "clamped-block-k": "write the value that the launcher uses, and tune the others again",
    "raised-block-k": "write the value that the launcher uses, and tune the others again",
    "wrong-scales": "set BLOCK_SIZE_K to the quantization block or a divisor of it",
    "unknown-option": "remove the option, or tune on this GPU",
    "split-k": "remove SPLIT_K, or set it to 1 where the kernel has it",
    "hole": "add entries between the two keys",
    "starts-late": "add entries for fewer tokens, where decoding runs",
    "stops-early": "add entries for more tokens, where prefill runs",
    "copied": "tune for this GPU or shape, unless the copy is intended",
}
"""What to do about each check of the audit."""

SAID_BY_RULES = frozenset({"clamped-block-k", "does-not-fit", "num-warps", "shallow-dot"})
"""Checks that a rule repeats, with a saving or a remedy, for every launch that is diagnosed."""

_SHOWN = 8


def table_findings(issues: Iterable[AuditIssue], diagnosed: Collection[int] = ()) -> tuple[Finding, ...]:
    """One finding per check of the audit and message kind, naming the entries it concerns.

    Args:
        issues: Of one table.
        diagnosed: Keys whose entries were diagnosed as launches: what their rules say is not said again.

    Returns:
        Errors first; none has a saving, because a table alone says nothing of how often a size is served.
    """
    by_check: dict[str, list[AuditIssue]] = {}
    for issue in issues:
        covered = issue.key is not None and is_token_count(issue.key) and int(issue.key) in diagnosed
        if not (issue.check in SAID_BY_RULES and covered):
            by_check.setdefault(issue.check, []).append(issue)
    return tuple(sorted((_finding(check, group) for check, group in by_check.items()), key=order))


def _finding(check: str, group: list[AuditIssue]) -> Finding:
    severities: tuple[Severity, ...] = ("error", "warning", "advice", "info")
    severity = min((issue.severity for issue in group), key=severities.index)
    keys = [issue.key for issue in group if issue.key is not None]
    messages = list(dict.fromkeys(issue.message for issue in group))
    evidence = "; ".join(messages[:2]) + (f"; and {len(messages) - 2} more" if len(messages) > 2 else "")
    scope = "table"
    if len(keys) == 1:
        scope = f"entry M={keys[0]}" if keys[0].isdecimal() else f"entry {keys[0]}"
    elif keys:
        scope = "entries " + ", ".join(keys[:_SHOWN]) + (f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else "")
        evidence = f"{scope}: {evidence}"
    title = CHECKS.get(check, check)
    return Finding(
        rule=check,
        severity=severity,
        title=title[:1].upper() + title[1:],
        evidence=evidence,
        remedy=REMEDIES.get(check, "see the message"),
        scope=scope,
    )
