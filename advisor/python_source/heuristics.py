"""What `@triton.heuristics` makes of a kernel's arguments."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from advisor.python_source.jit_function import JitFunction
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile


def heuristic_values(source: SourceFile, function: JitFunction, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """What the heuristics of a kernel give for arguments.

    Args:
        source: The kernel's file.
        function: The kernel.
        arguments: Values of its arguments, as far as they are known.

    Returns:
        Values by name, and for those that cannot be evaluated the reason.
    """
    values: dict[str, Any] = {}
    unknown: dict[str, str] = {}
    for name, rule in function.heuristics.items():
        try:
            values[name] = _value(source, rule, {**arguments, **values})
        except NotLiteralError as error:
            unknown[name] = str(error)
    return values, unknown


def _value(source: SourceFile, rule: ast.Lambda | ast.FunctionDef | None, arguments: dict[str, Any]) -> Any:
    if isinstance(rule, ast.FunctionDef):
        return source.evaluator().call(rule, [arguments])
    if not isinstance(rule, ast.Lambda) or len(rule.args.args) != 1:
        raise NotLiteralError("not a function of one argument")
    return source.evaluator({rule.args.args[0].arg: arguments}).evaluate(rule.body)
