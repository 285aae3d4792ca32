"""What a Python file assigns at module level, read from its syntax tree."""

from __future__ import annotations

import ast

from advisor.python_source.imports import module_level


def assigned_expressions(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """All expressions that are assigned to each name at module level, in order, whether or not they run."""
    found: dict[str, list[ast.expr]] = {}
    for node in module_level(tree):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value)
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    for item, value in zip(target.elts, node.value.elts, strict=False):
                        if isinstance(item, ast.Name):
                            found.setdefault(item.id, []).append(value)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            found.setdefault(node.target.id, []).append(node.value)
    return found


def as_function(name: str, value: ast.Lambda) -> ast.FunctionDef:
    """A `lambda` that has a name, as a function of that name."""
    returned = ast.copy_location(ast.Return(value=value.body), value)
    return ast.copy_location(ast.FunctionDef(name=name, args=value.args, decorator_list=[], body=[returned]), value)
