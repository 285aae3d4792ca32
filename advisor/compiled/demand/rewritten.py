"""Bytes that a launch reads after it may have written them itself: nothing brings those from DRAM.

A bound counts what is read as brought from where the launch before left it. Of what the launch writes first (a result that a second
pass goes through again, a scratch tensor, a cache that takes a new entry and is read whole), nothing is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from advisor.compiled.demand.counts import AccessDemand
from advisor.compiled.demand.footprints import footprints
from advisor.compiled.ir.contents import LOADED
from advisor.compiled.ir.execution import Inputs
from advisor.compiled.ir.ir import Module
from advisor.compiled.ir.slicing import address_operands


def anywhere(access: AccessDemand) -> bool:
    """Whether an access may go to any tensor: its address was loaded, or is one of several arguments'."""
    return access.argument in (None, LOADED)


def rewritten_bytes(accesses: Sequence[AccessDemand], module: Module, inputs: Inputs) -> dict[str, float]:
    """Of the bytes read of an argument (`footprints` of its loads), at most how many the launch may have written before; absent: none."""
    program = _Order.of(module)
    found = {}
    for name in dict.fromkeys(a.name for a in accesses if a.kind == "load" and a.certain_executions):
        loads = [a for a in accesses if a.name == name and a.kind == "load"]
        stores = [a for a in accesses if a.kind != "load" and (a.name == name or anywhere(a) or anywhere(loads[0]))]
        late = [load for load in loads if any(program.may_follow(load, store) for store in stores)]
        if not late:
            continue
        early = [load for load in loads if all(load is not each for each in late)]
        all_ = footprints(loads, inputs)[name]
        first = footprints(early, inputs)[name] if early else 0.0
        before = min(footprints(late, inputs)[name], _most(stores), _shared(late, stores, name, inputs))
        found[name] = min(all_ - first, before)
    return {name: count for name, count in found.items() if count > 0}


def _most(stores: Sequence[AccessDemand]) -> float:
    """Bytes that stores write at most; infinite where it is not known how often they do."""
    counted = all(s.executions == s.certain_executions for s in stores)
    return sum(s.requested_bytes for s in stores) if counted else math.inf


def _shared(loads: Sequence[AccessDemand], stores: Sequence[AccessDemand], name: str, inputs: Inputs) -> float:
    """Bytes that loads and stores of one argument may both touch; infinite where they need not be of one, or places are not known."""
    accesses = (*loads, *stores)
    if any(a.name != name or a.argument is None or a.reach_bytes is None for a in accesses) or math.isinf(_most(stores)):
        return math.inf
    read, written, either = (footprints(each, inputs)[name] for each in (loads, stores, accesses))
    return max(read + written - either, 0.0) + max(_most(stores) - written, 0.0)  # what is not listed of the stores may be read


@dataclass(frozen=True, slots=True)
class _Order:
    """Where the operations of a kernel stand: in which place, and in which loops."""

    places: Mapping[int, int]
    loops: Mapping[int, tuple[int, ...]]

    @classmethod
    def of(cls, module: Module) -> _Order:
        return cls({id(op): place for place, op in enumerate(module.kernel.walk())}, module.loops_around())

    def may_follow(self, load: AccessDemand, store: AccessDemand) -> bool:
        """Whether a byte may have been stored before it is first loaded, by any trip of a loop that both stand in.

        Not where each trip first loads what it then stores, at one address.
        """
        first, second = load.operation, store.operation
        if id(first) not in self.places or id(second) not in self.places:  # in a function that the kernel calls
            return True
        if self.places[id(second)] < self.places[id(first)]:
            return True
        around, other = self.loops.get(id(first), ()), self.loops.get(id(second), ())
        return bool(set(around) & set(other)) and (around != other or address_operands(first) != address_operands(second))
