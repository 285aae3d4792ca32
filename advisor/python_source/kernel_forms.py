"""What a decorator, a launch and a kernel's name in a file mean."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from advisor.python_source.bindings import Graph, is_none
from advisor.python_source.imports import Import, is_triton_jit
from advisor.python_source.language import dotted, last_name

DEEPEST = 6
"""Names of names that are followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decorators:
    """What names of one file stand for, as far as decorators go.

    Attributes:
        imported: Alias -> the name that is imported under it.
        functions: Functions of the file.
    """

    imported: Mapping[str, str]
    functions: Mapping[str, ast.FunctionDef]

    def meant(self, node: ast.expr) -> ast.expr:
        """The expression that a decorator stands for: a call of what it is called where it comes from."""
        if isinstance(node, ast.Name):
            return ast.copy_location(ast.Name(id=self.imported.get(node.id, node.id), ctx=ast.Load()), node)
        if not isinstance(node, ast.Call):
            return node
        return ast.copy_location(ast.Call(func=self.meant(node.func), args=node.args, keywords=node.keywords), node)


def launched_by(call: ast.Call) -> ast.expr | None:
    """What a call launches if that is a kernel; None: it is written as no launch is."""
    return call.func.value if isinstance(call.func, ast.Subscript) else None


def grid_of(call: ast.Call) -> ast.expr:
    """The grid of a launch."""
    assert isinstance(call.func, ast.Subscript)
    return call.func.slice


_WRAPPERS = ("wrap_triton", "capture_triton")
"""Functions of torch that hand a kernel on for `torch.compile`: `wrap_triton(kernel)[grid](...)`."""


def launching_calls(graph: Graph) -> Iterator[tuple[str, ast.Call]]:
    """The calls of a file that launch something, each with what, as it is named there: `kernel`, `module.kernel`; where a function gives
    such names another, `kernel = fast if small else slow`, once for each of them."""
    for node in graph.nodes:
        launched = launched_by(node) if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Call) and launched is not None:
            if isinstance(launched, ast.Call) and len(launched.args) == 1 and last_name(launched) in _WRAPPERS:
                launched = launched.args[0]
            name = dotted(launched)
            yield from ((item, node) for item in (_meant(graph, name, node) if name else ()))


def _meant(graph: Graph, name: str, call: ast.Call) -> list[str]:
    """What a name that is launched stands for by plain assignments of the innermost function that binds it; else the name itself."""
    given = graph.given(graph.scopes_around(call), name)
    names = [dotted(choice) for value in given for choice in _choices(value)]
    return list(dict.fromkeys(names)) if names and all(names) else [name]


def _choices(value: ast.AST) -> list[ast.AST]:
    """What an expression may be: `a if small else b` is one of two, and None is nothing that can be launched."""
    if isinstance(value, ast.IfExp):
        return [*_choices(value.body), *_choices(value.orelse)]
    return [] if isinstance(value, ast.expr) and is_none(value) else [value]


JIT_DECORATORS = ("triton.jit", "jit", "triton.runtime.jit", "triton.jit.jit")


def means_jit(name: str, imports: Mapping[str, Sequence[Import]], assigned: Mapping[str, ast.expr], followed: int = 0) -> bool:
    """Whether a dotted name is `triton.jit`, by what the file imports its first part from: other packages have a `jit` too.

    Args:
        name: The name.
        imports: The file's imports by alias.
        assigned: What it gives its names last.
        followed: Names of names that were followed: they can go round in a circle.
    """
    root, _, rest = name.partition(".")
    if items := imports.get(root):
        return any(is_triton_jit(item, rest) for item in items)
    other = dotted(assigned[root]) if root in assigned and not rest else None  # jit = triton.jit
    if other and followed < DEEPEST:
        return means_jit(other, imports, assigned, followed + 1)
    return name in JIT_DECORATORS or name.endswith("triton.jit")


_APPLIED = frozenset({"triton.jit", "triton.autotune", "triton.heuristics"})


def decorated(tree: ast.Module) -> ast.Module:
    """A file in which what it applies to its functions, `kernel = triton.jit(kernel)`, stands above them: the same, as Python reads it."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    kept = []
    for node in tree.body:
        names = [target.id for target in node.targets if isinstance(target, ast.Name)] if isinstance(node, ast.Assign) else []
        call = node.value if isinstance(node, ast.Assign) else None
        function = functions.get(names[0]) if len(names) == 1 else None
        if function is None or not isinstance(call, ast.Call) or call.keywords or [dotted(argument) for argument in call.args] != names:
            kept.append(node)
        elif dotted(call.func.func if isinstance(call.func, ast.Call) else call.func) in _APPLIED:
            function.decorator_list.insert(0, ast.copy_location(call.func, function))
        else:
            kept.append(node)
    tree.body = kept
    return tree
