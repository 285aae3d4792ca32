"""What the value of an expression is made of, and whether it is one of floats: an expression in a kernel, read without its types."""

from __future__ import annotations

import ast

from advisor.python_source.language import dotted, last_name

FLOAT_CALLS = frozenset(
    {
        "exp",
        "exp2",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "sqrt",
        "sqrt_rn",
        "rsqrt",
        "sigmoid",
        "softmax",
        "sin",
        "cos",
        "tanh",
        "erf",
        "floor",
        "ceil",
        "round",
        "rint",
        "nearbyint",
        "fdiv",
        "div_rn",
        "fma",
        "isnan",
        "isinf",
        "rand",
        "randn",
    }
)
"""Of `triton.language`, its `math` and `libdevice`: what they take and give is of floats."""
_FLOAT_TYPES = ("float", "bfloat")
_PAIRS = frozenset({"interleave", "join", "cat"})
_SHAPES = frozenset({"reshape", "view", "ravel", "trans", "permute", "broadcast_to", "expand_dims", "flip"})
_POSITIONS = frozenset({"argmax", "argmin"})
_OF_THE_TYPE = frozenset({"dtype", "shape", "type", "element_ty", "scalar", "block_shape", "strides", "primitive_bitwidth", "numel"})
"""Attributes that say what a tensor is, not what it holds."""


def is_float(node: ast.expr | None) -> bool:
    """Whether an expression is a literal float, also with a sign, or `float("inf")`."""
    if isinstance(node, ast.UnaryOp):
        return is_float(node.operand)
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "float"
    return isinstance(node, ast.Constant) and isinstance(node.value, float)


def is_integer(node: ast.expr | None) -> bool:
    """Whether an expression is a literal integer, also with a sign."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
        return is_integer(node.operand)
    return isinstance(node, ast.Constant) and type(node.value) is int


def is_load(node: ast.AST) -> bool:
    """Whether it is a call of `tl.load`."""
    return isinstance(node, ast.Call) and dotted(node.func).endswith(".load")


def converted(node: ast.expr) -> ast.expr | None:
    """The x of `x.to(type)`, `x.cast(type)` and `tl.cast(x, type)`; None: it is something else."""
    if not (isinstance(node, ast.Call) and last_name(node) in ("to", "cast") and isinstance(node.func, ast.Attribute)):
        return None
    if last_name(node) == "cast" and len(node.args) + len(node.keywords) > 1 and node.args:
        return node.args[0]
    return node.func.value


def type_given(conversion: ast.Call) -> str:
    """The type that a conversion, or what makes a tensor, names: `uint8` of `x.to(tl.uint8)`; empty: none is named."""
    types = [*conversion.args, *(k.value for k in conversion.keywords)]
    return next((name.rsplit(".", 1)[-1] for kind in reversed(types) if "." in (name := dotted(kind))), "")


def is_bitcast(conversion: ast.Call) -> bool:
    """Whether a conversion keeps the bits, not the value: `x.to(tl.uint16, bitcast=True)`."""
    return any(k.arg == "bitcast" for k in conversion.keywords)


def rearranged(node: ast.Call) -> list[ast.expr]:
    """The tensors of which a call gives the elements, in another shape or order; none: it is something else."""
    name = last_name(node)
    if name in _PAIRS:
        return node.args[:2]
    if name not in _SHAPES or not isinstance(node.func, ast.Attribute):
        return []
    return node.args[:1] if dotted(node.func.value) in ("tl", "triton.language") else [node.func.value]


def made_pointer(node: ast.Call) -> ast.expr | None:
    """The x of `x.to(tl.pointer_type(tl.float16))`; None: it is something else."""
    types = [*node.args, *(k.value for k in node.keywords)]
    return converted(node) if any(isinstance(kind, ast.Call) and last_name(kind) == "pointer_type" for kind in types) else None


def made_of_floats(node: ast.expr) -> bool:
    """Whether an expression makes a tensor of floats: `tl.zeros((BLOCK,), tl.float32)`."""
    return isinstance(node, ast.Call) and last_name(node) in ("zeros", "full") and to_float(node)


def float_operands(node: ast.AST) -> list[ast.expr]:
    """The operands of which it follows that they are of floats: of a division, of exp, of a literal float; what is made a float."""
    if isinstance(node, ast.Call):
        name = last_name(node)
        if name in FLOAT_CALLS or name == "abs":
            return [*node.args, *(k.value for k in node.keywords)]
        inner = converted(node)
        return [inner] if inner is not None and to_float(node) else []
    if isinstance(node, ast.BinOp):
        sides = [node.left, node.right]
        return sides if isinstance(node.op, ast.Div) or any(is_float(side) for side in sides) else []
    if isinstance(node, ast.AugAssign):
        return [node.target, node.value] if isinstance(node.op, ast.Div) or is_float(node.value) else []
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        return sides if any(is_float(side) for side in sides) else []
    return []


def parts(node: ast.expr) -> list[ast.expr]:
    """The expressions inside an expression that its value is made of, where it is one of integers: `a` and `b` of `a * b + 1`.

    None of what only says which value it is: a condition, a type, an address. None of a value of floats, whatever is made of it later.
    """
    if isinstance(node, ast.Compare):
        return []
    if isinstance(node, ast.Attribute):
        return [] if node.attr in _OF_THE_TYPE else [node.value]
    if isinstance(node, ast.BinOp):
        return [] if float_operands(node) else [node.left, node.right]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.Call):
        return _parts_of_call(node)
    return [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]


def _parts_of_call(node: ast.Call) -> list[ast.expr]:
    name = last_name(node)
    if is_load(node) or name in FLOAT_CALLS or name in _POSITIONS or (converted(node) is not None and to_float(node)):
        return []
    values = [*node.args, *(k.value for k in node.keywords)]
    if name == "where":
        values = [*node.args[1:], *(k.value for k in node.keywords if k.arg != "condition")]
    return [*values, node.func.value] if isinstance(node.func, ast.Attribute) else values


def to_float(node: ast.Call) -> bool:
    """Whether a call names a type of floats."""
    types = [*node.args, *(k.value for k in node.keywords)]
    return any(last_name(kind).startswith(_FLOAT_TYPES) for kind in types)
