"""What measurements change: the choice of a configuration where several were measured, and notes where a launch is far above a ceiling."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.advising.choice import Choice, Draft, demand_totals, predicted_latency
from advisor.advising.targets import Target
from advisor.diagnosis import WORTH_CHANGING
from advisor.learned.base import Predictor
from advisor.pipelines import configuration_batch
from advisor.result.schema import Configuration, Latency
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
