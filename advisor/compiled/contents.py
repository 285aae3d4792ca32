"""What loads give: numbers where the launch says what an argument's memory holds, else values that are not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from advisor.compiled import values
from advisor.compiled.ir import Operation
from advisor.compiled.values import Value

if TYPE_CHECKING:
    from advisor.compiled.evaluate import Evaluator

FROM = "values loaded from "
"""Begins the reason why a value is not known where its argument is."""


def loaded(evaluator: Evaluator, op: Operation, environment: Mapping[str, Value]) -> Value:
    """The value of a `tt.load`."""
    pointer = evaluator.value(environment, op.operands[0])
    shape = op.result.shape if op.result else ()
    contents, base = evaluator.inputs.contents, pointer.base
    if base is None or base not in contents:
        return values.unknown({f"{FROM}{base}" if base else f"values loaded{op.in_line}"}, shape)
    content = contents[base]
    if isinstance(content, (int, float, bool)):
        return values.number(plain(content), shape)
    flat = np.asarray(content).reshape(-1)
    if flat.size == 0:
        return values.number(0, shape)
    if not pointer.known:
        if (flat == flat[0]).all():
            return values.number(plain(flat[0].item()), shape)
        return values.unknown(pointer.reasons, shape)
    address = np.clip(pointer.array(), 0, flat.size - 1)
    out = flat[address]
    if out.dtype.kind in "iub" and out.dtype != np.bool_:
        out = out.astype(np.int64)
    elif out.dtype.kind == "f":
        out = out.astype(np.float64)
    mask = evaluator.value(environment, op.operands[1]) if len(op.operands) > 1 else None
    if mask is not None and mask.known:
        other = evaluator.value(environment, op.operands[2]) if len(op.operands) > 2 else values.number(0, shape)
        other = other if other.known else values.number(0, shape)
        return values.assume(values.of(np.where(mask.array(), out, other.array()), shape), mask.assumed or pointer.assumed)
    return values.assume(values.of(out, shape), mask is not None or pointer.assumed)


def not_given(reasons: Iterable[str]) -> list[str]:
    """Arguments whose contents would settle what is not known for these reasons."""
    return sorted(reason.removeprefix(FROM) for reason in reasons if reason.startswith(FROM))


def plain(value: Any) -> int | float | bool:
    """A number of Python's."""
    return value.item() if hasattr(value, "item") else value
