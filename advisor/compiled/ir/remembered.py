"""What was worked out of the arrays of masks and addresses, so that executions which share them share it too."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from numpy.typing import NDArray

Found = TypeVar("Found")


@dataclass(slots=True)
class Remembered:
    """Results by what they say of which arrays, which are told apart by their `id` and so must live as long."""

    _found: dict[tuple[Hashable, ...], Any] = field(default_factory=dict)
    _kept: list[Sequence[NDArray[Any]]] = field(default_factory=list)

    def recall(self, what: Hashable, work: Callable[[], Found], *groups: Sequence[NDArray[Any]]) -> Found:
        """The result of `work`, done once for the same arrays.

        Args:
            what: Names what is worked out, with all it depends on beside the arrays.
            work: Works it out.
            groups: The arrays, in the places in which it takes them.
        """
        key = (what, *(tuple(map(id, group)) for group in groups))
        if key not in self._found:
            self._found[key] = work()
            self._kept.extend(groups)
        return self._found[key]

    def forget(self) -> None:
        """Forget all, so that the arrays need not be kept."""
        self._found.clear()
        self._kept.clear()
