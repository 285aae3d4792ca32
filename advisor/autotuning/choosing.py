"""Choosing the configuration of one call: cached, predicted or measured, as the mode says.

The little of torch.distributed that choosing needs: rank 0 decides, the others hear of it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from advisor.autotuning import internals, keys, lookup, ranking, watching
from advisor.autotuning.decisions.cache import FOR_CONSTANTS, IMPORTED, WITH_HOOKS, Cache, ProblemKey, Row, memory_cache
from advisor.autotuning.decisions.decision import Decision, How, Timing
from advisor.autotuning.measuring import Call, Session
from advisor.autotuning.ranking import LEAST, Ranking, Recognised, canonical_problem, most_trials, recognise
from advisor.autotuning.tunable import Tunable
from advisor.system.errors import MeasurementError, UsageError
from advisor.system.settings import Mode, read_settings


def ranks() -> int:
    """The number of processes in the default group; 1 where there is none."""
    group = _group()
    return int(group.get_world_size()) if group is not None else 1


def rank() -> int:
    """The rank of this process in the default group."""
    group = _group()
    return int(group.get_rank()) if group is not None else 0


def broadcast(value: Any) -> Any:
    """Rank 0's value, on every rank."""
    box = [value]
    group = _group()
    assert group is not None
    group.broadcast_object_list(box, src=0)
    return box[0]


def _group() -> Any:
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    module = getattr(torch, "distributed", None)
    return module if module is not None and module.is_available() and module.is_initialized() else None


@dataclass(kw_only=True)
class Situation:
    """The inputs of a choice."""

    tuner: Tunable
    call: Call
    key: tuple
    mode: Mode
    device: internals.Device
    recognised: Recognised | None
    why_not_recognised: str
    problem: ProblemKey
    cache: Cache
    started: float

    @cached_property
    def exhaustive_list(self) -> str:
        """Name of the decision over all configurations."""
        return keys.list_hash(self.call.identities, "all")

    @cached_property
    def list_name(self) -> str:
        """Name of the decision over the first of them."""
        return keys.list_hash(self.call.identities, "top", self.tuner.options.top_k)

    @cached_property
    def ranked(self) -> Ranking:
        """Best first, where a model knows: by the problem, or else by the kernel's code."""
        ranked = ranking.rank(self.call.identities, self.recognised, self.why_not_recognised, self.device.name)
        if ranked.modelled or not self.device.runs:
            return ranked
        from advisor.autotuning.compiled_ranking import rank_by_code

        few = (0, 0) if self.mode == "predict" else (ranking.LEAST, ranking.MOST)
        foresee = self.mode != "predict" and bool(self.tuner.keys) and not self.tuner.foreseen and internals.workers() > ranking.MOST
        return rank_by_code(self.tuner, self.call, self.device, ranked.why_given, *few, foresee=foresee)


def situation_of(
    tuner: Tunable, args: tuple, kwargs: dict[str, Any], key: tuple, mode: Mode, pruned: list[Any], started: float
) -> Situation:
    """The situation of one call.

    Args:
        tuner: Of the kernel.
        args: Of the call, by place.
        kwargs: Of the call, by name; grid and warmup included.
        key: The tuning key of the call.
        mode: How to decide.
        pruned: The configurations that are left after pruning.
        started: When the choice began (`time.perf_counter`).
    """
    from advisor.gpus.hardware import gpu_model  # decorating a kernel loads nothing of it

    named = {**dict(zip(tuner.arg_names, args, strict=False)), **{k: v for k, v in kwargs.items() if k in tuner.arg_names}}
    unique: dict[str, Any] = {}  # a list that is put together from others often holds one twice
    for config in pruned:
        unique.setdefault(keys.identity(config), config)
    identities, pruned = [*unique], [*unique.values()]
    function = internals.jitted(tuner.fn)
    device = internals.current_device()
    options = tuner.options
    recognised, why_not = (
        recognise(function, named, options.family, options.problem) if hasattr(function, "fn") else (None, "it is no jitted function")
    )
    if recognised is None and options.problem is not None:
        name = getattr(tuner.base_fn, "__name__", "kernel")
        tuner.say_once("problem", f"{name}: {why_not}; no model ranks its configurations, which are taken in the given order")
    text, digest = keys.stable_text(key), tuner.source_hash()
    if text is not None and options.tolerance is not None:
        text += f" outputs overwritten and checked {options.tolerance}"  # what was measured unchecked does not count
    options_passed = {name: value for name, value in kwargs.items() if name not in (*tuner.arg_names, "grid", "warmup")}
    constants = keys.passed_constants(function, named, tuner.keys, options_passed) if hasattr(function, "fn") else ""
    stable = all(map(keys.is_stable, identities))
    persistent = text is not None and digest is not None and stable and _persists(tuner, device)
    problem = ProblemKey(
        kernel=getattr(tuner.base_fn, "__name__", "kernel"),
        source="".join(
            (
                digest or f"kernel {tuner.serial}",
                WITH_HOOKS if tuner.has_hooks else "",
                f"{FOR_CONSTANTS}{constants}" if constants else "",
            )
        ),
        triton="; ".join(filter(None, (internals.triton_version(), internals.environment()))),
        gpu=gpu_model(device.name),
        key=text if text is not None else f"{key} of kernel {tuner.serial}",
        family=recognised.problem.family if recognised else None,
        problem=canonical_problem(recognised.problem) if recognised else None,
    )
    cache = (options.cache or tuner.default_cache()) if persistent else memory_cache()
    if not persistent:
        # Another kernel object of this process must not take these for its own.
        problem = replace(problem, source=f"{problem.source} of kernel {tuner.serial}")
    return Situation(
        tuner=tuner,
        call=Call(args=args, kwargs=kwargs, named=named, identities=identities, configs=pruned),
        key=key,
        mode=mode,
        device=device,
        recognised=recognised,
        why_not_recognised=why_not,
        problem=problem,
        cache=cache,
        started=started,
    )


def _persists(tuner: Tunable, device: internals.Device) -> bool:
    """Timings of the interpreter say nothing about a GPU: kept only where asked for."""
    if tuner.options.cache_results is not None:
        return tuner.options.cache_results
    return device.runs


CAPTURED = "a CUDA graph is being captured, and nothing may be measured"
UNDECIDED = "mode is cached, and nothing is decided"
BLOCKED = "a kernel that has not ended blocks the GPU for this process, and nothing can be measured"

SHOWN = 64
"""A decision keeps what is known of every configuration that was looked at, and of so many others in ranked order: with a thousand
configurations and a thousand keys, keeping all would fill the memory."""


def choose(tuner: Tunable, args: tuple, kwargs: dict[str, Any], key: tuple) -> tuple[Decision, Any]:
    """The decision for a call, and what the listener is told of the timings.

    Raises:
        ValueError: Tuned parameters are passed by the caller too.
        TypeError: So are options that every configuration sets.
        Exception: No configuration works: the first one's own exception.
    """
    started = time.perf_counter()
    mode = read_settings().mode or tuner.options.mode
    if mode == "off":
        default = tuner.options.default or tuner.configs[0]
        return Decision(config=default, how="off", reason="tuning is off", key=key), {}
    if len(tuner.configs) == 1:
        return Decision(config=tuner.configs[0], how="only", reason="there is one configuration", key=key), {}
    pruned = list(tuner.prune_configs(kwargs))
    if not pruned:
        count = tuner.configs_top_k
        raise UsageError('prune_configs_by: "top_k" leaves no configuration', count, "a positive count, or a fraction up to 1.0")
    if len(pruned) == 1:
        return Decision(config=pruned[0], how="only", reason="one configuration is left after pruning", key=key), {}
    passed = kwargs.keys() - {"grid", "warmup"}
    if conflicts := [name for name in passed if any(name in config.kwargs for config in pruned)]:
        # The text of triton.autotune, whose users may look for it.
        raise ValueError(
            f"Conflicting meta-parameters: {', '.join(sorted(conflicts))}. Make sure that you don't re-define auto-tuned symbols."
        )
    # An option that every configuration sets (num_warps) is given twice to the launch, whichever wins: no use in measuring them.
    if twice := [name for name in passed if all(name in config.all_kwargs() for config in pruned)]:
        name = getattr(tuner.base_fn, "__name__", "kernel")
        raise TypeError(
            f"{name}() got multiple values for {', '.join(sorted(twice))}: every configuration sets them, and so does the call,"
            " or an autotuner around this one (a Config(…, num_warps=None) leaves it open)"
        )
    situation = situation_of(tuner, args, kwargs, key, mode, pruned, started)
    if tuner.options.distributed and ranks() > 1:
        return _by_rank_zero(situation)
    return _choose(situation)


def _choose(situation: Situation) -> tuple[Decision, Any]:
    if situation.mode == "predict":
        return _predicted(situation, situation.ranked, provisional=False), {}
    situation.cache.add_problem(situation.problem)
    session = Session(tuner=situation.tuner, call=situation.call, cache=situation.cache, problem=situation.problem.id, predicted_us={})
    decision = _known(situation, session)
    if decision is not None:
        return decision, _told(situation, session)
    why = CAPTURED if internals.is_capturing() else BLOCKED if watching.is_blocked() else UNDECIDED if situation.mode == "cached" else None
    return _measured(situation, session) if why is None else (_without_measuring(situation, session, why), {})


# ---------------------------------------------------------------------------------------------------- what is known already


def _known(situation: Situation, session: Session) -> Decision | None:
    """A decision in the cache, or one that was imported from another tuner's."""
    identities = situation.call.identities
    lists = [situation.exhaustive_list]
    if situation.mode != "exhaustive":
        lists.append(situation.list_name)
    for problem, decided_for in ((situation.problem, lists), (situation.problem.by_name, [""])):
        decided = situation.cache.decision(problem.id, decided_for)
        if decided is not None and decided[0] in identities:
            session.refresh(problem.id)
            how: How = "imported" if decided[1] == IMPORTED else "cached"
            return _decision(situation, session, identities.index(decided[0]), how, "decided before", None)
    return None


# -------------------------------------------------------------------------------------------------------- without measuring


def _predicted(situation: Situation, ranked: Ranking, *, provisional: bool) -> Decision:
    call = situation.call
    if not ranked.modelled:
        default = situation.tuner.options.default or call.configs[0]
        return Decision(
            config=default,
            how="default",
            reason=f"nothing is predicted: {ranked.by}",
            key=situation.key,
            ranked_by=ranked.by,
            provisional=provisional,
        )
    timings = tuple(
        Timing(config=call.configs[i], state="not-measured", predicted_us=ranked.predicted_us.get(i), reason=_unfit(ranked, i))
        for i in ranked.order[:SHOWN]
    )
    return Decision(
        config=call.configs[ranked.order[0]],
        how="predicted",
        reason="not measured",
        key=situation.key,
        ranked_by=ranked.by,
        timings=timings,
        duration_s=time.perf_counter() - situation.started,
        provisional=provisional,
    )


def _unfit(ranked: Ranking, place: int) -> str:
    return "predicted not to fit the GPU" if place in ranked.unfit else ""


def _without_measuring(situation: Situation, session: Session, why: str) -> Decision:
    """While a graph is captured, behind a kernel that hangs, or in mode cached: the best that is known, else the stated default."""
    session.refresh()
    provisional = why != UNDECIDED
    best = best_place(session.rows, range(len(situation.call.configs)), situation.tuner.options.noise)
    if best is not None:
        reason = f"{why}: the fastest measured so far"
        return replace(_decision(situation, session, best, "cached", reason, None), provisional=provisional)
    default = situation.tuner.options.default
    if default is None and provisional:
        decision = _predicted(situation, situation.ranked, provisional=True)
    else:
        config = default or situation.call.configs[0]
        decision = Decision(config=config, how="default", reason=why, key=situation.key, provisional=provisional)
    situation.tuner.say_once(
        why,
        f"{situation.problem.kernel}: {why} for key {situation.key}; using {decision.config} ({decision.how}). "
        "Call advisor.warmup() beforehand, or run once in mode measure.",
    )
    return decision


# ---------------------------------------------------------------------------------------------------------------- measuring


def _measured(situation: Situation, session: Session) -> tuple[Decision, Any]:
    tuner, call = situation.tuner, situation.call
    internals.need_driver(tuner.base_fn)
    ranked = situation.ranked
    session.predicted_us = ranked.predicted_us
    count = len(call.configs)
    most = count if situation.mode == "exhaustive" else most_trials(ranked, count, tuner.options.top_k)
    everything = most >= count - len(ranked.unfit)
    considered: list[int] = []
    if everything:
        considered = [place for place in ranked.order if situation.mode == "exhaustive" or place not in ranked.unfit] or [*ranked.order]
        session.measure(considered)
    else:
        from advisor.autotuning.trials import Trials

        compiled = internals.compiled(tuner.fn, call.launches(range(count))) if tuner.foreseen else frozenset()
        trials = Trials(ranked=ranked, configurations=[config.all_kwargs() for config in call.configs], most=most, compiled=compiled)
        session.likely = [] if compiled else [*trials.order[:most], *ranked.elsewhere]
        tuner.foreseen = True
        while batch := trials.next(_latencies(session), LEAST):
            session.measure(batch)
            considered += batch
    # What was measured earlier (under another list, or by import) counts as well.
    candidates = [place for place in ranked.order if place in session.rows]
    if best_place(session.rows, candidates, tuner.options.noise) is None:
        ran = [place for place in considered if place in session.raw]
        if not ran or not internals.is_interpreted():
            raise _nothing_works(situation, session, considered)
        # Nobody asks the interpreter for speed: the first that runs, as of triton.autotune.
        reason = f"the benchmark gave no time ({session.rows[ran[0]].reason}): the first that runs"
        tuner.pre_hook({**tuner.nargs, **call.kwargs, **call.configs[ran[0]].all_kwargs()}, reset_only=True)
        return _decision(situation, session, ran[0], "default", reason, ranked), _told(situation, session)
    how = "exhaustive" if situation.mode == "exhaustive" else "measured"
    name = situation.exhaustive_list if everything else situation.list_name
    reason = f"fastest of {sum(row.state == 'measured' for row in session.rows.values())} measured"
    with session.alone(name, lambda: situation.cache.decision(situation.problem.id, [name]) is not None) as alone:
        if alone and situation.device.runs and (rounds := str(session.rounds())):
            reason = f"{reason}: {rounds}"
        best = best_place(session.rows, candidates, tuner.options.noise)
        assert best is not None
        stands = situation.cache.decide(situation.problem.id, name, call.identities[best], how)
        if alone and situation.device.runs and tuner.says_what_it_won:
            session.against(_default_place(situation), best)
    lookup.look_again()
    if stands in call.identities:
        best = call.identities.index(stands)
    tuner.pre_hook({**tuner.nargs, **call.kwargs, **call.configs[best].all_kwargs()}, reset_only=True)
    return _decision(situation, session, best, "measured", reason, ranked), _told(situation, session)


def _default_place(situation: Situation) -> int:
    """The configuration that would run untuned: the stated default where it is of the list, else the first."""
    default = situation.tuner.options.default
    return 0 if default is None else next((place for place, config in enumerate(situation.call.configs) if config == default), 0)


def _latencies(session: Session) -> dict[int, float]:
    """Microseconds of what was measured, by place."""
    return {place: row.us for place, row in session.rows.items() if row.state == "measured" and row.us}


def best_place(rows: Mapping[int, Row], order: Any, noise: float) -> int | None:
    """The first in `order` of the configurations within the noise of the fastest: the same on every machine that ranks alike."""
    measured = [place for place in order if place in rows and rows[place].state == "measured" and rows[place].us is not None]
    if not measured:
        return None
    limit = min(rows[place].us or 0.0 for place in measured) * (1 + noise)
    return next(place for place in measured if (rows[place].us or 0.0) <= limit)


def _nothing_works(situation: Situation, session: Session, considered: list[int]) -> Exception:
    for place in considered:
        if place in session.errors:
            return session.errors[place]
    reasons = "; ".join(sorted({row.reason for row in session.rows.values() if row.reason})[:3])
    return MeasurementError(
        f"{situation.problem.kernel}: none of {len(considered)} configurations works",
        reasons,
        "one that works",
        "`advisor cache ls` shows each reason, `advisor cache prune --kernel` forgets them",
    )


def _decision(situation: Situation, session: Session, place: int, how: How, reason: str, ranked: Ranking | None) -> Decision:
    call = situation.call
    order = ranked.order if ranked else range(len(call.configs))
    timings = []
    for position, i in enumerate(order):
        row = session.rows.get(i)
        predicted = ranked.predicted_us.get(i) if ranked else None
        if row is not None:
            _, state, us, low, high, before, why = row[:7]
            predicted, clocks = predicted if before is None else before, session.clocks_mhz.get(i)
            timings.append(Timing(call.configs[i], state, us, low, high, predicted, why, clocks))  # type: ignore[arg-type]
        elif position < SHOWN:
            why = _unfit(ranked, i) if ranked else ""
            timings.append(Timing(config=call.configs[i], state="not-measured", predicted_us=predicted, reason=why))
    return Decision(
        config=call.configs[place],
        how=how,
        reason=reason,
        key=situation.key,
        ranked_by=ranked.by if ranked else "",
        timings=tuple(timings),
        measurements=session.measurements,
        duration_s=time.perf_counter() - situation.started if ranked else None,
        default_us=_us(session, _default_place(situation)),
        chosen_us=_us(session, place),
    )


def _us(session: Session, place: int) -> float | None:
    row = session.rows.get(place)
    return row.us if row is not None and row.state == "measured" else None


def _told(situation: Situation, session: Session) -> dict[Any, Any]:
    """Timings as Triton's listener and `configs_timings` have them: milliseconds, infinite where there is none."""
    timings = {}
    for place, config in enumerate(situation.call.configs):
        row = session.rows.get(place)
        if place in session.raw:
            timings[config] = session.raw[place]
        elif row is not None and row.us is not None:
            low, high = row.low_us, row.high_us
            timings[config] = [row.us / 1e3, (row.us if low is None else low) / 1e3, (row.us if high is None else high) / 1e3]
        elif row is not None:
            timings[config] = [float("inf")] * 3
    return timings


def _by_rank_zero(situation: Situation) -> tuple[Decision, Any]:
    """Rank 0 decides, and tells the others which configuration it is; they measure nothing."""
    if rank() == 0:
        try:
            decision, timings = _choose(situation)
        except Exception as error:
            broadcast({"error": str(error)})
            raise
        places = [i for i, config in enumerate(situation.call.configs) if config is decision.config]
        broadcast({"config": situation.call.identities[places[0]] if places else None})
        return decision, timings
    answer = broadcast(None)
    if "error" in answer:
        raise MeasurementError(f"{situation.problem.kernel}: rank 0 found no configuration that works", answer["error"])
    if answer["config"] is None:  # the stated default, which need not be in the list
        default = situation.tuner.options.default or situation.call.configs[0]
        return Decision(config=default, how="default", reason="rank 0 took the default", key=situation.key), {}
    if answer["config"] not in situation.call.identities:
        raise UsageError(
            f"{situation.problem.kernel}: the ranks tune different lists of configurations", answer["config"], "the same list on every rank"
        )
    chosen = situation.call.configs[situation.call.identities.index(answer["config"])]
    return Decision(config=chosen, how="cached", reason="rank 0 decided", key=situation.key), {}
