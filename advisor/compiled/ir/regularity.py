"""Whether the trips of a loop do alike, so that a few of them stand for all: by how the values that decide it follow from its counter.

What a loop carries has to advance by a constant in every trip, for its value in a later trip to be known without those before it: a
count that is set back does not. And what decides branches, masks and trips of inner loops may change once or twice over the loop (an
edge), not again and again (`i % 16 == 15`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import IntEnum

from advisor.compiled.ir.ir import Block, Operation
from advisor.compiled.ir.slicing import MEMORY, address_operands, for_parts


class Course(IntEnum):
    """How a value goes over the trips of a loop."""

    FIXED = 0
    LINEAR = 1
    MONOTONE = 2  # changes in one direction: a quotient, a bound that is reached, a comparison of linear values
    IRREGULAR = 3  # or nothing is known


_SUMS = frozenset({"arith.addi", "arith.subi", "tt.addptr"})
_SAME = frozenset(
    {
        "arith.extsi",
        "arith.extui",
        "arith.trunci",
        "arith.index_cast",
        "arith.index_castui",
        "tt.splat",
        "tt.unsplat",
        "tt.broadcast",
        "tt.expand_dims",
        "tt.reshape",
        "tt.trans",
        "arith.sitofp",
        "arith.uitofp",
    }
)
_BY_FIXED = frozenset(
    {"arith.divsi", "arith.divui", "arith.floordivsi", "arith.ceildivsi", "arith.ceildivui", "arith.shrsi", "arith.shrui"}
)
_BOUNDED = frozenset({"arith.minsi", "arith.maxsi", "arith.minui", "arith.maxui"})


@dataclass(slots=True)
class Regularity:
    """What of a loop is irregular: names of carried values, of those that decide branches, masks and inner loops, and of addresses; and
    names of conditions that change once or twice (`edges`)."""

    carried: set[str] = field(default_factory=set)
    deciding: set[str] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)
    edges: set[str] = field(default_factory=set)


def regularity(loop: Operation) -> Regularity:
    """What is irregular over the trips of an `scf.for`."""
    counter, _, _, _, carried = for_parts(loop)
    names = [name for name, _ in carried]
    counts = Regularity()
    courses = dict.fromkeys((counter, *names), Course.LINEAR)
    yielded = _visit(loop.regions[0], courses, counts)
    counts.carried = {name for name, course in zip(names, yielded, strict=False) if course > Course.LINEAR}
    return counts


def _visit(blocks: list[Block], courses: dict[str, Course], counts: Regularity) -> list[Course]:
    """Follow the operations of a region; what its terminator gives. Names that are not in `courses` come from before the loop."""
    out: list[Course] = []
    for block in blocks:
        for op in block.operations:
            given = [courses.get(name, Course.FIXED) for name in op.operands]
            out = given
            if op.name in MEMORY:
                address, *others = address_operands(op)
                if courses.get(address, Course.FIXED) == Course.IRREGULAR:
                    counts.addresses.add(address)
                counts.deciding |= {name for name in others if courses.get(name, Course.FIXED) == Course.IRREGULAR}
                results = [Course.IRREGULAR if any(given) else Course.FIXED] * len(op.results)
            elif op.name == "scf.if":
                results = _branch(op, given[0], courses, counts)
            elif op.name == "scf.for":
                results = _inner(op, courses, counts)
            elif op.name == "scf.while":
                counts.deciding.add("")  # no name: how often it runs is taken for irregular
                results = [Course.IRREGULAR] * len(op.results)
            else:
                results = [_course(op, given)] * len(op.results)
            courses.update(zip(op.results, results, strict=False))
    return out


def _branch(op: Operation, condition: Course, courses: dict[str, Course], counts: Regularity) -> list[Course]:
    if condition == Course.IRREGULAR:
        counts.deciding.add(op.operands[0])
    elif condition > Course.FIXED:
        counts.edges.add(op.operands[0])
    sides = [_visit(region, courses, counts) for region in op.regions]
    if condition > Course.FIXED:
        return [Course.IRREGULAR] * len(op.results)
    return [max(side) for side in zip(*sides, strict=False)]


def _inner(op: Operation, courses: dict[str, Course], counts: Regularity) -> list[Course]:
    counter, low, high, step, carried = for_parts(op)
    bounds = {name: courses.get(name, Course.FIXED) for name in (low, high, step)}
    counts.deciding |= {name for name, course in bounds.items() if course == Course.IRREGULAR}
    state = [courses.get(start, Course.FIXED) for _, start in carried]
    while True:  # what is carried goes as the least regular of what it starts with and what comes back
        courses.update({counter: max(bounds[low], bounds[step])}, **dict(zip((n for n, _ in carried), state, strict=True)))
        after = [max(pair) for pair in zip(state, _visit(op.regions[0], courses, counts), strict=False)]
        if after == state or not after:
            break
        state = after
    varying = any(bounds.values())  # then how far it came depends on the trip of the outer loop
    return [Course.IRREGULAR if varying else course for course in state]


def _course(op: Operation, given: list[Course]) -> Course:
    """Of the result of a pure operation."""
    most = max(given, default=Course.FIXED)
    moving = [course for course in given if course > Course.FIXED]
    boolean = op.result is not None and op.result.element == "i1"
    if most in (Course.FIXED, Course.IRREGULAR) or op.name in _SAME:
        return most
    alone = len(moving) == 1
    together = most == Course.LINEAR or alone  # monotone and moving: i - i // 16 * 16 goes up and down
    by_fixed = given[-1] == Course.FIXED
    summed = op.name in _SUMS and not boolean and together
    scaled = (op.name == "arith.muli" and not boolean and alone) or (op.name == "arith.shli" and by_fixed)
    if summed or scaled:
        return most
    ordered = op.name in ("arith.cmpi", "arith.cmpf") and re.match(r"\s*\w*(lt|le|gt|ge),", op.text) is not None
    either = boolean and (op.name in ("arith.andi", "arith.ori") or (op.name == "arith.xori" and alone))
    divided = op.name in _BY_FIXED and by_fixed
    return Course.MONOTONE if divided or either or ((ordered or op.name in _BOUNDED) and together) else Course.IRREGULAR
