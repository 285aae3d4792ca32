"""Measured evidence: rounds of two sides become rows, by the one verdict function of `advisor.measurement.statistics`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from advisor.measurement.failures import Failure
from advisor.measurement.statistics import Side, median_interval, verdict
from advisor.result.comparison_schema import MeasuredEffect, MeasuredRow
from advisor.result.schema import Configuration, Finding, Fingerprint, Latency, LaunchReport, Problem, Recommendation, Round


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A launch that was run (or failed to) on one side. `latency` may be there without rounds: then nothing can be decided."""

    kernel: str
    gpu: str
    problem: Problem
    configuration: Configuration | None
    rounds: tuple[Round, ...] = ()
    latency: Latency | None = None
    failure: Failure | None = None
    fingerprint: Fingerprint | None = None
    session: str | None = None
    noise_floor: float | None = None
    source: str = ""
    simulated: bool = False  # nothing was run for it: it came from a fake device, or from rows that say so


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What static analysis adds to a measured row, to explain it: never a measured figure."""

    bound: Latency | None = None
    ceiling: Latency | None = None
    cause: tuple[Finding, ...] = ()
    advice: Recommendation | None = None


def ran_of_report(report: LaunchReport, gpu: str, fingerprint: Fingerprint) -> Ran | None:
    """The measured part of a launch report; None where nothing was measured."""
    if report.measured is None and report.measured_rounds is None:
        return None
    rounds = report.measured_rounds
    known = fingerprint.mode == "gpu" or fingerprint.simulated  # else of where the report was made, not of where this was measured
    simulated = fingerprint.simulated or (report.measured is not None and report.measured.origin == "simulated")
    return Ran(
        kernel=report.kernel,
        gpu=gpu,
        problem=report.problem,
        configuration=report.configuration,
        rounds=rounds.rounds if rounds else (),
        latency=report.measured,
        fingerprint=fingerprint if known else None,
        noise_floor=rounds.noise_floor if rounds else None,
        source=rounds.source if rounds else "",
        simulated=simulated,
    )


def measured_row(identifier: str, label: str, base: Ran | None, head: Ran | None, context: Context | None = None) -> MeasuredRow:
    """One row; at least one side is there."""
    shown = head or base
    assert shown is not None
    context = context or Context()
    floors = [each.noise_floor for each in (base, head) if each is not None and each.noise_floor is not None]
    found = verdict(_side(base), _side(head), floor=max(floors) if floors else None)
    reason = found.reason
    if found.verdict == "inconclusive" and found.effect is None and not _has_rounds(base, head):
        reason = "a latency without rounds says nothing of its noise: measure both sides with `advisor measure`"
    sides = [_latency(each) for each in (base, head)]
    return MeasuredRow(
        id=identifier,
        label=label,
        kernel=shown.kernel,
        gpu=shown.gpu,
        problem=shown.problem,
        base=sides[0],
        head=sides[1],
        base_configuration=base.configuration if base else None,
        head_configuration=head.configuration if head else None,
        effect=MeasuredEffect(relative=found.effect.relative, low=found.effect.low, high=found.effect.high, rounds=found.effect.rounds)
        if found.effect is not None
        else None,
        tau=found.tau,
        verdict=found.verdict,
        reason=reason,
        bound=context.bound,
        ceiling=context.ceiling,
        faults=_faults(sides, context.bound),
        likely_cause=context.cause if found.verdict == "regressed" else (),
        advice=context.advice,
    )


def _has_rounds(*sides: Ran | None) -> bool:
    return all(side is not None and bool(side.rounds) for side in sides)


def _side(ran: Ran | None) -> Side | None:
    if ran is None:
        return None
    return Side(rounds=ran.rounds, failure=ran.failure, fingerprint=ran.fingerprint, session=ran.session)


def _latency(ran: Ran | None) -> Latency | None:
    """The median over rounds with its 99 % interval; the plain latency where there are no rounds; none where it failed."""
    if ran is None or ran.failure is not None:
        return None
    found = median_interval(ran.rounds)
    if found is None:
        return ran.latency if ran.latency is None or not ran.simulated else replace(ran.latency, origin="simulated")
    source = ran.source or "measured rounds"
    return Latency(
        us=found[0], origin="simulated" if ran.simulated else "measured", source=source, low_us=found[1], high_us=found[2], coverage=0.99
    )


def _faults(sides: list[Latency | None], bound: Latency | None) -> tuple[str, ...]:
    """A measurement below the bound is a fault of the model or of the measurement, and is said."""
    if bound is None:
        return ()
    return tuple(
        f"{name}: {latency.origin} {latency.us:.2f} µs is below the bound {bound.us:.2f} µs: model or measurement fault"
        for name, latency in zip(("base", "head"), sides, strict=True)
        if latency is not None and latency.us < bound.us
    )


def by_id(runs: Mapping[str, Ran], other: Mapping[str, Ran]) -> list[tuple[str, Ran | None, Ran | None]]:
    """Both sides by identifier, in the order of head, then what only base has."""
    names = [*other, *(name for name in runs if name not in other)]
    return [(name, runs.get(name), other.get(name)) for name in names]


__all__ = ["Context", "Ran", "by_id", "measured_row", "ran_of_report"]
