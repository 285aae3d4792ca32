"""One launch of a kernel in a file, `kernel[grid](...)`: the grid as an expression over the kernel's arguments, the constants,
numbers and strides that it passes. Read by parsing."""

from __future__ import annotations

import ast
import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from advisor.python_source.around_launch import AroundLaunch
from advisor.python_source.bindings import Scope
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.launch_forms import grid_of
from advisor.python_source.literal_values import Symbol
from advisor.python_source.literals import Allowance, NotLiteralError
from advisor.python_source.source import SourceFile
from advisor.python_source.tensor_shapes import DEEPEST, Extent, Stride, element_type, host_descriptor


class LaunchSite:
    """One launch, and what it passes; arguments as those of `AroundLaunch`."""

    def __init__(
        self,
        source: SourceFile,
        kernel: JitFunction,
        scopes: Sequence[Scope],
        call: ast.Call,
        num_sms: int | None,
        element_bytes: int | None,
    ) -> None:
        self.kernel, self.call = kernel, call
        self.around = AroundLaunch(source, kernel, scopes, call, num_sms, element_bytes)
        self.passed = self.around.passed

    def launch(self, values: Mapping[str, Any], defaults: Mapping[str, Any], options: Sequence[str]) -> FoundLaunch:
        """What is known of the launch; its grid only where it follows from what is known."""
        constants, launched = self.constants(values, options)
        known = {**defaults, **constants, **values}
        blocks, shapes = self.descriptors(known)
        try:
            grid = self.grid(known)
        except NotLiteralError:
            grid = None
        return FoundLaunch(
            grid=grid,
            line=self.call.lineno,
            text=ast.unparse(grid_of(self.call))[:120],
            constexprs=constants,
            options=launched,
            numbers=self.numbers(values, known),
            types=self.types(),
            strides=self.strides(values, known),
            presumed=self.presumed({**constants, **values}, known),
            passed=self.tensors(known),
            blocks=blocks,
            shapes=shapes,
        )

    def tells_grid(self, values: Mapping[str, Any], defaults: Mapping[str, Any], options: Sequence[str]) -> bool:
        """Whether the grid follows from what is known."""
        self.around.allowance = Allowance(until=self.around.allowance.until)
        with contextlib.suppress(NotLiteralError):
            return self.grid({**defaults, **self.constants(values, options)[0], **values}) is not None
        return False

    def is_for_others(self, values: Mapping[str, Any], constants: Mapping[str, Any], grid: tuple[int, ...]) -> bool:
        """Whether the launch passes other numbers than those that are given, and its grid is the same without these."""
        others = set()
        for name in values:
            parameter = self.kernel.parameter(name)
            if name in self.passed and parameter is not None and not parameter.is_constexpr:
                with contextlib.suppress(NotLiteralError):
                    passed = self.around.evaluate(self.passed[name], {n: v for n, v in values.items() if n != name})
                    others |= {name} if type(passed) is int and passed != values[name] else set()
        with contextlib.suppress(NotLiteralError):
            return bool(others) and self.grid({**constants, **{n: v for n, v in values.items() if n not in others}}) == grid
        return False

    def constants(self, given: Mapping[str, Any], options: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The constants and options that the launch passes, without those that are given."""
        constants: dict[str, Any] = {}
        launched: dict[str, Any] = {}
        for name, node in self.passed.items():
            parameter = self.kernel.parameter(name)
            found = constants if parameter is not None and parameter.is_constexpr else launched if name in options else None
            if found is None or name in given or isinstance(self.around.asked.get(name), Stride):
                continue
            with contextlib.suppress(NotLiteralError):
                value = self.around.evaluate(node, given)
                if isinstance(value, (bool, int, float, str, type(None), Symbol)):
                    found[name] = value
        return constants, launched

    def presumed(self, told: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, bool]:
        """Flags that are passed and not told, where all that the function around requires is taken to be there."""
        found: dict[str, bool] = {}
        for name, node in self.passed.items():
            parameter = self.kernel.parameter(name)
            if parameter is not None and parameter.is_constexpr and name not in told:
                with contextlib.suppress(NotLiteralError), self.around.presuming():
                    value = self.around.evaluate(node, known)
                    if isinstance(value, bool):
                        found[name] = value
        return found

    def tensors(self, known: Mapping[str, Any]) -> dict[str, bool]:
        """Whether arguments of which no value is known are given something rather than None."""
        found: dict[str, bool] = {}
        for name, node in self.passed.items():
            parameter = self.kernel.parameter(name)
            if parameter is not None and not parameter.is_constexpr and name not in known:
                asked = ast.Compare(left=node, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)])
                with contextlib.suppress(NotLiteralError), self.around.presuming():
                    found[name] = bool(self.around.evaluate(ast.copy_location(asked, node), known))
        return found

    def descriptors(self, known: Mapping[str, Any]) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
        """Blocks and shapes of tensor descriptors that are passed, as far as they can be worked out.

        A block of one element is no block: hooks of the configurations set it before the launch.
        """
        blocks: dict[str, tuple[int, ...]] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        for name, node in self.passed.items():
            made = host_descriptor(self.around.assigned.get(node.id) if isinstance(node, ast.Name) else node)
            if made is None:
                continue
            block = self._sizes(made.block, known)
            if block is not None and set(block) != {1}:
                blocks[name] = block
            places = [Extent(made.tensor, index) for index in range(len(made.block))] if made.tensor is not None else []
            of_tensor = [self.around.extent(place, known) for place in places]
            shape = self._sizes(made.shape, known) if made.shape is not None else tuple(size for size in of_tensor if size is not None)
            if shape is not None and len(shape) == len(made.block):
                shapes[name] = shape
        return blocks, shapes

    def _sizes(self, nodes: Sequence[ast.expr], known: Mapping[str, Any]) -> tuple[int, ...] | None:
        """Sizes, all positive; None: one is not known."""
        found = []
        for node in nodes:
            try:
                found.append(self.around.evaluate(node, known))
            except NotLiteralError:
                return None
        return tuple(found) if all(type(size) is int and size > 0 for size in found) else None

    def types(self) -> dict[str, str]:
        """Types of the elements of tensors that are made for the launch: `sizes = torch.tensor(rows, dtype=torch.int32)`."""
        found = {name: element_type(node, self.around.assigned, self.around.shapes.unpacked) for name, node in self.passed.items()}
        return {name: kind for name, kind in found.items() if kind is not None}

    def numbers(self, given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
        """Values of the arguments that are neither constants nor strides, without those that are given; None where it is written so."""
        found: dict[str, Any] = {}
        for name, node in self.passed.items():
            parameter = self.kernel.parameter(name)
            if parameter is None or parameter.is_constexpr or name in given or isinstance(self.around.asked.get(name), Stride):
                continue
            with contextlib.suppress(NotLiteralError):
                value = self.around.evaluate(node, known)
                if isinstance(value, (bool, int, float)) or (isinstance(node, ast.Constant) and node.value is None):
                    found[name] = value
        return found

    def strides(self, given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, int | None]:
        """Strides that are passed, without those that are given: those of contiguous tensors.

        A tensor whose shape is not said has as many dimensions as strides are passed of it, if these are two or more in a row from 0, and
        the kernel goes along the last of them as along the innermost one: many kernels leave out the innermost, which is always 1.
        Otherwise none is taken for the innermost one, but what counts from the end.
        """
        found: dict[str, int | None] = {}
        self.around.allowance = Allowance(until=self.around.allowance.until)
        for name, asked in self.around.asked.items():
            if name in given or not isinstance(asked, Stride):
                continue
            rank = self.around.rank(asked.tensor)
            if rank is not None and -rank <= asked.index < rank:
                inner = range(asked.index % rank + 1, rank)
            elif rank is None and asked.index < 0:
                inner = range(asked.index + 1, 0)
            elif rank is None and self.around.is_one_of_several(asked.tensor):
                found[name] = None
                continue
            else:
                continue
            extents = [self.around.extent(Extent(asked.tensor, index), known) for index in inner]
            found[name] = math.prod(e for e in extents if e is not None) if None not in extents else None
        return found

    def grid(self, values: Mapping[str, Any]) -> tuple[int, ...] | None:
        """The grid; None: it is none.

        Raises:
            NotLiteralError: It cannot be worked out.
        """
        node: ast.expr = grid_of(self.call)
        self.around.allowance = Allowance(until=self.around.allowance.until)
        made = self.around.reader(values)
        for _ in range(DEEPEST):
            if isinstance(node, ast.Name) and isinstance(value := self.around.assigned.get(node.id), ast.Name | ast.Lambda):
                node = value
        inner = self.around.inner.get(node.id) if isinstance(node, ast.Name) else None  # def grid(meta): ...
        asked = inner.args.args if inner is not None else node.args.args if isinstance(node, ast.Lambda) else None
        if asked is not None:
            if len(asked) != 1:
                return None
            made.names[asked[0].arg] = dict(values)
        if inner is not None:
            found = made.follow(self.around.with_extents(inner, values, 0))
        else:
            found = made.evaluate(self.around.with_extents(node.body if isinstance(node, ast.Lambda) else node, values, 0))
        sizes = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        good = 1 <= len(sizes) <= 3 and all(isinstance(n, int) and not isinstance(n, bool) and 0 < n < 2**31 for n in sizes)
        return sizes if good else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundLaunch:
    """A launch and where it stands.

    Attributes:
        grid: Programs; None: not known.
        line: Of the launch.
        text: The grid as it is written.
        constexprs: Constants that the launch passes, as far as they can be worked out.
        options: Options that it passes (num_warps, ...), the same.
        numbers: Values of its other arguments, the same.
        types: Types of the elements of tensors that it passes, where the function around it says which it makes them of: "int32".
        strides: Strides that it passes, were its tensors contiguous; None: not known, but not the innermost one, or not known to be it.
        presumed: Constants that follow where an argument which a call of the function around cannot leave out is not None:
            `HAS_BIAS=bias is not None`.
        blocks, shapes: Of tensor descriptors that it passes, where the function around makes them.
        passed: Whether arguments are given something, by the same, where what the function around says of them is that or None.
    """

    grid: tuple[int, ...] | None
    line: int
    text: str
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    strides: Mapping[str, int | None] = field(default_factory=dict)
    presumed: Mapping[str, bool] = field(default_factory=dict)
    passed: Mapping[str, bool] = field(default_factory=dict)
    blocks: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
