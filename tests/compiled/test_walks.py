"""The trips of a loop by themselves: which are walked, what they stand for, and what is carried out of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from advisor.compiled.demand import loops
from advisor.compiled.demand.loops import Environment, EvalBudget, Walk, bounds
from advisor.compiled.ir import values
from advisor.compiled.ir.execution import Execution, Remembered, Running
from advisor.compiled.ir.ir import parse
from advisor.compiled.ir.values import Value

LOOP = """
module {
  tt.func public @k(%n: i32) attributes {noinline = false} {
    %c0 = arith.constant 0 : i32
    %c3 = arith.constant 3 : i32
    %a = scf.for %i = %c0 to %n step %c3 iter_args(%s = %c0) -> (i32)  : i32 {
      %t = arith.addi %s, %c3 : i32
      scf.yield %t : i32
    }
    tt.return
  }
}
"""
TRIPS = [0, 5, 900]
UNKNOWN = values.unknown({"why"})


class Body:
    """Adds 4 to what is carried in each trip, and notes where the counter was and how many trips each program made."""

    def __init__(self, counted: Execution) -> None:
        self.counted = counted
        self.environment = Environment({"%s"}, {})
        self.positions: list[int] = []
        self.made = np.zeros(len(TRIPS))

    def __call__(self, running: Running, found: Execution) -> list[Value]:
        if found.blocks is self.counted.blocks:  # not those of trips that are only tried
            self.positions.append(int(self.environment.value("%i").scalar().max()) // 3)
            self.made += running.counts
        return [values.add(self.environment.value("%s"), values.number(4), ())]


def walked(trips: list[int], found: Execution | None = None) -> tuple[Body, Any, bool]:
    operation = next(op for op in parse(LOOP).kernel.walk() if op.name == "scf.for")
    found = found or Execution(len(TRIPS))
    body = Body(found)
    walk = Walk(
        op=operation,
        start=np.zeros(1, np.int64),
        pace=np.full(1, 3),
        environment=body.environment,
        running=Running(np.ones(len(TRIPS), bool), np.ones(len(TRIPS))),
        execution=found,
        body=body,
        budget=EvalBudget(0.0),
        remembered=Remembered(),
    )
    state, sampled = walk.all(np.array(trips, float), {"%s": values.number(100)})
    return body, np.broadcast_to(state["%s"].scalar(), len(TRIPS)).tolist(), sampled


def test_short_loops_are_walked() -> None:
    body, carried, sampled = walked([0, 5, 9])
    assert not sampled and body.positions == list(range(9))
    assert body.made.tolist() == [0, 5, 9] and carried == [100, 120, 136]


@pytest.mark.parametrize("trips", [TRIPS, [900, 900, 900], [97, 98, 12_345]])
def test_of_long_loops_some_trips_stand_for_all(trips: list[int]) -> None:
    body, carried, sampled = walked(trips)
    assert sampled and len(body.positions) < 40 and {0, 1, 2, 3, max(trips) - 1} <= set(body.positions)
    assert body.made.tolist() == trips and carried == [100 + 4 * n for n in trips]


def test_what_cannot_be_sampled_nor_walked_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "advance", lambda before, after: None)
    found = Execution(len(TRIPS))
    body, _, sampled = walked(TRIPS, found)
    assert sampled and body.positions == list(range(loops.EXACT_TRIPS)) and body.made.tolist() == pytest.approx(TRIPS)
    assert found.approximations == {"a loop was followed for some of its 900 trips, the others count as these"}


def test_trips_follow_from_the_bounds() -> None:
    low, high = values.of(np.array([0, 1, 50]), ()), values.number(10)
    start, pace, trips = bounds(low, high, values.number(4), 1)
    assert (start.tolist(), pace.tolist(), trips.tolist()) == ([0, 1, 50], [4], [3, 3, 0])
    start, pace, trips = bounds(low, UNKNOWN, values.number(4), 7)
    assert (start.tolist(), pace.tolist(), trips.tolist()) == ([0, 1, 50], [4], [7])
    start, pace, trips = bounds(UNKNOWN, high, UNKNOWN, 1)
    assert (start.tolist(), pace.tolist(), trips.tolist()) == ([0], [1], [1])
