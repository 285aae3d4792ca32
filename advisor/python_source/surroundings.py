"""What an expression of a file is read with: where it stands, what stands around it, and what is shared with the readers of other files."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from advisor.python_source.literals import Allowance

if TYPE_CHECKING:
    from advisor.python_source.functions import FunctionReader


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where in a file an expression is evaluated: names stand for what was assigned before.

    Attributes:
        position: Line and column.
        scopes: Functions and classes around, the outermost first.
    """

    position: tuple[float, int] = (math.inf, 0)
    scopes: tuple[ast.FunctionDef | ast.ClassDef, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What stands around the expressions of a file: its functions, what its names lead to, and the target that it is read for.

    Attributes:
        functions: Functions of the file.
        reasons: Why others of its functions cannot be followed.
        roots: Names that stand for triton's own modules.
        modules: Names that stand for a module, or something of one, and for what: {"np": "numpy", "inf": "math.inf"}.
        outer: Gives the value of a name of the file at the reader's `place`.
        outside: Gives a value that the file imports.
        imported: Gives a function that the file imports, with a reader of its file.
        backend: Triton's backend of the target (cuda, hip); None: not known.
        arch: Architecture of the target (90, gfx942); None: not known.
        num_sms: SMs of the GPU, for files that ask how many it has; None: not known.
        element_bytes: Of tensors, for `x.element_size()`; None: not known.
    """

    functions: Mapping[str, ast.FunctionDef]
    reasons: Mapping[str, str]
    roots: frozenset[str]
    modules: Mapping[str, str]
    outer: Callable[[FunctionReader, str], Any]
    outside: Callable[[FunctionReader, str], Any]
    imported: Callable[[FunctionReader, str], tuple[FunctionReader, ast.FunctionDef] | None]
    backend: str | None = None
    arch: int | str | None = None
    num_sms: int | None = None
    element_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiry:
    """What readers share of which one asks another: that of another file, for what a file imports.

    Attributes:
        unset: Takes the names of environment variables that were asked for: each counts as not set.
        allowance: The steps that are left for all of them.
        importing: Files and names whose values are being worked out: files import each other.
    """

    unset: set[str]
    allowance: Allowance = field(default_factory=Allowance)
    importing: frozenset[tuple[str, str]] = frozenset()
