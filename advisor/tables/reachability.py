"""Table names that no launch would ever ask for, and why.

Each stack builds the file name of a launch from E, N, the device's name and the quantization, and opens exactly that
file. A table under any other name lies there unread.
"""

from __future__ import annotations

import re

from advisor.tables.names import TableName

# dtype fields that vLLM 0.33 (`_get_config_dtype_str`) and SGLang 0.5.23 (`get_config_dtype_str`) can produce for
# fused MoE. None is bf16 / fp16; vLLM looks int8_w8a8 up under no dtype at all.
_FUSED_MOE_DTYPES: dict[str, tuple[str | None, ...]] = {
    "vllm": (None, "fp8_w8a8", "fp8_w8a16", "int8_w8a16", "int4_w4a16", "float32"),
    "sglang": (None, "fp8_w8a8", "int8_w8a8", "int8_w8a16", "int4_w4a16", "float32"),
}
_GEMM_DTYPES: dict[str, tuple[str | None, ...]] = {
    "vllm": ("fp8_w8a8", "int8_w8a8"),
    "sglang": ("fp8_w8a8", "int8_w8a8"),
}

# One GPU under two names: which one a driver reports depends on its version and on the board.
_DEVICE_ALIASES: tuple[tuple[str, str], ...] = (
    ("AMD_Instinct_MI300X", "AMD_Instinct_MI300X_OAM"),
    ("AMD_Instinct_MI325X", "AMD_Instinct_MI325_OAM"),
    ("AMD_Instinct_MI350X", "AMD_Instinct_MI350_OAM"),
    ("AMD_Instinct_MI355X", "AMD_Instinct_MI355_OAM"),
)


def unreachable_reasons(name: TableName) -> tuple[str, ...]:
    """Why no launch asks for a table of this name; empty where one may. Where the stack is not known, neither may ask for it."""
    if name.stack != "unknown":
        return _reasons(name, name.stack)
    vllm, sglang = _reasons(name, "vllm"), _reasons(name, "sglang")
    shared = tuple(reason for reason in vllm if reason in sglang)
    if shared or not (vllm and sglang):
        return shared
    return ("; ".join((*vllm, *sglang)),)


def _reasons(name: TableName, asking: str) -> tuple[str, ...]:
    """Why no launch of the stack `asking` asks for the name."""
    reasons: list[str] = []
    allowed = (_FUSED_MOE_DTYPES if name.kind == "fused_moe" else _GEMM_DTYPES)[asking]
    stack = {"vllm": "vLLM", "sglang": "SGLang"}[asking]
    if name.dtype not in allowed:
        known = ", ".join(str(dtype) for dtype in allowed if dtype)
        given = f"dtype={name.dtype}" if name.dtype else "a name without dtype"
        reasons.append(f"{stack} never asks for {given} here (only {known}{'; bf16 has no dtype field' if None in allowed else ''})")
    if name.kind == "gemm" and name.block_shape is None:
        reasons.append(f"{stack} asks for GEMM tables with a block_shape only")
    if asking == "vllm":
        if name.down:
            reasons.append("vLLM has no _down tables: both GEMMs take the same entry")
        if name.per_channel_quant:
            reasons.append("vLLM's names have no per_channel_quant field")
        # The int8 GEMM lookup has been written with and without the blank; only the others are sure.
        if name.block_shape_spaced and not (name.kind == "gemm" and name.dtype == "int8_w8a8"):
            reasons.append("vLLM writes block_shape without a blank after the comma")
        if name.kind == "fused_moe" and "H200" in name.device_name.split("_") and name.device_name != "NVIDIA_H200":
            reasons.append("vLLM looks every H200 up as device_name=NVIDIA_H200")
        if name.triton_version is not None:
            reasons.append("vLLM looks in one flat folder, not in a folder per Triton version")
    if asking == "sglang" and name.block_shape is not None and not name.block_shape_spaced:
        reasons.append("SGLang writes block_shape with a blank after the comma")
    if re.search(r"\s", name.device_name):
        reasons.append("both stacks replace blanks in the device name by _")
    return tuple(reasons)


def device_twins(device_name: str) -> tuple[str, ...]:
    """Other names the same GPU goes by; a table under one of them is not found under the other."""
    return tuple(other for pair in _DEVICE_ALIASES if device_name in pair for other in pair if other != device_name)
