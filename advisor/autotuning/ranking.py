"""The order in which configurations are tried: by the model where it knows the problem and the GPU, else as they were given."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from advisor.autotuning import triton_configs
from advisor.autotuning.recognise import Recognised
from advisor.result.schema import Configuration
from advisor.rows.columns import family_names, needed_parameters
from advisor.system.errors import AdvisorError
from advisor.tables.launchability import refused_dtype

if TYPE_CHECKING:
    from advisor.learned import Predictor
    from advisor.pipelines import ConfigurationBatch


LEAST, MOST = 4, 8
"""Configurations measured at least, where there are as many, and at most of a list that the model of a family ranks (`top_k` says more)."""
SHARE = 5
"""Of a list that the model of a family ranks one in so many is measured, from `LEAST` to `MOST`: of 12 to 24 configurations four."""
UNLEARNED_SHARE = 3
"""Of one that is ranked by its code alone one in so many, at least `MOST`."""
GROUPS = re.compile("GROUP|SWIZZLE", re.IGNORECASE)
"""Names of parameters that say how many tiles are visited together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Positions of the configurations, best first, and what the order is worth.

    Attributes:
        order: Places in the given list.
        by: What ranked, in words.
        modelled: Whether a model did.
        predicted_us: The predicted latency of every configuration that is thought to fit, by place; empty where no model ranked.
        unfit: Those the model says cannot be launched.
        why_given: Why they are taken as they were given.
        scores: By place, least for what is tried first, infinite for what is not worth a trial: it does not fit, or makes a launch once
            more. Empty without a model.
        learned: Whether the model learned from configurations of such kernels.
        by_code: Whether it knows no family, and goes by what the code demands.
        spread: Standard deviation of the log of measured over predicted latency; 0: not known.
        elsewhere: Places that lead at other sizes of the problem, which cores that have nothing to do may compile.
    """

    order: tuple[int, ...]
    by: str
    modelled: bool
    predicted_us: dict[int, float] = field(default_factory=dict)
    unfit: frozenset[int] = frozenset()
    why_given: str = ""
    scores: tuple[float, ...] = ()
    learned: bool = True
    by_code: bool = False
    spread: float = 0.0
    elsewhere: tuple[int, ...] = ()


def most_trials(ranked: Ranking, count: int, top_k: int | None) -> int:
    """The most configurations that are measured of a list of `count`; all of them where nothing ranks it."""
    if not ranked.modelled:
        return count
    if top_k is not None:
        return min(top_k, count)
    if ranked.by_code:
        return min(max(MOST, count // UNLEARNED_SHARE), count)
    return min(max(LEAST, min(count // SHARE, MOST)), count)


def given_order(count: int, why: str) -> Ranking:
    """The configurations in the order given."""
    return Ranking(order=tuple(range(count)), by=f"given order: {why}", modelled=False, why_given=why)


@lru_cache(maxsize=1)
def predictor() -> Predictor:
    """The predictor that is shipped, loaded once per process."""
    from advisor.learned import load_predictor

    return load_predictor()


def rank(
    identities: Sequence[str],
    recognised: Recognised | None,
    why_not: str,
    gpu_name: str,
    configurations: Sequence[Configuration | None] | None = None,
) -> Ranking:
    """Ranks configurations, by their names in the cache, for a problem. Never raises: without a model the given order stands.

    Args:
        identities: The configurations, as the cache names them.
        recognised: The problem; None: not known.
        why_not: Why it is not.
        gpu_name: The GPU, as the driver calls it.
        configurations: What they are by the family's names, where their own do not say; None among them: not known, and tried last.
    """
    if recognised is None:
        return given_order(len(identities), why_not)
    from advisor.gpus.hardware import match_device_name

    try:
        gpu = match_device_name(gpu_name)
        if gpu is None:
            return given_order(len(identities), f"ceilings/ describes no GPU {gpu_name}")
        if (refused := refused_dtype(recognised.problem.dtype, gpu.name, gpu.compute_capability)) is not None:
            return given_order(len(identities), refused)  # whether it runs all the same (e5m2 may), the launch says best
        if configurations is None:
            return _by_model(_columns((*identities,), recognised.problem.family), recognised, gpu)
        known = [place for place, configuration in enumerate(configurations) if configuration is not None]
        named = [configuration for configuration in configurations if configuration is not None]
        others = [str(replace(configuration, parameters={**configuration.parameters, "GROUP_SIZE_M": 0})) for configuration in named]
        ranked = _by_model(_batched(named, others), recognised, gpu)
        if not ranked.modelled:
            return given_order(len(identities), ranked.why_given)
        unnamed = [place for place in range(len(identities)) if place not in set(known)]
        scores = dict(zip(known, ranked.scores, strict=True))
        return replace(
            ranked,
            order=(*(known[i] for i in ranked.order), *unnamed),
            predicted_us={known[i]: us for i, us in ranked.predicted_us.items()},
            unfit=frozenset(known[i] for i in ranked.unfit),
            scores=tuple(scores.get(place, math.inf) for place in range(len(identities))),
        )
    except (AdvisorError, KeyError, ValueError, TypeError, ArithmeticError) as error:
        return given_order(len(identities), f"the model does not take it ({type(error).__name__}: {error})")


def _by_model(configurations: tuple[ConfigurationBatch, dict[str, list[Any]]], recognised: Recognised, gpu: Any) -> Ranking:
    import numpy as np

    from advisor.pipelines import problem_batch
    from advisor.pipelines.batch import launch_numbers, repeats

    family, (batch, columns) = recognised.problem.family, configurations
    count = len(columns["others"])
    missing = [name for name in needed_parameters(family) if name not in batch.parameters]
    if missing:
        return given_order(count, f"its configurations do not name {', '.join(missing)}")
    model, problem = predictor(), problem_batch([recognised.problem])
    scores = np.broadcast_to(model.scores(problem, batch, gpu), (count,))
    prediction = model.predict(problem, batch, gpu)
    microseconds = np.broadcast_to(prediction.us, (count,))
    usable = np.isfinite(scores)
    if not usable.any():
        return given_order(count, f"the model says that none fits {gpu.name}")
    order = np.argsort(np.where(usable, scores, np.inf), kind="stable")
    again = repeats(launch_numbers(columns, [recognised.problem])[order])
    worth = usable.copy()
    worth[order[again]] = False
    order = order[np.lexsort((again, ~usable[order]))]  # what makes a launch once more comes after all others that fit
    return Ranking(
        order=tuple(order.tolist()),
        by=f"{model.name} ({recognised.how}: {family})",
        modelled=True,
        predicted_us={i: us for i, us in enumerate(microseconds.tolist()) if math.isfinite(us)},
        unfit=frozenset(np.flatnonzero(~usable).tolist()),
        scores=tuple(np.where(worth, scores, np.inf).tolist()),
        learned=bool(np.broadcast_to(prediction.learned, (count,))[order[0]]),
        spread=prediction.sigma(int(order[0])),
    )


@lru_cache(maxsize=64)
def _columns(identities: tuple[str, ...], family: str) -> tuple[ConfigurationBatch, dict[str, list[Any]]]:
    """The configurations as the model takes them, and what tells their launches apart (`launch_numbers`).

    Raises:
        UsageError: They do not name the same parameters.
    """
    named = [named_for(Configuration.from_flat(triton_configs.parameters(identity)), family) for identity in identities]
    others = []
    for identity in identities:
        values = json.loads(identity)
        names = family_names(values, family)
        others.append(triton_configs.as_text({name: values[name] for name in values if names[name] != "GROUP_SIZE_M"}))
    return _batched(named, others)


def _batched(named: Sequence[Configuration], others: list[str]) -> tuple[ConfigurationBatch, dict[str, list[Any]]]:
    """Configurations by the family's names as the model takes them, and what tells their launches apart; `others`: all but the group."""
    from advisor.pipelines import configuration_batch

    columns: dict[str, list[Any]] = {
        name: [configuration.parameters.get(name, 0) for configuration in named] for name in ("BLOCK_SIZE_M", "GROUP_SIZE_M")
    }
    return configuration_batch(named), {**columns, "others": others}


def named_for(configuration: Configuration, family: str) -> Configuration:
    """The configuration under the family's names; a parameter that is neither a number nor a text is left out."""
    names = family_names(configuration.parameters, family)
    known = {names[name]: value for name, value in configuration.parameters.items() if isinstance(value, (bool, int, str))}
    return replace(configuration, parameters=known)
