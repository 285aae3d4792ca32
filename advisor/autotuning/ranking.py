"""The order in which configurations are tried: by the model where it knows the problem and the GPU, else as they were given.

Recognising the problem of a kernel's call: from hints of the decorator, or the `KERNELS` literal of the kernel's module.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from advisor.autotuning import keys
from advisor.result.problem import dtype_of
from advisor.result.schema import FAMILIES, Configuration, Family, Problem
from advisor.rows.columns import family_names, needed_parameters
from advisor.system.errors import AdvisorError, UsageError
from advisor.tables.launchability import refused_dtype

if TYPE_CHECKING:
    from advisor.rows.launches import RecordedLaunch

ProblemHint = Callable[[dict[str, Any]], Any]

ONLY_OPS = {"gemm": "gemm"}
"""Families with one operator: a hint need not name it."""

_SHAPE = re.compile(r"\b(\w+)\.shape\[(\d+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    """A call's problem, and how it was recognised."""

    problem: Problem
    how: str  # "hint", "KERNELS"


def canonical_problem(problem: Problem) -> str:
    """The problem as JSON, the same for equal problems; cache state and routing are no part of it."""
    return json.dumps(
        {
            "op": problem.op,
            "sizes": problem.sizes,
            "dtype": problem.dtype,
            "weight_dtype": problem.weight_dtype,
            "output_dtype": problem.output_dtype,
            "block_shape": problem.block_shape,
        },
        sort_keys=True,
        separators=(",", ":"),
    )


def dtype_name(value: Any) -> str | None:
    """`bf16` of a tensor, a descriptor or a dtype; None where it has none that the model knows."""
    dtype = getattr(value, "dtype", None)
    if dtype is None and hasattr(value, "base"):
        dtype = getattr(value.base, "dtype", None)
    if dtype is None and isinstance(value, str):
        dtype = value
    return dtype_of(str(dtype).rsplit(".", 1)[-1]) if dtype is not None else None


def recognise(function: Any, named: Mapping[str, Any], family: str | None, hint: ProblemHint | None) -> tuple[Recognised | None, str]:
    """The problem, or None and why not.

    Args:
        function: The jitted function.
        named: Every argument of the call by name.
        family: The decorator's `family=`.
        hint: The decorator's `problem=`.
    """
    if hint is not None:
        from advisor.pipelines import problem_batch

        # A hint that fails is a mistake of its author, but never a reason for a kernel not to run.
        try:
            recognised = _from_hint(hint(dict(named)), named, family)
            problem_batch([recognised.problem])  # the family's sizes, all of them
            return recognised, ""
        except Exception as error:
            return None, f"problem= failed ({type(error).__name__}: {error})"
    plain = function.fn
    entry = _entry(plain)
    if entry is None:
        return None, "no family is known for it (neither problem= nor KERNELS)"
    try:
        return Recognised(problem=problem_of_call(entry, named), how="KERNELS"), ""
    except (AdvisorError, KeyError, ValueError, TypeError, AttributeError, IndexError) as error:
        return None, f"its KERNELS entry does not fit the call ({type(error).__name__}: {error})"


def _entry(plain: Any) -> dict[str, Any] | None:
    kernels = plain.__globals__.get("KERNELS")
    entry = kernels.get(plain.__name__) if isinstance(kernels, dict) else None
    return entry if isinstance(entry, dict) and "family" in entry and "ops" in entry else None


def _from_hint(hint: Any, named: Mapping[str, Any], family: str | None) -> Recognised:
    if isinstance(hint, Problem):
        return Recognised(problem=hint, how="hint")
    values = dict(hint)
    family = values.pop("family", None) or family
    if family not in FAMILIES:
        raise UsageError("problem= and family= name no family", family, f"one of {', '.join(FAMILIES)}")
    op = values.pop("op", None) or ONLY_OPS.get(str(family))
    if op is None:
        raise UsageError(f"a problem of family {family} must name its op", None, None, 'return {"op": …}')
    types = {name: dtype_name(values.pop(name)) for name in ("dtype", "weight_dtype", "output_dtype") if name in values}
    if "dtype" not in types:
        types["dtype"] = next((dtype for value in named.values() if (dtype := dtype_name(value)) and not isinstance(value, str)), None)
    block = values.pop("block_shape", None)
    problem = Problem(
        family=cast(Family, family),
        op=str(op),
        sizes={name: int(value) for name, value in values.items()},
        dtype=types["dtype"] or "bf16",
        weight_dtype=types.get("weight_dtype"),
        output_dtype=types.get("output_dtype"),
        block_shape=tuple(block) if block else None,
    )
    return Recognised(problem=problem, how="hint")


def problem_of_call(entry: Mapping[str, Any], named: Mapping[str, Any]) -> Problem:
    """The problem of a call, by the kernel's `KERNELS` entry (triton_kernels/README.md).

    Raises:
        InputError: The entry's `block_shape` is none.
        UsageError: No operator's `when` holds, or an expression cannot be evaluated.
    """
    from advisor.measurement.kernel_file import block_shape_of
    from advisor.python_source.described import product_type

    for op, operator in entry["ops"].items():
        if "when" in operator and not evaluate(operator["when"], named):
            continue
        sizes = {name: int(evaluate(expression, named)) for name, expression in operator["sizes"].items()}
        dtype = dtype_name(named.get(entry.get("dtype", "")))
        if dtype is None:
            raise UsageError("no element type is known", entry.get("dtype"), "the name of a tensor argument")
        dtype = product_type(entry, dtype, named)
        other: dict[str, Any] = {
            name: operand
            for name in ("weight_dtype", "output_dtype")
            if (operand := dtype_name(named.get(entry.get(name, "")))) and operand != dtype and dtype != "tf32"
        }
        other["block_shape"] = block_shape_of(entry, dtype)
        return Problem(family=entry["family"], op=op, sizes=sizes, dtype=dtype, **other)
    raise UsageError("no operator of KERNELS is the call's", None, "one whose `when` holds")


def problem_of_record(entry: Mapping[str, Any], launch: RecordedLaunch) -> Problem:
    """The problem of a recorded launch, by the kernel's `KERNELS` entry.

    Raises:
        InputError, UsageError: As `problem_of_call`.
        KeyError, TypeError, ValueError: The record lacks what the entry names.
    """
    named: dict[str, Any] = {**launch.arguments, **launch.constexprs}
    for name, tensor in launch.tensors.items():
        shape = tensor.get("descriptor_shape") or tensor.get("shape", ())
        named[name] = SimpleNamespace(shape=tuple(int(size) for size in shape), dtype=str(tensor.get("dtype", "")))
    return problem_of_call(entry, named)


def evaluate(expression: str, named: Mapping[str, Any]) -> Any:
    """Arithmetic over arguments, `ARGUMENT.shape[i]` and integers; nothing else is understood.

    Raises:
        UsageError: It is something else.
    """
    from advisor.python_source.literals import Evaluator, NotLiteralError

    names: dict[str, Any] = {}

    def shape(match: re.Match[str]) -> str:
        alias = f"shape__{match[1]}__{match[2]}"
        names[alias] = int(named[match[1]].shape[int(match[2])])
        return alias

    text = _SHAPE.sub(shape, str(expression))
    names |= {name: value for name, value in named.items() if isinstance(value, (bool, int, float, str)) or value is None}
    try:
        return Evaluator(names).evaluate_text(text)
    except (NotLiteralError, SyntaxError, ValueError) as error:
        raise UsageError("an expression of KERNELS cannot be evaluated", expression, None, str(error)) from None


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
    named = [named_for(Configuration.from_flat(keys.parameters(identity)), family) for identity in identities]
    others = []
    for identity in identities:
        values = json.loads(identity)
        names = family_names(values, family)
        others.append(keys.as_text({name: values[name] for name in values if names[name] != "GROUP_SIZE_M"}))
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
