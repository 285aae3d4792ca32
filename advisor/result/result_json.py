"""Results, comparisons and their parts as JSON, and back: derived from the dataclasses, so that no second description drifts.

The text is canonical: keys in field order, floats where the field says float, `NaN` and infinities refused; equal
results give equal bytes. Readers ignore unknown keys (minor versions only add) and refuse an unknown major version.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import json
import math
import re
import sys
import tokenize
import types
import typing
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal

from advisor.result.schema import SCHEMA_VERSION, Result
from advisor.system.errors import InputError, shorten

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})")
_NONE = type(None)
_SCALARS: dict[Any, tuple[str, str]] = {
    bool: ("boolean", "true or false"),
    int: ("integer", "an integer"),
    float: ("number", "a finite number"),
    str: ("string", "a string"),
    _NONE: ("null", "null"),
}
"""The name of each type in a JSON Schema, and in errors."""


def to_dict(result: Result) -> dict[str, Any]:
    """The result as plain dicts, lists, strings, numbers, booleans and None.

    Raises:
        InputError: A value is not what its field says, or is not finite; the message names its path.
    """
    return converted(result, Result, "result", reading=False)


def to_json(result: Result) -> str:
    """The result as canonical JSON text, ending in a newline."""
    return document_text(result, "result")


def document_text(value: Any, name: str) -> str:
    """A value of a dataclass as canonical JSON text, ending in a newline; `name` is what errors call it."""
    text = json.dumps(converted(value, type(value), name, reading=False), indent=1, ensure_ascii=False, allow_nan=False)
    # A file name that is no valid UTF-8 reaches us with lone surrogates, which no encoding carries: escape only these.
    return _LONE_SURROGATE.sub(lambda match: f"\\u{ord(match.group()):04x}", text) + "\n"


def from_dict(data: object, *, name: str = "result.json") -> Result:
    """The result that `data` describes.

    Args:
        data: What `to_dict` gave, or any JSON object of the same major version. Unknown keys are ignored.
        name: What to call the source in errors.

    Raises:
        InputError: Not a result, of an unknown major version, or a field is missing or of the wrong type.
    """
    if not isinstance(data, dict):
        raise InputError(f"{name}: not a result", type(data).__name__, "a JSON object", "give a result.json of advisor")
    check_version(data.get("schema_version"), SCHEMA_VERSION, name=name)
    return converted(data, Result, name, reading=True)


def from_json(text: str | bytes, *, name: str = "result.json") -> Result:
    """The result that JSON text describes; see `from_dict`."""
    return from_dict(read_document(text, name, "a result.json of advisor"), name=name)


def read_document(text: str | bytes, name: str, wanted: str) -> Any:
    """The JSON values of a text; `wanted` is what was expected, in words.

    Raises:
        InputError: It is no JSON, or too deep.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise InputError(f"{name}: nested too deeply", remedy=f"give {wanted}") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError and refused constants
        raise InputError(f"{name}: not valid JSON: {error}", remedy=f"give {wanted}") from None


def check_version(version: object, known: str, *, name: str) -> None:
    """Raise InputError unless `version` is `MAJOR.MINOR` with the major version of `known`, which this release reads."""
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise InputError(f"{name}: schema_version is missing or malformed", version, f'"{known}"')
    if match.group(1) != known.split(".")[0]:
        remedy = "read it with the advisor that wrote it, or write it again with this one"
        raise InputError(f"{name}: unknown major schema_version", version, f"{known.split('.')[0]}.x", remedy)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the result, with the descriptions that stand in `advisor.result.schema`."""
    definitions: dict[str, Any] = {}
    reference = _schema(Result, definitions)
    definitions["Result"]["properties"]["schema_version"] = {
        "type": "string",
        "pattern": rf"^{SCHEMA_VERSION.split('.')[0]}\.[0-9]+$",
        "description": "MAJOR.MINOR; minor versions only add, consumers refuse an unknown major",
    }
    definitions["Result"]["required"].append("schema_version")
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:triton-advisor:result:{SCHEMA_VERSION}",
        "title": "triton-advisor result",
        **reference,
        "$defs": dict(sorted(definitions.items())),
    }


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not a JSON number")


def _wrong(path: str, value: object, limit: str) -> InputError:
    return InputError(f"{path} has the wrong type or value", f"{shorten(value, 60)} ({type(value).__name__})", limit)


@cache
def _parts(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """The origin of an annotation (of both forms of a union the same one), and its arguments."""
    origin = typing.get_origin(annotation)
    return typing.Union if origin is types.UnionType else origin, typing.get_args(annotation)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@cache
def _required(kind: type) -> tuple[str, ...]:
    missing = dataclasses.MISSING
    return tuple(field.name for field in dataclasses.fields(kind) if field.default is missing and field.default_factory is missing)


def converted(value: Any, annotation: Any, path: str, *, reading: bool) -> Any:
    """A value of a dataclass, or of any annotation that occurs in one, as plain JSON values; where `reading`, the reverse.

    Raises:
        InputError: A value is not what its annotation says, or is not finite; the message names its path.
        TypeError: The annotation has no JSON form.
    """
    origin, arguments = _parts(annotation)
    if annotation in _SCALARS:
        return _scalar(value, annotation, path)
    if origin is Literal:
        if isinstance(value, str) and value in arguments:
            return value
        raise _wrong(path, value, "one of " + ", ".join(map(str, arguments)))
    if origin is typing.Union:
        return _member(value, arguments, path, reading)
    if origin is tuple:
        items = _expected(value, list if reading else (tuple, list), path, "a list")
        kinds = arguments[:1] * len(items) if arguments[-1] is Ellipsis else arguments
        if len(items) != len(kinds):
            raise _wrong(path, value, f"a list of {len(kinds)}")
        made = [converted(item, kind, f"{path}[{i}]", reading=reading) for i, (item, kind) in enumerate(zip(items, kinds, strict=True))]
        return tuple(made) if reading else made
    if origin is dict or annotation is dict:
        kind, pairs = (arguments or (str, Any))[1], _expected(value, dict, path, "an object").items()
        return {_scalar(key, str, f"{path} (a key)"): converted(part, kind, f"{path}.{key}", reading=reading) for key, part in pairs}
    if annotation is Any:  # foreign JSON (a plotly figure): kept as it is, checked to be JSON
        if isinstance(value, (list, tuple)):
            return [converted(part, Any, f"{path}[{i}]", reading=reading) for i, part in enumerate(value)]
        return converted(value, dict, path, reading=reading) if isinstance(value, dict) else _member(value, tuple(_SCALARS), path, reading)
    if not dataclasses.is_dataclass(annotation):
        raise TypeError(f"an annotation has no JSON form: {annotation!r}")
    return _fields(value, annotation, path, reading)


def _fields(value: Any, kind: Any, path: str, reading: bool) -> Any:
    """A dataclass as a dictionary, or the reverse."""
    hints = _hints(kind)
    if not reading:
        value = _expected(value, kind, path, kind.__name__)
        return {name: converted(getattr(value, name), hint, f"{path}.{name}", reading=False) for name, hint in hints.items()}
    value = _expected(value, dict, path, "an object")
    if missing := [name for name in _required(kind) if name not in value]:
        raise InputError(f"{path} lacks the key {missing[0]!r}", remedy="write it again with `advisor advise`")
    return kind(**{name: converted(value[name], hint, f"{path}.{name}", reading=True) for name, hint in hints.items() if name in value})


def _expected(value: Any, kind: Any, path: str, limit: str) -> Any:
    if not isinstance(value, kind):
        raise _wrong(path, value, limit)
    return value


def _scalar(value: Any, kind: Any, path: str) -> Any:
    if type(value) is kind and (kind is not float or math.isfinite(value)):
        return value
    flag = type(value).__name__ in ("bool", "bool_")  # numpy's has no common base with Python's
    fits = {bool: flag, int: isinstance(value, Integral), float: isinstance(value, Real), str: isinstance(value, str), _NONE: value is None}
    if not fits[kind] or flag is not (kind is bool):
        raise _wrong(path, value, _SCALARS[kind][1])
    if kind is float:
        try:
            value = float(value)
        except OverflowError:
            value = math.inf
        if not math.isfinite(value):
            raise _wrong(path, value, _SCALARS[kind][1])
    return None if kind is _NONE else kind(value)


def _member(value: Any, members: tuple[Any, ...], path: str, reading: bool) -> Any:
    """A value of a union."""
    others = [member for member in members if member is not _NONE]
    if type(value) in members:  # so that 5 stays an integer in `float | int`
        return converted(value, type(value), path, reading=reading)
    if len(others) == 1:
        return converted(value, others[0], path, reading=reading)  # its own, more precise error
    for member in members:
        try:
            return converted(value, member, path, reading=reading)
        except InputError:
            continue
    raise _wrong(path, value, " or ".join(getattr(member, "__name__", str(member)) for member in members))


def _schema(annotation: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    """The JSON Schema of an annotation; those of dataclasses are added to `definitions`."""
    origin, arguments = _parts(annotation)
    if annotation in _SCALARS:
        return {"type": _SCALARS[annotation][0]}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin is typing.Union:
        parts = [_schema(member, definitions) for member in arguments]
        return {"type": [part["type"] for part in parts]} if all(set(part) == {"type"} for part in parts) else {"anyOf": parts}
    if origin is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": _schema(arguments[0], definitions)}
    if origin is tuple:
        items = [_schema(argument, definitions) for argument in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(arguments[1], definitions)}
    if annotation is dict or annotation is Any:
        return {"type": "object"} if annotation is dict else {}
    name = annotation.__name__
    if name not in definitions:
        entry = definitions[name] = {"type": "object", "description": inspect.cleandoc(annotation.__doc__ or "")}
        comments = _field_comments(annotation.__module__).get(name, {})
        entry["properties"] = {
            field: _schema(hint, definitions) | ({"description": comments[field]} if field in comments else {})
            for field, hint in _hints(annotation).items()
        }
        entry["required"] = list(_required(annotation))
    return {"$ref": f"#/$defs/{name}"}


@cache
def _field_comments(module: str) -> dict[str, dict[str, str]]:
    """The comment beside each field of a module's dataclasses, by class and field; empty where its source is not at hand."""
    try:
        source = inspect.getsource(sys.modules[module])
    except (KeyError, OSError):
        return {}
    comments = {
        token.start[0]: token.string.lstrip("# ").strip()
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    return {
        node.name: {
            line.target.id: comments[line.end_lineno or line.lineno]
            for line in node.body
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name) and (line.end_lineno or line.lineno) in comments
        }
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef)
    }
