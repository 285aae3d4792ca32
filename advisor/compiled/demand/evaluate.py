"""Run the scalar part of a kernel for many programs at once: which blocks execute how often, and which lanes of an access are active.

Only values that decide control flow, masks or addresses are computed (a backward slice); numbers of the problem never are. What
is only known at run time (a value loaded from memory that the launch does not give) is assumed, and named; what then runs, and what
follows from it, is kept apart from what certainly does (`Part`).

This file knows those that count what operations do, and none of them knows it: they take who runs (`Running`), the values of names
(`Environment`) and where to add what they find (`Execution`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.compiler.kernel import IrError
from advisor.compiled.demand.accesses import AccessCounter, descriptor_parts, request
from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.demand.loops import EXACT_TRIPS, MAX_TRIPS, WHILE_WORK, Environment, EvalBudget, Walk, bounds
from advisor.compiled.demand.products import Padding, products
from advisor.compiled.ir import values
from advisor.compiled.ir.arithmetic import compute, constant
from advisor.compiled.ir.execution import LOADED, Active, Count, Execution, Inputs, Remembered, Running, addresses, loaded, plain
from advisor.compiled.ir.ir import Block, Module, Operation
from advisor.compiled.ir.places import PlaceRecorder
from advisor.compiled.ir.slicing import MEMORY, for_parts, needed_values, weight, while_arguments
from advisor.compiled.ir.values import Value

DIVISIONS = frozenset({"arith.divsi", "arith.divui", "arith.floordivsi", "arith.remsi", "arith.remui"})
MOST_DIVISORS = 8
"""Numbers that scalars are divided by that are noted."""
HEAVIER = "the prediction assumes its heavier side, the bound neither"


def evaluate(module: Module, inputs: Inputs, grid: tuple[int, int, int], indices: NDArray[np.int64], work: float) -> Execution:
    """Evaluate a kernel for some programs of a grid.

    Args:
        module: Holds the kernel.
        inputs: The launch as the kernel sees it.
        grid: Programs along x, y and z.
        indices: The programs to evaluate, flat, x fastest.
        work: Elements that may be worked out in long loops that are walked one by one.

    Raises:
        IrError: The kernel calls a function that is not part of it once compiled.
    """
    return _Evaluator(module, inputs, grid, indices, EvalBudget(work)).run()


class _Evaluator:
    """Walks the operations of a module. What it finds goes into the `execution` of each call; the rest is what all calls share."""

    def __init__(self, module: Module, inputs: Inputs, grid: tuple[int, int, int], indices: NDArray[np.int64], budget: EvalBudget) -> None:
        self.kernel = module.kernel
        self.inputs = inputs
        self.grid = grid
        self.indices = indices
        self.programs = len(indices)
        self.budget = budget
        self.remembered = Remembered()
        self.places = PlaceRecorder(indices, self.remembered)
        self.accesses = AccessCounter(self.remembered, self.places)
        self.padding = Padding(products(self.kernel), self.remembered)
        self.divisors: set[int] = set()
        self.called = inputs.called([name[1:] for name in self.kernel.arguments])
        self.elements = {name: element_bytes(kind.pointee) for name, kind in zip(self.called, self.kernel.argument_types, strict=True)}

    def run(self) -> Execution:
        """Evaluate the kernel."""
        kernel, execution = self.kernel, Execution(self.programs)
        kinds = [kind.text for kind in kernel.argument_types]
        scalars = {**descriptor_parts(kernel.arguments, kinds, self.inputs.shapes), **self.inputs.scalars}
        arguments = {
            name: _argument(name_in_call, kind, scalars)
            for name, name_in_call, kind in zip(kernel.arguments, self.called, kinds, strict=True)
        }
        everyone = Running(np.ones(self.programs, bool), np.ones(self.programs))
        self._blocks(Environment(needed_values(kernel), arguments), everyone, execution)
        self.padding.finish(execution)
        execution.sets, execution.divisors = self.places.sets, self.divisors
        return execution

    def _blocks(self, environment: Environment, running: Running, execution: Execution) -> None:
        """Walk the kernel's blocks; the branches of Triton's functions only lead forward.

        A branch that is not certain halves the share of a program's paths on each side. Where a whole share comes together again,
        all paths lead: what runs there certainly does.
        """
        blocks = self.kernel.blocks
        by_label = {b.label: b for b in blocks}
        start = id(blocks[0]) if blocks else 0
        masks: dict[int, Active] = {start: running.active}
        shares: dict[int, Count] = {start: running.active.astype(np.float64)}
        for block in blocks:
            here = masks.get(id(block))
            if here is None:
                continue
            runs, share = bool(here.any()), shares[id(block)]
            if runs:
                self._block(block, environment, running.among(here).assuming(here & (share < 1)), execution)
            last = block.operations[-1] if block.operations else None
            if last is None:
                continue
            for target, chosen, part, passed in self._successors(last, environment, here, share, by_label, execution):
                for name, operand in zip(target.arguments, passed if runs else (), strict=False):
                    new = values.assume(environment.value(operand), bool((chosen & (part < 1)).any()))
                    before = environment.held.get(name)
                    environment.held[name] = new if before is None else values.select_programs(chosen, new, before)
                masks[id(target)] = chosen | masks.get(id(target), False)
                shares[id(target)] = part + shares.get(id(target), 0.0)

    def _successors(
        self, last: Operation, environment: Environment, here: Active, share: Count, by_label: dict[str, Block], execution: Execution
    ) -> Iterator[tuple[Block, Active, Count, list[str]]]:
        """Where a block leads: the next ones, the programs that go there, the share of their paths, the values passed."""
        if last.name == "cf.br":
            label, passed = last.successors[0]
            sides = [(label, passed, here, share)]
        elif last.name == "cf.cond_br":
            condition = environment.value(last.operands[0])
            (yes, yes_passed), (no, no_passed) = last.successors[:2]
            chosen = self._taken(condition, [by_label[yes]], [by_label[no]])
            if here.any():
                execution.assume(condition.reasons, "a branch", last, HEAVIER)
            parts = (share * chosen, share * ~chosen) if condition.certain else (share / 2, share / 2)
            sides = [(yes, yes_passed, here & chosen, parts[0]), (no, no_passed, here & ~chosen, parts[1])]
        else:
            return
        for label, passed, active, part in sides:
            if label in by_label:
                yield by_label[label], active, part, passed

    def _region(self, region: list[Block], environment: Environment, running: Running, execution: Execution) -> list[Value]:
        """Evaluate a region; returns what its terminator gives."""
        out: list[Value] = []
        for block in region:
            out = self._block(block, environment, running, execution)
        return out

    def _block(self, block: Block, environment: Environment, running: Running, execution: Execution) -> list[Value]:
        """Evaluate one block; returns what its terminator gives."""
        execution.block_of[id(block)] = block
        for assumed, some in running.parts():
            part = (id(block), assumed)
            if part in execution.blocks:
                execution.blocks[part] += some.counts
            else:
                execution.blocks[part] = some.counts
        for op in block.operations:
            self.budget.steps += 1
            self._operation(op, environment, running, execution)
        last = block.operations[-1] if block.operations else None
        return environment.values(last.operands) if last is not None and last.name in ("scf.yield", "scf.condition") else []

    def _operation(self, op: Operation, environment: Environment, running: Running, execution: Execution) -> None:
        if op.name in MEMORY:
            self._access(op, environment, running, execution)
            return
        self.padding.execute(op, running, execution)
        if op.name == "scf.for":
            self._for(op, environment, running, execution)
        elif op.name == "scf.if":
            self._if(op, environment, running, execution)
        elif op.name == "scf.while":
            self._while(op, environment, running, execution)
        elif op.name == "tt.call":  # none of 2,437 public kernels has one
            raise IrError(f"a function that stays one when compiled is not counted{op.in_line}", op.text, remedy="drop noinline=True")
        elif any(result in environment.needed for result in op.results):
            self._pure(op, environment)
        elif op.name.startswith(("ttg.", "scf.")):
            for region in op.regions:
                self._region(region, environment, running, execution)

    # ----------------------------------------------------------------------------------------- operations that give values

    def _access(self, op: Operation, environment: Environment, running: Running, execution: Execution) -> None:
        requested = request(op, environment, self.inputs.shapes, execution)
        if requested.block is None:
            self.padding.accessed(op, requested.mask, requested.shape, running.active, execution)
        self.accesses.count(op, requested, running, execution)
        if not op.results or op.results[0] not in environment.needed:
            return
        shape = op.result.shape if op.result else ()
        if op.name == "tt.load":
            operands = environment.values(op.operands)
            base, size = operands[0].base or "", element_bytes(op.types[0].pointee) if op.types else 0.0
            # Of elements seen as others, with more or fewer bytes, what is held says nothing.
            contents = self.inputs.contents if self.elements.get(base, size) == size else {}
            value = loaded(operands, shape, contents, op.in_line)
        elif op.name == "tt.atomic_cas":  # what it waits for is there, as of a lock that is free: waiting is not counted
            value = values.assume(environment.values(op.operands)[1], True)
        else:
            value = values.unknown({f"the result of {op.name}{op.in_line}"}, shape)
        environment.held[op.results[0]] = value

    def _pure(self, op: Operation, environment: Environment) -> None:
        operands = environment.values(op.operands)
        value = self._result(op, operands)
        environment.held[op.results[0]] = values.assume(value, any(operand.assumed for operand in operands))
        for other, kind in zip(op.results[1:], op.result_types[1:], strict=False):
            environment.held[other] = values.unknown({f"the result of {op.name}"}, kind.shape)

    def _result(self, op: Operation, operands: list[Value]) -> Value:
        """The first result of an operation that has no effect."""
        if op.name == "arith.constant":
            return constant(op)
        if op.name == "tt.get_program_id":
            return values.of(self._program_id(_axis(op)), ())
        if op.name == "tt.get_num_programs":
            return values.number(self.grid[_axis(op)])
        if op.name == "tt.make_tensor_descriptor":
            pointer, *layout = operands
            rank = len(layout) // 2
            return replace(pointer, layout=(tuple(layout[:rank]), tuple(layout[rank:])))
        if op.name == "tt.make_tensor_ptr":
            return operands[0]
        shape = op.result.shape if op.result else ()
        if op.name == "tt.int_to_ptr" and operands[0].known and op.result is not None:
            size = max(round(element_bytes(op.result.pointee)), 1)
            return replace(values.elementwise(lambda number: addresses(number) // size, shape, operands[0]), base=LOADED)
        if op.name == "tt.bitcast" and operands[0].base is not None and op.result is not None and op.types:
            return _viewed(operands[0], element_bytes(op.types[0].pointee), element_bytes(op.result.pointee), shape)
        if op.name in DIVISIONS and not shape:
            self._divided(operands[1])
        try:
            return compute(op, operands)
        except MemoryError:
            return values.unknown({f"a value too large to work out{op.in_line}"}, shape)

    def _divided(self, divisor: Value) -> None:
        if not divisor.known:
            return
        # The last group of rows of a swizzled grid may be smaller: its divisor differs from that of the others.
        for by in np.unique(divisor.scalar())[-2:].tolist():
            if by > 1 and len(self.divisors) < MOST_DIVISORS:
                self.divisors.add(int(by))

    def _program_id(self, axis: int) -> NDArray[np.int64]:
        x, y, _ = self.grid
        return (self.indices % x, self.indices // x % y, self.indices // (x * y))[axis]

    # -------------------------------------------------------------------------------------------------- control flow

    def _taken(self, condition: Value, yes: list[Block], no: list[Block]) -> Active:
        """The programs that take the first of two sides of a branch: all or none of them, by which is heavier, where nothing tells."""
        if condition.known:
            return np.broadcast_to(condition.scalar().astype(bool), self.programs)
        return np.full(self.programs, weight(yes) >= weight(no))

    def _if(self, op: Operation, environment: Environment, running: Running, execution: Execution) -> None:
        condition = environment.value(op.operands[0])
        chosen = self._taken(condition, op.regions[0], op.regions[1] if len(op.regions) > 1 else [])
        execution.assume(condition.reasons, "a branch", op, HEAVIER)
        within = running.assuming(not condition.certain)
        sides: list[list[Value]] = [[], []]
        for i, (region, taken) in enumerate(zip(op.regions, (chosen, ~chosen), strict=False)):
            here = running.active & taken
            if here.any():
                sides[i] = self._region(region, environment, within.among(here), execution)
        for i, name in enumerate(op.results):
            if name not in environment.needed:
                continue
            yes, no = (side[i] if i < len(side) else None for side in sides)
            if yes is not None and no is not None:
                merged = values.select_programs(chosen, yes, no)
            else:
                merged = yes or no or values.unknown({f"the result of a branch{op.in_line}"})
            environment.held[name] = values.assume(merged, not condition.certain)

    def _for(self, op: Operation, environment: Environment, running: Running, execution: Execution) -> None:
        _, low_name, high_name, step_name, carried = for_parts(op)
        low, high, step = environment.values((low_name, high_name, step_name))
        loop = execution.loop(op)
        if reasons := low.reasons | high.reasons | step.reasons:
            loop.reasons |= reasons
            execution.assume(reasons, "the trips of a loop", op, self._trips_assumed())
        start, pace, trip_counts = bounds(low, high, step, self.inputs.assumed_trips)
        trips = np.where(running.active, np.broadcast_to(trip_counts, self.programs), 0.0)
        counts = running.counts
        loop.entries += counts
        loop.trips += counts * trips
        certain = low.certain and high.certain and step.certain
        walk = Walk(
            op=op,
            start=start,
            pace=pace,
            environment=environment,
            running=running.assuming(not certain),
            execution=execution,
            body=lambda now, into: self._region(op.regions[0], environment, now, into),
            budget=self.budget,
            remembered=self.remembered,
        )
        final, sampled = walk.all(trips, {name: environment.value(first) for name, first in carried if name in environment.needed})
        loop.sampled |= sampled
        for name, (inner, _) in zip(op.results, carried, strict=False):
            if name in environment.needed:
                result = final.get(inner, values.unknown({f"the result of a loop{op.in_line}"}))
                environment.held[name] = values.assume(result, not certain)

    def _trips_assumed(self) -> str:
        return f"the prediction assumes {self.inputs.assumed_trips}, the bound none"

    def _while(self, op: Operation, environment: Environment, running: Running, execution: Execution) -> None:
        loop = execution.loop(op)
        loop.entries += running.counts
        carried = while_arguments(op)
        before, after = op.regions[0], op.regions[1] if len(op.regions) > 1 else []
        for name, first in carried:
            environment.held[name] = environment.value(first)
        passed: list[Value] = []
        certain = True
        for trip in range(MAX_TRIPS):
            if trip >= EXACT_TRIPS and self.budget.work_left <= 0:
                execution.approximations.add(f"a loop{op.in_line} was followed for {trip} trips only: working them all out takes too long")
                break
            steps = self.budget.steps
            out = self._region(before, environment, running, execution)
            if not out:
                break
            condition, now = out[0], out[1:]
            passed = [values.select_programs(running.active, n, o) for n, o in zip(now, passed, strict=False)] if passed else now
            if condition.known:
                again = np.broadcast_to(condition.scalar().astype(bool), self.programs)
            else:
                loop.reasons |= condition.reasons
                execution.assume(condition.reasons, "the trips of a loop", op, self._trips_assumed())
                again = np.full(self.programs, trip < self.inputs.assumed_trips)
            running = running.among(running.active & again)
            if not condition.certain:  # it may have been the last trip, so those that follow are assumed
                running, certain = running.assuming(True), False
            if not running.active.any() or not after:
                break
            environment.held.update(zip(after[0].arguments, now, strict=False))
            loop.trips += running.counts
            out = self._region(after, environment, running, execution)
            for (name, _), value in zip(carried, out, strict=False):
                environment.held[name] = values.select_programs(running.active, value, environment.held[name])
            self.budget.work_left -= (self.budget.steps - steps) * WHILE_WORK
        else:
            execution.approximations.add(f"a loop{op.in_line} was followed for {MAX_TRIPS} trips only")
        for name, value in zip(op.results, passed, strict=False):
            environment.held[name] = values.assume(value, not certain)


def _argument(name: str, text: str, scalars: Mapping[str, int | float | bool]) -> Value:
    """A kernel's argument: an address, a number, or unknown."""
    if text.startswith(("!tt.ptr", "!tt.tensordesc")):
        return Value((np.zeros(1, np.int64),), (), False, name)
    return values.number(plain(scalars[name])) if name in scalars else values.unknown({f"argument {name}"})


def _viewed(pointer: Value, before: float, after: float, shape: tuple[int, ...]) -> Value:
    """A pointer to elements of other bytes than before: its offsets count those of the new type."""
    if before == after or not pointer.known:
        return values.with_shape(pointer, shape)
    old, new = round(before), round(after)
    if any((part * old % new).any() for part in pointer.parts):
        return values.unknown({"an address within an element"}, shape, pointer.base)
    return replace(values.with_shape(pointer, shape), parts=tuple(part * old // new for part in pointer.parts))


def _axis(op: Operation) -> int:
    match = re.search(r"\b([xyz])\b", op.text)
    return "xyz".index(match.group(1)) if match else 0
