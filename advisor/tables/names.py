"""The file-name grammar of the tuned tables that vLLM and SGLang ship.

Fused mixture-of-experts tables:

    E=<experts>,N=<intermediate>,device_name=<device>[,dtype=<d>][,block_shape=[n,k]]
        [,per_channel_quant=True][,backend=<b>][_down].json

Block-scaled (or channel-wise) GEMM tables:

    N=<n>,K=<k>,device_name=<device>,dtype=<d>[,block_shape=[n,k]].json

vLLM writes `block_shape=[128,128]`, SGLang `block_shape=[128, 128]`. A parsed name is written back to the letter.
Sources: vLLM 0.33 `fused_moe.get_config_file_name`, `fp8_utils.get_w8a8_block_fp8_configs`; SGLang 0.5.23
`fused_moe_triton_config.get_config_file_name`, `fp8_kernel.get_w8a8_block_fp8_configs`.
"""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Literal

from advisor.result.problem import SPELLINGS
from advisor.system.errors import InputError, NotOursError

Stack = Literal["vllm", "sglang", "unknown"]
Kind = Literal["fused_moe", "gemm"]

SIZE_LIMIT = 2**31
"""Sizes at or above this overflow the 32-bit indices of the kernels."""

_FIELD_ORDER: dict[str, tuple[str, ...]] = {
    "fused_moe": ("E", "N", "device_name", "dtype", "block_shape", "per_channel_quant", "backend"),
    "gemm": ("N", "K", "device_name", "dtype", "block_shape"),
}
_REMEDY = {
    "fused_moe": "rename it by the pattern E=128,N=768,device_name=NVIDIA_H200[,dtype=fp8_w8a8][,block_shape=[128,128]].json",
    "gemm": "rename it by the pattern N=7168,K=2048,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json",
}

# The first field of tables of other kernels that lie in the same folders, and what they tune.
_SIBLINGS: dict[str, str] = {
    "headdim": "a Mamba state-space table (selective state update)",
    "dim": "a Mamba state-space table (selective state update)",
    "dstate": "a Mamba state-space table (selective state update)",
    "world": "a communication table (all-reduce and its relatives)",
    "provider": "a CuTe DSL grouped-GEMM table",
    "epilogue": "an MoE epilogue table",
}

# The dtype field of a table name -> the operands' type: what the stacks write (`*_w8a8`, `*_w?a16`, float32), and plain spellings.
_OPERANDS = {name: dtype for name, dtype in SPELLINGS.items() if dtype not in ("tf32", "fp64")} | dict.fromkeys(
    ("fp8_w8a16", "int8_w8a16", "int4_w4a16"), "bf16"
)

FLOAT32 = frozenset({"fp32", "tf32"})
"""Types that the stacks look up under one name, float32: Triton's setting decides how products of such operands are made."""

_MISSPELLED = 0.75
"""How alike, as difflib counts it, an unknown field is to one of ours that is merely misspelled (`blockshape`, not `input_dtype`)."""

_INTEGER = re.compile(r"0|[1-9][0-9]{0,17}")
_BLOCK_SHAPE = re.compile(r"\[([0-9]{1,18}),( ?)([0-9]{1,18})\]")
_TRITON_FOLDER = re.compile(r"triton_([0-9]+(?:_[0-9A-Za-z]+)*)")
_COMMA_OUTSIDE_BRACKETS = re.compile(r",(?![^\[]*\])")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableName:
    """A parsed table name.

    `E` is None for GEMM tables, `K` for fused-MoE tables. `block_shape` is the quantization block (n, k).
    `block_shape_spaced` keeps SGLang's blank after the comma, so that the name can be written to the letter.
    `triton_version` comes from the folder SGLang keeps a table in (`triton_3_5_1` -> "3.5.1").
    """

    stack: Stack
    kind: Kind
    N: int
    device_name: str
    E: int | None = None
    K: int | None = None
    dtype: str | None = None
    block_shape: tuple[int, int] | None = None
    block_shape_spaced: bool = False
    per_channel_quant: bool = False
    backend: str | None = None
    down: bool = False
    triton_version: str | None = None

    def file_name(self) -> str:
        """The file name, to the letter."""
        sizes = {"E": self.E, "N": self.N} if self.kind == "fused_moe" else {"N": self.N, "K": self.K}
        comma = ", " if self.block_shape_spaced else ","
        fields = {
            **sizes,
            "device_name": self.device_name,
            "dtype": self.dtype,
            "block_shape": f"[{self.block_shape[0]}{comma}{self.block_shape[1]}]" if self.block_shape is not None else None,
            "per_channel_quant": True if self.per_channel_quant else None,
            "backend": self.backend,
        }
        parts = [f"{name}={value}" for name, value in fields.items() if value is not None]
        return ",".join(parts) + ("_down" if self.down else "") + ".json"

    @property
    def operand_dtype(self) -> str:
        """Type of the tensor pipeline's operands: bf16, fp16, fp8, int8, tf32 or fp32 (weight-only quantization: bf16).

        Raises:
            InputError: The name says a type that is not known.
        """
        if self.dtype is None and self.block_shape is not None:
            return "int8"  # vLLM looks block-quantized int8 up under no dtype (`_get_config_dtype_str`)
        operands = operand_dtype(self.dtype)
        # The stacks' kernels call tl.dot without input_precision: Triton's default is tf32 on NVIDIA GPUs (`CUDAOptions`), ieee on AMD's.
        return "tf32" if operands == "fp32" and not is_amd(self.device_name) else operands

    @property
    def weight_dtype(self) -> str | None:
        """Type the weights are stored in, where it differs from the operands'; else None."""
        return {"int8_w8a16": "int8", "int4_w4a16": "int4", "fp8_w8a16": "fp8"}.get(self.dtype or "")


def is_amd(device_name: str) -> bool:
    """Whether a device name is an AMD GPU's; some drivers leave out everything before `MI308X`."""
    return re.match(r"AMD|Radeon|gfx|MI[0-9]{2}", device_name) is not None


def vendor_of(device_name: str) -> str:
    """Whose back end launches the tables of a device; empty for others than the two that are known."""
    return "amd" if is_amd(device_name) else "nvidia" if device_name.upper().startswith("NVIDIA") else ""


def operand_dtype(table_dtype: str | None) -> str:
    """Type of the operands in memory for the `dtype` field of a table name; None: bf16, the stacks' default.

    Raises:
        InputError: The type is not known (mxfp4, say): taken for bf16, a report would be about another kernel.
    """
    if table_dtype is None:
        return "bf16"
    known = _OPERANDS.get(table_dtype.removesuffix("_channelwise"))
    if known is None:
        raise InputError(
            f"dtype={table_dtype}: this operand type is unknown",
            table_dtype,
            "one of " + ", ".join(_OPERANDS),
            "say with --dtype which operands to reckon with",
        )
    return known


def row_dtypes(operands: str) -> tuple[str, ...]:
    """The types under which rows of a table's launches may stand, the launches' own first.

    Of float32 a row need not say how products are made: that is Triton's setting, not the caller's.
    """
    return (operands, *sorted(FLOAT32 - {operands})) if operands in FLOAT32 else (operands,)


def table_dtype(operands: str, weights: str | None = None) -> str | None:
    """The `dtype` field of a launch's table: what `operand_dtype` and `TableName.weight_dtype` undo; None: no field.

    A type that has none is returned as it is: no stack asks for such a name (`unreachable_reason`).
    """
    weights = weights or operands
    if operands in ("bf16", "fp16"):
        return {"int8": "int8_w8a16", "int4": "int4_w4a16", "fp8": "fp8_w8a16", operands: None}.get(weights, f"{weights}_{operands}")
    return {"fp8": "fp8_w8a8", "int8": "int8_w8a8", "fp32": "float32", "tf32": "float32"}.get(operands, operands)


def parse_table_name(path: str | os.PathLike[str]) -> TableName:
    """Parse the name of a tuned table; its folders say which stack it belongs to.

    Args:
        path: A file name or path; the file need not exist.

    Raises:
        NotOursError: The table of another kernel, recognised.
        InputError: Not the name of a table, or a size out of range.
    """
    pure = PurePath(path)
    name = pure.name
    if not name.endswith(".json"):
        raise InputError(f"{name}: not the name of a tuned table", name, "a name that ends in .json", _REMEDY["fused_moe"])
    stem = name[: -len(".json")]
    down = stem.endswith("_down")
    tokens = _COMMA_OUTSIDE_BRACKETS.split(stem[: -len("_down")] if down else stem)
    kind = _kind_of(name, tokens)
    fields = _fields(name, kind, tokens)
    spaced, block_shape = _block_shape(name, kind, fields.get("block_shape"))
    if "device_name" not in fields or not fields["device_name"].strip():
        raise InputError(f"{name}: device_name is missing", name, "device_name=<GPU>", _REMEDY[kind])
    if kind == "gemm" and down:
        raise InputError(f"{name}: _down belongs to fused-MoE tables", "_down", "no suffix", _REMEDY[kind])
    per_channel = fields.get("per_channel_quant")
    if per_channel not in (None, "True"):
        raise InputError(f"{name}: per_channel_quant", per_channel, "per_channel_quant=True, or the field left out", _REMEDY[kind])
    triton_version, path_stack = _folders(pure)
    result = TableName(
        stack="unknown",
        kind=kind,
        E=_size(name, kind, "E", fields) if kind == "fused_moe" else None,
        N=_size(name, kind, "N", fields),
        K=_size(name, kind, "K", fields) if kind == "gemm" else None,
        device_name=fields["device_name"],
        dtype=fields.get("dtype"),
        block_shape=block_shape,
        block_shape_spaced=spaced,
        per_channel_quant=per_channel is not None,
        backend=fields.get("backend"),
        down=down,
        triton_version=triton_version,
    )
    return replace(result, stack=path_stack or _stack_of(result))


def is_table_name(path: str | os.PathLike[str]) -> bool:
    """Whether `path` is named like a fused-MoE or GEMM table."""
    try:
        parse_table_name(path)
    except InputError:
        return False
    return True


def _kind_of(name: str, tokens: list[str]) -> Kind:
    first = tokens[0].partition("=")[0]
    keys = [token.partition("=")[0] for token in tokens]
    if first == "E":
        return "fused_moe"
    if first == "N" and "K" in keys:
        return "gemm"
    if first in _SIBLINGS:
        raise NotOursError(f"{name}: {_SIBLINGS[first]}, of a kernel the advisor has no model for", None, None, "skip it")
    if "device_name" in keys:
        raise NotOursError(
            f"{name}: a tuned table of another kernel (its name starts with {first!r})",
            None,
            "a name that starts with E=…,N=… or N=…,K=…",
            "skip it, or rename it if it is a fused-MoE or GEMM table",
        )
    raise InputError(f"{name}: not the name of a tuned table", name, "E=…,N=…,device_name=….json or N=…,K=…", _REMEDY["fused_moe"])


def _fields(name: str, kind: Kind, tokens: list[str]) -> dict[str, str]:
    order = _FIELD_ORDER[kind]
    fields: dict[str, str] = {}
    keys = [token.partition("=")[0] for token in tokens]
    position = -1
    for token in tokens:
        key, equals, value = token.partition("=")
        if not equals or not value:
            raise InputError(f"{name}: field {token!r} has no value", token, "key=value", _REMEDY[kind])
        if key not in order and "device_name" in keys and not difflib.get_close_matches(key, order, n=1, cutoff=_MISSPELLED):
            raise NotOursError(
                f"{name}: a tuned table of another kernel (its name has a field {key!r})",
                None,
                f"no fields but {', '.join(order)}",
                "skip it, or leave the field out of a table that is ours",
            )
        if key not in order:
            raise InputError(f"{name}: unknown field {key!r}", key, f"one of {', '.join(order)}", _REMEDY[kind])
        if key in fields:
            raise InputError(f"{name}: field {key!r} occurs twice", value, "each field once", _REMEDY[kind])
        if order.index(key) < position:
            raise InputError(f"{name}: field {key!r} is out of order", key, f"the order {', '.join(order)}", _REMEDY[kind])
        position = order.index(key)
        fields[key] = value
    return fields


def _size(name: str, kind: Kind, key: str, fields: dict[str, str]) -> int:
    limit = f"an integer from 1 to {SIZE_LIMIT - 1}"
    text = fields.get(key)
    if text is None:
        raise InputError(f"{name}: {key} is missing", name, limit, _REMEDY[kind])
    if not _INTEGER.fullmatch(text) or not 0 < int(text) < SIZE_LIMIT:
        raise InputError(f"{name}: {key}", text, limit, _REMEDY[kind])
    return int(text)


def _block_shape(name: str, kind: Kind, text: str | None) -> tuple[bool, tuple[int, int] | None]:
    if text is None:
        return False, None
    match = _BLOCK_SHAPE.fullmatch(text)
    limit = "block_shape=[n,k] of two powers of two up to 65536"
    if match is None:
        raise InputError(f"{name}: block_shape", text, limit, _REMEDY[kind])
    n, k = int(match[1]), int(match[3])
    # Leading zeros would not be written back to the letter; anything but a power of two no kernel can tile.
    if any(not 0 < v <= 65536 or v & (v - 1) for v in (n, k)) or (str(n), str(k)) != (match[1], match[3]):
        raise InputError(f"{name}: block_shape", text, limit, _REMEDY[kind])
    return bool(match[2]), (n, k)


def _folders(path: PurePath) -> tuple[str | None, Stack | None]:
    """Triton version and stack that the folders of a path speak of; the nearest folder wins."""
    version: str | None = None
    stack: Stack | None = None
    for part in reversed(path.parts[:-1]):
        match = _TRITON_FOLDER.fullmatch(part)
        if match and version is None:
            version = match[1].replace("_", ".")
            stack = stack or "sglang"  # only SGLang keeps a folder per Triton version
        if part in ("vllm", "sglang") and stack is None:
            stack = "vllm" if part == "vllm" else "sglang"
    return version, stack


def _stack_of(name: TableName) -> Stack:
    """The stack that a file name alone points to."""
    if name.down or name.per_channel_quant or name.block_shape_spaced:
        return "sglang"
    if name.block_shape is not None or name.backend is not None or name.dtype == "fp8_w8a16":
        return "vllm"
    return "unknown"


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
    allowed = (_FUSED_MOE_DTYPES if name.kind == "fused_moe" else _GEMM_DTYPES)[asking]
    stack, vllm = {"vllm": "vLLM", "sglang": "SGLang"}[asking], asking == "vllm"
    known = ", ".join(str(dtype) for dtype in allowed if dtype) + ("; bf16 has no dtype field" if None in allowed else "")
    given = f"dtype={name.dtype}" if name.dtype else "a name without dtype"
    of_h200 = name.kind == "fused_moe" and "H200" in name.device_name.split("_") and name.device_name != "NVIDIA_H200"
    # The int8 GEMM lookup of vLLM has been written with and without the blank; only the others are sure.
    blank = name.block_shape_spaced and not (name.kind == "gemm" and name.dtype == "int8_w8a8")
    reasons = (
        (name.dtype not in allowed, f"{stack} never asks for {given} here (only {known})"),
        (name.kind == "gemm" and name.block_shape is None, f"{stack} asks for GEMM tables with a block_shape only"),
        (vllm and name.down, "vLLM has no _down tables: both GEMMs take the same entry"),
        (vllm and name.per_channel_quant, "vLLM's names have no per_channel_quant field"),
        (vllm and blank, "vLLM writes block_shape without a blank after the comma"),
        (vllm and of_h200, "vLLM looks every H200 up as device_name=NVIDIA_H200"),
        (vllm and name.triton_version is not None, "vLLM looks in one flat folder, not in a folder per Triton version"),
        (
            not vllm and name.block_shape is not None and not name.block_shape_spaced,
            "SGLang writes block_shape with a blank after the comma",
        ),
        (re.search(r"\s", name.device_name), "both stacks replace blanks in the device name by _"),
    )
    return tuple(reason for holds, reason in reasons if holds)


def device_twins(device_name: str) -> tuple[str, ...]:
    """Other names the same GPU goes by; a table under one of them is not found under the other."""
    return tuple(other for pair in _DEVICE_ALIASES if device_name in pair for other in pair if other != device_name)
