"""The trips of a loop: one by one, or at both ends and at samples where the trips between do as these."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.ir import values
from advisor.compiled.ir.execution import Active, Count, Execution, Integers, Part, Places, Remembered, Running
from advisor.compiled.ir.ir import Operation
from advisor.compiled.ir.places import between, tags_of
from advisor.compiled.ir.regularity import regularity
from advisor.compiled.ir.slicing import for_parts
from advisor.compiled.ir.values import Value

EXACT_TRIPS = 96
"""Loops up to this many trips are walked one by one; longer ones at their ends and at samples, and checked."""
MAX_TRIPS = 20_000
"""Trips of a loop that must be walked one by one (its values do not advance by a constant) before the rest is assumed."""
SAMPLES = 24
EXACT_WORK = 4e9
"""Elements that the evaluation of a launch may work out in long loops that it walks one by one: some seconds."""
ADDRESS_WORK = 4e8
"""Of these for a loop of which only addresses, or conditions that change once or twice, need that: some tenths of a second."""
STEP_WORK = 5000.0
"""Elements that take as long as an operation does besides."""
WHILE_WORK = 25_000.0
"""The same in a `while` loop, whose operations are mostly single accesses by all programs."""
FORGET_TRIPS = 64
"""Trips after which what is remembered of masks and addresses is forgotten: those of earlier trips do not come again."""

State = dict[str, Value]
"""What a loop carries from trip to trip, by name."""


@dataclass(slots=True)
class EvalBudget:
    """What the evaluation has taken, and what it may still take.

    Attributes:
        work_left: Elements that may still be worked out in long loops that are walked one by one.
        steps: Operations evaluated.
    """

    work_left: float
    steps: int = 0


def bounds(low: Value, high: Value, step: Value, assumed_trips: int) -> tuple[Integers, Integers, Count]:
    """Where a loop's counter starts, how far a trip moves it, and the trips, per program or the same for all.

    Where any of its bounds is not known, so many trips are assumed.
    """
    if low.known and high.known and step.known:
        start, pace = low.scalar(), step.scalar()
        return start, pace, np.maximum(np.ceil((high.scalar() - start) / np.where(pace == 0, 1, pace)), 0.0)
    start = low.scalar() if low.known else np.zeros(1, np.int64)
    pace = step.scalar() if step.known else np.ones(1, np.int64)
    return start, pace, np.full(1, float(assumed_trips))


@dataclass(slots=True, kw_only=True)
class Walk:
    """One entry into an `scf.for`.

    Attributes:
        start: Of the counter.
        pace: What a trip adds to it.
        running: The programs that enter.
        body: Evaluates the loop's body in `environment`, adds what that does to what was found, and returns what it yields.
        remembered: Of masks and addresses, what does not outlive some trips.
        names: Of all that is carried.
        assumed: Of these, those that a trip only assumes.
    """

    op: Operation
    start: NDArray[Any]
    pace: NDArray[Any]
    environment: Environment
    running: Running
    execution: Execution
    body: Callable[[Running, Execution], list[Value]]
    budget: EvalBudget
    remembered: Remembered
    counter: str = field(init=False)
    names: list[str] = field(init=False)
    assumed: set[str] = field(init=False, default_factory=set)

    def __post_init__(self) -> None:
        self.counter, _, _, _, carried = for_parts(self.op)
        self.names = [name for name, _ in carried]

    def all(self, trips: Count, state: State) -> tuple[State, bool]:
        """Every trip, or of a long loop as many as tell what all do.

        Returns:
            The state after them, and whether some stand for others.
        """
        longest = int(trips.max()) if trips.size else 0
        return self._shortened(trips, state) if longest > EXACT_TRIPS else (self._exact(trips, state), False)

    def _trip(self, position: NDArray[Any], state: State, running: Running, execution: Execution) -> State:
        """One trip at `position` (per program, or one for all); returns the state after it."""
        at = self.start + position * self.pace
        self.environment.held[self.counter] = values.of(np.asarray(at, dtype=np.int64).reshape(-1), ())
        self.environment.held.update(state)
        out = self.body(running, execution)
        return {n: v for n, v in zip(self.names, out, strict=False) if n in state}

    def _exact(self, trips: Count, state: State, limit: int = MAX_TRIPS) -> State:
        """Every trip; of more than `limit` the first, which then stand for all, so that none is certain."""
        longest = int(trips.max()) if trips.size else 0
        shortest = self._shortest(trips)
        running = self.running
        if longest > limit:
            running = replace(running, times=running.times * np.maximum(trips / limit, 1.0)).assuming(trips > limit)
        for i in range(min(longest, limit)):
            here = running if i < shortest else running.among(running.active & (trips > i))
            after = self._trip(np.array([i]), state, here, self.execution)
            if i % FORGET_TRIPS == FORGET_TRIPS - 1:
                self.remembered.forget()
            if i < shortest:
                state = after
            else:
                state = {n: values.select_programs(here.active, v, state[n]) for n, v in after.items()}
        if longest > limit:
            self.execution.approximations.add(
                f"a loop{self.op.in_line} was followed for some of its {longest:,} trips, the others count as these"
            )
        return state

    def _shortest(self, trips: Count) -> int:
        """Trips that all programs make."""
        active = self.running.active
        return int(trips[active].min()) if active.any() else 0

    def _shortened(self, trips: Count, state: State) -> tuple[State, bool]:
        """A long loop, by samples where trips do alike, else one by one as far as that is affordable."""
        budget, longest = self.budget, int(trips.max())
        steps = budget.steps
        advances = self._advances(state)
        irregular = regularity(self.op)
        known = {n: v.known for n, v in self.environment.held.items()}
        # What is not known is assumed the same in all trips; a branch that was not taken yet may turn out known.
        deciding = any(known.get(name, True) for name in irregular.deciding)
        carried = advances is None or any(name in state and state[name].known for name in irregular.carried)
        work = max((budget.steps - steps) / 2, 1.0) * (STEP_WORK + self._typical_size())
        affordable = min(int(budget.work_left / work), MAX_TRIPS)
        edges = any(known.get(name, True) for name in irregular.edges)
        # Where an access goes somewhere else in each trip, no few of them say where (a page from a table), nor where a condition changes.
        scattered = longest * work <= ADDRESS_WORK and (edges or any(known.get(name, True) for name in irregular.addresses))
        if (carried or deciding or scattered) and longest <= affordable:
            budget.work_left -= longest * work
            return self._exact(trips, state), False
        if advances is None or carried:
            return self._exact(trips, state, max(affordable, EXACT_TRIPS)), True
        if deciding:
            self.execution.approximations.add(f"a loop{self.op.in_line} was sampled, and its trips are not alike")
            budget.work_left -= affordable * work
        return self._sampled(trips, state, advances, max(affordable, SAMPLES) if deciding else None, edges), True

    def _typical_size(self) -> float:
        """Elements of the values that a trip works out, on average."""
        sizes = [
            sum(part.size for part in value.parts)
            for op in self.op.walk()
            for name in op.results
            if (value := self.environment.held.get(name)) is not None
        ]
        return sum(sizes) / max(len(sizes), 1)

    def _sampled(self, trips: Count, state: State, advances: dict[str, Advance], random: int | None = None, edges: bool = False) -> State:
        """Trips at both ends and at samples between; what is carried advances as in the first trips.

        Between two samples the counts are taken as those of the nearer one; equal samples make that exact. Where trips are not alike,
        `random` samples are drawn, so that none falls on the same trip of every period; of that, a sample alone is certain. So it is
        where conditions change (`edges`) between a sample and one beside it.
        """
        uniform = trips.max() == self._shortest(trips)

        def at(position: NDArray[Any]) -> State:
            return {n: values.assume(advances[n].after(v, position), v.assumed or n in self.assumed) for n, v in state.items()}

        running = replace(self.running, tags=tags_of(trips, uniform))
        places: list[tuple[Integers, dict[Part, Places]]] = []
        samples = list(_positions(trips, random))
        unlike = self._unlike(samples, trips, at, uniform) if edges and random is None else None
        for i, (position, share) in enumerate(samples):
            if i % FORGET_TRIPS == FORGET_TRIPS - 1:
                self.remembered.forget()
            here: Active = running.active & (share > 0) & (position < trips)
            if not here.any():
                continue
            used = position[:1] if uniform else position
            execution = replace(self.execution, places={})  # all but the places is added to what was found
            now = replace(running, active=here, times=running.times * share)
            if random is not None or unlike is not None:
                now = now.assuming((share > 1) if unlike is None else (share > 1) & unlike[i])
            self._trip(used, at(used), now, execution)
            places.append((used, execution.places))
        between(self.execution.places, places, running.tags)
        return at(trips[:1] if uniform else trips)

    def _unlike(
        self, samples: Sequence[tuple[NDArray[Any], Count]], trips: Count, at: Callable[[NDArray[Any]], State], uniform: bool
    ) -> list[Active]:
        """Of each sample the programs in which it does not do what those beside it do."""
        done: list[dict[Part, Count]] = []
        for position, _ in samples:
            used = position[:1] if uniform else position
            uncounted = Execution(self.execution.programs)
            active = self.running.active & (position < trips)
            if active.any():
                self._trip(used, at(used), replace(self.running, active=active, times=np.ones_like(self.running.times)), uncounted)
            done.append(uncounted.blocks)
        apart = [np.any([a.get(part, 0.0) != b.get(part, 0.0) for part in {*a, *b}], axis=0) for a, b in itertools.pairwise(done)]
        none = np.zeros(self.execution.programs, bool)
        return [np.logical_or(before, behind) for before, behind in zip([none, *apart], [*apart, none], strict=True)]

    def _advances(self, state: State) -> dict[str, Advance] | None:
        """What the first trip and the second add to the state, without counting; None where they differ."""
        uncounted = Execution(self.execution.programs)
        one = self._trip(np.array([0]), state, self.running, uncounted)
        two = self._trip(np.array([1]), one, self.running, uncounted)
        self.assumed = {name for name, value in two.items() if value.assumed}
        advances = {}
        for name in state:
            first, second = advance(state[name], one[name]), advance(one[name], two[name])
            if first is None or second is None or not first.same(second):
                return None
            advances[name] = first
        return advances


def _positions(trips: Count, random: int | None) -> Iterator[tuple[NDArray[Any], Count]]:
    """Where to sample, per program, and how many trips each sample stands for: each the middle of its trips, or any of them."""
    ends, samples = 4, SAMPLES if random is None else random
    within = np.full(samples, 0.5) if random is None else np.random.default_rng(0).random(samples)
    for i in range(ends):
        yield np.full(trips.shape, i), (trips > i).astype(float)
    middle = np.maximum(trips - 2 * ends, 0)
    for i in range(samples):
        low = np.floor(middle * i / samples)
        high = np.floor(middle * (i + 1) / samples)
        yield (ends + np.floor(low + (high - low) * within[i])).astype(np.int64), high - low
    for i in range(ends):
        position = trips - ends + i
        yield np.maximum(position, 0).astype(np.int64), (position >= ends).astype(float)


Pattern = tuple[int, ...]
"""Size along each dimension of a tensor: 1 where a summand does not vary."""


@dataclass(frozen=True, slots=True, eq=False)
class Advance:
    """What one trip adds to a value: a step per pattern of its summands. A value that is not known, or stays, has none."""

    steps: dict[Pattern, NDArray[Any]]

    def same(self, other: Advance) -> bool:
        """Whether another trip adds the same."""
        return list(self.steps) == list(other.steps) and all(map(np.array_equal, self.steps.values(), other.steps.values()))

    def after(self, value: Value, trips: NDArray[Any]) -> Value:
        """The value after some trips (per program, or as many for all)."""
        if not value.known or not self.steps:
            return value
        old, parts = _by_pattern(value), []
        for pattern, step in self.steps.items():
            base = old.get(pattern)
            if step.shape == () and step == 0:
                if base is not None:
                    parts.append(base)
                continue
            moved = step * trips.reshape((-1,) + (1,) * len(pattern))
            parts.append(moved if base is None else base + moved)
        return Value(tuple(parts), value.shape, False, value.base)


def advance(before: Value, after: Value) -> Advance | None:
    """What a trip added; None where that cannot be said."""
    if before is after:
        return Advance({})
    if not (before.known and after.known) or before.base != after.base or before.boolean or after.boolean:
        return None if before.known or after.known else Advance({})
    old, steps = _by_pattern(before), {}
    for pattern, part in _by_pattern(after).items():
        previous = old.pop(pattern, None)
        if previous is None:
            steps[pattern] = part
        else:
            steps[pattern] = np.zeros((), np.int64) if previous is part else part - previous
    return None if old else Advance(steps)


def _by_pattern(value: Value) -> dict[Pattern, NDArray[Any]]:
    """The summands by the dimensions they vary along: those that differ between programs, and the same in all, together."""
    by_pattern: dict[Pattern, NDArray[Any]] = {}
    for part in value.parts:
        pattern = part.shape[1:]
        by_pattern[pattern] = by_pattern[pattern] + part if pattern in by_pattern else part
    return by_pattern


@dataclass(slots=True)
class Environment:
    """The values of a function's names.

    Attributes:
        needed: The names that decide control flow, masks or addresses: no others are worked out.
        held: What each stands for now, by name.
    """

    needed: Set[str]
    held: dict[str, Value] = field(default_factory=dict)

    def value(self, name: str) -> Value:
        """The value of a name; unknown where it was not worked out."""
        retained = self.held.get(name)
        return retained if retained is not None else values.unknown({"a value only known at run time"})

    def values(self, names: Iterable[str]) -> list[Value]:
        """The values of names, in their order."""
        return [self.value(name) for name in names]
