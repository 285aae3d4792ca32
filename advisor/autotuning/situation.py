"""The inputs of a choice: the call, its configurations, the recognised problem, the GPU, and the cache."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from advisor.autotuning import internals, ranking, source, triton_configs
from advisor.autotuning.decisions import keys
from advisor.autotuning.decisions.cache import FOR_CONSTANTS, WITH_HOOKS, Cache, ProblemKey, memory_cache
from advisor.autotuning.measuring import Call
from advisor.autotuning.ranking import Ranking
from advisor.autotuning.recognise import Recognised, recognise
from advisor.autotuning.tunable import Tunable
from advisor.system.settings import Mode


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
        return triton_configs.list_hash(self.call.identities, "all")

    @cached_property
    def list_name(self) -> str:
        """Name of the decision over the first of them."""
        return triton_configs.list_hash(self.call.identities, "top", self.tuner.options.top_k)

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
        unique.setdefault(triton_configs.identity(config), config)
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
    given = {name: value for name, value in kwargs.items() if name not in (*tuner.arg_names, "grid", "warmup")}
    constants = source.passed_constants(function, named, tuner.keys, given) if hasattr(function, "fn") else ""
    stable = all(map(keys.is_stable, identities))
    kept = text is not None and digest is not None and stable and _persists(tuner, device)
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
        problem=recognised.canonical() if recognised else None,
    )
    cache = (options.cache or tuner.default_cache()) if kept else memory_cache()
    if not kept:
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
