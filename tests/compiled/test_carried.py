"""What trips add to the values a loop carries."""

from __future__ import annotations

import numpy as np

from advisor.compiled.demand.loops import advance
from advisor.compiled.ir import values
from advisor.compiled.ir.values import Value

ROWS, COLUMNS = np.arange(3).reshape(3, 1, 1) * 100, np.arange(4).reshape(1, 4, 1)
POINTER = Value((ROWS, COLUMNS), (4, 8), False, "x")


def test_a_pointer_that_advances_is_told_for_any_trip() -> None:
    moved = values.add(POINTER, values.number(64, (4, 8)), (4, 8))
    step = advance(POINTER, moved)
    assert step is not None
    tenth = step.after(POINTER, np.array([10]))
    assert (tenth.array() == ROWS + COLUMNS + 640).all() and tenth.base == "x"
    per_program = step.after(POINTER, np.array([0, 1, 2]))
    assert (per_program.array() == ROWS + COLUMNS + 64 * np.arange(3).reshape(3, 1, 1)).all()


def test_what_stays_and_what_is_not_known_do_not_move() -> None:
    unknown = values.unknown({"why"})
    for value in (POINTER, unknown):
        step = advance(value, value)
        assert step is not None and step.after(value, np.array([7])) is value
    assert advance(unknown, values.unknown({"another"})) is not None


def test_what_cannot_be_said_is_none() -> None:
    other = Value(POINTER.parts, POINTER.shape, False, "y")
    assert advance(POINTER, other) is None
    assert advance(POINTER, values.unknown({"why"}, (4, 8))) is None
    assert advance(values.number(True), values.number(False)) is None
    assert advance(POINTER, Value((COLUMNS,), (4, 8), False, "x")) is None  # a summand that is gone


def test_trips_that_add_the_same_are_alike() -> None:
    first, second = advance(values.number(0), values.number(4)), advance(values.number(4), values.number(8))
    third = advance(values.number(8), values.number(9))
    assert first is not None and second is not None and third is not None
    assert first.same(second) and not second.same(third)
