"""The values of the names of one function, while it is evaluated."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from advisor.compiled.ir import values
from advisor.compiled.ir.values import Value


@dataclass(slots=True)
class Environment:
    """The values of a function's names.

    Attributes:
        needed: The names that decide control flow, masks or addresses: no others are worked out.
        held: What each stands for now, by name.
    """

    needed: Set[str]
    held: dict[str, Value] = field(default_factory=dict)

    def value(self, name: str) -> Value:
        """The value of a name; unknown where it was not worked out."""
        found = self.held.get(name)
        return found if found is not None else values.unknown({"a value only known at run time"})

    def values(self, names: Iterable[str]) -> list[Value]:
        """The values of names, in their order."""
        return [self.value(name) for name in names]
