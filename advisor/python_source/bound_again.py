"""What a file puts in the place of Triton, or of a kernel that it has defined: what Python runs then is none of Triton's."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from advisor.python_source.bindings import plainly_given
from advisor.python_source.imports import HANDED_ON, Import, imports_in
from advisor.python_source.language import dotted
from advisor.python_source.module_names import ModuleNames


def triton_bound_again(names: ModuleNames) -> str | None:
    """Why it cannot be told what a file's kernels are: something of triton is bound again in it; None: nothing is.

    What stands in triton's place where it cannot be imported, in another branch or a handler, is not meant.
    """
    roots = {alias for alias, items in names.imports.items() if any(item.is_triton for item in items)}
    bound = [*_set_in(names, roots)]
    for name in roots:
        binders = names.binders(names.tree).get(name, [])
        imports = [node for node in binders if any(imported.is_triton for imported in _import_of(names, node, name))]
        handed = [node for node in binders if any(imported.name in HANDED_ON for imported in _import_of(names, node, name))]
        bound += [
            (node, name)
            for node in binders
            if node not in (*imports, *handed) and not _is_module(names, node) and _follows(names, node, imports)
        ]
        bound += [(node, name) for node in names.declaring.get(name, ()) if not _imports_triton(node, name)]
    lines = sorted((getattr(node, "lineno", 0), text) for node, text in bound)
    return f"cannot tell: {lines[0][1]} is bound again in line {lines[0][0]}" if lines else None


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
            inner = (
                inner.value if not isinstance(inner, ast.Call) else inner.args[0] if dotted(inner.func) == "vars" and inner.args else None
            )
        if isinstance(inner, ast.Name) and inner.id in roots and written is not None:
            test = f"not hasattr({ast.unparse(node.value)}, {node.attr!r})" if isinstance(node, ast.Attribute) else ""
            if all(ast.unparse(outer.test) != test for outer in names.above(node) if isinstance(outer, ast.If)):
                yield node, ast.unparse(written)[:60]


def _import_of(names: ModuleNames, node: ast.AST, name: str) -> list[Import]:
    """What the import that a node is a part of brings under a name."""
    statement = names.parent(node)
    return [imported for imported in imports_in(statement) if imported.alias == name] if isinstance(node, ast.alias) else []


def _is_module(names: ModuleNames, node: ast.AST) -> bool:
    """Whether a node is a name that is given a module of triton's, `tl = triton.language`."""
    statement = names.parent(node)
    value = dict(plainly_given(statement)).get(node.id) if isinstance(node, ast.Name) and isinstance(statement, ast.stmt) else None
    return value is not None and dotted(value).split(".")[0] in names.triton_roots


def _imports_triton(function: ast.AST, name: str) -> bool:
    return any(imported.is_triton and imported.alias == name for node in ast.walk(function) for imported in imports_in(node))


def _follows(names: ModuleNames, node: ast.AST, others: Sequence[ast.AST]) -> bool:
    """Whether a node stands after one of some others, in no other branch, and in no handler of what fails there."""
    chain = [*names.above(node), node]
    for other in others:
        if _start(names, other) < _start(names, node):
            known = set(map(id, [*names.above(other), other]))
            around = next(outer for outer in reversed(chain) if id(outer) in known)
            arms = [
                {part for part in ("body", "orelse", "handlers") for item in getattr(around, part, ()) if id(item) in ids}
                for ids in (set(map(id, chain)), known)
            ]
            apart = isinstance(around, ast.If) or (isinstance(around, ast.Try) and "handlers" in arms[0] | arms[1])
            if not (apart and arms[0] != arms[1]):
                return True
    return False


def _start(names: ModuleNames, node: ast.AST) -> tuple[int, int]:
    placed = node if hasattr(node, "lineno") else names.parent(node)
    return getattr(placed, "lineno", 0), getattr(placed, "col_offset", 0)
