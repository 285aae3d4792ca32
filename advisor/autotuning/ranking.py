"""The order in which configurations are tried: by the model where it knows the problem and the GPU, else as they were given."""

from __future__ import annotations

import json
import math
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Positions of the configurations, best first, and what the order is worth.

    `predicted_us` has the predicted latency of every position's configuration, by its place in the given list; empty where no
    model ranked. `unfit` holds those the model says cannot be launched. `why_given` is why they are taken as they were given.
    """

    order: tuple[int, ...]
    by: str
    modelled: bool
    predicted_us: dict[int, float] = field(default_factory=dict)
    unfit: frozenset[int] = frozenset()
    why_given: str = ""


def given_order(count: int, why: str) -> Ranking:
    """The configurations in the order given."""
    return Ranking(order=tuple(range(count)), by=f"given order: {why}", modelled=False, why_given=why)


@lru_cache(maxsize=1)
def predictor() -> Predictor:
    """The predictor that is shipped, loaded once per process."""
    from advisor.learned import load_predictor

    return load_predictor()


def rank(identities: Sequence[str], recognised: Recognised | None, why_not: str, gpu_name: str) -> Ranking:
    """Ranks configurations, by their names in the cache, for a problem. Never raises: without a model the given order stands."""
    if recognised is None:
        return given_order(len(identities), why_not)
    from advisor.gpus.hardware import match_device_name

    try:
        gpu = match_device_name(gpu_name)
        if gpu is None:
            return given_order(len(identities), f"ceilings/ describes no GPU {gpu_name}")
        if (refused := refused_dtype(recognised.problem.dtype, gpu.name, gpu.compute_capability)) is not None:
            return given_order(len(identities), refused)  # whether it runs all the same (e5m2 may), the launch says best
        return _by_model((*identities,), recognised, gpu)
    except (AdvisorError, KeyError, ValueError, TypeError, ArithmeticError) as error:
        return given_order(len(identities), f"the model does not take it ({type(error).__name__}: {error})")


def _by_model(identities: tuple[str, ...], recognised: Recognised, gpu: Any) -> Ranking:
    import numpy as np

    from advisor.pipelines import problem_batch
    from advisor.pipelines.same_launch import launch_numbers, repeats

    count, family = len(identities), recognised.problem.family
    batch, columns = _columns(identities, family)
    missing = [name for name in needed_parameters(family) if name not in batch.parameters]
    if missing:
        return given_order(count, f"its configurations do not name {', '.join(missing)}")
    model, problem = predictor(), problem_batch([recognised.problem])
    scores = np.broadcast_to(model.scores(problem, batch, gpu), (count,))
    microseconds = np.broadcast_to(model.predict(problem, batch, gpu).us, (count,))
    usable = np.isfinite(scores)
    if not usable.any():
        return given_order(count, f"the model says that none fits {gpu.name}")
    order = np.argsort(np.where(usable, scores, np.inf), kind="stable")
    again = repeats(launch_numbers(columns, [recognised.problem])[order])
    order = order[np.lexsort((again, ~usable[order]))]  # what makes a launch once more comes after all others that fit
    return Ranking(
        order=tuple(order.tolist()),
        by=f"{model.name} ({recognised.how}: {family})",
        modelled=True,
        predicted_us={i: us for i, us in enumerate(microseconds.tolist()) if math.isfinite(us)},
        unfit=frozenset(np.flatnonzero(~usable).tolist()),
    )


@lru_cache(maxsize=64)
def _columns(identities: tuple[str, ...], family: str) -> tuple[ConfigurationBatch, dict[str, list[Any]]]:
    """The configurations as the model takes them, and what tells their launches apart (`launch_numbers`).

    Raises:
        UsageError: They do not name the same parameters.
    """
    from advisor.pipelines import configuration_batch

    named = [named_for(Configuration.from_flat(triton_configs.parameters(each)), family) for each in identities]
    columns: dict[str, list[Any]] = {name: [each.parameters.get(name, 0) for each in named] for name in ("BLOCK_SIZE_M", "GROUP_SIZE_M")}
    columns["others"] = []
    for identity in identities:
        values = json.loads(identity)
        names = family_names(values, family)
        columns["others"].append(triton_configs.as_text({name: values[name] for name in values if names[name] != "GROUP_SIZE_M"}))
    return configuration_batch(named), columns


def named_for(configuration: Configuration, family: str) -> Configuration:
    """The configuration under the family's names; a parameter that is neither a number nor a text is left out."""
    names = family_names(configuration.parameters, family)
    known = {names[name]: value for name, value in configuration.parameters.items() if isinstance(value, (bool, int, str))}
    return replace(configuration, parameters=known)
