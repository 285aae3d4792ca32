"""Recognising the problem of a kernel's call: from hints of the decorator, or the `KERNELS` literal of the kernel's module."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from advisor.result.problem import dtype_of
from advisor.result.schema import FAMILIES, Family, Problem
from advisor.system.errors import AdvisorError, UsageError

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
