"""What the values in a kernel are made of, and whether of floats, read without their types; and where they come from: the parameters that
they are loaded through, or that addresses start from; an expression is followed through the names it was assigned to."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator

from advisor.python_source.bindings import assigned_values
from advisor.python_source.jit_function import JitFunction
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
    }
)
"""Of `triton.language`, its `math` and `libdevice`: what they take and give is of floats."""
OF_A_TENSOR = re.compile(r"\.(dtype|element_ty|scalar)$")
"""Ends what names a tensor's type, `y_ptr.dtype.element_ty`."""
SHORT = re.compile(r"b?float(16|8)")
"""Begins a type of floats of 16 bits or less."""
_INTEGERS_OR_BYTES = re.compile(r"u?int\d|float8")
"""Begins a type that values are converted to for no other reason than to be stored as it."""
RANDOM_CALLS = frozenset({"rand", "randn", "randint", "rand4x", "randn4x", "randint4x"})
"""What they take, a seed and offsets, are integers."""
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
    if is_load(node) or name in FLOAT_CALLS | RANDOM_CALLS | _POSITIONS or (converted(node) is not None and to_float(node)):
        return []
    values = [*node.args, *(k.value for k in node.keywords)]
    if name == "where":
        values = [*node.args[1:], *(k.value for k in node.keywords if k.arg != "condition")]
    return [*values, node.func.value] if isinstance(node.func, ast.Attribute) else values


def to_float(node: ast.Call) -> bool:
    """Whether a call names a type of floats."""
    types = [*node.args, *(k.value for k in node.keywords)]
    return any(last_name(kind).startswith(_FLOAT_TYPES) for kind in types)


_COUNTS = frozenset({"program_id", "num_programs", "arange", "cdiv"})
_KEEPS = frozenset(
    {"sum", "max", "min", "abs", "cumsum", "reduce", "flip", "sort", "maximum", "minimum", "where", "clamp", "fma"}
    | {"multiple_of", "max_contiguous"}
)
"""Calls that give a value of the type of their operands."""
_Roots = dict[str, list[str] | None]


class Origins:
    """Of one kernel. All that answers with names gives parameters."""

    def __init__(self, function: JitFunction) -> None:
        self.node = function.node
        self.parameters = frozenset(parameter.name for parameter in function.parameters)
        self.assigned = assigned_values(self.node)  # which of them reach a use changes too few guesses
        self.counters = {n.target.id for n in ast.walk(self.node) if isinstance(n, ast.For) and isinstance(n.target, ast.Name)}

    def values(self, name: ast.Name) -> list[ast.expr]:
        """What a name is given anywhere in the kernel."""
        return self.assigned.get(name.id, [])

    def is_parameter(self, node: ast.AST) -> bool:
        """Whether an expression is one of the kernel's parameters."""
        return isinstance(node, ast.Name) and node.id in self.parameters

    def roots(self, node: ast.expr) -> list[str]:
        """Parameters that an address expression starts from."""
        return self._roots(node, {})

    def _roots(self, node: ast.expr, done: _Roots) -> list[str]:
        """`done`: what names were found to start from; None: they are being followed, as in a loop that moves a pointer."""
        if isinstance(node, ast.Name):
            if node.id not in done:
                done[node.id] = None
                done[node.id] = self._roots_of_name(node, done)
            return done[node.id] or []
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            if roots := self._roots(node.left, done):
                return roots
            followed = {name for name, roots in done.items() if roots is None}
            moved = any(isinstance(n, ast.Name) and n.id in followed for n in ast.walk(node.left))  # p = p + offset
            return [] if moved else self._roots(node.right, done)
        if isinstance(node, ast.Call):
            return self._roots_of_call(node, done)
        if isinstance(node, (ast.Subscript, ast.Attribute, ast.Starred)):
            return self._roots(node.value, done)
        if isinstance(node, ast.IfExp):
            return [*self._roots(node.body, done), *self._roots(node.orelse, done)]
        return []

    def _roots_of_name(self, node: ast.Name, done: _Roots) -> list[str]:
        roots = [node.id] if node.id in self.parameters else []
        for value in self.values(node):
            if not is_load(value):
                roots += self._roots(value, done)
        return list(dict.fromkeys(roots))

    def _roots_of_call(self, node: ast.Call, done: _Roots) -> list[str]:
        if isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "broadcast_to", "reshape", "trans", "permute"):
            return self._roots(node.func.value, done)
        name = last_name(node)
        if name == "where" and len(node.args) > 2:  # of a pointer and a pointer: `where(mask, 0, n)` is an offset
            first = self._roots(node.args[1], done)
            return [*first, *self._roots(node.args[2], done)] if first else []
        if name in ("make_block_ptr", "advance", "broadcast_to", "cast", "multiple_of", "max_contiguous"):
            given = argument(node, 0, "base", "input")
            return self._roots(given, done) if given is not None else []
        return []

    def of_one_type(self, node: ast.expr) -> list[ast.expr]:
        """The expressions that decide of which type of numbers a value is."""
        match node:
            case ast.Name():
                return self.values(node)
            case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult()):
                return [node.left, node.right]
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                return [node.operand]
            case ast.IfExp():
                return [node.body, node.orelse]
            case ast.Subscript():
                return [node.value]
            case ast.Call() if not is_load(node) and converted(node) is None:
                if last_name(node) not in _KEEPS:
                    return rearranged(node)
                method = isinstance(node.func, ast.Attribute) and dotted(node.func.value) not in ("tl", "triton.language")
                return [*([node.func.value] if method else ()), *node.args]  # type: ignore[attr-defined]
        return []

    def unchanged(self, node: ast.expr) -> Iterator[str]:
        """Parameters through which a value is loaded that is what was loaded, or bits of it: no arithmetic was done on it.

        Also those that the value itself is: of a helper, which may be handed what was loaded.
        """
        for inner in walk(node, self.passed_on):
            yield from self._loaded_through(inner, handed=True)

    def passed_on(self, node: ast.expr) -> list[ast.expr]:
        """The values that a value is without arithmetic on them."""
        if isinstance(node, ast.Call) and not is_load(node):
            value = converted(node)
            return rearranged(node) if value is None or is_bitcast(node) else [value]  # a bitcast: bits of any type
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.LShift, ast.RShift, ast.BitAnd)):
            return [node.left]
        if isinstance(node, ast.Subscript):
            return [node.value]
        return self.values(node) if isinstance(node, ast.Name) else []

    def loaded(self, node: ast.expr, *, handed: bool = False) -> Iterator[str]:
        """Parameters through which it is loaded what a value is made of; with `handed` also those that are part of it themselves."""
        for inner in self.inside(node):
            yield from self._loaded_through(inner, handed=handed)

    def _loaded_through(self, node: ast.expr, *, handed: bool) -> Iterator[str]:
        if isinstance(node, ast.Call) and is_load(node):
            pointer = argument(node, 0, "pointer")
            yield from self.roots(pointer) if pointer is not None else ()
        elif handed and isinstance(node, ast.Name) and self.is_parameter(node):
            yield node.id

    def inside(self, node: ast.expr) -> Iterator[ast.expr]:
        """What a value is made of, also before it was assigned to names."""
        return walk(node, lambda inner: self.values(inner) if isinstance(inner, ast.Name) else parts(inner))

    def counts(self, node: ast.expr) -> bool:
        """Whether a value is made of a program's number, a range, or what a loop counts."""
        return any(
            (isinstance(inner, ast.Call) and last_name(inner) in _COUNTS) or (isinstance(inner, ast.Name) and inner.id in self.counters)
            for inner in self.inside(node)
        )


def walk(node: ast.expr, behind: Callable[[ast.expr], list[ast.expr]]) -> Iterator[ast.expr]:
    """An expression and all that lies behind it, each once; loops that assign a name from itself end."""
    waiting, seen = [node], set[ast.expr]()
    while waiting:
        inner = waiting.pop()
        if inner not in seen:
            seen.add(inner)
            yield inner
            waiting += behind(inner)


def argument(call: ast.Call, place: int | None, *names: str) -> ast.expr | None:
    """The argument of a call at a place, or by one of its names; None: it is not given."""
    if place is not None and place < len(call.args):
        return call.args[place]
    return next((keyword.value for keyword in call.keywords if keyword.arg in names), None)


def stored_as(kinds: set[str]) -> str:
    """The type of a tensor by what a value is converted to as it is stored, `i8`; empty: that says nothing of it."""
    kind = next(iter(kinds)) if len(kinds) == 1 else ""
    return kind.replace("uint", "u").replace("int", "i").replace("float", "fp") if _INTEGERS_OR_BYTES.match(kind) else ""
