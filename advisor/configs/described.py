"""What a file says of its own kernels: its `KERNELS` literal, and the functions that it names, worked out by walking the syntax tree.

`triton_kernels/README.md` has the convention. Nothing of the file is run: functions are followed statement by statement by the
evaluator of literals, which knows arithmetic, branches, loops and dictionaries, and nothing else; steps and sizes are limited.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any

from advisor.configs.literals import Evaluator, NotLiteralError
from advisor.configs.source import SourceFile

LONGEST_TEXT = 200
MOST_TRIPS = 1_000
DEEPEST_CALLS = 8

_NOTHING = object()


class FunctionReader(Evaluator):
    """The evaluator of literals, with what functions that describe calls do besides: branches, loops, f-strings of plain values,
    methods of dictionaries and texts."""

    def call(self, function: ast.FunctionDef, arguments: Sequence[Any]) -> Any:
        """What a function of the file returns.

        Raises:
            NotLiteralError: It does more than the evaluator understands.
        """
        try:
            return self._file_function(function, list(arguments), {})
        except NotLiteralError:
            raise
        except RecursionError:
            raise NotLiteralError("nested too deeply") from None
        except Exception as error:  # arithmetic on values of unexpected kinds: not a description
            raise NotLiteralError(f"{function.name}: {type(error).__name__}: {error}") from None

    def _file_function(self, function: ast.FunctionDef, arguments: list, keywords: dict[str, Any]) -> Any:
        if self.depth > DEEPEST_CALLS:
            raise NotLiteralError("calls nested too deeply")
        before, self.depth = dict(self.names), self.depth + 1
        names, defaults = [a.arg for a in function.args.args], function.args.defaults
        for parameter, default in zip(names[len(names) - len(defaults) :], defaults, strict=True):
            self.names[parameter] = self._visit(default)
        self.names.update(zip(names, arguments, strict=False))
        self.names.update(keywords)
        value = self._body(function.body)
        self.names, self.depth = before, self.depth - 1
        return None if value is _NOTHING else value

    def _body(self, statements: list[ast.stmt]) -> Any:
        """The value returned; _NOTHING where the end is reached."""
        for statement in statements:
            value = self._statement(statement)
            if value is not _NOTHING:
                return value
        return _NOTHING

    def _statement(self, statement: ast.stmt) -> Any:
        if isinstance(statement, ast.Return):
            return self._visit(statement.value) if statement.value is not None else None
        if isinstance(statement, ast.If):
            return self._body(statement.body if self._visit(statement.test) else statement.orelse)
        if isinstance(statement, ast.While) and not statement.orelse:
            for _ in range(MOST_TRIPS):
                if not self._visit(statement.test):
                    return _NOTHING
                value = self._body(statement.body)
                if value is not _NOTHING:
                    return value
            raise NotLiteralError(f"a loop in line {statement.lineno} does not end")
        if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self._assign(statement.targets[0], self._visit(statement.value))
        elif isinstance(statement, ast.AugAssign) and isinstance(statement.target, ast.Name):
            name = ast.Name(id=statement.target.id, ctx=ast.Load())
            self._bind(statement.target, self._visit(ast.BinOp(left=name, op=statement.op, right=statement.value, lineno=statement.lineno)))
        elif isinstance(statement, ast.Delete) and all(isinstance(t, ast.Subscript) for t in statement.targets):
            for target in statement.targets:
                assert isinstance(target, ast.Subscript)
                self._owner(target).pop(self._visit(target.slice))
        elif not (isinstance(statement, ast.Pass) or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))):
            raise NotLiteralError(f"{type(statement).__name__} in line {statement.lineno} is not understood")
        return _NOTHING

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Subscript):
            self._owner(target)[self._visit(target.slice)] = value
        else:
            self._bind(target, value)

    def _owner(self, target: ast.Subscript) -> dict:
        owner = self._visit(target.value)
        if not isinstance(owner, dict):
            raise NotLiteralError(f"an assignment in line {target.lineno} is not to a dictionary")
        return owner

    def _binop(self, node: ast.BinOp) -> Any:
        if isinstance(node.op, ast.Pow):
            left, right = self._visit(node.left), self._visit(node.right)
            if isinstance(right, float) and isinstance(left, (int, float)) and abs(right) <= 64:
                return float(left) ** right
        return super()._binop(node)

    def _joinedstr(self, node: ast.JoinedStr) -> str:
        text = "".join(str(self._visit(part)) for part in node.values)
        if len(text) > LONGEST_TEXT:
            raise NotLiteralError("a text too long")
        return text

    def _formattedvalue(self, node: ast.FormattedValue) -> str:
        value = self._visit(node.value)
        if node.format_spec is not None or not isinstance(value, (str, int)):
            raise NotLiteralError("a formatted value is not a literal")
        return str(value)

    def _call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop", "startswith", "endswith") and not node.keywords:
            owner, method = self._visit(node.func.value), node.func.attr
            if isinstance(owner, dict) and method in ("get", "pop") and len(node.args) in (1, 2):
                values = [self._visit(argument) for argument in node.args]
                return owner.get(*values) if method == "get" else owner.pop(*values)
            if isinstance(owner, str) and method.endswith("with") and len(node.args) == 1:
                return getattr(owner, method)(str(self._visit(node.args[0])))
        if isinstance(node.func, ast.Name) and node.func.id == "next" and len(node.args) in (1, 2) and not node.keywords:
            found = self._visit(node.args[0])
            if isinstance(found, list):
                return found[0] if found or len(node.args) == 1 else self._visit(node.args[1])
        return super()._call(node)


def reader(source: SourceFile) -> FunctionReader:
    """A reader that knows the file's literals and plain functions."""
    plain = source.evaluator()
    made = FunctionReader(plain.names, plain.roots, plain.functions)
    for name, node in source.assignments.items():
        made.names[name] = lambda node=node: made._visit(node)
    return made


def call_function(source: SourceFile, name: Any, *arguments: Any) -> Any:
    """What a plain function of the file returns.

    Raises:
        NotLiteralError: There is no such function, or it does more than the evaluator understands.
    """
    function = source.plain_functions.get(str(name))
    if function is None:
        raise NotLiteralError(f"{source.path.name} has no function {name}")
    return reader(source).call(function, arguments)


def expression(source: SourceFile, text: str, names: Mapping[str, Any]) -> Any:
    """The value of an expression of a description over given names.

    Raises:
        NotLiteralError: It is not one.
    """
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise NotLiteralError(f"{text!r} is not an expression") from None
    made = reader(source)
    made.names.update(names)
    return made.evaluate(tree)
