"""What an expression of a file is read with: where it stands, what stands around it, and what is shared with the readers of other files."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.python_source import target_questions
from advisor.python_source.literals import Allowance, Evaluator, NotLiteralError, dotted


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
    outer: Callable[[Any, str], Any]
    outside: Callable[[Any, str], Any]
    imported: Callable[[Any, str], tuple[Any, ast.FunctionDef] | None]
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


class FileReader(Evaluator):
    """The evaluator of literals, at a place of a file.

    Args:
        surroundings: Of the file.
        inquiry: What is shared with the readers that it asks, or that ask it.
        names: As for Evaluator; names of the expression's own scope.
        place: Where in the file the expression stands.
    """

    def __init__(
        self, surroundings: Surroundings, inquiry: Inquiry, names: Mapping[str, Any] | None = None, place: Place | None = None
    ) -> None:
        super().__init__(names, surroundings.roots, surroundings.functions, inquiry.allowance)
        self.surroundings = surroundings
        self.inquiry = inquiry
        self.place = place or Place()
        self.depth = 0
        self.known: dict[tuple[str, int], Any] = {}  # what names of the file were found to be, for `outer`

    def origin(self, node: ast.expr) -> str:
        """What a dotted name is called where it comes from: `torch.finfo` for `th.finfo` after `import torch as th`; "": not known."""
        root, dot, rest = (dotted(node) or "").partition(".")
        return f"{self.surroundings.modules[root]}{dot}{rest}" if root in self.surroundings.modules and root not in self.names else ""

    def has(self, node: ast.Attribute) -> bool:
        """Whether a module of triton's has a name: `tl.gather`, or `hasattr(tl, "gather")`.

        Raises:
            NotLiteralError: It is no module of triton's, or that is not known.
        """
        owner = dotted(node.value) or ""
        root = owner.partition(".")[0]
        if root not in self.roots or root in self.names:
            raise NotLiteralError(f"whether {ast.unparse(node.value)[:60]} has an attribute, as line {node.lineno} asks, is not known")
        return target_questions.has(self.origin(node.value) or owner, str(node.attr))
