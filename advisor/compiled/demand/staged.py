"""What operands of products and partial results need not move through shared memory: a bound must grant a compiler that it does not."""

from __future__ import annotations

from advisor.compiled.demand.costs import cost, element_bytes, right_operand
from advisor.compiled.demand.products import Names
from advisor.compiled.ir.ir import Module, Operation

_LOADS = ("tt.load", "tt.descriptor_load", "tt.descriptor_gather")
_VIEWS = ("tt.trans", "tt.reshape", "tt.bitcast", "arith.bitcast")


def spared_bytes(module: Module) -> dict[int, float]:
    """Bytes of shared memory that `costs.cost` counts for products, reductions and scans, and that need not be moved, by the `id` of the
    operation.

    Of a product it counts each operand written once and read once. What stays the same over a loop is not written in it, and may be held in
    registers; what is computed is in registers already (the probabilities of attention; wgmma and mma take it from there, tcgen05 from
    tensor memory), and may have come narrower than it is; what several products take is written once. What reductions and scans combine
    may lie within a thread, or within a warp, whose threads hand it on themselves.
    """
    around = module.loops_around()
    found: dict[int, float] = {}
    for function in module.functions.values():
        found |= {id(op): cost(op).smem for op in function.walk() if op.name in ("tt.reduce", "tt.scan")}
        dots = [op for op in function.walk() if op.name in ("tt.dot", "tt.dot_scaled")]
        names = Names(function.blocks) if dots else None
        written: set[int] = set()
        for dot in dots:
            assert names is not None
            spared = 0.0
            for place in (0, right_operand(dot)):
                maker, kind = _maker(names, dot.operands[place]), dot.types[place]
                size = kind.elements * element_bytes(kind.element)
                if maker is None or maker.name not in _LOADS or around.get(id(maker)) != around.get(id(dot)):
                    spared += 2 * size
                elif id(maker) in written:
                    spared += size
                else:
                    written.add(id(maker))
            found[id(dot)] = spared
    return found


def _maker(names: Names, name: str) -> Operation | None:
    """What makes the elements of a value, in whatever order; None: not known, or handed from trip to trip."""
    maker = names.maker(name)
    while maker is not None and maker.name in _VIEWS:
        maker = names.maker(maker.operands[0])
    return maker
