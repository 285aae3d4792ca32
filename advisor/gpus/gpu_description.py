"""The keys of a GPU's TOML description, the range of every figure, and checks of figures against each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from advisor.system.errors import InputError

ARCHITECTURES = ("pascal", "volta", "turing", "ampere", "ada", "hopper", "blackwell", "cdna2", "cdna3", "cdna4")
VENDORS = ("nvidia", "amd")
TENSOR_DTYPES = ("bf16", "fp16", "tf32", "fp8", "fp4", "int8")
FMA_DTYPES = ("fp32", "fp16", "fp64")

# The accepted range of every numeric key, both ends included. The upper ends only catch a wrong unit (MHz given as Hz,
# GB/s as bytes/s): each is several times what any GPU of the coming years has.
WHOLE: dict[str, tuple[int, int]] = {
    "num_sms": (1, 10_000),
    "l2_bytes": (1024, 1 << 40),
    "dram_bytes": (1 << 20, 1 << 50),
    "smem_bytes_per_sm": (1024, 1 << 30),
    "smem_bytes_per_cta": (1024, 1 << 30),
    "smem_reserved_bytes_per_cta": (0, 1 << 20),
    "registers_per_sm": (1024, 1 << 24),
    "max_registers_per_thread": (1, 4096),
    "register_allocation_unit": (1, 1 << 16),
    "max_warps_per_sm": (1, 1024),
    "max_ctas_per_sm": (1, 1024),
    "warp_size": (1, 128),
}
REAL: dict[str, tuple[float, float]] = {
    "max_clock_mhz": (1.0, 20_000.0),
    "base_clock_mhz": (1.0, 20_000.0),
    "boost_clock_mhz": (1.0, 20_000.0),
    "xu_op_per_clock_per_sm": (1e-3, 1e6),
    "alu_op_per_clock_per_sm": (1e-3, 1e6),
    "issue_instruction_per_clock_per_sm": (1e-3, 1e4),
    "smem_bytes_per_clock_per_sm": (1e-3, 1e6),
    "l2_bytes_per_s": (1e9, 1e16),
    "l2_near_bytes": (1024.0, float(1 << 40)),
    "l2_far_bytes_per_s": (1e9, 1e16),
    "dram_bytes_per_s": (1e8, 1e16),
    "dram_achievable_fraction": (0.01, 1.0),
    "dram_sustained_fraction": (0.01, 1.0),
    "launch_latency_us": (0.0, 1e4),
    "board_power_w": (1.0, 1e5),
    "fabric_bytes_per_s": (1e8, 1e14),
    "pcie_bytes_per_s": (1e8, 1e13),
    "host_bytes_per_s": (1e8, 1e13),
}
TABLES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # key -> (possible entries, required entries)
    "tensor_flop_per_clock_per_sm": (TENSOR_DTYPES, ()),
    "fma_flop_per_clock_per_sm": (FMA_DTYPES, ("fp32",)),
    "plain_dot_flop_per_clock_per_sm": (TENSOR_DTYPES, ()),
    "fp16_accumulator_flop_per_clock_per_sm": (("fp16", "fp8"), ()),
}
OPTIONAL = (
    "boost_clock_mhz",
    "board_power_w",
    "fabric_bytes_per_s",
    "pcie_bytes_per_s",
    "host_bytes_per_s",
    "dram_sustained_fraction",
    "l2_near_bytes",
    "l2_far_bytes_per_s",
    "plain_dot_flop_per_clock_per_sm",
    "fp16_accumulator_flop_per_clock_per_sm",
)
"""Figures that may be unknown, or mean nothing on a GPU."""

_TABLE_RANGE = (1e-3, 1e7)
NUMERIC_KEYS = (*WHOLE, *REAL, *TABLES)


def check_values(values: Mapping[str, Any], origin: str) -> None:
    """Checks types, ranges and what the figures say about each other.

    Args:
        values: By key; those that are optional may be missing.
        origin: What they are of (a file): it begins the message.

    Raises:
        InputError: A value is out of range, or two contradict each other.
    """

    def reject(key: str, got: object, limit: str, remedy: str = "correct the figure and its unit") -> None:
        raise InputError(f"{origin}: {key}", got=got, limit=limit, remedy=remedy)

    for key in ("name", "vendor", "architecture", "compute_capability"):
        if not isinstance(values[key], str) or not values[key].strip() or len(values[key]) > 200:
            reject(key, values[key], accepted(key), "give a short text in quotes")
    for key, choices in (("vendor", VENDORS), ("architecture", ARCHITECTURES)):
        if values[key] not in choices:
            reject(key, values[key], accepted(key), "write it in lower case")
    pattern = r"\d+\.\d" if values["vendor"] == "nvidia" else r"gfx[0-9a-f]+"
    if not re.fullmatch(pattern, values["compute_capability"]):
        reject("compute_capability", values["compute_capability"], accepted("compute_capability"), "quote it")
    names = values["device_names"]
    if not isinstance(names, list | tuple) or not names or not all(isinstance(n, str) and n.strip() for n in names):
        reject("device_names", names, accepted("device_names"), "write it as a list of texts")
    for key in WHOLE:
        if not isinstance(values[key], int) or isinstance(values[key], bool):
            reject(key, values[key], accepted(key))
        _check_range(values[key], WHOLE[key], key, origin, accepted(key))
    for key in REAL:
        if key not in OPTIONAL or values.get(key) is not None:
            _check_range(values[key], REAL[key], key, origin, accepted(key))
    for key, (possible, required) in TABLES.items():
        table: Any = values.get(key)
        if table is None and key in OPTIONAL:
            continue
        if not isinstance(table, dict) or not set(required) <= set(table) or not set(table) <= set(possible):
            extra = f" ({', '.join(required)} is required)" if required else ""
            reject(key, table, accepted(key) + extra, f"write it as [{key}] with one line per type")
        for dtype, rate in table.items():
            _check_range(rate, _TABLE_RANGE, f"{key}.{dtype}", origin, "a number from 0.001 to 1e7")
    plain: Mapping[str, float] = values.get("plain_dot_flop_per_clock_per_sm") or {}
    for dtype, rate in plain.items():
        most = values["tensor_flop_per_clock_per_sm"].get(dtype, 0)
        if rate > most:
            reject(
                f"plain_dot_flop_per_clock_per_sm.{dtype}",
                rate,
                f"at most tensor_flop_per_clock_per_sm.{dtype} ({most})",
                "correct one of the two",
            )
    for dtype, rate in (values.get("fp16_accumulator_flop_per_clock_per_sm") or {}).items():
        least = values["tensor_flop_per_clock_per_sm"].get(dtype)
        if least is None or rate < least:
            which = f"tensor_flop_per_clock_per_sm.{dtype}"
            limit = f"at least {which} ({least})" if least is not None else f"a type that has a {which}"
            reject(f"fp16_accumulator_flop_per_clock_per_sm.{dtype}", rate, limit, "correct one of the two, or leave it out")
    if (values.get("l2_near_bytes") is None) != (values.get("l2_far_bytes_per_s") is None):
        reject("l2_near_bytes", values.get("l2_near_bytes"), "given together with l2_far_bytes_per_s, or not at all", "give both")
    for smaller, larger in (("base_clock_mhz", "max_clock_mhz"), ("smem_bytes_per_cta", "smem_bytes_per_sm")):
        if values[smaller] > values[larger]:
            reject(smaller, values[smaller], f"at most {larger} ({values[larger]})", "correct one of the two")


def _check_range(value: Any, limits: tuple[float, float], key: str, origin: str, limit: str) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not limits[0] <= value <= limits[1]:  # also NaN, which compares false
        # Python refuses to print integers of thousands of digits, which TOML can write in hexadecimal.
        shown = "more than 1e30" if isinstance(value, int) and value > 10**30 else value
        raise InputError(f"{origin}: {key}", got=shown, limit=limit, remedy="correct the figure and its unit")


def check_sources(data: Mapping[str, Any], origin: str, *, users: bool) -> dict[str, str]:
    """The source of each figure, by key; a file of a user may leave that out.

    Raises:
        InputError: A figure has no source, or a source no figure.
    """
    given = [key for key in NUMERIC_KEYS if key in data]
    if "sources" not in data and users:
        return dict.fromkeys(given, f"specified by {origin}")
    sources = data.get("sources", {})
    if not isinstance(sources, dict):
        raise InputError(f"{origin}: sources", got=sources, limit="a table of texts", remedy="write [sources]")
    for key in given:
        text = sources.get(key)
        if not isinstance(text, str) or not text.strip():
            hint = "say where the figure is from" + (", or leave out [sources] altogether" if users else "")
            raise InputError(f"{origin}: sources.{key}", got=text, limit="a text", remedy=hint)
    for key in sources:
        if key not in given:
            raise InputError(f"{origin}: sources names a key that has no figure", got=key, remedy="rename or remove it")
    return dict(sources)


def accepted(key: str) -> str:
    """The values accepted for `key`, in words for an error message."""
    if key in WHOLE:
        return f"a whole number from {WHOLE[key][0]} to {WHOLE[key][1]}"
    if key in REAL:
        return f"a number from {REAL[key][0]:g} to {REAL[key][1]:g}"
    if key in TABLES:
        return f"a table with entries of {', '.join(TABLES[key][0])}"
    return {
        "vendor": f"one of {', '.join(VENDORS)}",
        "architecture": f"one of {', '.join(ARCHITECTURES)} (the closest, for a new one)",
        "compute_capability": 'a text such as "9.0", or "gfx942" for AMD',
        "device_names": "a list of at least one name, as CUDA prints it",
    }.get(key, "a text")
