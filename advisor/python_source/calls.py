"""Calls that are answered without following a function: of number limits, `math`, `hasattr`, the environment, methods of plain values, the
GPU, and versions. Each answerer takes the calls it knows; the first that answers counts."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from advisor.python_source import callables, number_limits, string_methods, target_questions
from advisor.python_source.constexpr_functions import METHODS
from advisor.python_source.literals import MATH, NotLiteralError

if TYPE_CHECKING:
    from advisor.python_source.functions import FunctionReader

UNANSWERED = object()
_ENVIRONMENT = frozenset({"os.environ.get", "os.getenv", "environ.get", "getenv"})
_VERSIONS = frozenset({"Version", "parse", "version.parse", "version.Version", "packaging.version.parse", "packaging.version.Version"})


def answer(reader: FunctionReader, node: ast.Call, name: str) -> Any:
    """What a call gives; UNANSWERED: it is none of those that are known.

    Args:
        reader: Of the file that the call stands in.
        node: The call.
        name: What is called, as a dotted name; "": something else.

    Raises:
        NotLiteralError: It is one, and its value is not known.
    """
    for each in ANSWERERS:
        found = each(reader, node, name)
        if found is not UNANSWERED:
            return found
    return UNANSWERED


def _limits(reader: FunctionReader, node: ast.Call, name: str) -> Any:
    """`torch.finfo(torch.float16)`."""
    origin = reader.origin(node.func)
    if origin not in number_limits.CALLS or len(node.args) != 1 or node.keywords:
        return UNANSWERED
    limits = number_limits.limits(origin, reader.number_type(node.args[0]))
    if limits is None:
        raise NotLiteralError(f"{ast.unparse(node)[:60]} in line {node.lineno} fails, or is not known")
    return limits


def _math(reader: FunctionReader, node: ast.Call, name: str) -> Any:
    """`math.log2(x)`, by whatever name the file imports it."""
    origin = reader.origin(node.func)
    if origin.startswith("math.") and callable(function := MATH.get(origin.removeprefix("math."))) and not node.keywords:
        return function(*reader.elements(node.args))
    return UNANSWERED


def _hasattr(reader: FunctionReader, node: ast.Call, name: str) -> Any:
    """`hasattr(tl, "gather")`."""
    if name != "hasattr" or len(node.args) != 2 or node.keywords or {"hasattr"} & {*reader.names, *reader.functions}:
        return UNANSWERED
    return reader.has(ast.Attribute(value=node.args[0], attr=reader.visit(node.args[1]), ctx=ast.Load(), lineno=node.lineno))


def _environment(reader: FunctionReader, node: ast.Call, name: str) -> Any:
    """`os.environ.get("DEBUG", "0")`: every variable counts as not set."""
    if name not in _ENVIRONMENT or len(node.args) not in (1, 2) or node.keywords:
        return UNANSWERED
    reader.inquiry.unset.add(str(reader.visit(node.args[0])))
    return reader.visit(node.args[1]) if len(node.args) == 2 else None


def _lookup(reader: FunctionReader, node: ast.Call, name: str) -> Any:
    """`get` and `pop` of a dictionary, `startswith` and `endswith` of a text."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in ("get", "pop", "startswith", "endswith") or node.keywords:
        return UNANSWERED
    owner, method = reader.visit(node.func.value), node.func.attr
    if isinstance(owner, dict) and method in ("get", "pop") and len(node.args) in (1, 2):
        values = [reader.visit(argument) for argument in node.args]
        return owner.get(*values) if method == "get" else owner.pop(*values)
    if isinstance(owner, str) and method.endswith("with") and len(node.args) == 1:
        return getattr(owner, method)(str(reader.visit(node.args[0])))
    return UNANSWERED


def _integer_method(reader: FunctionReader, node: ast.Call, name: str) -> Any:
    """`n.bit_length()`."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr not in METHODS or node.args or node.keywords:
        return UNANSWERED
    owner = reader.visit(node.func.value)
    return getattr(owner, node.func.attr)() if isinstance(owner, int) else UNANSWERED


def _element_size(reader: FunctionReader, node: ast.Call, name: str) -> Any:
    """`x.element_size()`: of all tensors of which nothing else is said."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "element_size" or node.args or node.keywords:
        return UNANSWERED
    size = reader.surroundings.element_bytes
    return size if size is not None else UNANSWERED


def _string_method(reader: FunctionReader, node: ast.Call, name: str) -> Any:
    """`template.format(register=i)`."""
    if isinstance(node.func, ast.Attribute) and node.func.attr in string_methods.METHODS and all(k.arg for k in node.keywords):
        with suppress(NotLiteralError):
            owner = reader.visit(node.func.value)
            if isinstance(owner, str):
                arguments = [reader.visit(argument) for argument in node.args]
                return string_methods.call(owner, node.func.attr, arguments, {str(k.arg): reader.visit(k.value) for k in node.keywords})
    return UNANSWERED


def _device(reader: FunctionReader, node: ast.Call, name: str) -> Any:
    """`torch.cuda.get_device_capability(0)`, `torch.cuda.is_available()`: of a known target."""
    around = reader.surroundings
    origin = reader.origin(node.func)
    if origin == "torch.cuda.get_device_capability":
        return target_questions.capability(around.backend, around.arch)
    if origin == "torch.cuda.is_available" and around.backend in target_questions.VENDORS and not node.args:
        return True
    return UNANSWERED


def _version(reader: FunctionReader, node: ast.Call, name: str) -> Any:
    """`Version(triton.__version__)`."""
    known = name in _VERSIONS or reader.origin(node.func) in _VERSIONS
    return target_questions.version(reader.visit(node.args[0])) if known and len(node.args) == 1 else UNANSWERED


def _first(reader: FunctionReader, node: ast.Call, name: str) -> Any:
    """`next(...)` of a generator."""
    if not isinstance(node.func, ast.Name) or node.func.id != "next" or len(node.args) not in (1, 2) or node.keywords:
        return UNANSWERED
    found = reader.visit(node.args[0])
    if not isinstance(found, list):
        return UNANSWERED
    return found[0] if found or len(node.args) == 1 else reader.visit(node.args[1])


def _function(reader: FunctionReader, node: ast.Call, name: str) -> Any:
    """`filter(keep, configs)`, `map(config, sizes)`, `partial(keep, most=128)`."""
    picked = callables.picked(reader, node, name)
    if picked is not None:
        return picked
    bound = callables.partial_of(reader, node, name)
    return UNANSWERED if bound is None else bound


ANSWERERS: tuple[Callable[[FunctionReader, ast.Call, str], Any], ...] = (
    _limits,
    _math,
    _hasattr,
    _environment,
    _lookup,
    _integer_method,
    _element_size,
    _string_method,
    _device,
    _version,
    _first,
    _function,
)
"""In this order: a call that none takes is one of a function."""
