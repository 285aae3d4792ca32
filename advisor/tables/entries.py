"""One entry of a tuned table (its fields, their limits, what a launch gets for those left out), and the stacks' own where no table exists.

The defaults are pure functions, vectorised over the token count. Sources: vLLM 0.33 `fused_moe.get_default_config` (the heuristic of vLLM
pull request 34846; before it: `VLLM_BY_TOKENS`) and `fp8_utils.w8a8_triton_block_scaled_mm`; SGLang 0.5.23
`fused_moe_triton_config.get_default_config` and `fp8_kernel.w8a8_block_fp8_matmul_triton`. "sglang-early" is SGLang's bf16 heuristic before
0.4.4, with which the published sweeps took their default latency (`default_*` of `fused_moe_sweep_summary`).
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from advisor.result.schema import Configuration
from advisor.system.errors import InputError, NotOursError, UsageError
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
    required = (*BLOCK_COLUMNS, "GROUP_SIZE_M")
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


DEFAULT_STACKS: tuple[str, ...] = ("vllm", "sglang", "sglang-early")
FIELDS = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")

# SGLang takes smaller fp8 tiles where a CTA can have less shared memory than this (100 KiB GPUs).
SGLANG_LOW_SHARED_MEMORY_BYTES = 128 * 1024

# vLLM 0.33 `w8a8_triton_block_scaled_mm`; SGLang 0.5.23 `w8a8_block_fp8_matmul_triton`, `w8a8_block_int8_matmul`. All else agrees.
_GEMM_STAGES = {"vllm": 2, "sglang": 3}


def default_fields(
    stack: str,
    M: Any,
    E: Any,
    *,
    version: int = 0,
    dtype: str | None = None,
    block_shape: tuple[int, int] | None = None,
    amd: bool = False,
    shared_memory_bytes_per_cta: int | None = None,
) -> dict[str, np.ndarray]:
    """Default fused-MoE configurations for many launches at once.

    Args:
        stack: "vllm", "sglang" or "sglang-early".
        M: Token counts (before top-k), a number or an array.
        E: Experts, broadcast with M.
        version: Of the stack, as `version_number` counts them; 0: the newest.
        dtype: The `dtype` field of a table name ("fp8_w8a8", …), or one of bf16, fp16, fp8, int8; None: bf16.
        block_shape: Quantization block (n, k); None: tensor-wise or channel-wise.
        amd: ROCm, where both stacks keep to two stages.
        shared_memory_bytes_per_cta: The most one CTA can have (SGLang's fp8 default looks at it); None: plenty.

    Returns:
        An integer array per field of `FIELDS`, all of the broadcast shape of M and E.
    """
    if stack not in DEFAULT_STACKS:
        raise UsageError("serving stack", stack, f"one of {', '.join(DEFAULT_STACKS)}", "name one of them")
    m, e = np.broadcast_arrays(*(np.atleast_1d(np.asarray(value, dtype=np.int64)) for value in (M, E)))
    fp8 = dtype in ("fp8_w8a8", "fp8")
    weight_only = dtype in ("int4_w4a16", "int8_w8a16") and block_shape is not None
    if stack == "vllm":
        columns = _vllm(m, e, version or VLLM_NARROW_BLOCKS, fp8, weight_only, block_shape, amd)
    else:
        columns = _sglang(stack, m, e, fp8, block_shape, amd, shared_memory_bytes_per_cta)
    return {name: np.broadcast_to(np.asarray(column, dtype=np.int64), m.shape).copy() for name, column in zip(FIELDS, columns, strict=True)}


VLLM_BY_TOKENS = 1700
VLLM_NARROW_BLOCKS = 2500
"""Versions of vLLM, 0.17 as 1700. From the first on `get_default_config` is that of pull request 34846, from the second on block-scaled fp8
has a narrow tile for at most 8 tokens. By the sources of 0.16.0 to 0.19.0, 0.24.0 to 0.28.0, and 0.33. SGLang's is the same in 0.4.4, 0.5.6
and 0.5.23."""
DEFAULT_CHANGES = {"vllm": (VLLM_NARROW_BLOCKS, VLLM_BY_TOKENS), "sglang": ()}
"""The versions from which a stack's default is another, the newest first."""


def version_number(text: str) -> int:
    """`0.5.14` as 514, `0.24.0` as 2400; what follows three numbers (`post2`, `.dev1`) does not count. 0: no version."""
    parts = [int("".join(c for c in piece if c.isdigit()) or 0) for piece in text.strip().lstrip("v").split("+")[0].split(".")[:3]]
    return sum(part * scale for part, scale in zip(parts, (10000, 100, 1), strict=False))


def default_since(stack: str, M: Any, E: Any, **options: Any) -> int:
    """The version, as `version_number` has it, from which on the default of a stack for these token counts is that of its newest; 0: it was
    always the same. Options as for `default_fields`."""
    newest = default_fields(stack, M, E, **{**options, "version": 0})
    for since in DEFAULT_CHANGES[stack]:
        before = default_fields(stack, M, E, **{**options, "version": since - 1})
        if any((before[name] != newest[name]).any() for name in FIELDS):
            return since
    return 0


def version_text(number: float) -> str:
    """`0.24`, `0.5.14`: the reverse of `version_number`."""
    minor, patch = divmod(round(number), 100)
    return f"0.{minor}" + (f".{patch}" if patch else "")


def _vllm(
    m: np.ndarray, e: np.ndarray, version: int, fp8: bool, weight_only: bool, block_shape: tuple[int, int] | None, amd: bool
) -> tuple[Any, ...]:
    if version < VLLM_BY_TOKENS and not weight_only:  # SGLang still has what both had then; one scale per tensor was no case of its own
        return _sglang("sglang", m, e, fp8 and block_shape is not None, block_shape, amd, None)
    if fp8 and block_shape is not None:
        # twice the CTAs, where 128 columns leave most SMs idle
        narrow = (m <= 8) & (version >= VLLM_NARROW_BLOCKS) & (not amd) & (block_shape[0] % 64 == 0)
        return (
            np.where(m <= 64, 16, 64),
            np.where(narrow, 64, block_shape[0]),
            block_shape[1],
            np.where(m <= 16, 1, 32),
            4,
            2 if amd else np.where(narrow & (m <= 4), 4, 3),
        )
    stages = TRITON_DEFAULT_NUM_STAGES_AMD if amd else TRITON_DEFAULT_NUM_STAGES
    if weight_only:  # the Triton kernel of group-quantized weights; get_moe_wna16_block_config fills in N and K
        one = m == 1
        block_m = np.select([m <= 20, m <= 40], [16, 32], 64)
        return block_m, np.where(one, 32, 64), np.where(one, 64, 32), 1, TRITON_DEFAULT_NUM_WARPS, stages
    return (
        np.select([m <= 32, m <= 96, m <= 512], [16, 32, 64], 128),
        np.where(m <= 64, 64, 128),
        128 if fp8 else np.where(m <= 64, 128, 64),
        np.where(m // np.maximum(e, 1) > 128, 16, 1),
        np.where(m <= 128, 4, 8),
        2 if amd else np.where(m <= 32, 4, 3),
    )


def _sglang(
    stack: str,
    m: np.ndarray,
    e: np.ndarray,
    fp8: bool,
    block_shape: tuple[int, int] | None,
    amd: bool,
    shared_memory_bytes_per_cta: int | None,
) -> tuple[Any, ...]:
    few = m <= e
    if fp8 and block_shape is not None:
        return 64, block_shape[0], block_shape[1], 32, 4, 2 if amd else 3
    if fp8 and shared_memory_bytes_per_cta is not None and shared_memory_bytes_per_cta < SGLANG_LOW_SHARED_MEMORY_BYTES:
        return np.where(few, 32, 64), np.where(few, 64, 128), 256, np.where(few, 1, 64), 4, np.where(few, 4, 2)
    if fp8:
        stages = 2 if amd else 4
        return np.where(few, 64, 128), np.where(few, 128, 256), 128, np.where(few, 1, 32), np.where(few, 4, 8), stages
    block_k, group = (64, 16) if stack == "sglang-early" else (32, 8)
    return (
        np.where(few, 16, 64),
        np.where(few, 32, 64),
        np.where(few, 64, block_k),
        np.where(few, 1, group),
        TRITON_DEFAULT_NUM_WARPS,
        TRITON_DEFAULT_NUM_STAGES_AMD if amd else TRITON_DEFAULT_NUM_STAGES,
    )


def default_configuration(stack: str, M: int, E: int, **options: Any) -> Configuration:
    """The default fused-MoE configuration of one launch; options as for `default_fields`."""
    fields = {name: int(values[0]) for name, values in default_fields(stack, M, E, **options).items()}
    return _configuration(fields)


def default_gemm_configuration(stack: str, block_shape: tuple[int, int] | None = None) -> Configuration:
    """The configuration a stack launches its block-scaled GEMM with where no table exists: the same for every M.

    Without a quantization block (a plain GEMM, which the stacks leave to cuBLAS) the tile is 64 x 128 x 128 as well.

    Args:
        stack: "vllm" or "sglang".
        block_shape: Quantization block (n, k).
    """
    if stack not in _GEMM_STAGES:
        raise UsageError("serving stack", stack, f"one of {', '.join(_GEMM_STAGES)}", "name one of them")
    block_n, block_k = block_shape or (128, 128)
    return _configuration(dict(zip(FIELDS, (64, block_n, block_k, 32, 4, _GEMM_STAGES[stack]), strict=True)))


def _configuration(fields: dict[str, int]) -> Configuration:
    warps, stages = fields.pop("num_warps"), fields.pop("num_stages")
    return Configuration(parameters=dict(fields), num_warps=warps, num_stages=stages)
