"""Integer and boolean values of many programs at once, in the form that keeps them small.

A value of rank r is held as arrays of r + 1 axes: the first over programs (1: the same for all), the others over the tensor's
dimensions, of size 1 where the value does not vary along one. Sums and conjunctions stay lists of such arrays with different
patterns, so that `row[:, None] * stride + column[None, :]` and `row_mask[:, None] & column_mask[None, :]` never become full
blocks, and their active lanes are products of counts.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_DENSE = 24_000_000
"""Elements of an intermediate array; chunks of programs are chosen to stay below."""
OR = " or "
"""Between the arguments that a pointer points into one of."""
ELEMENT_BITS = 38
"""Of the place of an element in its argument, where a pointer points into one of several: what is above tells which."""

Parts = tuple[NDArray[Any], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A known or unknown value.

    Attributes:
        parts: Summands of an integer (or pointer offset, in elements), or factors of a conjunction.
        shape: Of the tensor; () for scalars.
        boolean: Whether `parts` are factors.
        base: Argument that a pointer points into; None for numbers.
        reasons: Why it is not known; empty where it is.
        layout: Sizes and strides of the tensor behind a descriptor that the kernel made.
        assumed: Whether it is this only if what was assumed in place of something unknown is so.
    """

    parts: Parts = ()
    shape: tuple[int, ...] = ()
    boolean: bool = False
    base: str | None = None
    reasons: frozenset[str] = field(default_factory=frozenset)
    layout: tuple[tuple[Value, ...], tuple[Value, ...]] | None = None
    assumed: bool = False

    @property
    def known(self) -> bool:
        """Whether the number is known."""
        return not self.reasons

    @property
    def certain(self) -> bool:
        """Whether it is known, and whatever the data are."""
        return self.known and not self.assumed

    def array(self) -> NDArray[Any]:
        """The value as one array (broadcastable)."""
        if not self.parts:
            return np.full((1,) * (len(self.shape) + 1), self.boolean)
        total = self.parts[0]
        for part in self.parts[1:]:
            total = (total & part) if self.boolean else (total + part)
        return total

    def scalar(self) -> NDArray[Any]:
        """A scalar's values [programs] or [1]."""
        return self.array().reshape(-1)

    @property
    def varying(self) -> Parts:
        """The parts that differ between lanes."""
        return tuple(part for part in self.parts if any(n > 1 for n in part.shape[1:]))


def unknown(reasons: Iterable[str], shape: tuple[int, ...] = (), base: str | None = None) -> Value:
    """A value that is not known."""
    return Value((), shape, False, base, frozenset(reasons) or frozenset({"a value only known at run time"}))


def factors(mask: Value | None) -> Parts:
    """What has to hold for a lane to be active; nothing where there is no mask."""
    return () if mask is None else mask.parts


def number(value: Any, shape: tuple[int, ...] = ()) -> Value:
    """The same number in every lane of every program. Integers of the IR have no sign: one of 64 bits that is unsigned wraps around."""
    boolean = isinstance(value, bool)
    if type(value) is int and value >= 2**63:
        value -= 2**64
    kind: Any = np.bool_ if boolean else (np.float64 if isinstance(value, float) else np.int64)
    return Value((np.full((1,) * (len(shape) + 1), value, dtype=kind),), shape, boolean)


def assume(value: Value, whether: bool = True) -> Value:
    """The same value, which is one only if what was assumed is so."""
    return replace(value, assumed=True) if whether and not value.assumed else value


def of(array: NDArray[Any], shape: tuple[int, ...]) -> Value:
    """A value of one array."""
    return Value((array,), shape, array.dtype == np.bool_)


def _merge(parts: Iterable[NDArray[Any]], combine: Callable[[Any, Any], Any]) -> Parts:
    """Combine parts of the same pattern (which axes vary); a part identical to another in pattern is folded into it."""
    by_pattern: dict[tuple[int, ...], NDArray[Any]] = {}
    for part in parts:
        key = part.shape
        by_pattern[key] = combine(by_pattern[key], part) if key in by_pattern else part
    return tuple(by_pattern.values())


def add(a: Value, b: Value, shape: tuple[int, ...], sign: int = 1) -> Value:
    """a + b or a - b."""
    if not (a.known and b.known):
        return unknown(a.reasons | b.reasons, shape, a.base or b.base)
    if a.boolean or b.boolean:
        parts: Parts = (a.array().astype(np.int64) + sign * b.array().astype(np.int64),)
    else:
        parts = _merge((*a.parts, *((-p if sign < 0 else p) for p in b.parts)), np.add)
    return Value(parts, shape, False, a.base or b.base)


def multiply(a: Value, b: Value, shape: tuple[int, ...]) -> Value:
    """a * b; distributed where one is the same in all lanes."""
    if not (a.known and b.known):
        return unknown(a.reasons | b.reasons, shape)
    for x, y in ((a, b), (b, a)):
        if len(y.parts) == 1 and all(n == 1 for n in y.parts[0].shape[1:]):
            return Value(_merge((p * y.parts[0] for p in x.parts), np.add), shape)
    return of(a.array() * b.array(), shape)


def conjunction(a: Value, b: Value, shape: tuple[int, ...]) -> Value:
    """a and b (of booleans). Where one is unknown the other still bounds it; the reasons stay."""
    reasons = a.reasons | b.reasons
    parts = _merge((*a.parts, *b.parts), np.logical_and)
    return Value(parts, shape, True, None, reasons)


def elementwise(f: Callable[..., Any], shape: tuple[int, ...], *operands: Value) -> Value:
    """f of the operands, densified."""
    reasons = frozenset().union(*(o.reasons for o in operands))
    if reasons:
        return unknown(reasons, shape)
    with np.errstate(all="ignore"):
        return of(np.asarray(f(*(o.array() for o in operands))), shape)


def choose(condition: Value, a: Value, b: Value, shape: tuple[int, ...]) -> Value:
    """a where the condition holds, else b."""
    if not condition.known:
        return unknown(condition.reasons | a.reasons | b.reasons, shape, a.base or b.base)
    chosen = condition.array()
    if chosen.all():
        return a
    if not chosen.any():
        return b
    if not (a.known and b.known):
        return unknown(a.reasons | b.reasons, shape, a.base or b.base)
    if (both := _in_one_space(a, b)) is None:
        return unknown({"a pointer into one of several tensors"}, shape)
    a, b = both
    return Value((np.where(chosen, a.array(), b.array()),), shape, a.boolean, a.base)


def _in_one_space(a: Value, b: Value) -> tuple[Value, Value] | None:
    """Two values of which one or the other counts, with one base: of pointers into different arguments those together, `q or k`, with the
    elements of each far from the other's. None: one of them points into no argument."""
    if a.base == b.base:
        return a, b
    if a.base is None or b.base is None:
        return None
    base = one_of(a.base, b.base)
    return _far_apart(a, base), _far_apart(b, base)


def one_of(*bases: str) -> str:
    """What a pointer points into where it points into one of these arguments, of which some may be several."""
    return OR.join(sorted({name for base in bases for name in base.split(OR)}))


def far_place(argument: str) -> int:
    """What is added to the place of an element in an argument, where a pointer points into one of several; 0 for several."""
    return 0 if OR in argument else (zlib.crc32(argument.encode()) >> 16) + 1 << ELEMENT_BITS


def argument_of(places: Any) -> NDArray[Any]:
    """Of places of elements in one of several arguments, a number for each argument."""
    return np.asarray((places + (1 << ELEMENT_BITS - 1)) >> ELEMENT_BITS)


def within(pointer: Value) -> Value:
    """A pointer with places as in the argument that it points into, whichever that is."""
    return replace(pointer, parts=tuple(part - (argument_of(part) << ELEMENT_BITS) for part in pointer.parts))


def _far_apart(pointer: Value, base: str) -> Value:
    return replace(add(pointer, number(far_place(pointer.base or OR), pointer.shape), pointer.shape), base=base)


def select_programs(active: NDArray[np.bool_], a: Value, b: Value) -> Value:
    """a for active programs, b for the others."""
    if a is b:
        return a
    if active.all():
        return a
    if not active.any():
        return b
    condition = active.reshape((-1,) + (1,) * len(a.shape))
    assumed = a.assumed or b.assumed
    a, b = (_in_one_space(a, b) if a.known and b.known else None) or (a, b)
    if a.known and b.known and a.base == b.base and a.boolean == b.boolean:
        return Value(_chosen_parts(condition, a, b), a.shape, a.boolean, a.base, assumed=assumed)
    return assume(choose(Value((condition,), a.shape, True), a, b, a.shape), assumed)


def _chosen_parts(condition: NDArray[np.bool_], a: Value, b: Value) -> Parts:
    """Of two values the parts of one or the other per program, pattern by pattern, so that sums stay sums."""
    combine: Callable[[Any, Any], Any] = np.logical_and if a.boolean else np.add
    sides: list[dict[tuple[int, ...], NDArray[Any]]] = [{}, {}]
    for chosen_side, value in zip(sides, (a, b), strict=True):
        for part in value.parts:
            key = part.shape[1:]
            chosen_side[key] = combine(chosen_side[key], part) if key in chosen_side else part
    parts = []
    for key in dict.fromkeys((*sides[0], *sides[1])):
        x, y = (side.get(key) for side in sides)
        if x is None or y is None:  # summands that one has not are 0, factors true
            kind = (y if x is None else x).dtype  # type: ignore[union-attr]
            absent = np.full((1,) * (len(key) + 1), a.boolean, kind)
            x, y = (absent if x is None else x), (absent if y is None else y)
        same = x is y or (x.shape == y.shape and np.array_equal(x, y))
        parts.append(x if same else np.where(condition, x, y))
    return tuple(parts)


def expand(value: Value, axis: int, shape: tuple[int, ...]) -> Value:
    """A new dimension of size 1 at `axis`."""
    parts = tuple(np.expand_dims(p, axis + 1) for p in value.parts)
    return Value(parts, shape, value.boolean, value.base, value.reasons)


def with_shape(value: Value, shape: tuple[int, ...]) -> Value:
    """A scalar splat, or a tensor broadcast, to `shape`."""
    if len(value.shape) == len(shape):
        return Value(value.parts, shape, value.boolean, value.base, value.reasons)
    parts = tuple(p.reshape((p.shape[0],) + (1,) * len(shape)) for p in value.parts)
    return Value(parts, shape, value.boolean, value.base, value.reasons)


def joined(parts: Iterable[NDArray[Any]], rank: int) -> list[tuple[set[int], list[int]]]:
    """Parts that share a varying dimension, together: (dimensions, indices of the parts)."""
    groups: list[tuple[set[int], list[int]]] = []
    for i, part in enumerate(parts):
        axes = {d for d in range(rank) if part.shape[d + 1] > 1}
        members = [i]
        rest = []
        for dims, indices in groups:
            if dims & axes:
                axes |= dims
                members = indices + members
            else:
                rest.append((dims, indices))
        groups = [*rest, (axes, members)]
    return groups


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Offsets and factors of a mask that hang together, for they share varying dimensions.

    Attributes:
        dims: The dimensions along which any of them varies.
        offsets: Summands of the address.
        active: Where all factors hold; None: there are none.
    """

    dims: set[int]
    offsets: list[NDArray[Any]]
    active: NDArray[np.bool_] | None

    @property
    def address(self) -> NDArray[Any]:
        """The sum of the offsets, of which there must be some."""
        return functools.reduce(np.add, self.offsets)


def groups(offsets: Sequence[NDArray[Any]], mask: Value | None, rank: int) -> Iterator[Group]:
    """The offsets of an access and the factors of its mask, by the dimensions that they share."""
    both = [*offsets, *factors(mask)]
    for dims, members in joined(both, rank):
        group = [both[i] for i in members if i >= len(offsets)]
        active = functools.reduce(np.logical_and, group) if group else None
        yield Group(dims, [both[i] for i in members if i < len(offsets)], active)


def lanes(mask: Value | None, shape: tuple[int, ...], programs: int) -> NDArray[np.float64]:
    """Active lanes per program [programs]; an unknown mask counts all lanes that its known factors leave."""
    total = np.ones(programs)
    counted: set[int] = set()
    for group in groups((), mask, len(shape)):
        assert group.active is not None
        count = group.active.sum(axis=tuple(range(1, group.active.ndim)), dtype=np.float64)
        full = 1.0
        for d in group.dims:
            if group.active.shape[d + 1] == 1:
                full *= shape[d]
        total = total * count * full
        counted |= group.dims
    for d, size in enumerate(shape):
        if d not in counted:
            total = total * size
    return total


def along(mask: Value | None, axis: int, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Where along a dimension any lane is active, [programs or 1, size]; of an unknown mask its known factors count."""
    selected = np.ones((1, shape[axis]), bool)
    for group in groups((), mask, len(shape)):
        assert group.active is not None
        others = tuple(d + 1 for d in range(len(shape)) if d != axis or axis not in group.dims)
        selected = selected & group.active.any(axis=others).reshape(group.active.shape[0], -1)
    return selected


def distinct(offset: Value, mask: Value | None, shape: tuple[int, ...], programs: int) -> NDArray[np.float64]:
    """Distinct addresses among the active lanes, per program [programs].

    Dimensions whose offsets are summed apart are counted apart and multiplied: exact unless rows overlap.
    """
    total = np.ones(programs)
    for group in groups(offset.varying, mask, len(shape)):
        active: Any = group.active
        if not group.offsets:  # lanes along these dimensions share their addresses: one, where any is active
            if active is not None:
                total = total * active.any(axis=tuple(range(1, active.ndim)))
            continue
        summed: Any = group.address
        if active is None or summed.shape[1:] == active.shape[1:]:
            flat = summed.reshape(len(summed), -1)
            if (flat[:, 1:] > flat[:, :-1]).all():  # all lanes differ, and need not be sorted
                total = total * (flat.shape[1] if active is None else active.reshape(len(active), -1).sum(axis=1))
                continue
        if active is not None:
            summed, active = np.broadcast_arrays(summed, active)
        flat = summed.reshape(summed.shape[0], -1)
        if active is None:
            ordered = np.sort(flat, axis=1)
            total = total * (1 + (np.diff(ordered, axis=1) != 0).sum(axis=1))
        else:
            chosen = active.reshape(flat.shape)
            far = np.iinfo(np.int64).max
            ordered = np.sort(np.where(chosen, flat, far), axis=1)
            fresh = np.concatenate([np.ones((len(ordered), 1), bool), np.diff(ordered, axis=1) != 0], axis=1)
            total = total * (fresh & (ordered != far)).sum(axis=1)
    return total


def extent(offset: Value, mask: Value | None, programs: NDArray[np.bool_]) -> tuple[int, int] | None:
    """Least and greatest offset among the active lanes of the programs chosen; None where no lane is active.

    Of an unknown mask its known factors count. Dimensions whose offsets are summed apart are bounded apart.
    """
    low: Any = np.zeros(1, np.int64)
    high: Any = np.zeros(1, np.int64)
    touching: Any = programs
    for group in groups(offset.parts, mask, len(offset.shape)):
        active: Any = group.active
        if active is None:  # the parts one by one: their sum need not become a block
            for part in group.offsets:
                axes = tuple(range(1, part.ndim))
                low, high = low + part.min(axis=axes), high + part.max(axis=axes)
            continue
        axes = tuple(range(1, active.ndim))
        if group.offsets:
            summed, active = np.broadcast_arrays(group.address, active)
            far = np.iinfo(np.int64)
            least, most = summed.min(axis=axes, where=active, initial=far.max), summed.max(axis=axes, where=active, initial=far.min)
            low, high = low + np.where(least <= most, least, 0), high + np.where(least <= most, most, 0)
        touching = touching & active.any(axis=axes)
    if not touching.any():
        return None
    low, high = np.broadcast_to(low, touching.shape), np.broadcast_to(high, touching.shape)
    return int(low[touching].min()), int(high[touching].max())


def contiguous(pointer: Value, shape: tuple[int, ...]) -> int | None:
    """Elements in a row along the dimension in which addresses advance by one; 1 where there is none.

    None where that is not known, and where all lanes share one address, which says nothing of neighbours.
    """
    if not pointer.known or not shape:
        return None if not pointer.known else 1
    if not pointer.varying:
        return None
    best = 1
    for d, size in enumerate(shape):
        if size == 1:
            continue
        parts = [p for p in pointer.parts if p.shape[d + 1] > 1]
        if not parts:
            continue
        steps = np.diff(functools.reduce(np.add, parts), axis=d + 1)
        one = steps == 1
        if one.all():
            best = max(best, size)
        elif one.any():
            # Runs broken by a wrap-around: the first break of the first program.
            flat = np.moveaxis(one, d + 1, -1).reshape(-1, size - 1)
            run = np.argmin(flat, axis=1) + 1
            best = max(best, int(np.median(np.where(flat.all(axis=1), size, run))))
    return best
