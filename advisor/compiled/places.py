"""Which elements the accesses of a launch touch: sums of sets, united, so that what is touched again counts once.

What one execution of an access touches is a start, which differs between programs and trips, plus a pattern of its lanes, which seldom
does. Starts are kept per program and trip, patterns once; each then mostly is a sum of even steps, and sums of steps that close up are
one run of elements. What cannot be held this way is left out: fewer elements than are touched, never more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import values
from advisor.compiled.execution import Active, Count, Places
from advisor.compiled.values import Value

if TYPE_CHECKING:
    from advisor.compiled.evaluate import Evaluator

Integers = NDArray[np.int64]

MOST_PATTERNS = 64
"""Patterns of lanes among the programs of one execution; where each program has its own (rows from a table), addresses are listed."""
MOST_LISTED = 4_000_000
"""Addresses listed one by one, per set of programs or per argument."""
MOST_RUNS = 1_000_000
"""Runs of bytes that are united one by one."""
MOST_TRIPS_APART = 64
"""Numbers of trips, of those of one loop, whose trips between the samples are filled in."""
_ODD = np.int64(0x2545F4914F6CDD1D)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Elements that an access touches: every sum of a start, a shift and one of each pattern.

    Attributes:
        programs: Flat index of the program of each start; None: all have the one start.
        starts, shifts: Of programs and of trips, sorted neither.
        patterns: Of the lanes, each sorted, from 0 on.
    """

    programs: Integers | None
    starts: Integers
    shifts: Integers
    patterns: tuple[Integers, ...]


@dataclass(slots=True)
class _Pattern:
    """What the lanes of an execution add to its start, by class of programs.

    Attributes:
        lows: Least offset of the active lanes, per program or for all.
        touching: Whether any lane is active.
        classes: Of the programs; None: all alike.
        keys: Keys of the sets to add, by class.
        listed: Offsets [programs, lanes] that are listed one by one, and which of them count.
    """

    lows: Integers
    touching: Active
    classes: Integers | None
    keys: dict[int, tuple[bytes, ...]]
    listed: tuple[Integers, Active | None] | None


def _key(array: Integers) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=12).digest()


def record(evaluator: Evaluator, op: Any, pointer: Value, mask: Value | None, active: Active) -> None:
    """Note what an execution of `op` touches in the programs that are active. Of an unknown mask its known factors count."""
    varying = tuple(id(p) for p in pointer.parts if any(n > 1 for n in p.shape[1:]))
    key = (2, *pointer.shape, -1, *varying, -1, *(id(p) for p in (mask.parts if mask is not None else ())))
    pattern = evaluator.patterns.get(key)
    if pattern is None:
        pattern = evaluator.patterns[key] = _pattern(evaluator, pointer, mask)
        evaluator.kept.append((pointer, mask))
    start: Integers = pattern.lows
    for part in pointer.parts:
        if all(n == 1 for n in part.shape[1:]):
            start = start + part.reshape(-1)
    start = np.asarray(start, np.int64)
    found = evaluator.result.places.setdefault(id(op), {})
    members = active & pattern.touching
    labels, tags = pattern.classes, evaluator.tags
    if labels is None and tags is None:
        _add(evaluator, found, -1, next(iter(pattern.keys.values()), ()), start, members, pattern)
        return
    label = np.broadcast_to(np.int64(0) if labels is None else labels, members.shape)
    if tags is not None:
        label = label * _ODD + tags
    for value, first in zip(*np.unique(label[members], return_index=True), strict=True):
        chosen = members & (label == value)
        at = np.flatnonzero(members)[first]
        kind = int(np.broadcast_to(labels, members.shape)[at]) if labels is not None else next(iter(pattern.keys))
        _add(evaluator, found, -1 if tags is None else int(tags[at]), pattern.keys[kind], start, chosen, pattern)


def _add(
    evaluator: Evaluator, found: Places, tag: int, keys: tuple[bytes, ...], start: Integers, members: Active, pattern: _Pattern
) -> None:
    if not members.any():
        return
    every = bool(members.all())
    own = start if every or len(start) == 1 else start[members]
    if pattern.listed is not None:
        offsets, counted = pattern.listed
        own = own[:, None] + (offsets if every or len(offsets) == 1 else offsets[members])
        indices = np.broadcast_to(evaluator.indices[members][:, None] if len(own) > 1 else np.int64(-1), own.shape)
        if counted is not None:
            counted = np.broadcast_to(counted, (len(members), own.shape[1]))[members] if len(counted) > 1 else counted
            counted = np.broadcast_to(counted[: len(own)], own.shape)
            own, indices = own[counted], indices[counted]
        own, indices = own.reshape(-1), indices.reshape(-1)
        if own.size > evaluator.listable:
            return
        evaluator.listable -= own.size
    else:
        indices = evaluator.indices if every else evaluator.indices[members]
    if not own.size:
        return
    first = int(own[0])
    profile = own - own[0]
    if not profile.any():
        name = b""
    else:
        name = _key(profile) + (b"" if every else _key(indices))
        if name not in evaluator.sets:
            evaluator.sets[name] = np.stack([indices, profile])
    found.setdefault((tag, keys, name), []).append(np.array([first]))


def _pattern(evaluator: Evaluator, pointer: Value, mask: Value | None) -> _Pattern:
    """What lanes add, group by group of dimensions whose offsets or masks hang together."""
    offsets = [p for p in pointer.parts if any(n > 1 for n in p.shape[1:])]
    both = [*offsets, *(mask.parts if mask is not None else ())]
    lows: Integers = np.zeros(1, np.int64)
    touching: Any = np.ones(1, bool)
    relative: list[Integers] = []
    combined: Integers = np.zeros(1, np.int64)
    listed: tuple[Integers, Active | None] | None = None
    for _dims, members in values.joined(both, len(pointer.shape)):
        address = [both[i] for i in members if i < len(offsets)]
        active: Any = None
        for i in members:
            if i >= len(offsets):
                active = both[i] if active is None else active & both[i]
        if active is not None:
            touching = touching & active.any(axis=tuple(range(1, active.ndim)))
        if not address:
            continue
        summed: Any = address[0]
        for part in address[1:]:
            summed = summed + part
        if active is not None:
            summed, active = np.broadcast_arrays(summed, active)
            active = active.reshape(active.shape[0], -1)
        flat = summed.reshape(summed.shape[0], -1)
        far = np.iinfo(np.int64).max
        low = flat.min(axis=1) if active is None else np.where(active, flat, far).min(axis=1)
        low = np.where(low == far, 0, low)
        own = flat - low[:, None]
        if active is not None:
            own = np.where(active, own, -1)
        label = _rows(own)
        if len(np.unique(label)) > MOST_PATTERNS:
            if listed is None:
                listed = (flat, active)
                continue
            own, label = np.zeros((1, 1), np.int64), np.zeros(1, np.int64)  # one lane stands for all: fewer, never more
        lows = lows + low
        relative.append(own)
        combined = combined * _ODD + label
    keys: dict[int, tuple[bytes, ...]] = {}
    kinds, at = np.unique(combined, return_index=True)
    for kind, i in zip(kinds, at, strict=True):
        names = []
        for own in relative:
            row = np.unique(own[i if len(own) > 1 else 0])
            row = row[row >= 0]
            if len(row) > 1:
                name = _key(row)
                evaluator.sets.setdefault(name, row)
                names.append(name)
        keys[int(kind)] = tuple(names)
    return _Pattern(lows, np.asarray(touching), None if len(kinds) == 1 else combined, keys, listed)


def _rows(array: Integers) -> Integers:
    """A number per row that is the same where rows are."""
    if len(array) == 1:
        return np.zeros(1, np.int64)
    weights = np.random.default_rng(0).integers(1, 2**62, array.shape[1], dtype=np.int64)
    with np.errstate(over="ignore"):
        return (array * weights).sum(axis=1)


# ------------------------------------------------------------------------------------------------------------------- trips


def tags_of(trips: Count, uniform: bool) -> Integers | None:
    """What the programs of a loop whose trips are sampled are told apart by: their trips, -1 where too many differ."""
    if uniform:
        return None
    most = np.unique(trips)[-MOST_TRIPS_APART:]
    return np.where(trips >= most[0], trips, -1).astype(np.int64)


def between(outer: dict[int, Places], samples: Sequence[tuple[Integers, dict[int, Places]]], tags: Integers | None) -> None:
    """Add what sampled trips touch, and what those between do where an access moved on by a constant and by nothing else."""
    for op in dict.fromkeys(op for _, places in samples for op in places):
        target = outer.setdefault(op, {})
        for key in dict.fromkeys(key for _, places in samples for key in places.get(op, {})):
            tag, keys, name = key
            where, shifts = [], []
            for position, places in samples:
                if (found := places.get(op, {}).get(key)) is not None:
                    at = 0 if tags is None else int(np.argmax(tags == tag))
                    where.append(int(position[at if len(position) > 1 else 0]))
                    shifts.append(np.concatenate(found))
            filled = [np.concatenate(shifts)] if tags is not None and tag < 0 else [_filled(where, shifts)]
            target.setdefault((-1, keys, name), []).extend(filled)


def _filled(where: list[int], shifts: list[Integers]) -> Integers:
    """The shifts of all trips, from those of some."""
    step, reference = 0, None
    for i in range(len(where) - 1):
        moved = shifts[i + 1] - shifts[i] if len(shifts[i]) == len(shifts[i + 1]) else np.zeros(0, np.int64)
        apart = where[i + 1] - where[i]
        if moved.size and apart > 0 and (moved == moved[0]).all() and moved[0] % apart == 0:
            step, reference = int(moved[0]) // apart, i
            break
    if reference is None:
        return np.concatenate(shifts)
    start, origin = shifts[reference], where[reference]
    follows = [len(s) == len(start) and bool((s - start == step * (w - origin)).all()) for w, s in zip(where, shifts, strict=True)]
    runs = [np.arange(where[i], where[i + 1]) for i in range(len(where) - 1) if follows[i] and follows[i + 1]]
    runs.append(np.array([w for w, f in zip(where, follows, strict=True) if f], np.int64))
    positions = np.unique(np.concatenate(runs))[: max(MOST_LISTED // len(start), 1)]
    rest = [s for s, f in zip(shifts, follows, strict=True) if not f]
    along = np.zeros(1, np.int64) if step == 0 else step * (positions - origin)
    return np.concatenate([(start[:, None] + along[None, :]).reshape(-1), *rest])


# -------------------------------------------------------------------------------------------------------------- collecting


def families(places: Places, sets: Mapping[bytes, NDArray[Any]]) -> list[Family]:
    """What an access touched in one set of programs."""
    found = []
    for (_, keys, name), shifts in places.items():
        moved = np.unique(np.concatenate(shifts))
        indices, starts = (None, np.zeros(1, np.int64)) if not name else (sets[name][0], sets[name][1])
        found.append(Family(programs=indices, starts=starts, shifts=moved, patterns=tuple(sets[key] for key in keys)))
    return found


def together(found: Iterable[Family]) -> tuple[Family, ...]:
    """The families of all sets of programs: those that differ in where they start become one."""
    groups: dict[tuple[bytes, ...], list[Family]] = {}
    for each in found:
        key = (b"" if each.programs is None else b"p", _key(each.shifts - each.shifts[0]), *(_key(p) for p in each.patterns))
        groups.setdefault(key, []).append(each)
    merged = []
    for group in groups.values():
        first = group[0]
        shifts = first.shifts - first.shifts[0]
        starts = np.concatenate([each.starts + each.shifts[0] for each in group])
        programs = None if first.programs is None else np.concatenate([e.programs for e in group if e.programs is not None])
        merged.append(Family(programs=programs, starts=starts, shifts=shifts, patterns=first.patterns))
    return tuple(merged)


@dataclass(slots=True)
class Lattice:
    """Every sum of the offset, a multiple (less than the count) of each step and one of each of the listed."""

    offset: int
    steps: list[tuple[int, int]] = field(default_factory=list)
    listed: list[Integers] = field(default_factory=list)

    def add(self, array: Integers) -> None:
        """Add a set of integers: as even steps where it is that, else listed."""
        rest = np.unique(array)
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
                own, reach = done[-1]
                done[-1] = (own, reach + (count - 1) * (step // own))
            else:
                done.append((step, count))
        self.steps = done

    @property
    def span(self) -> int:
        """From the first to behind the last."""
        return 1 + sum(step * (count - 1) for step, count in self.steps) + sum(int(each[-1]) for each in self.listed)


def distinct_bytes(lattices: Iterable[Lattice]) -> float:
    """Bytes in at least one of some lattices of bytes; fewer where they are too many to list."""
    unique = {(each.offset, tuple(each.steps), *(_key(part) for part in each.listed)): each for each in lattices}
    left = [Lattice(e.offset, list(e.steps), list(e.listed)) for e in unique.values()]
    if not left:
        return 0.0
    times = 1
    while True:  # a step of all that is wider than the rest: as often the rest
        common = set(left[0].steps).intersection(*(each.steps for each in left[1:]))
        step, count = max(common, default=(0, 1))
        reach = max(e.offset + e.span for e in left) - min(e.offset for e in left) - step * (count - 1)
        if count <= 1 or step < reach:
            break
        times *= count
        for each in left:
            each.steps.remove((step, count))
    room = max(MOST_RUNS // len(left), 1)
    lows, highs = [], []
    for each in left:
        run = next((s for s in each.steps if s[0] == 1), None)
        starts = np.array([each.offset], np.int64)
        parts = [step * np.arange(min(count, room), dtype=np.int64) for step, count in each.steps if (step, count) != run]
        for part in (*each.listed, *parts):
            part = part[: max(room // len(starts), 1)]
            starts = (starts[:, None] + part[None, :]).reshape(-1)
        starts = np.unique(starts)
        lows.append(starts)
        highs.append(starts + (run[1] if run else 1))
    low, high = np.concatenate(lows), np.concatenate(highs)
    if len(left) > 1:
        order = np.argsort(low, kind="stable")
        low, high = low[order], high[order]
    behind = np.maximum.accumulate(high)
    before = np.concatenate([low[:1], behind[:-1]])
    return float(times) * float(np.maximum(high - np.maximum(low, before), 0).sum())


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
        own = self.coordinates(programs)
        if len(programs) < len(self.indices):
            limits = [(int(along.min()), int(along.max())) for along in own]
            if self._inside(limits) != len(programs):
                return next((found for split in self.splits() if (found := split.all_starts(family)) is not None), None)
            for axis, size in enumerate(self.grid):  # along the whole axis where that holds nothing else that was looked at
                wider = [*limits[:axis], (0, size - 1), *limits[axis + 1 :]]
                limits = wider if self._inside(wider) == len(programs) else limits
        for divisors in ((), sorted(self.divisors)):
            terms = [(axis, d) for axis in range(3) for d in (1, *divisors) if limits[axis][0] // d != limits[axis][1] // d]
            factors = self._fitted(own, starts - starts[0], terms)
            if factors is not None and self._exist(limits):
                there = sum(f * (int(own[axis][0]) // d) for (axis, d), f in zip(terms, factors, strict=True))
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

    def _fitted(self, own: Sequence[Integers], starts: Integers, terms: list[tuple[int, int]]) -> list[int] | None:
        """Factors of the terms (an axis, what it is divided by) whose sum the starts are, apart from a constant."""
        columns = [own[axis] // d for axis, d in terms]
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
    found = sorted(divisors)
    return frozenset({*found, *(a * b for a in found for b in found)})


def _along_axes(
    terms: list[tuple[int, int]], factors: list[int], limits: list[tuple[int, int]]
) -> tuple[int, list[Integers | tuple[int, int]]]:
    found: list[Integers | tuple[int, int]] = []
    offset = 0
    for axis, (low, high) in enumerate(limits):
        used = [(d, f) for (a, d), f in zip(terms, factors, strict=True) if a == axis and f]
        if len(used) == 1:
            d, factor = used[0]
            found.append((abs(factor), high // d - low // d + 1))
            offset += min(factor * (low // d), factor * (high // d))
        elif used:
            along = np.arange(low, min(high + 1, low + MOST_RUNS), dtype=np.int64)
            found.append(np.unique(sum((f * (along // d) for d, f in used), np.zeros(len(along), np.int64))))
    return offset, found


def lattices(found: Iterable[Family], size: int, sample: Sample | None) -> tuple[tuple[Lattice, ...], tuple[Lattice, ...]]:
    """The bytes that families touch, and those that only programs looked at do, of which there may be more.

    Those that differ in the shifts of their trips alone become one: programs that go through the same loop for longer or shorter.
    """
    groups: dict[tuple[Any, ...], list[tuple[Family, list[Integers | tuple[int, int]], Integers]]] = {}
    for family in found:
        offset, sets = int(family.starts[0]), [family.starts - family.starts[0]]
        certain = sample is None or family.programs is None
        if sample is not None and family.programs is not None:
            starts = sample.all_starts(family)
            certain = starts is not None
            if starts is not None:
                offset, sets = starts  # type: ignore[assignment]
        alike = (*(each if isinstance(each, tuple) else _key(each) for each in sets), None, *(_key(each) for each in family.patterns))
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
        made.listed = [each * size for each in made.listed]
        made.close()
        merged[0 if key[0] else 1].append(made)
    return tuple(merged[0]), tuple(merged[1])
