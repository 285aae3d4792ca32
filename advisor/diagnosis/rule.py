"""What a rule is, and the wording of findings."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from advisor.diagnosis.context import LaunchContext, Need, parameter_of
from advisor.diagnosis.neighbours import Change
from advisor.result.problem import microseconds as short_us
from advisor.result.schema import Finding, Severity
from advisor.system.resources import phrase

LEAST_SHOWN_US = 0.005
"""Latencies are shown to a hundredth of a microsecond: less is no difference."""


class FindingScope(Protocol):
    """What a finding says of where it is: the scope, and the source that `file` and `line` are in."""

    def place(self, file: str | None, line: int | None) -> tuple[str, str | None, int | None]:
        """Scope, path and line."""


Context = TypeVar("Context", bound=FindingScope)


@dataclass(frozen=True)
class Rule(Generic[Context]):
    """One thing that can be wrong with a launch.

    `id` is what is wrong, in kebab case, and the name of the function that looks for it and of the text for `advisor explain` in
    `reports/rules/`; `title` says it in one line; `needs` is what a launch must have for the rule to apply. `changes_type`: the cure is
    another type of operands, and the launch's own bound none of it.
    """

    id: str
    title: str
    needs: tuple[Need, ...]
    changes_type: bool
    look: Callable[[Context], Finding | None]

    def check(self, context: Context) -> Finding | None:
        """The finding, or None where the launch passes. Called only where the launch has what the rule needs."""
        finding = self.look(context)
        return finding and replace(finding, rule=self.id)


def rule(title: str, *needs: Need, changes_type: bool = False) -> Callable[[Callable[[Context], Finding | None]], Rule[Context]]:
    """Makes a rule of the function that looks; the finding that it returns gets the rule's id."""

    def made(look: Callable[[Context], Finding | None]) -> Rule[Context]:
        return Rule(id=look.__name__.replace("_", "-"), title=title, needs=needs, changes_type=changes_type, look=look)

    return made


def make_finding(
    context: FindingScope,
    severity: Severity,
    title: str,
    *,
    evidence: str,
    remedy: str,
    saving_us: float | None = None,
    better: Change | None = None,
    file: str | None = None,
    line: int | None = None,
) -> Finding:
    """A finding of the rule that returns it, at the place that `context` knows.

    Args:
        context: The launch or compiled kernel.
        severity: How bad it is.
        title: What is wrong, in one line.
        evidence: The figures behind it.
        remedy: What to do.
        saving_us: What curing it alone would save; None: that cannot be said.
        better: The configuration that the saving comes from.
        file: Of compiled code: the file that the line is in; None: the kernel's own.
        line: Of compiled code: the line; None: no line in particular.
    """
    scope, source_file, source_line = context.place(file, line)
    return Finding(
        rule="",
        severity=severity,
        title=title,
        evidence=evidence,
        remedy=remedy,
        saving_us=saving_us,
        net_saving_us=saving_us - sum(better.slower_us.values()) if saving_us is not None and better is not None else None,
        scope=scope,
        source_file=source_file,
        source_line=source_line,
    )


def crashed(rule: Rule[Context], reason: str, scope: str) -> Finding:
    """The error finding of a rule that crashed: the run goes on."""
    remedy = "a fault of the advisor: report it with this page's result.json; other findings are valid"
    return Finding(rule=rule.id, severity="error", title=f"The rule {rule.id} crashed", evidence=reason, remedy=remedy, scope=scope)


def cured(
    context: LaunchContext, better: Change | None, title: str, *, evidence: str, costs_us: float = math.inf, how: str = ""
) -> Finding | None:
    """A finding whose remedy is a neighbour that cures it; None where there is none, or it saves too little to be told.

    Args:
        context: The launch.
        better: The neighbour; None: none cures it.
        title: What is wrong, in one line.
        evidence: The figures behind it.
        costs_us: What the cause costs in all: a neighbour may be faster for other reasons too, and saves no more of it.
        how: What the remedy begins with.
    """
    saving = min(costs_us, context.saving(better.us)) if better is not None else 0.0
    if better is None or not context.matters(saving, better):
        return None
    return make_finding(
        context,
        severity_of(context, saving),
        title,
        evidence=evidence,
        remedy=how + remedy_of(better, context),
        saving_us=saving,
        better=better,
    )


def remedy_of(better: Change, context: LaunchContext) -> str:
    """`BLOCK_SIZE_N=64: 12.3 µs predicted`, and what that does to the others that run with it.

    Where a configuration is recommended, the remedy is that one, and says so where the change is part of it: nobody can take both.
    """
    if (advice := context.recommended) is not None and context.offered is not None and better.parameters:
        part = all(parameter_of(context.offered, name, 0) == value for name, value in better.parameters.items())
        how = phrase("remedy.part", change=better.text()) if part else phrase("remedy.faster")
        return f"use {advice.text()} ({promised(advice)}){how}"
    others = [
        phrase("remedy.longer" if us > 0 else "remedy.shorter", launch=name, us=microseconds(abs(us)))
        for name, us in better.slower_us.items()
        if abs(us) >= LEAST_SHOWN_US
    ]
    return "; ".join([f"use {better.text()} ({promised(better)})", *others])


def as_sentences(text: str) -> str:
    """`Fill the last wave. Use BLOCK_M=64.` of `fill the last wave; use BLOCK_M=64`: each clause as a sentence; a name stays as it is.

    >>> as_sentences("use BLOCK_M=64 (12 µs); w2-M64 shares it")
    'Use BLOCK_M=64 (12 µs). w2-M64 shares it.'
    """
    clauses = [clause.strip() for clause in text.split("; ") if clause.strip()]
    begun = [clause if not clause.split()[0].isalpha() else f"{clause[:1].upper()}{clause[1:]}" for clause in clauses]
    return " ".join(clause if clause.endswith(".") else f"{clause}." for clause in begun)


def promised(better: Change) -> str:
    """`12.3 µs predicted`; where a limit keeps more from being promised, that one, without a figure that is not this change's."""
    return better.limit or f"{microseconds(better.us)} predicted"


def severity_of(context: LaunchContext, saving_us: float) -> Severity:
    """A warning from a tenth of the latency on, advice below."""
    return "warning" if saving_us >= 0.1 * context.current_us else "advice"


def percent(share: float) -> str:
    """A share as whole per cent; small ones keep a digit."""
    value = 100 * share
    return f"{value:.1f} %" if 0 < abs(value) < 9.95 else f"{value:.0f} %"


def microseconds(us: float) -> str:
    """`12.3 µs`, with the digits that the surfaces show."""
    return f"{short_us(us)} µs"


def amount(value: float) -> str:
    """Bytes in decimal units."""
    for factor, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= factor:
            return f"{value / factor:.3g} {unit}"
    return f"{value:.0f} bytes"


def kibibytes(value: float) -> str:
    """Shared memory, in the unit its limits are given in."""
    return f"{value / 1024:.3g} KiB" if value < 1024 * 1000 else f"{value / 1024:,.0f} KiB"
