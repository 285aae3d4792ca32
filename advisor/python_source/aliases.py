"""Changes of a list through a second name: after `a = configs`, `a.append(...)` changes what `configs` stands for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A statement that decides what a name stands for.

    Attributes:
        statement: The statement.
        name: The name it does so by: the one asked for, or a second one.
        certain: Whether that name is certain to stand for the same value.
    """

    statement: ast.stmt
    name: str
    certain: bool = True


@dataclass(frozen=True, slots=True)
class Aliases:
    """The second names that a block gives, as (second name, first name), by statement.

    Attributes:
        plain: Given by a statement of the block itself.
        nested: Given somewhere within it: in a branch, or a loop.
    """

    plain: Mapping[int, Sequence[tuple[str, str]]]
    nested: Mapping[int, Sequence[tuple[str, str]]]

    @classmethod
    def of(cls, body: Sequence[ast.stmt]) -> Aliases:
        """Those of a block."""
        plain, nested = {}, {}
        for statement in body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                continue
            if own := tuple(_given(statement)):
                plain[id(statement)] = own
            elif not isinstance(statement, ast.Assign) and (inner := tuple(p for n in ast.walk(statement) for p in _given(n))):
                nested[id(statement)] = inner
        return cls(plain, nested)

    def connected(self, name: str) -> set[str]:
        """The names that may stand for the same value as `name` somewhere in the block, itself among them."""
        pairs = [pair for given in (*self.plain.values(), *self.nested.values()) for pair in given]
        found: set[str] = set()
        waiting = {name}
        while waiting:
            found |= waiting
            waiting = {each for pair in pairs if found & set(pair) for each in pair} - found
        return found

    def events(
        self,
        name: str,
        touching: Mapping[str, Sequence[ast.stmt]],
        end: tuple[float, int],
        rebinds: Callable[[ast.stmt, str], bool],
        touched_by: Callable[[ast.stmt], Iterable[str]],
    ) -> list[Event]:
        """What decides a name before a place, in order, from where it was last assigned on: what stood before does not matter.

        Args:
            name: The name.
            touching: Statements of the block by the names they assign or change, in order.
            end: Line and column of the place.
            rebinds: Whether a statement gives a name another value, whatever it was before.
            touched_by: Names that a statement assigns or changes.
        """

        def changed(statement: ast.stmt, each: str) -> bool:
            """Whether the value of a name is changed by a statement or within it, and the name not only given another value."""
            inner = [n for n in ast.walk(statement) if isinstance(n, ast.stmt)]
            if len(inner) == 1 or isinstance(statement, ast.For):
                return True
            return any(changed(n, each) for n in inner[1:] if not rebinds(n, each) and each in touched_by(n))

        names = self.connected(name) if self.plain or self.nested else {name}
        statements = {id(s): s for each in names for s in touching.get(each, ()) if (s.lineno, s.col_offset) < end}
        certain, possible = {name}, set[str]()
        found: list[Event] = []
        for statement in sorted(statements.values(), key=lambda s: (s.lineno, s.col_offset)):
            touched = {each for each in names if any(s is statement for s in touching.get(each, ()))}
            rebound = {each for each in touched if rebinds(statement, each)}
            plain = self.plain.get(id(statement), ())
            for pair in self.nested.get(id(statement), ()):
                if (certain | possible) & set(pair):
                    possible |= set(pair) - certain
            if name in rebound:
                certain = {name} | {each for pair in plain if name in pair for each in pair}
                possible = names - certain if len(certain) > 1 else set()  # what the other name shared its value with before
                found = [Event(statement=statement, name=name)]
                continue
            certain, possible = certain - rebound, possible - rebound
            for new, old in plain:
                if old in certain:
                    certain.add(new)
                elif old in possible:
                    possible.add(new)
            found += [
                Event(statement=statement, name=each, certain=each in certain)
                for each in sorted(touched - rebound)
                if each == name or (each in certain | possible and changed(statement, each))
            ]
        return found


def _given(node: ast.AST) -> Iterator[tuple[str, str]]:
    """The second names of `a = b` and of `a = b = value`."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and isinstance(node.value, ast.Name):
        yield node.target.id, node.value.id
    if isinstance(node, ast.Assign):
        targets = [target.id for target in node.targets if isinstance(target, ast.Name)]
        first = node.value.id if isinstance(node.value, ast.Name) else targets[0] if targets else ""
        yield from ((target, first) for target in targets if target != first)
