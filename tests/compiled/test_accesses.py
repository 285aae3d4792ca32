"""One memory operation counted by itself, without the kernel that it stands in."""

from __future__ import annotations

import numpy as np

from advisor.compiled.demand.accesses import AccessCounter, request
from advisor.compiled.demand.loops import Environment
from advisor.compiled.ir import values
from advisor.compiled.ir.execution import Access, Execution, Remembered, Running
from advisor.compiled.ir.ir import Operation, parse
from advisor.compiled.ir.places import PlaceRecorder
from advisor.compiled.ir.values import Value

LOAD = """
module {
  tt.func public @k(%p: tensor<8x!tt.ptr<f32>>, %m: tensor<8xi1>) attributes {noinline = false} {
    %v = tt.load %p, %m : tensor<8x!tt.ptr<f32>>
    tt.return
  }
}
"""
PROGRAMS = 3
OFFSETS = np.arange(PROGRAMS)[:, None] * 8 + np.arange(8)[None, :]
EVERY = Running(np.ones(PROGRAMS, bool), np.full(PROGRAMS, 2.0))
POINTER = Value((OFFSETS,), (8,), False, "x")
MASK = values.of(np.arange(8)[None, :] < np.array([8, 5, 0])[:, None], (8,))


def load() -> Operation:
    return next(op for op in parse(LOAD).kernel.walk() if op.name == "tt.load")


def counted(pointer: Value, mask: Value, running: Running = EVERY) -> tuple[dict[bool, Access], Execution]:
    operation, remembered, found = load(), Remembered(), Execution(PROGRAMS)
    counter = AccessCounter(remembered, PlaceRecorder(np.arange(PROGRAMS), remembered))
    asked = request(operation, Environment(set(), {"%p": pointer, "%m": mask}), {}, found)
    counter.count(operation, asked, running, found)
    return {assumed: access for (_, assumed), access in found.accesses.items()}, found


def test_lanes_and_where_they_reach() -> None:
    (access,) = counted(POINTER, MASK)[0].values()
    assert access.executions.tolist() == [2, 2, 2] and access.lanes.tolist() == access.distinct.tolist() == [16, 10, 0]
    assert (access.low, access.high, access.contiguous, access.base) == (0, 12, 8, "x")


def test_lanes_that_share_an_address_are_one() -> None:
    (access,) = counted(Value((OFFSETS // 2 * 2,), (8,), False, "x"), MASK)[0].values()
    assert access.lanes.tolist() == [16, 10, 0] and access.distinct.tolist() == [8, 6, 0]


def test_programs_that_do_not_run_it_count_nothing() -> None:
    (access,) = counted(POINTER, MASK, EVERY.among(np.array([False, True, False])))[0].values()
    assert access.executions.tolist() == [0, 2, 0] and (access.low, access.high) == (8, 12)


def test_what_runs_certainly_and_what_is_assumed_to_are_apart() -> None:
    parts = counted(POINTER, MASK, EVERY.assuming(np.array([True, False, False])))[0]
    assert parts[False].executions.tolist() == [0, 2, 2] and parts[True].executions.tolist() == [2, 0, 0]


def test_an_unknown_mask_is_named_and_certain_nowhere() -> None:
    parts, found = counted(POINTER, values.unknown({"why"}, (8,)))
    assert list(parts) == [True] and parts[True].lanes.tolist() == [16, 16, 16]
    assert found.unknown == {"why": "a mask: the prediction takes all its lanes for active, the bound none"}


def test_an_unknown_address_is_certain_and_unlocated() -> None:
    parts, found = counted(values.unknown({"why"}, (8,), "x"), MASK)
    assert list(parts) == [False] and parts[False].unlocated and parts[False].lanes.tolist() == [16, 10, 0]
    assert not any(found.places.values())
