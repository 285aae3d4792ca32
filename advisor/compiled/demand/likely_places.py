"""What has a guess in its place: trips of loops, and where accesses go, which is likely that rows follow one another, and indices differ.

On these guesses hangs the distance to the bound. What is not known is never counted as nothing, nor as one place for all programs; the
bound takes no part in this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.demand.counts import AccessDemand, KernelDemand
from advisor.compiled.demand.footprints import likely_footprints
from advisor.compiled.ir.execution import Inputs, Positions, listed, not_given, what_holds
from advisor.compiled.ir.ir import Operation
from advisor.compiled.ir.values import OR, argument_of
from advisor.python_source.stride_use import STRIDE_NAME
from advisor.system import grouped

ARGUMENT = "argument "
"""Begins the reason why something is not known where it is an argument's value."""

NOT_TOLD = "data that are not given"


def untold_place(argument: str | None, operation: Operation) -> str:
    """What is not known of an access of which it is not where it goes."""
    if argument:
        return f"the addresses of accesses to {argument}"
    where = f"line {operation.line}" if operation.location else "an access"
    return f"the tensor and addresses of {where}"  # such as behind a pointer that was loaded


def guessed_trips(demand: KernelDemand) -> frozenset[str]:
    """Why it is not known how often loops run: a prediction takes a number of trips that nothing tells."""
    return frozenset(reason for loop in demand.loops if loop.entries for reason in loop.reasons)


def guessed_places(demand: KernelDemand) -> frozenset[str]:
    """Why it is not known which bytes are touched, of all accesses of which it is not."""
    return frozenset[str]().union(*(access.unlocated_for or {NOT_TOLD} for access in demand.accesses if access.reach_bytes is None))


def if_distinct(demand: KernelDemand, inputs: Inputs) -> KernelDemand:
    """The demand if accesses of which it is not known where they go touched other bytes each time, as far as tensors are large enough."""
    accesses = tuple(replace(access, argument=access.name) for access in demand.accesses)  # also of which it is not known to what they go
    endless = dict.fromkeys((access.name for access in accesses if access.argument not in inputs.shapes), 2**62)
    inputs = replace(inputs, sizes={**endless, **inputs.sizes})
    loads = tuple(access for access in accesses if access.kind == "load")
    rest = tuple(access for access in accesses if access.kind != "load")
    return replace(
        demand,
        likely_footprint_bytes=likely_footprints(accesses, inputs, demand.programs),
        likely_read_footprints=likely_footprints(loads, inputs, demand.programs),
        likely_written_footprints=likely_footprints(rest, inputs, demand.programs),
    )


MOST_NAMED = 4
"""Arguments that a sentence names whose values are not known, and how many more there are."""


def in_words(reasons: Iterable[str]) -> str:
    """What these reasons name: `the contents of lengths, and the values of m and n`."""
    reasons = sorted(reasons)
    tensors = not_given(reasons)
    values = [reason.removeprefix(ARGUMENT) for reason in reasons if reason.startswith(ARGUMENT)]
    named = [what_holds(tensors)] if tensors else []
    more = [f"{len(values) - MOST_NAMED + 1} more"] if len(values) > MOST_NAMED else []
    shown = values[: MOST_NAMED - 1] if more else values
    named += [f"the value{'s' if len(values) > 1 else ''} of {listed([*shown, *more])}"] if values else []
    return ", and ".join(named) or NOT_TOLD


LONGEST_ROW = 2**16
"""Elements, or rows of a sequence, from one offset to the next."""
LOOKED_AT = 128
"""Programs that tell how far apart rows are; the first and the last are among them."""
ALIGNED = 16
"""Elements that strides of rows as long are multiples of, as the compiler is told of those that are not given."""

PREDICTED = ", the prediction"
"""Parts what is said of the bound from what is said of the prediction."""

Count = Callable[[Inputs, NDArray[np.int64] | None], KernelDemand]


def looked_at(programs: int) -> NDArray[np.int64]:
    """Flat indices of a few programs of a grid of so many, spread evenly, the first and the last among them."""
    return np.unique(np.linspace(0, max(programs, 1) - 1, LOOKED_AT).astype(np.int64))


def likely_inputs(demand: KernelDemand, inputs: Inputs, count: Count) -> Inputs | None:
    """The arguments with likely values where addresses hang on those that are not known; None: on none that has one.

    Index tensors hold another index everywhere, but for those that decide trips of loops; ends of ragged rows lie as far apart as none of
    them is long. Sizes are as long as the tile that they stride
    over. A stride is the distance at which rows just do not overlap, the last of a kernel's the innermost.

    Args:
        demand: As counted without.
        inputs: The arguments.
        count: The demand with other arguments, of some programs (None: of all).
    """
    unlocated = [access for access in demand.accesses if access.reach_bytes is None]
    reasons = frozenset[str]().union(*(access.unlocated_for for access in unlocated))
    names = [reason.removeprefix(ARGUMENT) for reason in reasons if reason.startswith(ARGUMENT)]
    names.sort(key=lambda name: inputs.arguments.index(name) if name in inputs.arguments else -1)
    indices = set(not_given(reasons)) - set(not_given(guessed_trips(demand)))
    if demand.programs <= 1 or not (names or indices):
        return None
    strides = [name for name in names if STRIDE_NAME.search(name)]
    sizes = {name: max(_row(item) for item in _hanging_on(name, unlocated)) for name in names if name not in strides}
    contents = {**inputs.contents, **{name: Positions(LONGEST_ROW if name in demand.offsets else 1) for name in indices}}
    likely = replace(inputs, scalars={**inputs.scalars, **sizes, **dict.fromkeys(strides, 0)}, contents=contents)
    programs = looked_at(demand.programs)
    waiting = {name: _hanging_on(name, unlocated) for name in reversed(strides)}
    bare = count(replace(inputs, contents={}), programs).accesses if strides and inputs.contents else demand.accesses
    looked_up = {_place(item) for item in bare if not_given(item.unlocated_for)}  # which a stride moves by what another tensor holds
    while waiting:
        behind: set[tuple[object, ...]] = set()  # accesses that hang on a stride further in, which is told first
        innermost: dict[str, list[AccessDemand]] = {}
        for name, hanging in waiting.items():
            places = {_place(item) for item in hanging}
            if not places & behind:
                innermost[name] = [item for item in hanging if _place(item) not in looked_up] or hanging
            behind |= places
        counted = [item for item in count(likely, programs).accesses if item.reach_bytes]
        rows: dict[str, int] = {}
        for name, hanging in innermost.items():
            among = {_place(item) for item in hanging}
            row = int(max(_rows_of_tensors(item for item in counted if _place(item) in among), default=1))
            rows[name] = row if row < ALIGNED else -(-row // ALIGNED) * ALIGNED
            del waiting[name]
        likely = replace(likely, scalars={**likely.scalars, **rows})
    return likely


def _rows_of_tensors(accesses: Iterable[AccessDemand]) -> Iterator[float]:
    """How many elements of each tensor lie between the first and the last that its accesses touch, all of them together: two halves of a
    row are one."""
    together = grouped((access.name, access) for access in accesses)
    for name, item in together.items():
        size = element_bytes(item[0].element)
        reaches: dict[int, list[tuple[float, float]]] = {0: [access.reach_bytes for access in item if access.reach_bytes is not None]}
        if OR in name:  # of several arguments, the one of which only the first row is told reaches least
            reaches = {}
            for lattice in (lattice for access in item for lattice in access.touched):
                argument = int(argument_of(int(lattice.offset // size)))
                reaches.setdefault(argument, []).append((lattice.offset, lattice.offset + lattice.span))
        yield min((max(high for _, high in of) - min(low for low, _ in of)) / size for of in reaches.values())


def with_likely_places(demand: KernelDemand, inputs: Inputs, likely: Inputs, count: Count) -> KernelDemand:
    """The demand with the places that likely arguments (`likely_inputs`) tell, in what a prediction reckons with, and said.

    Rows of which only the stride is not known lie contiguous for the bound too, with all that hangs on what they hold: it is the stride
    of nearly every call.
    """
    counted = count(likely, None)
    strides = {name: value for name, value in likely.scalars.items() if name not in inputs.scalars and STRIDE_NAME.search(name)}
    contiguous = replace(inputs, scalars={**inputs.scalars, **strides})
    alone = likely.scalars.keys() == contiguous.scalars.keys() and likely.contents.keys() == inputs.contents.keys()
    rows = counted if alone else count(contiguous, None) if strides else demand
    places = {untold_place(access.argument, access.operation) for access in demand.accesses}
    texts = {what: text for what, text in {**rows.unknown, **demand.unknown}.items() if what in rows.unknown or what in places}
    likely_places, certain_places = ({_place(access): access.reach_bytes for access in item.accesses} for item in (counted, rows))
    for access in demand.accesses:
        what, place = untold_place(access.argument, access.operation), _place(access)
        if what in texts and access.reach_bytes is None and likely_places.get(place) is not None:
            certain = f"{demand.unknown[what].partition(': the bound')[0]}: assumed"
            former = f"{demand.unknown[what].partition(PREDICTED)[0]}{PREDICTED} assumes"
            texts[what] = f"{former if certain_places.get(place) is None else certain} {_assumed(access, inputs, likely)}"
    return replace(
        rows,  # where a table is looked up with what rows hold, how often its elements are asked for follows from these
        accesses=_as_in_rows(demand.accesses, rows.accesses),
        unlocated=demand.unlocated,
        likely_footprint_bytes=counted.likely_footprint_bytes,
        likely_read_footprints=counted.likely_read_footprints,
        likely_written_footprints=counted.likely_written_footprints,
        likely_unused_bytes=counted.likely_unused_bytes,
        unknown=texts,
        likely_accesses=rows.accesses,
    )


def _as_in_rows(accesses: Sequence[AccessDemand], rows: Sequence[AccessDemand]) -> tuple[AccessDemand, ...]:
    """The accesses, with how neighbouring threads lie where only a stride is not known: as in contiguous `rows`."""
    places = {_place(item): item for item in rows if item.reach_bytes is not None}
    return tuple(
        replace(
            item,
            contiguous=row.contiguous,
            sector_ratio=row.sector_ratio,
            unused_bytes=row.unused_bytes,
            requested_bytes=row.requested_bytes,
        )
        if item.reach_bytes is None and (row := places.get(_place(item))) is not None
        else item
        for item in accesses
    )


def _assumed(access: AccessDemand, inputs: Inputs, likely: Inputs) -> str:
    """What is assumed of where an access goes, in words."""
    assumed = {
        name: value for name, value in likely.scalars.items() if name not in inputs.scalars and ARGUMENT + name in access.unlocated_for
    }
    parts = [f"contiguous rows with {', '.join(f'{name} = {value:,}' for name, value in assumed.items())}"] * bool(assumed)
    indices = [reason for reason in access.unlocated_for if not reason.startswith(ARGUMENT)]
    parts += [f"different rows for each index (from {in_words(indices)})"] * bool(indices)
    return " and ".join(parts)


def _place(access: AccessDemand) -> tuple[object, ...]:
    """Which access it is: two lines can have one text, for values of two scopes are called alike."""
    return access.file, access.line, access.operation.text


def _hanging_on(name: str, accesses: Iterable[AccessDemand]) -> list[AccessDemand]:
    return [access for access in accesses if ARGUMENT + name in access.unlocated_for]


def _row(access: AccessDemand) -> int:
    """Elements along the last axis of an access."""
    shape = next((kind.shape for kind in access.operation.types if kind.shape), (1,))
    return shape[-1]
