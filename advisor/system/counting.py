"""Numbers of things in words, so that one of them reads as one: `1 row`, `2 rows`, `1 of 4 launches has`."""

from __future__ import annotations


def several(count: int, noun: str) -> str:
    """`1 row`, `2 rows`, `0 launches`."""
    return f"{count} {noun if count == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """`rows`, `launches`, `entries`."""
    if noun.endswith("y"):
        return f"{noun.removesuffix('y')}ies"
    return f"{noun}{'es' if noun.endswith(('ch', 's', 'x')) else 's'}"


def part(count: int, whole: int, noun: str) -> str:
    """`the launch` for one of one, else `1 of 4 launches`; the verb after it goes with `count` (`agree`)."""
    return f"the {noun}" if whole == count == 1 else f"{count} of {whole} {noun if whole == 1 else plural(noun)}"


def agree(count: int, one: str, more: str) -> str:
    """The verb that goes with a number of things: `has`, `have`."""
    return one if count == 1 else more
