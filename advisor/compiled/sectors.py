"""Sectors, the granule in which the L2 and DRAM hand out memory: what accesses fetch of them and do not use."""

from __future__ import annotations

import functools

import numpy as np

from advisor.compiled.counts import AccessDemand
from advisor.compiled.lattices import Lattice
from advisor.compiled.values import Value

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
    elements = np.unique(offsets)
    sectors = np.unique((elements - elements[0]) * element_bytes // SECTOR_BYTES)
    return max(len(sectors) * SECTOR_BYTES / (len(elements) * element_bytes), 1.0)


def scattered(access: AccessDemand) -> bool:
    """Whether neighbouring threads touch less than a sector in a row, and what lies between is not asked for either."""
    if access.contiguous is None or access.lanes < 32 or access.kind == "atomic":
        return False
    if access.requested_bytes < 0.5 * access.issued_bytes:
        return False  # broadcast: lanes share addresses
    return access.sector_ratio >= CONSIDERABLE


def unused_sector_bytes(access: AccessDemand) -> float:
    """Bytes of sectors that an access fetches and does not use; 0 where it is coalesced, or its addresses are not known."""
    return access.requested_bytes * (access.sector_ratio - 1) if scattered(access) else 0.0


def widened(lattice: Lattice) -> Lattice:
    """The bytes of a lattice with those up to a sector from each: at least what is fetched for them, wherever sectors begin."""
    run = next((count for step, count in lattice.steps if step == 1), 1)
    rest = [each for each in lattice.steps if each[0] != 1]
    found = Lattice(lattice.offset, [(1, max(run, SECTOR_BYTES)), *rest], list(lattice.listed))
    found.close()
    return found
