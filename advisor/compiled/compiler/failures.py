"""Why a compilation failed, in one line. Part of the worker: needs the standard library only."""

from __future__ import annotations

import re
from collections.abc import Iterator

LONGEST = 400
PLACE = re.compile(r"line (\d+) from `def (\w+)`")
"""Where in a kernel something failed, as `reason` says it."""


def reason(error: BaseException) -> str:
    """Why it failed, in one line: triton's innermost message, without the source it prints around it."""
    where = ""
    for cause in causes(error):
        # Triton prints "at line:column: source of the function ... ^ message": the message is what follows the caret.
        function = re.search(r"^\s*def (\w+)", str(getattr(cause, "src", "")), re.MULTILINE)
        line = getattr(getattr(cause, "node", None), "lineno", None)
        where = f"line {line} from `def {function[1]}`: " if function and line else where
    first = innermost(error)
    text = str(first) or str(error)
    text = re.split(r"\^(?:\n|$)", text)[-1] if re.match(r"at \d+:\d+:", text) else text
    text = re.sub(r" at 0x[0-9a-f]+\b", "", " ".join(text.split()))[:LONGEST]  # another in every process
    return f"{where}{type(first).__name__}{': ' * bool(text)}{text}"  # where first: what is too long is cut at its end


def place(error: BaseException) -> str:
    """Where in a kernel it failed, as `reason` begins with it; "": nowhere in one."""
    return found[0] if (found := re.match(rf"{PLACE.pattern}: ", reason(error))) else ""


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error, what it was raised from, what that was raised from, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def innermost(error: BaseException) -> BaseException:
    """The error that all of it began with."""
    return list(causes(error))[-1]
