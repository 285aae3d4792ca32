"""The files that launch a kernel: its own, and others that import it, `kernels.py` and `ops.py`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from advisor.python_source.bindings import Scope
from advisor.python_source.imported import imported_tuning
from advisor.python_source.launch_sites import imported_launches, launches
from advisor.python_source.source import SourceFile


@dataclass(frozen=True, slots=True, kw_only=True)
class Launching:
    """A file that launches a kernel.

    Attributes:
        where: Its path; empty: it is the kernel's own file.
        source: The file.
        calls: The scopes around each launch, the outermost first, and the call.
        tuning: Decorators that another file than the kernel's applies to what is launched, `tuned = triton.autotune(...)(kernel)`, and that
            file; where there are several, the first.
    """

    where: str
    source: SourceFile
    calls: tuple[tuple[Sequence[Scope], ast.Call], ...]
    tuning: tuple[SourceFile, Sequence[ast.expr]] | None = None


Elsewhere = Mapping[tuple[Path, str], Sequence[Launching]]
"""Launches of kernels by other files than their own, by the kernel's file and its name there."""


def own_launches(source: SourceFile, kernel: str) -> tuple[Launching, ...]:
    """How the file launches one of its kernels; nothing where it does not, or which of several of the name is meant is not known."""
    found = tuple(launches(source, kernel)) if kernel in source.functions else ()
    return (Launching(where="", source=source, calls=found),) if found else ()


def launches_elsewhere(sources: Iterable[tuple[str, SourceFile]]) -> Elsewhere:
    """The launches of files, each given with its path as it is shown, of kernels that they import."""
    found: dict[tuple[Path, str], list[Launching]] = {}
    for where, source in sources:
        calls: dict[tuple[Path, str], list[tuple[Sequence[Scope], ast.Call]]] = {}
        tuning: dict[tuple[Path, str], tuple[SourceFile, Sequence[ast.expr]]] = {}
        for file, kernel, name, scopes, call in imported_launches(source):
            key = (file.path, kernel)
            calls.setdefault(key, []).append((scopes, call))
            applied = imported_tuning(source, name) if key not in tuning else None
            if applied is not None and applied[0].path != file.path:  # the kernel's own file tells itself
                tuning[key] = applied
        for key, each in calls.items():
            found.setdefault(key, []).append(Launching(where=where, source=source, calls=tuple(each), tuning=tuning.get(key)))
    return found
