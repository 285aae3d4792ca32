"""Run the scalar part of a kernel for many programs at once: which blocks execute how often, and which lanes of an access are active.

Only values that decide control flow, masks or addresses are computed (a backward slice); numbers of the problem never are. What
is only known at run time (a value loaded from memory that the launch does not give) is assumed, and named.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import values
from advisor.compiled.arithmetic import compute, constant
from advisor.compiled.errors import IrError
from advisor.compiled.ir import Block, Function, Module, Operation
from advisor.compiled.values import Value

Active = NDArray[np.bool_]
Count = NDArray[np.float64]

MEMORY = frozenset(
    {
        "tt.load", "tt.store", "tt.atomic_rmw", "tt.atomic_cas", "tt.descriptor_load", "tt.descriptor_store",
        "tt.descriptor_reduce", "tt.descriptor_gather", "tt.descriptor_scatter", "tt.experimental_descriptor_load",
        "tt.experimental_descriptor_store",
    }
)  # fmt: skip
DIMENSIONS = {"x": 0, "y": 1, "z": 2}
EXACT_TRIPS = 96
"""Loops up to this many trips are walked one by one; longer ones at their ends and at samples, and checked."""
MAX_TRIPS = 20_000
"""Trips of a loop that must be walked one by one (its values do not advance by a constant) before the rest is assumed."""
SAMPLES = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Inputs:
    """The launch as the kernel sees it.

    Attributes:
        scalars: Value per argument that is a number.
        contents: What an argument's memory holds, flat, or one number for all of it: for index tensors.
        sizes: Elements of an argument's memory.
        shapes: Shape per tensor descriptor.
        assumed_trips: Trips of a loop whose bounds are not known.
        strides: Not used for evaluation; kept for descriptors made on the host.
    """

    scalars: Mapping[str, int | float | bool]
    contents: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    assumed_trips: int = 1


@dataclass(slots=True, eq=False)
class Access:
    """What one memory operation does, per program: how often it executes, lanes issued, distinct lanes."""

    operation: Operation
    executions: Count
    lanes: Count
    distinct: Count
    base: str | None = None
    low: int | None = None  # least and greatest element touched
    high: int | None = None
    unknown_extent: bool = False
    masked: bool = False
    mask_reasons: set[str] = field(default_factory=set)
    contiguous: int | None = None  # elements in a row along the last dimension


@dataclass(slots=True, eq=False)
class LoopCount:
    """A loop: how often it is entered, and trips in total, per program."""

    operation: Operation
    entries: Count
    trips: Count
    reasons: set[str] = field(default_factory=set)
    sampled: bool = False


@dataclass(slots=True, eq=False)
class Execution:
    """What the evaluation found, per program (arrays [programs])."""

    programs: int
    blocks: dict[int, Count]
    block_of: dict[int, Block]
    accesses: dict[int, Access]
    loops: dict[int, LoopCount]
    unknown: dict[str, str]  # what is not known -> where it mattered
    approximations: set[str]


def needed_values(function: Function) -> set[str]:
    """Names of the values that decide control flow, masks or addresses."""
    producers: dict[str, Operation] = {}
    feeds: dict[str, list[str]] = {}
    roots: list[str] = []

    def feed(target: str, sources: Sequence[str]) -> None:
        feeds.setdefault(target, []).extend(sources)

    def visit(blocks: list[Block], owner: Operation | None) -> None:
        by_label = {b.label: b for b in blocks}
        for block in blocks:
            for op in block.operations:
                for result in op.results:
                    producers[result] = op
                if op.name in MEMORY:
                    roots.extend(address_operands(op))
                elif op.name == "scf.for":
                    counter, low, high, step, carried = for_parts(op)
                    roots.extend([low, high, step])
                    feed(counter, [low, step])
                    last = op.regions[0][-1].operations[-1] if op.regions[0][-1].operations else None
                    outs = last.operands if last is not None and last.name == "scf.yield" else []
                    for i, (name, start) in enumerate(carried):
                        sources = [start] + ([outs[i]] if i < len(outs) else [])
                        feed(name, sources)
                        if i < len(op.results):
                            feed(op.results[i], sources)
                elif op.name == "scf.if":
                    roots.extend(op.operands[:1])
                    for region in op.regions:
                        last = region[-1].operations[-1] if region[-1].operations else None
                        if last is not None and last.name == "scf.yield":
                            for result, value in zip(op.results, last.operands, strict=False):
                                feed(result, [value])
                elif op.name == "scf.while":
                    _feed_while(op, feed, roots)
                elif op.name.startswith("cf."):
                    roots.extend(op.operands)
                    for label, passed in op.successors:
                        if label in by_label:
                            for name, value in zip(by_label[label].arguments, passed, strict=False):
                                feed(name, [value])
                elif op.name == "tt.call":
                    roots.extend(op.operands)
                for region in op.regions:
                    if op.name.startswith(("scf.", "ttg.")):
                        visit(region, op)

    visit(function.blocks, None)
    needed: set[str] = set()
    waiting = list(roots)
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        needed.add(name)
        waiting.extend(feeds.get(name, ()))
        op = producers.get(name)
        opaque = op is None or op.name.startswith("scf.") or op.name == "tt.call"
        if op is not None and not opaque and (op.name == "tt.load" or op.name not in MEMORY):
            waiting.extend(op.operands)
    return needed


def _feed_while(op: Operation, feed: Any, roots: list[str]) -> None:
    before, after = op.regions[0], op.regions[1] if len(op.regions) > 1 else []
    names = while_arguments(op)
    condition = before[-1].operations[-1]
    roots.extend(condition.operands[:1])
    passed = condition.operands[1:]
    yielded = after[-1].operations[-1].operands if after and after[-1].operations else []
    for i, (name, start) in enumerate(names):
        feed(name, [start, *yielded[i : i + 1]])
    for i, value in enumerate(passed):
        if after and i < len(after[0].arguments):
            feed(after[0].arguments[i], [value])
        if i < len(op.results):
            feed(op.results[i], [value])


def address_operands(op: Operation) -> list[str]:
    """Operands of a memory operation that are its pointer and mask, or its descriptor and coordinates."""
    if "descriptor" in op.name:
        inside = op.text.split("[", 1)
        count = len(re.findall(r"%", inside[1].split("]", 1)[0])) if len(inside) > 1 else 0
        return op.operands[: 1 + count]
    if op.name == "tt.load":
        return op.operands[:2]
    if op.name == "tt.store":
        return [op.operands[0], *op.operands[2:3]]
    if op.name == "tt.atomic_cas":
        return op.operands[:1]
    return [op.operands[0], *op.operands[2:3]]


_FOR = re.compile(r"^\s*(?:unsigned\s+)?(%[\w$.-]+) = (%[\w$.#-]+) to (%[\w$.#-]+) step (%[\w$.#-]+)")


def for_parts(op: Operation) -> tuple[str, str, str, str, list[tuple[str, str]]]:
    """Counter, bounds, step and carried values (name, start) of an `scf.for`.

    Raises:
        IrError: Its text has an unknown form.
    """
    found = _FOR.match(op.text)
    if not found:
        raise IrError("a loop of the IR has an unknown form", op.text[:100])
    inside = op.text.split("iter_args(", 1)
    carried = re.findall(r"(%[\w$.#-]+) = (%[\w$.#-]+)", inside[1].split(")")[0]) if len(inside) > 1 else []
    return found.group(1), found.group(2), found.group(3), found.group(4), carried


def while_arguments(op: Operation) -> list[tuple[str, str]]:
    """Carried values (name, start) of an `scf.while`."""
    return re.findall(r"(%[\w$.#-]+) = (%[\w$.#-]+)", op.text.split(") :")[0])


def weight(blocks: list[Block]) -> float:
    """How much a region holds: of two branches whose condition is unknown, the heavier is assumed."""
    total = 0.0
    for block in blocks:
        for op in block.operations:
            own = {"tt.dot": 100.0, "tt.load": 10.0, "tt.store": 10.0}.get(op.name, 0.1)
            factor = 10.0 if op.name in ("scf.for", "scf.while") else 1.0
            total += own + factor * sum(weight(region) for region in op.regions)
    return total


class Evaluator:
    """Evaluates a kernel for the programs `indices` (flat, x fastest) of a grid."""

    def __init__(self, module: Module, inputs: Inputs, grid: tuple[int, int, int], indices: NDArray[np.int64]) -> None:
        self.module = module
        self.function = module.kernel
        self.inputs = inputs
        self.grid = grid
        self.indices = indices
        self.programs = len(indices)
        self.needed = {f.name: needed_values(f) for f in module.functions.values()}
        self.result = Execution(self.programs, {}, {}, {}, {}, {}, set())
        self.steps = 0
        self.memory: dict[tuple[int, ...], Count] = {}
        self.kept: list[Any] = []  # arrays whose id() is a key of `memory` must live

    def run(self) -> Execution:
        """Evaluate the kernel."""
        environment: dict[str, Value] = {}
        function = self.function
        for name, kind in zip(function.arguments, function.argument_types, strict=True):
            environment[name] = self._argument(name[1:], kind.text)
        everyone = np.ones(self.programs, bool)
        self._function(function, environment, everyone, np.ones(self.programs))
        return self.result

    def _argument(self, name: str, text: str) -> Value:
        if text.startswith(("!tt.ptr", "!tt.tensordesc")):
            return Value((np.zeros(1, np.int64),), (), False, name)
        if name in self.inputs.scalars:
            return values.number(_plain(self.inputs.scalars[name]))
        return values.unknown({f"argument {name}"})

    def _function(
        self, function: Function, environment: dict[str, Value], active: Active, times: Count
    ) -> list[Value]:
        """Walk a function's blocks; the branches of Triton's functions only lead forward."""
        by_label = {b.label: b for b in function.blocks}
        masks: dict[int, Active] = {id(function.blocks[0]): active} if function.blocks else {}
        returned: list[Value] = []
        for block in function.blocks:
            here = masks.get(id(block))
            if here is None or not here.any():
                continue
            self._block(block, environment, here, times)
            last = block.operations[-1] if block.operations else None
            if last is None:
                continue
            if last.name == "tt.return":
                out = [self._value(environment, o) for o in last.operands]
                returned = [values.select_programs(here, n, o) for n, o in zip(out, returned, strict=False)] if returned else out
            for target, chosen, passed in self._successors(last, environment, here, function, by_label):
                if target is None:
                    continue
                before = masks.get(id(target))
                for name, operand in zip(target.arguments, passed, strict=False):
                    new = self._value(environment, operand)
                    environment[name] = values.select_programs(chosen, new, environment[name]) if name in environment else new
                masks[id(target)] = chosen if before is None else before | chosen
        return returned

    def _successors(
        self, last: Operation, environment: dict[str, Value], here: Active, function: Function, by_label: dict[str, Block]
    ) -> list[tuple[Block | None, Active, list[str]]]:
        if last.name == "cf.br":
            label, passed = last.successors[0]
            return [(by_label.get(label), here, passed)]
        if last.name != "cf.cond_br":
            return []
        condition = self._value(environment, last.operands[0])
        (yes, yes_passed), (no, no_passed) = last.successors[:2]
        if condition.known:
            chosen = np.broadcast_to(condition.scalar().astype(bool), self.programs)
        else:
            reach = {label: weight(_reachable(by_label, label)) for label in (yes, no)}
            chosen = np.full(self.programs, reach[yes] >= reach[no])
            self._unknown(condition.reasons, "a branch", last, "its heavier side is assumed")
        return [(by_label.get(yes), here & chosen, yes_passed), (by_label.get(no), here & ~chosen, no_passed)]

    def _value(self, environment: Mapping[str, Value], name: str) -> Value:
        found = environment.get(name)
        return found if found is not None else values.unknown({"a value only known at run time"})

    def _unknown(self, reasons: frozenset[str], what: str, op: Operation, assumption: str) -> None:
        where = f"{what} in line {op.location.line}" if op.location else what
        for reason in reasons:
            self.result.unknown.setdefault(reason, f"{where}: {assumption}")

    def _block(self, block: Block, environment: dict[str, Value], active: Active, times: Count) -> list[Value]:
        """Evaluate one block; returns what its `scf.yield` gives."""
        key = id(block)
        count = np.where(active, times, 0.0)
        if key in self.result.blocks:
            self.result.blocks[key] += count
        else:
            self.result.blocks[key] = count
            self.result.block_of[key] = block
        for op in block.operations:
            self.steps += 1
            self._operation(op, environment, active, times)
        last = block.operations[-1] if block.operations else None
        if last is not None and last.name in ("scf.yield", "scf.condition"):
            return [self._value(environment, o) for o in last.operands]
        return []

    def _operation(self, op: Operation, environment: dict[str, Value], active: Active, times: Count) -> None:
        name = op.name
        if name in MEMORY:
            self._access(op, environment, active, times)
            if name == "tt.load" and op.results[0] in self._names:
                environment[op.results[0]] = self._loaded(op, environment)
            elif op.results and op.results[0] in self._names:
                environment[op.results[0]] = values.unknown({f"the result of {name}{_line(op)}"}, op.result.shape if op.result else ())
            return
        if name == "scf.for":
            self._for(op, environment, active, times)
        elif name == "scf.if":
            self._if(op, environment, active, times)
        elif name == "scf.while":
            self._while(op, environment, active, times)
        elif name == "tt.call":
            self._call(op, environment, active, times)
        elif op.results and any(r in self._names for r in op.results):
            self._pure(op, environment)
        elif op.regions and name.startswith(("ttg.", "scf.")):
            for region in op.regions:
                for block in region:
                    self._block(block, environment, active, times)

    @property
    def _names(self) -> set[str]:
        return self.needed[self.function.name]

    def _pure(self, op: Operation, environment: dict[str, Value]) -> None:
        shape = op.result.shape if op.result else ()
        if op.name == "arith.constant":
            value = constant(op)
        elif op.name == "tt.get_program_id":
            value = values.of(self._program_id(DIMENSIONS.get(_axis(op), 0)), ())
        elif op.name == "tt.get_num_programs":
            value = values.number(self.grid[DIMENSIONS.get(_axis(op), 0)])
        elif op.name in ("tt.make_tensor_descriptor", "tt.make_tensor_ptr"):
            value = self._value(environment, op.operands[0])
        else:
            try:
                value = compute(op, [self._value(environment, o) for o in op.operands])
            except MemoryError:
                value = values.unknown({f"a value too large to work out{_line(op)}"}, shape)
        environment[op.results[0]] = value
        for other, kind in zip(op.results[1:], op.result_types[1:], strict=False):
            environment[other] = values.unknown({f"the result of {op.name}"}, kind.shape)

    def _program_id(self, axis: int) -> NDArray[np.int64]:
        x, y, _ = self.grid
        return (self.indices % x, self.indices // x % y, self.indices // (x * y))[axis]

    # ------------------------------------------------------------------------------------------------------- memory

    def _loaded(self, op: Operation, environment: Mapping[str, Value]) -> Value:
        pointer = self._value(environment, op.operands[0])
        shape = op.result.shape if op.result else ()
        base = pointer.base
        if base is None or base not in self.inputs.contents:
            return values.unknown({f"values loaded from {base}" if base else f"values loaded{_line(op)}"}, shape)
        content = self.inputs.contents[base]
        if isinstance(content, (int, float, bool)):
            return values.number(_plain(content), shape)
        flat = np.asarray(content).reshape(-1)
        if flat.size == 0:
            return values.number(0, shape)
        if not pointer.known:
            if (flat == flat[0]).all():
                return values.number(_plain(flat[0].item()), shape)
            return values.unknown(pointer.reasons, shape)
        address = np.clip(pointer.array(), 0, flat.size - 1)
        out = flat[address]
        if out.dtype.kind in "iub" and out.dtype != np.bool_:
            out = out.astype(np.int64)
        elif out.dtype.kind == "f":
            out = out.astype(np.float64)
        mask = self._value(environment, op.operands[1]) if len(op.operands) > 1 else None
        if mask is not None and mask.known:
            other = self._value(environment, op.operands[2]) if len(op.operands) > 2 else values.number(0, shape)
            other = other if other.known else values.number(0, shape)
            return values.of(np.where(mask.array(), out, other.array()), shape)
        return values.of(out, shape)

    def _access(self, op: Operation, environment: Mapping[str, Value], active: Active, times: Count) -> None:
        pointer = self._value(environment, op.operands[0])
        tensor = next((t for t in op.types if t.shape), op.types[0] if op.types else None)
        shape = tensor.shape if tensor is not None else ()
        mask: Value | None = None
        if "descriptor" in op.name:
            issued = self._descriptor_lanes(op, environment, pointer)
            fresh, masked = issued, True
        else:
            names = address_operands(op)
            mask = self._value(environment, names[1]) if len(names) > 1 else None
            masked = mask is not None
            issued = self._lanes(mask, shape)
            fresh = self._distinct(pointer, mask, shape) if pointer.known else issued
        access = self.result.accesses.get(id(op))
        if access is None:
            zero = np.zeros(self.programs)
            access = Access(op, zero.copy(), zero.copy(), zero.copy(), pointer.base, masked=masked)
            self.result.accesses[id(op)] = access
        count = np.where(active, times, 0.0)
        access.executions += count
        access.lanes += count * issued
        access.distinct += count * np.minimum(fresh, issued)
        if mask is not None and not mask.known:
            access.mask_reasons |= mask.reasons
            self._unknown(mask.reasons, "a mask", op, "all its lanes are assumed active")
        if access.base != pointer.base:
            access.base = None
        if "descriptor" in op.name:
            access.unknown_extent = True
            return
        try:
            reach = values.extent(pointer, active)
        except (ValueError, MemoryError):
            reach = None
        if reach is None:
            access.unknown_extent = True
        else:
            access.low = reach[0] if access.low is None else min(access.low, reach[0])
            access.high = reach[1] if access.high is None else max(access.high, reach[1])
        if access.contiguous is None:
            access.contiguous = contiguous(pointer, shape)

    def _lanes(self, mask: Value | None, shape: tuple[int, ...]) -> Count:
        key = (0, *shape, *(id(p) for p in (mask.parts if mask is not None else ())))
        if key not in self.memory:
            self.memory[key] = values.lanes(mask, shape, self.programs)
            self.kept.append(mask)
        return self.memory[key]

    def _distinct(self, pointer: Value, mask: Value | None, shape: tuple[int, ...]) -> Count:
        varying = tuple(id(p) for p in pointer.parts if any(n > 1 for n in p.shape[1:]))
        key = (1, *shape, -1, *varying, -1, *(id(p) for p in (mask.parts if mask is not None else ())))
        if key not in self.memory:
            self.memory[key] = values.distinct(pointer, mask, shape, self.programs)
            self.kept.append((pointer, mask))
        return self.memory[key]

    def _descriptor_lanes(self, op: Operation, environment: Mapping[str, Value], pointer: Value) -> Count:
        """Elements of a descriptor's block that lie inside its tensor."""
        block = op.result if op.result is not None else next((t for t in reversed(op.types) if t.shape), None)
        if block is None:
            return np.ones(self.programs)
        sizes = self.inputs.shapes.get(pointer.base or "")
        starts = address_operands(op)[1:]
        total = np.full(self.programs, float(block.elements))
        if sizes is None or len(sizes) != len(starts):
            if sizes is None:
                self._unknown(frozenset({f"the shape of descriptor {pointer.base}"}), "a block", op, "it is assumed full")
            return total
        extent = block.shape[-len(starts) :] if starts else ()
        for size, length, name in zip(sizes, extent, starts, strict=False):
            start = self._value(environment, name)
            if start.known:
                inside = np.clip(size - start.scalar(), 0, length) - np.clip(-start.scalar(), 0, length)
                total = total * np.maximum(inside, 0) / length
        return total

    # -------------------------------------------------------------------------------------------------- control flow

    def _if(self, op: Operation, environment: dict[str, Value], active: Active, times: Count) -> None:
        condition = self._value(environment, op.operands[0])
        if condition.known:
            chosen = np.broadcast_to(condition.scalar().astype(bool), self.programs)
        else:
            heavier = weight(op.regions[0]) >= (weight(op.regions[1]) if len(op.regions) > 1 else 0.0)
            chosen = np.full(self.programs, heavier)
            self._unknown(condition.reasons, "a branch", op, "its heavier side is assumed")
        results: list[list[Value]] = [[], []]
        for i, region in enumerate(op.regions[:2]):
            here = active & (chosen if i == 0 else ~chosen)
            if here.any():
                results[i] = self._region(region, environment, here, times)
        for i, name in enumerate(op.results):
            if name not in self._names:
                continue
            yes = results[0][i] if i < len(results[0]) else None
            no = results[1][i] if i < len(results[1]) else None
            if yes is not None and no is not None:
                merged = values.select_programs(np.asarray(chosen), yes, no)
            else:
                merged = yes or no or values.unknown({f"the result of a branch{_line(op)}"})
            if not condition.known and (yes is not None or no is not None):
                other = merged
                merged = Value(other.parts, other.shape, other.boolean, other.base, other.reasons)
            environment[name] = merged

    def _region(self, region: list[Block], environment: dict[str, Value], active: Active, times: Count) -> list[Value]:
        out: list[Value] = []
        for block in region:
            out = self._block(block, environment, active, times)
        return out

    def _loop_count(self, op: Operation) -> LoopCount:
        found = self.result.loops.get(id(op))
        if found is None:
            found = LoopCount(op, np.zeros(self.programs), np.zeros(self.programs))
            self.result.loops[id(op)] = found
        return found

    def _for(self, op: Operation, environment: dict[str, Value], active: Active, times: Count) -> None:
        counter, low_name, high_name, step_name, carried = for_parts(op)
        low, high, step = (self._value(environment, n) for n in (low_name, high_name, step_name))
        loop = self._loop_count(op)
        reasons = low.reasons | high.reasons | step.reasons
        if reasons:
            loop.reasons |= reasons
            self._unknown(reasons, "the trips of a loop", op, f"{self.inputs.assumed_trips} assumed")
            trips = np.full(self.programs, float(self.inputs.assumed_trips))
            start = low.scalar() if low.known else np.zeros(1, np.int64)
            pace = step.scalar() if step.known else np.ones(1, np.int64)
        else:
            start, pace = low.scalar(), step.scalar()
            trips = np.maximum(np.ceil((high.scalar() - start) / np.where(pace == 0, 1, pace)), 0.0)
        trips = np.where(active, np.broadcast_to(trips, self.programs), 0.0)
        count = np.where(active, times, 0.0)
        loop.entries += count
        loop.trips += count * trips
        names = [(n, s) for n, s in carried]
        state = {n: self._value(environment, s) for n, s in names if n in self._names}
        body = op.regions[0]
        longest = int(trips.max()) if trips.size else 0
        walker = _Walk(self, op, body, counter, start, pace, [n for n, _ in names], environment, active, times)
        if longest > EXACT_TRIPS and walker.sampled(trips, state):
            loop.sampled = True
            final = walker.final
        else:
            final = walker.exact(trips, state)
        for i, name in enumerate(op.results):
            if name in self._names and i < len(names):
                environment[name] = final.get(names[i][0], values.unknown({f"the result of a loop{_line(op)}"}))

    def _while(self, op: Operation, environment: dict[str, Value], active: Active, times: Count) -> None:
        loop = self._loop_count(op)
        count = np.where(active, times, 0.0)
        loop.entries += count
        names = while_arguments(op)
        before, after = op.regions[0], op.regions[1] if len(op.regions) > 1 else []
        for name, start in names:
            environment[name] = self._value(environment, start)
        here = active.copy()
        passed: list[Value] = []
        for trip in range(MAX_TRIPS):
            out = self._region(before, environment, here, times)
            if not out:
                break
            condition, now = out[0], out[1:]
            passed = [values.select_programs(here, n, o) for n, o in zip(now, passed, strict=False)] if passed else now
            if not condition.known:
                loop.reasons |= condition.reasons
                self._unknown(condition.reasons, "the trips of a loop", op, f"{self.inputs.assumed_trips} assumed")
                here = here & (trip < self.inputs.assumed_trips)
            else:
                here = here & np.broadcast_to(condition.scalar().astype(bool), self.programs)
            if not here.any() or not after:
                break
            for name, value in zip(after[0].arguments, now, strict=False):
                environment[name] = value
            loop.trips += np.where(here, times, 0.0)
            out = self._region(after, environment, here, times)
            for (name, _), value in zip(names, out, strict=False):
                environment[name] = values.select_programs(here, value, environment[name])
        else:
            self.result.approximations.add(f"a loop{_line(op)} was followed for {MAX_TRIPS} trips only")
        for name, value in zip(op.results, passed, strict=False):
            environment[name] = value

    def _call(self, op: Operation, environment: dict[str, Value], active: Active, times: Count) -> None:
        found = re.search(r"@(\"[^\"]*\"|[\w$.-]+)", op.text)
        callee = self.module.functions.get(found.group(1).strip('"')) if found else None
        if callee is None:
            return
        inner = {n: self._value(environment, o) for n, o in zip(callee.arguments, op.operands, strict=False)}
        outer, self.function = self.function, callee
        try:
            returned = self._function(callee, inner, active, times)
        finally:
            self.function = outer
        for name, value in zip(op.results, returned, strict=False):
            environment[name] = value


@dataclass(slots=True)
class _Walk:
    """The trips of one entry into a loop."""

    evaluator: Evaluator
    op: Operation
    body: list[Block]
    counter: str
    start: NDArray[Any]
    pace: NDArray[Any]
    names: list[str]
    environment: dict[str, Value]
    active: Active
    times: Count
    final: dict[str, Value] = field(default_factory=dict)

    def trip(self, position: NDArray[Any], state: dict[str, Value], here: Active, times: Count) -> dict[str, Value]:
        """One trip at `position` (per program, or one for all); returns the state after it."""
        at = self.start + position * self.pace
        self.environment[self.counter] = values.of(np.asarray(at, dtype=np.int64).reshape(-1), ())
        self.environment.update(state)
        out = self.evaluator._region(self.body, self.environment, here, times)
        return {n: v for n, v in zip(self.names, out, strict=False) if n in state}

    def exact(self, trips: Count, state: dict[str, Value]) -> dict[str, Value]:
        """Every trip."""
        longest = int(trips.max()) if trips.size else 0
        shortest = int(trips[self.active].min()) if self.active.any() else 0
        for i in range(min(longest, MAX_TRIPS)):
            here = self.active if i < shortest else self.active & (trips > i)
            after = self.trip(np.array([i]), state, here, self.times)
            if i < shortest:
                state = after
            else:
                state = {n: values.select_programs(here, v, state[n]) for n, v in after.items()}
        if longest > MAX_TRIPS:
            self.evaluator.result.approximations.add(f"a loop{_line(self.op)} was followed for {MAX_TRIPS} trips only")
        return state

    def sampled(self, trips: Count, state: dict[str, Value]) -> bool:
        """Trips at both ends and at samples between, where all carried values advance by a constant; False where they do not.

        Between two samples the counts are taken as those of the nearer one; equal samples make that exact.
        """
        longest, shortest = trips.max(), trips[self.active].min() if self.active.any() else 0
        uniform = longest == shortest
        first = self._dry(state, 0)
        if first is None:
            return False
        deltas: dict[str, tuple[Any, ...]] = {}
        for name, before in state.items():
            delta = _difference(before, first[name])
            if delta is None:
                return False
            deltas[name] = delta

        def at(position: NDArray[Any]) -> dict[str, Value]:
            return {n: _advanced(v, deltas[n], position) for n, v in state.items()}

        positions = _positions(trips, uniform)
        for position, share in positions:
            here = self.active & (share > 0) & (position < trips)
            if not here.any():
                continue
            used = position[:1] if uniform else position
            self.trip(used, at(used), here, self.times * share)
        last = trips[:1] if uniform else trips
        self.final = at(last)
        return True

    def _dry(self, state: dict[str, Value], position: int) -> dict[str, Value] | None:
        """The state after one trip and after two, without counting; None where the steps differ."""
        evaluator = self.evaluator
        kept = evaluator.result
        evaluator.result = Execution(evaluator.programs, {}, {}, {}, {}, {}, set())
        try:
            one = self.trip(np.array([position]), state, self.active, self.times)
            two = self.trip(np.array([position + 1]), one, self.active, self.times)
        finally:
            evaluator.result = kept
        for name in state:
            a, b = _difference(state[name], one[name]), _difference(one[name], two[name])
            if a is None or b is None or len(a) != len(b):
                return None
            if not all(x == y if isinstance(x, tuple) else np.array_equal(x, y) for x, y in zip(a, b, strict=True)):
                return None
        return one


def _positions(trips: Count, uniform: bool) -> list[tuple[NDArray[Any], Count]]:
    """Where to sample, per program, and how many trips each sample stands for."""
    ends = 4
    found = []
    for i in range(ends):
        found.append((np.full(trips.shape, float(i)), (trips > i).astype(float)))
    middle = np.maximum(trips - 2 * ends, 0)
    for i in range(SAMPLES):
        low = np.floor(middle * i / SAMPLES)
        high = np.floor(middle * (i + 1) / SAMPLES)
        found.append((ends + np.floor((low + high) / 2), high - low))
    for i in range(ends):
        position = trips - ends + i
        found.append((np.maximum(position, 0), (position >= ends).astype(float)))
    return [(p.astype(np.int64), s) for p, s in found if s.any()]


def _difference(before: Value, after: Value) -> tuple[Any, ...] | None:
    """What was added to each part; None where that cannot be said."""
    if before is after:
        return tuple(np.zeros((), np.int64) for _ in before.parts)
    if not (before.known and after.known) or before.base != after.base or before.boolean or after.boolean:
        return None if before.known or after.known else ()
    old = {p.shape[1:]: p for p in before.parts}
    out = []
    for part in after.parts:
        previous = old.pop(part.shape[1:], None)
        if previous is None:
            out.append(part)
        elif previous is part:
            out.append(np.zeros((), np.int64))
        else:
            out.append(part - previous)
    # The parts of `before` in the order of `after`, so that `_advanced` can add them up again.
    return (tuple(p.shape[1:] for p in after.parts), *out) if not old else None


def _advanced(value: Value, delta: tuple[Any, ...], position: NDArray[Any]) -> Value:
    if not value.known or not delta or not isinstance(delta[0], tuple):
        return value
    patterns, steps = delta[0], delta[1:]
    old = {p.shape[1:]: p for p in value.parts}
    parts = []
    for pattern, step in zip(patterns, steps, strict=True):
        base = old.get(pattern)
        if step.shape == () and step == 0:
            if base is not None:
                parts.append(base)
            continue
        moved = step * position.reshape((-1,) + (1,) * len(pattern))
        parts.append(moved if base is None else base + moved)
    return Value(tuple(parts), value.shape, False, value.base)


def contiguous(pointer: Value, shape: tuple[int, ...]) -> int | None:
    """Elements in a row along the dimension in which addresses advance by one; 1 where there is none, None where not known."""
    if not pointer.known or not shape:
        return None if not pointer.known else 1
    best = 1
    for d, size in enumerate(shape):
        if size == 1:
            continue
        parts = [p for p in pointer.parts if p.shape[d + 1] > 1]
        if not parts:
            continue
        summed: Any = parts[0]
        for part in parts[1:]:
            summed = summed + part
        steps = np.diff(summed, axis=d + 1)
        one = steps == 1
        if one.all():
            best = max(best, size)
        elif one.any():
            # Runs broken by a wrap-around: the first break of the first program.
            flat = np.moveaxis(one, d + 1, -1).reshape(-1, size - 1)
            run = np.argmin(flat, axis=1) + 1
            best = max(best, int(np.median(np.where(flat.all(axis=1), size, run))))
    return best


def _reachable(by_label: Mapping[str, Block], label: str) -> list[Block]:
    found: dict[str, Block] = {}
    waiting = [label]
    while waiting:
        name = waiting.pop()
        block = by_label.get(name)
        if block is None or name in found:
            continue
        found[name] = block
        for op in block.operations[-1:]:
            waiting.extend(target for target, _ in op.successors)
    return list(found.values())


def _axis(op: Operation) -> str:
    found = re.search(r"\b([xyz])\b", op.text)
    return found.group(1) if found else "x"


def _plain(value: Any) -> int | float | bool:
    return value.item() if hasattr(value, "item") else value


def _line(op: Operation) -> str:
    return f" in line {op.location.line}" if op.location else ""
