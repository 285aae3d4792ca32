"""Static evidence: two launch reports of one problem against each other, without a GPU."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from advisor.advising.exports import triton_config
from advisor.rendering.comparison_words import doubt_of, share_of
from advisor.rendering.figures import UTILISED, microseconds, percent, share_text, unit_peak
from advisor.rendering.views import cause_name
from advisor.result.comparison_schema import (
    BASE_IS_FASTER,
    PREDICTED_TAU,
    Resources,
    StaticRow,
    StaticSide,
    StaticVerdict,
)
from advisor.result.schema import UNCERTAIN, Finding, Latency, LaunchReport, Recommendation
from advisor.system.resources import phrase
from advisor.tables.launchability import refused_warps
from advisor.tables.tables import entry_of

PAIRS = ((2.0, 99), (1.5, 95), (1.4, 88), (1.3, 87), (1.25, 84), (1.2, 76), (1.1, 75), (1.05, 72))
"""From how many times as long on, and of a hundred pairs of configurations of one problem so far apart as the analytical model has it how
many were measured to differ that way, by 2 % or more: 25,497 pairs of our own launches on an H100,
`python tests/bench/pairs_of_configurations.py` (its first `all`)."""
NEAR_PAIRS = 40
"""Of a hundred pairs that are predicted less than `PREDICTED_TAU` apart, how many were measured to be: 15,200 pairs, by the same script."""
AS_MUCH = 0.02
"""Of what a unit does: by how much it may differ between two sides that ask as much of it."""


Group = Sequence[LaunchReport]
"""The launches that share one configuration: their times add up."""


def latency_sum(latencies: Sequence[Latency | None]) -> Latency | None:
    """The sum of latencies, intervals added end to end (errors of one layer's launches go together); None where one is None."""
    known = [latency for latency in latencies if latency is not None]
    if not known or len(known) < len(latencies):
        return None
    if len(known) == 1:
        return known[0]
    intervals = [(item.low_us, item.high_us) for item in known]
    whole = all(low is not None and high is not None for low, high in intervals)
    sources = list(dict.fromkeys(item.source for item in known))
    return Latency(
        us=sum(item.us for item in known),
        origin=known[0].origin,
        source=", ".join(sources),
        low_us=sum(low or 0.0 for low, _ in intervals) if whole else None,
        high_us=sum(high or 0.0 for _, high in intervals) if whole else None,
        coverage=known[0].coverage if whole else None,
    )


def side_of(group: Group) -> StaticSide:
    """One side of a row."""
    first = group[0]
    shares = {first.peak_pipeline: first.share_of_peak}
    if first.config_binding_pipeline == "launch" and first.predicted is not None:
        shares = {part.pipeline: part.time_us / first.predicted.us for part in first.pipelines if part.pipeline == "launch"}
    ((nearest, share),) = shares.items() if len(group) == 1 else [(None, None)]
    return StaticSide(
        configuration=first.configuration,
        source=first.configuration_source,
        predicted=latency_sum([report.predicted for report in group]),
        resources=estimated_resources(first),
        peak_pipeline=nearest,
        share_of_peak=share,
        trips_in_turn=first.trips_in_turn if len(group) == 1 else None,
    )


def estimated_resources(report: LaunchReport) -> Resources | None:
    """What the model says one CTA holds."""
    occupancy = report.occupancy
    if occupancy is None:
        return None
    return Resources(
        origin=occupancy.registers_origin,
        registers_per_thread=occupancy.registers_per_thread,
        spill_bytes=occupancy.spill_bytes,
        shared_memory_bytes=occupancy.shared_memory_bytes,
        resident_ctas_per_sm=occupancy.resident_ctas_per_sm,
        resident_warps_per_sm=occupancy.resident_ctas_per_sm * report.configuration.num_warps if report.configuration else None,
        limiter=occupancy.limiter,
    )


def static_row(
    identifier: str,
    label: str,
    gpu: str,
    base: Group | None,
    head: Group | None,
    *,
    default: StaticSide | None = None,
    removed: bool = False,
    failure: str = "",
    compiled: bool = False,
) -> StaticRow:
    """One row from the reports of both sides; at least one side has some.

    Args:
        identifier: Stable within the subject.
        label: How surfaces call the row.
        gpu: Short name of the GPU.
        base: Reports of the old version, None where it has no such row.
        head: Reports of the new version.
        default: What runs where there is no table at all.
        removed: Whether the head has no table at all, so that the default runs.
        failure: Why what the head launches is certain to fail, whatever is predicted.
        compiled: Whether both were compiled, so that who asks knows whether they are the same code.
    """
    shown = head or base
    assert shown
    before = side_of(base) if base else None
    after = side_of(head) if head else default if removed else None
    against = before or default
    verdict, reason, change = judge(against, after, in_base=before is not None, failure=failure or _refusal(head or ()), compiled=compiled)
    if verdict == "within-doubt" and base and head and change is not None:
        why = largest_step((base, head), change) if abs(change) >= PREDICTED_TAU else both_near_peak(*base, *head)
        reason = "; ".join(filter(None, (reason, why)))
    ceilings = [latency_sum([report.ceiling for report in group]) for group in (base, head) if group]
    known = [ceiling for ceiling in ceilings if ceiling is not None]
    old, new = _findings(base), _findings(head)
    return StaticRow(
        id=identifier,
        label=label,
        kernel=shown[0].kernel,
        gpu=gpu,
        problems=tuple(report.problem for report in shown),
        base=before,
        head=after,
        default=default,
        compared_with="base" if before is not None else "default" if default is not None else "nothing",
        bound=latency_sum([report.bound for report in shown]),
        ceiling=min(known, key=lambda item: item.us) if known else None,
        change=change,
        verdict=verdict,
        reason=reason,
        changed=before is None or after is None or before.configuration != after.configuration,
        # What cannot launch has hardly a finding besides: next to it the other side's are neither new nor cured.
        new_findings=tuple(new[key] for key in new if key not in old) if before and before.predicted else (),
        cured_findings=tuple(old[key] for key in old if key not in new) if head and after and after.predicted else (),
        advice=_advice(head, base) if head else None,
        bound_of_certain=any(part.cause == UNCERTAIN for report in shown for part in report.gap),
    )


NO_CAUSES = ("efficiency", "unexplained")
"""Parts of a prediction that are what remains: that a side is slower by them says no more than that it is slower."""


UNDONE = 2.0
"""How many times as much as the whole a part of it changes of which other parts undo most."""


def largest_step(groups: tuple[Group, Group], change: float) -> str:
    """The part of the prediction that changes most between two sides, as the whole does: `most of it: exposed latency 12.1 → 9.04 µs`; "":
    that is the rest, which no cause explains, or another part undoes it."""
    steps: dict[str, list[float]] = {"bound": [sum(report.bound.us for report in group) for group in groups]}
    for side, group in enumerate(groups):
        for part in (part for report in group for part in report.gap):
            steps.setdefault(part.cause, [0.0, 0.0])[side] += part.us
    cause, (before, after) = max(steps.items(), key=lambda step: change * (step[1][1] - step[1][0]))
    whole_us = change * sum(report.predicted.us for report in groups[0] if report.predicted is not None)
    if cause in NO_CAUSES or abs(after - before) > UNDONE * abs(whole_us):
        return ""
    return phrase("answer.step", cause=cause_name(cause).lower(), before=microseconds(before), after=microseconds(after))


def both_near_peak(*reports: LaunchReport) -> str:
    """Why two sides take as long: `both at 94 % of DRAM's peak`, and of two launches that no difference counts where they ask as much of
    it; empty where they drive no one pipeline near its peak."""
    share = min(report.share_of_peak or 0.0 for report in reports)
    pipelines = {report.peak_pipeline for report in reports}
    if len(pipelines) > 1 or share < UTILISED:
        return ""
    unit = pipelines.pop()
    amounts = [part.demand for report in reports for part in report.pipelines if part.pipeline == unit]
    alike = len(reports) == len(amounts) == 2 and abs(amounts[1] - amounts[0]) <= AS_MUCH * max(amounts)
    kind = (f"tie_{unit}" if unit in ("dram", "l2") else "tie_computing") if alike else "tie"
    return phrase(f"answer.{kind}", share=share_text(share), unit=unit_peak(unit))


def judge(
    against: StaticSide | None, head: StaticSide | None, *, in_base: bool, failure: str = "", compiled: bool = False
) -> tuple[StaticVerdict, str, float | None]:
    """The one decision on static evidence: verdict, reason in words, relative change of the prediction.

    Args:
        against: What the head is compared with: the base, or what runs without it.
        head: The new version.
        in_base: Whether the base has the row.
        failure: Why what the head launches is certain to fail.
        compiled: As of `static_row`.
    """
    if head is None and not failure:
        return "missing", "only in base", None
    if head is None or head.predicted is None:
        if in_base and against is not None and against.predicted is None:
            return "never-launches", "the configuration can launch on neither side", None
        return ("failed", failure, None) if head is None else ("cannot-launch", failure or _why_not(head), None)
    if against is None:
        return "new", "only in head", None
    if against.predicted is None:
        return "launches-again", "the configuration it replaces cannot launch", None
    change = head.predicted.us / against.predicted.us - 1
    if not math.isfinite(change):
        return "not comparable", "a prediction is not a number", None
    doubt = doubt_of(against.predicted, head.predicted)
    # Of two launches that are not the same nobody knows that nothing changed, where no such prediction could tell.
    least = math.log1p(PREDICTED_TAU) if compiled or head.configuration == against.configuration or not change else 0.0
    if least <= abs(math.log1p(change)) < doubt and doubt >= PREDICTED_TAU:
        return "within-doubt", f"±{100 * share_of(doubt, change):.0f} % is what such a prediction can tell", change
    if not 1 / (1 + PREDICTED_TAU) - 1 < change < PREDICTED_TAU:
        verdict: StaticVerdict = "predicted-regressed" if change > 0 else "predicted-improved"
        return verdict, f"the predictions differ by {100 * PREDICTED_TAU:.0f} % or more", change
    return "predicted-unchanged", f"the predictions differ by less than {100 * PREDICTED_TAU:.0f} %", change


def pairs_that_went(change: float | None) -> str:
    """How often of two measured configurations of one kernel that are predicted so far apart the faster was the faster, a sentence; "":
    they are too near each other."""
    ratio = max(1 + (change or 0.0), 1 / (1 + (change or 0.0)))
    went = next((count for least, count in PAIRS if ratio >= least), None)
    return phrase("answer.pairs", count=went) if went is not None else ""


def pairs_that_stayed() -> str:
    """How often of two configurations that are predicted less than `PREDICTED_TAU` apart the times were measured to be, a sentence."""
    return phrase("answer.near", count=100 - NEAR_PAIRS, least=percent(PREDICTED_TAU))


def _refusal(group: Group) -> str:
    """Why a launch of the group raises an error although a CTA fits; empty where it does not."""
    able = [report for report in group if report.predicted is None and report.occupancy and report.occupancy.resident_ctas_per_sm]
    return next((finding.evidence for report in able for finding in report.findings if finding.rule == "cannot-launch"), "")


def _why_not(side: StaticSide) -> str:
    odd = refused_warps(side.configuration.num_warps) if side.configuration is not None else None
    if odd is not None:
        return odd
    held = side.resources
    if held is None or held.limiter is None:
        return "no CTA fits an SM"
    detail = f"{(held.shared_memory_bytes or 0) / 1024:.0f} KiB of shared memory, {held.registers_per_thread} registers per thread"
    return f"no CTA fits an SM ({held.limiter}: {detail})"


def _findings(group: Group | None) -> dict[str, Finding]:
    """Findings by rule, the one that would save most of each rule; of several launches with the one it is about, whose times it gives."""
    by_rule: dict[str, Finding] = {}
    for report in group or ():
        for finding in report.findings:
            if len(group or ()) > 1:
                finding = replace(finding, evidence=f"{report.problem.op}: {finding.evidence}")
            known = by_rule.get(finding.rule)
            if known is None or (finding.saving_us or 0.0) > (known.saving_us or 0.0):
                by_rule[finding.rule] = finding
    return by_rule


def _advice(group: Group, base: Group | None) -> Recommendation | None:
    """The recommendation for the group, its latency that of the whole group; the base's own configuration, where that is no slower."""
    advised = [report.recommendation for report in group if report.recommendation is not None]
    if not advised or len(advised) < len(group):
        return None
    total = latency_sum([item.latency for item in advised])
    now = latency_sum([report.predicted for report in group])
    if total is None:
        return advised[0]
    advice = replace(advised[0], latency=total, speedup=now.us / total.us if now is not None else advised[0].speedup)
    before = latency_sum([report.predicted for report in base]) if base else None
    configuration = base[0].configuration if base else None
    if before is None or configuration is None or before.us > total.us:
        return advice
    if now is not None and before.us >= now.us:  # nor is the base any faster: what runs may stay
        return None
    entry = dict(entry_of(configuration)) if advice.table_entry is not None else None
    return replace(
        advice,
        configuration=configuration,
        latency=before,
        speedup=now.us / before.us if now is not None else advice.speedup,
        reason=BASE_IS_FASTER,
        triton_config=triton_config(configuration),
        table_entry=entry,
    )
