"""The integer and boolean operations of the IR, on `Value`s."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.ir import values
from advisor.compiled.ir.ir import Block, Module, Operation, Type
from advisor.compiled.ir.slicing import for_parts
from advisor.compiled.ir.values import Value

_WIDTH = re.compile(r"^i(\d+)$")


def _safe(b: Any) -> Any:
    return np.where(b == 0, 1, b)


def _truncated(a: Any, b: Any) -> Any:
    b = _safe(b)
    quotient = np.abs(a) // np.abs(b)
    return np.where((a < 0) != (b < 0), -quotient, quotient)


BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "arith.divsi": _truncated,
    "arith.divui": _truncated,
    "arith.remsi": lambda a, b: a - _truncated(a, b) * _safe(b),
    "arith.remui": lambda a, b: a - _truncated(a, b) * _safe(b),
    "arith.floordivsi": lambda a, b: a // _safe(b),
    "arith.ceildivsi": lambda a, b: -((-a) // _safe(b)),
    "arith.ceildivui": lambda a, b: -((-a) // _safe(b)),
    "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.minui": np.minimum,
    "arith.maxui": np.maximum,
    "arith.shli": lambda a, b: a << np.clip(b, 0, 62),
    "arith.shrsi": lambda a, b: a >> np.clip(b, 0, 63),
    "arith.shrui": lambda a, b: a >> np.clip(b, 0, 63),
    "arith.xori": np.bitwise_xor,
    "arith.ori": np.bitwise_or,
    "arith.andi": np.bitwise_and,
    "arith.addf": np.add,
    "arith.subf": np.subtract,
    "arith.mulf": np.multiply,
    "arith.divf": lambda a, b: a / _safe(b),
    "arith.maximumf": np.maximum,
    "arith.minimumf": np.minimum,
    "arith.maxnumf": np.maximum,
    "arith.minnumf": np.minimum,
}

COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "slt": np.less,
    "sle": np.less_equal,
    "sgt": np.greater,
    "sge": np.greater_equal,
    "ult": np.less,
    "ule": np.less_equal,
    "ugt": np.greater,
    "uge": np.greater_equal,
    "oeq": np.equal,
    "one": np.not_equal,
    "olt": np.less,
    "ole": np.less_equal,
    "ogt": np.greater,
    "oge": np.greater_equal,
    "ueq": np.equal,
    "une": np.not_equal,
}

CASTS = frozenset(
    {
        "arith.extsi",
        "arith.extui",
        "arith.trunci",
        "arith.index_cast",
        "arith.index_castui",
        "tt.bitcast",
        "arith.bitcast",
        "arith.sitofp",
        "arith.uitofp",
        "arith.fptosi",
        "arith.fptoui",
        "arith.extf",
        "arith.truncf",
        "tt.fp_to_fp",
        "ttg.convert_layout",
    }
)


def constant(operation: Operation) -> Value:
    """`arith.constant`."""
    result = operation.result
    shape = result.shape if result else ()
    text = operation.text.strip()
    match = re.search(r"dense<([^>]*)>", text)
    if match:
        text = match.group(1)
    text = re.sub(r"^\{[^}]*\}\s*", "", text).strip()
    if text in ("true", "false"):
        return values.number(text == "true", shape)
    element = result.element if result else "i32"
    try:
        if re.fullmatch(r"-?\d+", text):
            return values.number(bool(int(text)) if element == "i1" else int(text), shape)
        return values.number(float(text), shape)
    except ValueError:  # `0x7F800000`: infinite, or no number
        return values.unknown({"a constant of an unusual form"}, shape)


def compute(operation: Operation, operands: list[Value]) -> Value:
    """The value of a pure operation; unknown where the operation is none of those that decide control flow or addresses."""
    name = operation.name
    shape = operation.result.shape if operation.result else ()
    element = operation.result.element if operation.result else ""
    exact = _sum_or_product(name, operands, shape) if element != "i1" else _logical(name, operands, shape)
    if exact is not None:
        return exact
    if name in BINARY:
        return values.elementwise(BINARY[name], shape, *operands)
    if name in ("arith.cmpi", "arith.cmpf"):
        return _compare(operation, operands, shape)
    if name == "arith.select":
        return values.choose(operands[0], operands[1], operands[2], shape)
    if name in CASTS:
        return _cast(operation, operands[0], shape, element)
    if name in ("tt.splat", "tt.broadcast"):
        return values.with_shape(operands[0], shape)
    if name == "tt.unsplat":
        (whole,) = operands
        return Value(tuple(p.reshape(p.shape[0]) for p in whole.parts), (), whole.boolean, whole.base, whole.reasons)
    if name == "tt.expand_dims":
        return values.expand(operands[0], int(operation.attribute("axis") or 0), shape)
    if name == "tt.make_range":
        start, end = int(operation.attribute("start") or 0), int(operation.attribute("end") or 0)
        return values.of(np.arange(start, end, dtype=np.int64)[None, :], shape)
    if name in ("tt.reshape", "tt.trans"):
        return _rearranged(operation, operands[0], shape)
    reasons = frozenset().union(*(o.reasons for o in operands)) if operands else frozenset()
    return values.unknown(reasons or {f"the result of {name}"}, shape, operands[0].base if operands else None)


def _sum_or_product(name: str, operands: list[Value], shape: tuple[int, ...]) -> Value | None:
    """What keeps the summands of integers and addresses apart; None: it is something else."""
    if name in ("arith.addi", "arith.subi"):
        return values.add(operands[0], operands[1], shape, 1 if name == "arith.addi" else -1)
    if name == "arith.muli":
        return values.multiply(operands[0], operands[1], shape)
    if name == "tt.addptr":
        total = values.add(operands[0], operands[1], shape)
        return Value(total.parts, shape, False, operands[0].base, total.reasons)
    if name == "arith.shli" and operands[0].known and operands[1].known and not operands[1].varying:
        factor = values.of(np.int64(1) << np.clip(operands[1].array(), 0, 62), operands[1].shape)
        return values.multiply(operands[0], factor, shape)
    return None


def _logical(name: str, operands: list[Value], shape: tuple[int, ...]) -> Value | None:
    """Of truth values; None: it is something else."""
    if name in ("arith.addi", "arith.subi"):
        return values.elementwise(np.bitwise_xor, shape, *operands)
    if name in ("arith.muli", "arith.andi"):
        return values.conjunction(operands[0], operands[1], shape)
    if name == "arith.ori":
        if any(one.known and one.array().all() for one in operands):  # true or anything
            return values.number(True, shape)
        return values.elementwise(np.logical_or, shape, *operands)
    return None


def _compare(operation: Operation, operands: list[Value], shape: tuple[int, ...]) -> Value:
    predicate = re.search(r"\s*(\w+),", operation.text)
    name = predicate.group(1) if predicate else ""
    if name not in COMPARE:
        return values.unknown({f"a comparison {name}"}, shape)
    if operands[0].base is not None or operands[1].base is not None:
        return values.unknown({"a comparison of addresses"}, shape)
    a, b = operands
    if name.startswith("u") and operation.name == "arith.cmpi":
        width = _WIDTH.match(operation.types[0].element if operation.types else "i32")
        bits = 1 << min(int(width.group(1)) if width else 32, 62)

        def unsigned(x: Any) -> Any:
            return np.where(x < 0, x + bits, x)

        return values.elementwise(lambda x, y: COMPARE[name](unsigned(x), unsigned(y)), shape, a, b)
    return values.elementwise(COMPARE[name], shape, a, b)


def _cast(operation: Operation, value: Value, shape: tuple[int, ...], element: str) -> Value:
    if not value.known:
        return values.unknown(value.reasons, shape, value.base)
    if value.boolean and element != "i1":
        sign = -1 if operation.name == "arith.extsi" else 1
        return values.elementwise(lambda a: sign * a.astype(np.int64), shape, value)
    if element == "i1" and not value.boolean:
        return values.elementwise(lambda a: (a.astype(np.int64) & 1).astype(bool), shape, value)
    if operation.name in ("arith.fptosi", "arith.fptoui"):
        return values.elementwise(lambda a: np.trunc(np.nan_to_num(a)).astype(np.int64), shape, value)
    if operation.name in ("arith.sitofp", "arith.uitofp"):
        return values.elementwise(lambda a: a.astype(np.float64), shape, value)
    return Value(value.parts, shape, value.boolean, value.base)


def _rearranged(operation: Operation, value: Value, shape: tuple[int, ...]) -> Value:
    if not value.known:
        return values.unknown(value.reasons, shape, value.base)
    if operation.name == "tt.trans":
        match = re.search(r"array<i32:\s*([\d,\s]+)>", operation.text)
        order = [int(n) for n in match.group(1).split(",")] if match else list(reversed(range(len(shape))))
        axes = (0, *(n + 1 for n in order))
        return Value(tuple(p.transpose(axes) for p in value.parts), shape, value.boolean, value.base)
    if "allow_reorder" not in operation.text:
        dense = value.array()
        full = np.broadcast_to(dense, (dense.shape[0], *value.shape))
        return Value((full.reshape((dense.shape[0], *shape)),), shape, value.boolean, value.base)
    return values.unknown({f"the result of {operation.name}"}, shape, value.base)


def distinct_values(array: NDArray[Any]) -> NDArray[Any]:
    """Ascending, each once, whatever the array's shape: `np.unique`, by sorting.

    From NumPy 2.3 on that goes by a hash table, which takes a hundred times as long for addresses: 4.8 s in place of 0.04 s for four
    million with a step of 1,024 (NumPy 2.4.6, one core).
    """
    values = np.sort(array, axis=None)
    return values[np.concatenate([np.ones(min(len(values), 1), bool), values[1:] != values[:-1]])]


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
    by_operation: dict[int, Divisor] = {}
    _visit(module.kernel.blocks, {}, by_operation)
    return by_operation


def _visit(blocks: list[Block], known: dict[str, _Lanes], by_operation: dict[int, Divisor]) -> None:
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
                by_operation[id(op)] = Divisor(distinct=distinct, constant=lanes.constant)
            if op.name == "scf.for":  # what it carries is defined by its text
                counter, _, _, _, carried = for_parts(op)
                for name in (counter, *(name for name, _ in carried)):
                    known.pop(name, None)
            for region in op.regions:
                _visit(region, known, by_operation)
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
