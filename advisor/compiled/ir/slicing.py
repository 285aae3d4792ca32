"""Which values of a kernel decide control flow, masks or addresses, and the parts of the operations that do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from advisor.compiled.compiler.kernel import IrError
from advisor.compiled.ir.ir import Block, Function, Operation

MEMORY = frozenset(
    {
        "tt.load",
        "tt.store",
        "tt.atomic_rmw",
        "tt.atomic_cas",
        "tt.descriptor_load",
        "tt.descriptor_store",
        "tt.descriptor_reduce",
        "tt.descriptor_gather",
        "tt.descriptor_scatter",
        "tt.experimental_descriptor_load",
        "tt.experimental_descriptor_store",
    }
)


class Flow:
    """Where the values of a function come from, by name.

    A name may stand for several values: the printed IR uses it again in regions that do not see each other (two loops, say).

    Attributes:
        producers: The operations that give it.
        feeds: The values that control flow hands on under it: of a loop, a branch, a jump.
        roots: Values that decide control flow, masks or addresses.
    """

    def __init__(self, function: Function) -> None:
        self.producers: dict[str, list[Operation]] = {}
        self.feeds: dict[str, list[str]] = {}
        self.roots: list[str] = []
        self._read(function.blocks)

    def _read(self, blocks: list[Block]) -> None:
        """Read the operations of blocks, and of those inside them that control flow has."""
        by_label = {b.label: b for b in blocks}
        for op in (operation for block in blocks for operation in block.operations):
            for result in op.results:
                self.producers.setdefault(result, []).append(op)
            if op.name in MEMORY:
                self.roots.extend(address_operands(op))
            elif op.name == "scf.for":
                self._for(op)
            elif op.name == "scf.if":
                self.roots.extend(op.operands[:1])
                for region in op.regions:
                    self._feed(op.results, _given(region))
            elif op.name == "scf.while":
                self._while(op)
            elif op.name.startswith("cf."):
                self.roots.extend(op.operands)
                for label, passed in op.successors:
                    if label in by_label:
                        self._feed(by_label[label].arguments, passed)
            if op.name.startswith(("scf.", "ttg.")):
                for region in op.regions:
                    self._read(region)

    def _feed(self, targets: Sequence[str], sources: Sequence[str]) -> None:
        """Each source is handed on to the target in its place."""
        for target, source in zip(targets, sources, strict=False):
            self.feeds.setdefault(target, []).append(source)

    def _for(self, op: Operation) -> None:
        counter, low, high, step, carried = for_parts(op)
        self.roots.extend([low, high, step])
        self._feed([counter, counter], [low, step])
        names, starts = [name for name, _ in carried], [start for _, start in carried]
        for targets in (names, op.results[: len(names)]):
            self._feed(targets, starts)
            self._feed(targets, _given(op.regions[0]))

    def _while(self, op: Operation) -> None:
        before, after = op.regions[0], op.regions[1] if len(op.regions) > 1 else []
        names = while_arguments(op)
        condition, passed = _given(before)[:1], _given(before)[1:]
        self.roots.extend(condition)
        carried = [name for name, _ in names]
        self._feed(carried, [start for _, start in names])
        self._feed(carried, _given(after))
        self._feed(after[0].arguments if after else [], passed)
        self._feed(op.results, passed)


def _given(region: list[Block]) -> list[str]:
    """The values that a region hands on at its end."""
    return region[-1].operations[-1].operands if region and region[-1].operations else []


def needed_values(function: Function, roots: Sequence[str] | None = None) -> set[str]:
    """Names of the values that decide control flow, masks or addresses, or that others (`roots`) come from: what any of the values of a
    name needs counts."""
    flow = Flow(function)
    needed: set[str] = set()
    waiting = list(flow.roots if roots is None else roots)
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        waiting.extend(flow.feeds.get(name, ()))
        for op in flow.producers.get(name, ()):
            if not op.name.startswith("scf.") and (op.name in ("tt.load", "tt.atomic_cas") or op.name not in MEMORY):
                waiting.extend(op.operands)
    return needed


def address_operands(op: Operation) -> list[str]:
    """Operands of a memory operation that are its pointer and mask, or its descriptor and coordinates."""
    if "descriptor" in op.name:
        inside = op.text.split("[", 1)
        count = len(re.findall(r"%", inside[1].split("]", 1)[0])) if len(inside) > 1 else 0
        return op.operands[: 1 + count]
    if op.name == "tt.load":
        return op.operands[:2]
    if op.name == "tt.atomic_cas":
        return op.operands[:1]
    return [op.operands[0], *op.operands[2:3]]


_FOR = re.compile(r"^\s*(?:unsigned\s+)?(%[\w$.-]+) = (%[\w$.#-]+) to (%[\w$.#-]+) step (%[\w$.#-]+)")


def for_parts(op: Operation) -> tuple[str, str, str, str, list[tuple[str, str]]]:
    """Counter, bounds, step and carried values (name, start) of an `scf.for`.

    Raises:
        IrError: Its text has an unknown form.
    """
    match = _FOR.match(op.text)
    if not match:
        raise IrError("a loop of the IR has an unknown form", op.text[:100])
    inside = op.text.split("iter_args(", 1)
    carried = re.findall(r"(%[\w$.#-]+) = (%[\w$.#-]+)", inside[1].split(")")[0]) if len(inside) > 1 else []
    return match.group(1), match.group(2), match.group(3), match.group(4), carried


def constant_trips(function: Function) -> dict[int, int]:
    """Trips of the loops whose bounds and step are constants of the code, by the `id` of their operation."""
    operations = list(function.walk())
    constants = {op.results[0]: int(op.text) for op in operations if op.name == "arith.constant" and op.text.strip().isdigit()}
    trips = {}
    for op in operations:
        if op.name == "scf.for":
            low, high, step = (constants.get(name) for name in for_parts(op)[1:4])
            if low is not None and high is not None and step:
                trips[id(op)] = len(range(low, high, step))
    return trips


def while_arguments(op: Operation) -> list[tuple[str, str]]:
    """Carried values (name, start) of an `scf.while`."""
    return re.findall(r"(%[\w$.#-]+) = (%[\w$.#-]+)", op.text.split(") :")[0])


def weight(blocks: list[Block]) -> float:
    """How much a region holds: of two branches whose condition is unknown, the heavier is assumed."""
    total = 0.0
    for block in blocks:
        for op in block.operations:
            base_weight = {"tt.dot": 100.0, "tt.load": 10.0, "tt.store": 10.0}.get(op.name, 0.1)
            factor = 10.0 if op.name in ("scf.for", "scf.while") else 1.0
            total += base_weight + factor * sum(weight(region) for region in op.regions)
    return total
