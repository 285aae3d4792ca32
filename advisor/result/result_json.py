"""The result as JSON, and back: derived from the dataclasses of `advisor.result.schema`, so that no second description drifts.

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
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from typing import Any, Literal

from advisor.result.schema import SCHEMA_VERSION, Result
from advisor.system.errors import InputError, shorten

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_VERSION = re.compile(r"(\d{1,9})\.(\d{1,9})")


def to_dict(result: Result) -> dict[str, Any]:
    """The result as plain dicts, lists, strings, numbers, booleans and None.

    Raises:
        InputError: A value is not what its field says, or is not finite; the message names its path.
    """
    return codec_of(Result).encode(result, "result")


def to_json(result: Result) -> str:
    """The result as canonical JSON text, ending in a newline."""
    text = json.dumps(to_dict(result), indent=1, ensure_ascii=False, allow_nan=False)
    # A file name that is no valid UTF-8 reaches us with lone surrogates, which no encoding carries: escape only these.
    return _LONE_SURROGATE.sub(lambda found: f"\\u{ord(found.group()):04x}", text) + "\n"


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
    check_version(data.get("schema_version"), name=name)
    return codec_of(Result).decode(data, name)


def from_json(text: str | bytes, *, name: str = "result.json") -> Result:
    """The result that JSON text describes; see `from_dict`."""
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise InputError(f"{name}: nested too deeply to be a result", remedy="give a result.json of advisor") from None
    except ValueError as error:  # JSONDecodeError, UnicodeDecodeError and refused constants
        raise InputError(f"{name}: not valid JSON: {error}", remedy="give a result.json of advisor") from None
    return from_dict(data, name=name)


def check_version(version: object, *, name: str = "result.json") -> None:
    """Raise InputError unless `version` is `MAJOR.MINOR` with the major version this release reads."""
    known = SCHEMA_VERSION.split(".")[0]
    match = _VERSION.fullmatch(version) if isinstance(version, str) else None
    if match is None:
        raise InputError(f"{name}: schema_version is missing or malformed", version, f'"{SCHEMA_VERSION}"')
    if int(match.group(1)) != int(known):
        remedy = "read it with the advisor that wrote it, or write it again with this one"
        raise InputError(f"{name}: unknown major schema_version", version, f"{known}.x", remedy)


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the result, with the descriptions that stand in `advisor.result.schema`."""
    definitions: dict[str, Any] = {}
    reference = codec_of(Result).schema(definitions)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Codec:
    """Writing, reading and describing values of one annotation."""

    encode: Callable[[Any, str], Any]
    decode: Callable[[Any, str], Any]
    schema: Callable[[dict[str, Any]], dict[str, Any]]


def _wrong(path: str, value: object, limit: str) -> InputError:
    return InputError(f"{path} has the wrong type or value", f"{shorten(value, 60)} ({type(value).__name__})", limit)


@cache
def codec_of(annotation: Any) -> Codec:
    """The codec between values of a dataclass, or of any annotation that occurs in one, and plain JSON values.

    Raises:
        TypeError: The annotation has no JSON form.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if dataclasses.is_dataclass(annotation):
        return _dataclass_codec(typing.cast(type, annotation))
    if origin is Literal:
        return _literal_codec(arguments)
    if origin in (typing.Union, types.UnionType):
        return _union_codec(arguments)
    if origin is tuple:
        return _tuple_codec(arguments)
    if origin is dict:
        return _dict_codec(arguments[1])
    if annotation is dict or annotation is Any:
        return _anything_codec(object_only=annotation is dict)
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    raise TypeError(f"an annotation has no JSON form: {annotation!r}")


def _boolean(value: Any, path: str) -> bool:
    if type(value).__name__ in ("bool", "bool_"):  # numpy's has no common base with Python's
        return bool(value)
    raise _wrong(path, value, "true or false")


def _integer(value: Any, path: str) -> int:
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    raise _wrong(path, value, "an integer")


def _number(value: Any, path: str) -> float:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise _wrong(path, value, "a number")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _wrong(path, number, "a finite number")
    return number


def _string(value: Any, path: str) -> str:
    if isinstance(value, str):
        return str(value)
    raise _wrong(path, value, "a string")


def _nothing(value: Any, path: str) -> None:
    if value is not None:
        raise _wrong(path, value, "null")


def _scalar(convert: Callable[[Any, str], Any], name: str) -> Codec:
    return Codec(encode=convert, decode=convert, schema=lambda definitions: {"type": name})


_SCALARS: dict[Any, Codec] = {
    bool: _scalar(_boolean, "boolean"),
    int: _scalar(_integer, "integer"),
    float: _scalar(_number, "number"),
    str: _scalar(_string, "string"),
    type(None): _scalar(_nothing, "null"),
}


def _literal_codec(choices: tuple[Any, ...]) -> Codec:
    def convert(value: Any, path: str) -> Any:
        if isinstance(value, str) and value in choices:
            return value
        raise _wrong(path, value, "one of " + ", ".join(map(str, choices)))

    return Codec(encode=convert, decode=convert, schema=lambda definitions: {"enum": list(choices)})


def _union_codec(members: tuple[Any, ...]) -> Codec:
    codecs = {member: codec_of(member) for member in members}

    def try_each(value: Any, path: str, side: str) -> Any:
        exact = codecs.get(type(value))  # so that 5 stays an integer in `float | int`
        if exact is not None:
            return getattr(exact, side)(value, path)
        if len([member for member in members if member is not type(None)]) == 1 and value is not None:
            only = next(codec for member, codec in codecs.items() if member is not type(None))
            return getattr(only, side)(value, path)  # its own, more precise error
        for codec in codecs.values():
            try:
                return getattr(codec, side)(value, path)
            except InputError:
                continue
        raise _wrong(path, value, " or ".join(getattr(member, "__name__", str(member)) for member in members))

    def describe(definitions: dict[str, Any]) -> dict[str, Any]:
        parts = [codec.schema(definitions) for codec in codecs.values()]
        if all(set(part) == {"type"} for part in parts):
            return {"type": [part["type"] for part in parts]}
        return {"anyOf": parts}

    return Codec(
        encode=lambda value, path: try_each(value, path, "encode"),
        decode=lambda value, path: try_each(value, path, "decode"),
        schema=describe,
    )


def _tuple_codec(arguments: tuple[Any, ...]) -> Codec:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        item = codec_of(arguments[0])
        return Codec(
            encode=lambda value, path: [
                item.encode(part, f"{path}[{i}]") for i, part in enumerate(_expect(value, (tuple, list), path, "a list"))
            ],
            decode=lambda value, path: tuple(
                item.decode(part, f"{path}[{i}]") for i, part in enumerate(_expect(value, list, path, "a list"))
            ),
            schema=lambda definitions: {"type": "array", "items": item.schema(definitions)},
        )
    items = tuple(codec_of(argument) for argument in arguments)

    def fixed(value: Any, path: str) -> Any:
        value = _expect(value, (tuple, list), path, "a list")
        if len(value) != len(items):
            raise _wrong(path, value, f"a list of {len(items)}")
        return value

    return Codec(
        encode=lambda value, path: [
            codec.encode(part, f"{path}[{i}]") for i, (codec, part) in enumerate(zip(items, fixed(value, path), strict=True))
        ],
        decode=lambda value, path: tuple(
            codec.decode(part, f"{path}[{i}]") for i, (codec, part) in enumerate(zip(items, fixed(value, path), strict=True))
        ),
        schema=lambda definitions: {
            "type": "array",
            "prefixItems": [codec.schema(definitions) for codec in items],
            "minItems": len(items),
            "maxItems": len(items),
        },
    )


def _expect(value: Any, kind: type | tuple[type, ...], path: str, limit: str) -> Any:
    if not isinstance(value, kind):
        raise _wrong(path, value, limit)
    return value


def _dict_codec(argument: Any) -> Codec:
    item = codec_of(argument)

    def convert(value: Any, path: str, side: str) -> dict[str, Any]:
        code = getattr(item, side)
        pairs = _expect(value, dict, path, "an object").items()
        return {_string(key, f"{path} (a key)"): code(part, f"{path}.{key}") for key, part in pairs}

    return Codec(
        encode=lambda value, path: convert(value, path, "encode"),
        decode=lambda value, path: convert(value, path, "decode"),
        schema=lambda definitions: {"type": "object", "additionalProperties": item.schema(definitions)},
    )


def _anything_codec(*, object_only: bool) -> Codec:
    """Foreign JSON (a plotly figure): kept as it is, checked to be JSON."""

    def convert(value: Any, path: str) -> Any:
        if isinstance(value, dict):
            return {_string(key, f"{path} (a key)"): convert(part, f"{path}.{key}") for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [convert(part, f"{path}[{i}]") for i, part in enumerate(value)]
        if value is None or isinstance(value, (str, bool)):
            return value
        if isinstance(value, Integral):
            return int(value)
        return _number(value, path)

    def top(value: Any, path: str) -> Any:
        return convert(_expect(value, dict, path, "an object") if object_only else value, path)

    return Codec(encode=top, decode=top, schema=lambda definitions: {"type": "object"} if object_only else {})


def _dataclass_codec(kind: type) -> Codec:
    hints = typing.get_type_hints(kind)
    fields = dataclasses.fields(kind)
    codecs = {item.name: codec_of(hints[item.name]) for item in fields}
    required = [item.name for item in fields if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING]

    def encode(value: Any, path: str) -> dict[str, Any]:
        if not isinstance(value, kind):
            raise _wrong(path, value, kind.__name__)
        return {name: codec.encode(getattr(value, name), f"{path}.{name}") for name, codec in codecs.items()}

    def decode(value: Any, path: str) -> Any:
        value = _expect(value, dict, path, "an object")
        missing = [name for name in required if name not in value]
        if missing:
            raise InputError(f"{path} lacks the key {missing[0]!r}", remedy="write it again with `advisor advise`")
        known = {name: codec.decode(value[name], f"{path}.{name}") for name, codec in codecs.items() if name in value}
        return kind(**known)

    def describe(definitions: dict[str, Any]) -> dict[str, Any]:
        if kind.__name__ not in definitions:
            entry = definitions[kind.__name__] = {"type": "object"}
            comments = _field_comments(kind.__module__).get(kind.__name__, {})
            entry["description"] = inspect.cleandoc(kind.__doc__ or "")
            entry["properties"] = {
                name: codec.schema(definitions) | ({"description": comments[name]} if name in comments else {})
                for name, codec in codecs.items()
            }
            entry["required"] = list(required)
        return {"$ref": f"#/$defs/{kind.__name__}"}

    return Codec(encode=encode, decode=decode, schema=describe)


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
