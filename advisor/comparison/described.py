"""What a file's own `KERNELS` entry says of a call, worked out by walking the syntax tree: nothing of the file is run.

`triton_kernels/README.md` has the convention. Entries whose `arguments` function does more than the evaluator understands are left
to the compiler's guesses.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from advisor.configs.literals import Evaluator, NotLiteralError
from advisor.configs.source import SourceFile
from advisor.schema import Configuration, Problem

LONGEST_TEXT = 200


_NOTHING = object()


class _Reader(Evaluator):
    """The evaluator of literals, with f-strings of plain values, `dict.get`, and functions that branch: what describes calls."""

    def _file_function(self, function: ast.FunctionDef, arguments: list, keywords: dict[str, Any]) -> Any:
        if self.depth > 8:
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
            value = _NOTHING
            if isinstance(statement, ast.Return):
                return self._visit(statement.value) if statement.value is not None else None
            if isinstance(statement, ast.If):
                value = self._body(statement.body if self._visit(statement.test) else statement.orelse)
            elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
                self._bind(statement.targets[0], self._visit(statement.value))
            elif not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)):
                raise NotLiteralError(f"{type(statement).__name__} in line {statement.lineno} is not understood")
            if value is not _NOTHING:
                return value
        return _NOTHING

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
        if isinstance(node.func, ast.Attribute) and node.func.attr == "get" and len(node.args) in (1, 2) and not node.keywords:
            owner = self._visit(node.func.value)
            if isinstance(owner, dict):
                default = self._visit(node.args[1]) if len(node.args) == 2 else None
                return owner.get(self._visit(node.args[0]), default)
        return super()._call(node)


def described_arguments(
    source: SourceFile, entry: Mapping[str, Any], problem: Problem, configuration: Configuration
) -> dict[str, Any] | None:
    """Every argument of a call but the configuration's: pointers as Triton types, the rest as values; None: not known."""
    function = source.plain_functions.get(str(entry.get("arguments")))
    if function is None:
        return None
    flat = {**problem.sizes, "op": problem.op, "dtype": problem.dtype}
    if problem.output_dtype is not None:
        flat["output_dtype"] = problem.output_dtype
    options = {"num_warps": configuration.num_warps, "num_stages": configuration.num_stages}
    plain = source.evaluator()
    reader = _Reader(plain.names, plain.roots, plain.functions)
    for name, node in source.assignments.items():
        reader.names[name] = lambda node=node: reader._visit(node)
    try:
        found = reader._file_function(function, [flat, {**configuration.parameters, **options}], {})
    except NotLiteralError:
        return None
    except Exception:  # arithmetic on values of unexpected kinds, recursion: not a description
        return None
    return found if isinstance(found, dict) and all(isinstance(name, str) for name in found) else None


def split(arguments: Mapping[str, Any], constexprs: frozenset[str]) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
    """(types, constants, scalars) of described arguments, as the compiler takes them."""
    types: dict[str, str] = {}
    constants: dict[str, Any] = {}
    scalars: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in constexprs or value is None:
            constants[name] = value
        elif isinstance(value, str):
            types[name] = value
        elif isinstance(value, float):
            types[name], scalars[name] = "fp32", value
        elif isinstance(value, int):
            scalars[name] = value
    return types, constants, scalars
