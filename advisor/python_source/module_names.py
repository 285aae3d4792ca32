"""What a name of a file stands for at a place in it: its assignments and changes in the order of the file, followed but never run; and what
a file puts in the place of Triton, or of a kernel that it has defined: what Python runs then is none of Triton's."""

from __future__ import annotations

import ast
import copy
import itertools
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

from advisor.python_source.bindings import (
    BRANCHES,
    Graph,
    arguments,
    bound_by,
    changed_by,
    changed_names,
    imports_in,
    is_none,
    names_in,
    own_nodes,
    plainly_given,
    statements_within,
)
from advisor.python_source.functions import FunctionReader, Place
from advisor.python_source.imports import HANDED_ON, Import
from advisor.python_source.kernel_forms import launching_calls
from advisor.python_source.language import dotted
from advisor.python_source.literals import NotLiteralError
from advisor.system import grouped

UNCALLABLE = (ast.Constant, ast.List, ast.Tuple, ast.Dict, ast.Set)
"""Expressions whose values cannot be called: what stands for a function where it is not available."""

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_MISSING = object()
_ABSENT = frozenset({"ImportError", "ModuleNotFoundError"})
"""What an import raises that finds nothing; an assignment raises none of them."""
_Block = tuple[int, int]  # by its first statement and its length: that of a `try` is also followed up to the one that fails


class ModuleNames(Graph):
    """The graph of one file, and the names of it."""

    def __init__(self, tree: ast.Module) -> None:
        super().__init__(tree)
        self._found: dict[_Block, dict[str, list[ast.stmt]]] = {}

    @cached_property
    def imports(self) -> dict[str, list[Import]]:
        """Imports at module level (also under `if` and `try`), by alias, in order; several where there are alternatives."""
        return _by_alias(self.module_level)

    @cached_property
    def inner_imports(self) -> dict[str, list[Import]]:
        """What functions import, by alias, but for names that the module has: each function has its own."""
        by_alias = _by_alias(statements_within(self.tree))
        return {name: items for name, items in by_alias.items() if not self.statements(name)}

    @cached_property
    def stars(self) -> tuple[Import, ...]:
        """The imports of all names of a module, `from module import *`, at module level; the last, whose names count, first."""
        nodes = [node for node in self.module_level if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"]
        return tuple(Import(alias="*", module=node.module or "", name="*", level=node.level) for node in reversed(nodes))

    @cached_property
    def modules(self) -> dict[str, str]:
        """Names that stand for a module or something of one, by what it is called there: {"np": "numpy", "inf": "math.inf"}.

        Left out are those that the file gives another value, but for None: where the module is not installed, nothing is asked of it.
        """
        full = {alias: {item.full for item in items} for alias, items in self.imports.items()}
        absent = {alias: all(is_none(expression) for expression in self.alternatives.get(alias, ())) for alias in full}
        return {alias: names.pop() for alias, names in full.items() if len(names) == 1 and absent[alias]}

    @cached_property
    def triton_roots(self) -> frozenset[str]:
        """Names that stand for triton or a module of it."""
        every = (*self.inner_imports.items(), *self.imports.items())
        return frozenset(alias for alias, items in every if any(i.is_triton or i.name in HANDED_ON for i in items))

    @cached_property
    def last_given(self) -> dict[str, ast.expr]:
        """The last of the expressions that are assigned to each name at module level."""
        return {name: values[-1] for name, values in self.alternatives.items()}

    @cached_property
    def alternatives(self) -> dict[str, list[ast.expr]]:
        """All expressions that are assigned to each name at module level, in order, whether or not they run."""
        return grouped(pair for node in self.module_level for pair in plainly_given(node))

    @cached_property
    def launches(self) -> tuple[tuple[str, ast.Call], ...]:
        """Its calls that launch something, each with what, as the file names it."""
        return tuple(launching_calls(self))

    @cached_property
    def declaring(self) -> dict[str, list[ast.AST]]:
        """The functions and classes that give names of the module something when they run, `global name`, by these names."""
        functions: dict[str, list[ast.AST]] = {}
        for node in self.nodes:
            for name in node.names if isinstance(node, ast.Global) else ():
                scope = next((outer for outer in reversed(self.above(node)) if isinstance(outer, _DEFINITIONS)), None)
                if scope is not None and not all(isinstance(binder, ast.Global) for binder in self.binders(scope)[name]):
                    functions.setdefault(name, []).append(scope)  # others only read the name
        return functions

    @cached_property
    def _changed_by_others(self) -> set[str]:
        """Names whose objects statements of the file outside of its functions may change under a second name, `other = configs`."""
        changed = changed_names(ast.Module([item for item in self.tree.body if not isinstance(item, _DEFINITIONS)], []))
        return {name for name in changed if all(_rebinds(item, name) for item in self.statements(name))}

    def statements(self, name: str) -> list[ast.stmt]:
        """The statements at module level that assign, define or change a name: all that decides what it stands for."""
        return list(self._touching(self.tree.body).get(name, ()))

    def last_imports(self, name: str) -> list[Import]:
        """The imports at module level that a name may come from: none before the last statement that binds it whatever happens."""
        items: list[Import] = []
        for statement in self.statements(name):
            imported = [item for node in statements_within(statement, BRANCHES) for item in imports_in(node) if item.alias == name]
            items = imported if _rebinds(statement, name) else [*items, *imported]
        return items

    def deciding(self, name: str, reader: FunctionReader | None = None) -> list[ast.AST]:
        """The same without what else stands in a branch with them: of an `if` the condition, and what is within it, of a `try` what is
        within it (what else may fail there, another import, say, does not count); but for what a file does as a script alone
        (`if __name__ == "__main__":`), where it gives the name something besides, and for branches of which a reader of the file knows
        that they do not run."""
        nodes: list[ast.AST] = []
        statements = self.statements(name)
        script = [it for it in statements if isinstance(it, ast.If) and ast.unparse(it.test).startswith("__name__ ==")]
        waiting = [item for item in statements if item not in script] or script
        while waiting:
            match waiting.pop():
                case ast.If(test=decides) as branches:
                    holds = self._decided(reader, decides, Place()) if reader is not None else None
                    arms = [body for body, when in ((branches.body, True), (branches.orelse, False)) if holds in (None, when)]
                    waiting += [inner for body in arms for inner in self._touching(body).get(name, ())]
                case ast.Try() as attempt if trimmed := self._trimmed(attempt, name):
                    decides = trimmed
                case decides:
                    pass
            nodes.append(decides)
        return nodes

    def _trimmed(self, attempt: ast.Try, name: str) -> ast.Try | None:
        """A `try` without the statements that do not bind a name, and without what else its imports import; None: none binds it."""

        def kept(body: list[ast.stmt]) -> list[ast.stmt]:
            return [importing(statement, name) for statement in self._touching(body).get(name, ())]

        handlers = [
            ast.copy_location(ast.ExceptHandler(type=handler.type, name=None, body=kept(handler.body)), handler)
            for handler in attempt.handlers
        ]
        trimmed = ast.Try(body=kept(attempt.body), handlers=handlers, orelse=kept(attempt.orelse), finalbody=kept(attempt.finalbody))
        binds = any((trimmed.body, trimmed.orelse, trimmed.finalbody, *(handler.body for handler in handlers)))
        return ast.copy_location(trimmed, attempt) if binds else None

    def place(self, node: ast.FunctionDef | None = None) -> Place:
        """The place of a function: where the first of its decorators stands; None: after all of the file."""
        if node is None:
            return Place()
        starts: list[ast.stmt | ast.expr] = [node, *node.decorator_list]
        position = min((start.lineno, start.col_offset) for start in starts)
        return Place(position=position, scopes=tuple(n for n in self.above(node) if isinstance(n, (ast.FunctionDef, ast.ClassDef))))

    def value(self, reader: FunctionReader, name: str) -> Any:
        """What a name stands for at the reader's place.

        Raises:
            NotLiteralError: It is not literal, or what decides it is not known.
        """
        place = reader.place
        body: Sequence[ast.stmt] = self.tree.body
        for number, scope in enumerate(reversed(place.scopes)):
            if isinstance(scope, ast.ClassDef) and number:
                continue  # methods do not see the names of their class
            if isinstance(scope, ast.FunctionDef) and name in arguments(scope):
                raise NotLiteralError(f"{name} is an argument of {scope.name}, line {scope.lineno}")
            if self.assigned_in(scope, name):
                body = scope.body
                break
        value = self._after(reader, name, body, place)
        if isinstance(value, ast.FunctionDef):
            raise NotLiteralError(f"{name} is a function of the file, which is not run")
        return value

    def assigned_in(self, scope: ast.FunctionDef | ast.ClassDef, name: str) -> bool:
        """Whether a function or a class gives a name something of its own."""
        return any(name in bound_by(node) for statement in self._touching(scope.body).get(name, ()) for node in ast.walk(statement))

    def contested(self, node: ast.FunctionDef) -> bool:
        """Whether a function of a branch is one thing that its name may stand for: another branch assigns something to it.

        A value that cannot be called, `k = None` where there is no triton, is none that a launch or a call may mean.
        """
        around = [statement for statement in self.statements(node.name) if statement in self.above(node)]
        values = [value for outer in around for value in _given(outer, node.name) if not isinstance(value, UNCALLABLE)]
        return any(not any(isinstance(n, ast.Name) and n.id == node.name for n in ast.walk(value)) for value in values)

    def last(self, reader: FunctionReader, name: str) -> Any:
        """What a name stands for after all of the file: a value, or the definition of a function.

        Raises:
            NotLiteralError: It is not literal, or what decides it is not known.
        """
        return self._after(reader, name, self.tree.body, Place())

    def definition(self, reader: FunctionReader, name: str) -> ast.FunctionDef:
        """The function that a name stands for after all of the file.

        Raises:
            NotLiteralError: It stands for something else, or what decides it is not known.
        """
        last = self.last(reader, name)
        if not isinstance(last, ast.FunctionDef):
            raise NotLiteralError(f"{name} is defined more than once, and in the end no function")
        return last

    def _after(self, reader: FunctionReader, name: str, body: Sequence[ast.stmt], place: Place) -> Any:
        if body is self.tree.body and (others := self.declaring.get(name)):
            raise NotLiteralError(f"{name} is given something by {getattr(others[0], 'name', 'a function')}, which declares it global")
        events = self._events(name, body, place)
        key = (name, id(events[-1])) if events and not _spans(events[-1], place) else None
        if key is not None and key in reader.known:
            return reader.known[key]
        value = self._fold(reader, name, body, place, _MISSING)
        if value is _MISSING:
            return reader.source.imported_value(reader, name)
        if key is not None:
            reader.known[key] = value
        return value

    def _fold(self, reader: FunctionReader, name: str, body: Sequence[ast.stmt], place: Place, value: Any) -> Any:
        for statement in self._events(name, body, place):
            value = self._step(reader, name, statement, place, value)
        if isinstance(value, (list, dict)) and name in self._changed_by_others:  # a number or a text is not changed
            raise NotLiteralError(f"{name} may have a second name, by which it is changed")
        return value

    def _events(self, name: str, body: Sequence[ast.stmt], place: Place) -> list[ast.stmt]:
        """The statements of a block that decide a name before a place, from where it was last assigned on."""
        statements: list[ast.stmt] = []
        for statement in self._touching(body).get(name, ()):
            if (statement.lineno, statement.col_offset) < place.position:
                statements = [statement] if _rebinds(statement, name) else [*statements, statement]
        return statements

    def _step(self, reader: FunctionReader, name: str, statement: ast.stmt, place: Place, value: Any) -> Any:
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            return statement
        if isinstance(statement, ast.ImportFrom):
            return reader.source.imported_value(reader, name)
        if isinstance(statement, ast.Import):
            raise NotLiteralError(f"{name} is imported in line {statement.lineno}")
        headed = [item.optional_vars for item in statement.items if item.optional_vars] if isinstance(statement, ast.With) else ()
        if any(isinstance(node, ast.Name) and node.id == name for part in headed for node in ast.walk(part)):
            raise NotLiteralError(f"{name} is what a context gives, in line {statement.lineno}")
        if isinstance(statement, ast.Try) and any(handler.name == name for handler in statement.handlers):
            raise NotLiteralError(f"{name} may be an exception, in line {statement.lineno}")
        if isinstance(statement, ast.If):
            return self._fold(reader, name, self._arm(reader, name, statement, place), place, value)
        if isinstance(statement, ast.Try):
            for part in self._parts(reader, name, statement, place):
                value = self._fold(reader, name, part, place, value)
            return value
        if isinstance(statement, ast.With):
            return self._fold(reader, name, statement.body, place, value)
        here = Place(position=(statement.lineno, statement.col_offset), scopes=place.scopes)
        expression = _assigned_expression(statement, name)
        if expression is not None:
            with reader.at(here, {}):
                evaluated = reader.visit(expression)
            # A copy: what is changed by this name from here on is followed for each of its names apart.
            return evaluated.copy() if isinstance(expression, ast.Name) and isinstance(evaluated, (list, dict)) else evaluated
        if isinstance(statement, ast.Assign) and isinstance(target := statement.targets[0], ast.Tuple | ast.List):
            names = [dotted(item) for item in target.elts]
            if names.count(name) == 1 and all(names):  # a, b = listed()
                with reader.at(here, {}):
                    values = reader.visit(statement.value)
                if isinstance(values, (tuple, list)) and len(values) == len(names):
                    return values[names.index(name)]
                raise NotLiteralError(f"{name} is unpacked in line {statement.lineno} from an unknown value")
        raise NotLiteralError(f"{name} is changed in line {statement.lineno}; what a file changes in place is not followed")

    def _arm(self, reader: FunctionReader, name: str, statement: ast.If, place: Place) -> Sequence[ast.stmt]:
        """The branch that runs, as far as it bears on a name.

        Raises:
            NotLiteralError: The condition is not known.
        """
        left: list[Sequence[ast.stmt]] = []
        for test, body in _arms(statement):
            if _holds(body, place):
                return body
            verdict = self._decided(reader, test, place)
            if verdict is not False:
                left.append(body)
            if verdict:
                break
        left = [body for body in left if not (body and isinstance(body[-1], ast.Raise))]
        touching = [body for body in left if name in self._touching(body)]
        if len(touching) > 1:
            failing = [body for body in touching if self._is_there(reader, self._touching(body)[name][-1]) is False]
            left, touching = ([body for body in item if body not in failing] for item in (left, touching))
        if touching and len(left) > 1:
            raise self._unknown(name, touching)
        return touching[0] if touching else ()

    def _is_there(self, reader: FunctionReader, statement: ast.stmt) -> bool | None:
        """Whether a statement gives names what is there for certain, a constant or a part of triton's modules; one that they lack,
        `tanh = tl.extra.intel.libdevice.tanh`, fails. None: that is not known."""
        if isinstance(statement, ast.Import) and all(item.name.partition(".")[0] == "triton" for item in statement.names):
            return True
        plain = isinstance(statement, ast.Assign) and all(isinstance(target, ast.Name) for target in statement.targets)
        value = statement.value if isinstance(statement, ast.Assign) and plain else None
        known: list[bool | None] = [True] if isinstance(value, ast.Constant) else []
        while isinstance(value, ast.Attribute):
            try:
                known.append(reader.has(value))
            except NotLiteralError:
                known.append(None)
            value = value.value
        return False if False in known else known[0] if known else None

    def _decided(self, reader: FunctionReader, test: ast.expr | None, place: Place) -> bool | None:
        if test is None:
            return True
        try:
            with reader.at(Place(position=(test.lineno, test.col_offset), scopes=place.scopes), {}):
                return not reader.evaluate(ast.UnaryOp(op=ast.Not(), operand=test, lineno=test.lineno))
        except NotLiteralError:
            return None

    def _parts(self, reader: FunctionReader, name: str, statement: ast.Try, place: Place) -> list[Sequence[ast.stmt]]:
        """The blocks of a `try` that run, one after the other, as far as they bear on a name."""
        main = [*statement.body, *statement.orelse]
        if handler := next((h for h in statement.handlers if _holds(h.body, place)), None):
            return [handler.body]
        if _holds(main, place):
            return [main]
        absent = all(handler.type is not None and dotted(handler.type) in _ABSENT for handler in statement.handlers)
        with reader.at(place, {}):
            there = [(absent and isinstance(item, ast.Assign)) or self._is_there(reader, item) for item in statement.body]
        run = list(itertools.takewhile(lambda answer: answer is True, there))
        if len(run) == len(there):
            return [main, statement.finalbody]
        if there[len(run)] is False and len(statement.handlers) == 1:
            return [statement.body[: len(run)], statement.handlers[0].body, statement.finalbody]
        failing = [h.body for h in statement.handlers if name in self._touching(h.body) and not isinstance(h.body[-1], ast.Raise)]
        if failing:
            raise self._unknown(name, [*([main] if name in self._touching(main) else []), *failing])
        return [main, statement.finalbody]

    def _unknown(self, name: str, branches: Sequence[Sequence[ast.stmt]]) -> NotLiteralError:
        lines = [self._touching(body)[name][0].lineno for body in branches]
        if len(lines) > 1:
            text = ", ".join(map(str, lines))
            return NotLiteralError(f"{name} is defined in {len(lines)} branches (lines {text}); which one runs is unknown")
        return NotLiteralError(f"{name} is defined or changed in line {lines[0]} under a condition that is unknown")

    def _touching(self, body: Sequence[ast.stmt]) -> dict[str, list[ast.stmt]]:
        """The statements of a block by the names they assign or change, in order."""
        key = (id(body[0]), len(body)) if body else (0, 0)
        if key not in self._found:
            self._found[key] = grouped((name, statement) for statement in body for name in dict.fromkeys(_touched(statement)))
        return self._found[key]


def _by_alias(nodes: Iterable[ast.AST]) -> dict[str, list[Import]]:
    """What statements import, by alias, in order; several where there are alternatives."""
    return grouped((part.alias, part) for node in nodes for part in imports_in(node))


def _arms(statement: ast.If) -> Iterator[tuple[ast.expr | None, Sequence[ast.stmt]]]:
    """The branches of `if`, `elif` and `else` with their conditions; the last without one, and empty where there is no `else`."""
    yield statement.test, statement.body
    match statement.orelse:
        case [ast.If() as other]:
            yield from _arms(other)
        case body:
            yield None, body


def _touched(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement assigns, defines, or may change."""
    if isinstance(statement, _DEFINITIONS):
        yield statement.name
        return
    nodes = [statement, *own_nodes(statement)]
    targets = {id(n) for item in nodes if isinstance(item, ast.comprehension) for n in ast.walk(item.target)}  # names of its own
    for node in nodes:
        yield from bound_by(node) if id(node) not in targets else ()
        yield from changed_by(node)
        if isinstance(node, ast.For):  # for c in configs: c.num_warps = 8
            changed = {name for inner_statement in node.body for inner in ast.walk(inner_statement) for name in changed_by(inner)}
            yield from names_in(node.iter) if changed & names_in(node.target) else ()


def _assigned_expression(statement: ast.AST, name: str) -> ast.expr | None:
    """What a plain assignment gives a name, where it can be told from what it gives others."""
    return next((value for item, value in plainly_given(statement) if item == name), None)


def _rebinds(statement: ast.stmt, name: str) -> bool:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)):
        return True
    return _assigned_expression(statement, name) is not None


def _given(node: ast.AST, name: str) -> Iterator[ast.expr]:
    """What a statement, or one within it, assigns to a name of its own scope."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    if isinstance(node, ast.stmt) and (value := _assigned_expression(node, name)) is not None:
        yield value
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
            yield from _given(child, name)


def _spans(statement: ast.stmt, place: Place) -> bool:
    return (statement.lineno, statement.col_offset) < place.position <= (statement.end_lineno or 0, statement.end_col_offset or 0)


def _holds(body: Sequence[ast.stmt], place: Place) -> bool:
    """Whether a place is in a block."""
    first = min((n.lineno for n in (body[0], *getattr(body[0], "decorator_list", ()))), default=0) if body else 0
    return bool(body) and (first, 0) <= place.position <= (body[-1].end_lineno or 0, body[-1].end_col_offset or 0)


_RUNNING = "triton.runtime._"
"""Begins the modules of triton that no kernel is made of: how memory is allocated for launches, and that they compile side by side."""


def triton_bound_again(names: ModuleNames) -> str | None:
    """Why it cannot be told what a file's kernels are: something of triton is bound again in it; None: nothing is.

    What stands in triton's place where it cannot be imported, in another branch or a handler, is not meant.
    """
    roots = {alias for alias, items in names.imports.items() if any(item.is_triton for item in items)}
    running = {alias for alias in roots if all(item.full.startswith(_RUNNING) for item in names.imports[alias])}
    bound = [(node, text) for node, text in _set_in(names, roots - running) if not _without_triton(names, node, roots)]
    for name in roots:
        brought = {node: _import_of(names, node, name) for node in names.binders(names.tree).get(name, [])}
        imports = [node for node, parts in brought.items() if any(part.is_triton for part in parts)]
        bound += [
            (node, name)
            for node, parts in brought.items()
            if not any(part.is_triton or part.name in HANDED_ON for part in parts) and not _is_module(names, node)
            if _follows(names, node, imports) and not _without_triton(names, node, roots)
        ]
        declared = [(node, [part for inner in ast.walk(node) for part in imports_in(inner)]) for node in names.declaring.get(name, ())]
        bound += [(node, name) for node, parts in declared if not any(part.is_triton and part.alias == name for part in parts)]
    lines = sorted((getattr(node, "lineno", 0), text) for node, text in bound)
    return f"cannot tell: {lines[0][1]} is bound again in line {lines[0][0]}" if lines else None


def importing(statement: ast.stmt, name: str) -> ast.stmt:
    """An import of one name alone; another statement as it is."""
    if not isinstance(statement, ast.Import | ast.ImportFrom):
        return statement
    alone = copy.copy(statement)
    alone.names = [alias for alias in statement.names if name in bound_by(alias)] or statement.names
    return alone


def kernel_bound_again(names: ModuleNames, kernels: Sequence[ast.FunctionDef]) -> str | None:
    """Why it cannot be told what the name of some kernels, the last of which would count, stands for: the file gives it something else that
    is not made of it; a function of its name, which launches it by another name that it got before, is none."""
    kernel = kernels[-1]
    later = [node for node in names.binders(names.tree).get(kernel.name, []) if not isinstance(node, ast.FunctionDef)]
    for node in (*(item for item in later if _follows(names, item, [kernel])), *names.declaring.get(kernel.name, ())):
        statement = next((outer for outer in reversed([*names.above(node), node]) if isinstance(outer, ast.stmt)), node)
        value = dict(plainly_given(statement)).get(kernel.name)
        made_of_it = value is not None and any(isinstance(inner, ast.Name) and inner.id == kernel.name for inner in ast.walk(value))
        if not made_of_it and not isinstance(value, ast.Constant):
            return f"cannot tell: {kernel.name} is bound again in line {getattr(statement, 'lineno', 0)}"
    return None


def _set_in(names: ModuleNames, roots: set[str]) -> Iterator[tuple[ast.AST, str]]:
    """Parts of triton that are given something, `triton.jit = …`, `setattr(tl, …)`, where it is not asked first whether it lacks them."""
    for node in names.nodes:
        inner: ast.AST | None = None
        if isinstance(node, (ast.Attribute, ast.Subscript)) and not isinstance(node.ctx, ast.Load):
            inner = node
        elif isinstance(node, ast.Call) and dotted(node.func) in ("setattr", "delattr") and node.args:
            inner = node.args[0]
        written = inner
        while isinstance(inner, (ast.Attribute, ast.Subscript, ast.Call)):
            within = inner.args[:1] if isinstance(inner, ast.Call) and dotted(inner.func) == "vars" else []
            inner = next(iter(within), None) if isinstance(inner, ast.Call) else inner.value
        if isinstance(inner, ast.Name) and inner.id in roots and written is not None:
            test = f"not hasattr({ast.unparse(node.value)}, {node.attr!r})" if isinstance(node, ast.Attribute) else ""
            if all(ast.unparse(outer.test) != test for outer in names.above(node) if isinstance(outer, ast.If)):
                yield node, ast.unparse(written)[:60]


def _without_triton(names: ModuleNames, node: ast.AST, roots: set[str]) -> bool:
    """Whether a node runs only where triton is not imported: beside that import, or under `if not HAVE_TRITON`, which is True with it."""
    binders = names.binders(names.tree)
    imports = [item for name in roots for item in binders.get(name, []) if any(part.is_triton for part in _import_of(names, item, name))]

    def is_beside(other: ast.AST) -> bool:
        return any(names.apart(item, other) for item in imports)

    for test, wanted in names.conditions(node):
        negated = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
        flag = test.operand if isinstance(test, ast.UnaryOp) else test
        if isinstance(flag, ast.Name) and wanted is negated and flag.id not in names.declaring and flag.id in binders:
            given = [(binder, dict(plainly_given(names.parent(binder))).get(flag.id)) for binder in binders[flag.id]]
            if all(isinstance(value, ast.Constant) and value.value is (not is_beside(binder)) for binder, value in given):
                return True
    return is_beside(node)


def _import_of(names: ModuleNames, node: ast.AST, name: str) -> list[Import]:
    """What the import that a node is a part of brings under a name."""
    statement = names.parent(node)
    return [imported for imported in imports_in(statement) if imported.alias == name] if isinstance(node, ast.alias) else []


def _is_module(names: ModuleNames, node: ast.AST) -> bool:
    """Whether a node is a name that is given a module of triton's, `tl = triton.language`."""
    statement = names.parent(node)
    value = dict(plainly_given(statement)).get(node.id) if isinstance(node, ast.Name) and isinstance(statement, ast.stmt) else None
    return value is not None and dotted(value).split(".")[0] in names.triton_roots


def _follows(names: ModuleNames, node: ast.AST, others: Sequence[ast.AST]) -> bool:
    """Whether a node stands after one of some others, in no other branch, and in no handler of what fails there."""
    return any(_start(names, other) < _start(names, node) and not names.apart(other, node) for other in others)


def _start(names: ModuleNames, node: ast.AST) -> tuple[int, int]:
    placed = node if hasattr(node, "lineno") else names.parent(node)
    return getattr(placed, "lineno", 0), getattr(placed, "col_offset", 0)
