"""Distinct bytes of each argument: those that its accesses are known to touch, each once, no more than they ask for and than there is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from advisor.compiled.costs import element_bytes
from advisor.compiled.counts import AccessDemand
from advisor.compiled.execution import Inputs
from advisor.compiled.lattices import distinct_bytes


def footprints(accesses: Sequence[AccessDemand], inputs: Inputs, programs: float = 1.0) -> dict[str, float]:
    """Bytes per argument, or per line where the argument of an access cannot be told.

    Where the addresses of an access are not known, one program's share stands for all: a lower bound must not guess more. What
    other accesses to the same argument are known to touch counts all the same.
    """
    by_name: dict[str, list[AccessDemand]] = {}
    for access in accesses:
        by_name.setdefault(access.name, []).append(access)
    found = {}
    for name, group in by_name.items():
        located = [(a.requested_bytes, a.reach_bytes) for a in group if a.reach_bytes is not None]
        touched = min(sum(amount for amount, _ in located), _covered(reach for _, reach in located))
        touched = min(touched, distinct_bytes(each for a in group if a.reach_bytes is not None for each in a.touched))
        unknown = sum(a.requested_bytes for a in group if a.reach_bytes is None)
        found[name] = max(touched, unknown / max(programs, 1.0))
        size = max((s for a in group if (s := _size_bytes(a, inputs)) is not None), default=None)
        if size is not None:
            found[name] = min(found[name], size)
    return found


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
