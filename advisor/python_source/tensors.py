"""Tensors as the function around a launch speaks of them: what their shapes, strides and types follow from, as far as that is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from advisor.python_source.literals import NotLiteralError, Unknown

MADE = frozenset({"empty", "zeros", "ones", "full", "rand", "randn", "new_empty", "new_zeros", "new_ones", "new_full"})
"""Functions and methods that make a tensor of a shape."""
DEFAULT_TYPES = {
    **dict.fromkeys(("empty", "zeros", "ones", "rand", "randn"), "float32"),
    **dict.fromkeys(("randint", "randperm"), "int64"),
}
"""Functions of torch that make a tensor -> the type of its elements where a call names none."""
LIKE = frozenset({"empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"})
"""Functions that make a tensor of the shape of another."""
OF_VALUES = frozenset({"torch.tensor", "torch.arange", "torch.as_tensor", "torch.randint", "torch.randperm"})
"""Functions that make a tensor of values, or of a shape that is not read."""
SAME_SHAPE = frozenset({"contiguous", "clone", "to", "detach", "half", "float", "bfloat16", "cuda", "requires_grad_"})
"""Methods of a tensor that give one of the same shape."""
SAME_TYPE = frozenset(
    {"clone", "contiguous", "cuda", "detach", "expand", "expand_as", "fill_", "flatten", "flip", "mT", "movedim", "narrow", "permute"}
    | {"repeat", "reshape", "reshape_as", "select", "squeeze", "swapaxes", "t", "T", "transpose", "unflatten", "unsqueeze", "view_as"}
    | {"zero_", "requires_grad_"}
)
"""Methods and attributes of a tensor that give one of the same type."""
TYPE_OF = {"half": "float16", "float": "float32", "bfloat16": "bfloat16"}
"""Methods of a tensor that give one of a type -> that type."""
MOST_DIMENSIONS = 8


@dataclass(frozen=True, slots=True)
class Extent:
    """`x.shape[i]`; `index` counts from the end where it is negative."""

    tensor: str
    index: int


@dataclass(frozen=True, slots=True)
class Stride:
    """`x.stride(i)`."""

    tensor: str
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Number(Unknown):
    """An extent or a stride that is not known."""

    of: Extent | Stride


@dataclass(frozen=True, slots=True, eq=False)
class Tensor(Unknown):
    """Something of a function of whose value nothing is known, such as a tensor.

    Attributes:
        name: Stands for it among extents and strides; those that have one shape share it.
        extents: Integers and `Number`s, None for one of which nothing is said; None: how many there are is not said.
        element: Type of its elements, "int32"; None: not said.
        typed_as: The tensor whose type it has, where it has another name, and nothing, or an assertion alone, says what that is.
        given: Whether whoever calls the function has to give it.
    """

    name: str
    extents: tuple[Any, ...] | None = None
    element: str | None = None
    given: bool = False
    typed_as: str = ""

    @property
    def kind(self) -> str:
        """Its type, "int32", or "that of x" where an argument of the function decides it, which it may assert; "": neither is known."""
        like = self.typed_as or self.name
        return self.element if self.element and not self.typed_as else f"that of {like}" if like.isidentifier() else ""


@dataclass(frozen=True, slots=True, eq=False)
class OfElements(Unknown):
    """The type of a tensor's elements, where nothing says it, in torch's words or in others."""

    tensor: str


@dataclass(frozen=True, slots=True, eq=False)
class Whole(Unknown):
    """`x.shape`, `x.size()` or `x.stride()`."""

    tensor: Tensor
    kind: Literal["shape", "stride"]

    def at(self, index: int) -> Any:
        """One of its items: what the tensor's extent is said to be, or what it asks for."""
        if self.kind == "stride":
            return Number(Stride(self.tensor.name, index))
        extents = self.tensor.extents or ()
        extent = extents[index] if -len(extents) <= index < len(extents) else None
        return Number(Extent(self.tensor.name, index)) if extent is None else extent


def joined(values: Sequence[Any], name: str) -> Any:
    """What one of some values is, whichever it is; a tensor of which nothing is known but what all agree on where they differ."""
    first = values[0]
    if all(_same(first, value) for value in values[1:]):
        return first
    tensors = [value for value in values if isinstance(value, Tensor)]
    if not tensors or not all(isinstance(value, Tensor) or value is None for value in values):
        return Tensor(name)
    elements = {tensor.element for tensor in tensors}
    typed_as = tensors[0].typed_as if len({tensor.kind for tensor in tensors}) == 1 else f"{name}:"  # of no one's type
    element = elements.pop() if len(elements) == 1 else None
    known = replace(tensors[0], element=element, given=all(tensor.given for tensor in tensors), typed_as=typed_as)
    if len(tensors) < len(values):
        return Tensor(name, element=known.element)
    if len({tensor.name for tensor in tensors}) == 1:
        return known
    shapes = [tensor.extents for tensor in tensors if tensor.extents is not None]
    if len(shapes) < len(tensors) or len({*map(len, shapes)}) > 1:
        return replace(known, name=name, extents=None)
    extents = (column[0] if all(_same(column[0], size) for size in column) else None for column in zip(*shapes, strict=True))
    return replace(known, name=name, extents=tuple(extents))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Number) and isinstance(other, Number):
        return one.of == other.of
    try:
        return one is other or (type(one) is type(other) and bool(one == other))
    except NotLiteralError:
        return False
