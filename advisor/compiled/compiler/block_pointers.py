"""Block pointers for a Triton that has none any more: `tl.make_block_ptr`, `tl.advance`, and `tl.load` and `tl.store` through them.

Triton 3.9 took them out of its language. Earlier versions turned them into pointers, and masks where a boundary is checked, before
anything was optimized (`lib/Dialect/Triton/Transforms/RewriteTensorPointer.cpp`, which also counts offsets in 64 bits): the same is done
here, so that kernels written for those versions can still be looked at. Part of the worker: needs triton and the standard library only.
"""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.language import core, semantic


class BlockPointerType(core.base_type):
    """The type of a block pointer: of what it points to, and of its parts."""

    def __init__(self, base: Any, parts: Any, block: tuple[int, ...]) -> None:
        self.base, self.parts, self.block = base, parts, block

    @property
    def scalar(self) -> BlockPointerType:
        """Itself, as of pointers."""
        return self

    @property
    def element_ty(self) -> Any:
        """A block of the elements that it points to."""
        return core.block_type(self.base.element_ty, list(self.block))

    def _unflatten_ir(self, handles: list[Any], cursor: int) -> tuple[BlockPointer, int]:
        base, cursor = self.base._unflatten_ir(handles, cursor)
        (shape, strides, offsets), cursor = self.parts._unflatten_ir(handles, cursor)
        return BlockPointer(base, shape, strides, offsets, self.block), cursor

    def _flatten_ir_types(self, builder: Any, out: list[Any]) -> None:
        self.base._flatten_ir_types(builder, out)
        self.parts._flatten_ir_types(builder, out)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BlockPointerType):
            return False
        return (self.base, self.block) == (other.base, other.block) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.mangle())

    def __str__(self) -> str:
        return f"block_ptr<{self.element_ty}>"

    def mangle(self) -> str:
        """As part of the name of a function that is given one."""
        return f"BP{self.base.mangle()}{self.parts.mangle()}S{'_'.join(map(str, self.block))}"


class BlockPointer(core.base_value):
    """A base pointer, the sizes and strides of the tensor there, and where in it a block of which shape begins."""

    def __init__(self, base: Any, shape: Any, strides: Any, offsets: Any, block: tuple[int, ...]) -> None:
        super().__init__()
        self.base, self.shape, self.strides, self.offsets, self.block = base, shape, strides, offsets, block
        self.type = BlockPointerType(base.type, core.tuple([shape, strides, offsets]).type, block)

    @property
    def dtype(self) -> BlockPointerType:
        """Its type, as of pointers."""
        return self.type

    def _set_name(self, builder: Any, name: str) -> None:
        """A name for what it consists of is of no use."""

    def _flatten_ir(self, handles: list[Any]) -> None:
        self.base._flatten_ir(handles)
        core.tuple([self.shape, self.strides, self.offsets])._flatten_ir(handles)

    def moved(self, steps: Any, language: Any) -> BlockPointer:
        """The same block so many elements further along each dimension."""
        offsets = [language.add(old, step, False) for old, step in zip(self.offsets, _wide(steps, language), strict=True)]
        return BlockPointer(self.base, self.shape, self.strides, core.tuple(offsets), self.block)

    def pointers(self, language: Any) -> Any:
        """Pointers to all elements of the block."""
        place = self.base
        for dimension, stride in enumerate(self.strides):
            place = language.add(place, language.mul(self._indices(dimension, language), stride, False), False)
        return place

    def mask(self, dimensions: Any, language: Any) -> Any:
        """Which elements lie within the tensor along some dimensions; None: nothing is asked."""
        found = None
        for dimension in (int(core._unwrap_if_constexpr(each)) for each in dimensions):
            index = self._indices(dimension, language)
            here = language.and_(language.greater_equal(index, language.to_tensor(0)), language.less_than(index, self.shape[dimension]))
            found = here if found is None else language.and_(found, here)
        return found

    def _indices(self, dimension: int, language: Any) -> Any:
        """Indices of the block's elements along one dimension, of one size in all others."""
        index = language.cast(language.arange(0, self.block[dimension]), tl.int64)
        index = language.add(index, self.offsets[dimension], False)
        for other in range(len(self.block)):
            index = language.expand_dims(index, other) if other != dimension else index
        return index


def _wide(values: Any, language: Any) -> Any:
    """Sizes, strides and offsets as 64-bit numbers."""
    return core.tuple([language.cast(language.to_tensor(core._unwrap_if_constexpr(value)), tl.int64) for value in values])


def _checked(dimensions: Any) -> tuple[Any, ...]:
    """What `boundary_check` names: dimensions, or one of them."""
    dimensions = core._unwrap_if_constexpr(dimensions)
    if dimensions is None:
        return ()
    return tuple(dimensions) if isinstance(dimensions, (tuple, list, core.tuple)) else (dimensions,)


@core.builtin
def make_block_ptr(base: Any, shape: Any, strides: Any, offsets: Any, block_shape: Any, order: Any, _semantic: Any = None) -> BlockPointer:
    """As Triton had it before 3.9; `order` says nothing of what is read and written."""
    _MADE.append(True)
    block = tuple(int(core._unwrap_if_constexpr(size)) for size in block_shape)
    shape, strides, offsets = (_wide(values, _semantic) for values in (shape, strides, offsets))
    if not len(block) == len(shape) == len(strides) == len(offsets):
        raise ValueError("Expected shape/strides/offsets/block_shape to have the same length")
    return BlockPointer(base, shape, strides, offsets, block)


@core.builtin
def advance(base: BlockPointer, offsets: Any, _semantic: Any = None) -> BlockPointer:
    """As Triton had it before 3.9."""
    return base.moved(offsets, _semantic)


BlockPointer.advance = advance  # type: ignore[attr-defined]  # also a method of it


@core.builtin
def load(
    pointer: Any,
    mask: Any = None,
    other: Any = None,
    boundary_check: Any = (),
    padding_option: Any = "",
    _semantic: Any = None,
    **options: Any,
) -> Any:
    """As Triton had it before 3.9."""
    if isinstance(pointer, BlockPointer):
        mask = pointer.mask(_checked(boundary_check), _semantic)
        padding = core._unwrap_if_constexpr(padding_option)
        other = None if mask is None or not padding else float("nan") if padding == "nan" else 0
        pointer = pointer.pointers(_semantic)
    return _LOAD(pointer, mask, other, _semantic=_semantic, **options)


@core.builtin
def store(pointer: Any, value: Any, mask: Any = None, boundary_check: Any = (), _semantic: Any = None, **options: Any) -> Any:
    """As Triton had it before 3.9."""
    if isinstance(pointer, BlockPointer):
        mask = pointer.mask(_checked(boundary_check), _semantic)
        pointer = pointer.pointers(_semantic)
    return _STORE(pointer, value, mask, _semantic=_semantic, **options)


_LOAD, _STORE = core.load, core.store
_MADE: list[bool] = []


def were_made() -> bool:
    """Whether block pointers were made of what is given here since `provide`."""
    return bool(_MADE)


def provide() -> None:
    """Give the triton of this process what it lacks; one that has block pointers stays as it is."""
    _MADE.clear()
    if hasattr(semantic.TritonSemantic, "make_block_ptr"):
        return
    for function in (make_block_ptr, advance, load, store):
        function.__module__ = core.__name__  # they stand for its own
        setattr(core, function.__name__, function)
        setattr(tl, function.__name__, function)
