"""What the trips of a loop add to the values that it carries, and what these are some trips later."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.ir.values import Value

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
    found: dict[Pattern, NDArray[Any]] = {}
    for part in value.parts:
        pattern = part.shape[1:]
        found[pattern] = found[pattern] + part if pattern in found else part
    return found
