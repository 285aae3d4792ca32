"""Methods of texts that files put inline assembly together with: `template.format(register=i)`, `",".join(parts)`. Nothing else is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from string import Formatter
from typing import Any

from advisor.python_source.literals import MAX_ITEMS, NotLiteralError

METHODS = frozenset({"format", "join", "split", "replace", "strip", "lower", "upper"})


def call(owner: str, method: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> str | list[str]:
    """What a method of a text returns, of plain texts and numbers.

    Raises:
        NotLiteralError: Its arguments are of another kind, or the outcome would be too long.
    """
    if method == "format":
        return _format(owner, arguments, keywords)
    if method == "join" and len(arguments) == 1 and isinstance(arguments[0], (list, tuple)) and not keywords:
        parts = arguments[0]
        if all(isinstance(part, str) for part in parts):
            _check(sum(map(len, parts)) + len(owner) * len(parts))
            return owner.join(parts)
    elif not keywords and len(arguments) <= 2 and all(isinstance(argument, str) for argument in arguments):
        if method == "split" and len(arguments) <= 1 and arguments != [""]:
            return owner.split(*arguments)
        if method in ("lower", "upper") and not arguments:
            return getattr(owner, method)()
        if method == "strip" and len(arguments) <= 1:
            return owner.strip(*arguments)
        if method == "replace" and len(arguments) == 2:
            _check(len(owner) + (len(owner) + 1) * len(arguments[1]))
            return owner.replace(*arguments)
    raise NotLiteralError(f"a call of {method} is not a literal")


def _format(text: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> str:
    """`text.format(...)`; fields are plain names or numbers, for `{x.y}` and `{x:8}` do more than put a value in."""
    out: list[str] = []
    length = number = 0
    try:
        for literal, field, form, conversion in Formatter().parse(text):
            out.append(literal)
            if field is not None:
                if form or conversion or not (field == "" or field.isidentifier() or field.isdecimal()):
                    raise NotLiteralError("a formatted value is not a literal")
                value = keywords[field] if field.isidentifier() else arguments[int(field or number)]
                number += field == ""
                if not isinstance(value, (str, int)):
                    raise NotLiteralError("a formatted value is not a literal")
                out.append(str(value))
            length += sum(map(len, out[-2:]))
            _check(length)
    except (ValueError, KeyError, IndexError) as error:
        raise NotLiteralError(f"a text cannot be formatted: {error}") from None
    return "".join(out)


def _check(length: int) -> None:
    """Before a text is put together.

    Raises:
        NotLiteralError: It would be too long.
    """
    if length > MAX_ITEMS:
        raise NotLiteralError("a text too long")
