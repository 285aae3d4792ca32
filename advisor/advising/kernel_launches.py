"""The report of every launch of a target that is code, with its assumptions and missing options."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from advisor.advising.missing_options import Lacking, missing_options, say_contents, say_missing
from advisor.compiled.analysis import KernelAnalysis
from advisor.compiled.demand.demand import OF_A_SAMPLE
from advisor.compiled.demand.likely_places import guessed_places, guessed_trips, in_words
from advisor.compiled.guesses.guess_errors import in_lines_of_file
from advisor.compiled.launch_report import (
    TRIED,
    KernelTarget,
    Unreadable,
    launch_report,
)
from advisor.compiled.phases import shipped
from advisor.compiled.source_lines import source_texts
from advisor.diagnosis.compiled_rules import COMPILED_RULES, accesses, check_compiled, not_judged
from advisor.diagnosis.diagnose import SAMPLED, gap_note
from advisor.gpus.hardware import GpuSpec, match_device_name
from advisor.learned.analytical import SPREAD
from advisor.learned.base import unmeasured_vendor
from advisor.python_source.source import SourceFile
from advisor.result.schema import (
    UNCERTAIN,
    Action,
    Latency,
    LaunchReport,
    SourceText,
)
from advisor.rows.launches import is_launch_record
from advisor.system import grouped
from advisor.system.resources import phrase


@dataclass(slots=True)
class KernelReports:
    """Reports and findings of every target, by its id; `takes_options`: whether options can add to them, as for a kernel in a file."""

    targets: dict[str, KernelTarget] = field(default_factory=dict)
    reports: dict[str, LaunchReport] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    sources: dict[SourceText, None] = field(default_factory=dict)
    unknowns: dict[str, list[str]] = field(default_factory=dict)
    missing: dict[str, tuple[str, ...]] = field(default_factory=dict)
    guessed: dict[str, str] = field(default_factory=dict)  # in words, as `in_words` has them
    one_trip: dict[str, str] = field(default_factory=dict)  # the same of what decides the trips of loops that are counted once
    deciding: dict[str, frozenset[str]] = field(default_factory=dict)
    offsets: dict[str, frozenset[str]] = field(default_factory=dict)  # by kernel, the tensors that hold where rows begin
    takes_options: bool = True
    warnings: list[str] = field(default_factory=list)
    stopped: dict[str, str] = field(default_factory=dict)  # by space that was made by trying, why that ended
    unsearched: dict[str, str] = field(default_factory=dict)  # and what of it was not evaluated for want of time

    @property
    def kernels(self) -> dict[str, SourceFile]:
        """The kernels by name."""
        return {target.launch.kernel: target.launch.source for target in self.targets.values()}

    def count(self, report: LaunchReport) -> int:
        """Configurations that are known of a launch, itself included."""
        space = self.targets[report.id].space
        return 1 if space is None else sum(target.space == space for target in self.targets.values())

    def warned(self) -> tuple[str, ...]:
        """What was not read of the target, and what does not compile and why, with how many configurations of a kernel that is."""
        alike = grouped(
            ((target.space or name, in_lines_of_file(reason, target.launch.source)), target)
            for name, reason in self.failed.items()
            if (target := self.targets[name]).source != TRIED
        )
        called = {key: items[0].id if len(items) == 1 else f"{len(items)} configurations of {key[0]}" for key, items in alike.items()}
        return (*self.warnings, *(f"{name}: {reason}" for (_, reason), name in called.items()))

    def take(self, target: KernelTarget, analysis: KernelAnalysis | Unreadable, gpu: GpuSpec) -> None:
        """Keep one target's outcome."""
        self.targets[target.id] = target
        if isinstance(analysis, Unreadable):
            self.failed[target.id] = analysis.reason
            return
        report = self.reports[target.id] = compiled_report(target, analysis, gpu)
        self.sources |= dict.fromkeys(source_texts(analysis.inspection, report.source_lines))
        self.unknowns[target.id] = _assumptions(target, analysis)
        if analysis.demand.phases is None or not shipped().measured(gpu):
            self.unknowns[target.id] += unmeasured_vendor([gpu])
        trips = ""
        if reasons := guessed_trips(analysis.inspection.demand):
            self.one_trip[target.id], trips = in_words(reasons), f" ({phrase('note.one_trip')})"
        self.guessed[target.id] = f"{in_words(analysis.guessed)}{trips}" if analysis.guessed else ""
        self.deciding[target.id] = analysis.guessed
        if any(part.cause == UNCERTAIN for part in analysis.gap_parts):  # then a distance is told, but to work that hangs on data
            self.deciding[target.id] |= {*analysis.inspection.demand.unknown, *guessed_places(analysis.inspection.demand)}
        self.missing[target.id] = missing_options(analysis.inspection) if self.takes_options else ()
        self.offsets[target.launch.kernel] = analysis.inspection.demand.offsets

    def say_left(self, rest: Sequence[KernelTarget]) -> None:
        """Say of which kernels configurations were left for when their sizes are known."""
        for target in self.targets.values():
            left = sum(item.space == target.space and item.id not in self.targets for item in rest)
            if left and target.id in self.reports:
                self.unknowns[target.id].append(phrase("note.more_configurations", kernel=self.reports[target.id].kernel, count=left))

    def missing_first(self, unsized: tuple[str, ...], shown: Sequence[LaunchReport], text: str, command: str) -> tuple[Action, ...]:
        """The first action: give what launches without a grid lack, or else any that are shown, of the target `text`."""
        ids = unsized or tuple(report.id for report in shown if self.missing[report.id])
        options: dict[str, dict[str, None]] = defaultdict(dict)
        for name in ids:
            options[self.targets[name].launch.kernel] |= dict.fromkeys(self.missing[name])
        lacking = [
            Lacking(kernel=name, options=tuple(option), parameters=self._parameters[name]) for name, option in options.items() if option
        ]
        return say_missing(lacking, ids, text, command, sized=not unsized, alone=len(self.kernels) == 1)

    @property
    def _parameters(self) -> dict[str, frozenset[str]]:
        """The names of the arguments of every kernel."""
        return {name: frozenset(item.name for item in source.kernel(name).parameters) for name, source in self.kernels.items()}

    def contents_first(self, unsized: tuple[str, ...], shown: Sequence[LaunchReport], text: str, command: str) -> tuple[Action, ...]:
        """To give what tensors hold, where a considerable part of the work hangs on it; of one program that is beside the point."""
        deciding: dict[str, dict[str, frozenset[str]]] = defaultdict(dict)
        for report in shown:
            if self.deciding[report.id] and not unsized:
                deciding[self.targets[report.id].launch.kernel][report.id] = self.deciding[report.id]
        recorded = is_launch_record(text)
        if not recorded and not self.takes_options:
            return ()
        return say_contents(deciding, self._parameters, self.offsets, text, command, recorded=recorded, alone=len(self.kernels) == 1)


def compiled_report(target: KernelTarget, analysis: KernelAnalysis, gpu: GpuSpec) -> LaunchReport:
    findings = check_compiled(analysis.inspection, analysis.facts, gpu, analysis)
    others = {finding.rule for finding in findings} | not_judged(analysis.inspection)
    short = (analysis.occupancy.in_flight_bytes or math.inf) < (analysis.occupancy.needed_bytes or 0.0)
    widths = (min(line_widths) for (kind, _), line_widths in analysis.facts.widths.items() if kind == "load")
    if short and min(widths, default=math.inf) < accesses.WORD_BYTES:
        others.add(accesses.narrow_access.id)  # as wide as the blocks let them be, which is not wide enough
    passed = tuple(rule.id for rule in COMPILED_RULES if rule.id not in others)
    elsewhere = target.device is not None and (match_device_name(target.device) or gpu).name != gpu.name
    sampled = all(OF_A_SAMPLE in text for text in analysis.inspection.demand.unknown.values()) and not guessed_places(
        analysis.inspection.demand
    )
    analysis = replace(
        analysis,
        predicted=_with_interval(analysis),
        gap_parts=tuple(
            replace(part, note=SAMPLED if sampled and part.cause == UNCERTAIN else part.note or gap_note(part.cause, analysis.cache))
            for part in analysis.gap_parts
        ),
    )
    # A time recorded on another GPU says nothing of this one.
    return launch_report(replace(target, measured_us=None) if elsewhere else target, analysis, findings, passed)


def _with_interval(analysis: KernelAnalysis) -> Latency | None:
    """The interval that was fitted, or else that of the analytical model, as launches in closed form have it; as wide as the doubt where
    accesses go, and never below the bound."""
    predicted = analysis.predicted
    if predicted is None:
        return None
    low, high = predicted.us * math.exp(-SPREAD), predicted.us * math.exp(SPREAD)  # SPREAD is that of the 80 % interval
    if predicted.low_us is not None and predicted.high_us is not None:
        low, high = predicted.low_us, predicted.high_us
    least_us, most_us = analysis.doubt_us or (predicted.us, predicted.us)
    low, high = low * min(least_us / predicted.us, 1.0), high * max(most_us / predicted.us, 1.0)
    low = max(low, min(analysis.config_bound.us, predicted.us))
    return replace(predicted, low_us=low, high_us=high, coverage=0.8)


MOST_ASSUMPTIONS = 12
"""Of one launch; `advisor inspect` shows all."""


def _assumptions(target: KernelTarget, analysis: KernelAnalysis) -> list[str]:
    """Sentences on what of a launch is unknown or assumed, each with the kernel's name."""
    name = analysis.inspection.compiled.name
    assumptions = [
        text for text in analysis.inspection.assumptions if not text.startswith("Assumed the first configuration of @triton.autotune")
    ]
    if not assumptions:
        return []
    if target.launch.grid is None and not target.launch.assumed:
        guessed = phrase("note.guessed_arguments", kernel=name)
        return [guessed, *(f"{name}: {text[0].lower()}{text[1:]}" for text in target.launch.notes)]
    taken = [text.removeprefix("Assumed ").removesuffix(".") for text in assumptions if text.startswith("Assumed ")]
    # Of one program, counted to show something, what is not known is beside the point: what is missing is said as the first thing to do.
    unsized_prefixes = ("Assumed ", "Unknown: ") if target.launch.grid is None else ("Assumed ",)
    rest = [f"{name}: {text[0].lower()}{text[1:]}" for text in assumptions if not text.startswith(unsized_prefixes)]
    return [*([phrase("note.assumed", kernel=name, values="; ".join(taken))] if taken else []), *rest[:MOST_ASSUMPTIONS]]
