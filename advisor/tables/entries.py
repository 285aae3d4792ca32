"""One entry of a tuned table: its fields, their limits, and what a launch gets for those it leaves out."""

from __future__ import annotations

import json
from typing import Any

from advisor.result.schema import Configuration
from advisor.system.errors import InputError, NotOursError
from advisor.tables.names import SIZE_LIMIT, TableName, is_amd

BLOCK_SIZE_LIMIT = 8192
GROUP_SIZE_LIMIT = 65536
NUM_WARPS_LIMIT = 64
NUM_STAGES_LIMIT = 32
EXTRA_KEY_LIMIT = 32
"""Largest number of extra keys in one entry; the shipped tables have at most four."""

# What a launch gets for a field the entry leaves out: the defaults of Triton's CUDA and HIP back ends
# (CUDAOptions.num_warps = 4, num_stages = 3; HIPOptions.num_stages = 2; Triton 3.6 and 3.9).
TRITON_DEFAULT_NUM_WARPS = 4
TRITON_DEFAULT_NUM_STAGES = 3
TRITON_DEFAULT_NUM_STAGES_AMD = 2

BLOCK_COLUMNS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
RETUNE = "correct the entry or tune it again"


def read_entry(label: str, key: str, value: Any, name: TableName) -> Configuration:
    """One entry of a table as a configuration.

    Args:
        label: The file's name.
        key: The entry's key, a token count as text.
        value: What JSON holds there.
        name: What the table is for.

    Raises:
        NotOursError: The entry is another kernel's.
        InputError: A value that no launcher can use; names file, key, value, limit and remedy.
    """
    where = f"{label}: entry {key}"
    if not isinstance(value, dict):
        raise InputError(f"{where} is not a configuration", value, 'an object {"BLOCK_SIZE_M": …}', RETUNE)
    if any(field.startswith("tile_") for field in value) and "BLOCK_SIZE_M" not in value:
        raise NotOursError(f"{where} is tuned for another kernel than Triton's", ", ".join(value), None, "skip it")
    if len(value) > EXTRA_KEY_LIMIT:
        raise InputError(f"{where}: too many keys", len(value), f"at most {EXTRA_KEY_LIMIT}", RETUNE)
    # The channel-wise kernel of SGLang has no grouping; every other one has GROUP_SIZE_M as a required argument.
    required = BLOCK_COLUMNS if (name.dtype or "").endswith("_channelwise") else (*BLOCK_COLUMNS, "GROUP_SIZE_M")
    for field in required:
        if field not in value:
            raise InputError(f"{where}: {field} is missing", None, f"{', '.join(required)} in every entry", RETUNE)
    parameters: dict[str, int | bool | str] = {}
    launch: dict[str, int] = {}
    for field, raw in value.items():
        if field in BLOCK_COLUMNS:
            parameters[field] = _integer(where, field, raw, 1, BLOCK_SIZE_LIMIT, power_of_two=True)
        elif field == "GROUP_SIZE_M":
            parameters[field] = _integer(where, field, raw, 1, GROUP_SIZE_LIMIT)
        elif field == "num_warps":
            launch[field] = _integer(where, field, raw, 1, NUM_WARPS_LIMIT)
        elif field == "num_stages":
            # ROCm's pipeliner once took num_stages = 0 for "no pipelining"; on other GPUs it never meant anything.
            launch[field] = _integer(where, field, raw, 0 if is_amd(name.device_name) else 1, NUM_STAGES_LIMIT)
        elif field in ("num_ctas", "SPLIT_K"):
            target = launch if field == "num_ctas" else parameters
            target[field] = _integer(where, field, raw, 1, 1024)
        else:
            parameters[field] = _extra(where, field, raw)
    stages = TRITON_DEFAULT_NUM_STAGES_AMD if is_amd(name.device_name) else TRITON_DEFAULT_NUM_STAGES
    return Configuration(
        parameters=parameters,
        num_warps=launch.get("num_warps", TRITON_DEFAULT_NUM_WARPS),
        num_stages=launch.get("num_stages", stages),
        num_ctas=launch.get("num_ctas", 1),
    )


def _integer(where: str, field: str, raw: Any, low: int, high: int, *, power_of_two: bool = False) -> int:
    limit = f"an integer from {low} to {high}" + (", a power of two" if power_of_two else "")
    # bool is an int in Python: true would run as 1 here, and as something else in the kernel.
    sound = type(raw) is int and low <= raw <= high and (not power_of_two or raw & (raw - 1) == 0)
    if not sound:
        raise InputError(f"{where}: {field}", _shown(raw), limit, RETUNE)
    return raw


def _extra(where: str, field: str, raw: Any) -> int | bool | str:
    if isinstance(raw, bool) or (isinstance(raw, int) and abs(raw) < SIZE_LIMIT):
        return raw
    if isinstance(raw, str) and len(raw) <= 256:
        return raw
    raise InputError(f"{where}: {field}", _shown(raw), "an integer, true, false or a short text", f"correct or remove {field}")


def _shown(raw: Any) -> str:
    """A value as JSON spells it: `true`, not `True`."""
    try:
        return json.dumps(raw)[:200]
    except (TypeError, ValueError, RecursionError):
        return type(raw).__name__
