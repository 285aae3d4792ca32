"""Errors of the advisor and the wording of messages: every error says what is wrong, what was got, the limit and the remedy."""

from __future__ import annotations


class AdvisorError(Exception):
    """Root of every error the advisor raises on purpose.

    Args:
        what: What is wrong, in one line, naming the file and the key where there is one.
        got: The value that was found, as its author would recognise it.
        limit: What would have been accepted.
        remedy: What to do about it.

    >>> import advisor
    >>> try:
    ...     advisor.load_gpu("H1000")
    ... except advisor.AdvisorError as error:
    ...     print(error.got)
    H1000
    """

    exit_code = 2
    longest_got = 120

    def __init__(self, what: str, got: object = None, limit: str | None = None, remedy: str | None = None) -> None:
        super().__init__(what, got, limit, remedy)
        self.what = what
        self.got = got
        self.limit = limit
        self.remedy = remedy

    def __str__(self) -> str:
        got = f"got {shorten(self.got, self.longest_got)}" if self.got is not None else ""
        expected = f"expected {self.limit}" if self.limit else ""
        return printable("; ".join([self.what, *filter(None, (got, expected, self.remedy))]))


class UsageError(AdvisorError):
    """The command line or a function's arguments do not make sense together (exit code 2)."""


class InputError(AdvisorError):
    """A file or value from outside cannot be read as what it claims to be (exit code 2)."""


class NotOursError(InputError):
    """A file is recognised, but as something the advisor does not handle (a sibling table, say); skipped with a word."""


class UnknownGpuError(UsageError):
    """No description of the GPU is known (exit code 2)."""


class MissingDependencyError(UsageError):
    """An optional package is needed and not installed; the remedy names the command that installs it."""


class MeasurementError(AdvisorError):
    """A measurement failed, or produced wrong output (exit code 3)."""

    exit_code = 3


class NoGpuError(AdvisorError):
    """No usable GPU is at hand, or two results cannot be compared (exit code 4)."""

    exit_code = 4


class NoSandboxError(AdvisorError):
    """A stranger's code is to be held, and this machine cannot (exit code 4)."""

    exit_code = 4


class NothingMatchedError(AdvisorError):
    """The selection is empty: nothing matched what was asked for (exit code 5)."""

    exit_code = 5


def printable(text: str) -> str:
    """The text in one line, without characters that would steer a terminal: file names and contents come from anyone."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\N{REPLACEMENT CHARACTER}" for c in text)


def shorten(value: object, limit: int = 120) -> str:
    """A one-line representation of a value from outside, cut to `limit` characters."""
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


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
