"""The winner of a search: chosen the same way every time, measured against what runs today, and kept only if it wins."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from advisor.result.schema import Configuration
from advisor.search.backend import Backend, Versus
from advisor.search.sampler import MAX_LOST
from advisor.search.study import Decision, Tuner, measured_latencies


@dataclass(frozen=True, slots=True, kw_only=True)
class Winner:
    """The outcome of a search for one decision.

    Attributes:
        configuration: What to run: the search's best where it won, else the incumbent; None: nothing is known to run.
        changed: Whether that differs from the incumbent.
        us: Its latency in microseconds where it was measured.
        parts_us: The same by launch.
        best: The search's best, even where it was not kept.
        best_us: Its latency in microseconds: from the comparison where there was one, else from the search.
        fastest_us: Of the search, where noise alone could have put that before `best`; None where `best` is the fastest.
        versus: How it fared against the incumbent; None: they are the same, or there is only one.
        fails: Why the incumbent cannot be launched, where that is known: it was not measured.
        note: Why, in words.
    """

    configuration: Configuration | None
    changed: bool
    us: float | None
    best: Configuration | None
    note: str
    best_us: float | None = None
    parts_us: Mapping[str, float] = field(default_factory=dict)
    versus: Versus | None = None
    fastest_us: float | None = None
    fails: str | None = None


def best_of(tuner: Tuner, decision: Decision, band: float) -> tuple[Configuration, float, Mapping[str, float]] | None:
    """The best measured configuration of a decision, its latency and that of its parts; None: nothing was measured.

    What an earlier run of the study measured and this one may not try (w2 is held to the BLOCK_SIZE_M that w13 has by now) cannot win.
    Of those within `band` of the fastest, which noise alone could have ordered: the incumbent; then, of those that are ahead of it by
    more than `band`, so that they may win against it, the one the prior ranks first, then the one whose name comes first. So the same
    measurements, or ones that differ by noise, give the same winner.
    """
    found = _may_win(tuner, decision)
    if not found:
        return None
    incumbent = None if decision.incumbent is None else tuner.space.index_of(decision.incumbent)
    fastest = min(us for us, _ in found.values())
    today = found[incumbent][0] if incumbent is not None and incumbent in found else math.inf
    near = [index for index, (us, _) in found.items() if us <= fastest * (1 + band) and (index == incumbent or us * (1 + band) < today)]
    index = min(near, key=lambda i: (i != incumbent, float(decision.prior.mean[i]), tuner.space.configurations[i].label()))
    return tuner.space.configurations[index], *found[index]


def _may_win(tuner: Tuner, decision: Decision) -> dict[int, tuple[float, Mapping[str, float]]]:
    """The least latency of each measured configuration that may be launched, and that of its parts."""
    sampler = tuner.sampler(decision.task.id)
    found: dict[int, tuple[float, Mapping[str, float]]] = {}
    incumbent = None if decision.incumbent is None else tuner.space.index_of(decision.incumbent)
    for trial, us, parts in measured_latencies(tuner.study(decision.task.id)):
        index = sampler.index_of(trial)
        if index is None or not (index == incumbent or math.isfinite(decision.prior.mean[index])):
            continue
        if index not in found or us < found[index][0]:
            found[index] = (us, parts)
    return found


def decide(tuner: Tuner, decision: Decision, backend: Backend, deadline: float | None = None) -> Winner:
    """Chooses the winner and measures it against the incumbent, in the same rounds; what is not compared by `deadline` did not win."""
    found = best_of(tuner, decision, tuner.noise_floor(decision.task.id))
    today = decision.incumbent
    if found is None:
        return Winner(configuration=today, changed=False, us=None, best=None, note="no trial gave a latency")
    best, us, parts = found
    least = min(us for us, _ in _may_win(tuner, decision).values())
    fastest = least if least < us else None
    if today is None:
        return Winner(configuration=best, changed=True, us=us, parts_us=parts, best=best, note="nothing ran before")
    if decision.incumbent_fails is not None:
        return Winner(
            configuration=best,
            changed=True,
            us=us,
            parts_us=parts,
            best=best,
            fastest_us=fastest,
            fails=decision.incumbent_fails,
            note=f"what runs today fails: {decision.incumbent_fails}",
        )
    if best == today or tuner.space.index_of(best) == tuner.space.index_of(today):
        return Winner(
            configuration=today,
            changed=False,
            us=us,
            parts_us=parts,
            best=today,
            note="nothing that was measured beats what runs today by more than the noise",
        )
    if tuner.space.index_of(today) in tuner.sampler(decision.task.id).deadly(tuner.study(decision.task.id).get_trials(deepcopy=False)):
        return Winner(
            configuration=today,
            changed=False,
            us=None,
            best=best,
            best_us=us,
            note=f"kept, and not compared with the search's best: the worker that measured it died {MAX_LOST} times",
        )
    versus = backend.compare(decision.task, today, best, deadline)
    best_us = versus.head_us if versus.head_us is not None else us
    if versus.better:
        return Winner(
            configuration=best,
            changed=True,
            us=best_us,
            best=best,
            best_us=best_us,
            parts_us=versus.head_parts_us or parts,
            versus=versus,
            fastest_us=fastest,
            note=versus.reason,
        )
    return Winner(
        configuration=today,
        changed=False,
        us=versus.base_us,
        parts_us=versus.base_parts_us,
        best=best,
        best_us=best_us,
        versus=versus,
        note=f"the search's best did not win ({versus.reason})",
    )
