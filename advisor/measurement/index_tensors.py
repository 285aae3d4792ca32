"""Integer tensors that decide what a kernel does: the values loaded from them lead to an address, a mask, a bound or a branch.

Such a kernel, launched on other values, is another launch: on zeros, a fused MoE has no token and ends at once. What is only data
(quantized operands, outputs) may hold anything. Told from the kernel's syntax tree, in doubt for deciding: what a helper is given
counts as in all that it returns, and a name counts from its first line to its last.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

LOADS = frozenset({"load", "gather", "atomic_add", "atomic_and", "atomic_max", "atomic_min", "atomic_or", "atomic_xor"})
"""What gives the values of a tensor. Not `atomic_cas` and `atomic_xchg`: they are for locks, and what a lock holds at rest is zero."""

STEERED: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "load": ((0, 1), ("pointer", "mask", "offsets")),
    "store": ((0, 2), ("pointer", "mask", "offsets")),
    "gather": ((0, 1), ("x_offsets", "y_offset")),
    "scatter": ((1, 2), ("x_offsets", "y_offset")),
    "atomic_cas": ((0,), ("pointer",)),
    **{f"atomic_{name}": ((0, 2), ("pointer", "mask")) for name in ("add", "and", "max", "min", "or", "xor", "xchg")},
    **dict.fromkeys(("make_block_ptr", "advance", "make_tensor_descriptor"), ((0, 1, 2, 3, 4), ("base", "shape", "strides", "offsets"))),
}  # fmt: skip
"""Operations that go where they are told: positions and names of the arguments that tell."""


def deciding(modules: Iterable[str], kernel: str, tensors: Iterable[str]) -> list[str]:
    """Of a kernel's tensors, those whose values decide what it does.

    Args:
        modules: Sources of the kernel and of all that it calls.
        kernel: Its name.
        tensors: Names of the arguments to look at.
    """
    functions: dict[str, list[ast.FunctionDef]] = {}
    aliases: list[ast.alias] = []
    for node in (node for text in modules for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.ImportFrom):
            aliases += [alias for alias in node.names if alias.asname]
    functions |= {str(alias.asname): functions[alias.name] for alias in aliases if alias.name in functions}
    reader = _Reader(functions)
    return [name for name in tensors if reader.decides(kernel, frozenset({name}), frozenset())]


class _Reader:
    """Follows addresses of a tensor, and the values loaded from it, through functions."""

    def __init__(self, functions: dict[str, list[ast.FunctionDef]]) -> None:
        self.functions = functions
        self.known: dict[tuple[str, frozenset[str], frozenset[str]], bool] = {}

    def decides(self, name: str, pointers: frozenset[str], values: frozenset[str]) -> bool:
        """Whether a function goes by the tensor, where some of its arguments are addresses in it, or values from it."""
        key = (name, pointers, values)
        if key not in self.known:
            self.known[key] = False  # while it is looked at: a function that calls itself adds nothing of its own
            self.known[key] = any(self._decides(node, set(pointers), set(values)) for node in self.functions.get(name, ()))
        return self.known[key]

    def _decides(self, function: ast.FunctionDef, pointers: set[str], values: set[str]) -> bool:
        assigned = [pair for node in ast.walk(function) for pair in _assignments(node)]
        size = -1
        while size < len(pointers) + len(values):  # until nothing more is reached: loops hand on from one turn to the next
            size = len(pointers) + len(values)
            for target, value in assigned:
                names = {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}
                pointers |= names if self._is_pointer(value, pointers) else set()
                values |= names if self._is_value(value, pointers, values) else set()
        return any(self._steers(node, pointers, values) for node in ast.walk(function))

    def _steers(self, node: ast.AST, pointers: set[str], values: set[str]) -> bool:
        """Whether a value of the tensor decides here."""
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            return self._is_value(node.test, pointers, values)
        if isinstance(node, ast.For):
            return self._is_value(node.iter, pointers, values)
        if not isinstance(node, ast.Call):
            return False
        name = _called(node)
        if name in self.functions:
            return any(
                self.decides(name, frozenset(_given(node, each, lambda value: self._is_pointer(value, pointers))),
                             frozenset(_given(node, each, lambda value: self._is_value(value, pointers, values))))
                for each in self.functions[name]
            )  # fmt: skip
        positions, keywords = STEERED.get(name, ((), ()))
        told = [value for place, value in enumerate(node.args) if place in positions]
        told += [keyword.value for keyword in node.keywords if keyword.arg in keywords]
        if name in STEERED and isinstance(node.func, ast.Attribute):  # desc.load(offsets)
            told.append(node.func.value)
        return any(self._is_value(value, pointers, values) for value in told)

    def _is_pointer(self, node: ast.AST, pointers: set[str]) -> bool:
        """Whether an expression is an address in the tensor (or its descriptor)."""
        if isinstance(node, ast.Name):
            return node.id in pointers
        if isinstance(node, ast.Call) and _called(node) in LOADS:
            return False
        return any(self._is_pointer(child, pointers) for child in ast.iter_child_nodes(node))

    def _is_value(self, node: ast.AST, pointers: set[str], values: set[str]) -> bool:
        """Whether an expression depends on what the tensor holds."""
        if isinstance(node, ast.Name):
            return node.id in values
        inner = list(ast.iter_child_nodes(node))
        reads = isinstance(node, ast.Call) and (_called(node) in LOADS or _called(node) in self.functions)
        return (reads and any(self._is_pointer(child, pointers) for child in inner)) or any(
            self._is_value(child, pointers, values) for child in inner
        )


def _called(call: ast.Call) -> str:
    """The last name of what is called: `load` of tl.load and of desc.load."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def _given(call: ast.Call, function: ast.FunctionDef, holds: Callable[[ast.AST], bool]) -> Iterator[str]:
    """Parameters of a function whose argument in a call is of a kind; all of them, where the call does not say which is which."""
    parameters = [each.arg for each in (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)]
    for place, value in enumerate(call.args):
        if isinstance(value, ast.Starred) and holds(value):
            yield from parameters
        elif place < len(parameters) and holds(value):
            yield parameters[place]
    for keyword in call.keywords:
        if holds(keyword.value):
            yield from parameters if keyword.arg is None else (keyword.arg,)


def _assignments(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """(target, value) of what a statement assigns; of `a, b = x, y` each by itself."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple) and len(target.elts) == len(node.value.elts):
                yield from zip(target.elts, node.value.elts, strict=True)
            else:
                yield target, node.value
    elif isinstance(node, (ast.AugAssign, ast.NamedExpr)) or (isinstance(node, ast.AnnAssign) and node.value is not None):
        yield node.target, node.value  # type: ignore[misc]
    elif isinstance(node, ast.For):
        yield node.target, node.iter
