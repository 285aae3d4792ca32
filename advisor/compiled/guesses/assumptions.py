"""What is assumed of a launch: a record each, so that what follows from one never hangs on how it is worded; and strides nobody gave.

A real call passes 1 for one of a tensor's strides and multiples of 16 for the others. Compiled without either, loads are narrower than any
call's, nothing is copied asynchronously, and registers spill that never would.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from advisor.python_source.bindings import stores
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.literal_values import Symbol
from advisor.python_source.stride_use import STRIDE_NAME, possible_unit_strides
from advisor.system import grouped

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


OTHER_TYPES = "--element or --signature changes types"


def shown_together(assumptions: Sequence[Assumption]) -> list[str]:
    """The assumptions as shown to people: arguments of one type together, first, with the options that say otherwise."""
    names_by_type = grouped((f"{item.value}{item.note}", item.name) for item in assumptions if item.kind == "type")
    types = "; ".join(f"{', '.join(names)}: {kind}" for kind, names in names_by_type.items())
    return [*([f"{types} ({OTHER_TYPES})"] if types else ()), *(item.text for item in assumptions if item.kind != "type")]


def narrower_note(kind: str) -> str:
    """What is said of a guessed type that may be a narrower one; empty: it may not."""
    return f", of which the bound counts the bytes of {NARROWER[kind]}" if kind in NARROWER else ""


def shown_value(value: Any) -> str:
    """A guessed constant as shown to people."""
    return value.text if isinstance(value, Symbol) else repr(value)


INTEGERS = ("i32", "i64", "u32", "u64")
NOT_JUDGED = "so narrow-access is not judged"


def unknown_strides(signature: Mapping[str, str], known: Collection[str]) -> tuple[str, ...]:
    """Arguments that are strides by their names, and whose values are not given."""
    return tuple(name for name, kind in signature.items() if kind in INTEGERS and STRIDE_NAME.search(name) and name not in known)


def unit_strides(function: JitFunction, unknown: Sequence[str], given: Mapping[str, object]) -> tuple[str, ...]:
    """Of the strides that are not given those that are 1 where tensors are contiguous: of each tensor the last, by the names
    (`stride_am, stride_ak`).

    Not every kernel takes the last: one that a program's number is multiplied with (the stride of heads), or that stands beside a range
    without a stride, is another.
    """
    if not unknown:
        return ()
    possible, inside = possible_unit_strides(function.node), stores(function.node)
    strides = [parameter.name for parameter in function.parameters if STRIDE_NAME.search(parameter.name)]
    called = {name: name.rpartition("_")[0] for name in strides if name.rpartition("_")[0] in inside}  # `stride_qd = stride_qd_in`
    groups = grouped((_tensor(called.get(name, name)), name) for name in strides)
    last = {group[-1] for group in groups.values() if len(group) > 1 and not any(given.get(other) == 1 for other in group)}
    return tuple(name for name in unknown if name in last & possible)


def assumption(unit: Sequence[str], others: Sequence[str]) -> str:
    """What is taken for strides that are not given, in words."""
    parts = [f"{', '.join(unit)} = 1"] * bool(unit) + [f"{', '.join(others)} multiples of 16"] * bool(others)
    return f"{' and '.join(parts)}, as of contiguous tensors ({NOT_JUDGED})"


def launched(line: int, strides: Mapping[str, int | None]) -> str:
    """What is taken for the strides that a file's launch passes, in words.

    Args:
        line: Of the launch.
        strides: Those that it passes; None: not known, taken for multiples of 16.
    """
    multiples = [name for name, value in strides.items() if value is None]
    parts = [", ".join(f"{name} = {value}" for name, value in strides.items() if value is not None)] * (len(multiples) < len(strides))
    parts += [f"{', '.join(multiples)} multiples of 16 ({NOT_JUDGED})"] * bool(multiples)
    return f"contiguous tensors where line {line} passes strides: {' and '.join(parts)}"


def _tensor(name: str) -> str:
    """The tensor's part of a stride's name: `a` of `stride_am`, `x` of `x_stride_0` and `stride_x_row`."""
    rest = [part for part in re.split(r"_?strides?_?", name, flags=re.IGNORECASE) if part]
    text = rest[0] if rest else ""
    if len(rest) == 1 and "_" in text:
        return text.rsplit("_", 1)[0]
    return text if len(rest) > 1 else text[:-1]
