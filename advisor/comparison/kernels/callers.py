"""The calls by which what a launch passes gets into the function around it: `config = default_config(M)` in one function of a file, and
`kernel[grid](…, **config)` in another, or in a method."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence, Set

from advisor.comparison.kernels.objects import Function, family_of, first_argument, methods_of
from advisor.python_source.bindings import SCOPES, Scope, argument_defaults, nodes_of_file, scopes_around
from advisor.python_source.literals import dotted

MOST_PATHS = 32
"""Ways to a launch that are followed."""
MOST_CALLERS = 6
"""Functions that are followed on one of them."""
_OBJECTS = ("self", "cls", "ctx")
"""How methods call what is not passed to them: their object, its class, the context of a `torch.autograd.Function`."""

APPLY = "apply"
"""What calls the `forward` of a `torch.autograd.Function`."""

CallStep = tuple[Sequence[Scope], ast.Call]
"""A call, and the scopes around it, the outermost first."""


class Callers:
    """The calls of a file's functions, and of its classes' methods by themselves, their objects or their classes. What calls a method of an
    object from outside of its class is not among them: whose it is is not known."""

    def __init__(self, tree: ast.Module) -> None:
        functions = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
        nodes = nodes_of_file(tree)
        self._scopes = [node for node in nodes if isinstance(node, SCOPES)]
        self._calls: dict[int, list[ast.Call]] = {}
        self._steps: dict[int, list[CallStep]] = {}
        families = family_of(tree)
        for node in nodes:
            what = called(node) if isinstance(node, ast.Call) else None
            if isinstance(node, ast.Call) and isinstance(what, ast.Name) and what.id in functions:
                self._add(functions[what.id], node)
            elif isinstance(node, ast.Call) and isinstance(what, ast.Attribute) and isinstance(what.value, ast.Name):
                self._add(_of_class(families.get(what.value.id, ()), what.attr), node)
        for line in families.values():
            for method in methods_of(line[0]):
                own = first_argument(method)
                for node in ast.walk(method):
                    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and _is_object(node.func.value, own):
                        self._add(_method(line, node.func.attr), node)

    def _add(self, function: Function | None, call: ast.Call) -> None:
        if function is not None and call not in self._calls.setdefault(id(function), []):
            self._calls[id(function)].append(call)

    def paths(self, launch: CallStep) -> list[list[CallStep]]:
        """The ways to a launch: itself, the call of the function around it, and so on; at least one."""
        found: list[list[CallStep]] = []
        waiting = [[launch]]
        while waiting and len(found) + len(waiting) <= MOST_PATHS:
            path = waiting.pop()
            more = [[*path, step] for step in self._of(path)] if len(path) <= MOST_CALLERS else []
            waiting += more
            found += [] if more else [path]
        return found + waiting

    def _of(self, path: Sequence[CallStep]) -> list[CallStep]:
        """The calls of the function around the last step, but from functions that are on the way already."""
        known = [scopes[0] for scopes, _ in path if scopes]
        function = known[-1] if path[-1][0] else None
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return []
        if id(function) not in self._steps:
            calls = self._calls.get(id(function), [])[:MOST_PATHS]
            self._steps[id(function)] = [(scopes_around(self._scopes, call), call) for call in calls]
        return [step for step in self._steps[id(function)] if not (step[0] and step[0][0] in known)]


def _is_object(node: ast.expr, own: str | None) -> bool:
    """Whether a method calls its object so, or what its class inherits: `self`, `super()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id == "super"
    return isinstance(node, ast.Name) and node.id == own and own in _OBJECTS


def _method(line: Sequence[ast.ClassDef], name: str) -> Function | None:
    """What a class has under a method's name, of itself or from the first that it inherits from."""
    return next((method for each in line for method in methods_of(each) if method.name == name), None)


def _of_class(line: Sequence[ast.ClassDef], name: str) -> Function | None:
    """What `Class.name` calls: a method, or by `apply` the `forward` of a `torch.autograd.Function`."""
    found = _method(line, name)
    forward = _method(line, "forward") if found is None and name == APPLY else None
    return forward if forward is not None and is_applied(forward) else found


def is_applied(method: Function) -> bool:
    """Whether a method is what `apply` of a `torch.autograd.Function` calls."""
    return method.name == "forward" and first_argument(method) == "ctx"


def called(call: ast.Call) -> ast.expr:
    """What a call calls, or will: `functools.partial(run, num_warps=4)` gives `run` what it passes."""
    return call.args[0] if _is_partial(call) else call.func


def _is_partial(call: ast.Call) -> bool:
    return bool(call.args) and not isinstance(call.args[0], ast.Starred) and dotted(call.func) in ("partial", "functools.partial")


def passed(function: Function | ast.Lambda, call: ast.Call, name: str) -> Iterator[ast.expr]:
    """What a call gives an argument of a function; where it spreads a list or a dictionary, that as well. What methods are given without
    being passed it is not counted. `**options` are given a dictionary of what no other argument takes."""
    positional = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    own = positional[0] if positional and positional[0] in _OBJECTS else None
    values = call.args[1:] if _is_partial(call) else call.args
    given = own is not None and values and isinstance(values[0], ast.Name) and values[0].id == own  # Class.method(self, ...)
    if own is not None and isinstance(called(call), ast.Attribute) and not given:
        positional = positional[1:]
    for place, value in enumerate(values):
        if isinstance(value, ast.Starred):
            yield value.value
            break
        if positional[place : place + 1] == [name]:
            yield value
    yield from (keyword.value for keyword in call.keywords if keyword.arg in (name, None))
    if function.args.kwarg is not None and function.args.kwarg.arg == name:
        known = {*positional, *(each.arg for each in function.args.kwonlyargs)}
        rest = [(ast.Constant(keyword.arg), keyword.value) for keyword in call.keywords if keyword.arg not in (None, *known)]
        if rest:
            yield ast.Dict(keys=[key for key, _ in rest], values=[value for _, value in rest])


def defaults(function: Function | ast.Lambda, call: ast.Call | None, names: Set[str]) -> Iterator[ast.keyword]:
    """The defaults of some arguments of a function that count where a call leads to it: of those that the call does not give for certain
    (what it spreads may lack them). Without a call, all: others may call it so."""
    spread = list(_spread(call)) if call is not None else []
    for name, default in sorted(argument_defaults(function).items()):
        if name in names and (call is None or all(value in spread for value in passed(function, call, name))):
            yield ast.keyword(arg=name, value=default)


def _spread(call: ast.Call) -> Iterator[ast.expr]:
    """The lists and dictionaries that a call spreads."""
    yield from (each.value for each in call.args if isinstance(each, ast.Starred))
    yield from (each.value for each in call.keywords if each.arg is None)
