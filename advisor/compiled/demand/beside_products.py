"""What is done beside the matrix products of a function: to make of loads what a product takes, and with what it gives.

Where a tile is larger than its problem, the rows and columns of it that hold nothing are worked on there too: those of the left operand
before a product, those of the right one, and those of the result after it. What is done to one operand hangs on the padding of that one
alone: however few rows are multiplied, all weights are unpacked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from advisor.compiled.compiler.kernel import CompiledKernel
from advisor.compiled.demand.costs import TENSOR_TYPES
from advisor.compiled.demand.products import Names
from advisor.compiled.ir.execution import Padded
from advisor.compiled.ir.ir import Function, Operation
from advisor.compiled.ir.slicing import MEMORY, for_parts

Part = Literal["left", "right", "filled"]
"""What of a product padding is the same of: its left or right operand, or the result."""


STOPS = frozenset({"tt.dot", "tt.dot_scaled", "scf.for", "scf.if", "scf.while"})
"""What else than memory makes a tile that a product takes as it is."""


def beside_products(function: Function) -> dict[int, frozenset[tuple[int, Part]]]:
    """Operations on tensors, by their `id`, with the products (by theirs) that they are done for or after, and which part of these."""
    dots = [op for op in function.walk() if op.name in ("tt.dot", "tt.dot_scaled")]
    names = Names(function.blocks) if dots else None
    found: dict[int, set[tuple[int, Part]]] = {}
    for dot in dots:
        assert names is not None
        sides: tuple[tuple[Part, Iterator[Operation]], ...] = (
            ("left", _before(names, dot.operands[0])),
            ("right", _before(names, dot.operands[1])),
            ("filled", _after(names, dot)),
        )
        for part, operations in sides if dot.name == "tt.dot" else sides[2:]:  # operands of a scaled product have scales among them
            for op in operations:
                found.setdefault(id(op), set()).add((id(dot), part))
    for dot in dots:
        found.pop(id(dot), None)  # counted for itself
    return {key: frozenset(each) for key, each in found.items()}


def _before(names: Names, operand: str) -> Iterator[Operation]:
    """What makes an operand of what was loaded, or of what a product or another region gives."""
    seen, waiting = set(), [operand]
    while waiting:
        op = names.maker(waiting.pop())
        if op is None or id(op) in seen or op.name in STOPS or op.name in MEMORY:
            continue
        seen.add(id(op))
        waiting.extend(op.operands)
        if any(kind.shape for kind in op.result_types):
            yield op


def _after(names: Names, dot: Operation) -> Iterator[Operation]:
    """What is made of a result, also in later trips of a loop that carries it."""
    seen, waiting = set(), list(dot.results)
    given: set[int] = set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        for op, owner in names.takers.get(name, ()):
            at = [i for i, each in enumerate(op.operands) if each == name]
            if op.name == "scf.yield" and owner is not None:
                waiting.extend(each for i in at for each in (*_carried(owner)[i : i + 1], *owner.results[i : i + 1]))
            elif op.name == "scf.for":
                starts = [i for i, (_, start) in enumerate(for_parts(op)[4]) if start == name]
                waiting.extend(each for i in starts for each in (_carried(op)[i], *op.results[i : i + 1]))
            elif op.name not in MEMORY:
                waiting.extend(op.results)
                if id(op) not in given and any(kind.shape for kind in (*op.result_types, *op.types)):
                    given.add(id(op))
                    yield op


def _carried(owner: Operation) -> list[str]:
    return [name for name, _ in for_parts(owner)[4]] if owner.name == "scf.for" else []


def useful_shares(products: Mapping[tuple[int, bool], Padded]) -> dict[tuple[int, Part], float]:
    """What of the operands and of the result of each product is no padding, over all programs, assumed or not."""
    found: dict[tuple[int, Part], float] = {}
    for key in {key for key, _ in products}:
        same = [each for (other, _), each in products.items() if other == key]
        done, deep, filled, left, right = (
            sum(float(getattr(each, name).sum()) for each in same) for name in ("executions", "deep", "filled", "left", "right")
        )
        if done and deep:
            found |= {(key, "filled"): filled / deep, (key, "left"): left / done, (key, "right"): right / done}
    return found


def padded_share(parts: frozenset[tuple[int, Part]], shares: Mapping[tuple[int, Part], float]) -> float:
    """How much of what is done beside products is done to padding: where it serves several, what is padding to all of them."""
    return 1.0 - max((shares.get(part, 1.0) for part in parts), default=1.0)


_SCALED = re.compile(r"\b(tt\.dot_scaled|ttng\.\w*mma_scaled|\w+\.scaled_(mfma|wmma)\w*)\b")
_PLAIN = re.compile(r"\b(?:tt\.dot|ttng\.warp_group_dot|ttng\.tc_gen5_mma) .*?<(?:\d+x)+(\w+)")


def scales_blocks(compiled: CompiledKernel) -> bool:
    """Whether a product of the kernel runs on an instruction that scales its blocks."""
    return bool(_SCALED.search(compiled.ttgir))


def unpacked_type(compiled: CompiledKernel) -> str | None:
    """The type in which products of scaled blocks run after they were unpacked; None where they were not, or there are none."""
    if "tt.dot_scaled" not in compiled.ttir or not compiled.ttgir or scales_blocks(compiled):
        return None
    types = {TENSOR_TYPES.get(found.group(1)) for line in compiled.ttgir.splitlines() if (found := _PLAIN.search(line))}
    return types.pop() if len(types) == 1 else None
