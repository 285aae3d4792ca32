"""The data that surfaces show: launches grouped by the size they differ in, the result sorted, scaled to bar widths and given anchors for
the page, and outcomes of `@advisor.autotune`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from advisor.rendering import figures
from advisor.result.schema import (
    INSTRUCTIONS,
    UNCERTAIN,
    Configuration,
    Finding,
    GapPart,
    Latency,
    LaunchReport,
    PipelineTime,
    Result,
    TunedProblem,
    TunedTiming,
)
from advisor.system import grouped


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Launches of one kernel and operator; `size` is the one they differ in (None: a single launch, or several of one problem).

    `apart` says by id what tells launches of one problem apart: entries of a cache, recorded launches with other configurations.
    """

    launches: tuple[LaunchReport, ...]
    size: str | None
    apart: Mapping[str, str] = field(default_factory=dict)
    shown: str | None = None  # the size that names a single launch, where no other is of its kind

    @property
    def name(self) -> str:
        """`fused_moe w13`."""
        return figures.name_of(self.launches[0])

    @property
    def shared(self) -> str:
        """The sizes and types that the launches have in common: `E=128 topk=8 H=2048 N=768 bf16`."""
        problem = self.launches[0].problem
        return f"{figures.sizes_text(problem, without=self.size)} {figures.types_text(problem)}".strip()

    def label(self, launch: LaunchReport) -> str:
        """The size that sets one launch apart: `M=64`; with what tells it from others of its problem: `M=64 num_stages=4`."""
        return f"{self.by_size(launch)} {self.apart.get(launch.id, '')}".rstrip()

    def by_size(self, launch: LaunchReport) -> str:
        """`M=64`."""
        size = self.size or self.shown
        return figures.sizes_text(launch.problem) if size is None else f"{figures.clean(size)}={launch.problem.sizes[size]}"


def group(launches: tuple[LaunchReport, ...]) -> list[Group]:
    """The launches by kernel, operator, types and all sizes but one, in order of first appearance.

    The one size is M where M differs, else the first that does.
    """
    kinds: dict[tuple[object, ...], list[LaunchReport]] = {}
    for launch in launches:
        problem = launch.problem
        key = (launch.kernel, problem.family, problem.op, figures.types_text(problem), tuple(sorted(problem.sizes)))
        kinds.setdefault(key, []).append(launch)
    return [part for members in kinds.values() for part in _by_size(members)]


def _by_size(members: list[LaunchReport]) -> list[Group]:
    names = list(members[0].problem.sizes)
    differing = [name for name in names if len({launch.problem.sizes[name] for launch in members}) > 1]
    if not differing:
        shown = ("M" if "M" in names else names[0]) if names and len(members) == 1 else None
        return [Group(launches=tuple(members), size=None, shown=shown, apart=_by_id(members))]
    size = "M" if "M" in differing else differing[0]
    parts: dict[tuple[int, ...], list[LaunchReport]] = {}
    for launch in members:
        rest = tuple(launch.problem.sizes[name] for name in names if name != size)
        parts.setdefault(rest, []).append(launch)
    groups = []
    for part in parts.values():
        alike = grouped((launch.problem.sizes[size], launch) for launch in part)
        apart = {name: text for some in alike.values() for name, text in _by_id(some).items()}
        groups.append(Group(launches=tuple(part), size=size if len(alike) > 1 else None, apart=apart))
    return groups


def _by_id(members: Sequence[LaunchReport]) -> dict[str, str]:
    return {launch.id: text for launch, text in zip(members, told_apart(members), strict=True)}


def told_apart(members: Sequence[LaunchReport]) -> list[str]:
    """Words that tell launches of one problem apart: where their configurations differ, and the id where that is not enough."""
    if len(members) < 2:
        return [""] * len(members)
    fields = [figures.fields_of(launch.configuration) if launch.configuration is not None else {} for launch in members]
    names = [name for name in dict.fromkeys(name for item in fields for name in item) if len({repr(item.get(name)) for item in fields}) > 1]
    texts = [" ".join(f"{figures.clean(name)}={figures.clean(str(item[name]))}" for name in names if name in item) for item in fields]
    count = Counter(texts)
    return [
        text if count[text] == 1 else f"{text} {figures.clean(launch.id.removeprefix(f'{launch.kernel}-'))}".strip()
        for launch, text in zip(members, texts, strict=True)
    ]


STATES = {
    "measured": "measured",
    "compile": "does not compile",
    "fit": "does not fit the GPU",
    "time": "takes too long",
    "output": "wrong output",
    "crash": "failed",
    "not-measured": "not measured",
}
SHOWN = 200
"""Configurations listed of one problem, and problems listed; the rest stand in the JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingRow:
    """One configuration of a tuned problem, as text. `chosen`: it is the one that runs."""

    label: str
    state: str
    us: str
    interval: str
    predicted: str
    ratio: str  # predicted / measured
    slower: str  # against the chosen one
    reason: str
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemView:
    """One tuned problem, ready to be shown."""

    problem: TunedProblem
    title: str
    chosen: str
    latency: str
    counts: str
    accuracy: str
    rows: tuple[TimingRow, ...]
    more: int


def tuned_views(problems: tuple[TunedProblem, ...]) -> list[ProblemView]:
    """Every problem, in order."""
    return [_view(problem) for problem in problems]


def _view(problem: TunedProblem) -> ProblemView:
    error = problem.prediction_error
    ordered = sorted(problem.timings, key=lambda timing: (timing.us is None, timing.us or 0.0))  # Python sorts stably
    return ProblemView(
        problem=problem,
        title=figures.clean(f"{problem.kernel} {problem.key}"),
        chosen=figures.clean(problem.configuration.label()) if problem.configuration is not None else "none works",
        latency=f"{figures.microseconds(problem.latency_us)} µs {problem.origin}" if problem.latency_us is not None else "not measured",
        counts=counts(problem),
        accuracy=f"predictions off by {100 * error:.0f} % in the median" if error is not None else "nothing predicted",
        rows=tuple(_row(timing, problem) for timing in ordered[:SHOWN]),
        more=max(0, len(ordered) - SHOWN),
    )


def counts(problem: TunedProblem) -> str:
    """`8 measured, 2 left out: 1 does not compile, 1 does not fit the GPU`."""
    measured = sum(timing.us is not None for timing in problem.timings)
    left: dict[str, int] = {}
    for timing in problem.timings:
        if timing.us is None:
            word = STATES.get(timing.state, figures.clean(timing.state))
            left[word] = left.get(word, 0) + 1
    if not left:
        return f"{measured} {problem.origin}, none left out"
    why = ", ".join(
        f"{count} {word if count == 1 else word.replace('does not', 'do not').replace('takes too', 'take too')}"
        for word, count in left.items()
    )
    return f"{measured} {problem.origin}, {sum(left.values())} left out: {why}"


def _row(timing: TunedTiming, problem: TunedProblem) -> TimingRow:
    us, predicted, now = timing.us, timing.predicted_us, problem.latency_us
    spread = us is not None and timing.low_us is not None and timing.high_us is not None and timing.low_us < timing.high_us
    return TimingRow(
        label=figures.clean(timing.configuration.label()),
        state=problem.origin if timing.state == "measured" else STATES.get(timing.state, figures.clean(timing.state)),
        us=figures.microseconds(us) if us is not None else "-",
        interval=f"{figures.microseconds(timing.low_us or 0.0)}–{figures.microseconds(timing.high_us or 0.0)}" if spread else "-",
        predicted=figures.microseconds(predicted) if predicted is not None else "-",
        ratio=f"{predicted / us:.2f}" if predicted is not None and us else "-",
        slower=f"{us / now:.2f}x" if us is not None and now else "-",
        reason=figures.clean(timing.reason),
        chosen=timing.configuration == problem.configuration,
    )


_CAUSES = {
    UNCERTAIN: "Uncertain work",
    INSTRUCTIONS: "Own instructions",
    "padding": "Padding",
    "tail-wave": "Partial last wave",
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
    binding: str  # see `_binding`


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
    bound: figures.Bound
    changes: tuple[str, ...]


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
        bound=figures.shown_bound(launch),
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

    binds = f"{figures.bound_words(launch)}: {launch.binding_pipeline}"
    steps = [station("Bound", "bound", launch.bound, "; ".join(filter(None, (binds, figures.beyond_bound(launch)))))]
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


def cause_name(cause: str) -> str:
    """A cause of the gap as a heading: `Partial last wave`."""
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
        share = figures.share_of(part.time_us, now.us)
        binds_now = part.pipeline == launch.config_binding_pipeline
        binds_bound = part.pipeline == launch.binding_pipeline
        rows.append(
            PipelineRow(
                part=part,
                width=100 * part.time_us / longest,
                least=100 * part.problem_time_us / longest,
                share=share,
                binding=_binding(binds_now, binds_bound, share is None or share >= figures.UTILISED),
            )
        )
    return tuple(rows)


def _binding(now: bool, bound: bool, busy: bool) -> str:
    """What a pipeline is to a launch: whether it takes longest `now`, sets the `bound`, and is `busy` enough to limit it."""
    if now and busy:
        return "binding" if bound else "binding now"
    return "highest now, sets the bound" if now and bound else "highest now" if now else "sets the bound" if bound else ""


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
