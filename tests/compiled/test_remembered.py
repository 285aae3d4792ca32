"""What is worked out once for the same arrays."""

from __future__ import annotations

import numpy as np

from advisor.compiled.ir.execution import Remembered


def test_the_same_arrays_are_worked_out_once() -> None:
    remembered, done = Remembered(), []
    a, b = np.zeros(2), np.zeros(2)

    def recall(what: str, *groups: tuple[np.ndarray, ...]) -> int:
        return remembered.recall(what, lambda: done.append(what) or len(done), *groups)

    assert recall("sum", (a, b)) == recall("sum", (a, b)) == 1
    assert recall("sum", (b, a)) == 2 and recall("sum", (a,), (b,)) == 3 and recall("other", (a, b)) == 4
    remembered.forget()
    assert recall("sum", (a, b)) == 5


def test_arrays_live_as_long_as_what_is_remembered_of_them() -> None:
    """Else another array could come to lie where one was, and be taken for it."""
    remembered, seen = Remembered(), set()
    for number in range(200):
        array = np.full(1, number)
        assert remembered.recall("first", array.max, (array,)) == number
        seen.add(id(array))
        del array
    assert len(seen) == 200
