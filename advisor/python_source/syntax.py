"""Reading Python's syntax from several threads."""

from __future__ import annotations

import ast
import functools
import io
import re
import sys
import threading
import tokenize
from typing import Any

from advisor.python_source.language import dotted

_LONG = re.compile(r"0[xXoObB][0-9a-fA-F_]{3000}")
"""A number that Python reads however long it is, and of which it writes only so many digits."""
_ONE_AT_A_TIME = threading.Lock()
TRIES = 20
MOST_DEPTH = 150
"""Of a tree. Of 1,697 public files that name triton the deepest has 26; what is much deeper cannot be walked, nor run by every Python."""
MOST_ARGUMENTS, MOST_LAUNCHES = 1_000, 1_000
"""Of one call; and calls of a file that may launch a kernel, `name[…](…)`: each is compared with each."""


def parse(text: str | bytes, mode: str = "exec") -> ast.AST:
    """`ast.parse`, one thread at a time: Python 3.11 counts the depth of all threads' trees together, and then says that it does not add up
    (SystemError, python/cpython#106905). Tried again where a thread of somebody else's was at it.

    Raises:
        SyntaxError, ValueError: As of `ast.parse`; ValueError also where it is nested deeper than `MOST_DEPTH`, calls with more arguments
            or launches more often than is followed, or holds a number that cannot be written out in digits.
    """
    if _LONG.search(text if isinstance(text, str) else text.decode("latin-1")):
        raise ValueError(f"Exceeds the limit ({sys.get_int_max_str_digits()} digits) for integer string conversion")
    try:
        tree = _parsed(text, mode)
    except (RecursionError, MemoryError):  # Python's own limits, of some thousand levels
        raise _too_deep() from None
    level: list[Any] = [tree]
    launches = 0
    for _ in range(MOST_DEPTH):
        calls = [item for item in level if isinstance(item, ast.Call)]
        launches += sum(isinstance(call.func, ast.Subscript) for call in calls)
        if launches > MOST_LAUNCHES:
            raise ValueError(f"more than {MOST_LAUNCHES:,} launches")
        if any(len(call.args) + len(call.keywords) > MOST_ARGUMENTS for call in calls):
            raise ValueError(f"a call with more than {MOST_ARGUMENTS:,} arguments")
        inner: list[Any] = []
        for node in level:
            for value in vars(node).values():
                if isinstance(value, list):
                    inner += value
                else:
                    inner.append(value)
        level = [part for part in inner if isinstance(part, ast.AST) and part._fields]
        if not level:
            return tree
    raise _too_deep()


@functools.lru_cache(16)
def function_lines(text: str) -> tuple[tuple[int, int], ...]:
    """First and last line of each function of a file, decorators included. A report asks for the same file again with each launch.

    Raises:
        SyntaxError, ValueError: As `parse`.
    """
    functions = [node for node in ast.walk(parse(text)) if isinstance(node, ast.FunctionDef)]
    return tuple(
        (min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)]), node.end_lineno or node.lineno) for node in functions
    )


def names_read(text: str) -> list[str]:
    """The names that a text reads, and chains of attributes of names: `n`, `tl`, `tl.float32`.

    >>> sorted(names_read("tl.load(x + n)"))
    ['n', 'tl', 'tl.load', 'x']

    Raises:
        SyntaxError, ValueError: As `parse`.
    """
    chains = [node for node in ast.walk(parse(text)) if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load)]
    return [name for node in chains if (name := dotted(node))]


def declared_encoding(data: bytes) -> str:
    """The encoding of a Python file, as its first lines declare it.

    Raises:
        SyntaxError, ValueError: It is none of text, or Python reads the file otherwise than in it.
    """
    first = b"\n".join(re.split(rb"\r\n?|\n", data, maxsplit=2)[:2])
    if all(word.lower() in (b"utf-8", b"utf8") for word in re.findall(rb"coding(?:[:=][ \t]*([-\w.]+))?", first)):
        return "utf-8-sig"  # what any of them may declare, Python reads alike
    encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
    try:
        text = data.decode(encoding)
    except LookupError:  # rot13, say
        raise ValueError(f"the encoding {encoding} is none of text") from None
    if ast.dump(parse(text)) != ast.dump(parse(data)):
        raise ValueError(f"it does not read the same in the encoding {encoding} as Python reads it")
    return encoding


def _too_deep() -> ValueError:
    return ValueError(f"nested deeper than {MOST_DEPTH} levels")


def _parsed(text: str | bytes, mode: str) -> ast.AST:
    for _ in range(TRIES):
        with _ONE_AT_A_TIME:
            try:
                return ast.parse(text, mode=mode)  # type: ignore[call-overload,no-any-return]
            except SystemError:
                continue
    return ast.parse(text, mode=mode)  # type: ignore[call-overload,no-any-return]
