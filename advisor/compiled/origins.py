"""Where the values in a kernel come from: the parameters that they are loaded through, that addresses start from, or that they are
multiples of; an expression is followed through the names it was assigned to."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from advisor.compiled.value_flow import converted, is_load, last_name, parts
from advisor.configs.jit_function import JitFunction
from advisor.configs.literals import dotted

_COUNTS = frozenset({"program_id", "num_programs", "arange", "cdiv"})
_HINTS = frozenset({"multiple_of", "max_contiguous", "max_constancy", "assume"})
"""Calls that give what they are given, and tell the compiler something of it."""


class Origins:
    """Of one kernel. All that answers with names gives parameters."""

    def __init__(
        self, function: JitFunction, parameters: frozenset[str], address_of: Callable[[ast.Call], tuple[bool, ast.expr | None]]
    ) -> None:
        """`address_of` says of a call whether it is of a helper that is known, and which of its arguments is that helper's pointer."""
        self.node = function.node
        self.parameters = parameters
        self.address_of = address_of
        self.assigned: dict[str, list[ast.expr]] = {}
        self.counters = {n.target.id for n in ast.walk(self.node) if isinstance(n, ast.For) and isinstance(n.target, ast.Name)}
        for node in ast.walk(self.node):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    self._assign(target, node.value)
            elif isinstance(node, (ast.AnnAssign, ast.NamedExpr)) and node.value is not None and isinstance(node.target, ast.Name):
                self.assigned.setdefault(node.target.id, []).append(node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                before = ast.Name(id=node.target.id, ctx=ast.Load())
                sum_ = ast.BinOp(left=before, op=node.op, right=node.value)
                self.assigned.setdefault(node.target.id, []).append(ast.copy_location(sum_, node))

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self.assigned.setdefault(target.id, []).append(value)
        elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for inner, part in zip(target.elts, value.elts, strict=True):
                self._assign(inner, part)

    def roots(self, node: ast.expr, seen: frozenset[str] = frozenset()) -> list[str]:
        """Parameters that an address expression starts from."""
        if isinstance(node, ast.Name):
            if node.id in self.parameters and node.id not in self.assigned:
                return [node.id]
            if node.id in seen:
                return []
            out = [node.id] if node.id in self.parameters else []
            for value in self.assigned.get(node.id, ()):
                if not is_load(value):
                    out += self.roots(value, seen | {node.id})
            return out
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
            moved = any(isinstance(n, ast.Name) and n.id in seen for n in ast.walk(node.left))  # p = p + offset
            return self.roots(node.left, seen) or ([] if moved else self.roots(node.right, seen))
        if isinstance(node, ast.Call):
            name = dotted(node.func) or ""
            known, address = self.address_of(node)
            if known:
                return [] if address is None else self.roots(address, seen)
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "broadcast_to", "reshape", "trans", "permute"):
                return self.roots(node.func.value, seen)
            if node.args and name.rsplit(".", 1)[-1] in ("make_block_ptr", "advance", "broadcast_to", "cast", "multiple_of",
                                                          "max_contiguous", "where"):  # fmt: skip
                return self.roots(node.args[1 if name.endswith("where") and len(node.args) > 1 else 0], seen)
            return []
        if isinstance(node, (ast.Subscript, ast.Attribute, ast.Starred)):
            return self.roots(node.value, seen)
        if isinstance(node, ast.IfExp):
            return self.roots(node.body, seen) or self.roots(node.orelse, seen)
        return []

    def unchanged(self, node: ast.expr, seen: frozenset[str] = frozenset()) -> Iterator[str]:
        """Parameters through which a value is loaded that is what was loaded, or bits of it: no arithmetic was done on it.

        Also those that the value itself is: of a helper, which may be handed what was loaded.
        """
        if isinstance(node, ast.Call):
            if is_load(node):
                yield from self.roots(node.args[0]) if node.args else ()
            elif (inner := converted(node)) is not None and not any(k.arg == "bitcast" for k in node.keywords):  # bits of any type
                yield from self.unchanged(inner, seen)
        elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.LShift, ast.RShift, ast.BitAnd)):
            yield from self.unchanged(node.left, seen)
        elif isinstance(node, ast.Subscript):
            yield from self.unchanged(node.value, seen)
        elif isinstance(node, ast.Name) and node.id not in seen:
            if node.id in self.parameters:
                yield node.id
            for value in self.assigned.get(node.id, ()):
                yield from self.unchanged(value, seen | {node.id})

    def loaded(self, node: ast.expr, *, handed: bool = False, **what: bool) -> Iterator[str]:
        """Parameters through which it is loaded what a value is made of; with `handed` also those that are part of it themselves."""
        for inner in self.inside(node, **what):
            if isinstance(inner, ast.Call) and is_load(inner):
                yield from self.roots(inner.args[0]) if inner.args else ()
            elif handed and isinstance(inner, ast.Name) and inner.id in self.parameters:
                yield inner.id

    def inside(self, node: ast.expr, **what: bool) -> Iterator[ast.expr]:
        """What a value is made of, also before it was assigned to names; `what` counts is for `parts`."""
        open_, seen = [node], set()
        while open_:
            inner = open_.pop()
            yield inner
            if not isinstance(inner, ast.Name):
                open_ += parts(inner, **what)
            elif inner.id not in seen:
                seen.add(inner.id)
                open_ += self.assigned.get(inner.id, ())

    def counts(self, node: ast.expr) -> bool:
        """Whether a value is made of a program's number, a range, or what a loop counts."""
        return any(
            (isinstance(inner, ast.Call) and last_name(inner) in _COUNTS) or (isinstance(inner, ast.Name) and inner.id in self.counters)
            for inner in self.inside(node)
        )

    def coordinate(self, node: ast.expr, depth: int = 0) -> list[str]:
        """Parameters that a coordinate is a multiple of: factors of its products, and steps of the loop it counts."""
        names = []
        for inner in ast.walk(node):
            if not isinstance(inner, ast.Name):
                continue
            if inner.id in self.parameters:
                names.append(inner.id)
            elif depth < 3:
                for value in (_without_hints(each) for each in self.assigned.get(inner.id, ())):
                    if isinstance(value, ast.BinOp):
                        names += self.coordinate(value, depth + 1)
                for loop in ast.walk(self.node):
                    if isinstance(loop, ast.For) and isinstance(loop.target, ast.Name) and loop.target.id == inner.id:
                        steps = loop.iter.args[2:3] if isinstance(loop.iter, ast.Call) else []
                        for step in steps:
                            names += self.coordinate(step, depth + 1)
        return names


def _without_hints(node: ast.expr) -> ast.expr:
    """An expression without conversions and without what tells the compiler something of it."""
    while isinstance(node, ast.Call):
        inner = converted(node)
        if inner is None and last_name(node) in _HINTS and node.args:
            inner = node.args[0]
        if inner is None:
            break
        node = inner
    return node
