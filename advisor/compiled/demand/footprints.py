"""Distinct bytes of each argument: those that its accesses are known to touch, each once, no more than they ask for and than there is."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.demand.counts import AccessDemand
from advisor.compiled.demand.sectors import scattered, widened
from advisor.compiled.ir.execution import Inputs
from advisor.compiled.ir.lattices import distinct_bytes, likely_distinct_bytes


def footprints(accesses: Sequence[AccessDemand], inputs: Inputs) -> dict[str, float]:
    """Bytes per argument that certainly are touched, or per line where the argument of an access cannot be told.

    Where the addresses of an access are not known, one execution stands for all: others may touch the same. What other accesses to
    the same argument are known to touch counts all the same. What is only assumed to execute counts nowhere.
    """
    return _footprints(accesses, inputs, lambda unknown, size: _of_one_certain_execution(unknown), False)


def likely_footprints(accesses: Sequence[AccessDemand], inputs: Inputs, programs: float) -> dict[str, float]:
    """Bytes per argument that a prediction reckons with: as `footprints`, but more where more is likely.

    Of programs that were not looked at, as much as those that were let expect. Where the addresses of an access are not known, they are
    taken for distinct if the tensor's size is given; else one program's share stands for all.
    """

    def unknown_bytes(unknown: Sequence[AccessDemand], size: float | None) -> float:
        requested = sum(a.requested_bytes for a in unknown)
        return max(requested / max(programs, 1.0), _of_one_execution(unknown)) if size is None else requested

    return _footprints(accesses, inputs, unknown_bytes, True)


def likely_unused_bytes(accesses: Sequence[AccessDemand], inputs: Inputs, programs: float) -> float:
    """Bytes of sectors that likely are fetched because of some bytes in them, and not for their own sake.

    Only of arguments of which an access is scattered: what one program leaves of a row's last sector, the next one mostly uses.
    """
    found = 0.0
    for name in dict.fromkeys(a.name for a in accesses if scattered(a)):
        group = [a for a in accesses if a.name == name]
        fetched = [
            replace(a, touched=tuple(map(widened, a.touched)), requested_bytes=a.requested_bytes * a.sector_ratio) if scattered(a) else a
            for a in group
        ]
        found += likely_footprints(fetched, inputs, programs)[name] - likely_footprints(group, inputs, programs)[name]
    return max(found, 0.0)


def _footprints(
    accesses: Sequence[AccessDemand],
    inputs: Inputs,
    unknown_bytes: Callable[[Sequence[AccessDemand], float | None], float],
    likely: bool,
) -> dict[str, float]:
    by_name: dict[str, list[AccessDemand]] = {}
    for access in accesses:
        by_name.setdefault(access.name, []).append(access)
    found = {}
    for name, group in by_name.items():
        located = [a for a in group if a.reach_bytes is not None]
        unknown = [a for a in group if a.reach_bytes is None]
        size = max((s for a in group if (s := _size_bytes(a, inputs)) is not None), default=None)
        if likely:
            touched = likely_distinct_bytes(each for a in located for each in a.touched) * max((a.growth for a in located), default=1.0)
        else:
            touched = distinct_bytes(each for a in located for each in a.certain)
        touched = min(
            touched, sum(a.requested_bytes if likely else a.certain_bytes for a in located), _covered(a.reach_bytes for a in located)
        )
        found[name] = max(touched, unknown_bytes(unknown, size) if unknown else 0.0)
        if size is not None:
            found[name] = min(found[name], size)
    return found


def _of_one_execution(accesses: Iterable[AccessDemand]) -> float:
    """Bytes that one execution of one of them asks for."""
    return max(a.requested_bytes / max(a.executions, 1.0) for a in accesses)


def _of_one_certain_execution(accesses: Iterable[AccessDemand]) -> float:
    return max(a.certain_bytes / max(a.certain_executions, 1.0) for a in accesses)


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
