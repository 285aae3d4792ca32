"""One launch of a kernel in a file, `kernel[grid](...)`: its grid, and the constants, numbers and strides that it passes, each with what
it hangs on. Read by following the function around it (`launch_walk`)."""

from __future__ import annotations

import ast
import contextlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from advisor.python_source.bindings import is_none, laid_out, names_in
from advisor.python_source.jit_function import MISSING
from advisor.python_source.kernel_forms import grid_of
from advisor.python_source.launch_walk import AroundLaunch, Hangs, LaunchWalk, OneArmWalk
from advisor.python_source.literal_values import Symbol
from advisor.python_source.literals import NotLiteralError, Unknown
from advisor.python_source.stride_use import possible_unit_strides
from advisor.python_source.tensors import MOST_DIMENSIONS, Extent, Number, OfElements, Stride, Tensor, Whole


class Known(NamedTuple):
    """A value that a launch passes, and what it hangs on (`launch_walk.DEFAULT`, `SWITCH`)."""

    value: Any
    hangs: Hangs


class LaunchSite(AroundLaunch):
    """One launch: what it passes, and what expressions around it are worked out with."""

    def follow(self) -> None:
        """Follow the function around it, and note what is passed."""
        self.innermost = frozenset[str]()
        self.unread: list[ast.expr] = []  # `**options` of which it is not known what they are
        self._walks: dict[str, LaunchWalk] = {}
        self.first = LaunchWalk(self, {})
        self.passed = self._passed()
        values = {name: self.first.evaluated(node)[0] for name, node in self.passed.items()}
        self.asked = {name: value.of for name, value in values.items() if isinstance(value, Number)}
        strides = {name for name, question in self.asked.items() if isinstance(question, Stride)}
        self.innermost = possible_unit_strides(self.kernel.node, frozenset(strides)) & strides if strides else frozenset()

    def _passed(self) -> dict[str, ast.expr]:
        """What is passed for each parameter; `*x.stride()` is as many arguments as `x` has dimensions, and ends the list where that is
        not known."""
        named = {k.arg: k.value for k in self.call.keywords if k.arg}
        for spread in (k.value for k in self.call.keywords if k.arg is None):
            items = self._items(spread, self.first.evaluated(spread)[0])
            named = {**(items or {}), **named}
            self.unread += [spread] if items is None else []
        positional: list[ast.expr] = []
        for argument in laid_out(self.call):
            if not isinstance(argument, ast.Starred):
                positional.append(argument)
                continue
            rank = self._spread(argument, named)
            if rank is None:
                break
            positional += (self._items(argument.value, dict.fromkeys(range(rank))) or {}).values()
        return {**dict(zip(self.kernel.names, positional, strict=False)), **named}

    def _spread(self, argument: ast.Starred, named: Mapping[str, ast.expr]) -> int | None:
        """How many arguments `*x.stride()` is: as many as `x` has dimensions, or as the kernel takes besides others; None: not known."""
        kernel = self.kernel
        by_place = laid_out(self.call)
        wholes = {item: self.first.evaluated(item.value)[0] for item in by_place if isinstance(item, ast.Starred)}
        known = {item: self._rank_said(whole.tensor.name) for item, whole in wholes.items() if isinstance(whole, Whole)}
        rank, ranks = known.get(argument), [*known.values()]
        unread = len(known) < len(wholes) or self.unread or (kernel.autotune is not None and not kernel.autotune.configs)
        if rank is not None or unread or ranks.count(None) != 1:
            return rank
        tuned = {name for config in (kernel.autotune.configs if kernel.autotune else ()) for name in config.parameters}
        otherwise = tuned | named.keys() | kernel.heuristics.keys()
        needed = [item for item in kernel.parameters if item.name not in otherwise and item.default is MISSING]
        left = len(needed) - (len(by_place) - len(ranks)) - sum(filter(None, ranks))
        return left if max(self.first.fewest.get(wholes[argument].tensor.name, 0), 1) <= left <= MOST_DIMENSIONS else None

    def _items(self, spread: ast.expr, value: Any) -> dict[Any, ast.expr] | None:
        """What `**options` passes by name, or `*strides` by place; None: not known."""
        if not isinstance(value, dict):
            return None
        keys = {key: ast.copy_location(ast.Constant(value=key), spread) for key in value}
        return {key: ast.copy_location(ast.Subscript(value=spread, slice=node, ctx=ast.Load()), spread) for key, node in keys.items()}

    def _rank_said(self, tensor: str) -> int | None:
        """Dimensions, as the function says; None: it does not, or in two ways."""
        ranks = self.first.ranks.get(tensor, set())
        return next(iter(ranks)) if len(ranks) == 1 else None

    def rank(self, tensor: str) -> int | None:
        """How many dimensions a tensor has: as the function says, or as many as strides are passed of it; None: not known."""
        if tensor in self.first.ranks:
            return self._rank_said(tensor)
        passed = self._strides_of(tensor)
        count = len(set(passed.values()))
        if count < 2 or set(passed.values()) != set(range(count)) or self.first.fewest.get(tensor, 0) > count:
            return None
        last = {name for name, index in passed.items() if index == count - 1}
        used = self.innermost & passed.keys() & names_in(*self.kernel.node.body)
        return count if used or last <= self.innermost else None

    def is_one_of_several(self, tensor: str) -> bool:
        """Whether a tensor whose dimensions are not known has two or more, so far as not said in two ways."""
        passed = set(self._strides_of(tensor).values())
        return tensor not in self.first.ranks and (len(passed) > 1 or self.first.fewest.get(tensor, 0) > 1)

    def _strides_of(self, tensor: str) -> dict[str, int]:
        """The strides of a tensor that are passed."""
        return {name: stride.index for name, stride in self.asked.items() if isinstance(stride, Stride) and stride.tensor == tensor}

    def place(self, extent: Extent) -> Extent:
        """The same extent with an index that counts from the front, where the rank is known."""
        rank = self.rank(extent.tensor)
        return Extent(extent.tensor, extent.index % rank) if rank and -rank <= extent.index < rank else extent

    def walk(self, values: Mapping[str, Any], presumes: bool = False) -> LaunchWalk:
        """The names around the launch, given values of the kernel's arguments or of these names; `presumes` as of `LaunchWalk`."""
        key = repr((sorted(values.items(), key=lambda item: item[0]), presumes))
        if key not in self._walks:
            self._walks[key] = LaunchWalk(self, values, presumes)
        return self._walks[key]

    def refuses(self, values: Mapping[str, Any]) -> bool:
        """Whether the function around the launch raises with some values, `if BLOCK > MOST: raise ValueError`, or does not make it."""
        walk, body = self.walk(values), self.function.body
        raising = [(node.test, False) for node in body if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise)]
        asserted = [(node.test, True) for node in body if isinstance(node, ast.Assert)]
        tests = [*raising, *asserted, *self.source.module_names.conditions(self.call)]
        return any(walk.decided(test)[0] is (not wanted) for test, wanted in tests)

    def evaluate(self, node: ast.expr, values: Mapping[str, Any], presumes: bool = False) -> Any:
        """The value of an expression around the launch; `presumes` as of `LaunchWalk`.

        Raises:
            NotLiteralError: It cannot be worked out.
        """
        value = self.walk(values, presumes).evaluate(node)
        if isinstance(value, Unknown):
            raise NotLiteralError(f"{ast.unparse(node)[:60]} is unknown")
        return value

    def passed_for(self, names: Iterable[str], values: Mapping[str, Any], presumes: bool = False) -> dict[str, Known]:
        """What the launch passes for some names, as far as that is known and no stride."""
        walk = self.walk(values, presumes)
        names_passed = [name for name in self.passed if name in names and not isinstance(self.asked.get(name), Stride)]
        passed = {name: Known(*walk.evaluated(self.passed[name])) for name in names_passed}
        return {name: item for name, item in passed.items() if not isinstance(item.value, Unknown)}

    @property
    def numbers(self) -> set[str]:
        """The kernel's arguments that are no constants."""
        return {*self.kernel.names} - self.kernel.constants

    def tells_grid(self, values: Mapping[str, Any], defaults: Mapping[str, Any], options: Sequence[str]) -> bool:
        """Whether the grid follows from what is known."""
        with contextlib.suppress(NotLiteralError):
            constants = {name: constant.value for name, constant in self.constants(values, options)[0].items()}
            return self.grid({**defaults, **constants, **values}) is not None
        return False

    def strides_told(self, values: Mapping[str, Any], defaults: Mapping[str, Any], options: Sequence[str]) -> frozenset[str]:
        """The strides whose values follow from what is known, were the tensors contiguous."""
        with contextlib.suppress(NotLiteralError):
            constants = {name: constant.value for name, constant in self.constants(values, options)[0].items()}
            strides = self.strides(values, {**defaults, **constants, **values})
            return frozenset(name for name, stride in strides.items() if stride is not None)
        return frozenset()

    def is_for_others(self, values: Mapping[str, Any], constants: Mapping[str, Any], grid: tuple[int, ...]) -> bool:
        """Whether the launch passes other numbers than those that are given, and its grid is the same without these."""
        others = set()
        for name in values.keys() & self.passed.keys() & self.numbers:
            with contextlib.suppress(NotLiteralError):
                passed = self.evaluate(self.passed[name], {n: v for n, v in values.items() if n != name})
                others |= {name} if type(passed) is int and passed != values[name] else set()
        with contextlib.suppress(NotLiteralError):
            return bool(others) and self.grid({**constants, **{n: v for n, v in values.items() if n not in others}}) == grid
        return False

    def constants(self, given: Mapping[str, Any], options: Sequence[str]) -> tuple[dict[str, Known], dict[str, Known]]:
        """The constants and options that the launch passes, without those that are given."""
        names = self.kernel.constants
        passed = self.passed_for({*names, *options} - given.keys(), given)
        passed = {n: item for n, item in passed.items() if isinstance(item.value, (bool, int, float, str, type(None), Symbol))}
        return {n: item for n, item in passed.items() if n in names}, {n: item for n, item in passed.items() if n not in names}

    def presumed(self, known_already: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Known]:
        """Flags that are passed and not told, where all that the function around requires is taken to be there."""
        return {
            name: item
            for name, item in self.passed_for(self.kernel.constants - known_already.keys(), known, presumes=True).items()
            if isinstance(item.value, bool)
        }

    def likely(self, known_already: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, int | str]:
        """Numbers and texts for constants that are not known, as one of the arms passes them of which it is not known which runs."""
        walk = OneArmWalk(self, known)
        names = [name for name in self.passed if name in self.kernel.constants and name not in known_already]
        values = {name: walk.evaluated(self.passed[name])[0] for name in names}
        return {name: value for name, value in values.items() if type(value) in (int, str)}

    def tensors(self, known: Mapping[str, Any]) -> dict[str, Known]:
        """Whether arguments of which no value is known are given something rather than None."""
        walk = self.walk(known, presumes=True)
        are_there: dict[str, Known] = {}
        for name in self.passed.keys() & self.numbers - known.keys():
            node = self.passed[name]
            question = ast.Compare(left=node, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)])
            value, hangs = walk.evaluated(ast.copy_location(question, node))
            are_there |= {name: Known(value, hangs)} if isinstance(value, bool) else {}
        return are_there

    def of_elements(self) -> frozenset[str]:
        """Constants that are passed as the type of a tensor's elements, as such or as a dictionary's key."""
        walk = LaunchWalk(self, {})
        constants = self.kernel.constants & self.passed.keys()
        return frozenset(name for name in constants if isinstance(walk.evaluated(self.passed[name])[0], OfElements))

    def types(self) -> dict[str, str]:
        """Types of the elements of tensors that are made for the launch: `sizes = torch.tensor(rows, dtype=torch.int32)`."""
        return {name: tensor.element for name, tensor in self.tensors_passed().items() if tensor.element is not None}

    def tensors_passed(self) -> dict[str, Tensor]:
        """The tensors that are passed, and names of which as much is known."""
        walk = LaunchWalk(self, {}, doubts=True)  # one that is made under a condition has the type that it has then
        values = {name: walk.evaluated(node)[0] for name, node in self.passed.items()}
        return {name: value for name, value in values.items() if isinstance(value, Tensor)}

    def other_numbers(self, given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Known]:
        """Values of the arguments that are neither constants nor strides, without those that are given; None where it is written so."""
        passed = self.passed_for(self.numbers - given.keys(), known)
        return {n: item for n, item in passed.items() if isinstance(item.value, (bool, int, float)) or is_none(self.passed[n])}

    def strides(self, given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, int | None]:
        """Strides that are passed, without those that are given: those of contiguous tensors.

        A tensor whose shape is not said has as many dimensions as strides are passed of it, if these are two or more in a row from 0, and
        the kernel goes along one of them as along the innermost one: many kernels leave out the innermost, which is always 1. Which of them
        that is the launch says: where it passes two in the wrong order, they are taken as passed.
        Otherwise none is taken for the innermost one, but what counts from the end.
        """
        strides: dict[str, int | None] = {}
        for name, stride in self.asked.items():
            if name in given or not isinstance(stride, Stride):
                continue
            rank = self.rank(stride.tensor)
            if rank == 2 and stride.tensor in self.first.turned:  # the first of its strides is 1
                strides[name] = self.walk(known).extent(Extent(stride.tensor, 0)) if stride.index % 2 else 1
                continue
            if rank == 2 and (inner_stride := self._transposed(stride.tensor, given)):
                strides[name] = inner_stride if stride.index % 2 else 1
                continue
            if rank is not None and -rank <= stride.index < rank:
                inner = range(stride.index % rank + 1, rank)
            elif rank is None and stride.index < 0:
                inner = range(stride.index + 1, 0)
            elif rank is None and self.is_one_of_several(stride.tensor):
                strides[name] = None
                continue
            else:
                continue
            extents = [self.walk(known).extent(Extent(stride.tensor, index)) for index in inner]
            strides[name] = math.prod(e for e in extents if e is not None) if None not in extents else None
        return strides

    def _transposed(self, matrix: str, given: Mapping[str, Any]) -> int:
        """The stride of a matrix that is 1 where it is contiguous, where it is given and more: the other one is 1 then; 0: it is not."""
        last = [given.get(name) for name, index in self._strides_of(matrix).items() if index % 2 == 1]
        return next((value for value in last if type(value) is int and value > 1), 0)

    def grid(self, values: Mapping[str, Any]) -> tuple[int, ...] | None:
        """The grid; None: it is none.

        Raises:
            NotLiteralError: It cannot be worked out.
        """
        walk = self.walk(values)
        before = dict(walk.names)
        value = walk.evaluate(grid_of(self.call))
        try:
            if isinstance(value, ast.Lambda | ast.FunctionDef):  # def grid(meta): ...
                if len(value.args.args) != 1:
                    return None
                walk.names[value.args.args[0].arg] = walk.meta
                value = walk.follow(value) if isinstance(value, ast.FunctionDef) else walk.evaluate(value.body)
        finally:
            walk.names = before
        sizes = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        good = 1 <= len(sizes) <= 3 and all(isinstance(n, int) and not isinstance(n, bool) and 0 < n < 2**31 for n in sizes)
        return sizes if good else None
