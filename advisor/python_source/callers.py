"""What the callers of a function give its arguments, as far as they write it: constants, defaults of their own, or something that is
required and so not None. Calls are found by name, in the function's file and in those that are read beside it (`SourceFile.callers`)."""

from __future__ import annotations

import ast
import contextlib
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from advisor.python_source.bindings import (
    Scope,
    argument_defaults,
    arguments,
    call_arguments,
    innermost_function,
    names_in,
    other_values,
)
from advisor.python_source.language import dotted, last_name
from advisor.python_source.literals import Evaluator, NotLiteralError
from advisor.python_source.target_questions import torch_type
from advisor.python_source.tensors import DEFAULT_TYPES, LIKE, MADE, SAME_SHAPE, SAME_TYPE, TYPE_OF

if TYPE_CHECKING:
    from advisor.python_source.source import SourceFile

DEEPEST = 4
"""Calls that are followed upwards: a launcher, the autograd function, its methods, the function that users call."""
MOST_PARTS = 16
"""Names, methods and attributes that are followed to what makes a tensor."""
LEFT_OUT = "left out"
"""Kind of a constant that is an argument's default."""
Given = ast.Constant | None
"""A constant; None: something that is not None, and of which no more is known."""


def given_by_callers(source: SourceFile, scopes: Sequence[Scope]) -> dict[str, Given]:
    """What the arguments of the innermost function of `scopes` are given by all calls of it alike; those are left out of which that is not
    known, and whose default stands."""
    function = innermost_function(scopes)
    if function is None:
        return {}
    key = ("given by callers", function)
    if key not in source.kept:
        calls = _Calls(source)
        known = {name: calls.argument(source, scopes, name, 0) for name in sorted(arguments(function))}
        source.kept[key] = {name: value[0] for name, value in known.items() if value is not None}
    return source.kept[key]


@dataclass(frozen=True, slots=True)
class Passed:
    """A tensor that a call passes, as far as its caller says what it is.

    Attributes:
        element: The type of its elements, in torch's words; "": not said.
        turned: Whether it is the transposed view of a matrix, `x.t()`.
        extents: Its shape, None for what is not written in numbers; None: not said.
    """

    element: str = ""
    turned: bool = False
    extents: tuple[int | None, ...] | None = None

    def transposed(self) -> Passed:
        return replace(self, turned=not self.turned, extents=self.extents[::-1] if self.extents is not None else None)


def tensors_by_callers(source: SourceFile, scopes: Sequence[Scope]) -> dict[str, Passed]:
    """The tensors that all calls of the innermost function of `scopes` give its arguments, where the callers make them,
    `x = torch.randint(0, 9, (n, m), dtype=torch.int8, device="cuda")`: what all of them agree on."""
    function = innermost_function(scopes)
    if function is None:
        return {}
    if (key := ("tensors by callers", function)) in source.kept:
        return source.kept[key]
    made: dict[str, list[Passed]] = {}
    skipped = 1 if _class(source, function) else 0
    for file, around, call in _Calls(source).of(source, scopes):
        given, _ = call_arguments(function, call, skipped=skipped)
        for name in arguments(function):
            made.setdefault(name, []).append(_tensor(file, around, given[name]) if name in given else Passed())
    source.kept[key] = {name: _agreed(every) for name, every in made.items()}
    return source.kept[key]


def only_call(source: SourceFile, scopes: Sequence[Scope]) -> tuple[list[Scope], ast.Call, dict[str, ast.expr]] | None:
    """Where the only known call of the innermost function of `scopes` stands, the call, and what it gives the arguments; None: none is
    known, or more than one, it stands in another file, or passes `*values`."""
    function = innermost_function(scopes)
    if function is None:
        return None
    if (key := ("only call", function)) not in source.kept:
        calls = [*itertools.islice(_Calls(source).of(source, scopes), 2)]
        given, spread = (
            call_arguments(function, calls[0][2], skipped=1 if _class(source, function) else 0) if len(calls) == 1 else ({}, True)
        )
        source.kept[key] = None if spread or calls[0][0] is not source else (*calls[0][1:], given)
    return source.kept[key]


def forward_of(source: SourceFile, scopes: Sequence[Scope]) -> ast.FunctionDef | None:
    """The `forward` of the class whose `backward` is the innermost function of `scopes`, which ends with a return; None: it is none."""
    function = innermost_function(scopes)
    forward = _forward(_class(source, function)) if function is not None and function.name == "backward" else None
    return forward if forward is not None and isinstance(forward.body[-1], ast.Return) else None


def _agreed(every: Sequence[Passed]) -> Passed:
    """What some tensors have in common."""
    elements = {one.element for one in every}
    shapes = [one.extents for one in every if one.extents is not None]
    alike = len(shapes) == len(every) and len({*map(len, shapes)}) == 1
    extents = tuple(column[0] if len({*column}) == 1 else None for column in zip(*shapes, strict=True)) if alike else None
    return Passed(elements.pop() if len(elements) == 1 else "", all(one.turned for one in every), extents)


def types_of_parts(source: SourceFile, scopes: Sequence[Scope], node: ast.expr) -> list[str]:
    """The types of the tensors that an expression gives several names, in torch's words, "" for one of which it is not said: those that
    `forward` keeps, of `ctx.saved_tensors`, or those that a function of the file, or one that it imports, returns; empty: it is neither, or
    not known."""
    key = ("types of parts", node)
    if key not in source.kept:
        source.kept[key] = _types_of_parts(source, scopes, node, 0)
    return source.kept[key]


def _types_of_parts(source: SourceFile, scopes: Sequence[Scope], node: ast.expr, hands: int) -> list[str]:
    """The same; `hands`: functions that were followed on the way."""
    function = innermost_function(scopes)
    if isinstance(node, ast.Attribute) and node.attr == "saved_tensors" and function is not None:
        forward = _forward(_class(source, function))
        kept = (
            [call for call in ast.walk(forward) if isinstance(call, ast.Call) and last_name(call) == "save_for_backward"] if forward else []
        )
        if forward is None or len(kept) != 1 or any(isinstance(item, ast.Starred) for item in kept[0].args):
            return []
        return [_tensor(source, [forward], item, hands).element for item in kept[0].args]
    name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    files = [(source, name), *source.led(name)] if name and hands < DEEPEST else []
    origin = next(((file, file.plain_functions[there]) for file, there in files if there in file.plain_functions), None)
    if origin is None:
        return []
    file, called = origin
    values = [
        item.value
        for item in ast.walk(called)
        if isinstance(item, ast.Return) and innermost_function(file.module_names.scopes_around(item)) is called
    ]
    rows = [value.elts if isinstance(value, ast.Tuple) else [] for value in values]
    if not rows or len({*map(len, rows)}) > 1:
        return []
    kinds = ({_tensor(file, [called], item, hands + 1).element for item in column} for column in zip(*rows, strict=True))
    return [kind.pop() if len(kind) == 1 else "" for kind in kinds]


def _tensor(source: SourceFile, scopes: Sequence[Scope], node: ast.expr, hands: int = 0, parts: int = 0) -> Passed:
    """What is said of a tensor that an expression makes, or a name that its function gives such alone; `hands`: functions that were
    followed on the way to it, `parts`: names and methods."""
    function = innermost_function(scopes)
    graph, around = source.module_names, function or source.module_names.tree
    if parts > MOST_PARTS:
        return Passed()
    if isinstance(node, ast.Name):
        if function is not None and node.id in arguments(function):
            return Passed()
        given = graph.given([around], node.id)
        if not given and len(graph.binders(around).get(node.id, ())) == 1:
            return Passed(_part(source, scopes, around, node.id, hands))
        every = [_tensor(source, scopes, item, hands, parts + len(given)) for item in given if isinstance(item, ast.expr)]
        return _agreed(every) if every else Passed()
    if isinstance(node, ast.Attribute) and node.attr == "T":
        return _tensor(source, scopes, node.value, hands, parts + 1).transposed()
    if not isinstance(node, ast.Call):
        return Passed()
    method = node.func.attr if isinstance(node.func, ast.Attribute) else ""
    kinds = [item.value for item in node.keywords if item.arg == "dtype"] + (node.args[:1] if method == "to" else [])
    types = [torch_type(dotted(kind).removeprefix("torch.")) for kind in kinds if dotted(kind).startswith("torch.")]
    element = (types[0].name if types[0] is not None else "") if types else TYPE_OF.get(method, "")
    element = element or (type_by_default(node) if not kinds else "")
    if not isinstance(node.func, ast.Attribute) or method not in SAME_TYPE | SAME_SHAPE:
        return Passed(element, extents=_shape(source, around, node))
    inner = _tensor(source, scopes, node.func.value, hands, parts + 1)
    if method == "t":
        return inner.transposed()
    kept = all(isinstance(kind, ast.Constant) or dotted(kind).endswith("device") for kind in kinds)  # of a type that is not named
    turned = inner.turned and method != "contiguous"
    return Passed(element or (inner.element if kept else ""), turned, inner.extents if method in SAME_SHAPE else None)


def type_by_default(call: ast.Call) -> str:
    """The type of what a call of torch's makes that names none: of `torch.arange` of whole numbers that of an index; "": not known."""
    function, name = dotted(call.func), last_name(call)
    whole = name == "arange" and not any(isinstance(node, ast.Constant) and isinstance(node.value, float) for node in call.args)
    return ("int64" if whole else DEFAULT_TYPES.get(name, "")) if function == f"torch.{name}" else ""


def _shape(source: SourceFile, around: ast.AST, call: ast.Call) -> tuple[int | None, ...] | None:
    """The shape of what a function of torch makes, as far as it is written in numbers: `torch.empty((N, 4), …)`."""
    name = last_name(call)
    if not dotted(call.func).startswith("torch.") or name not in MADE | {"randint"}:
        return None
    sizes = [item.value for item in call.keywords if item.arg == "size"] or call.args
    listed = next((item.elts for item in sizes if isinstance(item, ast.Tuple | ast.List)), sizes if name not in ("randint", "full") else [])
    extents = tuple(_size(source, around, item) for item in listed)
    return extents if any(extents) and not any(isinstance(item, ast.Starred) for item in listed) else None


def _size(source: SourceFile, around: ast.AST, node: ast.expr) -> int | None:
    """A number, a name that a function, or the file, gives one alone, or what is worked out with these: `B + 1`."""
    names: dict[str, Any] = {}
    for name in names_in(node):
        given = source.module_names.given([source.module_names.tree, around], name)
        names |= {name: given[0].value} if len(given) == 1 and isinstance(given[0], ast.Constant) else {}
    with contextlib.suppress(NotLiteralError):
        value = Evaluator(names).evaluate(node)
        return value if type(value) is int else None
    return None


def _part(source: SourceFile, scopes: Sequence[Scope], around: ast.AST, name: str, hands: int) -> str:
    """The type of what a statement gives a name among others, `x, rstd = forward(x)`; "": it is not said."""
    for statement in ast.walk(around):
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if isinstance(statement, ast.Assign) and isinstance(target, ast.Tuple | ast.List):
            names = [item.id if isinstance(item, ast.Name) else "" for item in target.elts]
            kinds = _types_of_parts(source, scopes, statement.value, hands + 1) if name in names else []
            if len(kinds) == len(names):
                return kinds[names.index(name)]
    return ""


def _forward(owner: ast.ClassDef | None) -> ast.FunctionDef | None:
    """The `forward` of a class."""
    methods = (item for item in owner.body if isinstance(item, ast.FunctionDef)) if owner is not None else ()
    return next((item for item in methods if item.name == "forward"), None)


def _class(source: SourceFile, function: ast.FunctionDef) -> ast.ClassDef | None:
    """The class that a function is a method of."""
    around = source.module_names.above(function)
    return around[-1] if around and isinstance(around[-1], ast.ClassDef) else None


Node = TypeVar("Node", bound=ast.expr)


def as_left_out(default: Node) -> Node:
    """A default that counts because no call is known that says more, marked as such."""
    return cast(Node, ast.copy_location(ast.Constant(default.value, LEFT_OUT), default)) if isinstance(default, ast.Constant) else default


def is_open(value: ast.expr) -> bool:
    """Whether what stands for an argument is a switch that no call says: None, or a flag, by default."""
    return isinstance(value, ast.Constant) and value.kind == LEFT_OUT and (value.value is None or isinstance(value.value, bool))


class _Calls:
    """The calls among a file and those that are read beside it."""

    def __init__(self, source: SourceFile) -> None:
        self.files = (source, *source.callers)

    def argument(self, source: SourceFile, scopes: Sequence[Scope], name: str, depth: int) -> tuple[Given] | None:
        """What an argument is given in a way that all calls agree on, else its default; None: not known."""
        values = self.given(source, scopes, name, depth)
        if values and None not in values and len({item[0] and repr(item[0].value) for item in values if item is not None}) == 1:
            return values[0]
        function = innermost_function(scopes)
        assert function is not None
        default = argument_defaults(function).get(name)
        if default is not None:
            constant = _constant(default)
            return (as_left_out(constant),) if constant is not None and depth else None
        if _may_be_none(function, name):
            return (
                None if values else (as_left_out(ast.Constant(value=None, lineno=1, col_offset=0)),)
            )  # nothing calls it here, and what may be left out is
        left_out = any(item is not None and item[0] is not None and item[0].value is None for item in values)
        return (None,) if depth and not left_out else None  # what it requires, it is given

    def given(self, source: SourceFile, scopes: Sequence[Scope], name: str, depth: int) -> list[tuple[Given] | None]:
        """What each call gives an argument; None for one of which that is not known."""
        function = innermost_function(scopes)
        if function is None or depth >= DEEPEST:
            return []
        out = []
        default = argument_defaults(function).get(name)
        for file, around, call in self.of(source, scopes):
            arguments_given, spread = call_arguments(function, call, skipped=1 if _class(source, function) else 0)
            node = arguments_given.get(name, default) if not spread else None
            out.append(self._value(file, around, node, depth + 1) if node is not None else None)
        return out

    def of(self, source: SourceFile, scopes: Sequence[Scope]) -> Iterator[tuple[SourceFile, list[Scope], ast.Call]]:
        """The calls of a function, and of a method `forward` as torch calls it: `Name.apply(…)`."""
        function = innermost_function(scopes)
        assert function is not None
        owner = _class(source, function)
        if owner is not None and function.name != "forward":
            return
        called = function.name if owner is None else f"{owner.name}.apply"
        for file in self.files:
            graph = file.module_names
            for call in graph.calls.get(called.rpartition(".")[2], ()):
                text = dotted(call.func)
                if text != called and not text.endswith(f".{called}"):
                    continue
                if any(item.is_triton or item.module.partition(".")[0] == "torch" for item in graph.imports.get(text.split(".")[0], ())):
                    continue  # theirs is another function of the name, `tl.gather`
                around = graph.scopes_around(call)
                if function not in around and (file is source or text.split(".")[0] in graph.imports):
                    yield file, around, call

    def _value(self, source: SourceFile, scopes: Sequence[Scope], node: ast.expr, depth: int) -> tuple[Given] | None:
        """What an expression is in a function that calls another."""
        if (constant := _constant(node)) is not None:
            return (constant,)
        if _is_made(node):
            return (None,)
        function = innermost_function(scopes)
        owner = _class(source, function) if function is not None else None
        if owner is not None and isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            return self._kept(source, owner, node, depth)
        if not isinstance(node, ast.Name):
            return None
        if function is not None and node.id in arguments(function):
            return None if _changed_before(source, function, node) else self.argument(source, scopes, node.id, depth)
        given = source.module_names.given([function or source.module_names.tree], node.id)
        constant = _constant(given[0]) if len(given) == 1 and isinstance(given[0], ast.expr) else None
        return (constant,) if constant is not None or (given and all(_is_made(item) for item in given)) else None

    def _kept(self, source: SourceFile, owner: ast.ClassDef, node: ast.Attribute, depth: int) -> tuple[Given] | None:
        """What `ctx.name` is in `backward`, where `forward` keeps one of its arguments or a constant under that name, once."""
        forward = _forward(owner)
        if forward is None or depth >= DEEPEST:
            return None
        values = [
            inner.value
            for inner in ast.walk(forward)
            if isinstance(inner, ast.Assign)
            for target in inner.targets
            if isinstance(target, ast.Attribute) and target.attr == node.attr and dotted(target.value) == dotted(node.value)
        ]
        return self._value(source, [forward], values[0], depth + 1) if len(values) == 1 and values[0] is not node else None


def _is_made(node: ast.AST) -> bool:
    """Whether an expression is a tensor that a function of torch makes: none of them is None."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SAME_TYPE | SAME_SHAPE:
        node = node.func.value
    return isinstance(node, ast.Call) and dotted(node.func).startswith("torch.") and last_name(node) in MADE | LIKE | {"randint"}


def _may_be_none(function: ast.FunctionDef, name: str) -> bool:
    """Whether an argument's annotation says that it may be None: `Optional[torch.Tensor]`, `torch.Tensor | None`."""
    listed = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    text = next((ast.unparse(element_.annotation) for element_ in listed if element_.arg == name and element_.annotation is not None), "")
    return "Optional[" in text or re.search(r"\bNone\b", text) is not None


def _constant(node: ast.expr) -> ast.Constant | None:
    """A constant, also a negative one."""
    negative = isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub)
    inner = node.operand if isinstance(node, ast.UnaryOp) and negative else node
    if not isinstance(inner, ast.Constant) or (negative and not isinstance(inner.value, int | float)):
        return None
    return ast.copy_location(ast.Constant(value=-inner.value), node) if negative else inner  # type: ignore[operator]


def _changed_before(source: SourceFile, function: ast.FunctionDef, node: ast.Name) -> bool:
    """Whether a function gives a name other values in lines above where it reads it; in a loop, in any line."""
    graph = source.module_names
    looped = any(isinstance(outer, ast.For | ast.While) for outer in graph.above(node))
    before = any(getattr(binder, "lineno", 0) < node.lineno for binder in graph.binders(function).get(node.id, ()))
    return (looped or before) and node.id in other_values(function)
