"""What a bound may count of tensors whose types are guesses: the bytes of the narrowest type that is likely."""

from __future__ import annotations

from dataclasses import replace

from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.demand.counts import AccessDemand, KernelDemand
from advisor.compiled.guesses.assumptions import NARROWER
from advisor.compiled.guesses.inference import Guess


def certain_of_guesses(demand: KernelDemand, guess: Guess) -> KernelDemand:
    """The demand with less of it certain: of each guessed type that may be narrower, what is asked for if it is.

    A prediction goes on with the guess, which is the likelier type.
    """
    shares = {
        name: element_bytes(NARROWER[kind][1:]) / element_bytes(kind[1:])
        for name in guess.guessed
        if (kind := guess.signature[name]) in NARROWER
    }
    if not shares:
        return demand

    def share(access: AccessDemand) -> float:
        return shares.get(access.argument or "", 1.0)

    unasked = sum((1.0 - share(a)) * a.certain_bytes for a in demand.accesses if a.kind == "load")
    certain = replace(demand.certain, requested_load_bytes=demand.certain.requested_load_bytes - unasked)
    footprints = (demand.footprint_bytes, demand.read_footprints, demand.written_footprints)
    all_, read, written = ({name: shares.get(name, 1.0) * count for name, count in each.items()} for each in footprints)
    return replace(demand, certain=certain, footprint_bytes=all_, read_footprints=read, written_footprints=written)
