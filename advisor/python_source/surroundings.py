"""What an expression of a file is read with: where it stands, what stands around it, and what is shared with the readers of other files."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from advisor.python_source import target_questions
from advisor.python_source.kernel_names import METHODS
from advisor.python_source.literals import MATH, MAX_ITEMS, Allowance, Evaluator, NotLiteralError, dotted


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


UNANSWERED = object()
_TEXT_METHODS = frozenset({"format", "join", "split", "replace", "strip", "lower", "upper"})
_METHODS = _TEXT_METHODS | METHODS | {"get", "pop", "startswith", "endswith", "element_size"}
_FORMATS = re.compile(r"\{[^{}]*[^\w{}]")
"""Fields of a text that do more than put a value in: `{x.y}`, `{x:8}`."""
_ENVIRONMENT = frozenset({"os.environ.get", "os.getenv", "environ.get", "getenv"})
_VERSIONS = frozenset({"Version", "parse", "version.parse", "version.Version", "packaging.version.parse", "packaging.version.Version"})


def answer(reader: FileReader, node: ast.Call, name: str) -> Any:
    """What a call gives; UNANSWERED: it is none of those that are known.

    Known are functions of `math`, `hasattr(tl, "gather")`, the environment (every variable counts as not set), questions about the device
    of a known target, versions, `next(...)` of a generator, and methods of values.

    Args:
        reader: Of the file that the call stands in.
        node: The call.
        name: What is called, as a dotted name; "": something else.

    Raises:
        NotLiteralError: It is one, and its value is not known.
    """
    origin, count, plain = reader.origin(node.func), len(node.args), not node.keywords
    around = reader.surroundings
    if plain and origin.startswith("math.") and callable(function := MATH.get(origin.removeprefix("math."))):
        return function(*reader.elements(node.args))
    if plain and name == "hasattr" and count == 2 and not {"hasattr"} & {*reader.names, *reader.functions}:
        return reader.has(ast.Attribute(value=node.args[0], attr=reader.visit(node.args[1]), ctx=ast.Load(), lineno=node.lineno))
    if plain and name in _ENVIRONMENT and count in (1, 2):
        reader.inquiry.unset.add(str(reader.visit(node.args[0])))
        return reader.visit(node.args[1]) if count == 2 else None
    if origin == "torch.cuda.get_device_capability":
        return target_questions.capability(around.backend, around.arch)
    if origin == "torch.cuda.is_available" and around.backend in target_questions.VENDORS and not node.args:
        return True
    if count == 1 and _VERSIONS & {name, origin}:
        return target_questions.version(reader.visit(node.args[0]))
    if plain and name == "next" and count in (1, 2):
        found = reader.visit(node.args[0])
        return UNANSWERED if not isinstance(found, list) else found[0] if found or count == 1 else reader.visit(node.args[1])
    return _of_method(reader, node, node.func) if isinstance(node.func, ast.Attribute) and node.func.attr in _METHODS else UNANSWERED


def _of_method(reader: FileReader, node: ast.Call, function: ast.Attribute) -> Any:
    """`get` and `pop` of a dictionary, methods of texts, `n.bit_length()`, and `x.element_size()` of all tensors of which nothing else is
    said."""
    method, size = function.attr, reader.surroundings.element_bytes
    if method == "element_size":
        return size if size is not None and not node.args and not node.keywords else UNANSWERED
    if not all(k.arg for k in node.keywords) or (node.keywords and method not in _TEXT_METHODS):
        return UNANSWERED
    owner = reader.visit(function.value)
    arguments, keywords = reader.elements(node.args), {str(k.arg): reader.visit(k.value) for k in node.keywords}
    if isinstance(owner, int) and method in METHODS and not arguments:
        return getattr(owner, method)()
    if isinstance(owner, dict) and method in ("get", "pop") and len(arguments) in (1, 2):
        return getattr(owner, method)(*arguments)
    if isinstance(owner, str) and method in ("startswith", "endswith") and len(arguments) == 1:
        return getattr(owner, method)(str(arguments[0]))
    if not isinstance(owner, str) or method not in _TEXT_METHODS:
        return UNANSWERED
    flat = [part for each in (*arguments, *keywords.values()) for part in (each if isinstance(each, list | tuple) else [each])]
    if not all(isinstance(part, str | int) for part in flat) or (method == "format" and _FORMATS.search(owner)):
        raise NotLiteralError(f"a call of {method} in line {node.lineno} is not a literal")
    if (len(owner) + 1) * (sum(len(str(part)) for part in flat) + len(flat) + 1) > MAX_ITEMS * 10:
        raise NotLiteralError("a text too long")
    return getattr(owner, method)(*arguments, **keywords)
