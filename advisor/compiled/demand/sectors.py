"""Sectors, the granule in which the L2 and DRAM hand out memory: what accesses fetch of them and do not use."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import numpy as np

from advisor.compiled.demand.counts import AccessDemand
from advisor.compiled.ir.arithmetic import distinct_values
from advisor.compiled.ir.lattices import Lattice, distinct_bytes
from advisor.compiled.ir.values import Value

SECTOR_BYTES = 32
"""Granule of L1 and L2. Source: CUDA C++ Best Practices Guide, coalesced access to global memory."""
CONSIDERABLE = 1.25
"""Bytes fetched over bytes asked for, from which an access counts as scattered: a row that ends inside a sector is none yet."""


def sector_ratio(pointer: Value, element_bytes: int) -> float:
    """Bytes of the sectors that hold what the lanes of one program ask for, over those bytes: 1 where neighbours lie side by side.

    All lanes of the program count together, as its loads share the L1. It is one in the middle, for the first is rarely typical; masks
    leave out ends, which changes little.
    """
    if not pointer.varying:
        return 1.0
    offsets = functools.reduce(np.add, (part[part.shape[0] // 2] for part in pointer.varying))
    elements = distinct_values(offsets)
    sectors = distinct_values((elements - elements[0]) * element_bytes // SECTOR_BYTES)
    return max(len(sectors) * SECTOR_BYTES / (len(elements) * element_bytes), 1.0)


def scattered(access: AccessDemand) -> bool:
    """Whether neighbouring threads touch less than a sector in a row, and what lies between is not asked for either."""
    if access.contiguous is None or access.lanes < 32 or access.kind == "atomic":
        return False
    if access.requested_bytes < 0.5 * access.issued_bytes:
        return False  # broadcast: lanes share addresses
    return access.sector_ratio >= CONSIDERABLE


def unused_sector_bytes(accesses: Sequence[AccessDemand]) -> list[float]:
    """Bytes of sectors that each access of a kernel fetches and does not use; 0 where it is coalesced, or its addresses are not known.

    Scattered loads of one argument that stand in the same loop, or in none, follow one another: what one has fetched, the others find in
    the L1 (of even and odd elements, the second load). Stores go through it, each by itself.
    """
    apart = [a for a in accesses if scattered(a)]
    near: dict[tuple[str | None, int | None], list[AccessDemand]] = {}
    for access in apart:
        if access.kind == "load":
            near.setdefault((access.argument, access.loop), []).append(access)
    shares = {id(each): share for group in near.values() for share in [_shared(group)] for each in group}
    ratios = {id(a): a.sector_ratio * shares.get(id(a), 1.0) for a in apart}
    return [a.requested_bytes * (ratio - 1) if (ratio := ratios.get(id(a), 1.0)) >= CONSIDERABLE else 0.0 for a in accesses]


def _shared(loads: Sequence[AccessDemand]) -> float:
    """What some loads together touch of sectors over what each of them does; 1 where that is not known."""
    touched = [[widened(each) for each in access.touched] for access in loads]
    if len(loads) == 1 or not all(touched):
        return 1.0
    return distinct_bytes(itertools.chain.from_iterable(touched)) / sum(map(distinct_bytes, touched))


def widened(lattice: Lattice) -> Lattice:
    """The bytes of a lattice with those up to a sector from each: at least what is fetched for them, wherever sectors begin."""
    run = next((count for step, count in lattice.steps if step == 1), 1)
    rest = [each for each in lattice.steps if each[0] != 1]
    found = Lattice(lattice.offset, [(1, max(run, SECTOR_BYTES)), *rest], list(lattice.listed))
    found.close()
    return found
