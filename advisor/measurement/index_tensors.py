"""Integer tensors that decide what a kernel does: the values loaded from them lead to an address, a mask, a bound or a branch.

Such a kernel, launched on other values, is another launch: on zeros, a fused MoE has no token and ends at once. What is only data
(quantized operands, outputs) may hold anything. Told from the kernel's syntax tree, in doubt for deciding: what a helper is given
counts as in all that it returns, and a name counts from its first line to its last.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator

COUNTS = frozenset({"atomic_add", "atomic_and", "atomic_max", "atomic_min", "atomic_or", "atomic_xor"})
"""What changes the values of a tensor, and gives those of before."""

LOADS = frozenset({"load", "gather"}) | COUNTS
"""What gives the values of a tensor. Not `atomic_cas` and `atomic_xchg`: they are for locks, and what a lock holds at rest is zero."""

METHODS = frozenset({"gather", "scatter"})
"""Operations that go somewhere as methods of a tensor descriptor only: `tl.gather` picks from what is loaded already."""

FACTS = frozenset({"dtype", "type", "shape", "block_shape", "strides"})
"""Attributes of a tensor that are the same whatever it holds, and no address in it."""

STEERED: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "load": ((0, 1), ("pointer", "mask", "offsets")),
    "store": ((0, 2), ("pointer", "mask", "offsets")),
    "gather": ((0, 1), ("x_offsets", "y_offset")),
    "scatter": ((1, 2), ("x_offsets", "y_offset")),
    "atomic_cas": ((0,), ("pointer",)),
    **{f"atomic_{name}": ((0, 2), ("pointer", "mask")) for name in ("add", "and", "max", "min", "or", "xor", "xchg")},
    **dict.fromkeys(("make_block_ptr", "advance", "make_tensor_descriptor"), ((0, 1, 2, 3, 4), ("base", "shape", "strides", "offsets"))),
}
"""Operations that go where they are told: positions and names of the arguments that tell."""


def deciding(modules: Iterable[str], kernel: str, tensors: Iterable[str]) -> list[str]:
    """The tensors of a kernel whose values decide what it does.

    Args:
        modules: Sources of the kernel and of all that it calls.
        kernel: Its name.
        tensors: Names of the arguments to look at.
    """
    functions, imported = _defined(modules)
    reader = _Reader(functions, imported, LOADS)
    # A counter that is put back to zero rests at zero, as a lock does.
    of_counters = _Reader(functions, imported, LOADS - COUNTS)
    return [
        name
        for name in tensors
        if (of_counters if reader.resets(kernel, frozenset({name})) else reader).decides(kernel, frozenset({name}), frozenset())
    ]


def holding_addresses(modules: Iterable[str], kernel: str, tensors: Iterable[str]) -> list[str]:
    """The tensors of a kernel whose values are cast to pointers: what they hold is of one run of one program."""
    reader = _CastReader(*_defined(modules), LOADS)
    return [name for name in tensors if reader.decides(kernel, frozenset({name}), frozenset())]


def _defined(modules: Iterable[str]) -> tuple[dict[str, list[ast.FunctionDef]], set[str]]:
    """The functions of sources by name, and the names that they import."""
    functions: dict[str, list[ast.FunctionDef]] = {}
    aliases: list[ast.alias] = []
    imported: set[str] = set()
    for node in (node for text in modules for node in ast.walk(ast.parse(text))):
        if isinstance(node, ast.FunctionDef):
            functions.setdefault(node.name, []).append(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            aliases += [alias for alias in node.names if alias.asname]
            imported |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    functions |= {str(alias.asname): functions[alias.name] for alias in aliases if alias.name in functions}
    return functions, imported


class _Reader:
    """Follows addresses of a tensor, and the values loaded from it, through functions.

    `imported` are the names of modules (and of what comes out of them), `loads` those of operations that give values.
    """

    def __init__(self, functions: dict[str, list[ast.FunctionDef]], imported: set[str], loads: frozenset[str]) -> None:
        self.functions = functions
        self.imported = imported
        self.loads = loads
        self.known: dict[tuple[str, frozenset[str], frozenset[str]], bool] = {}
        self.resetting: dict[tuple[str, frozenset[str]], bool] = {}
        self.loading: dict[str, bool] = {}

    def decides(self, name: str, pointers: frozenset[str], values: frozenset[str]) -> bool:
        """Whether a function goes by the tensor, where some of its arguments are addresses in it, or values from it."""
        key = (name, pointers, values)
        if key not in self.known:
            self.known[key] = False  # while it is looked at: a function that calls itself adds nothing of its own
            self.known[key] = any(self._decides(node, set(pointers), set(values)) for node in self.functions.get(name, ()))
        return self.known[key]

    def resets(self, name: str, pointers: frozenset[str]) -> bool:
        """Whether a function stores zero in the tensor, where some of its arguments are addresses in it."""
        key = (name, pointers)
        if key not in self.resetting:
            self.resetting[key] = False
            self.resetting[key] = any(self._resets(node, set(pointers)) for node in self.functions.get(name, ()))
        return self.resetting[key]

    def _resets(self, function: ast.FunctionDef, pointers: set[str]) -> bool:
        self._reach(function, pointers)
        for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
            name = _called(call)
            if name in self.functions:
                given = [frozenset(_given(call, each, lambda value: self._is_pointer(value, pointers))) for each in self.functions[name]]
                if any(self.resets(name, each) for each in given if each):
                    return True
            elif name in ("store", "atomic_xchg") and call.args and self._is_pointer(call.args[0], pointers):
                stored = [*call.args[1:2], *(keyword.value for keyword in call.keywords if keyword.arg in ("value", "val"))]
                if any(isinstance(value, ast.Constant) and value.value == 0 for value in stored):
                    return True
        return False

    def _loads(self, name: str) -> bool:
        """Whether a function, or one that it calls, loads anything: others only compute with what they are given."""
        if name not in self.loading:
            self.loading[name] = False
            calls = (_called(node) for each in self.functions[name] for node in ast.walk(each) if isinstance(node, ast.Call))
            self.loading[name] = any(each in self.loads or (each in self.functions and self._loads(each)) for each in calls)
        return self.loading[name]

    def _reach(self, function: ast.FunctionDef, pointers: set[str]) -> None:
        """Adds the names that are addresses too."""
        assigned = [pair for node in ast.walk(function) for pair in _assignments(node)]
        size = -1
        while size < len(pointers):
            size = len(pointers)
            for target, value in assigned:
                if self._is_pointer(value, pointers):
                    pointers |= _names(target)

    def _decides(self, function: ast.FunctionDef, pointers: set[str], values: set[str]) -> bool:
        assigned = [pair for node in ast.walk(function) for pair in _assignments(node)]
        self._reach(function, pointers)
        size = -1
        while size < len(values):  # until nothing more is reached: loops hand on from one turn to the next
            size = len(values)
            for target, value in assigned:
                if self._is_value(value, pointers, values):
                    values |= _names(target)
        return any(self._steers(node, pointers, values) for node in ast.walk(function))

    def _steers(self, node: ast.AST, pointers: set[str], values: set[str]) -> bool:
        """Whether a value of the tensor decides here."""
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            return self._is_value(node.test, pointers, values)
        if isinstance(node, ast.For):
            return self._is_value(node.iter, pointers, values)
        if not isinstance(node, ast.Call):
            return False
        if _called(node) in self.functions:
            name = _called(node)
            return any(
                self.decides(
                    name,
                    frozenset(_given(node, each, lambda value: self._is_pointer(value, pointers))),
                    frozenset(_given(node, each, lambda value: self._is_value(value, pointers, values))),
                )
                for each in self.functions[name]
            )
        return self._goes_by(node, pointers, values)

    def _goes_by(self, node: ast.Call, pointers: set[str], values: set[str]) -> bool:
        """Whether an operation of Triton's goes where a value of the tensor tells it."""
        name = _called(node)
        if name in METHODS and not self._is_method(node.func):
            return False
        positions, keywords = STEERED.get(name, ((), ()))
        told = [value for place, value in enumerate(node.args) if place in positions]
        told += [keyword.value for keyword in node.keywords if keyword.arg in keywords]
        if name in STEERED and isinstance(node.func, ast.Attribute):  # desc.load(offsets)
            told.append(node.func.value)
        return any(self._is_value(value, pointers, values) for value in told)

    def _is_method(self, function: ast.expr) -> bool:
        """Whether what is called is a value's attribute, and not a module's."""
        owner = function
        while isinstance(owner, ast.Attribute):
            owner = owner.value
        return isinstance(function, ast.Attribute) and not (isinstance(owner, ast.Name) and owner.id in self.imported)

    def _is_pointer(self, node: ast.AST, pointers: set[str]) -> bool:
        """Whether an expression is an address in the tensor (or its descriptor)."""
        if isinstance(node, ast.Name):
            return node.id in pointers
        if _is_fact(node) or (isinstance(node, ast.Call) and _called(node) in LOADS):
            return False
        return any(self._is_pointer(child, pointers) for child in ast.iter_child_nodes(node))

    def _is_value(self, node: ast.AST, pointers: set[str], values: set[str]) -> bool:
        """Whether an expression depends on what the tensor holds."""
        if isinstance(node, ast.Name):
            return node.id in values
        if _is_fact(node):
            return False
        inner = list(ast.iter_child_nodes(node))
        name = _called(node) if isinstance(node, ast.Call) else ""
        reads = name in self.loads or (name in self.functions and self._loads(name))
        return (reads and any(self._is_pointer(child, pointers) for child in inner)) or any(
            self._is_value(child, pointers, values) for child in inner
        )


class _CastReader(_Reader):
    """Looks for casts of values to pointers, and for nothing else."""

    def _steers(self, node: ast.AST, pointers: set[str], values: set[str]) -> bool:
        return isinstance(node, ast.Call) and super()._steers(node, pointers, values)

    def _goes_by(self, node: ast.Call, pointers: set[str], values: set[str]) -> bool:
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        casts = any(isinstance(each, ast.Call) and _called(each) == "pointer_type" for each in given)
        return casts and any(self._is_value(each, pointers, values) for each in (node.func, *given))


def _called(call: ast.Call) -> str:
    """The last name of what is called: `load` of tl.load and of desc.load."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else call.func.id if isinstance(call.func, ast.Name) else ""


def _is_fact(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in FACTS


def _names(target: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(target) if isinstance(node, ast.Name)}


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
