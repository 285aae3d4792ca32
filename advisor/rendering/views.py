"""The data of the page's sections: the result, sorted, grouped, scaled to bar widths and given anchors."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from advisor.rendering import figures
from advisor.rendering.grouping import Group, group
from advisor.result.schema import (
    UNCERTAIN,
    Configuration,
    Finding,
    GapPart,
    Latency,
    LaunchReport,
    PipelineTime,
    Result,
)
from advisor.system.phrases import phrase

_CAUSES = {
    UNCERTAIN: "Uncertain work",
    "padding": "Padding",
    "tail-wave": "Tail wave",
    "occupancy": "Occupancy",
    "latency": "Exposed latency",
    "traffic": "Extra traffic",
    "launch": "Launch",
    "power": "Power limit",
    "efficiency": "Below peak rate",
    "configuration": "Configuration",
    "unexplained": "Unexplained",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One row of the waterfall; positions in per cent of the longest."""

    name: str
    kind: str  # bound | ceiling | loss | gain | predicted | measured
    us: float
    left: float
    width: float
    origin: str
    note: str
    step: bool  # a difference, not a latency


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRow:
    """One pipeline's time against the launch's."""

    part: PipelineTime
    width: float  # per cent of the longest shown
    least: float  # the problem alone, per cent
    share: float | None  # of the latency now
    binding: str  # "binding now" (this configuration), "sets the bound", "binding" (both), or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchView:
    """One launch, ready to be shown."""

    launch: LaunchReport
    anchor: str
    name: str  # fused_moe w13
    label: str  # M=64
    apart: str  # num_stages=4, where another launch has the same problem
    now: Latency
    share: float | None  # ceiling / now
    compares: bool  # whether a speedup of the recommendation can be said
    stuck: bool  # it cannot launch, and `now` is the bound of its configuration
    unset: bool  # which configuration runs is not known, and `now` is predicted of the one ranked first
    to_win: float
    steps: tuple[Step, ...]
    free: tuple[str, ...]  # causes that cost nothing
    ceiling_at: float | None  # per cent, on the scale of the steps
    pipelines: tuple[PipelineRow, ...]
    idle: tuple[str, ...]  # pipelines of which nothing is asked
    changes: tuple[str, ...]
    sizes: tuple[tuple[str, int], ...]
    roofline: float | None  # µs of its own traffic at peak, outputs written back; None: as the bound, or unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingView:
    """A finding, where it is, and how to link to it."""

    finding: Finding
    anchor: str
    view: LaunchView | None  # None: of the table as a whole


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleView:
    """All findings of one rule."""

    rule: str
    severity: str
    anchor: str
    most_us: float | None
    remedy: str | None  # where all findings share it
    items: tuple[FindingView, ...]


class Anchors:
    """Fragment names made of names from outside: letters, digits, `.`, `_` and `-` only, never twice the same."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def make(self, *parts: str) -> str:
        """A new fragment name for these parts."""
        name = "-".join(re.sub(r"[^A-Za-z0-9._-]+", "-", part).strip("-")[:80] or "x" for part in parts)
        candidate, number = name, 1
        while candidate in self._taken:
            number += 1
            candidate = f"{name}-{number}"
        self._taken.add(candidate)
        return candidate


def launch_views(result: Result, anchors: Anchors) -> list[LaunchView]:
    """Every launch, in the order of its groups."""
    return [_launch_view(part, launch, anchors) for part in group(result.launches) for launch in part.launches]


def _launch_view(part: Group, launch: LaunchReport, anchors: Anchors) -> LaunchView:
    now = figures.current(launch)
    advice = launch.recommendation
    steps, ceiling_at = _waterfall(launch, now)
    return LaunchView(
        launch=launch,
        anchor=anchors.make("launch", launch.id),
        name=part.name,
        label=part.label(launch),
        apart=part.apart.get(launch.id, ""),
        now=now,
        share=figures.share_of_ceiling(launch),
        compares=figures.compares(launch),
        stuck=figures.stuck(launch),
        unset=figures.unset(launch),
        to_win=figures.to_win(launch),
        steps=steps,
        free=tuple(cause_name(part.cause) for part in launch.gap if _costs_nothing(part)),
        ceiling_at=ceiling_at,
        pipelines=_pipeline_rows(launch, now),
        idle=tuple(part.pipeline for part in launch.pipelines if not _busy(part)),
        changes=tuple(figures.changes(launch.configuration, advice.configuration)) if advice else (),
        sizes=tuple(launch.problem.sizes.items()),
        roofline=figures.roofline_beyond(launch),
    )


def _waterfall(launch: LaunchReport, now: Latency) -> tuple[tuple[Step, ...], float | None]:
    """bound, library, the steps between that cost anything, predicted, and measured, on one scale; where on it the ceiling lies."""
    ends: list[float] = [launch.bound.us]
    for part in launch.gap:
        ends.append(ends[-1] + part.us)
    known = (launch.ceiling, launch.library, launch.predicted, launch.measured, now)
    longest = max(*ends, *(latency.us for latency in known if latency is not None), 1e-9)

    def station(name: str, kind: str, latency: Latency, note: str) -> Step:
        words = " · ".join(text for text in (note, figures.interval_words(latency)) if text)
        width = 100 * latency.us / longest
        return Step(name=name, kind=kind, us=latency.us, left=0.0, width=width, origin=latency.origin, note=words, step=False)

    steps = [station("Bound", "bound", launch.bound, _bound_note(launch))]
    if launch.library is not None:
        steps.append(station("Library", "ceiling", launch.library, launch.library.source))
    last = [station("Predicted", "predicted", launch.predicted, "")] if launch.predicted else []
    for start, end, part in zip(ends, ends[1:], launch.gap, strict=False):
        if _costs_nothing(part):
            continue
        if part.cause == "unexplained" and launch.measured:
            steps += last
            last = []
        steps.append(
            Step(
                name=cause_name(part.cause),
                kind="loss" if part.us >= 0 else "gain",
                us=part.us,
                left=100 * min(start, end) / longest,
                width=100 * abs(part.us) / longest,
                origin=part.origin,
                note=part.note,
                step=True,
            )
        )
    steps += last
    if launch.measured is not None:
        steps.append(station(launch.measured.origin.capitalize(), "measured", launch.measured, ""))
    return tuple(steps), 100 * launch.ceiling.us / longest if launch.ceiling else None


def _bound_note(launch: LaunchReport) -> str:
    roofline = figures.roofline_beyond(launch)
    words = f"{figures.bound_words(launch)}: {launch.binding_pipeline}"
    return words if roofline is None else f"{words}; {phrase('screen.roofline', us=figures.microseconds(roofline))}"


def cause_name(cause: str) -> str:
    """A cause of the gap as a heading: `Tail wave`."""
    return _CAUSES.get(cause, cause.replace("-", " ").capitalize())


def _costs_nothing(part: GapPart) -> bool:
    return abs(part.us) < 0.005


def _busy(part: PipelineTime) -> bool:
    return part.demand > 0 or part.time_us > 0 or part.problem_time_us > 0


def _pipeline_rows(launch: LaunchReport, now: Latency) -> tuple[PipelineRow, ...]:
    longest = max((max(part.time_us, part.problem_time_us) for part in launch.pipelines), default=0.0)
    longest = max(longest, now.us, 1e-9)
    rows = []
    for part in sorted(filter(_busy, launch.pipelines), key=lambda part: part.time_us, reverse=True):
        binds_now = part.pipeline == launch.config_binding_pipeline
        binds_bound = part.pipeline == launch.binding_pipeline
        rows.append(
            PipelineRow(
                part=part,
                width=100 * part.time_us / longest,
                least=100 * part.problem_time_us / longest,
                share=figures.share_of(part.time_us, now.us),
                binding="binding" if binds_now and binds_bound else "binding now" if binds_now else "sets the bound" if binds_bound else "",
            )
        )
    return tuple(rows)


def rule_views(result: Result, views: list[LaunchView], anchors: Anchors) -> list[RuleView]:
    """The findings by rule, the rule that saves most first."""
    rules: dict[str, list[FindingView]] = {}
    pairs: list[tuple[LaunchView | None, Finding]] = [(None, item) for item in result.table_findings]
    pairs += [(view, item) for view in views for item in view.launch.findings]
    for view, item in pairs:
        anchor = anchors.make("finding", view.launch.id if view else "table", item.rule)
        rules.setdefault(item.rule, []).append(FindingView(finding=item, anchor=anchor, view=view))
    out = []
    for rule, items in rules.items():
        items.sort(key=lambda entry: -(entry.finding.saving_us or 0.0))
        savings = [entry.finding.saving_us for entry in items if entry.finding.saving_us is not None]
        remedies = {entry.finding.remedy for entry in items}
        severity = min((entry.finding.severity for entry in items), key=figures.SEVERITIES.index)
        out.append(
            RuleView(
                rule=rule,
                severity=severity,
                anchor=anchors.make("rule", rule),
                most_us=max(savings, default=None),
                remedy=remedies.pop() if len(remedies) == 1 else None,
                items=tuple(items),
            )
        )
    return sorted(out, key=lambda entry: (entry.severity != "error", -(entry.most_us or 0.0), figures.SEVERITIES.index(entry.severity)))


def passed_rules(result: Result) -> list[tuple[str, int]]:
    """The rules that found nothing, and on how many launches; those that fired somewhere last."""
    counts: dict[str, int] = {}
    for launch in result.launches:
        for rule in launch.passed_rules:
            counts[rule] = counts.get(rule, 0) + 1
    return sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))


def table_entry_text(launch: LaunchReport) -> str | None:
    """The recommended entry as it stands in a table's file, under its token count; None where there is none."""
    advice = launch.recommendation
    if advice is None or advice.table_entry is None:
        return None
    lines = json.dumps(advice.table_entry, indent=4, ensure_ascii=False)
    tokens = launch.problem.sizes.get("M")
    return lines if tokens is None else f'"{tokens}": {lines}'


def configuration_rows(now: Configuration | None, then: Configuration | None) -> list[tuple[str, str, str]]:
    """Parameter, value now, value recommended; for the table of a launch."""
    before = figures.fields_of(now) if now else {}
    after = figures.fields_of(then) if then else {}
    return [(key, before.get(key, "-"), after.get(key, "-")) for key in {**before, **after}]
