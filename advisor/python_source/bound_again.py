"""What a file puts in the place of Triton, or of a kernel that it has defined: what Python runs then is none of Triton's."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from advisor.python_source.bindings import plainly_given
from advisor.python_source.imports import HANDED_ON, imports_in
from advisor.python_source.literals import dotted
from advisor.python_source.module_names import ModuleNames


def triton_bound_again(names: ModuleNames) -> str | None:
    """Why it cannot be told what a file's kernels are: something of triton is bound again in it; None: nothing is.

    What stands in triton's place where it cannot be imported, in a branch or a handler, is not meant.
    """
    roots = {alias for alias, items in names.imports.items() if any(item.is_triton for item in items)}
    found = [(node.lineno, text) for node, text in (*_set_in(names, roots), *_given_anew(names, roots))]
    return "; ".join(f"cannot tell: {text} is bound again in line {line}" for line, text in sorted(found)[:1]) or None


def kernel_bound_again(names: ModuleNames, node: ast.FunctionDef) -> str | None:
    """Why it cannot be told what the name of a kernel stands for: the file gives it something else that is not made of it."""
    later = names.tree.body[names.tree.body.index(node) + 1 :] if node in names.tree.body else []
    for statement in later:
        for name, value in plainly_given(statement):
            is_other = not any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(value))
            if name == node.name and is_other and not isinstance(value, ast.Constant):
                return f"cannot tell: {name} is bound again in line {statement.lineno}"
    return None


def _set_in(names: ModuleNames, roots: set[str]) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Parts of triton that are given something, `triton.jit = …`, `setattr(tl, …)`, where it is not asked first whether it lacks them."""
    for node in names.nodes:
        owner = None
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            asked = f"not hasattr({ast.unparse(node.value)}, {node.attr!r})"
            tests = (each.test for each in names.above(node) if isinstance(each, ast.If))
            owner = dotted(node) if all(ast.unparse(test) != asked for test in tests) else None
        elif isinstance(node, ast.Call) and dotted(node.func) in ("setattr", "delattr") and node.args:
            owner = dotted(node.args[0])
        if owner is not None and owner.split(".")[0] in roots and isinstance(node, ast.expr):
            yield node, owner


def _given_anew(names: ModuleNames, roots: set[str]) -> Iterator[tuple[ast.expr | ast.stmt, str]]:
    """Names of triton that a file gives something else for sure after it imported them, or that a function of it does."""
    bound: set[str] = set()
    for statement in names.tree.body:
        items = list(imports_in(statement))
        bound |= {item.alias for item in items if item.is_triton}
        others = {item.alias for item in items if not item.is_triton and item.name not in HANDED_ON}
        others |= {name for name, value in plainly_given(statement) if (dotted(value) or "").split(".")[0] not in names.triton_roots}
        others |= {statement.name} if isinstance(statement, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) else set()
        yield from ((statement, name) for name in others & bound)
    for name in roots & names.declaring.keys():
        for function in names.declaring[name]:
            own = [item for node in ast.walk(function) for item in imports_in(node) if item.alias == name]
            if isinstance(function, ast.stmt) and not any(item.is_triton for item in own):
                yield function, name
