"""Members of a class of `enum` that a file defines."""

from __future__ import annotations

import pytest

from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import parse_source


def test_members_of_an_enumeration_are_evaluated_where_it_stands() -> None:
    text = "BLOCK = 64\nclass Size(IntEnum):\n    SMALL = BLOCK\ndef make(BLOCK):\n    return Size.SMALL.value + BLOCK\nA = make(1)\n"
    assert parse_source(text, "k.py").constant("A") == 65


def test_what_auto_counts_on_from_is_known_or_it_is_not() -> None:
    text = "class Kind(enum.Enum):\n    A = auto()\n    B = 5\n    C = enum.auto()\n    D = ask()\n    E = auto()\n"
    source = parse_source(text + "X = (Kind.A.value, Kind.C.value)\nY = Kind.E.value\n", "k.py")
    assert source.constant("X") == (1, 6)
    with pytest.raises(NotLiteralError):
        source.constant("Y")
