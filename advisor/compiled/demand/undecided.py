"""What has a guess in its place on which the distance to the bound hangs: trips of loops, and where accesses go."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.demand.footprints import likely_footprints
from advisor.compiled.ir.contents import not_given, what_holds
from advisor.compiled.ir.execution import Inputs
from advisor.compiled.ir.ir import Operation

ARGUMENT = "argument "
"""Begins the reason why something is not known where it is an argument's value."""

NOT_TOLD = "data that are not given"


def untold_place(argument: str | None, operation: Operation) -> str:
    """What is not known of an access of which it is not where it goes."""
    if argument:
        return f"which bytes of {argument} are touched"
    where = f"line {operation.line}" if operation.location else "an access"
    return f"which bytes of which tensor {where} touches"  # such as behind a pointer that was loaded


def guessed_trips(demand: KernelDemand) -> frozenset[str]:
    """Why it is not known how often loops run: a prediction takes a number of trips that nothing tells."""
    return frozenset(reason for loop in demand.loops if loop.entries for reason in loop.reasons)


def guessed_places(demand: KernelDemand) -> frozenset[str]:
    """Why it is not known which bytes are touched, of all accesses of which it is not."""
    return frozenset[str]().union(*(access.unlocated_for or {NOT_TOLD} for access in demand.accesses if access.reach_bytes is None))


def if_distinct(demand: KernelDemand, inputs: Inputs) -> KernelDemand:
    """The demand if accesses of which it is not known where they go touched other bytes each time, as far as tensors are large enough."""
    accesses = tuple(replace(each, argument=each.name) for each in demand.accesses)  # also of which it is not known to what they go
    endless = dict.fromkeys((each.name for each in accesses if each.argument not in inputs.shapes), 2**62)
    inputs = replace(inputs, sizes={**endless, **inputs.sizes})
    loads = tuple(each for each in accesses if each.kind == "load")
    rest = tuple(each for each in accesses if each.kind != "load")
    return replace(
        demand,
        likely_footprint_bytes=likely_footprints(accesses, inputs, demand.programs),
        likely_read_footprints=likely_footprints(loads, inputs, demand.programs),
        likely_written_footprints=likely_footprints(rest, inputs, demand.programs),
    )


def in_words(reasons: Iterable[str]) -> str:
    """What a guess stands for where something is not known for these reasons: `what lengths holds, and the values of m and n`."""
    reasons = sorted(reasons)
    held = not_given(reasons)
    values = [reason.removeprefix(ARGUMENT) for reason in reasons if reason.startswith(ARGUMENT)]
    found = [what_holds(held)] if held else []
    found += [f"the value{'s' if len(values) > 1 else ''} of {' and '.join(values)}"] if values else []
    return ", and ".join(found) or NOT_TOLD
