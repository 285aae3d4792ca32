"""What a launch passes, followed to all that it is worked out from: within the function around the launch, and by the calls of that
function to others of the file."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256

from advisor.comparison.kernels.callers import Callers, called, defaults, passed
from advisor.comparison.kernels.kernel_digest import meaning
from advisor.comparison.kernels.local_names import local_names, without_local_names
from advisor.comparison.kernels.objects import Function, Objects, passed_on
from advisor.python_source.bindings import Scope, arguments, bound_by, holds, nodes_of_file
from advisor.python_source.changes import changed_by
from advisor.python_source.literals import dotted
from advisor.python_source.source import SourceFile

_BLOCKS = (ast.If, ast.While, ast.For, ast.AsyncFor, ast.With, ast.AsyncWith, ast.Try, ast.Match)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A call on the way to a launch, or that itself, and what decides the names of the function around it.

    Attributes:
        bound: The statements that bind each name, and the heads of the blocks these are in.
        changing: Those that change what it stands for in place: `config["num_warps"] = 8`.
        local: Names that are nothing but its own.
    """

    scopes: Sequence[Scope]
    call: ast.Call
    bound: Mapping[str, Sequence[ast.AST]]
    changing: Mapping[str, Sequence[ast.AST]]
    local: Set[str]


class Steps(dict[int, Step]):
    """Steps by call: many ways to the launches of a file have some in common."""

    def of(self, scopes: Sequence[Scope], call: ast.Call) -> Step:
        if id(call) not in self:
            bound, changing = _bindings(scopes, call)
            self[id(call)] = Step(scopes=scopes, call=call, bound=bound, changing=changing, local=local_names(scopes))
        return self[id(call)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surrounding:
    """What leads to the launches of a file: kept, for every kernel of it asks. `calls`: its calls, by what it names what is called."""

    calls: Mapping[str, Sequence[ast.Call]]
    callers: Callers
    steps: Steps
    objects: Objects


@lru_cache(maxsize=64)
def surrounding(tree: ast.Module) -> Surrounding:
    """That of a file."""
    calls: dict[str, list[ast.Call]] = {}
    for node in nodes_of_file(tree):
        if isinstance(node, ast.Call) and (name := dotted(called(node))) is not None:
            calls.setdefault(name, []).append(node)
    return Surrounding(calls=calls, callers=Callers(tree), steps=Steps(), objects=Objects(tree))


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """What decides expressions around a call.

    Attributes:
        function: The function around, where it is one with a name.
        values: The expressions.
        statements: Those of the function that decide them, in order, and defaults of its arguments that do.
        names: What is named among these and is the file's.
        asked: Arguments of the function that are passed on.
        local: Names that are nothing but the function's own.
    """

    function: ast.FunctionDef | ast.AsyncFunctionDef | None
    values: Sequence[ast.AST]
    statements: Sequence[ast.AST]
    names: Set[str]
    asked: Set[str]
    local: Set[str]


def followed(values: Sequence[ast.AST], path: Sequence[Step], *, launch: bool = True) -> Iterator[Followed]:
    """What decides expressions around a launch, or a call that leads to one (`launch`), and then what is passed for that by each call which
    leads there on one way."""
    for step, caller in itertools.zip_longest(path, path[1:]):
        statements, names, asked = _behind(values, step, _names if launch and step is path[0] else _passed_on)
        outer = step.scopes[0] if step.scopes else None
        function = outer if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
        if function is not None:
            left = list(defaults(function, caller.call if caller is not None else None, asked))
            statements, names = [*statements, *left], names.union(*map(_names, left))
        yield Followed(function=function, values=values, statements=statements, names=names, asked=asked, local=step.local)
        if caller is None or not asked or function is None:
            break
        values = [value for name in sorted(asked) for value in passed(function, caller.call, name)]


def digest(
    source: SourceFile, values: Sequence[ast.AST], path: Sequence[Step], objects: Objects | None = None, *, launch: bool = True
) -> str:
    """A digest of expressions around a launch, and of all that they are worked out from, also by the functions of the file that lead there
    on one way, and by what else methods give their objects."""
    trees = (tree for _, tree in parts(source, values, path, objects, launch=launch))
    return sha256("\0".join(trees).encode("utf-8", "surrogatepass")).hexdigest()


def parts(
    source: SourceFile, values: Sequence[ast.AST], path: Sequence[Step], objects: Objects | None = None, *, launch: bool = True
) -> Iterator[tuple[ast.AST | str, str]]:
    """What a digest is of: expressions, statements and names of files, each with the syntax tree that it comes down to."""
    for each in followed(values, path, launch=launch):
        trees = [*each.values, *each.statements]
        own, named = objects.behind(each.function, trees) if objects is not None else ((), set[str]())
        yield from zip(trees, without_local_names(trees, each.local), strict=True)
        yield from ((tree, ast.dump(tree)) for tree in own)
        yield from meaning(source, {*each.names, *named})
    if not path:
        yield from zip(values, without_local_names(values, frozenset()), strict=True)
        yield from meaning(source, {name for value in values for name in _names(value)})


def _bindings(scopes: Sequence[Scope], call: ast.Call) -> tuple[dict[str, list[ast.AST]], dict[str, list[ast.AST]]]:
    """What decides the names of the function around a call: the statements that bind them, and the heads of the blocks these are in; and
    those that change what they stand for.

    What follows a launch decides nothing, but in a loop, or where a function within another launches later than it is defined.
    """
    found: dict[str, list[ast.AST]] = {}
    changing: dict[str, list[ast.AST]] = {}
    inside = [each for scope in scopes[:1] for each in ast.walk(scope) if each is not scope]
    again = len(scopes) > 1 or any(isinstance(each, (ast.For, ast.AsyncFor, ast.While)) and holds(each, call) for each in inside)
    for node in inside:
        if not again and getattr(node, "lineno", 0) > (call.end_lineno or call.lineno):
            continue
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, _BLOCKS):
            for name in {name for each in ast.walk(node) if not isinstance(each, ast.alias) for name in bound_by(each)}:
                found.setdefault(name, []).extend(_head(node))
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            continue  # followed to the file that it comes from, as an import of the module
        elif isinstance(node, (ast.stmt, ast.NamedExpr)):
            nodes = list(ast.walk(node))
            for name in {name for each in nodes for name in bound_by(each)}:
                found.setdefault(name, []).append(node)
            for name in {name for each in nodes if isinstance(each, (ast.Subscript, ast.Call)) for name in changed_by(each)}:
                changing.setdefault(name, []).append(node)
    for inner in scopes[1:]:
        if isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            for name, value in _given_within(inner, inside):
                found.setdefault(name, []).append(value)
    return found, changing


def _given_within(inner: Function | ast.Lambda, nodes: Sequence[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
    """What calls among some nodes give the arguments of a function within another, and their defaults."""
    if isinstance(inner, ast.Lambda):
        names = {name for each in nodes if isinstance(each, ast.Assign) and each.value is inner for name in map(dotted, each.targets)}
    else:
        names = {inner.name}
    asked = arguments(inner)
    for call in nodes:
        if isinstance(call, ast.Call) and dotted(call.func) in names:
            yield from ((name, value) for name in sorted(asked) for value in passed(inner, call, name))
            yield from ((each.arg or "", each) for each in defaults(inner, call, asked))


def _head(node: ast.stmt) -> Iterator[ast.AST]:
    """What a block says before its statements, and `match` before those of its cases."""
    yield from (each for each in ast.iter_child_nodes(node) if isinstance(each, (ast.expr, ast.withitem)))
    yield from (each for case in getattr(node, "cases", ()) for each in (case.pattern, case.guard) if each is not None)


def _behind(values: Sequence[ast.AST], step: Step, named: Callable[[ast.AST], Iterator[str]]) -> tuple[list[ast.AST], set[str], set[str]]:
    """The syntax trees that decide what expressions around a call are, in order, and the names among them that are the file's, and that are
    arguments of the function around, such as are passed on.

    Not among these are tensors, of which a shape is asked: who calls the function makes them of much that has no part in the launch.
    `named`: the names in a tree that are followed.
    """
    waiting = {name for value in values for name in named(value)}
    seen: set[str] = set()
    deciding: dict[int, ast.AST] = {}
    while waiting:
        seen |= waiting
        fresh = {id(node): node for name in waiting for node in (*step.bound.get(name, ()), *step.changing.get(name, ()))}
        deciding |= fresh
        waiting = {name for node in fresh.values() for name in named(node)} - seen
    ordered = sorted(deciding.values(), key=lambda node: (getattr(node, "lineno", 0), getattr(node, "col_offset", 0)))
    own = set(step.bound).union(*(arguments(scope) for scope in step.scopes))
    asked = {name for tree in (*values, *ordered) for name in _passed_on(tree)}
    return ordered, seen - own, asked & arguments(step.scopes[0]) if step.scopes else set()


def _passed_on(tree: ast.AST) -> Iterator[str]:
    """Names in a tree that stand for themselves, and those of dictionaries and configurations: `config`, `config["num_warps"]`,
    `config.get("num_warps")`, `config.num_warps`."""
    nodes = list(ast.walk(tree))
    asked_of = {id(each.value) for each in nodes if isinstance(each, ast.Attribute) and not passed_on(each.attr)}
    yield from (each.id for each in nodes if isinstance(each, ast.Name) and id(each) not in asked_of)


def _names(node: ast.AST) -> Iterator[str]:
    return (each.id for each in ast.walk(node) if isinstance(each, ast.Name))
