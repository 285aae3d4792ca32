"""What is assumed of a launch: a record each, so that what follows from one never hangs on how it is worded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from advisor.python_source.literal_values import Symbol

NARROWER = {"*i64": "*i32"}
"""What else a guess is likely to be, of fewer bytes: indices are of 64 bits in torch, and of 32 in what serving stacks keep of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumption:
    """One thing that is assumed.

    Attributes:
        kind: What it is of: the type of an argument, the value of a constant, or something else.
        name: Of the argument or the constant.
        value: The type or the value.
        note: What is said besides; of something else, all that is said.
    """

    kind: Literal["type", "constant", "other"] = "other"
    name: str = ""
    value: Any = None
    note: str = ""

    @property
    def text(self) -> str:
        """The assumption as shown to people."""
        if self.kind == "type":
            return f"{self.name}: {self.value}{self.note}"
        return f"{self.name} = {shown_value(self.value)}{self.note}" if self.kind == "constant" else self.note


def narrower_note(kind: str) -> str:
    """What is said of a guessed type that may be a narrower one; empty: it may not."""
    return f", of which the bound counts the bytes of {NARROWER[kind]}" if kind in NARROWER else ""


def shown_value(value: Any) -> str:
    """A guessed constant as shown to people."""
    return value.text if isinstance(value, Symbol) else repr(value)
