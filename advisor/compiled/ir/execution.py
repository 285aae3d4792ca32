"""What the evaluation of a kernel takes, contents of memory included, what it finds per program, and what executions share of it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.ir import values
from advisor.compiled.ir.ir import Block, Operation
from advisor.compiled.ir.values import Value

Active = NDArray[np.bool_]
Count = NDArray[np.float64]
Integers = NDArray[np.int64]
Part = tuple[int, bool]
"""Of what a block or an access does (its `id`), what is certain, or what is assumed in place of something unknown (True)."""
Places = dict[tuple[int, tuple[bytes, ...], bytes], list[Integers]]
"""By tag of the programs, sets of the lanes and set of starts (keys of `Execution.sets`): what is added to the starts, per trip."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The launch as the kernel sees it.

    Attributes:
        scalars: Value per argument that is a number.
        contents: What an argument's memory holds, flat, or one number for all of it: for index tensors (`loaded`).
        sizes: Elements of an argument's memory.
        shapes: Shape per tensor descriptor.
        assumed_trips: Trips of a loop whose bounds are not known.
        arguments: What the arguments are called, in order; the IR may call one by a variable that it is assigned to, and two that are
            the same tensor go by one name. Empty: as the IR calls them.
    """

    scalars: Mapping[str, int | float | bool]
    contents: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    assumed_trips: int = 1
    arguments: tuple[str, ...] = ()

    def called(self, names: Sequence[str]) -> tuple[str, ...]:
        """What arguments of the IR are called, where those of the source stand for them one by one: a descriptor becomes several."""
        return self.arguments if len(self.arguments) == len(names) else tuple(names)


@dataclass(frozen=True, slots=True, eq=False)
class Running:
    """The programs that run what is evaluated now.

    Attributes:
        active: Which they are.
        times: How often each of them runs it; of the others this says nothing.
        assumed: The programs in which it is only assumed to run; None: in none.
        tags: What programs are told apart by where the trips of a loop are sampled; None: by nothing.
    """

    active: Active
    times: Count
    assumed: Active | None = None
    tags: Integers | None = None

    @property
    def counts(self) -> Count:
        """How often each program runs it."""
        return np.where(self.active, self.times, 0.0)

    def among(self, active: Active) -> Running:
        """The same of other programs."""
        return replace(self, active=active)

    def assuming(self, programs: Active | bool) -> Running:
        """The same, only assumed in some programs (True: in all), beside those in which it was before."""
        if not np.any(programs):
            return self
        before = np.zeros(len(self.active), bool) if self.assumed is None else self.assumed
        return replace(self, assumed=np.logical_or(before, programs))

    def parts(self) -> list[tuple[bool, Running]]:
        """What certainly runs (False), and what is assumed to (True)."""
        if self.assumed is None:
            return [(False, self)]
        split = [(False, self.active & ~self.assumed), (True, self.active & self.assumed)]
        return [(assumed, self.among(active)) for assumed, active in split if active.any()]


@dataclass(slots=True, eq=False)
class Access:
    """What one memory operation does, per program: how often it executes, lanes issued, distinct lanes."""

    operation: Operation
    executions: Count
    lanes: Count
    distinct: Count
    base: str | None = None
    low: int | None = None  # least and greatest element touched; None: no lane was active
    high: int | None = None
    unknown_extent: bool = False
    unlocated: bool = False  # some execution's address is not known
    unlocated_for: set[str] = field(default_factory=set)  # why it is not
    masked: bool = False
    contiguous: int | None = None  # elements in a row along the last dimension
    sector_ratio: float = 1.0


@dataclass(slots=True, eq=False)
class LoopCount:
    """A loop: how often it is entered, and trips in total, per program."""

    operation: Operation
    entries: Count
    trips: Count
    reasons: set[str] = field(default_factory=set)
    sampled: bool = False


@dataclass(slots=True, eq=False)
class Padded:
    """A matrix product, per program: how often it executes, and how often were it as large as what its tile holds of the problem.

    Attributes:
        filled: Executions, each counted as the share of it that is not padding.
        deep: The same, of the depth alone.
        left: The same, of the left operand: rows and depth.
        right: The same, of the right one: depth and columns.
    """

    operation: Operation
    executions: Count
    filled: Count
    deep: Count
    left: Count
    right: Count


@dataclass(slots=True, eq=False)
class Execution:
    """What the evaluation found, per program (arrays [programs])."""

    programs: int
    blocks: dict[Part, Count] = field(default_factory=dict)
    block_of: dict[int, Block] = field(default_factory=dict)
    accesses: dict[Part, Access] = field(default_factory=dict)
    loops: dict[int, LoopCount] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)  # what is not known -> where it mattered
    approximations: set[str] = field(default_factory=set)
    places: dict[Part, Places] = field(default_factory=dict)
    sets: dict[bytes, NDArray[Any]] = field(default_factory=dict)
    divisors: set[int] = field(default_factory=set)  # that scalars are divided by
    products: dict[Part, Padded] = field(default_factory=dict)
    stored: dict[tuple[int, int], Active] = field(default_factory=dict)  # by store and dimension: which places of it [programs, size]

    def loop(self, op: Operation) -> LoopCount:
        """What was found of a loop so far; nothing at first."""
        if id(op) not in self.loops:
            self.loops[id(op)] = LoopCount(op, np.zeros(self.programs), np.zeros(self.programs))
        return self.loops[id(op)]

    def assume(self, reasons: Iterable[str], what: str, op: Operation, assumption: str) -> None:
        """Name what is not known, and what is assumed in its place at an operation."""
        for reason in sorted(reasons):
            self.unknown.setdefault(reason, f"{what}{op.in_line}: {assumption}")


LOADED = "loaded addresses"
"""Stands for the argument that a pointer points into where its address was loaded, as a number: then for all of memory."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Contents of an index tensor that holds its own positions, another index everywhere; `apart`: how far from the next, as where a row
    of many elements begins."""

    apart: int = 1


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
        contents: What memory holds, by argument: a list, of which the last number goes on; an array (as `random(…)` makes), which is
            repeated; or one number for all of it.
        where: ` in line 12`, for what is not known.
    """
    pointer, base = operands[0], operands[0].base
    if base is None or base not in contents:
        return values.unknown({f"{FROM}{base}" if base not in (None, LOADED) else f"values loaded{where}"}, shape)
    content = contents[base]
    if isinstance(content, Positions):
        parts = tuple(part * content.apart for part in pointer.parts)
        return Value(parts=parts, shape=shape) if pointer.known else values.unknown(pointer.reasons, shape)
    if isinstance(content, (int, float, bool)):
        return values.number(plain(content), shape)
    flat = np.asarray(content).reshape(-1)
    if flat.size == 0:
        return values.number(0, shape)
    if not pointer.known:
        if (flat == flat[0]).all():
            return values.number(plain(flat[0].item()), shape)
        return values.unknown(pointer.reasons, shape)
    out = _widened(flat.take(pointer.array(), mode="wrap" if isinstance(content, np.ndarray) else "clip"))
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
    """Numbers as addresses: those below any of a GPU are `Positions`, which stand for tensors that lie apart."""
    return np.where(numbers < 1 << APART_BITS, numbers << APART_BITS, numbers)


def not_given(reasons: Iterable[str]) -> list[str]:
    """Arguments whose contents would settle what is not known for these reasons."""
    return sorted(reason.removeprefix(FROM) for reason in reasons if reason.startswith(FROM))


def what_holds(names: Sequence[str]) -> str:
    """`the contents of a, b and c`."""
    return f"the contents of {listed(names)}"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def plain(value: Any) -> int | float | bool:
    """A number of Python's."""
    return value.item() if hasattr(value, "item") else value


Found = TypeVar("Found")


@dataclass(slots=True)
class Remembered:
    """Results by what they say of which arrays, which are told apart by their `id` and so must live as long."""

    _found: dict[tuple[Hashable, ...], Any] = field(default_factory=dict)
    _kept: list[Sequence[NDArray[Any]]] = field(default_factory=list)

    def recall(self, what: Hashable, work: Callable[[], Found], *groups: Sequence[NDArray[Any]]) -> Found:
        """The result of `work`, done once for the same arrays.

        Args:
            what: Names what is worked out, with all it depends on beside the arrays.
            work: Works it out.
            groups: The arrays, in the places in which it takes them.
        """
        key = (what, *(tuple(map(id, group)) for group in groups))
        if key not in self._found:
            self._found[key] = work()
            self._kept.extend(groups)
        return self._found[key]

    def forget(self) -> None:
        """Forget all, so that the arrays need not be kept."""
        self._found.clear()
        self._kept.clear()
