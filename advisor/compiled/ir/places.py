"""Which elements the accesses of a launch touch, kept as sums of sets; `lattices.py` unites them.

What one execution of an access touches is a start, which differs between programs and trips, plus a pattern of its lanes, which seldom
does. Starts are kept per program and trip, patterns once; each then mostly is a sum of even steps, and sums of steps that close up are
one run of elements. What cannot be held this way is left out: fewer elements than are touched, never more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.ir import values
from advisor.compiled.ir.arithmetic import distinct_values
from advisor.compiled.ir.execution import Active, Count, Integers, Part, Places, Remembered, Running
from advisor.compiled.ir.values import Value

MOST_PATTERNS = 64
"""Patterns of lanes among the programs of one execution; where each program has its own (rows from a table), addresses are listed."""
MOST_LISTED = 4_000_000
"""Addresses listed one by one, per set of programs or per argument."""
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

    def of(self, programs: Integers) -> Family:
        """The elements that some of the programs touch."""
        if self.programs is None:
            return self
        included = np.isin(self.programs, programs)
        return Family(programs=self.programs[included], starts=self.starts[included], shifts=self.shifts, patterns=self.patterns)


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


def key_of(array: Integers) -> bytes:
    """Stands for the integers: the same for the same ones."""
    return hashlib.blake2b(np.ascontiguousarray(array).tobytes(), digest_size=12).digest()


@dataclass(slots=True)
class PlaceRecorder:
    """Notes what executions of accesses touch.

    Attributes:
        indices: Of the programs, flat.
        sets: The sets that places are told by, by their keys.
        listable: Addresses that may still be listed one by one.
    """

    indices: Integers
    remembered: Remembered
    sets: dict[bytes, NDArray[Any]] = field(default_factory=dict)
    listable: int = MOST_LISTED

    def record(self, pointer: Value, mask: Value | None, running: Running, execution: Places) -> None:
        """Add to `execution` what an execution touches in the programs that are active. Of an unknown mask its known factors count."""
        pattern = self.remembered.recall(
            ("pattern", pointer.shape), lambda: self._pattern(pointer, mask), pointer.varying, values.factors(mask)
        )
        start: Integers = pattern.lows
        for summand in pointer.parts:
            if all(n == 1 for n in summand.shape[1:]):
                start = start + summand.reshape(-1)
        start = np.asarray(start, np.int64)
        members = running.active & pattern.touching
        if len(start) > 1 and values.OR in str(pointer.base):
            arguments = values.argument_of(start)
            for argument in distinct_values(arguments[members]):
                self._record(start, members & (arguments == argument), pattern, running.tags, execution)
        else:
            self._record(start, members, pattern, running.tags, execution)

    def _record(self, start: Integers, members: Active, pattern: _Pattern, tags: Integers | None, execution: Places) -> None:
        """Add what programs touch that point into one argument."""
        labels = pattern.classes
        if labels is None and tags is None:
            self._add((-1, next(iter(pattern.keys.values()), ())), start, members, pattern, execution)
            return
        label = np.broadcast_to(np.int64(0) if labels is None else labels, members.shape)
        if tags is not None:
            label = label * _ODD + tags
        for value, first in zip(*np.unique(label[members], return_index=True), strict=True):
            chosen = members & (label == value)
            at = np.flatnonzero(members)[first]
            kind = int(np.broadcast_to(labels, members.shape)[at]) if labels is not None else next(iter(pattern.keys))
            self._add((-1 if tags is None else int(tags[at]), pattern.keys[kind]), start, chosen, pattern, execution)

    def _add(self, kind: tuple[int, tuple[bytes, ...]], start: Integers, members: Active, pattern: _Pattern, execution: Places) -> None:
        """Add the starts of some programs that are alike in tag and pattern."""
        if not members.any():
            return
        every = bool(members.all())
        start_of_active = start if every or len(start) == 1 else start[members]
        indices = self.indices if every else self.indices[members]
        if pattern.listed is not None:
            start_of_active, indices = _listed(start_of_active, indices, members, *pattern.listed)
            if start_of_active.size > self.listable:
                return
            self.listable -= start_of_active.size
        if not start_of_active.size:
            return
        first = int(start_of_active[0])
        profile = start_of_active - start_of_active[0]
        name = b""
        if profile.any():
            # Starts are told from lanes, which may be the same numbers and are kept as another array.
            name = b"starts" + key_of(profile) + (b"" if every else key_of(indices))
            if name not in self.sets:
                self.sets[name] = np.stack([indices, profile])
        execution.setdefault((*kind, name), []).append(np.array([first]))

    def _pattern(self, pointer: Value, mask: Value | None) -> _Pattern:
        """What lanes add, group by group of dimensions whose offsets or masks hang together."""
        lows: Integers = np.zeros(1, np.int64)
        touching: Any = np.ones(1, bool)
        relative: list[Integers] = []
        combined: Integers = np.zeros(1, np.int64)
        listed: tuple[Integers, Active | None] | None = None
        for group in values.groups(pointer.varying, mask, len(pointer.shape)):
            if group.active is not None:
                touching = touching & group.active.any(axis=tuple(range(1, group.active.ndim)))
            if not group.offsets:
                continue
            low, lane_start, active = _lanes_of(group)
            label = _rows(lane_start)
            if len(distinct_values(label)) > MOST_PATTERNS:
                if listed is None:
                    listed = (lane_start + low[:, None], active)
                    continue
                lane_start, label = np.zeros((1, 1), np.int64), np.zeros(1, np.int64)  # one lane stands for all: fewer, never more
            lows = lows + low
            relative.append(lane_start)
            combined = combined * _ODD + label
        kinds, at = np.unique(combined, return_index=True)
        keys = {
            int(kind): tuple(self._keys(lane_start[i if len(lane_start) > 1 else 0] for lane_start in relative))
            for kind, i in zip(kinds, at, strict=True)
        }
        return _Pattern(lows, np.asarray(touching), None if len(kinds) == 1 else combined, keys, listed)

    def _keys(self, rows: Iterable[Integers]) -> Iterator[bytes]:
        """Keys of the sets that rows of offsets are; of lanes that are not active an offset is below 0."""
        for row in rows:
            lanes = distinct_values(row)
            lanes = lanes[lanes >= 0]
            if len(lanes) > 1:
                name = key_of(lanes)
                self.sets.setdefault(name, lanes)
                yield name


def _listed(start: Integers, indices: Integers, members: Active, offsets: Integers, counted: Active | None) -> tuple[Integers, Integers]:
    """Every address of the lanes that count, and the program that each is of: -1 where all start alike."""
    every = bool(members.all())
    start = start[:, None] + (offsets if every or len(offsets) == 1 else offsets[members])
    programs = np.broadcast_to(indices[:, None] if len(start) > 1 else np.int64(-1), start.shape)
    if counted is not None:
        counted = np.broadcast_to(counted, (len(members), start.shape[1]))[members] if len(counted) > 1 else counted
        counted = np.broadcast_to(counted[: len(start)], start.shape)
        start, programs = start[counted], programs[counted]
    return start.reshape(-1), programs.reshape(-1)


def _lanes_of(group: values.Group) -> tuple[Integers, Integers, Active | None]:
    """Of a group per program [programs or 1] the least offset of the active lanes, all offsets from there on [lanes], -1 where a lane is
    not active, and which are."""
    offsets: Any = group.address
    if group.active is None:
        offsets = offsets.reshape(offsets.shape[0], -1)
        low = offsets.min(axis=1)
        return low, offsets - low[:, None], None
    offsets, active = np.broadcast_arrays(offsets, group.active)
    offsets, active = offsets.reshape(offsets.shape[0], -1), active.reshape(active.shape[0], -1)
    far = np.iinfo(np.int64).max
    low = offsets.min(axis=1, where=active, initial=far)
    low = np.where(low == far, 0, low)
    return low, np.where(active, offsets - low[:, None], -1), active


def _rows(array: Integers) -> Integers:
    """A number per row that is the same where rows are."""
    if len(array) == 1:
        return np.zeros(1, np.int64)
    weights = np.random.default_rng(0).integers(1, 2**62, array.shape[1], dtype=np.int64)
    return array @ weights  # modulo 2 ** 64


# ------------------------------------------------------------------------------------------------------------------- trips


def tags_of(trips: Count, uniform: bool) -> Integers | None:
    """What the programs of a loop whose trips are sampled are told apart by: their trips, -1 where too many differ."""
    if uniform:
        return None
    most = distinct_values(trips)[-MOST_TRIPS_APART:]
    return np.where(trips >= most[0], trips, -1).astype(np.int64)


def between(outer: dict[Part, Places], samples: Sequence[tuple[Integers, dict[Part, Places]]], tags: Integers | None) -> None:
    """Add what sampled trips touch, and what those between do where an access moved on by a constant and by nothing else."""
    for part in dict.fromkeys(part for _, places in samples for part in places):
        target = outer.setdefault(part, {})
        for key in dict.fromkeys(key for _, places in samples for key in places.get(part, {})):
            tag, keys, name = key
            where, shifts = [], []
            for position, places in samples:
                if (difference := places.get(part, {}).get(key)) is not None:
                    at = 0 if tags is None else int(np.argmax(tags == tag))
                    where.append(int(position[at if len(position) > 1 else 0]))
                    shifts.append(np.concatenate(difference))
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
    positions = distinct_values(np.concatenate(runs))[: max(MOST_LISTED // len(start), 1)]
    rest = [s for s, f in zip(shifts, follows, strict=True) if not f]
    along = np.zeros(1, np.int64) if step == 0 else step * (positions - origin)
    return np.concatenate([(start[:, None] + along[None, :]).reshape(-1), *rest])


# -------------------------------------------------------------------------------------------------------------- collecting


def families(places: Places, sets: Mapping[bytes, NDArray[Any]]) -> list[Family]:
    """What an access touched in one set of programs."""
    families_of = []
    for (_, keys, name), shifts in places.items():
        moved = distinct_values(np.concatenate(shifts))
        indices, starts = (None, np.zeros(1, np.int64)) if not name else (sets[name][0], sets[name][1])
        families_of.append(Family(programs=indices, starts=starts, shifts=moved, patterns=tuple(sets[key] for key in keys)))
    return families_of


def together(families: Iterable[Family]) -> tuple[Family, ...]:
    """The families of all sets of programs: those that differ in where they start become one."""
    groups: dict[tuple[bytes, ...], list[Family]] = {}
    for family in families:
        argument = values.argument_of(family.starts[:1] + family.shifts[0]).tobytes()
        one = b"" if family.programs is None else b"p"
        key = (argument, one, key_of(family.shifts - family.shifts[0]), *(key_of(p) for p in family.patterns))
        groups.setdefault(key, []).append(family)
    merged = []
    for group in groups.values():
        first = group[0]
        shifts = first.shifts - first.shifts[0]
        starts = np.concatenate([item.starts + item.shifts[0] for item in group])
        programs = None if first.programs is None else np.concatenate([e.programs for e in group if e.programs is not None])
        merged.append(Family(programs=programs, starts=starts, shifts=shifts, patterns=first.patterns))
    return tuple(merged)
