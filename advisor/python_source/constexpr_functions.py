"""`@triton.constexpr_function` and `@tl.constexpr`: functions of plain numbers that a kernel calls while it compiles.

Triton runs them as Python. So those of a file are copied for the compiler only where they can do nothing but reckon: no objects of
Python's are reached, and nothing is called but what a kernel may call.
"""

from __future__ import annotations

import ast

from advisor.python_source.literals import NotLiteralError, dotted

_VALUES = frozenset({"tl.constexpr", "triton.language.constexpr", "language.constexpr", "constexpr"})
"""`tl.constexpr` of a function: a kernel calls it as it is, and it is given what stands in the call as it is (`o.value`)."""
DECORATORS = frozenset({"triton.constexpr_function", "constexpr_function"}) | _VALUES
METHODS = frozenset({"bit_length"})
"""Methods of numbers that may be called."""
_UNDERSTOOD = (
    ast.Return,
    ast.Assign,
    ast.AugAssign,
    ast.AnnAssign,
    ast.If,
    ast.While,
    ast.For,
    ast.Break,
    ast.Continue,
    ast.Pass,
    ast.Assert,
    ast.Expr,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.IfExp,
    ast.Subscript,
    ast.Name,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.Call,
    ast.Attribute,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)
"""What has no scope of its own: every name that is stored is the function's, so that none can hide what another one means. Calls take no
keywords, for `max(values, key=...)` would call what it is given.
"""


def is_constexpr_function(node: ast.FunctionDef) -> bool:
    """Whether a function is one of these."""
    return any(dotted(each) in DECORATORS for each in node.decorator_list)


def decorator_of(node: ast.FunctionDef) -> str:
    """The decorator that a copy of a function has which is no kernel; "": none, for only Python calls it."""
    names = {dotted(each) for each in node.decorator_list} & DECORATORS
    if not names:
        return ""
    return "@tl.constexpr" if names & _VALUES else "@triton.constexpr_function"


def called_functions(node: ast.FunctionDef) -> set[str]:
    """Names of what a function calls by a name alone."""
    return {n.func.id for each in node.body for n in ast.walk(each) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}


def check_constexpr_function(node: ast.FunctionDef) -> None:
    """Raise where a function does more than reckon.

    Raises:
        NotLiteralError: It does; the text says what, and where.
    """
    own = {argument.arg for argument in ast.walk(node.args) if isinstance(argument, ast.arg)}
    own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for inner in (each for statement in node.body for each in ast.walk(statement)):
        good = isinstance(inner, _UNDERSTOOD)
        if isinstance(inner, (ast.Attribute, ast.Subscript)):
            good = isinstance(inner.ctx, ast.Load)
        elif isinstance(inner, ast.Call):
            root = (dotted(inner.func) or "").split(".")[0]
            method = isinstance(inner.func, ast.Attribute) and inner.func.attr in METHODS and not inner.args
            good = method or (bool(root) and root not in own)
        if not good:
            line = getattr(inner, "lineno", node.lineno)
            what = f"{node.name} runs while a kernel compiles, and does more than reckon ({type(inner).__name__})"
            raise NotLiteralError(f"line {line}: {what}")
