"""Running the rules over one launch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from advisor.diagnosis.context import LaunchContext
from advisor.diagnosis.gap import gap_parts
from advisor.diagnosis.rule import Rule, scope_of
from advisor.diagnosis.rules import RULES
from advisor.result.schema import Finding, GapPart
from advisor.system.errors import shorten

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


def diagnose(context: LaunchContext, rules: Sequence[Rule] = RULES) -> Diagnosis:
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
            findings.append(_crash(rule, context, reason))
            faults.append(f"the rule {rule.id} crashed: {reason}")
            continue
        if finding is None:
            passed.append(rule.id)
            continue
        findings.append(_bounded(finding, context, changes_type=getattr(rule, "changes_type", False)))
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


def _crash(rule: Rule, context: LaunchContext, reason: str) -> Finding:
    return Finding(
        rule=rule.id,
        severity="error",
        title=f"The rule {rule.id} crashed",
        evidence=reason,
        remedy="a fault of the advisor: please report it with this page's result.json",
        scope=scope_of(context),
    )
