"""Limits of number types, as `torch.finfo`, `torch.iinfo` and numpy's say them, and constants of modules: a table, for no module is
imported to read a file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

CALLS = frozenset({"torch.finfo", "torch.iinfo", "numpy.finfo", "numpy.iinfo"})

CONSTANTS: dict[str, float] = {
    **{f"{module}.{name}": getattr(math, name) for module in ("math", "torch", "numpy") for name in ("e", "pi", "inf", "nan")},
    "math.tau": math.tau,
}
"""Constants by what they are called where they come from."""

# Bits, bits of the fraction, exponent of the smallest normal number, largest number. torch 2.13, `torch.finfo`; the test compares them all.
_FLOATS: dict[str, tuple[int, int, int, float]] = {
    "float16": (16, 10, -14, 65504.0),
    "bfloat16": (16, 7, -126, (2 - 2.0**-7) * 2.0**127),
    "float32": (32, 23, -126, (2 - 2.0**-23) * 2.0**127),
    "float64": (64, 52, -1022, (2 - 2.0**-52) * 2.0**1023),
    "float8_e4m3fn": (8, 3, -6, 448.0),
    "float8_e4m3fnuz": (8, 3, -7, 240.0),
    "float8_e5m2": (8, 2, -14, 57344.0),
    "float8_e5m2fnuz": (8, 3, -15, 57344.0),  # its eps is 0.125 in torch, though the fraction has two bits
}
_INTEGERS = {f"{sign}int{bits}": (bits, not sign) for sign in ("", "u") for bits in (8, 16, 32, 64)}
_SECOND_NAMES = {
    "torch": {"float": "float32", "half": "float16", "double": "float64", "short": "int16", "int": "int32", "long": "int64"},
    "numpy": {"half": "float16", "single": "float32", "double": "float64"},
}


@dataclass(frozen=True, slots=True)
class Limits:
    """What `finfo` or `iinfo` of a type is: values by attribute."""

    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class NumberType:
    """A type of numbers, by torch's name of it."""

    name: str


def number_type(name: str) -> NumberType | None:
    """The type that `torch.half`, `numpy.float32` and the like stand for; None: no type of numbers whose limits are known."""
    module, _, last = name.rpartition(".")
    last = _SECOND_NAMES.get(module, {}).get(last, last)
    return NumberType(last) if module in _SECOND_NAMES and (last in _FLOATS or last in _INTEGERS) else None


def limits(function: str, name: str) -> Limits | None:
    """What one of `CALLS` gives for a type; None: it would fail, or its limits are not known."""
    if function.endswith("finfo") and name in _FLOATS:
        bits, fraction, exponent, largest = _FLOATS[name]
        smallest = 2.0**exponent
        return Limits({"bits": bits, "max": largest, "min": -largest, "eps": 2.0**-fraction, "tiny": smallest, "smallest_normal": smallest})
    if function.endswith("iinfo") and name in _INTEGERS:
        bits, signed = _INTEGERS[name]
        return Limits({"bits": bits, "max": 2 ** (bits - signed) - 1, "min": -(2 ** (bits - 1)) if signed else 0})
    return None
