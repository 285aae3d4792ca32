"""Reading Python's syntax from several threads."""

from __future__ import annotations

import ast
import threading

_ONE_AT_A_TIME = threading.Lock()
TRIES = 20


def parse(text: str, mode: str = "exec") -> ast.AST:
    """`ast.parse`, one thread at a time: Python 3.11 counts the depth of all threads' trees together, and then says that it does not add up
    (SystemError, python/cpython#106905). Tried again where a thread of somebody else's was at it.

    Raises:
        SyntaxError, ValueError, RecursionError, MemoryError: As of `ast.parse`.
    """
    for _ in range(TRIES):
        with _ONE_AT_A_TIME:
            try:
                return ast.parse(text, mode=mode)  # type: ignore[call-overload,no-any-return]
            except SystemError:
                continue
    return ast.parse(text, mode=mode)  # type: ignore[call-overload,no-any-return]
