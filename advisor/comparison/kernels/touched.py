"""What a change touches of a kernel: its lines, and the constants under which the compiler sees them."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Any

from advisor.comparison.kernels.kernel_version import KernelVersion
from advisor.python_source.language import dotted


@dataclass(frozen=True, slots=True)
class Line:
    """A statement, or the head of a block, and the conditions that it stands under, each with what it has to be; of the head of an `if`
    also what has to come of it for a change of it to show."""

    text: str
    node: ast.AST
    under: tuple[tuple[ast.expr, bool], ...]
    shown_where: bool = True


@dataclass(frozen=True, slots=True)
class Touched:
    """What a change touches of a kernel: the lines of the head, and the flags that each line of either side stands under."""

    lines: frozenset[int]
    under: tuple[Mapping[str, Any], ...]

    def flags(self, known: Mapping[str, Any]) -> Mapping[str, Any]:
        """The flags that let the compiler see most of what it does not with those that are known."""
        unseen = [flags for flags in self.under if any(known.get(name) != value for name, value in flags.items())] or list(self.under)
        often = Counter((name, value) for flags in unseen for name, value in flags.items() if known.get(name) != value)
        most: Mapping[str, Any] = {name: value for (name, value), count in often.items() if 2 * count > len(unseen)}
        return most or min(unseen, key=len, default={})


def touched(old: KernelVersion, new: KernelVersion) -> Touched:
    """The lines that only one version has, of the kernel and of the helpers of its file."""
    sides = [
        list(_lines(version.function.node.body, (), {name: nodes[-1] for name, nodes in version.source.definitions.items() if nodes}))
        for version in (old, new)
    ]
    fresh: tuple[list[Line], ...] = ([], [])
    for side, (lines, others) in enumerate((sides, sides[::-1])):
        alone = _alone([line.text for line in lines], [line.text for line in others])
        for place, line in enumerate(lines):
            if place in alone:
                fresh[side].append(line)
            elif fresh[side] and line.under and getattr(fresh[side][-1].node, "value", None) is line.under[-1][0]:  # what was there before
                fresh[side][-1] = replace(fresh[side][-1], shown_where=not line.under[-1][1])
    both = old.function.constants & new.function.constants
    sets = [flags for line in fresh[1] if (flags := _flags([line], new.function.constants))]
    sets += [flags for line in fresh[0] if (flags := _flags([line], both))]
    return Touched(lines=frozenset(getattr(line.node, "lineno", 0) for line in fresh[1]), under=tuple(sets))


def _alone(lines: Sequence[str], others: Sequence[str]) -> set[int]:
    """The places of lines that one version has more often than the other; of several alike those that stand between others than there."""
    left = Counter(lines) - Counter(others)
    blocks = SequenceMatcher(None, others, lines, autojunk=False).get_opcodes() if left else ()
    put_in = {place for word, _, _, start, end in blocks if word != "equal" for place in range(start, end)}
    alone = set()
    for place in sorted(range(len(lines)), key=lambda place: place not in put_in):
        if left[lines[place]] > 0:
            left[lines[place]] -= 1
            alone.add(place)
    return alone


def of_stores(old: KernelVersion, new: KernelVersion) -> Mapping[str, Any]:
    """The flags that let a kernel store what it works out."""
    stores = [
        line
        for line in _lines(new.function.node.body, (), {})
        if any(name.rsplit(".", 1)[-1] == "store" or ".atomic_" in name for name in _called(line.node))
    ]
    return _flags(stores, new.function.constants)


def _called(node: ast.AST) -> Iterator[str]:
    return (name for inner in ast.walk(node) if isinstance(inner, ast.Call) and (name := dotted(inner.func)))


def _lines(body: Sequence[ast.stmt], under: tuple[tuple[ast.expr, bool], ...], helpers: dict[str, ast.FunctionDef]) -> Iterator[Line]:
    """The lines of a block, and behind the first call of each helper the helper's, under what the call stands under."""
    for node in body:
        if isinstance(node, ast.If):
            yield Line(f"if {ast.unparse(node.test)}", ast.copy_location(ast.Expr(node.test), node), under)
            yield from _lines(node.body, (*under, (node.test, True)), helpers)
            yield from _lines(node.orelse, (*under, (node.test, False)), helpers)
            if isinstance(node.body[-1], ast.Return):  # what follows runs where it does not return
                under = (*under, (node.test, False))
        elif isinstance(node, ast.For | ast.While | ast.With):
            head = [node.target, node.iter] if isinstance(node, ast.For) else [node.test] if isinstance(node, ast.While) else []
            yield Line(" ".join(map(ast.unparse, head)), ast.copy_location(ast.Expr(head[-1] if head else ast.Constant(0)), node), under)
            yield from _lines(node.body, under, helpers)
        elif not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            yield Line(ast.unparse(node), node, under)
            for helper in [helpers.pop(name) for name in _called(node) if name in helpers]:
                yield from _lines(helper.body, under, helpers)


def _flags(lines: Collection[Line], constants: Collection[str]) -> dict[str, Any]:
    """Values of constants with which all conditions hold that lines stand under, as far as they do not contradict each other."""
    flags: dict[str, Any] = {}
    for line in lines:
        choices = [(node.test, True) for node in ast.walk(line.node) if isinstance(node, ast.IfExp)]
        tested = [(line.node.value, line.shown_where)] if isinstance(line.node, ast.Expr) else []
        for test, truth in (*line.under, *choices, *tested):
            for name, value in _holding(test, truth):
                if name in constants:
                    flags.setdefault(name, value)
    return flags


_ABOVE: Mapping[type[ast.cmpop], Callable[[Any], Any]] = {
    ast.Eq: lambda value: value,
    ast.Is: lambda value: value,
    ast.Gt: lambda value: value + 1,
    ast.GtE: lambda value: value,
    ast.Lt: lambda value: value - 1,
    ast.LtE: lambda value: value,
}
"""A value for which a comparison with a constant holds."""
_CONTRARY: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.NotEq: ast.Eq,
    ast.IsNot: ast.Is,
    ast.Gt: ast.LtE,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.LtE: ast.Gt,
}


def _holding(test: ast.expr, truth: bool) -> Iterator[tuple[str, Any]]:
    """Constants with which a condition is true, or is not."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _holding(test.operand, not truth)
    elif isinstance(test, ast.BoolOp):
        parts = test.values if isinstance(test.op, ast.And) is truth else test.values[-1:]
        for part in parts:
            yield from _holding(part, truth)
    elif isinstance(test, ast.Name):
        yield test.id, truth
    elif isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.left, ast.Name):
        other, kind = test.comparators[0], type(test.ops[0])
        solved = _ABOVE.get(kind if truth else _CONTRARY.get(kind, ast.In))
        if isinstance(other, ast.Constant) and solved is not None and (isinstance(other.value, int | float) or kind in (ast.Eq, ast.NotEq)):
            yield test.left.id, solved(other.value)
