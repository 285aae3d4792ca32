"""The trips of a loop: one by one, or at both ends and at samples where the trips between do as these."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import values
from advisor.compiled.execution import Active, Count, Execution, Part, Places
from advisor.compiled.ir import Block, Operation
from advisor.compiled.places import between, tags_of
from advisor.compiled.regularity import regularity
from advisor.compiled.values import Value

if TYPE_CHECKING:
    from advisor.compiled.evaluate import Evaluator

EXACT_TRIPS = 96
"""Loops up to this many trips are walked one by one; longer ones at their ends and at samples, and checked."""
MAX_TRIPS = 20_000
"""Trips of a loop that must be walked one by one (its values do not advance by a constant) before the rest is assumed."""
SAMPLES = 24
EXACT_WORK = 4e9
"""Elements that the evaluation of a launch may work out in long loops that it walks one by one: some seconds."""
ADDRESS_WORK = 4e8
"""Of these for a loop of which only addresses need that: some tenths of a second."""
STEP_WORK = 5000.0
"""Elements that take as long as an operation does besides."""
FORGET_TRIPS = 64
"""Trips after which what is remembered of masks and addresses is forgotten: those of earlier trips do not come again."""


@dataclass(slots=True)
class Walk:
    """The trips of one entry into a loop. `assumed`: carried values that a trip only assumes."""

    evaluator: Evaluator
    op: Operation
    body: list[Block]
    counter: str
    start: NDArray[Any]
    pace: NDArray[Any]
    names: list[str]
    environment: dict[str, Value]
    active: Active
    times: Count
    assumed: set[str] = field(init=False, default_factory=set)

    def trip(self, position: NDArray[Any], state: dict[str, Value], here: Active, times: Count) -> dict[str, Value]:
        """One trip at `position` (per program, or one for all); returns the state after it."""
        at = self.start + position * self.pace
        self.environment[self.counter] = values.of(np.asarray(at, dtype=np.int64).reshape(-1), ())
        self.environment.update(state)
        out = self.evaluator.region(self.body, self.environment, here, times)
        return {n: v for n, v in zip(self.names, out, strict=False) if n in state}

    def exact(self, trips: Count, state: dict[str, Value], limit: int = MAX_TRIPS) -> dict[str, Value]:
        """Every trip; of more than `limit` the first, which then stand for all."""
        longest = int(trips.max()) if trips.size else 0
        shortest = int(trips[self.active].min()) if self.active.any() else 0
        times = self.times * np.maximum(trips / limit, 1.0) if longest > limit else self.times
        for i in range(min(longest, limit)):
            here = self.active if i < shortest else self.active & (trips > i)
            after = self.trip(np.array([i]), state, here, times)
            if i % FORGET_TRIPS == FORGET_TRIPS - 1:
                self.evaluator.remembered.forget()
            if i < shortest:
                state = after
            else:
                state = {n: values.select_programs(here, v, state[n]) for n, v in after.items()}
        if longest > limit:
            self.evaluator.result.approximations.add(
                f"a loop{self.op.in_line} was followed for some of its {longest:,} trips, the others count as these"
            )
        return state

    def shortened(self, trips: Count, state: dict[str, Value]) -> tuple[dict[str, Value], bool]:
        """A long loop, by samples where trips do alike, else one by one as far as that is affordable.

        Returns:
            The state after it, and whether some trips stand for others.
        """
        evaluator, longest = self.evaluator, int(trips.max())
        steps = evaluator.steps
        deltas = self._deltas(state)
        irregular = regularity(self.op)
        known = {n: v.known for n, v in self.environment.items()}
        # What is not known is assumed the same in all trips; a branch that was not taken yet may turn out known.
        deciding = any(known.get(name, True) for name in irregular.deciding)
        carried = deltas is None or any(name in state and state[name].known for name in irregular.carried)
        work = max((evaluator.steps - steps) / 2, 1.0) * (STEP_WORK + self._typical_size())
        affordable = min(int(evaluator.work_left / work), MAX_TRIPS)
        # Where an access goes somewhere else in each trip, no few of them say where: a page from a table.
        scattered = longest * work <= ADDRESS_WORK and any(known.get(name, True) for name in irregular.addresses)
        if (carried or deciding or scattered) and longest <= affordable:
            evaluator.work_left -= longest * work
            return self.exact(trips, state), False
        if deltas is None or carried:
            return self.exact(trips, state, max(affordable, EXACT_TRIPS)), True
        if deciding:
            evaluator.result.approximations.add(f"a loop{self.op.in_line} was sampled, and its trips are not alike")
            evaluator.work_left -= affordable * work
        return self.sampled(trips, state, deltas, max(affordable, SAMPLES) if deciding else None), True

    def _typical_size(self) -> float:
        """Elements of the values that a trip works out, on average."""
        sizes = [sum(part.size for part in value.parts) for op in self.op.walk() for name in op.results
                 if (value := self.environment.get(name)) is not None]  # fmt: skip
        return sum(sizes) / max(len(sizes), 1)

    def sampled(
        self, trips: Count, state: dict[str, Value], deltas: dict[str, tuple[Any, ...]], random: int | None = None
    ) -> dict[str, Value]:
        """Trips at both ends and at samples between; what is carried advances by `deltas`.

        Between two samples the counts are taken as those of the nearer one; equal samples make that exact. Where trips are not alike,
        `random` samples are drawn, so that none falls on the same trip of every period.
        """
        evaluator, longest, shortest = self.evaluator, trips.max(), trips[self.active].min() if self.active.any() else 0
        uniform = longest == shortest

        def at(position: NDArray[Any]) -> dict[str, Value]:
            return {n: values.assume(_advanced(v, deltas[n], position), v.assumed or n in self.assumed) for n, v in state.items()}

        outer, tags = evaluator.result.places, evaluator.tags
        evaluator.tags = tags_of(trips, uniform)
        places: list[tuple[NDArray[Any], dict[Part, Places]]] = []
        for i, (position, share) in enumerate(_positions(trips, random)):
            if i % FORGET_TRIPS == FORGET_TRIPS - 1:
                evaluator.remembered.forget()
            here = self.active & (share > 0) & (position < trips)
            if not here.any():
                continue
            used = position[:1] if uniform else position
            evaluator.result.places = {}
            self.trip(used, at(used), here, self.times * share)
            places.append((used, evaluator.result.places))
        between(outer, places, evaluator.tags)
        evaluator.result.places, evaluator.tags = outer, tags
        return at(trips[:1] if uniform else trips)

    def _deltas(self, state: dict[str, Value]) -> dict[str, tuple[Any, ...]] | None:
        """What the first trip and the second add to the state, without counting; None where they differ."""
        evaluator = self.evaluator
        kept = evaluator.result
        evaluator.result = Execution(evaluator.programs)
        try:
            one = self.trip(np.array([0]), state, self.active, self.times)
            two = self.trip(np.array([1]), one, self.active, self.times)
        finally:
            evaluator.result = kept
        self.assumed = {name for name, value in two.items() if value.assumed}
        deltas = {}
        for name in state:
            a, b = _difference(state[name], one[name]), _difference(one[name], two[name])
            if a is None or b is None or len(a) != len(b):
                return None
            if not all(x == y if isinstance(x, tuple) else np.array_equal(x, y) for x, y in zip(a, b, strict=True)):
                return None
            deltas[name] = a
        return deltas


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


def _difference(before: Value, after: Value) -> tuple[Any, ...] | None:
    """What was added to each part; None where that cannot be said."""
    if before is after:
        return tuple(np.zeros((), np.int64) for _ in before.parts)
    if not (before.known and after.known) or before.base != after.base or before.boolean or after.boolean:
        return None if before.known or after.known else ()
    old, new = _by_pattern(before), _by_pattern(after)
    out = []
    for pattern, part in new.items():
        previous = old.pop(pattern, None)
        if previous is None:
            out.append(part)
        elif previous is part:
            out.append(np.zeros((), np.int64))
        else:
            out.append(part - previous)
    # The parts of `before` in the order of `after`, so that `_advanced` can add them up again.
    return (tuple(new), *out) if not old else None


def _by_pattern(value: Value) -> dict[tuple[int, ...], NDArray[Any]]:
    """The summands by the dimensions they vary along: those that differ between programs, and the same in all, together."""
    found: dict[tuple[int, ...], NDArray[Any]] = {}
    for part in value.parts:
        pattern = part.shape[1:]
        found[pattern] = found[pattern] + part if pattern in found else part
    return found


def _advanced(value: Value, delta: tuple[Any, ...], position: NDArray[Any]) -> Value:
    if not value.known or not delta or not isinstance(delta[0], tuple):
        return value
    patterns, steps = delta[0], delta[1:]
    old = _by_pattern(value)
    parts = []
    for pattern, step in zip(patterns, steps, strict=True):
        base = old.get(pattern)
        if step.shape == () and step == 0:
            if base is not None:
                parts.append(base)
            continue
        moved = step * position.reshape((-1,) + (1,) * len(pattern))
        parts.append(moved if base is None else base + moved)
    return Value(tuple(parts), value.shape, False, value.base)
