"""The order in which configurations are tried: by the model where it knows the problem and the GPU, else as they were given."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from advisor.autotuning import triton_configs
from advisor.autotuning.recognise import Recognised
from advisor.result.schema import Configuration, Problem
from advisor.rows.columns import family_names, needed_parameters
from advisor.system.errors import AdvisorError
from advisor.tables.launchability import refused_dtype

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from advisor.learned import Predictor


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


def rank(configs: Sequence[Any], recognised: Recognised | None, why_not: str, gpu_name: str) -> Ranking:
    """Rank `triton.Config`s for a problem. Never raises: without a model the given order stands."""
    if recognised is None:
        return given_order(len(configs), why_not)
    from advisor.gpus.hardware import match_device_name

    try:
        gpu = match_device_name(gpu_name)
        if gpu is None:
            return given_order(len(configs), f"ceilings/ describes no GPU {gpu_name}")
        if (refused := refused_dtype(recognised.problem.dtype, gpu.name, gpu.compute_capability)) is not None:
            return given_order(len(configs), refused)  # whether it runs all the same (e5m2 may), the launch says best
        return _by_model(configs, recognised, gpu)
    except (AdvisorError, KeyError, ValueError, TypeError, ArithmeticError) as error:
        return given_order(len(configs), f"the model does not take it ({type(error).__name__}: {error})")


def _by_model(configs: Sequence[Any], recognised: Recognised, gpu: Any) -> Ranking:
    import numpy as np

    from advisor.pipelines import configuration_batch, problem_batch
    from advisor.pipelines.same_launch import repeats

    family = recognised.problem.family
    problem = problem_batch([recognised.problem])
    described = [as_configuration(config, family) for config in configs]
    batch = configuration_batch(described)
    missing = [name for name in needed_parameters(family) if name not in batch.parameters]
    if missing:
        return given_order(len(configs), f"its configurations do not name {', '.join(missing)}")
    model = predictor()
    scores = np.broadcast_to(model.scores(problem, batch, gpu), (len(configs),))
    microseconds = np.broadcast_to(model.predict(problem, batch, gpu).us, (len(configs),))
    usable = np.isfinite(scores)
    if not usable.any():
        return given_order(len(configs), f"the model says that none fits {gpu.name}")
    order = np.argsort(np.where(usable, scores, np.inf), kind="stable")
    again = repeats(_launches(configs, described, recognised.problem)[order])
    order = order[np.lexsort((again, ~usable[order]))]  # what makes a launch once more comes after all others that fit
    return Ranking(
        order=tuple(int(i) for i in order),
        by=f"{model.name} ({recognised.how}: {family})",
        modelled=True,
        predicted_us={i: float(us) for i, us in enumerate(microseconds) if math.isfinite(us)},
        unfit=frozenset(int(i) for i in np.flatnonzero(~usable)),
    )


def _launches(configs: Sequence[Any], described: Sequence[Configuration], problem: Problem) -> NDArray[np.int64]:
    """Numbers of the launches that the configurations make (`launch_numbers`), [c]."""
    from advisor.pipelines.same_launch import launch_numbers

    columns = {name: [each.parameters.get(name, 0) for each in described] for name in ("BLOCK_SIZE_M", "GROUP_SIZE_M")}
    own = [{name for name, target in family_names(config.kwargs, problem.family).items() if target == "GROUP_SIZE_M"} for config in configs]
    others = [triton_configs.identity(config, without=names) for config, names in zip(configs, own, strict=True)]
    return launch_numbers({**columns, "others": others}, [problem])


def as_configuration(config: Any, family: str) -> Configuration:
    """A `triton.Config` with the parameter names of the family."""
    names = family_names(config.kwargs, family)
    parameters: dict[str, int | bool | str] = {
        names[name]: value for name, value in config.kwargs.items() if isinstance(value, (bool, int, str))
    }
    return Configuration(
        parameters=parameters,
        num_warps=config.num_warps,
        num_stages=config.num_stages,
        num_ctas=config.num_ctas or 1,
        maxnreg=config.maxnreg,
    )
