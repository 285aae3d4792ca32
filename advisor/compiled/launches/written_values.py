"""What people write of a launch, on the command line and in TOML files: types, values, signatures."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.compiler.kernel import OPTION_NAMES
from advisor.python_source.literal_values import Passed, Symbol
from advisor.python_source.literals import Evaluator, NotLiteralError
from advisor.python_source.source import SourceFile
from advisor.system.errors import InputError, UsageError
from advisor.system.reading import parse_toml, read_bytes

MAX_TOML_BYTES = 4_000_000
MOST_ITEMS = 2**20
"""Of a list on the command line."""
_TYPE = re.compile(r"\*?(i1|[iu](8|16|32|64)|fp(16|32|64)|bf16|fp8e4nv|fp8e5|fp8e4b15|fp8e4b8|fp8e5b16|constexpr)|tensordesc<.+>")
_LANGUAGE_NAMES = {"bf16": "bfloat16", "fp": "float", "i": "int", "u": "uint"}
"""What types begin with, and what their names in triton's language begin with instead."""
_NEXT_ASSIGNMENT = re.compile(r",(?=\s*[^\W\d]\w*\s*=(?!=))")
"""The comma before the next NAME=; others are of a value, such as (1, 2)."""
_RANGE = re.compile(r"range\(([-\d,\s]+)\)")
"""Of the command line, where it may be longer than a literal of a kernel's file."""
_REPEATED = re.compile(r"((?:range|permutation)\(.*\))\s*\*\s*(\d+)")
CONTENTS = ": a list, range(4096), range(4096) * 8, random(ROWS, COUNT) or permutation(ROWS)"
_RANDOM = re.compile(r"(random|permutation)\((\d+)(?:,\s*(\d+))?\)")
TYPE_NAMES = {
    "f16": "fp16",
    "float16": "fp16",
    "half": "fp16",
    "f32": "fp32",
    "float32": "fp32",
    "float": "fp32",
    "float64": "fp64",
    "f64": "fp64",
    "bfloat16": "bf16",
    "int32": "i32",
    "int64": "i64",
    "int8": "i8",
    "int16": "i16",
    "uint8": "u8",
    "bool": "i1",
    "fp8": "fp8e4nv",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
    "int": "i32",
    "uint32": "u32",
    "uint64": "u64",
    "int1": "i1",
    "u1": "i1",
}
TOML_KEYS = (
    "signature",
    "constexprs",
    "arguments",
    "contents",
    "sizes",
    "shapes",
    "grid",
    "divisible",
    "problem",
    "dtype",
    "configs",
    *OPTION_NAMES,
)


def type_name(text: str) -> str:
    """A Triton type from what people write: `*fp16`, `ptr:float16`, `int32`.

    Raises:
        UsageError: It is none.
    """
    name = known_type(text)
    if name is None:
        raise UsageError("not a type of Triton", text.strip().strip("'\""), "such as *fp16, *bf16, i32, i64, fp32, constexpr")
    return name


def known_type(text: str) -> str | None:
    """The same; None: it is none."""
    text = re.sub(r":\d+$", "", text.strip().strip("'\""))
    if text.startswith("(") and text.endswith(")"):
        items = [known_type(part) for part in text[1:-1].split(",") if part.strip()]
        return f"({','.join(map(str, items))})" if items and None not in items else None
    name = text.lstrip("*").removeprefix("torch.").removeprefix("tl.")
    name = ("*" if text.startswith("*") else "") + TYPE_NAMES.get(name, re.sub(r"^float8e", "fp8e", name))  # Triton's own: float8e4nv
    return name if _TYPE.fullmatch(name) else None


def element_type(text: str) -> Symbol | None:
    """A type of triton's language from what people write of it, `bf16` or `torch.bfloat16`; None: it is none.

    >>> element_type("torch.bfloat16").text, element_type("tl.float8e4nv").text
    ('tl.bfloat16', 'tl.float8e4nv')
    """
    name = known_type(text)
    matched = re.fullmatch(r"(bf16|fp|i|u)(\w*)", name or "")
    return Symbol(f"tl.{_LANGUAGE_NAMES[matched.group(1)]}{matched.group(2)}") if matched else None


def literal(text: str) -> Any:
    """A value from the command line: a number, true/false, none, a type (`tl.float32`), `range(8192)`, `range(4096) * 8` (so often over),
    `random(151936)` (so many rows to choose from) or `random(151936, 8192)` (and so many indices), `permutation(8192)` (each row once), or
    else the text."""
    lowered = text.strip().lower()
    if repeated := _REPEATED.fullmatch(lowered):
        once, times = literal(repeated.group(1)), int(repeated.group(2))
        if isinstance(once, (range, np.ndarray)) and 0 < len(once) * times <= MOST_ITEMS:
            return np.tile(np.array(once), times)
    if matched := _RANGE.fullmatch(lowered):
        with contextlib.suppress(ValueError, TypeError):
            counted = range(*(int(part) for part in matched.group(1).split(",")))
            if len(counted) <= MOST_ITEMS:
                return counted
    if drawn := _RANDOM.fullmatch(lowered):
        rows, once = int(drawn.group(2)), drawn.group(1) == "permutation"
        count = int(drawn.group(3) or (rows if once else MOST_ITEMS))
        if 0 < rows <= (MOST_ITEMS if once else 2**31) and count <= (rows if once else MOST_ITEMS):
            return random_indices(rows, count, once=once)
    if lowered in ("true", "false", "none", ""):
        return {"true": True, "false": False, "none": None, "": ""}[lowered]
    try:
        return Evaluator({}, frozenset({"tl", "triton"})).evaluate_text(text)
    except (NotLiteralError, SyntaxError, ValueError, RecursionError, MemoryError):
        return text


def random_indices(rows: int, count: int, *, once: bool = False) -> NDArray[np.int64]:
    """`count` indices [count] of `rows` rows, each as likely as the others, none twice where `once`; the same ones every time.

    >>> random_indices(151_936, 3).tolist()
    [129240, 96777, 77660]
    >>> sorted(random_indices(4, 4, once=True).tolist())
    [0, 1, 2, 3]
    """
    generator = np.random.default_rng(0)
    return generator.choice(rows, count, replace=False) if once else generator.integers(0, rows, count)


def assignments(items: Sequence[str], option: str) -> dict[str, Any]:
    """`NAME=VALUE` options, each also as a comma-separated list.

    Raises:
        UsageError: One has no `=`, or several values that are no tuple: somebody means several sizes.
    """
    values: dict[str, Any] = {}
    for item in (part for entry in items for part in _NEXT_ASSIGNMENT.split(entry)):
        name, separator, value = item.partition("=")
        if not separator or not name.strip().isidentifier():
            raise UsageError(f"{option} takes NAME=VALUE", item)
        values[name.strip()] = made = literal(value)
        if isinstance(made, tuple) and not value.lstrip().startswith(("(", "[")):
            remedy = f"give one size a command ({name}={made[0]}); a tuple is written in parentheses: '{name}=({value})'"
            raise UsageError(f"{option} takes one value of a name", item, "NAME=VALUE", remedy)
    return values


def numbers(items: Sequence[str], option: str) -> dict[str, Any]:
    """`NAME=NUMBER` options; also `true`, `none`, `inf` and `nan`, and tuples of numbers, also as lists and ranges; of `--content`
    random indices too, as an array.

    Raises:
        UsageError: One has no `=`, or no number behind it.
    """
    values = assignments(items, option)
    for name, value in values.items():
        if isinstance(value, np.ndarray) and option == "--content":
            continue
        with contextlib.suppress(ValueError):
            values[name] = float(value) if isinstance(value, str) else value
        if isinstance(value, (list, range)) and len(value) <= MOST_ITEMS:
            values[name] = tuple(value)
        items = values[name] if isinstance(values[name], tuple) else [values[name]]
        if values[name] is not None and not all(isinstance(item, (bool, int, float)) for item in items):
            raise UsageError(
                f"{option} takes NAME=NUMBER, or NAME=(NUMBER,…)",
                f"{name}={value}",
                f"a number such as 4096, or at most {MOST_ITEMS:,} numbers{CONTENTS if option == '--content' else ''}",
                "a tl.constexpr is given with --constexpr" if option == "--arg" else None,
            )
    return values


def signature(text: str, source: SourceFile, kernel: str) -> dict[str, str]:
    """Types by argument from `*fp16,*fp16,i32` (in order) or `x_ptr=*fp16,n=i32`.

    Raises:
        UsageError: Too many types, an unknown argument, or an unknown type.
    """
    names = source.kernel(kernel).names
    parts = [p.strip() for p in re.split(r",(?![^<\[(]*[>\])])", text) if p.strip()]
    if any("=" in p for p in parts):
        kinds = {}
        for part in parts:
            name, _, kind = part.partition("=")
            if name.strip() not in names:
                raise UsageError(f"{kernel} has no argument of that name", name.strip(), "one of " + ", ".join(names))
            kinds[name.strip()] = type_name(kind)
        return kinds
    if len(parts) > len(names):
        raise UsageError(f"{kernel} has fewer arguments than the signature has types", len(parts), f"at most {len(names)}")
    return {name: type_name(kind) for name, kind in zip(names, parts, strict=False)}


def read_toml(path: str | Path) -> dict[str, Any]:
    """A launch description.

    Raises:
        InputError: It cannot be read, or has an unknown key.
    """
    data = parse_toml(read_bytes(path, str(path), "a TOML file", MAX_TOML_BYTES), str(path))
    for key in data:
        if key not in TOML_KEYS:
            raise InputError(f"{path}: unknown key", key, "one of " + ", ".join(TOML_KEYS))
    contents = data.get("contents", {})
    for name, value in contents.items() if isinstance(contents, dict) else ():
        if isinstance(value, str):
            contents[name] = literal(value)
            if not isinstance(contents[name], (int, float, list, range, np.ndarray)):
                limit = f"a number, a list, range(…), random(N) or permutation(N) of at most {MOST_ITEMS:,} numbers"
                raise InputError(f"{path}: contents of {name}", value, limit)
    return data


def bytes_of(element: str) -> int:
    """Bytes of an element, by its name: fp16, fp8e4nv."""
    bits = re.search(r"\d+", element)
    return max(int(bits.group()) // 8, 1) if bits else 1


def symbol_text(value: Any) -> str:
    """A constant as shown to people."""
    if isinstance(value, Passed):
        return value.name
    return value.text if isinstance(value, Symbol) else str(value) or repr(value)
