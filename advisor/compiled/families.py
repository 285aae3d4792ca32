"""The family of a kernel, by what its IR does and not by what it is called: products, and attention.

What its tiles are is read from the products, the sizes of its problem from how many bytes of which argument the launch touches and how many
FLOP it takes: so it does not matter what arguments and parameters are called, nor how the grid is laid out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.demand.counts import AccessDemand, KernelDemand
from advisor.compiled.demand.products import Product, products
from advisor.compiled.ir.ir import Module, Operation
from advisor.pipelines.batch import ELEMENT_BYTES
from advisor.result.schema import Problem

CLOSE = 0.05
"""Relative: how near the FLOP that sizes ask for must be to those that are counted; block sizes that divide nothing pad more than that
where it is not known what is padding."""

_TYPES = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16", "i8": "int8"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyLaunch:
    """A launch as one of its family: the problem, and the tile of this configuration by the family's names."""

    problem: Problem
    tile: Mapping[str, int] = field(default_factory=dict)


class NoFamilyError(ValueError):
    """The launch is none of a known family; says why."""


def tile_of(module: Module) -> tuple[str, dict[str, int]]:
    """The family of a kernel, and its tile by the family's names.

    Raises:
        NoFamilyError: It is of none.
    """
    family, dots = _kind(module)
    rows, depth = dots[0].types[0].shape
    columns = dots[0].types[1].shape[1]
    if family == "gemm":
        return family, {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": columns, "BLOCK_SIZE_K": depth}
    return family, {"BLOCK_M": rows, "BLOCK_N": columns}


def family_launch(module: Module, demand: KernelDemand, shapes: Mapping[str, tuple[int, ...]] | None = None) -> FamilyLaunch:
    """The problem of a launch and its tile.

    Args:
        module: The kernel's TTIR.
        demand: Of the launch, counted on it.
        shapes: Of tensors, by argument, where they are known.

    Raises:
        NoFamilyError: It is of no family, or its sizes do not follow from what it touches.
    """
    family, tile = tile_of(module)
    _, dots = _kind(module)
    made = products(module.kernel)
    accesses = {id(access.operation): access for access in demand.accesses}
    kind = demand.main_tensor_type
    if kind not in ELEMENT_BYTES:
        raise NoFamilyError(f"its products are of the type {kind}")
    if family == "gemm":
        problem = _gemm(demand, made[id(dots[0])], accesses, kind)
    else:
        problem = _attention(demand, dots, made, accesses, kind, tile["BLOCK_M"], shapes or {})
    return FamilyLaunch(problem=problem, tile=tile)


def _kind(module: Module) -> tuple[str, list[Operation]]:
    """The family and its products, of one trip."""
    operations = [*module.kernel.walk()]
    dots = [op for op in operations if op.name == "tt.dot"]
    if not dots or any(op.name == "tt.dot_scaled" for op in operations):
        raise NoFamilyError("it has no products" if not dots else "its products are scaled")
    if any(len(kind.shape) != 2 for op in dots for kind in op.types[:2]):
        raise NoFamilyError("its products are of more than two dimensions")
    around = module.loops_around()
    makers = {name: op for op in operations for name in op.results}
    fed = [op for op in dots if any(_comes_from(name, makers, dots) for name in op.operands[:2])]
    if not fed:
        shapes = {(*op.types[0].shape, op.types[1].shape[1]) for op in dots}
        if len(dots) > 1 and (len(shapes) > 1 or len({around[id(op)] for op in dots}) == 1):
            raise NoFamilyError(f"it has {len(dots)} products that do not follow from each other")
        return "gemm", dots[:1]
    scores = [op for op in dots if op not in fed]
    exponentials = any(op.name in ("math.exp2", "math.exp") for op in operations)
    if len(scores) != len(fed) or not exponentials or not around[id(fed[0])]:
        raise NoFamilyError(f"of its {len(dots)} products {len(fed)} take what others give, and it is no attention")
    return "attention", [scores[0], fed[0]]


def _comes_from(name: str, makers: Mapping[str, Operation], dots: list[Operation]) -> bool:
    """Whether a value follows from the result of one of the products."""
    seen, waiting = set(), [name]
    while waiting:
        op = makers.get(waiting.pop())
        if op is None or id(op) in seen:
            continue
        if op in dots:
            return True
        seen.add(id(op))
        waiting += op.operands
    return False


def _elements(demand: KernelDemand, access: AccessDemand | None, written: bool = False) -> float:
    """Elements of an argument that a launch touches."""
    table = demand.likely_written_footprints if written else demand.likely_read_footprints
    if access is None or access.argument is None or access.name in demand.unlocated or access.name not in table:
        raise NoFamilyError("the addresses of its accesses are unknown")
    return table[access.name] / element_bytes(access.element)


def _operand(side: tuple[tuple[int, int], tuple[int, int]] | None, accesses: Mapping[int, AccessDemand]) -> AccessDemand | None:
    return accesses.get(side[0][0]) if side is not None else None


def _output(demand: KernelDemand, product: Product | None = None) -> AccessDemand:
    """What the result is stored to: the largest of what is."""
    ends = {place for place, _ in (product.rows or ())} if product is not None else set()
    stores = [access for access in demand.accesses if access.kind in ("store", "atomic")]
    stores = [access for access in stores if id(access.operation) in ends] or stores
    if not stores:
        raise NoFamilyError("it stores nothing")
    return max(stores, key=lambda access: demand.likely_written_footprints.get(access.name, 0.0))


def _types(kind: str, right: AccessDemand, output: AccessDemand) -> dict[str, Any]:
    """The types of weights and output, where they differ from that of the products."""
    found = {
        name: _TYPES.get(each.element, "fp8" if each.element.startswith("f8") else "")
        for name, each in (("weight_dtype", right), ("output_dtype", output))
    }
    return {name: each for name, each in found.items() if each and each != kind and kind != "tf32"}


def _flop(demand: KernelDemand) -> float:
    return demand.total_tensor_flop - sum(demand.padding.tensor_flop.values())


def _gemm(demand: KernelDemand, product: Product, accesses: Mapping[int, AccessDemand], kind: str) -> Problem:
    left, right, output = _operand(product.left, accesses), _operand(product.right, accesses), _output(demand, product)
    a, b, c = _elements(demand, left), _elements(demand, right), _elements(demand, output, written=True)
    assert right is not None
    if not a or not b or not c:
        raise NoFamilyError("it touches nothing of an operand")
    m, n, k = (round(math.sqrt(each)) for each in (a * c / b, b * c / a, a * b / c))
    asked = 2.0 * m * n * k
    if not asked or abs(_flop(demand) / asked - 1) > CLOSE:
        raise NoFamilyError(f"its operands say {m} x {n} x {k}, and its FLOP {_flop(demand) / max(asked, 1):.2f} times that: in batches?")
    return Problem(family="gemm", op="gemm", sizes={"M": m, "N": n, "K": k}, dtype=kind, **_types(kind, right, output))


def _attention(
    demand: KernelDemand,
    dots: list[Operation],
    made: Mapping[int, Product],
    accesses: Mapping[int, AccessDemand],
    kind: str,
    rows: int,
    shapes: Mapping[str, tuple[int, ...]],
) -> Problem:
    scores, values = made[id(dots[0])], made[id(dots[1])]
    query, key, value = _operand(scores.left, accesses), _operand(scores.right, accesses), _operand(values.right, accesses)
    if query is not None and query.in_loop and key is not None and not key.in_loop:  # the scores are transposed
        raise NoFamilyError("its queries are moved in the loop")
    depth = dots[0].types[0].shape[1]
    query_rows, key_rows = _elements(demand, query) / depth, _elements(demand, key) / depth
    _elements(demand, value)
    assert query is not None
    assert key is not None
    most = float(demand.per_program["tensor"].max())
    keys = most / (4 * rows * depth)  # of one row of queries, with what is padded
    heads_of_keys = max(round(key_rows / keys), 1) if keys else 1
    keys = round(key_rows / heads_of_keys)
    for axis in range(3):
        heads = demand.programs / demand.grid[axis]
        queries = query_rows / heads
        if heads >= heads_of_keys and math.ceil(queries / rows) == demand.grid[axis] and queries == round(queries):
            break
    else:
        raise NoFamilyError("its grid does not tell heads from rows")
    whole = 4.0 * query_rows * keys * depth
    share = _flop(demand) / whole if whole else 0.0
    if not 0 < share <= 1 + CLOSE:
        raise NoFamilyError(f"its FLOP are {share:.2f} times those of its sizes")
    shape = shapes.get(query.name, ())
    batch = shape[0] if len(shape) == 4 and heads % shape[0] == 0 and heads_of_keys % shape[0] == 0 else 1
    sizes = {"B": batch, "H": round(heads / batch), "H_kv": heads_of_keys // batch, "M": round(queries), "N": keys, "D": depth}
    types = _types(kind, key, _output(demand))
    return Problem(family="attention", op="prefill", sizes=sizes | {"causal": int(share < 0.9)}, dtype=kind, **types)
