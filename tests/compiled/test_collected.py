"""Sums over sets of programs, without a kernel that does anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from advisor.compiled.demand.collected import AccessPart, Collected
from advisor.compiled.demand.counts import AccessDemand
from advisor.compiled.demand.demand import access_demand
from advisor.compiled.ir.execution import Access, Execution
from advisor.compiled.ir.ir import Block, Operation, parse

KERNEL = """
module {
  tt.func public @k(%p: tensor<4x!tt.ptr<f16>>) attributes {noinline = false} {
    %v = tt.load %p : tensor<4x!tt.ptr<f16>> loc("k.py":5:1)
    %w = arith.addf %v, %v : tensor<4xf16> loc("k.py":6:1)
    tt.return
  }
}
"""


@pytest.fixture(scope="module")
def block() -> Block:
    return parse(KERNEL, ("k.py",)).kernel.blocks[0]


def access(operation: Operation, lanes: float, **rest: Any) -> Access:
    return Access(operation, np.ones(2), np.full(2, lanes), np.full(2, lanes / 2), **{"base": "x", **rest})


def test_what_is_assumed_is_no_part_of_what_is_certain(block: Block) -> None:
    execution, load = Execution(2), block.operations[0]
    execution.block_of[id(block)] = block
    execution.blocks = {(id(block), False): np.array([1.0, 0.0]), (id(block), True): np.array([0.0, 3.0])}
    execution.accesses = {(id(load), False): access(load, 4), (id(load), True): access(load, 2)}
    collected = Collected(scale=10.0, divisors={})
    collected.take(execution)
    assert collected.all.rows()["fma"].tolist() == [4, 12] and collected.certain.rows()["fma"].tolist() == [4, 0]
    assert collected.all.rows()["load"].tolist() == [12, 12] and collected.certain.rows()["load"].tolist() == [8, 8]
    (parts,) = collected.accesses.values()
    found, _ = access_demand(parts, collected.scale, {}, None)
    assert (found.kind, found.element) == ("load", "f16")
    assert (found.executions, found.certain_executions, found.issued_bytes, found.certain_bytes) == (40, 20, 240, 80)
    assert collected.lines == {("k.py", 5): {"load_bytes": 10 * (16 + 8)}, ("k.py", 6): {"fma_flop": 10 * 16}}


def test_sets_of_programs_follow_each_other(block: Block) -> None:
    collected = Collected(scale=1.0, divisors={})
    for times in (1.0, 2.0):
        execution = Execution(1)
        execution.block_of[id(block)], execution.blocks = block, {(id(block), False): np.array([times])}
        collected.take(execution)
    assert collected.all.rows()["fma"].tolist() == [4, 8]
    assert collected.executions == {("k.py", line): {id(block): 3.0} for line in (5, 6)}


def test_where_an_access_reaches_over_all_sets(block: Block) -> None:
    sets = [access(block.operations[0], 4, low=low, high=high) for low, high in ((None, None), (8, 9), (2, 5), (None, None))]

    def found(*more: Access) -> AccessDemand:
        return access_demand([AccessPart(False, each, []) for each in (*sets, *more)], 1.0, {}, None)[0]

    assert found().reach_bytes == (4, 20) and found().argument == "x"
    whole = found(
        access(block.operations[0], 4, base="y", unknown_extent=True, contiguous=4),
        access(block.operations[0], 4, low=0, high=1, contiguous=1),
    )
    assert whole.reach_bytes is None and whole.argument == "x or y" and whole.contiguous == 4
