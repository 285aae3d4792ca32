"""Functions that a file gives `filter`, `map`, `functools.partial` and its own helpers: followed by reading, never called."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from advisor.python_source.literal_values import FunctionValue, Symbol, plain
from advisor.python_source.literals import NotLiteralError

if TYPE_CHECKING:
    from advisor.python_source.functions import FunctionReader

_PARTIALS = frozenset({"partial", "functools.partial"})


def function_value(reader: FunctionReader, name: str) -> FunctionValue | None:
    """The function that a name of a file stands for, its own or one that it imports; None: none that can be read."""
    if name in reader.functions:
        return FunctionValue(reader.functions[name], reader)
    imported = reader.surroundings.imported(reader, name)
    return FunctionValue(imported[1], imported[0]) if imported is not None else None


def partial_of(reader: FunctionReader, node: ast.Call, name: str) -> FunctionValue | None:
    """What `functools.partial(function, ...)` gives; None: the call is none of it, or of what is no function that can be read."""
    if (reader.origin(node.func) or name) not in _PARTIALS or not node.args or not all(k.arg for k in node.keywords):
        return None
    function = reader.visit(node.args[0])
    if not isinstance(function, FunctionValue):
        return None
    keywords = {**function.keywords, **{str(k.arg): reader.visit(k.value) for k in node.keywords}}
    arguments = (*function.arguments, *reader.elements(node.args[1:]))
    return FunctionValue(function.node, function.reader, function.closure, arguments, keywords)


def picked(reader: FunctionReader, node: ast.Call, name: str) -> list[Any] | None:
    """What `filter(function, values)` and `map(function, values)` give, as a list; None: the call is neither.

    Raises:
        NotLiteralError: What is given to it, or what the function returns, is not known.
    """
    hidden = {*reader.names, *reader.functions}
    if name not in ("filter", "map") or name in hidden or len(node.args) != 2 or node.keywords:
        return None
    function, values = reader.visit(node.args[0]), list(reader.visit(node.args[1]))
    if function is None and name == "filter":
        return [value for value in values if _truth(value)]
    if not isinstance(function, FunctionValue):
        raise NotLiteralError(f"what {name} is given in line {node.lineno} is not a function of the file")
    outcomes = [function.follow([value]) for value in values]
    return outcomes if name == "map" else [v for v, outcome in zip(values, outcomes, strict=True) if _truth(outcome)]


def _truth(value: Any) -> bool:
    value = plain(value)
    if isinstance(value, Symbol):
        raise NotLiteralError(f"whether {value.text} holds is not known")
    return bool(value)
