"""What measurements change: the choice of a configuration where several were measured, and notes where a launch is far above a ceiling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor.advising.choice import Choice, Draft, Measured, demand_totals, predicted_latency
from advisor.advising.targets import Target
from advisor.advising.verdict import GAIN
from advisor.diagnosis import WORTH_CHANGING
from advisor.learned.base import Predictor
from advisor.pipelines import configuration_batch
from advisor.rendering.figures import microseconds
from advisor.result.schema import Configuration, Latency, LaunchReport
from advisor.tables.tuned_table import replacement


def as_measured(drafts: list[Draft], choice: Choice) -> Choice:
    """The choice with what its configuration was measured to take, where it was."""
    known = {draft.launch.id: us for draft in drafts if (us := draft.tried(choice.configuration)) is not None}
    return replace(choice, latencies={**choice.latencies, **known})


def fastest_measured(
    drafts: list[Draft], choice: Choice, held: Configuration | None, target: Target, predictor: Predictor
) -> Choice | None:
    """The configuration that was measured fastest, for all launches that share one; None where none beats what runs by more than noise.

    Launches of which nothing was measured count with what is predicted of them under either.
    """
    known = [draft for draft in drafts if draft.measured is not None]
    if not known or any(draft.now_us < draft.bound_us for draft in known):
        return None
    first, like = drafts[0].launch, held or drafts[0].launch.configuration
    best, least_us, measured = None, np.inf, 1  # what runs was
    for configuration, _ in known[0].reached:
        latencies: dict[str, Latency] = {}
        for draft in drafts:
            found = draft.tried(configuration)
            if draft.measured is None:
                found = predicted_latency(predictor.predict(draft.batch, configuration_batch([configuration]), target.gpu), predictor)
            if found is not None:
                latencies[draft.launch.id] = found
        total = sum(latency.us for latency in latencies.values())
        kept = like is None or all(configuration.parameters.get(name) == like.parameters.get(name) for name in first.fixed)
        if not kept or len(latencies) < len(drafts):
            continue
        measured += 1
        if total < least_us:
            best, least_us = (configuration, latencies), total
    floors = [draft.measured.rounds.noise_floor or 0.0 for draft in known if draft.measured is not None and draft.measured.rounds]
    if best is None or not sum(draft.now_us for draft in drafts) >= least_us * max(WORTH_CHANGING, 1 + max(floors, default=0.0)):
        return None
    configuration, latencies = best
    table = first.table or target.table
    row = configuration_batch([configuration])
    word = "simulated" if any(latencies[draft.launch.id].origin == "simulated" for draft in known) else "measured"
    reason = f"the fastest of {measured} configurations {word}"
    if guessed := [draft.launch.id for draft in drafts if draft.measured is None]:
        reason += f" for {', '.join(draft.launch.id for draft in known)} ({', '.join(guessed)} as predicted)"
    return replace(
        choice,
        latencies=latencies,
        demands={draft.launch.id: demand_totals(draft.batch, row, target.gpu) for draft in drafts},
        configuration=replacement(
            configuration,
            first.configuration,
            table=table.name if table is not None else None,
            gpu=target.gpu,
            searched=("num_ctas", "maxnreg"),
        ),
        reason=reason,
    )


_NAMED = 3


def ceiling_doubts(launches: Sequence[LaunchReport], measured: Mapping[str, Measured]) -> tuple[str, ...]:
    """Sentences on predicted ceilings that measurements put in doubt; none where nothing does.

    A measured latency lowers a ceiling and never raises one, for another configuration may reach it all the same. So a ceiling stays
    where the configuration ranked first was measured to be slower, and where nothing is predicted to be faster than what was measured
    far above it.
    """
    refuted = {report.id: us for report in launches if (us := _refuted_us(report, measured)) is not None}
    stuck = [report.id for report in launches if report.id not in refuted and _is_stuck(report)]
    # What rows say was simulated is not called measured.
    word = "simulated" if any(launch.measured is not None and launch.measured.origin == "simulated" for launch in launches) else "measured"
    out = []
    if refuted:
        named = {report.id: report.ceiling.us for report in launches if report.ceiling is not None}
        each = [f"{microseconds(us)} µs of {name} (ceiling {microseconds(named[name])})" for name, us in refuted.items()]
        out.append(
            f"The configuration ranked first was {word} too, and lies above the predicted tunable ceiling: {_listed(each)}. "
            "Whether another one reaches it is not known."
        )
    if stuck:
        who, whose = (f"{_listed(stuck)} was", "the launch") if len(stuck) == 1 else (f"{_listed(stuck)} were", "the launches")
        out.append(
            f"{who} {word} {100 * (GAIN - 1):.0f} % or more above the tunable ceiling, and the model has no configuration that is "
            f"worth changing to: it is off here, or something else slows {whose} (advisor tune measures others)."
        )
    return tuple(out)


def _refuted_us(report: LaunchReport, measured: Mapping[str, Measured]) -> float | None:
    """Measured microseconds of the first-ranked configuration, where they lie above the interval of the ceiling; else None."""
    ceiling = report.ceiling
    if ceiling is None or ceiling.origin != "predicted" or report.id not in measured:
        return None
    took = [latency.us for configuration, latency in measured[report.id].others if configuration == report.ceiling_configuration]
    return next((us for us in took if us > (ceiling.high_us or ceiling.us)), None)


def _is_stuck(report: LaunchReport) -> bool:
    """Whether there is much to win as measured, and nothing to win it with."""
    predicted = report.ceiling is not None and report.ceiling.origin == "predicted"
    return report.measured is not None and predicted and report.recommendation is None and (report.headroom or 0.0) >= GAIN - 1


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
