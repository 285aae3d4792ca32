"""The function around a launch, followed once from its first statement to the call: what each name is there, and on which defaults that
hangs. Nothing of it is run; what is not known is a `Tensor`, which stands for anything."""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast

from advisor.python_source.bindings import (
    BLOCKS,
    Scope,
    argument_defaults,
    arguments,
    changed_names,
    innermost_function,
    is_fixed,
    is_none,
    names_in,
    names_stored,
    other_values,
    own_names,
    pairs,
    required,
    shared_names,
    stores,
)
from advisor.python_source.callers import (
    DEEPEST,
    Passed,
    as_left_out,
    forward_of,
    given_by_callers,
    is_open,
    only_call,
    tensors_by_callers,
    type_by_default,
    types_of_parts,
)
from advisor.python_source.functions import Evaluation, FunctionReader
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.language import dotted, last_name
from advisor.python_source.literal_values import TorchType
from advisor.python_source.literals import NotLiteralError, Unknown
from advisor.python_source.source import SourceFile
from advisor.python_source.tensors import (
    LIKE,
    MADE,
    MOST_DIMENSIONS,
    OF_VALUES,
    SAME_SHAPE,
    SAME_TYPE,
    TYPE_OF,
    Extent,
    Number,
    OfElements,
    Stride,
    Tensor,
    Whole,
    joined,
)

DEFAULT = "default"
"""Among what a value hangs on: the default of an argument, or what its callers give it, which another call may give something else."""
SWITCH = "switch"
"""A flag, or what may be None, that no call says; and whether gradients are wanted."""
_GOES_ON, _LEAVES, _LAUNCHES = "goes on", "leaves", "launches"
"""How a block of statements ends."""
_LITERALS = ast.Constant | ast.UnaryOp | ast.BinOp | ast.Tuple | ast.List | ast.Starred
Hangs = frozenset[str]


_NO_FUNCTION = ast.FunctionDef(name="", args=ast.arguments([], [], None, [], [], None, []), body=[], decorator_list=[])
"""Stands for the function around a launch at the top of a file."""


class AroundLaunch:
    """A launch and the function around it, before that is followed.

    Args:
        source: The file of the launch.
        kernel: What is launched.
        scopes: The functions and the like around it, the outermost first.
        call: The launch, or where a function is left that is followed to its end.
        num_sms: SMs of the GPU; None: not known.
        element_bytes: Size of the elements of its tensors; None: not known.
        hands: Calls from here to the launch, where the call is of what makes it.
    """

    def __init__(
        self,
        source: SourceFile,
        kernel: JitFunction,
        scopes: Sequence[Scope],
        call: ast.Call,
        num_sms: int | None,
        element_bytes: int | None,
        hands: int = 0,
    ) -> None:
        function = innermost_function(scopes) or _NO_FUNCTION
        called = only_call(source, scopes) if hands < DEEPEST else None
        self.handed: dict[str, ast.expr] = called[2] if called is not None else {}
        self.caller = AroundLaunch(source, kernel, called[0], called[1], num_sms, element_bytes, hands + 1) if called is not None else None
        self.source, self.kernel, self.scopes, self.call, self.function = source, kernel, scopes, call, function
        forward = forward_of(source, scopes)
        self.forward = None
        if forward is not None:
            self.forward = AroundLaunch(source, kernel, [forward], cast(ast.Call, forward.body[-1]), num_sms, element_bytes, hands)
        self.above = frozenset([*source.module_names.above(call), call])
        within = scopes[scopes.index(function) + 1 :] if function in scopes else ()
        self.nested, self.inner = bool(within), own_names(within)  # lambda BLOCK: ...
        by_callers = given_by_callers(source, scopes)  # what all calls of the function agree on
        kept = {name for name, value in by_callers.items() if value is None}  # all calls give it something
        constants = {name: value for name, value in by_callers.items() if value is not None}
        defaults = {name: as_left_out(default) for name, default in argument_defaults(function).items() if name not in kept}
        self.before = {**defaults, **constants}
        self.defaults = self.before.keys() - self.inner - other_values(function)
        self.required = (required(function) | (kept - other_values(function))) - self.inner - constants.keys()
        self.given = tensors_by_callers(source, scopes)  # as all calls make them
        self.elements = {name: tensor.element for name, tensor in self.given.items() if tensor.element}
        self.own = own_names(scopes, source.alternatives)
        self.local = frozenset(own_names(scopes)) - {*kernel.names}
        self.changed = changed_names(scopes[0]) if scopes else set()
        self.shared = shared_names(function)
        self.evaluation = Evaluation(unset=source.unset, num_sms=num_sms, element_bytes=element_bytes)  # for all that is asked of it
        self.passed: dict[str, ast.expr] = {}  # for each parameter, as far as that is known
        self.asked: dict[str, Extent | Stride] = {}  # which of a tensor that is
        self.follow()

    def follow(self) -> None:
        """Follow the function; called once all of this is known."""

    def place(self, extent: Extent) -> Extent:
        """The same extent with an index that counts from the front, where it is known how many dimensions the tensor has."""
        return extent


class LaunchWalk(FunctionReader):
    """A reader that knows the names around a launch as they are where it is made.

    Args:
        site: The launch.
        values: Values of the kernel's arguments, and of names of the function around.
        presumes: Whether arguments that a call of the function around cannot leave out count as something other than None, and gradients
            as wanted.
        doubts: Whether switches that no call says count as unknown.
        extents: What extents are, besides.
    """

    def __init__(
        self,
        site: AroundLaunch,
        values: Mapping[str, Any],
        presumes: bool = False,
        doubts: bool = False,
        extents: Mapping[Extent, int] = MappingProxyType({}),
    ) -> None:
        super().__init__(site.source, site.evaluation, values)
        self.site, self.presumes, self.doubts = site, presumes, doubts
        named = {node.id: values[name] for name, node in site.passed.items() if isinstance(node, ast.Name) and name in values}
        self.fixed = named | {name: value for name, value in values.items() if name in site.local}
        calls = ((name, node) for name, node in site.passed.items() if isinstance(node, ast.Call))
        self.as_passed = {ast.dump(node): values[name] for name, node in calls if type(values.get(name)) is int}
        constants = ((name, node) for name, node in site.passed.items() if name in site.kernel.constants)
        literals = [(node.value, values.get(name)) for name, node in constants if isinstance(node, ast.Constant)]
        unclear = {number for number, value in literals for other, that in literals if number == other and value != that}
        self.blocks = {number: value for number, value in literals if type(value) is int and number not in unclear}
        self.divided_by: set[int] = set()  # by `cdiv`, of these literals: a block that is passed stands in the grid too
        of_kernel = ((name, item) for name, item in site.asked.items() if isinstance(item, Extent) and isinstance(values.get(name), int))
        self.extents: dict[Extent, int] = {**extents, **{site.place(item): values[name] for name, item in of_kernel}}
        self.shapes: dict[str, tuple[Any, ...]] = {}  # by a tensor's name
        self.ranks: dict[str, set[int]] = {}  # as they are said, also in two ways
        self.fewest: dict[str, int] = {}  # dimensions that a tensor has at least, for it is asked for one of that number
        self.lines: dict[str, int] = {}  # where names were given what they are
        self.unpacked: set[str] = set()  # names that were given extents or strides: `B, T, H = q.shape`
        self.turned = {name for name, tensor in site.given.items() if tensor.turned}  # another matrix' transposed view
        self.hanging: dict[str, Hangs] = {}
        self.hangs: set[str] = set()  # what was found to decide, so far
        self.meta = dict(values)  # what a grid that is a function is given
        self.owner = next((item.arg for item in site.function.args.args), "")  # `ctx`, of a method of an autograd function
        self.kept: dict[str, tuple[Any, Hangs]] = {}  # what attributes of it were given: `ctx.BLOCK = block`
        self.context: dict[str, tuple[Any, Hangs]] = {}  # and were by `forward`
        self._begin()
        self._follow(site.function.body)
        if site.nested:  # it is made whenever that is called
            often = [name for name, count in stores(site.function).items() if count + (name in arguments(site.function)) > 1]
            self._forget([*often, *site.inner], site.call)

    def _begin(self) -> None:
        """Give names what they are before the first statement."""
        for name in self.site.own:
            self.names.pop(name, None)
        for name in (*arguments(self.site.function), *self.fixed):
            extents = self.site.given.get(name, Passed()).extents
            tensor = Tensor(name, extents, self.site.elements.get(name), name in self.site.required)
            self._set(name, self._known_shape(tensor))
        for name, node in self.site.before.items():
            with self.at(self.place, {}):
                value, hangs = self.evaluated(node)
            if not isinstance(value, Unknown) and not (self.doubts and is_open(node)):
                default = {DEFAULT} if name in self.site.defaults else set()
                self._set(name, value, frozenset(default | ({SWITCH} if is_open(node) else set()) | hangs))
        if self.site.caller is not None:
            self._take_from(self.site.caller)
        if self.site.forward is not None:
            self.context = self._walked(self.site.forward).kept

    def _walked(self, site: AroundLaunch) -> LaunchWalk:
        """Another function followed, and what it says of the shapes of its tensors, which keep their names there."""
        walk = LaunchWalk(site, {}, self.presumes, self.doubts, self.extents)
        self.shapes |= walk.shapes
        self.turned |= walk.turned
        self.ranks |= walk.ranks
        self.fewest |= walk.fewest
        return walk

    def _take_from(self, caller: AroundLaunch) -> None:
        """Give the arguments what the only call of the function passes, where that is known or is a tensor of which something is."""
        walk = self._walked(caller)
        for name, node in self.site.handed.items():
            value, hangs = walk.evaluated(node)
            if not isinstance(so_far := self.names.get(name), Tensor):
                continue  # all calls agree on it
            if isinstance(value, Tensor):
                known = so_far.extents or value.extents or ()
                sizes = zip(known, value.extents or known, strict=True) if len(known) == len(value.extents or known) else ()
                extents = tuple(size if size is not None else before for before, size in sizes) or value.extents
                given = value.given or name in self.site.required
                value = replace(value, given=given, element=value.element or so_far.element, extents=extents)
                self.turned |= {value.name} if so_far.name in self.turned else set()
            self._set(name, self._known_shape(value), hangs)

    def evaluated(self, node: ast.expr, name: str = "") -> tuple[Any, Hangs]:
        """The value of an expression and what it hangs on; of one that cannot be worked out, a tensor called `name`."""
        before, self.hangs = self.hangs, set()
        try:
            value = self.evaluate(node)
        except NotLiteralError:
            value = Tensor(_called(node, name))
        hangs, self.hangs = frozenset(self.hangs), before
        return value, hangs

    def decided(self, test: ast.expr) -> tuple[bool | None, Hangs]:
        """Whether a condition holds, None where that is not known, and what it hangs on."""
        value, hangs = self.evaluated(ast.copy_location(ast.UnaryOp(op=ast.Not(), operand=test), test))
        return (None if isinstance(value, Unknown) else not value), hangs

    def extent(self, extent: Extent) -> int | None:
        """One extent of a tensor; None: it is not known."""
        shape = self.shapes.get(extent.tensor, ())
        written = shape[extent.index] if -len(shape) <= extent.index < len(shape) else None
        value = self._resolved(written if written is not None else Number(extent))
        return value if isinstance(value, int) else None

    # ------------------------------------------------------------------------------------------------------- statements

    def _follow(self, body: Sequence[ast.stmt]) -> str:
        """Follow a block to its end, or to the launch."""
        for statement in body:
            end = self._block(statement) if isinstance(statement, BLOCKS) else self._plain(statement)
            if end is not _GOES_ON:
                return end
        return _GOES_ON

    def _plain(self, statement: ast.stmt) -> str:
        if statement in self.site.above:
            return _LAUNCHES
        if isinstance(statement, (ast.Return, ast.Raise, ast.Break, ast.Continue)):
            return _LEAVES
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            values = [(item, self._spread(item, statement.value)) for item in targets if statement.value is not None]
            parts = [pair for item, value in values for pair in pairs(item, value)]
            for target, part, (value, hangs) in [(target, part, self.evaluated(part, dotted(target))) for target, part in parts]:
                self._give(target, value, hangs)
                items = target.elts if isinstance(target, ast.Tuple | ast.List) else []
                elements = types_of_parts(self.source, self.site.scopes, part) if items else []
                for item, element in zip(items, elements, strict=True) if len(items) == len(elements) else ():
                    if isinstance(item, ast.Name) and element:
                        self._set(item.id, replace(self._tensor(item), element=element), self.hanging.get(item.id, frozenset()))
        elif isinstance(statement, ast.FunctionDef):
            self._set(statement.name, statement)
        elif isinstance(statement, ast.Assert):  # of how many dimensions tensors are, and of which type
            for node in ast.walk(statement.test):
                if isinstance(node, ast.Subscript | ast.Call):
                    self.evaluated(node)
            test = statement.test
            for part in test.values if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And) else [test]:
                match part:
                    case ast.Compare(left=ast.Attribute(value=ast.Name() as name, attr="dtype"), ops=[ast.Eq()], comparators=[kind]):
                        typed = replace(self._tensor(name), element=self._type(kind), typed_as=name.id)
                        self._set(name.id, typed, self.hanging.get(name.id, frozenset()))
        elif not isinstance(statement, ast.Expr):
            imported = isinstance(statement, ast.Import | ast.ImportFrom)
            self._forget((name for name in names_stored(statement) if not imported or name in self.site.own), statement)
        self._forget(_walruses(statement), statement)
        return _GOES_ON

    def _spread(self, target: ast.expr, value: ast.expr) -> ast.expr:
        """What is assigned, with the extents in place of a shape that is spread: `B, T, K, V = *k.shape, v.shape[-1]`."""
        if not isinstance(target, ast.Tuple) or not isinstance(value, ast.Tuple):
            return value
        shapes = [item for item in value.elts if isinstance(item, ast.Starred)]
        count = len(target.elts) - len(value.elts) + 1
        whole = self.evaluated(shapes[0].value)[0] if len(shapes) == 1 and count > 0 else None
        if not isinstance(whole, Whole) or any(isinstance(item, ast.Starred) for item in target.elts):
            return value
        self.ranks.setdefault(whole.tensor.name, set()).add(count)
        first = value.elts.index(shapes[0])
        indices = [ast.copy_location(ast.Constant(value=index), value) for index in range(count)]
        extents = [ast.copy_location(ast.Subscript(shapes[0].value, index, ast.Load()), value) for index in indices]
        return ast.copy_location(ast.Tuple([*value.elts[:first], *extents, *value.elts[first + 1 :]], ast.Load()), value)

    def _give(self, target: ast.expr, value: Any, hangs: Hangs) -> None:
        """Assign."""
        items = target.elts if isinstance(target, ast.Tuple | ast.List) else []
        starred = any(isinstance(item, ast.Starred) for item in items)
        if isinstance(target, ast.Name):
            self._set(target.id, value, hangs)
            self.lines[target.id] = target.lineno
        elif items and isinstance(value, Whole) and not starred:
            self.ranks.setdefault(value.tensor.name, set()).add(len(items))
            self.unpacked |= {item.id for item in items if isinstance(item, ast.Name)}
            for index, item in enumerate(items):
                number = value.at(index)
                size = self.fixed.get(item.id) if isinstance(item, ast.Name) else None
                if type(size) is int and isinstance(number, Number) and isinstance(number.of, Extent):
                    self.extents.setdefault(self.site.place(number.of), size)
                self._give(item, number, hangs)
        elif isinstance(value, tuple | list) and len(items) == len(value) and not starred:
            for item, part in zip(items, value, strict=True):
                self._give(item, part, hangs)
        elif isinstance(target, ast.Attribute) and dotted(target.value) == self.owner:
            former = self.kept.get(target.attr)
            self.kept[target.attr] = (value, hangs) if former is None else (joined([former[0], value], target.attr), hangs | former[1])
        elif not isinstance(target, ast.Subscript | ast.Attribute):  # what that changes is `site.changed`
            self._forget(names_stored(target), target)

    def _block(self, statement: ast.stmt) -> str:
        """A compound statement: of a condition the arm that runs, of others all that may run."""
        bodies = list(_bodies(statement))
        around = next((body for body in bodies if any(entry in self.site.above for entry in body)), None)
        if isinstance(statement, ast.If):
            return self._branches(statement, around)
        if isinstance(statement, ast.With | ast.AsyncWith) or (isinstance(statement, ast.Try) and around is statement.body):
            for item in statement.items if not isinstance(statement, ast.Try) else ():
                self._forget(names_stored(item), statement)
            if around is not None:
                return self._follow(around)
        if around is not None:  # what a loop, or what failed, gave names before
            self._forget(names_stored(statement), statement)
            return self._follow(around)
        if isinstance(statement, ast.For | ast.AsyncFor | ast.While | ast.Match):
            self._forget(names_stored(statement), statement)
            return _GOES_ON
        return self._either(statement, [*bodies, []], frozenset())

    def _branches(self, statement: ast.If, around: list[ast.stmt] | None) -> str:
        holds, hangs = self.decided(statement.test)
        self._forget(_walruses(statement.test), statement)
        if around is not None:
            negated = isinstance(statement.test, ast.UnaryOp) and isinstance(statement.test.op, ast.Not)
            flag = statement.test.operand if negated and isinstance(statement.test, ast.UnaryOp) else statement.test
            is_flag = isinstance(flag, ast.Name) and isinstance(self.names.get(flag.id), bool)
            if holds is (around is statement.orelse):  # it is not launched with these defaults
                self._forget([name for name in names_in(statement.test) if DEFAULT in self.hanging.get(name, ())], statement)
            if is_flag and isinstance(flag, ast.Name):  # which it is launched with: `if fast: kernel[grid](…, FAST=fast)`
                self._set(flag.id, (around is statement.body) is not negated)
            return self._follow(around)
        arms = [statement.body, statement.orelse] if holds is not False else [statement.orelse, statement.body]
        if holds is None:
            match statement.test:
                case ast.Compare(left=ast.Attribute(attr="dtype") as kind_of, ops=[ast.NotEq()], comparators=[kind]):
                    is_kind = ast.Compare(left=kind_of, ops=[ast.Eq()], comparators=[kind])
                    arms[1] = [ast.copy_location(ast.Assert(test=is_kind), statement), *arms[1]]  # `if x.dtype != kind: x = x.to(kind)`
            return self._either(statement, arms, hangs)
        return next((end for arm in arms if (end := self._either(statement, [arm], hangs)) is _GOES_ON), _LEAVES)

    def _either(self, statement: ast.stmt, arms: Sequence[Sequence[ast.stmt]], hangs: Hangs) -> str:
        """Follow blocks of which one runs; those that leave the block around do not count."""
        names, hanging = dict(self.names), dict(self.hanging)
        outcomes = []
        for arm in arms:
            self.names, self.hanging = dict(names), dict(hanging)
            if self._follow(arm) is _GOES_ON:
                outcomes.append((self.names, self.hanging))
        self.names, self.hanging = names, hanging
        for name in names_stored(statement):
            if values := [outcome[name] for outcome, _ in outcomes if name in outcome]:
                together = hangs.union(*(outcome.get(name, hangs) for _, outcome in outcomes))
                self._set(name, self._one_of(values, f"{name}:{statement.lineno}"), together)
        return _GOES_ON if outcomes else _LEAVES

    def _set(self, name: str, value: Any, hangs: Hangs = frozenset()) -> None:
        if name in self.fixed:
            value, hangs = self.fixed[name], frozenset()
        self.names[name] = Tensor(name) if name in self.site.shared else value
        self.hanging[name] = hangs

    def _forget(self, names: Iterable[str], node: ast.AST) -> None:
        for name in names:
            self._set(name, Tensor(f"{name}:{getattr(node, 'lineno', 0)}"))
            self.lines.pop(name, None)

    # ------------------------------------------------------------------------------------------------------ expressions

    def visit(self, node: ast.AST) -> Any:
        """The value of an expression, with what is known of the tensors that it asks."""
        if not self.depth:
            if self.presumes and _asks_for_gradient(node):
                self.hangs.add(SWITCH)
                return True
            if self.as_passed and isinstance(node, ast.Call) and (passed := self.as_passed.get(ast.dump(node))) is not None:
                return passed
        return self._resolved(super().visit(node))

    def _resolved(self, value: Any) -> Any:
        if self.extents and isinstance(value, Number) and isinstance(value.of, Extent):
            return self.extents.get(self.site.place(value.of), value)
        return value

    def _name(self, node: ast.Name) -> Any:
        unbound = not self.depth and node.id in self.site.own and node.id not in self.names
        value = Tensor(node.id) if unbound else super()._name(node)
        if not self.depth:
            self.hangs |= self.hanging.get(node.id, frozenset())
            may_change = value is not self.meta and not isinstance(value, Unknown | ast.AST) and not is_fixed(value)
            if node.id in self.site.changed and may_change:
                raise NotLiteralError(f"what {node.id} is where the kernel is launched is unknown")
        return value

    def _compare(self, node: ast.Compare) -> bool:
        if len(node.ops) == 1 and isinstance(node.ops[0], ast.Is | ast.IsNot) and is_none(node.comparators[0]) and self.presumes:
            value = self.visit(node.left)
            if isinstance(value, Tensor) and value.given:
                return isinstance(node.ops[0], ast.IsNot)
        return super()._compare(node)

    def _ifexp(self, node: ast.IfExp) -> Any:
        holds, hangs = self.decided(node.test)
        self.hangs |= hangs
        arms = [node.body, node.orelse]
        values = [self.visit(arm) for arm in (arms if holds is None else [arms[not holds]])]
        return self._one_of(values, _called(node))

    def _one_of(self, values: Sequence[Any], name: str) -> Any:
        """What one of some values is, whichever arm gives it."""
        return joined(values, name)

    def _dict(self, node: ast.Dict) -> dict:
        if None in node.keys:
            return super()._dict(node)
        return {self.visit(key): self.evaluated(value)[0] for key, value in zip(node.keys, node.values, strict=True) if key is not None}

    def _attribute(self, node: ast.Attribute) -> Any:
        return Whole(self._tensor(node.value), "shape") if node.attr == "shape" else super()._attribute(node)

    def _member(self, value: Any, node: ast.Attribute) -> Any:
        if not isinstance(value, Tensor):
            return super()._member(value, node)
        if node.attr == "dtype":
            return TorchType(value.element) if value.element is not None else OfElements(value.typed_as or value.name)
        if dotted(node.value) == self.owner and node.attr in self.context:
            kept, hangs = self.context[node.attr]
            self.hangs |= hangs
            return kept
        if node.attr in SAME_TYPE:
            return self._view(node, node.attr, (), _same_type(node, value))
        return Tensor(f"{value.name}.{node.attr}")

    def _subscript(self, node: ast.Subscript) -> Any:
        key, hangs = self.evaluated(node.slice) if isinstance(node.slice, ast.Attribute | ast.Name) else (None, frozenset())
        if isinstance(key, OfElements):  # TYPES[x.dtype], whatever that holds
            self.hangs |= hangs
            return key
        return super()._subscript(node)

    def _item(self, value: Any, node: ast.Subscript) -> Any:
        if isinstance(value, Whole) and type(index := self.visit(node.slice)) is int:
            return self._asked(value, index)
        return Tensor(_called(node), element=value.element) if isinstance(value, Tensor) else super()._item(value, node)

    def _lambda(self, node: ast.Lambda) -> ast.Lambda:
        return node

    def _asked(self, whole: Whole, index: int) -> Any:
        least = index + 1 if index >= 0 else -index
        self.fewest[whole.tensor.name] = max(self.fewest.get(whole.tensor.name, 0), least)
        return whole.at(index)

    def _tensor(self, node: ast.expr) -> Tensor:
        """The tensor that an expression is, also a name of which nothing is known, or that is None by default."""
        value, hangs = self.evaluated(node, dotted(node))
        self.hangs |= hangs
        if isinstance(value, Tensor):
            return value
        if value is None and dotted(node):
            return Tensor(dotted(node))
        raise NotLiteralError(f"{ast.unparse(node)[:60]} is no tensor")

    def _call(self, node: ast.Call) -> Any:
        if dotted(node.func) == "dict" and not node.args and all(keyword.arg for keyword in node.keywords):
            keys: list[ast.expr | None] = [ast.Constant(value=keyword.arg) for keyword in node.keywords]
            return self._dict(ast.copy_location(ast.Dict(keys=keys, values=[keyword.value for keyword in node.keywords]), node))
        match node:
            case ast.Call(args=[size, ast.Constant(value=int(literal))]) if literal in self.blocks and last_name(node) == "cdiv":
                self.divided_by.add(literal)
                block = ast.copy_location(ast.Constant(value=self.blocks[literal]), node)
                node = ast.copy_location(ast.Call(func=node.func, args=[size, block], keywords=[]), node)
        made = self._made(node)
        return super()._call(node) if made is None else self._known_shape(made)

    def _made(self, node: ast.Call) -> Any:
        """What a call of a tensor, or that makes one, gives; None: it is no such call."""
        last, function = last_name(node), node.func
        of_method = isinstance(function, ast.Attribute) and dotted(function.value) != "torch"
        owner = function.value if isinstance(function, ast.Attribute) and of_method else None
        typed = any(keyword.arg == "dtype" for keyword in node.keywords)
        if owner is not None and last in ("size", "stride") and not node.keywords and len(node.args) < 2:
            whole = Whole(self._tensor(owner), "shape" if last == "size" else "stride")
            return whole if not node.args else self._asked(whole, self.visit(node.args[0]))
        if owner is not None and last == "numel" and not node.args:
            extents = self._tensor(owner).extents or (None,)
            return math.prod(extents) if all(type(extent) is int for extent in extents) else None
        if last in LIKE and node.args:
            like = self._tensor(node.args[0])
            of = self._of_type_said(node) if typed else like
            return replace(like, element=of.element, typed_as=of.typed_as, given=False)
        if last in MADE:
            like_owner = owner is not None and last.startswith("new_") and not typed
            made = _same_type(node, self._tensor(owner)) if owner is not None and like_owner else self._of_type_said(node)
            shape, _ = self.evaluated(node.args[0]) if node.args else (None, None)
            if isinstance(shape, Whole) and len(node.args) == 1:
                return replace(shape.tensor, element=made.element, typed_as=made.typed_as, given=False)
            return replace(made, extents=self._sizes(node.args, last), given=False)
        if dotted(function) in OF_VALUES:
            return self._of_type_said(node)
        if owner is None or last not in SAME_SHAPE | SAME_TYPE | {"view"}:
            return None
        tensor = self._tensor(owner)
        same = last in SAME_TYPE or (last == "view" and self._takes_sizes(node))
        element = tensor.element if same else TYPE_OF.get(last)
        typed_as = f"{tensor.name}." if not same else tensor.typed_as or ("" if tensor.element else tensor.name)
        if last in ("to", "view"):
            given = [*node.args, *(k.value for k in node.keywords if k.arg == "dtype")]
            element = next((kind for item in given if (kind := self._type(item)) is not None), element)
            kinds = (self.evaluated(item)[0] for item in given)
            typed_as = next((kind.tensor for kind in kinds if isinstance(kind, OfElements)), typed_as)
        typed_as = "" if element is not None and element != tensor.element else typed_as
        if last == "contiguous" and tensor.name in self.turned:
            return Tensor(f"{_called(node)}:{node.end_col_offset}", tensor.extents, element, tensor.given, typed_as)
        if last in SAME_SHAPE:
            return replace(tensor, element=element, typed_as=typed_as)
        sizes = self._sizes(node.args, last) if last in ("view", "reshape") else None
        return self._view(node, last, node.args, Tensor(_called(node), sizes, element, tensor.given, typed_as))

    def _view(self, node: ast.expr, method: str, places: Sequence[ast.expr], view: Tensor) -> Tensor:
        """A view of a tensor, noted where it is a matrix's transposed one: `x.t()`, `x.T`, `x.transpose(0, 1)`."""
        turns = method in ("t", "T") or (method == "transpose" and {ast.unparse(item) for item in places} in ({"0", "1"}, {"-1", "-2"}))
        if not turns:
            return view
        view = replace(view, name=f"{view.name}:{node.end_col_offset}")  # what it is a view of may begin in the same place
        self.turned.add(view.name)
        return view

    def _known_shape(self, made: Any) -> Any:
        if isinstance(made, Tensor) and made.extents is not None:
            self.shapes[made.name] = made.extents
            self.ranks.setdefault(made.name, set()).add(len(made.extents))
        return made

    def _sizes(self, given: Sequence[ast.expr], function: str) -> tuple[Any, ...] | None:
        """The extents among the arguments of a function that makes a tensor; None: they are not written out."""
        listed = given[0].elts if given and isinstance(given[0], ast.Tuple | ast.List) else None
        nodes = listed if listed is not None else () if "full" in function else given
        if not nodes or len(nodes) > MOST_DIMENSIONS or any(isinstance(node, ast.Starred) for node in nodes):
            return None
        sizes = [self.evaluated(node)[0] for node in nodes]
        if listed is None and len(sizes) == 1 and not isinstance(sizes[0], int | Number):
            return None  # a name of a whole shape, maybe
        return tuple(size if isinstance(size, Number) or (type(size) is int and size >= 0) else None for size in sizes)

    def _of_type_said(self, call: ast.Call) -> Tensor:
        """A tensor of the type that a call which makes one names: `int32` of `torch.empty(n, dtype=torch.int32)`, that of another tensor of
        `dtype=x.dtype`, torch's where it names none, or none that is known."""
        kinds = [keyword.value for keyword in call.keywords if keyword.arg == "dtype"]
        kind = self.evaluated(kinds[0])[0] if kinds else None
        element = self._type(kinds[0]) if kinds else type_by_default(call) or None
        return Tensor(_called(call), element=element, typed_as=kind.tensor if isinstance(kind, OfElements) else "")

    def _type(self, node: ast.expr) -> str | None:
        """The type that is meant by `torch.int32`, or by what is that; None: it is none of torch's, or not known."""
        kind, hangs = self.evaluated(node)
        self.hangs |= hangs
        return kind.name if isinstance(kind, TorchType) else None

    def _takes_sizes(self, call: ast.Call) -> bool:
        """Whether `x.view(...)` is asked for a shape: `x.view(kind)` reads the same bytes as another type."""
        if call.keywords or not call.args:
            return False
        return (
            len(call.args) > 1 or isinstance(call.args[0], _LITERALS) or isinstance(self.evaluated(call.args[0])[0], int | Number | Whole)
        )


class OneArmWalk(LaunchWalk):
    """The same, with the last of arms of which it is not known which runs: what it says is no fact, but goes together."""

    def _one_of(self, values: Sequence[Any], name: str) -> Any:
        return values[-1]


def _same_type(node: ast.expr, tensor: Tensor) -> Tensor:
    """What an expression makes of a tensor whose elements have its type."""
    return Tensor(
        _called(node), element=tensor.element, given=tensor.given, typed_as=tensor.typed_as or ("" if tensor.element else tensor.name)
    )


def _called(node: ast.expr, name: str = "") -> str:
    """A name for what an expression makes, the same whenever it is followed."""
    return name if name and name == dotted(node) else f"{name}:{getattr(node, 'lineno', 0)}:{getattr(node, 'col_offset', 0)}"


def _bodies(statement: ast.stmt) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement."""
    for part in ("body", "orelse", "finalbody"):
        if block := getattr(statement, part, []):
            yield block
    yield from (inner.body for part in ("handlers", "cases") for inner in getattr(statement, part, ()))


def _walruses(node: ast.AST) -> list[str]:
    return [inner.target.id for inner in ast.walk(node) if isinstance(inner, ast.NamedExpr)]


def _asks_for_gradient(node: ast.AST) -> bool:
    """Whether an expression asks if a gradient is wanted: where kernels are tuned for training, it is."""
    owner = node.value if isinstance(node, ast.Subscript) else node
    attribute = owner.attr if isinstance(owner, ast.Attribute) else ""
    return attribute == ("needs_input_grad" if isinstance(node, ast.Subscript) else "requires_grad")
