"""PyTorch's operators in a trace as problems that are predicted: by name, shapes and types."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from advisor.pipelines.elementwise import OPERATORS
from advisor.steps.operators import Operator

TYPES = {"float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16", "c10::Float8_e4m3fn": "fp8"}
"""Types as traces name them."""
FACTORS = {"mm": (0, 1), "addmm": (1, 2), "bmm": (0, 1), "baddbmm": (1, 2), "_scaled_mm": (0, 1), "linear": (0, 1)}
"""Products, and which of their arguments are multiplied."""
CAUSAL = {
    "_scaled_dot_product_flash_attention": 4,
    "_scaled_dot_product_flash_attention_for_cpu": 4,
    "_scaled_dot_product_efficient_attention": 6,
    "_scaled_dot_product_cudnn_attention": 6,
}
"""Attention over [sequences, heads, tokens, size], and the argument that says whether it is causal (`native_functions.yaml`)."""
NORMS = {"native_layer_norm": "layer_norm", "_softmax": "softmax", "_log_softmax": "softmax", "rms_norm": "rms_norm"}
STREAMS = {name: name for name in OPERATORS if name != "sum"} | {"clone": "copy", "_to_copy": "copy"}
SCALAR = ("add", "sub", "mul", "div", "pow")
"""Operators that have two operands or one and a scalar."""
TRITON = "triton_"
"""How the names of Inductor's kernels begin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """Calls of one operator of PyTorch with the same shapes in a step: how many, microseconds of all their kernels together, the name of
    the longest kernel, and of every argument its shape, type and value as the trace has them."""

    op: str
    kernel: str
    count: int
    us: float
    dims: tuple[tuple[int, ...], ...]
    types: tuple[str, ...]
    values: tuple[str, ...]


def plain(op: str) -> str:
    """The name without its library, and of what works in place as of what does not."""
    return op.rpartition("::")[2].rstrip("_")


def is_known(op: str) -> bool:
    """Whether `problem_of` knows an operator by its name."""
    return op.startswith(TRITON) or any(plain(op) in names for names in (FACTORS, CAUSAL, NORMS, STREAMS))


def is_whole(op: str) -> bool:
    """Whether other operators that run within an operator are parts of it: the bias that is copied, the transposed view."""
    return any(plain(op) in names for names in (FACTORS, CAUSAL, NORMS))


def problem_of(call: Call) -> Operator | None:
    """The problem that the kernels of a call solve; None where its name, shapes or types are not known."""
    name, dims = plain(call.op), call.dims
    first = FACTORS.get(name, (0, 0))[0]
    unshaped = len(dims) <= first or len(call.types) <= first or 0 in dims[first]
    if not is_known(call.op) or unshaped or "HtoD" in call.kernel or "DtoH" in call.kernel:  # over PCIe
        return None
    shape, dtype = dims[first] or (1,), TYPES.get(call.types[first], "")
    if not dtype:
        return None

    def of(kind: str, family: str, op: str, **sizes: float) -> Operator:
        return Operator(name=call.op, kind=kind, count=call.count, family=family, op=op, sizes=sizes, dtype=dtype)

    rows = {"B": prod(shape[:-1]), "H": shape[-1]}
    if name in FACTORS:
        other = dims[FACTORS[name][1]] if len(dims) > FACTORS[name][1] else ()
        if len(shape) < 2 or len(other) < 2:
            return None
        if "1688" in call.kernel or "tf32" in call.kernel:
            dtype = "tf32"
        n = other[-2 if name == "linear" else -1]
        if len(other) > 2:
            return of("gemm", "gemm", "gemm", M=shape[-2], N=n, K=shape[-1], B=prod(shape[:-2]))
        return of("gemm", "gemm", "gemm", M=prod(shape[:-1]), N=n, K=shape[-1])
    if name in CAUSAL:
        if len(dims) < 2 or not len(shape) == len(dims[1]) == 4:
            return None
        (batch, heads, m, size), (_, kv_heads, n, _) = shape, dims[1]
        said = call.values[CAUSAL[name]] if len(call.values) > CAUSAL[name] else str(m == n)
        sizes = {"B": batch, "H": heads, "H_kv": kv_heads, "D": size, "M": m, "N": n, "causal": int(said == "True" or m == 1)}
        return of("attention", "attention", "prefill" if m > 1 else "decode", **sizes)
    if name in NORMS:
        return of("norm", "normalization", NORMS[name], **rows)
    if call.op.startswith(TRITON):  # whatever it computes, its arguments pass once
        elements = sum(prod(each) for each, of_type in zip(dims, call.types, strict=False) if of_type in TYPES)
        return of("elementwise", "elementwise", "copy", B=elements / 2 / shape[-1], H=shape[-1])
    op = STREAMS[name]
    if op in SCALAR and dims[1:2] != (shape,):
        op = "addu" if op == "sub" else f"{op}u"
    return of("elementwise", "elementwise", op, **rows)
