"""What loads give: numbers where the launch says what an argument's memory holds, else values that are not known."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.ir import values
from advisor.compiled.ir.values import Value

LOADED = "loaded addresses"
"""Stands for the argument that a pointer points into where its address was loaded, as a number: then for all of memory."""

POSITIONS = object()
"""Contents of an index tensor that holds its own positions: another index everywhere."""

APART_BITS = 32
"""Of addresses that positions stand for: each of another tensor, of up to 4 GiB."""

SHAPE = "the shape of descriptor "
"""Begins the reason why something is not known where it is how large the tensor of a descriptor is."""

FROM = "values loaded from "
"""Begins the reason why a value is not known where its argument is."""


def loaded(operands: Sequence[Value], shape: tuple[int, ...], contents: Mapping[str, Any], where: str = "") -> Value:
    """The value of a `tt.load`.

    Args:
        operands: Its pointer, and what it has of mask and value of masked lanes.
        shape: Of the result; () for scalars.
        contents: What memory holds, by argument: a list, or one number for all of it.
        where: ` in line 12`, for what is not known.
    """
    pointer, base = operands[0], operands[0].base
    if base is None or base not in contents:
        return values.unknown({f"{FROM}{base}" if base not in (None, LOADED) else f"values loaded{where}"}, shape)
    content = contents[base]
    if content is POSITIONS:
        return Value(parts=pointer.parts, shape=shape) if pointer.known else values.unknown(pointer.reasons, shape)
    if isinstance(content, (int, float, bool)):
        return values.number(plain(content), shape)
    flat = np.asarray(content).reshape(-1)
    if flat.size == 0:
        return values.number(0, shape)
    if not pointer.known:
        if (flat == flat[0]).all():
            return values.number(plain(flat[0].item()), shape)
        return values.unknown(pointer.reasons, shape)
    out = _widened(flat[np.clip(pointer.array(), 0, flat.size - 1)])
    mask = operands[1] if len(operands) > 1 else None
    if mask is None or not mask.known:
        return values.assume(values.of(out, shape), mask is not None or pointer.assumed)
    other = operands[2] if len(operands) > 2 and operands[2].known else values.number(0, shape)
    return values.assume(values.of(np.where(mask.array(), out, other.array()), shape), mask.assumed or pointer.assumed)


def _widened(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in the types that values are worked out in."""
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    return array.astype(np.float64) if array.dtype.kind == "f" else array


def addresses(numbers: NDArray[Any]) -> NDArray[Any]:
    """Numbers as addresses: those below any of a GPU are positions (`POSITIONS`), which stand for tensors that lie apart."""
    return np.where(numbers < 1 << APART_BITS, numbers << APART_BITS, numbers)


def not_given(reasons: Iterable[str]) -> list[str]:
    """Arguments whose contents would settle what is not known for these reasons."""
    return sorted(reason.removeprefix(FROM) for reason in reasons if reason.startswith(FROM))


def what_holds(names: Sequence[str]) -> str:
    """`what a holds`, `what a, b and c hold`, in words."""
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    return f"what {listed} hold{'' if len(names) > 1 else 's'}"


def plain(value: Any) -> int | float | bool:
    """A number of Python's."""
    return value.item() if hasattr(value, "item") else value
