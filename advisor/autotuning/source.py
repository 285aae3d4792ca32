"""What a kernel's source is, dependencies included: the part of the cache key that changes when the kernel does.

Triton's own hash also changes with the line a kernel stands on. This one holds the kernel's text, that of every jitted function
it calls, and the values of the globals they read, so that a kernel that moved within its file is not tuned again.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Collection, Mapping
from typing import Any

_PLAIN = (bool, int, float, str, bytes, type(None))


def source_hash(function: Any) -> str | None:
    """SHA-256 of a jitted function and its dependencies; None where its source is not at hand."""
    try:
        parts = _parts(function)
    except (OSError, TypeError, SyntaxError, AttributeError, ValueError):
        return None
    digest = hashlib.sha256()
    for name in sorted(parts):
        digest.update(f"{name}\x1f{parts[name]}\x1e".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def passed_constants(function: Any, named: Mapping[str, Any], keys: Collection[str]) -> str:
    """The constants (`tl.constexpr`) of a call that the tuning key does not hold, as text: with others it is another kernel.

    Within a process the first call of a key decides for all of them, as triton.autotune has it. A process that passes other constants
    must not take over what was decided for these, which may not even fit.

    Args:
        function: The jitted function.
        named: Every argument that was passed, by name.
        keys: Arguments whose value is in the tuning key.
    """
    annotations = getattr(function.fn, "__annotations__", {})
    passed = (name for name in named if name not in keys and "constexpr" in str(annotations.get(name, "")))
    return ", ".join(f"{name}={_shown(named[name])}" for name in sorted(passed))


def _shown(value: Any) -> str:
    """A constant as text that is the same in every process."""
    if _is_jitted(value):
        return source_hash(value) or type(value).__name__
    return _constant(value) or type(value).__name__


def _parts(function: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    seen: set[int] = set()
    todo = [function]
    while todo:
        current = todo.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        plain = current.fn
        text = _text(current, plain)
        # The text is part of the name: two helpers of one name, from two modules, do not hide each other.
        name = f"{plain.__qualname__.rsplit('.', 1)[-1]}:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"
        found[name] = text
        scope = _scope(plain)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Load):
                label, value = _resolve(node, scope)
                if _is_jitted(value):
                    todo.append(value)
                elif label and (constant := _constant(value)) is not None:
                    found[f"{name}/{label}="] = constant
    return found


def _text(function: Any, plain: Any) -> str:
    """Without decorators: changing the list of configurations does not change the kernel."""
    text = getattr(function, "src", None)
    if text is None:
        text = textwrap.dedent(inspect.getsource(plain))
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith("def ")), 0)
    return "\n".join(lines[start:])


def _scope(plain: Any) -> dict[str, Any]:
    scope = dict(plain.__globals__)
    for name, cell in zip(plain.__code__.co_freevars, plain.__closure__ or (), strict=False):
        try:
            scope[name] = cell.cell_contents
        except ValueError:
            continue
    return scope


def _resolve(node: ast.expr, scope: dict[str, Any]) -> tuple[str, Any]:
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in scope:
        return "", None
    value = scope[node.id]
    names.append(node.id)
    for attribute in reversed(names[:-1]):
        value = getattr(value, attribute, None)
    return ".".join(reversed(names)), value


def _is_jitted(value: Any) -> bool:
    module = str(getattr(value, "__module__", "") or "")
    if module == "triton" or module.startswith("triton."):
        return False  # Triton's library: its version is in the key
    return inspect.isfunction(getattr(value, "fn", None)) and not isinstance(value, type)


def _constant(value: Any) -> str | None:
    if isinstance(value, _PLAIN):
        return repr(value)
    if type(value).__name__ in ("constexpr", "dtype"):
        return f"{type(value).__name__}({getattr(value, 'value', value)})"
    if isinstance(value, tuple) and all(isinstance(item, _PLAIN) for item in value):
        return repr(value)
    return None
