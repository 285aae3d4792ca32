"""Bytes that pass into a launch and out of it, of all tensors together: what of them is certain, and what is likely.

Tensors that arguments point to are taken for different ones, unless a record says that two are one (`KernelLaunch.same`). Where an
address was loaded (a table of pointers), or is one of several arguments', the tensor behind it may be one of them: a bound then counts no
more than the larger of the two, not both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.demand.rewritten import anywhere
from advisor.compiled.ir.contents import LOADED

CONSIDERABLE = 0.01
"""Share of the bytes that pass from which it is said that they are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Passing:
    """Bytes, each once.

    Attributes:
        read: That were there before the launch.
        written: That are there after it.
        results: Of those written, whose old values nothing asks for.
        in_place: Read and then overwritten, counted in both.
    """

    read: float
    written: float
    results: float
    in_place: float


def certain_passing(demand: KernelDemand) -> Passing:
    """What passes whatever the data are, and whatever tensors addresses lead to that are not those of an argument."""
    read = _before(demand, demand.read_footprints)
    written = demand.written_footprints
    elsewhere = frozenset(a.name for a in demand.accesses if anywhere(a))
    updated = sum(count for name, count in written.items() if name in demand.updated)
    own_read, own_written = (sum(count for name, count in each.items() if name not in elsewhere) for each in (read, written))
    # Those of several lines may be one tensor too.
    other_read, other_written = (max((each.get(name, 0.0) for name in elsewhere), default=0.0) for each in (read, written))
    all_written = max(own_written, other_written)
    in_place = _in_both(demand.footprint_bytes, read, demand.read_footprints, written)
    if other_written:
        updated = 0.0  # stores may have come before
    all_read = max(own_read, other_read - updated)  # old values of what is updated count as read already
    in_place += min(other_read, own_written) + min(other_written, own_read)
    in_place += sum(min(read.get(name, 0.0), written.get(other, 0.0)) for name in elsewhere for other in elsewhere if name != other)
    return Passing(
        read=all_read,
        written=all_written,
        results=all_written - updated,
        in_place=min(in_place, all_read, all_written),
    )


def likely_passing(demand: KernelDemand) -> Passing:
    """What passes if all is so that a prediction takes for likely: tensors behind loaded addresses are others than the arguments'."""
    read, written = _before(demand, demand.likely_read_footprints), demand.likely_written_footprints
    results = sum(count for name, count in written.items() if name not in demand.updated)
    in_place = _in_both(demand.likely_footprint_bytes, read, demand.likely_read_footprints, written)
    return Passing(read=sum(read.values()), written=sum(written.values()), results=results, in_place=in_place)


def not_told_apart(demand: KernelDemand) -> dict[str, str]:
    """What of the bytes that pass a bound leaves out, for it may be counted already: what is not known, and what is assumed."""
    found = {}
    for verb, each in (("reads", demand.read_footprints), ("writes", demand.written_footprints)):
        total = sum(each.values())
        for name in sorted({a.name for a in demand.accesses if anywhere(a)} & each.keys()):
            if min(each[name], total - each[name]) > CONSIDERABLE * total:
                what = f"what the kernel {verb} behind loaded addresses" if name == LOADED else f"what {name} {verb}"
                found[f"whether {what} is one of the other tensors"] = "the bound takes it for one, the prediction for another"
    for name, before in demand.rewritten.items():
        if before > CONSIDERABLE * sum(demand.read_footprints.values()):
            found[f"how much of what is read of {name} the launch has written before"] = (
                f"the bound takes {before / 1e6:.4g} MB for written, the prediction nothing"
            )
    return found


def _before(demand: KernelDemand, read: Mapping[str, float]) -> dict[str, float]:
    """Of the bytes read of each argument, those that the launch did not write before."""
    return {name: max(count - demand.rewritten.get(name, 0.0), 0.0) for name, count in read.items()}


def _in_both(all_: Mapping[str, float], before: Mapping[str, float], read: Mapping[str, float], written: Mapping[str, float]) -> float:
    """Bytes that are read and then overwritten, at most, by the sizes of the sets and of their unions."""
    both = {name: read[name] + written[name] - all_.get(name, 0.0) for name in read.keys() & written.keys()}
    return sum(min(max(count, 0.0), before[name], written[name]) for name, count in both.items())
