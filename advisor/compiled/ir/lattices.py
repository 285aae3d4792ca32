"""What accesses touch, united: each byte counts once, also where programs, trips or other accesses touch it again.

Sets of elements (`places.py`) mostly are sums of even steps. Where only some programs of a grid were looked at, those of all are their
continuation, if the starts of those looked at follow one rule without exception.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from advisor.compiled.ir.arithmetic import distinct_values
from advisor.compiled.ir.execution import Integers
from advisor.compiled.ir.places import Family, key_of
from advisor.system import grouped

MOST_RUNS = 1_000_000
"""Runs of bytes that are united one by one."""
FARTHEST = 2**62
"""Bytes from the first: strides that are too large lead beyond what 64 bits hold."""


@dataclass(slots=True)
class Lattice:
    """Every sum of the offset, a multiple (less than the count) of each step and one of each of the listed."""

    offset: int
    steps: list[tuple[int, int]] = field(default_factory=list)
    listed: list[Integers] = field(default_factory=list)

    def add(self, array: Integers) -> None:
        """Add a set of integers: as even steps where it is that, else listed."""
        rest = distinct_values(array)
        self.offset += int(rest[0])
        rest = rest - rest[0]
        while len(rest) > 1:
            step = int(rest[1])
            apart = np.flatnonzero(np.diff(rest) != step)
            count = int(apart[0]) + 1 if len(apart) else len(rest)
            if len(rest) % count or not np.array_equal(rest.reshape(-1, count), rest[::count, None] + step * np.arange(count)):
                self.listed.append(rest)
                return
            self.steps.append((step, count))
            rest = rest[::count]

    def close(self) -> None:
        """Make one run of steps that close up: a step that is a multiple of another, no more than that reaches."""
        done: list[tuple[int, int]] = []
        for step, count in sorted(s for s in self.steps if s[1] > 1):
            if done and step % done[-1][0] == 0 and step // done[-1][0] <= done[-1][1]:
                last, reach = done[-1]
                done[-1] = (last, reach + (count - 1) * (step // last))
            else:
                done.append((step, count))
        self.steps = done

    @property
    def runs(self) -> float:
        """Runs of elements, those that touch counted apart."""
        return math.prod(float(count) for step, count in self.steps if step > 1) * math.prod(float(len(item)) for item in self.listed)

    @property
    def span(self) -> int:
        """From the first to behind the last."""
        return 1 + sum(step * (count - 1) for step, count in self.steps) + sum(int(item[-1]) for item in self.listed)


def distinct_bytes(lattices: Iterable[Lattice]) -> float:
    """Bytes in at least one of some lattices of bytes; fewer where they are too many to list."""
    return _united(lattices)[0]


def likely_distinct_bytes(lattices: Iterable[Lattice]) -> float:
    """The same where they are too many to list: those that are not are taken to overlap as little as those that are."""
    united, share = _united(lattices)
    return united / share


def _shifted(lattice: Lattice, offsets: Sequence[int]) -> Lattice:
    """A lattice that begins at each of some offsets: the two halves of a row, side by side, are the row."""
    all_ = Lattice(0, list(lattice.steps), list(lattice.listed))
    all_.add(np.array(offsets, np.int64))
    all_.close()
    return all_


def _united(lattices: Iterable[Lattice]) -> tuple[float, float]:
    """Bytes in at least one of some lattices of bytes, as far as their runs are listed, and the share of the runs that are."""
    alike = grouped(((tuple(item.steps), *map(key_of, item.listed)), item) for item in lattices)
    if not alike:
        return 0.0, 1.0
    least = min(item.offset for group in alike.values() for item in group)
    left = [_shifted(group[0], [(item.offset - least) % FARTHEST for item in group]) for group in alike.values()]
    times = 1
    while True:  # a step of all that is wider than the rest: as often the rest
        common = set(left[0].steps).intersection(*(item.steps for item in left[1:]))
        step, count = max(common, default=(0, 1))
        reach = max(e.offset + e.span for e in left) - min(e.offset for e in left) - step * (count - 1)
        if count <= 1 or step < reach:
            break
        times *= count
        for entry in left:
            entry.steps.remove((step, count))
    room = max(MOST_RUNS // len(left), 1)
    lows, highs = [], []
    runs, listed = 0.0, 0
    for element in left:
        run = next((s for s in element.steps if s[0] == 1), None)
        starts = np.array([element.offset], np.int64)
        parts = [step * np.arange(min(count, room), dtype=np.int64) for step, count in element.steps if (step, count) != run]
        runs += element.runs
        for part in (*element.listed, *parts):
            part = part[: max(room // len(starts), 1)]
            starts = (starts[:, None] + part[None, :]).reshape(-1)
        listed += len(starts)
        starts = distinct_values(starts)
        lows.append(starts)
        highs.append(starts + (run[1] if run else 1))
    low, high = np.concatenate(lows), np.concatenate(highs)
    if len(left) > 1:
        order = np.argsort(low, kind="stable")
        low, high = low[order], high[order]
    behind = np.maximum.accumulate(high)
    before = np.concatenate([low[:1], behind[:-1]])
    return float(times) * float(np.maximum(high - np.maximum(low, before), 0).sum()), listed / runs


# ------------------------------------------------------------------------------------------------------ programs left out


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The programs that stand for a grid.

    Attributes:
        indices: Flat, x fastest, none twice.
        divisors: Numbers that the kernel divides scalars by, one after another or in one step.
    """

    indices: Integers
    grid: tuple[int, int, int]
    divisors: frozenset[int]
    split_of: int = 0

    @property
    def programs(self) -> int:
        """Of the launch."""
        x, y, z = self.grid
        return self.split_of or x * y * z

    def splits(self) -> Iterator[Sample]:
        """The same programs of a flat grid, seen as one of two or three axes: by what the kernel divides its program's number by.

        A row of tiles that does not fill the last one makes no box along the flat axis, but one along these.
        """
        x, y, z = self.grid
        if y * z > 1 or self.split_of:
            return
        for d in sorted(self.divisors):
            if d < x:
                yield replace(self, grid=(d, x // d, 1), split_of=x)
            for e in sorted(self.divisors):
                if d < e < x and e % d == 0:
                    yield replace(self, grid=(d, e // d, x // e), split_of=x)

    def coordinates(self, indices: Integers) -> tuple[Integers, Integers, Integers]:
        """Of programs, along x, y and z; the last axis of a split is as long as it needs to be."""
        x, y, z = self.grid
        if self.split_of and z == 1:
            return indices % x, indices // x, np.zeros_like(indices)
        return indices % x, indices // x % y, indices // (x * y)

    def all_starts(self, family: Family) -> tuple[int, list[Integers | tuple[int, int]]] | None:
        """An offset, and sets whose sums with it are the starts of all programs, each listed or (step, count).

        They are if the starts of those looked at are a sum of multiples of their numbers and of quotients of these, without exception.
        Where only some touch anything, they must be those of a range along each axis.

        Returns:
            Offset and sets; None where that is not so.
        """
        if family.programs is None:
            return None
        programs, first, again = np.unique(family.programs, return_index=True, return_inverse=True)
        starts = family.starts[first]
        if not np.array_equal(starts[again], family.starts):  # several of one program
            return None
        limits = [(0, n - 1) for n in self.grid]
        inner = self.coordinates(programs)
        if len(programs) < len(self.indices):
            limits = [(int(along.min()), int(along.max())) for along in inner]
            if self._inside(limits) != len(programs):
                return next((further for split in self.splits() if (further := split.all_starts(family)) is not None), None)
            for axis, size in enumerate(self.grid):  # along the whole axis where that holds nothing else that was looked at
                wider = [*limits[:axis], (0, size - 1), *limits[axis + 1 :]]
                limits = wider if self._inside(wider) == len(programs) else limits
        for divisors in ((), sorted(self.divisors)):
            terms = [(axis, d) for axis in range(3) for d in (1, *divisors) if limits[axis][0] // d != limits[axis][1] // d]
            factors = self._fitted(inner, starts - starts[0], terms)
            if factors is not None and self._exist(limits):
                there = sum(f * (int(inner[axis][0]) // d) for (axis, d), f in zip(terms, factors, strict=True))
                offset, sets = _along_axes(terms, factors, limits)
                return int(starts[0]) - there + offset, sets
        return None

    def _exist(self, limits: list[tuple[int, int]]) -> bool:
        """Whether all programs between the limits of each axis are there: the last layer of a split may not be full."""
        x, y, _ = self.grid
        return sum(high * step for (_, high), step in zip(limits, (1, x, x * y), strict=True)) < self.programs

    def _inside(self, limits: list[tuple[int, int]]) -> int:
        """Programs looked at between the limits of each axis."""
        inside = np.ones(len(self.indices), bool)
        for along, (low, high) in zip(self.coordinates(self.indices), limits, strict=True):
            inside &= (along >= low) & (along <= high)
        return int(inside.sum())

    def _fitted(self, inner: Sequence[Integers], starts: Integers, terms: list[tuple[int, int]]) -> list[int] | None:
        """Factors of the terms (an axis, what it is divided by) whose sum the starts are, apart from a constant."""
        columns = [inner[axis] // d for axis, d in terms]
        widths = [max(float(np.ptp(c)), 1.0) for c in columns]
        matrix = np.stack([np.ones(len(starts)), *((c - c[0]) / w for c, w in zip(columns, widths, strict=True))], axis=1)
        solved, _, rank, _ = np.linalg.lstsq(matrix, starts.astype(np.float64), rcond=None)
        if rank < matrix.shape[1]:
            return None
        factors = [round(f / w) for f, w in zip(solved[1:], widths, strict=True)]
        total = sum((f * (c - c[0]) for f, c in zip(factors, columns, strict=True)), np.zeros(len(starts), np.int64))
        return factors if np.array_equal(total, starts) else None


def quotients(divisors: Iterable[int]) -> frozenset[int]:
    """Numbers that something is divided by if it is divided by some of `divisors`, one or two."""
    ascending = sorted(divisors)
    return frozenset({*ascending, *(a * b for a in ascending for b in ascending)})


def _along_axes(
    terms: list[tuple[int, int]], factors: list[int], limits: list[tuple[int, int]]
) -> tuple[int, list[Integers | tuple[int, int]]]:
    axes: list[Integers | tuple[int, int]] = []
    offset = 0
    for axis, (low, high) in enumerate(limits):
        used = [(d, f) for (a, d), f in zip(terms, factors, strict=True) if a == axis and f]
        if len(used) == 1:
            d, factor = used[0]
            axes.append((abs(factor), high // d - low // d + 1))
            offset += min(factor * (low // d), factor * (high // d))
        elif used:
            along = np.arange(low, min(high + 1, low + MOST_RUNS), dtype=np.int64)
            axes.append(distinct_values(sum((f * (along // d) for d, f in used), np.zeros(len(along), np.int64))))
    return offset, axes


def lattices(families: Iterable[Family], size: int, sample: Sample | None) -> tuple[tuple[Lattice, ...], tuple[Lattice, ...]]:
    """The bytes that families touch, and those that only programs looked at do, of which there may be more.

    Those that differ in the shifts of their trips alone become one: programs that go through the same loop for longer or shorter.
    """
    groups: dict[tuple[Any, ...], list[tuple[Family, list[Integers | tuple[int, int]], Integers]]] = {}
    for family in families:
        offset, sets = int(family.starts[0]), [family.starts - family.starts[0]]
        certain = sample is None or family.programs is None
        if sample is not None and family.programs is not None:
            starts = sample.all_starts(family)
            certain = starts is not None
            if starts is not None:
                offset, sets = starts  # type: ignore[assignment]
        alike = (
            *(item if isinstance(item, tuple) else key_of(item) for item in sets),
            None,
            *(key_of(pattern) for pattern in family.patterns),
        )
        groups.setdefault((certain, *alike), []).append((family, list(sets), family.shifts + offset))
    merged: tuple[list[Lattice], list[Lattice]] = ([], [])
    for key, group in groups.items():
        family, parts, _ = group[0]
        made = Lattice(0)
        for part in (*family.patterns, np.concatenate([shifts for _, _, shifts in group]), *parts):
            if isinstance(part, tuple):
                made.steps.append(part)
            else:
                made.add(part)
        made.offset *= size
        made.steps = [(1, size), *((step * size, count) for step, count in made.steps)]
        made.listed = [item * size for item in made.listed]
        made.close()
        merged[0 if key[0] else 1].append(made)
    return tuple(merged[0]), tuple(merged[1])


def growth(families: Iterable[Family], touched: Iterable[Lattice], size: int, sample: Sample) -> float:
    """How many times the bytes of `touched` all programs of a launch likely touch, of which `families` are those looked at.

    What more and more programs touch together grows by a power of their number: 1 where each has its own, 0 where all have the same.
    Which, half of those looked at against all of them tell.
    """
    families = tuple(families)
    seen = likely_distinct_bytes(lattices(families, size, None)[0])
    halves = [family.of(sample.indices[::2]) for family in families]
    half = likely_distinct_bytes(lattices([halve for halve in halves if len(halve.starts)], size, None)[0])
    known = likely_distinct_bytes(touched)
    if not half or not known:
        return 1.0
    power = min(max(math.log2(seen / half), 0.0), 1.0)
    return max(seen * (sample.programs / len(sample.indices)) ** power / known, 1.0)
