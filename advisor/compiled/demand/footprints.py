"""Distinct bytes of each argument, and what passes into a launch and out of it, of all tensors together: certain, and likely.

A footprint is the bytes that accesses are known to touch, each once, no more than they ask for and than there is.
Tensors that arguments point to are taken for different ones, unless a record says that two are one (`KernelLaunch.same`). Where an
address was loaded (a table of pointers), or is one of several arguments', the tensor behind it may be one of them: a bound then counts no
more than the larger of the two, not both.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from advisor.compiled.demand.accesses import scattered, widened
from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.demand.counts import AccessDemand, KernelDemand
from advisor.compiled.ir.execution import LOADED, Inputs
from advisor.compiled.ir.ir import Module, Operation
from advisor.compiled.ir.lattices import distinct_bytes, likely_distinct_bytes
from advisor.compiled.ir.slicing import address_operands
from advisor.compiled.ir.values import OR
from advisor.system import grouped


def footprints(accesses: Sequence[AccessDemand], inputs: Inputs) -> dict[str, float]:
    """Bytes per argument that certainly are touched, or per line where the argument of an access cannot be told.

    Where the addresses of an access are not known, one execution stands for all: others may touch the same. What other accesses to
    the same argument are known to touch counts all the same. What is only assumed to execute counts nowhere.
    """

    def of_one(unknown: Sequence[AccessDemand], size: float | None) -> float:
        return max(a.certain_bytes / max(a.certain_executions, 1.0) for a in unknown)

    return _footprints(accesses, inputs, of_one, False)


def likely_footprints(accesses: Sequence[AccessDemand], inputs: Inputs, programs: float) -> dict[str, float]:
    """Bytes per argument that a prediction reckons with: as `footprints`, but more where more is likely.

    Of programs that were not looked at, as much as those that were let expect. Where the addresses of an access are not known, they are
    taken for distinct if the tensor's size is given; else one program's share stands for all.
    """

    def unknown_bytes(unknown: Sequence[AccessDemand], size: float | None) -> float:
        requested = sum(a.requested_bytes for a in unknown)
        of_one = max(a.requested_bytes / max(a.executions, 1.0) for a in unknown)
        return max(requested / max(programs, 1.0), of_one) if size is None else requested

    return _footprints(accesses, inputs, unknown_bytes, True)


def likely_unused_bytes(accesses: Sequence[AccessDemand], inputs: Inputs, programs: float) -> float:
    """Bytes of sectors that likely are fetched because of some bytes in them, and not for their own sake.

    Only of arguments of which an access is scattered: what one program leaves of a row's last sector, the next one mostly uses.
    """
    unused = 0.0
    for name in dict.fromkeys(a.name for a in accesses if scattered(a)):
        group = [a for a in accesses if a.name == name]
        fetched = [
            replace(a, touched=tuple(map(widened, a.touched)), requested_bytes=a.requested_bytes * a.sector_ratio) if scattered(a) else a
            for a in group
        ]
        unused += likely_footprints(fetched, inputs, programs)[name] - likely_footprints(group, inputs, programs)[name]
    return max(unused, 0.0)


def _footprints(
    accesses: Sequence[AccessDemand],
    inputs: Inputs,
    unknown_bytes: Callable[[Sequence[AccessDemand], float | None], float],
    likely: bool,
) -> dict[str, float]:
    by_name = grouped((access.name, access) for access in accesses)
    footprints = {}
    for name, group in by_name.items():
        located = [a for a in group if a.reach_bytes is not None]
        unknown = [a for a in group if a.reach_bytes is None]
        size = max((s for a in group if (s := _size_bytes(a, inputs)) is not None), default=None)
        if likely:
            touched = likely_distinct_bytes(item for a in located for item in a.touched) * max((a.growth for a in located), default=1.0)
        else:
            touched = distinct_bytes(item for a in located for item in a.certain)
        reached = (1 + name.count(OR)) * _covered(a.reach_bytes for a in located)
        touched = min(touched, sum(a.requested_bytes if likely else a.certain_bytes for a in located), reached)
        footprints[name] = max(touched, unknown_bytes(unknown, size) if unknown else 0.0)
        if size is not None:
            footprints[name] = min(footprints[name], size)
    return footprints


def unlocated(accesses: Iterable[AccessDemand]) -> frozenset[str]:
    """Arguments of which it is not known which bytes some access touches."""
    return frozenset(a.name for a in accesses if a.reach_bytes is None)


def _size_bytes(access: AccessDemand, inputs: Inputs) -> float | None:
    """Size of the tensor that an access goes to, as far as it is given."""
    if access.argument is None:
        return None
    if access.argument in inputs.sizes:
        return inputs.sizes[access.argument] * element_bytes(access.element)
    shape = inputs.shapes.get(access.argument)
    return None if shape is None else float(math.prod(shape)) * element_bytes(access.element)


def _covered(reaches: Iterable[tuple[float, float] | None]) -> float:
    """Bytes that at least one of some intervals covers."""
    total, end = 0.0, -math.inf
    for low, high in sorted(reach for reach in reaches if reach is not None):
        total += max(high - max(low, end), 0.0)
        end = max(end, high)
    return total


CONSIDERABLE = 0.01
"""Share of the bytes that pass from which it is said that they are left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DramFootprint:
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


def certain_footprint(demand: KernelDemand) -> DramFootprint:
    """What passes whatever the data are, and whatever tensors addresses lead to that are not those of an argument."""
    read = _before(demand, demand.read_footprints)
    written = demand.written_footprints
    elsewhere = _anywhere(demand.accesses)
    updated = sum(count for name, count in written.items() if name in demand.updated)
    own_read, own_written = (sum(count for name, count in item.items() if name not in elsewhere) for item in (read, written))
    # Those of several lines may be one tensor too.
    other_read, other_written = (max((item.get(name, 0.0) for name in elsewhere), default=0.0) for item in (read, written))
    all_written = max(own_written, other_written)
    in_place = _in_both(demand.footprint_bytes, read, demand.read_footprints, written)
    if other_written:
        updated = 0.0  # stores may have come before
    all_read = max(own_read, other_read - updated)  # old values of what is updated count as read already
    in_place += min(other_read, own_written) + min(other_written, own_read)
    in_place += sum(min(read.get(name, 0.0), written.get(other, 0.0)) for name in elsewhere for other in elsewhere if name != other)
    return DramFootprint(
        read=all_read,
        written=all_written,
        results=all_written - updated,
        in_place=min(in_place, all_read, all_written),
    )


def likely_footprint(demand: KernelDemand) -> DramFootprint:
    """What passes if all is so that a prediction takes for likely: tensors behind loaded addresses are others than the arguments'."""
    read, written = _before(demand, demand.likely_read_footprints), demand.likely_written_footprints
    results = sum(count for name, count in written.items() if name not in demand.updated)
    in_place = _in_both(demand.likely_footprint_bytes, read, demand.likely_read_footprints, written)
    return DramFootprint(read=sum(read.values()), written=sum(written.values()), results=results, in_place=in_place)


def not_told_apart(demand: KernelDemand) -> dict[str, str]:
    """What of the bytes that pass a bound leaves out, for it may be counted already: what is not known, and what is assumed."""
    alike = {}
    for verb, footprint in (("reads", demand.read_footprints), ("writes", demand.written_footprints)):
        total = sum(footprint.values())
        for name in sorted(_anywhere(demand.accesses) & footprint.keys()):
            if min(footprint[name], total - footprint[name]) > CONSIDERABLE * total:
                what = f"what the kernel {verb} behind loaded addresses" if name == LOADED else f"what {name} {verb}"
                alike[f"whether {what} is one of the other tensors"] = "the bound takes it for one, the prediction for another"
    for name, before in demand.rewritten.items():
        if name not in demand.stored_first and before > CONSIDERABLE * sum(demand.read_footprints.values()):
            alike[f"how much of what is read of {name} the launch has written before"] = (
                f"the bound takes {before / 1e6:.4g} MB for written, the prediction nothing"
            )
    return alike


def _before(demand: KernelDemand, read: Mapping[str, float]) -> dict[str, float]:
    """Of the bytes read of each argument, those that the launch did not write before."""
    return {name: max(count - demand.rewritten.get(name, 0.0), 0.0) for name, count in read.items()}


def _in_both(all_: Mapping[str, float], before: Mapping[str, float], read: Mapping[str, float], written: Mapping[str, float]) -> float:
    """Bytes that are read and then overwritten, at most, by the sizes of the sets and of their unions."""
    both = {name: read[name] + written[name] - all_.get(name, 0.0) for name in read.keys() & written.keys()}
    return sum(min(max(count, 0.0), before[name], written[name]) for name, count in both.items())


def _anywhere(accesses: Iterable[AccessDemand]) -> frozenset[str]:
    """What accesses are known by that may go to a tensor to which others are known to go: their address was loaded, may be any, or is one
    of several arguments', of which another is used alone."""
    one = {access.name: access for access in accesses}
    several = {name: access for name, access in one.items() if access.argument in (None, LOADED) or OR in str(access.argument)}
    return frozenset(name for name, access in several.items() if any(may_meet(access, item) for item in one.values() if item is not access))


def may_meet(access: AccessDemand, other: AccessDemand) -> bool:
    """Whether two accesses may go to one tensor: to one argument, or where the address was loaded, or may be any."""
    if access.argument is None or other.argument is None:
        return True
    arguments, others = (set(item.argument.split(OR)) for item in (access, other) if item.argument)
    return LOADED in arguments | others or not arguments.isdisjoint(others)


def rewritten_bytes(accesses: Sequence[AccessDemand], module: Module, inputs: Inputs) -> dict[str, float]:
    """Of the bytes read of an argument (`footprints` of its loads), those that the launch may have written before; absent: none."""
    places = {id(op): place for place, op in enumerate(module.kernel.walk())}
    loops = module.loops_around()

    def may_follow(load: Operation, store: Operation) -> bool:
        """Whether a byte may have been stored before it is first loaded, by any trip of a loop that both stand in: not where each trip
        first loads what it then stores, at one address."""
        if places[id(store)] < places[id(load)]:
            return True
        around, other = loops[id(load)], loops[id(store)]
        return bool(set(around) & set(other)) and (around != other or address_operands(load) != address_operands(store))

    rewritten = {}
    for name in dict.fromkeys(a.name for a in accesses if a.kind == "load" and a.certain_executions):
        loads = [a for a in accesses if a.name == name and a.kind == "load"]
        stores = [a for a in accesses if a.kind != "load" and may_meet(a, loads[0])]
        early = [load for load in loads if not any(may_follow(load.operation, store.operation) for store in stores)]
        if len(early) < len(loads):
            rewritten[name] = footprints(loads, inputs)[name] - (footprints(early, inputs)[name] if early else 0.0)
    return {name: count for name, count in rewritten.items() if count > 0}
