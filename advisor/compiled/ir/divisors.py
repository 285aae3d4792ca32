"""What divisions divide by: a constant, or a value that lanes share, whose reciprocal need be worked out only once for all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from advisor.compiled.ir.arithmetic import constant
from advisor.compiled.ir.ir import Block, Module, Operation, Type
from advisor.compiled.ir.slicing import for_parts

INTEGER = frozenset({"arith.divsi", "arith.remsi", "arith.divui", "arith.remui"})
FLOAT = frozenset({"arith.divf", "arith.remf", "tt.precise_divf"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Divisor:
    """The divisor of one operation: how many values it has among the lanes of an execution, and the value of a constant."""

    distinct: int
    constant: int | float | None = None


@dataclass(frozen=True, slots=True)
class _Lanes:
    """Dimensions along which a value varies, and the value of a constant."""

    varying: frozenset[int]
    constant: int | float | None = None


def divisors(module: Module) -> dict[int, Divisor]:
    """The divisor of every division, by the `id` of the operation."""
    found: dict[int, Divisor] = {}
    _visit(module.kernel.blocks, {}, found)
    return found


def _visit(blocks: list[Block], known: dict[str, _Lanes], found: dict[int, Divisor]) -> None:
    """Values are defined before their uses in the text; a name that is used again means what was last defined."""
    for block in blocks:
        for name in block.arguments:
            known.pop(name, None)
        for op in block.operations:
            if op.name in INTEGER | FLOAT and len(op.operands) > 1 and op.result is not None:
                shape = op.result.shape
                lanes = known.get(op.operands[1]) or _Lanes(_all(op.result))
                distinct = 1
                for axis in lanes.varying:
                    distinct *= shape[axis]
                found[id(op)] = Divisor(distinct=distinct, constant=lanes.constant)
            if op.name == "scf.for":  # what it carries is defined by its text
                counter, _, _, _, carried = for_parts(op)
                for name in (counter, *(name for name, _ in carried)):
                    known.pop(name, None)
            for region in op.regions:
                _visit(region, known, found)
            for name, kind in zip(op.results, op.result_types, strict=False):
                known[name] = _lanes(op, kind, known)


def _all(kind: Type) -> frozenset[int]:
    return frozenset(axis for axis, size in enumerate(kind.shape) if size > 1)


def _lanes(op: Operation, result: Type, known: Mapping[str, _Lanes]) -> _Lanes:
    """Along which dimensions an operation's result varies; along all where that cannot be said."""
    everywhere = _Lanes(_all(result))
    operands = [known.get(name) for name in op.operands]
    first = operands[0] if operands else None
    if op.name == "arith.constant":
        value = constant(op)
        if not value.known:
            return everywhere
        return _Lanes(frozenset(), value.scalar()[0].item())
    if op.name == "tt.splat":
        return _Lanes(frozenset(), first.constant if first else None)
    if op.name == "tt.broadcast" and first is not None:
        return first
    if op.name == "tt.expand_dims" and first is not None:
        axis = int(op.attribute("axis") or 0)
        return _Lanes(frozenset(d + (d >= axis) for d in first.varying), first.constant)
    if op.name.startswith(("arith.", "math.")) or op.name in ("tt.fp_to_fp", "tt.load"):
        varying = frozenset[int]().union(*(lanes.varying if lanes else everywhere.varying for lanes in operands))
        return _Lanes(varying & everywhere.varying)
    return everywhere
