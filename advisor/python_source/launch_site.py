"""One launch of a kernel in a file, `kernel[grid](...)`: the grid as an expression over the kernel's arguments, the constants,
numbers and strides that it passes. Read by parsing."""

from __future__ import annotations

import ast
import contextlib
import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeVar, cast

from advisor.python_source.bindings import (
    Scope,
    argument_defaults,
    assigned,
    bound_by,
    changed_by,
    changed_names,
    defaults,
    inner_functions,
    innermost_function,
    is_fixed,
    is_none,
    names_in,
    other_values,
    own_names,
    required,
)
from advisor.python_source.callers import given_by_callers, is_open, unsaid
from advisor.python_source.functions import Evaluation, FunctionReader
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.kernel_forms import grid_of
from advisor.python_source.language import dotted
from advisor.python_source.literal_values import Symbol
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile
from advisor.python_source.stride_use import possible_unit_strides
from advisor.python_source.tensor_shapes import (
    DEEPEST,
    Extent,
    Stride,
    TensorShapes,
    asked_of,
    element_type,
    whole_of,
)

Node = TypeVar("Node", bound=ast.AST)


_NO_FUNCTION = ast.FunctionDef(name="", args=ast.arguments([], [], None, [], [], None, []), body=[], decorator_list=[])
"""Stands for the function around a launch at the top of a file."""


class LaunchSite:
    """One launch: what it passes, and what expressions around it are worked out with.

    Args:
        source: The file of the launch.
        kernel: What is launched.
        scopes: The functions and the like around it, the outermost first.
        call: The launch.
        num_sms: SMs of the GPU; None: not known.
        element_bytes: Size of the elements of its tensors; None: not known.
        told: What arguments of the function around are given by whoever calls it; None: what all calls agree on.
    """

    def __init__(
        self,
        source: SourceFile,
        kernel: JitFunction,
        scopes: Sequence[Scope],
        call: ast.Call,
        num_sms: int | None,
        element_bytes: int | None,
        told: Mapping[str, ast.Constant | None] | None = None,
    ) -> None:
        function = innermost_function(scopes) or _NO_FUNCTION
        self.source, self.kernel, self.call, self.scopes = source, kernel, call, scopes
        self.shapes = TensorShapes.of(function)
        inner = own_names(scopes[scopes.index(function) + 1 :] if function in scopes else ())  # lambda BLOCK: ...
        told = given_by_callers(source, scopes) if told is None else told
        self.before = {
            **{n: unsaid(each) for n, each in argument_defaults(function).items()},
            **{n: v for n, v in told.items() if v is not None},
        }
        self.function = function
        self.assigned = {name: value for name, value in assigned(function, call, self.before).items() if name not in inner}
        self.inner = inner_functions(function)
        self.own = own_names(scopes, source.alternatives)
        self.local = frozenset(own_names(scopes)) - {p.name for p in kernel.parameters}
        self.changed = changed_names(scopes[0]) if scopes else set()
        self.unread: list[ast.expr] = []  # `**options` of which it is not known what they are
        self.passed = self._passed()
        self.evaluation = Evaluation(unset=source.unset, num_sms=num_sms, element_bytes=element_bytes)  # for all that is asked of it
        self.following: set[str | Extent] = set()  # names and extents that are being worked out: their own values need them
        self.defaults = {name: unsaid(value) for name, value in defaults(function).items() if name not in inner}
        self.calls = [(name, node) for name, node in self.passed.items() if isinstance(node, ast.Call)]
        self.asked = {name: asked for name, node in self.passed.items() if (asked := self._asked(node)) is not None}
        strides = {name for name, asked in self.asked.items() if isinstance(asked, Stride)}
        self.required = required(function) - inner
        for name, value in told.items():
            if name not in inner | other_values(function):
                if value is not None:
                    self.defaults[name] = value
                    self.required.discard(name)
                else:  # all calls give it something
                    self.defaults.pop(name, None)
                    self.required.add(name)
        self._presumes = False  # that what is required is not None
        self._wants_gradients = True  # where it is presumed that
        self.innermost = possible_unit_strides(self.kernel.node, strides) & strides if strides else set()

    def without_defaults(self) -> LaunchSite:
        """The launch where nothing is known of arguments of the function around that a call may leave out."""
        found = copy.copy(self)
        found.defaults = {}
        return found

    def without_switches(self) -> LaunchSite:
        """The launch where nothing is known of flags, and of what may be None, that no call says, nor whether gradients are wanted."""
        found = copy.copy(self)
        unknown = {
            name: ast.copy_location(ast.Name(id=f"{name} of no call", ctx=ast.Load()), value)
            for name, value in self.before.items()
            if is_open(value)
        }
        found.defaults = {name: value for name, value in self.defaults.items() if not is_open(value)}
        values = assigned(self.function, self.call, {**self.before, **unknown})
        found.assigned = {name: value for name, value in values.items() if name in self.assigned}
        found._wants_gradients = False
        return found

    def _passed(self) -> dict[str, ast.expr]:
        """What is passed for each parameter; `*x.stride()` is as many arguments as `x` has dimensions, and ends the list where that is
        not known."""
        named = {k.arg: k.value for k in self.call.keywords if k.arg}
        for spread in (k.value for k in self.call.keywords if k.arg is None):
            items = self._items(spread)
            named = {**(items or {}), **named}
            self.unread += [spread] if items is None else []
        positional: list[ast.expr] = []
        for argument in self.call.args:
            if not isinstance(argument, ast.Starred):
                positional.append(argument)
                continue
            whole = whole_of(argument.value)
            rank = self.shapes.rank(whole[0]) if whole is not None else None
            if whole is None or rank is None:
                break
            owner, kind = whole
            positional += [
                ast.parse(f"{owner}.{kind}({i})" if kind == "stride" else f"{owner}.shape[{i}]", mode="eval").body for i in range(rank)
            ]
        return {**dict(zip((p.name for p in self.kernel.parameters), positional, strict=False)), **named}

    def _items(self, spread: ast.expr) -> dict[str, ast.expr] | None:
        """What `**options` passes after `options = {"BLOCK": 64}` or `options = dict(BLOCK=64)`; None: not known."""
        if isinstance(spread, ast.Name) and (value := self.assigned.get(spread.id)) is not None and value.lineno < self.call.lineno:
            nodes = [node for scope in self.scopes[:1] for node in ast.walk(scope)]
            later = {name for node in nodes if getattr(node, "lineno", 0) > (value.end_lineno or 0) for name in bound_by(node)}
            second = any(isinstance(node, ast.Assign) and dotted(node.value) == spread.id for node in nodes)  # a name to change it by
            if names_in(value).isdisjoint(later) and not second and not any(spread.id in changed_by(node) for node in nodes):
                spread = value
        if isinstance(spread, ast.Call) and dotted(spread.func) == "dict" and not spread.args and all(k.arg for k in spread.keywords):
            return {str(k.arg): k.value for k in spread.keywords}
        if isinstance(spread, ast.Dict) and all(isinstance(key, ast.Constant) and isinstance(key.value, str) for key in spread.keys):
            return {str(getattr(key, "value", "")): value for key, value in zip(spread.keys, spread.values, strict=True)}
        return None

    def _asked(self, node: ast.expr) -> Extent | Stride | None:
        """The extent or stride that an argument is, also by a name that stands for it."""
        if isinstance(node, ast.Name) and node.id not in self.shapes.unpacked:
            node = self.assigned.get(node.id, node)
        return self.shapes.unpacked.get(node.id) if isinstance(node, ast.Name) else asked_of(node)

    def rank(self, tensor: str) -> int | None:
        """How many dimensions a tensor has: as the function says, or as many as strides are passed of it; None: not known."""
        said = self.shapes.rank(tensor)
        if said is not None or self.shapes.extents.get(tensor):
            return said  # said in two ways: not known
        passed = self._strides_of(tensor)
        count = len(set(passed.values()))
        if count < 2 or set(passed.values()) != set(range(count)) or self.shapes.fewest.get(tensor, 0) > count:
            return None
        return count if self.innermost.issuperset(name for name, index in passed.items() if index == count - 1) else None

    def is_one_of_several(self, tensor: str) -> bool:
        """Whether a tensor whose dimensions are not known has two or more, so far as not said in two ways."""
        passed = set(self._strides_of(tensor).values())
        return not self.shapes.extents.get(tensor) and (len(passed) > 1 or self.shapes.fewest.get(tensor, 0) > 1)

    def _strides_of(self, tensor: str) -> dict[str, int]:
        """The strides of a tensor that are passed."""
        return {name: asked.index for name, asked in self.asked.items() if isinstance(asked, Stride) and asked.tensor == tensor}

    def extent(self, asked: Extent, values: Mapping[str, Any], depth: int = 0) -> int | None:
        """One extent of a tensor: as it is passed for an argument, or as the function says it is."""
        place = self._place(asked)
        for name, other in self.asked.items():
            if isinstance(other, Extent) and self._place(other) == place and isinstance(values.get(name), int):
                return int(values[name])
        for node in self.shapes.extent(asked.tensor, asked.index) if depth < DEEPEST else ():
            with contextlib.suppress(NotLiteralError), self._following(place):
                value = self.evaluate(node, values, depth + 1)
                if isinstance(value, int):
                    return value
        return None

    def _place(self, asked: Extent) -> Extent:
        """The same extent of the tensor whose shape this one has, with an index that counts from the front, where the rank is known."""
        rank = self.rank(asked.tensor)
        index = asked.index % rank if rank and -rank <= asked.index < rank else asked.index
        return Extent(self.shapes.root(asked.tensor), index)

    def _ask(self, *, presumes: bool = False) -> None:
        """Begin with a question; `presumes`: arguments that a call of the function around cannot leave out count as something other than
        None."""
        self._presumes = presumes

    def evaluate(self, node: ast.expr, values: Mapping[str, Any], depth: int = 0, *, presumes: bool = False) -> Any:
        """The value of an expression around the launch; `presumes` as of `_ask`.

        Raises:
            NotLiteralError: It cannot be worked out.
        """
        if depth == 0:
            self._ask(presumes=presumes)
        return self.reader(values, depth).evaluate(self.with_extents(node, values, depth))

    def with_extents(self, node: Node, values: Mapping[str, Any], depth: int) -> Node:
        """The expression, or function, with the extents in it that are known."""
        around = self

        class Extents(ast.NodeTransformer):
            def visit(self, node: ast.AST) -> Any:
                around.evaluation.allowance.take()
                if around._presumes and around._wants_gradients and _asks_for_gradient(node):
                    return ast.copy_location(ast.Constant(value=True), cast(ast.expr, node))
                if around._presumes and around._asks_whether_there_is(node, values):
                    assert isinstance(node, ast.Compare)
                    return ast.copy_location(ast.Constant(value=isinstance(node.ops[0], ast.IsNot)), node)
                asked = asked_of(node)
                value = around.extent(asked, values, depth) if isinstance(asked, Extent) else around._as_passed(node, values)
                return ast.copy_location(ast.Constant(value=value), node) if value is not None else self.generic_visit(_copied(node))

        return node if depth > DEEPEST else Extents().visit(node)

    def _as_passed(self, node: ast.AST, values: Mapping[str, Any]) -> int | None:
        """What an argument is that the launch is given as the same call, `x.numel()`; None: there is none, or it is not known."""
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            return None
        given = (values.get(name) for name, other in self.calls if ast.dump(other) == ast.dump(node))
        return next((value for value in given if type(value) is int), None)

    def _asks_whether_there_is(self, node: ast.AST, values: Mapping[str, Any]) -> bool:
        """Whether an expression asks if an argument that is required, and of which nothing is given, is None."""
        if not isinstance(node, ast.Compare) or len(node.ops) != 1 or not isinstance(node.ops[0], (ast.Is, ast.IsNot)):
            return False
        asked, none = node.left, node.comparators[0]
        if not isinstance(asked, ast.Name) or asked.id not in self.required or not is_none(none):
            return False
        return not any(isinstance(each, ast.Name) and each.id == asked.id and name in values for name, each in self.passed.items())

    def reader(self, values: Mapping[str, Any], depth: int = 0) -> FunctionReader:
        """A reader that knows the names around the launch, given values of the kernel's arguments."""
        made = FunctionReader(self.source, self.evaluation, values)
        for name in self.own:  # a name of the function around is not the kernel's argument of the same name, nor the file's
            made.names[name] = lambda name=name: _unknown(name)
        for name in self.changed.difference(made.names).intersection(self.source.alternatives):  # CONFIG["BLOCK"] = 128, of the file
            made.names[name] = lambda name=name: self._as_it_was(name, self.source.module_names.value(made, name))
        for name, node in (*self.defaults.items(), *self.assigned.items()):
            made.names[name] = lambda name=name, node=node: self._named(made, name, node, values, depth)
        for name, asked in self.shapes.unpacked.items():
            if isinstance(asked, Extent) and depth <= DEEPEST:
                made.names[name] = lambda name=name, asked=asked: self._unpacked(name, asked, values, depth)
        for parameter, node in self.passed.items():
            if isinstance(node, ast.Name) and parameter in values:
                made.names[node.id] = values[parameter]
        made.names |= {name: value for name, value in values.items() if name in self.local}  # given by their names there
        self.evaluation.allowance.take(len(made.names))  # as many as it takes to make the reader
        return made

    def _named(self, made: FunctionReader, name: str, node: ast.expr, values: Mapping[str, Any], depth: int) -> Any:
        with self._following(name):
            return self._as_it_was(name, made.visit(self.with_extents(node, values, depth + 1)))

    def _as_it_was(self, name: str, value: Any) -> Any:
        """What a name was given, unless that is a list or the like that the function may change before the launch."""
        return value if name not in self.changed or is_fixed(value) else _unknown(name)

    @contextlib.contextmanager
    def _following(self, what: str | Extent) -> Iterator[None]:
        """Work out a name or an extent, but not in terms of itself: of `x = x.view(-1, d)` it is not followed what x was before."""
        if what in self.following:
            raise NotLiteralError(f"{what} is needed to work itself out")
        self.following.add(what)
        try:
            yield
        finally:
            self.following.remove(what)

    def _unpacked(self, name: str, asked: Extent, values: Mapping[str, Any], depth: int) -> int:
        found = self.extent(asked, values, depth + 1)
        return found if found is not None else _unknown(name)

    def tells_grid(self, values: Mapping[str, Any], defaults: Mapping[str, Any], options: Sequence[str]) -> bool:
        """Whether the grid follows from what is known."""
        self._ask()
        with contextlib.suppress(NotLiteralError):
            return self.grid({**defaults, **self.constants(values, options)[0], **values}) is not None
        return False

    def is_for_others(self, values: Mapping[str, Any], constants: Mapping[str, Any], grid: tuple[int, ...]) -> bool:
        """Whether the launch passes other numbers than those that are given, and its grid is the same without these."""
        others = set()
        for name in values.keys() & self._passed_as(constants=False).keys():
            with contextlib.suppress(NotLiteralError):
                passed = self.evaluate(self.passed[name], {n: v for n, v in values.items() if n != name})
                others |= {name} if type(passed) is int and passed != values[name] else set()
        with contextlib.suppress(NotLiteralError):
            return bool(others) and self.grid({**constants, **{n: v for n, v in values.items() if n not in others}}) == grid
        return False

    def _passed_as(self, *, constants: bool) -> dict[str, ast.expr]:
        """What is passed for the kernel's constants, or for its other arguments."""
        kinds = {each.name for each in self.kernel.parameters if each.is_constexpr is constants}
        return {name: node for name, node in self.passed.items() if name in kinds}

    def constants(self, given: Mapping[str, Any], options: Sequence[str]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The constants and options that the launch passes, without those that are given."""
        constants: dict[str, Any] = {}
        launched: dict[str, Any] = {}
        for name, node in self.passed.items():
            found = constants if name in self._passed_as(constants=True) else launched if name in options else None
            if found is None or name in given or isinstance(self.asked.get(name), Stride):
                continue
            with contextlib.suppress(NotLiteralError):
                value = self.evaluate(node, given)
                if isinstance(value, (bool, int, float, str, type(None), Symbol)):
                    found[name] = value
        return constants, launched

    def presumed(self, told: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, bool]:
        """Flags that are passed and not told, where all that the function around requires is taken to be there."""
        found: dict[str, bool] = {}
        for name, node in self._passed_as(constants=True).items():
            if name not in told:
                with contextlib.suppress(NotLiteralError):
                    value = self.evaluate(node, known, presumes=True)
                    found |= {name: value} if isinstance(value, bool) else {}
        return found

    def tensors(self, known: Mapping[str, Any]) -> dict[str, bool]:
        """Whether arguments of which no value is known are given something rather than None."""
        found: dict[str, bool] = {}
        for name, node in self._passed_as(constants=False).items():
            if name not in known:
                asked = ast.Compare(left=node, ops=[ast.IsNot()], comparators=[ast.Constant(value=None)])
                with contextlib.suppress(NotLiteralError):
                    found[name] = bool(self.evaluate(ast.copy_location(asked, node), known, presumes=True))
        return found

    def of_elements(self) -> frozenset[str]:
        """Constants that are passed as the type of a tensor's elements, as such or as a dictionary's key."""
        nodes = self._passed_as(constants=True).items()
        keys = {name: node.slice if isinstance(node, ast.Subscript) else node for name, node in nodes}
        return frozenset(name for name, node in keys.items() if isinstance(node, ast.Attribute) and node.attr == "dtype")

    def types(self) -> dict[str, str]:
        """Types of the elements of tensors that are made for the launch: `sizes = torch.tensor(rows, dtype=torch.int32)`."""
        found = {name: element_type(node, self.assigned, self.shapes.unpacked) for name, node in self.passed.items()}
        return {name: kind for name, kind in found.items() if kind is not None}

    def numbers(self, given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
        """Values of the arguments that are neither constants nor strides, without those that are given; None where it is written so."""
        found: dict[str, Any] = {}
        for name, node in self._passed_as(constants=False).items():
            if name not in given and not isinstance(self.asked.get(name), Stride):
                with contextlib.suppress(NotLiteralError):
                    value = self.evaluate(node, known)
                    is_number = isinstance(value, (bool, int, float)) or is_none(node)
                    found |= {name: value} if is_number else {}
        return found

    def strides(self, given: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, int | None]:
        """Strides that are passed, without those that are given: those of contiguous tensors.

        A tensor whose shape is not said has as many dimensions as strides are passed of it, if these are two or more in a row from 0, and
        the kernel goes along the last of them as along the innermost one: many kernels leave out the innermost, which is always 1.
        Otherwise none is taken for the innermost one, but what counts from the end.
        """
        found: dict[str, int | None] = {}
        self._ask()
        for name, asked in self.asked.items():
            if name in given or not isinstance(asked, Stride):
                continue
            rank = self.rank(asked.tensor)
            if rank is not None and -rank <= asked.index < rank:
                inner = range(asked.index % rank + 1, rank)
            elif rank is None and asked.index < 0:
                inner = range(asked.index + 1, 0)
            elif rank is None and self.is_one_of_several(asked.tensor):
                found[name] = None
                continue
            else:
                continue
            extents = [self.extent(Extent(asked.tensor, index), known) for index in inner]
            found[name] = math.prod(e for e in extents if e is not None) if None not in extents else None
        return found

    def grid(self, values: Mapping[str, Any]) -> tuple[int, ...] | None:
        """The grid; None: it is none.

        Raises:
            NotLiteralError: It cannot be worked out.
        """
        node: ast.expr = grid_of(self.call)
        self._ask()
        made = self.reader(values)
        for _ in range(DEEPEST):
            if isinstance(node, ast.Name) and isinstance(value := self.assigned.get(node.id), ast.Name | ast.Lambda):
                node = value
        inner = self.inner.get(node.id) if isinstance(node, ast.Name) else None  # def grid(meta): ...
        asked = inner.args.args if inner is not None else node.args.args if isinstance(node, ast.Lambda) else None
        if asked is not None:
            if len(asked) != 1:
                return None
            made.names[asked[0].arg] = dict(values)
        if inner is not None:
            found = made.follow(self.with_extents(inner, values, 0))
        else:
            found = made.evaluate(self.with_extents(node.body if isinstance(node, ast.Lambda) else node, values, 0))
        sizes = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        good = 1 <= len(sizes) <= 3 and all(isinstance(n, int) and not isinstance(n, bool) and 0 < n < 2**31 for n in sizes)
        return sizes if good else None


def _asks_for_gradient(node: ast.AST) -> bool:
    """Whether an expression asks if a gradient is wanted: where kernels are tuned for training, it is."""
    owner = node.value if isinstance(node, ast.Subscript) else node
    asked = owner.attr if isinstance(owner, ast.Attribute) else ""
    return asked == ("needs_input_grad" if isinstance(node, ast.Subscript) else "requires_grad")


def _unknown(name: str) -> Any:
    raise NotLiteralError(f"what {name} is where the kernel is launched is unknown")


def _copied(node: Node) -> Node:
    """The node with lists of its own, so that what stands below it can be replaced; a whole copy would cost more than what is read."""
    own = type(node).__new__(type(node))
    vars(own).update({name: list(value) if isinstance(value, list) else value for name, value in vars(node).items()})
    return own
