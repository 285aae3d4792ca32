"""The sentences that users read, from one file: `reports/phrases.toml`. Code passes a key and numbers; the file holds the words."""

from __future__ import annotations

import tomllib
from functools import cache
from typing import Any

from advisor.system.resources import folder


@cache
def phrases() -> dict[str, str | dict[str, str]]:
    """Every phrase by its key, `verdict.unsized`; a phrase that depends on a count is a table with `one` and `many`."""
    text = (folder("reports") / "phrases.toml").read_text(encoding="utf-8")
    return {f"{section}.{name}": value for section, entries in tomllib.loads(text).items() for name, value in entries.items()}


def phrase(key: str, **values: Any) -> str:
    """The phrase of a key with its placeholders filled in; `count` chooses between `one` and `many`.

    Raises:
        KeyError: No phrase has the key, or a placeholder has no value.

    >>> phrase("note.not_measured")
    'No launch was measured: all times are predictions. Add --measured ROWS.csv to compare.'
    """
    template = phrases()[key]
    if isinstance(template, dict):
        template = template["one" if values["count"] == 1 else "many"]
    return template.format(**values)


def glossary() -> dict[str, str]:
    """The meaning of every term that reports use, by the term.

    >>> glossary()["bound"]
    'The shortest time that the peak rates of this GPU allow for this work.'
    """
    return {key.removeprefix("term."): str(value) for key, value in phrases().items() if key.startswith("term.")}
