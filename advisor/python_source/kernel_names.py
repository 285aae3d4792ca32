"""What the body of a kernel names: its own names, those that it reads from around it, and what it may not name.

Triton looks up what a kernel's tree names while it compiles it, and calls some of it: a tree that is not to run anything is limited.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Set

from advisor.python_source import target_questions
from advisor.python_source.bindings import arguments, bound_by
from advisor.python_source.language import dotted
from advisor.python_source.literals import NotLiteralError
from advisor.system.errors import InputError

FORBIDDEN = frozenset({"getattr", "setattr", "eval", "exec", "compile", "open", "globals", "locals", "vars", "__import__", "input"})
FORBIDDEN_ATTRIBUTES = frozenset({"handle", "builder", "semantic", "func_globals", "gi_frame", "f_globals", "tb_frame"})
"""Attributes of triton's values that lead into the compiler itself."""
TRITON_BUILTINS = frozenset({"getattr", "hasattr"})
"""Names that triton itself looks up among Python's own where a kernel leaves them unbound (`CodeGenerator.builtin_namespace`)."""

STANDARD = frozenset({"tl.standard", "triton.language.standard"})
"""The module of triton's functions that are kernels themselves; kernels elsewhere use private ones too (flash-linear-attention)."""


class RebuildError(InputError):
    """A kernel names something that is neither a literal, nor triton's, nor another kernel."""


class ReachError(RebuildError):
    """A kernel, or what it calls, asks a value for what leads into Python.

    Attributes:
        kind: As of a `CompileError` that is refused for that.
    """

    kind = "refused"


def check_names(node: ast.FunctionDef, where: str) -> None:
    """Refuse a body that names what would run something while it compiles.

    Args:
        node: The function.
        where: The name of its file.

    Raises:
        RebuildError: It does.
    """
    local_names = _own_names(node)
    # The body alone: decorators are not copied, defaults and annotations are evaluated as literals.
    for item in (inner for statement in node.body for inner in ast.walk(statement)):
        private = isinstance(item, ast.Attribute) and item.attr.startswith("_") and not _is_of_triton(item, local_names)
        if isinstance(item, ast.Attribute) and (private or item.attr in FORBIDDEN_ATTRIBUTES):
            raise ReachError(f"{where}:{item.lineno}: private attributes are not allowed in a kernel that is not run", item.attr)
        if isinstance(item, ast.Name) and ((item.id in FORBIDDEN and item.id not in local_names) or item.id.startswith("__")):
            raise ReachError(f"{where}:{item.lineno}: {item.id} would run Python while the kernel compiles")
        if isinstance(item, (ast.Import, ast.ImportFrom, ast.Lambda, ast.ClassDef, ast.AsyncFunctionDef, ast.Await)):
            raise ReachError(f"{where}:{item.lineno}: {type(item).__name__.lower()} in a kernel is not read")


def _is_of_triton(node: ast.Attribute, local_names: Set[str]) -> bool:
    """Whether a private name is one of triton's own functions that its language is written with: `tl.standard._log2`."""
    if node.attr.startswith("__") or dotted(node.value) not in STANDARD or local_names & {"tl", "triton"}:
        return False
    with contextlib.suppress(NotLiteralError):  # another triton, or none
        return target_questions.has("triton.language.standard", node.attr)
    return False


def free_names(node: ast.FunctionDef) -> dict[str, int]:
    """Names the body reads that are not its own, with the first line of each. Defaults and annotations are evaluated apart."""
    bound = bound_names(node)
    read: dict[str, int] = {}
    waiting: list[ast.AST] = list(reversed(node.body))
    while waiting:
        item = waiting.pop()
        if isinstance(item, ast.Raise):  # triton refuses `raise` where it gets there, and looks up nothing of it
            continue
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Load):
            read.setdefault(item.id, item.lineno)
        waiting += reversed(list(ast.iter_child_nodes(item)))
    # A name that is assigned somewhere may still be read as a global before; triton has no such kernels in practice.
    return {name: line for name, line in read.items() if name not in bound}


def bound_names(node: ast.FunctionDef) -> set[str]:
    """Parameters of a function and of those within it, and all that it stores."""
    nodes = [inner for statement in node.body for inner in ast.walk(statement)]
    inner = {item.arg for item in nodes if isinstance(item, ast.arg)}
    return arguments(node) | inner | {name for item in nodes for name in bound_by(item)}


def _own_names(node: ast.FunctionDef) -> set[str]:
    """Names that cannot mean Python's own function of the name: parameters, and locals, unbound or not, where triton knows no other."""
    stored = {n.id for s in node.body for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return arguments(node) | (stored - TRITON_BUILTINS)


_VALUES = frozenset({"tl.constexpr", "triton.language.constexpr", "language.constexpr", "constexpr"})
"""`tl.constexpr` of a function: a kernel calls it as it is, and it is given what stands in the call as it is (`o.value`)."""
DECORATORS = frozenset({"triton.constexpr_function", "constexpr_function"}) | _VALUES


def is_constexpr_function(node: ast.FunctionDef) -> bool:
    """Whether a function is one of these."""
    return any(dotted(decorator) in DECORATORS for decorator in node.decorator_list)


def decorator_of(node: ast.FunctionDef) -> str:
    """The decorator that a copy of a function has which is no kernel, as `language.CONSTEXPR_DECORATORS` writes it."""
    return "tl.constexpr" if {dotted(decorator) for decorator in node.decorator_list} & _VALUES else "triton.constexpr_function"


def called_functions(node: ast.FunctionDef) -> set[str]:
    """Names of what a function calls by a name alone."""
    return {
        n.func.id
        for inner_statement in node.body
        for n in ast.walk(inner_statement)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
