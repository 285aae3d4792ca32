"""Names of operand types: what people, files and libraries write, and the advisor's own."""

from __future__ import annotations

SPELLINGS: dict[str, str] = {
    **{name: name for name in ("bf16", "fp16", "fp32", "tf32", "fp8", "int8", "fp64")},
    "bfloat16": "bf16",
    "float16": "fp16",
    "f16": "fp16",
    "half": "fp16",
    "float32": "fp32",
    "f32": "fp32",
    "float": "fp32",
    "float64": "fp64",
    "f64": "fp64",
    "double": "fp64",
    "float8": "fp8",
    "e4m3": "fp8",
    "fp8_e4m3": "fp8",
    "fp8_e4m3fn": "fp8",
    "float8_e4m3fn": "fp8",
    "float8_e4m3fnuz": "fp8",
    "float8_e5m2": "fp8",
    "float8_e5m2fnuz": "fp8",
    "fp8e4nv": "fp8",
    "fp8e5": "fp8",
    "fp8_w8a8": "fp8",
    "int8_w8a8": "int8",
}
"""Every way in which an operand's type is written, whatever the command, the column or the library -> the advisor's name."""


def dtype_of(text: str) -> str | None:
    """The advisor's name of a type, as `bf16` of `torch.bfloat16`; None: it is none.

    >>> [dtype_of(text) for text in ("torch.bfloat16", "Half", "f16", "fp8e4nv", "int3")]
    ['bf16', 'fp16', 'fp16', 'fp8', None]
    """
    return SPELLINGS.get(text.strip().lower().removeprefix("torch."))
