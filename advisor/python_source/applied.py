"""Decorators that a file applies to functions further down, `kernel = triton.jit(kernel)`: its tree as if they were written above them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence

from advisor.python_source.imports import module_level
from advisor.python_source.literals import dotted

_Blocks = tuple[int, ...]  # ids of the blocks around a statement, the file's own first


def with_applied(tree: ast.Module, is_jit: Callable[[str], bool]) -> ast.Module:
    """The tree with what makes kernels of functions further down as decorators of these; it is changed in place.

    `f = triton.heuristics(...)(triton.jit(f))` is then two decorators of `f`. Of `g = triton.autotune(...)(triton.jit(f))` that is
    `triton.jit` alone, and `g = triton.autotune(...)(f)` is left: `f` has names of its own, and may have several.

    Args:
        tree: The file's.
        is_jit: Whether a dotted name is `triton.jit`.
    """
    _Reader(is_jit).read(tree.body, ())
    return tree


def layers_of(node: ast.expr, is_jit: Callable[[str], bool] = lambda name: False) -> tuple[list[ast.expr], str] | None:
    """Decorators, the outermost first, and the name of the function that they are applied to; None: this is not what it is."""
    found: list[ast.expr] = []
    while isinstance(node, ast.Call):
        if len(node.args) != 1 or (node.keywords and not is_jit(dotted(node.func) or "")):
            return None
        # triton.jit(f, noinline=True) is triton.jit(noinline=True)(f)
        found.append(ast.copy_location(ast.Call(func=node.func, args=[], keywords=node.keywords), node) if node.keywords else node.func)
        node = node.args[0]
    return (found, node.id) if isinstance(node, ast.Name) else None


def made_of(kernel: str, assigned: Mapping[str, Sequence[ast.expr]]) -> set[str]:
    """A kernel's name, and those that a file gives what it makes of it, also by way of others.

    Args:
        kernel: The name.
        assigned: All expressions that are assigned to each name of the file.
    """
    found = {kernel}
    sources = {name: {layers[1] for value in values if (layers := layers_of(value)) is not None} for name, values in assigned.items()}
    while more := {name for name, made in sources.items() if name not in found and made & found}:
        found |= more
    return found


def is_redefined(tree: ast.Module, name: str, line: int) -> bool:
    """Whether a file defines or assigns a name below a line: what was made of it there was made of another function."""
    later = [node for node in module_level(tree) if node.lineno > line]
    if any(isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and node.name == name for node in later):
        return True
    targets = (target for node in later if isinstance(node, ast.Assign) for target in node.targets)
    return any(isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store) for each in targets for n in ast.walk(each))


class _Reader:
    def __init__(self, is_jit: Callable[[str], bool]) -> None:
        self.is_jit = is_jit
        self.functions: dict[str, list[tuple[ast.FunctionDef, _Blocks]]] = {}

    def read(self, body: list[ast.stmt], around: _Blocks) -> None:
        """Read one block, and leave out of it what is a decorator from now on."""
        blocks = (*around, id(body))
        kept: list[ast.stmt] = []
        for statement in body:
            if isinstance(statement, ast.FunctionDef):
                self.functions.setdefault(statement.name, []).append((statement, blocks))
            elif isinstance(statement, ast.Assign) and self._applied(statement, blocks):
                continue
            elif isinstance(statement, (ast.If, ast.Try, ast.With)):
                for inner in _blocks_of(statement):
                    self.read(inner, blocks)
            kept.append(statement)
        if body and not kept:
            kept.append(ast.copy_location(ast.Pass(), body[0]))
        body[:] = kept

    def _applied(self, statement: ast.Assign, blocks: _Blocks) -> bool:
        """Read an assignment; whether nothing of it is left."""
        target = statement.targets[0].id if len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name) else None
        found = layers_of(statement.value, self.is_jit) if target is not None else None
        if found is None or found[1] not in self.functions:
            return False
        layers, name = found
        functions = self.functions[name]
        jit = next((number for number, layer in enumerate(layers) if self._makes_kernels(layer)), None)
        kernels = jit is not None or any(self._makes_kernels(each) for function, _ in functions for each in function.decorator_list)
        certain = all(around[: len(blocks)] == blocks for _, around in functions)  # under no condition that the functions do not share
        if kernels and target == name and certain:
            first = 0
        elif jit is not None:  # under a condition too: that they are kernels is taken from it
            first = jit
        else:
            return False
        for function, _ in functions:
            function.decorator_list[:0] = layers[first:]
        statement.value = _decorated(layers[:first], ast.copy_location(ast.Name(id=name, ctx=ast.Load()), statement.value))
        return target == name and first == 0

    def _makes_kernels(self, decorator: ast.expr) -> bool:
        return self.is_jit(dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) or "")


def _blocks_of(statement: ast.If | ast.Try | ast.With) -> Iterator[list[ast.stmt]]:
    while isinstance(statement, ast.If) and len(statement.orelse) == 1 and isinstance(statement.orelse[0], ast.If):
        yield statement.body  # there may be more `elif` than calls can be nested
        statement = statement.orelse[0]
    yield from (getattr(statement, part, []) for part in ("body", "orelse", "finalbody"))
    yield from (handler.body for handler in getattr(statement, "handlers", ()))


def _decorated(layers: Sequence[ast.expr], node: ast.expr) -> ast.expr:
    for layer in reversed(layers):
        node = ast.copy_location(ast.Call(func=layer, args=[node], keywords=[]), layer)
    return node
