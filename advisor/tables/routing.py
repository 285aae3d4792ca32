"""A routing: which experts the tokens choose, by name or by how many token slots each expert got; its one reader and printer.

A file holds a JSON list, or plain text / CSV of integers, one per line or comma-separated, in the order of the experts.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from advisor.system.errors import InputError
from advisor.system.reading import read_text
from advisor.tables.names import SIZE_LIMIT

ROUTING_SIZE_LIMIT_BYTES = 4 * 1024 * 1024
EXPERT_LIMIT = 65_536
_REMEDY = "write one count per expert: [12, 7, …]"


RANDOM, BALANCED = -1.0, 0.0
"""What `Routing.exponent` is of routings that follow no power law."""

_POWER_LAW = re.compile(r"power_law[:_ ]?([0-9]*\.?[0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """One routing: `distribution` (random or power_law:A), or the token `slots` of every expert; balanced where it has neither.

    >>> str(Routing.read("Uniform")), str(Routing.read("power_law_1.2")), str(Routing.read("[3, 0, 5]"))
    ('balanced', 'power_law:1.2', '3 0 5')
    """

    distribution: str | None = None
    slots: tuple[int, ...] | None = None

    @classmethod
    def read(cls, text: str, where: str = "routing", experts: int | None = None) -> Routing:
        """A cell of a file or the value of an option: balanced (or uniform), random, power_law:A, or token slots per expert.

        Raises:
            InputError: It is none of these, or no slots of so many `experts`.
        """
        name = text.strip().lower()
        if name in ("balanced", "uniform"):
            return cls()
        if name == "random":
            return cls(distribution=name)
        if (match := _POWER_LAW.fullmatch(name)) and 0 < float(match[1]) < 10:
            return cls(distribution=f"power_law:{match[1]}")
        if name[:1].isalpha() or not name:
            raise InputError(where, text, "random, balanced, or power_law:A with A from 0 to 10; or token slots per expert", "correct it")
        return cls(slots=check_routing(_text_values(name.strip("[]")), experts, where, "correct the cell"))

    @classmethod
    def given(cls, value: Sequence[int] | str | os.PathLike[str]) -> Routing:
        """What a user gives: a name, token slots per expert, or a file of them.

        Raises:
            InputError: It is none of these.
        """
        if not isinstance(value, (str, os.PathLike)):
            return cls(slots=tuple(value))
        text = os.fspath(value)
        named = text.lower() in ("random", "balanced", "uniform") or text.lower().startswith("power_law")
        return cls.read(text, "--routing") if named and not Path(text).exists() else cls(slots=read_routing(value))

    @property
    def exponent(self) -> float:
        """`RANDOM`, `BALANCED`, or the exponent of a power law; of slots, as of a balanced routing."""
        if self.distribution is None:
            return BALANCED
        return RANDOM if self.distribution == "random" else float(self.distribution.partition(":")[2])

    def __str__(self) -> str:
        return self.distribution or (" ".join(map(str, self.slots)) if self.slots is not None else "balanced")


def read_routing(path: str | os.PathLike[str], E: int | None = None) -> tuple[int, ...]:
    """Token slots per expert.

    Args:
        path: The file.
        E: Experts the launch has; None: any number.

    Raises:
        InputError: Not a routing, or not one for E experts; names file, position, value, limit and remedy.
    """
    label = Path(path).name
    text = read_text(path, label, "a routing", ROUTING_SIZE_LIMIT_BYTES, encoding="utf-8").strip()
    values = _json_values(label, text) if text[:1] in ("[", "{") else _text_values(text)
    return check_routing(values, E, label)


def crowded(routing: Sequence[int], top_k: int) -> str | None:
    """A sentence on a routing that tokens of `top_k` experts each cannot give all experts of a layer; None: they can.

    A token takes an expert once, so that one of them gets M of the M * top_k slots at most, however they are scaled. Of the experts of one
    rank it may be more: the rest of a token's experts are elsewhere.
    """
    most = max(routing)
    if most * top_k <= sum(routing):
        return None
    return (
        f"Expert {routing.index(most)} has {most:,} of the {sum(routing):,} slots of the routing, more than 1/{top_k}: a token takes "
        f"each of its {top_k} experts once, so these can only be the counts of one rank's experts."
    )


def check_routing(values: Any, E: int | None, label: str = "routing", remedy: str = _REMEDY) -> tuple[int, ...]:
    """Validate token slots per expert: E non-negative integers, not all zero."""
    if not isinstance(values, (list, tuple)):
        raise InputError(f"{label}: not a routing", values, "a list of token slots per expert", remedy)
    if not values:
        raise InputError(f"{label}: the routing is empty", None, "one count per expert", remedy)
    if len(values) > EXPERT_LIMIT:
        raise InputError(f"{label}: too many experts", len(values), f"at most {EXPERT_LIMIT:,}", remedy)
    for expert, value in enumerate(values):
        if type(value) is not int or not 0 <= value < SIZE_LIMIT:
            raise InputError(f"{label}: expert {expert}", _shown(value), f"an integer from 0 to {SIZE_LIMIT - 1}", remedy)
    if E is not None and len(values) != E:
        raise InputError(f"{label}: {len(values)} experts, but the launch has E={E}", len(values), f"{E} counts", remedy)
    if not any(values):
        raise InputError(f"{label}: no expert has a token", "all zero", "at least one token slot", remedy)
    if sum(values) >= SIZE_LIMIT:
        raise InputError(f"{label}: too many token slots", sum(values), f"below {SIZE_LIMIT}", "scale them down")
    return tuple(values)


def _json_values(label: str, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(f"{label}: not valid JSON, line {error.lineno} column {error.colno}: {error.msg}", None, None, _REMEDY) from None
    except (ValueError, RecursionError):
        raise InputError(f"{label}: not a routing", None, "a list of token slots per expert", _REMEDY) from None


def _text_values(text: str) -> list[int | str]:
    """Integers from plain text; a first line that is a heading is left out, anything else is kept to be complained of."""
    tokens = [token for token in re.split(r"[\s,;]+", text) if token]
    values: list[int | str] = [int(t) if re.fullmatch(r"[0-9]{1,18}", t) else t for t in tokens]
    if values and isinstance(values[0], str) and re.fullmatch(r"[A-Za-z_][A-Za-z_ ]*", values[0]):
        values = values[1:]
    return values


def _shown(value: Any) -> str:
    try:
        return json.dumps(value)[:100]
    except (TypeError, ValueError, RecursionError):
        return type(value).__name__
