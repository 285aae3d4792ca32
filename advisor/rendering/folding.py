"""Lines laid out for a terminal that is narrower than they are: continued below, indented, and never broken within a figure."""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from typing import TextIO

from rich.cells import cell_len
from rich.text import Text

CONTINUED = 4  # columns that a continuation is indented more than its line
_COLUMNS_APART = 2  # blanks from which on a gap lies between columns, not between words
_FULL_ENOUGH = 0.4  # share of the width that a line must fill to be broken between columns rather than between words

_FIGURE = re.compile(r"[(~±−+<>≤≥-]*\d([\d.,/+−–-]*\d)?x?\Z")
_BEGINS = re.compile(r"[(~±−+<>≤≥-]*\d")
_WORD = re.compile(r"[^\W\d_]+\Z")
_UNITS = ("µs", "us", "%")
_JOINTS = ("=", "->", "→")
_MARKS = ("!", "?", ">", "*")
_ENTRY = re.compile(r" +\S+(?: \S+)* {2,}(?=\S)")


def width_of(stream: TextIO) -> int | None:
    """Columns of the terminal that a stream writes to; None where it is none, or does not say (a pipe gets lines as they are)."""
    try:
        terminal = stream.isatty()
    except (AttributeError, ValueError):
        return None
    return (shutil.get_terminal_size(fallback=(0, 0)).columns or None) if terminal else None


def fold(line: Text, width: int, continued: int = CONTINUED) -> list[Text]:
    """The line, or the lines that it becomes where it is wider than `width` columns; those after the first `continued` columns further in.

    Broken between columns if that fills enough of the line, else between words; a number stays with its unit, its interval and the word
    before it that says what it is. What has no place to break (a path, say) is left to the terminal.
    """
    plain = line.plain
    if cell_len(plain) <= width:
        return [line]
    indent = min(len(plain) - len(plain.lstrip(" ")) + continued, width // 4)
    pieces = list(_pieces(plain, width, indent))
    return [Text(" " * (indent if start else 0)).append_text(line[start:end]) for start, end in pieces]


def reflow(prose: str, width: int) -> str:
    """Prose of lines that were broken by hand, broken anew where one is wider than `width` columns.

    Blank lines, headings (`#`) and indented lines stay lines of their own; what an indented line says behind a gap (`  name   what it is`)
    goes on, in lines that begin in the same column, below itself.
    """
    if all(cell_len(line) <= width for line in prose.splitlines()):
        return prose
    paragraphs: list[str] = []
    begins = True
    for line in prose.splitlines():
        if paragraphs and _goes_on(paragraphs[-1], line):
            paragraphs[-1] += f" {line.lstrip()}"
        elif begins or not line or line.startswith(("#", " ")):
            paragraphs.append(line)
        else:
            paragraphs[-1] += f" {line}"
        begins = not line or line.startswith(("#", " "))
    return "\n".join(line for paragraph in paragraphs for line in _folded(paragraph, width))


def _goes_on(entry: str, line: str) -> bool:
    """Whether a line continues an entry, in the column in which that says what it is."""
    named = _ENTRY.match(entry)
    return named is not None and bool(line.strip()) and len(line) - len(line.lstrip(" ")) == named.end()


def _folded(paragraph: str, width: int) -> list[str]:
    named = _ENTRY.match(paragraph)
    column = named.end() if named else 0
    if not 0 < column <= width // 2:
        return [part.plain for part in fold(Text(paragraph), width, CONTINUED if paragraph.startswith(" ") else 0)]
    first, *others = [part.plain for part in fold(Text(paragraph[column:]), width - column, 0)]
    return [paragraph[:column] + first, *(" " * column + other for other in others)]


def _pieces(plain: str, width: int, indent: int) -> Iterator[tuple[int, int]]:
    """Start and end of each line in `plain`; blanks at a break belong to neither."""
    gaps = _gaps(plain)
    start, room = 0, width
    while cell_len(plain[start:]) > room:
        fitting = [gap for gap in gaps if gap[0] > start and cell_len(plain[start : gap[0]]) <= room]
        between = [gap for gap in fitting if gap[1] - gap[0] >= _COLUMNS_APART and gap[0] - start >= _FULL_ENOUGH * room]
        # What is too long by itself runs on to the first place where it can be broken.
        chosen = (between or fitting)[-1:] or [gap for gap in gaps if gap[0] > start][:1]
        if not chosen:
            break
        yield start, chosen[0][0]
        start, room = chosen[0][1], width - indent
    yield start, len(plain)


def _gaps(plain: str) -> list[tuple[int, int]]:
    """Runs of blanks at which a line may be broken, each from where to where."""
    words = list(re.finditer(r"\S+", plain))
    return [
        (before.end(), after.start())
        for before, after in pairwise(words)
        if not _belongs(before.group(), after.group(), after.start() - before.end())
    ]


def _belongs(before: str, after: str, gap: int) -> bool:
    """Whether two words say one thing: `ceiling   224.1`, `224.1 µs`, `µs ±8.5`, `M = 64`, `> BLOCK_SIZE_M=16`."""
    near = gap < _COLUMNS_APART
    if _BEGINS.match(after) and _WORD.match(before) and (near or before not in _UNITS):
        return True
    return near and (bool(_FIGURE.match(before)) or before in _JOINTS or before in _MARKS or after in _JOINTS)


class FoldedLines(io.TextIOBase):
    """Standard output on a narrow terminal: whole lines are folded on their way to the stream, others wait for their end.

    Lines with escapes pass: who styles them has folded them (`terminal`).
    """

    def __init__(self, stream: TextIO, width: int) -> None:
        self._stream, self._width, self._begun = stream, width, ""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """That of the stream."""
        return self._stream.encoding

    def isatty(self) -> bool:
        """True: there is no narrow terminal else."""
        return True

    def fileno(self) -> int:
        """That of the stream."""
        return self._stream.fileno()

    def write(self, text: str) -> int:
        """Write the lines that are whole.

        Raises:
            OSError: As of the stream.
        """
        *lines, self._begun = (self._begun + text).split("\n")
        for line in lines:
            parts = [line] if "\x1b" in line else [part.plain for part in fold(Text(line), self._width)]
            self._stream.write("\n".join(parts) + "\n")
        return len(text)

    def flush(self) -> None:
        """Write what was begun, too.

        Raises:
            OSError: As of the stream.
        """
        begun, self._begun = self._begun, ""
        self._stream.write(begun)
        self._stream.flush()
