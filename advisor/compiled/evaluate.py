"""Run the scalar part of a kernel for many programs at once: which blocks execute how often, and which lanes of an access are active.

Only values that decide control flow, masks or addresses are computed (a backward slice); numbers of the problem never are. What
is only known at run time (a value loaded from memory that the launch does not give) is assumed, and named; what then runs, and what
follows from it, is kept apart from what certainly does (`Part`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.compiled import values
from advisor.compiled.accesses import count_access
from advisor.compiled.arithmetic import compute, constant
from advisor.compiled.contents import loaded, plain
from advisor.compiled.execution import Active, Count, Execution, Inputs, LoopCount
from advisor.compiled.ir import Block, Function, Module, Operation
from advisor.compiled.loops import EXACT_TRIPS, EXACT_WORK, MAX_TRIPS, Walk
from advisor.compiled.padding import Padding, products
from advisor.compiled.places import MOST_LISTED
from advisor.compiled.remembered import Remembered
from advisor.compiled.slicing import MEMORY, for_parts, needed_values, reachable, weight, while_arguments
from advisor.compiled.values import Value

DIMENSIONS = {"x": 0, "y": 1, "z": 2}
DIVISIONS = frozenset({"arith.divsi", "arith.divui", "arith.floordivsi", "arith.remsi", "arith.remui"})
MOST_DIVISORS = 8
"""Numbers that scalars are divided by that are noted."""
HEAVIER = "the prediction assumes its heavier side, the bound neither"


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
        self.padding = Padding({key: found for f in module.functions.values() for key, found in products(f).items()})
        self.result = Execution(self.programs)
        self.assumed: Active | None = None  # programs in which it is only assumed that what runs now does; None: in none
        self.steps = 0
        self.work_left = EXACT_WORK
        self.remembered = Remembered()
        self.sets: dict[bytes, NDArray[Any]] = {}
        self.tags: NDArray[np.int64] | None = None  # what programs are told apart by where trips are sampled
        self.listable = MOST_LISTED
        self.divisors: set[int] = set()

    def run(self) -> Execution:
        """Evaluate the kernel."""
        environment: dict[str, Value] = {}
        function = self.function
        for name, kind in zip(function.arguments, function.argument_types, strict=True):
            environment[name] = self._argument(name[1:], kind.text)
        everyone = np.ones(self.programs, bool)
        self._function(function, environment, everyone, np.ones(self.programs))
        self.padding.finish(self.result.stored, self.result.products)
        self.result.sets, self.result.divisors = self.sets, self.divisors
        return self.result

    @contextmanager
    def assuming(self, programs: Active | bool) -> Iterator[None]:
        """What runs inside is only assumed to, in some programs (True: in all), beside those in which it was before."""
        outer = self.assumed
        if np.any(programs):
            self.assumed = np.logical_or(np.zeros(self.programs, bool) if outer is None else outer, programs)
        try:
            yield
        finally:
            self.assumed = outer

    def parts(self, active: Active) -> list[tuple[bool, Active]]:
        """The active programs in which what runs now certainly does (False), and those in which that is assumed (True)."""
        if self.assumed is None:
            return [(False, active)]
        split = [(False, active & ~self.assumed), (True, active & self.assumed)]
        return [each for each in split if each[1].any()]

    def _argument(self, name: str, text: str) -> Value:
        if text.startswith(("!tt.ptr", "!tt.tensordesc")):
            return Value((np.zeros(1, np.int64),), (), False, name)
        if name in self.inputs.scalars:
            return values.number(plain(self.inputs.scalars[name]))
        return values.unknown({f"argument {name}"})

    def _function(
        self, function: Function, environment: dict[str, Value], active: Active, times: Count
    ) -> list[Value]:
        """Walk a function's blocks; the branches of Triton's functions only lead forward.

        A branch that is not certain halves the share of a program's paths on each side. Where a whole share comes together again,
        all paths lead: what runs there certainly does.
        """
        by_label = {b.label: b for b in function.blocks}
        start = id(function.blocks[0]) if function.blocks else 0
        masks: dict[int, Active] = {start: active}
        shares: dict[int, Count] = {start: active.astype(np.float64)}
        returned: list[Value] = []
        for block in function.blocks:
            here = masks.get(id(block))
            if here is None:
                continue
            runs, share = bool(here.any()), shares[id(block)]
            if runs:
                with self.assuming(here & (share < 1)):
                    self._block(block, environment, here, times)
            last = block.operations[-1] if block.operations else None
            if last is None:
                continue
            if last.name == "tt.return" and runs:
                out = [values.assume(self.value(environment, o), bool((here & (share < 1)).any())) for o in last.operands]
                returned = [values.select_programs(here, n, o) for n, o in zip(out, returned, strict=False)] if returned else out
            for target, chosen, part, passed in self._successors(last, environment, here, share, by_label):
                if target is None:
                    continue
                for name, operand in zip(target.arguments, passed if runs else (), strict=False):
                    new = values.assume(self.value(environment, operand), bool((chosen & (part < 1)).any()))
                    environment[name] = values.select_programs(chosen, new, environment[name]) if name in environment else new
                masks[id(target)] = chosen | masks.get(id(target), False)
                shares[id(target)] = part + shares.get(id(target), 0.0)
        return returned

    def _successors(
        self, last: Operation, environment: dict[str, Value], here: Active, share: Count, by_label: dict[str, Block]
    ) -> list[tuple[Block | None, Active, Count, list[str]]]:
        """Where a block leads: the next ones, the programs that go there, the share of their paths, the values passed."""
        if last.name == "cf.br":
            label, passed = last.successors[0]
            return [(by_label.get(label), here, share, passed)]
        if last.name != "cf.cond_br":
            return []
        condition = self.value(environment, last.operands[0])
        (yes, yes_passed), (no, no_passed) = last.successors[:2]
        if condition.known:
            chosen = np.broadcast_to(condition.scalar().astype(bool), self.programs)
        else:
            reach = {label: weight(reachable(by_label, label)) for label in (yes, no)}
            chosen = np.full(self.programs, reach[yes] >= reach[no])
            if here.any():
                self.unknown(condition.reasons, "a branch", last, HEAVIER)
        parts = (share * chosen, share * ~chosen) if condition.certain else (share / 2, share / 2)
        return [(by_label.get(yes), here & chosen, parts[0], yes_passed), (by_label.get(no), here & ~chosen, parts[1], no_passed)]

    def value(self, environment: Mapping[str, Value], name: str) -> Value:
        """The value of a name; unknown where it was not computed."""
        found = environment.get(name)
        return found if found is not None else values.unknown({"a value only known at run time"})

    def unknown(self, reasons: frozenset[str], what: str, op: Operation, assumption: str) -> None:
        """Name what is not known, and what is assumed in its place at an operation."""
        where = f"{what}{op.in_line}"
        for reason in sorted(reasons):
            self.result.unknown.setdefault(reason, f"{where}: {assumption}")

    def _block(self, block: Block, environment: dict[str, Value], active: Active, times: Count) -> list[Value]:
        """Evaluate one block; returns what its `scf.yield` gives."""
        self.result.block_of[id(block)] = block
        for assumed, members in self.parts(active):
            part, count = (id(block), assumed), np.where(members, times, 0.0)
            if part in self.result.blocks:
                self.result.blocks[part] += count
            else:
                self.result.blocks[part] = count
        for op in block.operations:
            self.steps += 1
            self._operation(op, environment, active, times)
        last = block.operations[-1] if block.operations else None
        if last is not None and last.name in ("scf.yield", "scf.condition"):
            return [self.value(environment, o) for o in last.operands]
        return []

    def _operation(self, op: Operation, environment: dict[str, Value], active: Active, times: Count) -> None:
        name = op.name
        if name in MEMORY:
            count_access(self, op, environment, active, times)
            if name == "tt.load" and op.results[0] in self._names:
                environment[op.results[0]] = loaded(self, op, environment)
            elif op.results and op.results[0] in self._names:
                environment[op.results[0]] = values.unknown({f"the result of {name}{op.in_line}"}, op.result.shape if op.result else ())
            return
        self.padding.execute(self, op, active, times)
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
        elif op.name == "tt.make_tensor_descriptor":
            pointer, *layout = (self.value(environment, o) for o in op.operands)
            rank = len(layout) // 2
            value = replace(pointer, layout=(tuple(layout[:rank]), tuple(layout[rank:])))
        elif op.name == "tt.make_tensor_ptr":
            value = self.value(environment, op.operands[0])
        else:
            if op.name in DIVISIONS and not shape:
                self._divided(self.value(environment, op.operands[1]))
            try:
                value = compute(op, [self.value(environment, o) for o in op.operands])
            except MemoryError:
                value = values.unknown({f"a value too large to work out{op.in_line}"}, shape)
        environment[op.results[0]] = values.assume(value, any(self.value(environment, o).assumed for o in op.operands))
        for other, kind in zip(op.results[1:], op.result_types[1:], strict=False):
            environment[other] = values.unknown({f"the result of {op.name}"}, kind.shape)

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

    def _if(self, op: Operation, environment: dict[str, Value], active: Active, times: Count) -> None:
        condition = self.value(environment, op.operands[0])
        if condition.known:
            chosen = np.broadcast_to(condition.scalar().astype(bool), self.programs)
        else:
            heavier = weight(op.regions[0]) >= (weight(op.regions[1]) if len(op.regions) > 1 else 0.0)
            chosen = np.full(self.programs, heavier)
            self.unknown(condition.reasons, "a branch", op, HEAVIER)
        results: list[list[Value]] = [[], []]
        for i, region in enumerate(op.regions[:2]):
            here = active & (chosen if i == 0 else ~chosen)
            if here.any():
                with self.assuming(not condition.certain):
                    results[i] = self.region(region, environment, here, times)
        for i, name in enumerate(op.results):
            if name not in self._names:
                continue
            yes = results[0][i] if i < len(results[0]) else None
            no = results[1][i] if i < len(results[1]) else None
            if yes is not None and no is not None:
                merged = values.select_programs(np.asarray(chosen), yes, no)
            else:
                merged = yes or no or values.unknown({f"the result of a branch{op.in_line}"})
            environment[name] = values.assume(merged, not condition.certain)

    def region(self, region: list[Block], environment: dict[str, Value], active: Active, times: Count) -> list[Value]:
        """Evaluate a region; returns what its terminator gives."""
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
        low, high, step = (self.value(environment, n) for n in (low_name, high_name, step_name))
        loop = self._loop_count(op)
        reasons = low.reasons | high.reasons | step.reasons
        if reasons:
            loop.reasons |= reasons
            self.unknown(reasons, "the trips of a loop", op, self._trips_assumed())
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
        state = {n: self.value(environment, s) for n, s in names if n in self._names}
        body = op.regions[0]
        longest = int(trips.max()) if trips.size else 0
        walker = Walk(self, op, body, counter, start, pace, [n for n, _ in names], environment, active, times)
        certain = low.certain and high.certain and step.certain
        with self.assuming(not certain):
            if longest > EXACT_TRIPS:
                final, sampled = walker.shortened(trips, state)
                loop.sampled |= sampled
            else:
                final = walker.exact(trips, state)
        for i, name in enumerate(op.results):
            if name in self._names and i < len(names):
                result = final.get(names[i][0], values.unknown({f"the result of a loop{op.in_line}"}))
                environment[name] = values.assume(result, not certain)

    def _trips_assumed(self) -> str:
        return f"the prediction assumes {self.inputs.assumed_trips}, the bound none"

    def _while(self, op: Operation, environment: dict[str, Value], active: Active, times: Count) -> None:
        loop = self._loop_count(op)
        count = np.where(active, times, 0.0)
        loop.entries += count
        names = while_arguments(op)
        before, after = op.regions[0], op.regions[1] if len(op.regions) > 1 else []
        for name, start in names:
            environment[name] = self.value(environment, start)
        here = active.copy()
        passed: list[Value] = []
        outer, certain = self.assumed, True
        for trip in range(MAX_TRIPS):
            out = self.region(before, environment, here, times)
            if not out:
                break
            condition, now = out[0], out[1:]
            passed = [values.select_programs(here, n, o) for n, o in zip(now, passed, strict=False)] if passed else now
            if not condition.known:
                loop.reasons |= condition.reasons
                self.unknown(condition.reasons, "the trips of a loop", op, self._trips_assumed())
                here = here & (trip < self.inputs.assumed_trips)
            else:
                here = here & np.broadcast_to(condition.scalar().astype(bool), self.programs)
            if not condition.certain:  # it may have been the last trip, so those that follow are assumed
                self.assumed, certain = np.ones(self.programs, bool), False
            if not here.any() or not after:
                break
            for name, value in zip(after[0].arguments, now, strict=False):
                environment[name] = value
            loop.trips += np.where(here, times, 0.0)
            out = self.region(after, environment, here, times)
            for (name, _), value in zip(names, out, strict=False):
                environment[name] = values.select_programs(here, value, environment[name])
        else:
            self.result.approximations.add(f"a loop{op.in_line} was followed for {MAX_TRIPS} trips only")
        self.assumed = outer
        for name, value in zip(op.results, passed, strict=False):
            environment[name] = values.assume(value, not certain)

    def _call(self, op: Operation, environment: dict[str, Value], active: Active, times: Count) -> None:
        found = re.search(r"@(\"[^\"]*\"|[\w$.-]+)", op.text)
        callee = self.module.functions.get(found.group(1).strip('"')) if found else None
        if callee is None:
            return
        inner = {n: self.value(environment, o) for n, o in zip(callee.arguments, op.operands, strict=False)}
        outer, self.function = self.function, callee
        try:
            returned = self._function(callee, inner, active, times)
        finally:
            self.function = outer
        for name, value in zip(op.results, returned, strict=False):
            environment[name] = value


def _axis(op: Operation) -> str:
    found = re.search(r"\b([xyz])\b", op.text)
    return found.group(1) if found else "x"
