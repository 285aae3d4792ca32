"""Whether an entry can be launched at all: operand types, options, shared memory of the software pipeline, warps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from advisor.tables.names import TableName, vendor_of

ELEMENT_BYTES: dict[str, float] = {"fp32": 4, "tf32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "int4": 0.5}
MAX_THREADS_PER_CTA = 1024  # CUDA programming guide, every compute capability; the same on CDNA

FP8_CAPABILITY = (8, 9)
"""First NVIDIA GPUs with fp8. Below, Triton refuses to compile e4m3 in any use ("type fp8e4nv not supported in this architecture",
Triton 3.6 and 3.9), PTX has no matrix instruction for it (PTX ISA, mma: .e4m3 from sm_89 on), and neither has cuBLAS a product."""


def refused_dtype(dtype: str | None, gpu_name: str, compute_capability: str) -> str | None:
    """Why no kernel takes operands of `dtype` on this GPU, in words; None where one does.

    Only operands: weights that are stored as fp8 and multiplied as bf16 (`fp8_w8a16`) may be unpacked as bytes. AMD's targets
    ("gfx942") refuse nothing here.
    """
    major, _, minor = compute_capability.partition(".")
    if dtype != "fp8" or not minor or (int(major), int(minor)) >= FP8_CAPABILITY:
        return None
    return f"cannot launch: fp8 needs compute capability 8.9, and {gpu_name} has {compute_capability}"


_LEAST_DOT_DEPTH = {8: 4, 4: 8, 2: 16, 1: 32}
"""By bytes per element: the least depth of a dot that Triton's NVIDIA back end compiles ("Input shapes should have M >= 1, N >= 1 and
K >= 32", `min_dot_size` of `triton/backends/nvidia/compiler.py`, Triton 3.6 and 3.9). HIP pads instead."""


def least_block_k(dtype: str | None, vendor: str) -> int:
    """The least BLOCK_SIZE_K of a dot on operands of `dtype` that compiles for a GPU of `vendor`; 1 where nothing is refused."""
    element = {"fp64": 8, **ELEMENT_BYTES}.get(dtype or "")
    return _LEAST_DOT_DEPTH.get(int(element), 1) if element is not None and vendor == "nvidia" else 1


def most_block_k(dtype: str, weight_dtype: str | None, block_shape: tuple[int, int] | None, *, clamped: bool) -> int | None:
    """The largest BLOCK_SIZE_K that a block-scaled product is right with; None: it is not block-scaled, and any is.

    The kernels of both stacks load one scale of each operand per step of their loop, so that no step may span two quantization blocks.
    Weight-only quantization has a kernel that finds the scale of every element. `clamped`: the launcher cuts BLOCK_SIZE_K down to the
    smaller side of the block (vLLM's fused MoE, see `tables.clamp`), so that nothing larger ever runs.
    """
    if block_shape is None or weight_dtype not in (None, dtype):
        return None
    return min(block_shape) if clamped else block_shape[1]


def raised_block_k(kind: str, stack: str | None, dtype: str | None, block_shape: tuple[int, int] | None, vendor: str) -> int:
    """The BLOCK_SIZE_K to which a loader raises lesser ones; 1 where it raises none.

    SGLang's of fp8 GEMM tables raises them to the quantization block on all but NVIDIA's GPUs (SGLang 0.5.23,
    `get_w8a8_block_fp8_configs`; there, only what does not divide the block, which no power of two does).
    """
    raises = kind == "gemm" and stack == "sglang" and dtype == "fp8" and vendor != "nvidia"
    return block_shape[1] if raises and block_shape is not None else 1


_TILE_KEYS = frozenset({"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M"})


def kernel_keys(
    parameters: Mapping[str, int | bool | str], table: TableName | None = None, compute_capability: str | None = None
) -> frozenset[str]:
    """Keys of an entry that are its kernel's parameters, or that its launcher takes out or sets; all there are where that is not known.

    SPLIT_K: vLLM's fused MoE (0.33, `invoke_fused_moe_triton_kernel`). USE_TMA: SGLang's (0.5.23, `fused_experts_impl`). Both SPLIT_K and
    SWAP_AB: SGLang's fp8 GEMM, on compute capability 9.0 and where either asks for something (`w8a8_block_fp8_matmul_triton`).
    """
    if table is None:
        return _TILE_KEYS | {"SPLIT_K", "SWAP_AB", "USE_TMA"}
    if table.kind == "fused_moe":
        return _TILE_KEYS | {"vllm": {"SPLIT_K"}, "sglang": {"USE_TMA"}}.get(table.stack, {"SPLIT_K", "USE_TMA"})
    swaps_or_splits = bool(parameters.get("SWAP_AB")) or parameters.get("SPLIT_K", 1) != 1
    hopper = table.stack != "vllm" and table.dtype == "fp8_w8a8" and compute_capability in (None, "9.0")
    return _TILE_KEYS | {"SPLIT_K", "SWAP_AB"} if hopper and swaps_or_splits else _TILE_KEYS


_COMMON_OPTIONS = (
    "num_warps",
    "num_stages",
    "num_ctas",
    "enable_fp_fusion",
    "launch_cooperative_grid",
    "debug",
    "sanitize_overflow",
    "instrumentation_mode",
)
BACK_END_OPTIONS: dict[str, frozenset[str]] = {
    "nvidia": frozenset({*_COMMON_OPTIONS, "maxnreg", "launch_pdl", "ptx_options", "ir_override"}),
    "amd": frozenset({*_COMMON_OPTIONS, "waves_per_eu", "matrix_instr_nonkdim", "kpack", "schedule_hint"}),
}
"""Options a launch may name: those of `CUDAOptions` and `HIPOptions` (Triton 3.9) that a table could hold."""

MATRIX_INSTR_NONKDIM = (0, 4, 16, 32)
"""M and N of AMD's mfma instructions, 0: the compiler's choice (AMD Instinct MI300 ISA, matrix instructions)."""


MOST_CTAS = 16
"""CTAs of a cluster, of which 8 run on every GPU that has clusters (CUDA programming guide, thread block clusters); Triton asks for
16 where a launch wants them (`triton/backends/nvidia/driver.c`, Triton 3.9)."""


def refused_warps(num_warps: int) -> str | None:
    """Why no launch has so many warps, in words; None where one may: the options of both back ends assert it (`CUDAOptions`, `HIPOptions`,
    Triton 3.6 and 3.9), wherever these are made."""
    if num_warps > 0 and num_warps & (num_warps - 1) == 0:
        return None
    return f"num_warps {num_warps}: no power of two, which Triton refuses to compile"


def refused_ctas(num_ctas: int, compute_capability: str | None = None) -> str | None:
    """Why no launch has clusters of so many CTAs, in words; None where one may, or where the GPU is not known.

    One CTA is no cluster. Triton refuses more below compute capability 9.0 and on AMD's gfx9 (`make_ttir` and `parse_options` of its back
    ends), and its compiler fails at what is no power of two (Triton 3.9).
    """
    if num_ctas == 1:
        return None
    major, _, minor = (compute_capability or "9.0").partition(".")
    if not minor or int(major) < 9:
        return f"num_ctas {num_ctas}: the GPU has no clusters of CTAs ({compute_capability}; compute capability 9.0 and later have them)"
    if num_ctas & (num_ctas - 1):
        return f"num_ctas {num_ctas}: no power of two, which Triton fails to compile"
    return f"num_ctas {num_ctas}: a cluster has at most {MOST_CTAS} CTAs" if num_ctas > MOST_CTAS else None


def refused_keys(
    parameters: Mapping[str, int | bool | str], vendor: str, table: TableName | None = None, compute_capability: str | None = None
) -> tuple[str, ...]:
    """Keys of an entry that a launch on a GPU of `vendor` does not know: both stacks pass `**config`, and Triton raises a KeyError.

    Of a vendor whose options are not known, only those are named that are other kernels' parameters.
    """
    taken, options = kernel_keys(parameters, table, compute_capability), BACK_END_OPTIONS.get(vendor)
    return tuple(key for key in parameters if key not in taken and (key in kernel_keys({}) if options is None else key not in options))


def refused_parameters(
    parameters: Mapping[str, int | bool | str], vendor: str, table: TableName | None = None, compute_capability: str | None = None
) -> tuple[str, ...]:
    """Keys of a table's entry that make its launch on a GPU of `vendor` fail; `table` says which launcher gets them, where known."""
    refused = list(refused_keys(parameters, vendor, table, compute_capability))
    if vendor == "amd" and parameters.get("matrix_instr_nonkdim", 0) not in MATRIX_INSTR_NONKDIM:
        refused.append("matrix_instr_nonkdim")
    return tuple(refused)


def ignores_split_k(table: TableName) -> bool:
    """Whether the launcher of a table sets SPLIT_K to 1 whatever its entries say (vLLM 0.33, `invoke_fused_moe_triton_kernel`)."""
    return table.kind == "fused_moe" and table.stack != "sglang"


def lacks_split_k(parameters: Mapping[str, int | bool | str], table: TableName) -> bool:
    """Whether an entry has no SPLIT_K although its kernel asks for one that its launcher does not set.

    That is vLLM's of grouped int4 weights (0.33, `invoke_fused_moe_wna16_triton_kernel`). On NVIDIA's GPUs a CUDA kernel takes over for
    few tokens, how few depends on top-k: nothing is certain there.
    """
    asks = table.kind == "fused_moe" and table.stack == "vllm" and table.dtype == "int4_w4a16" and vendor_of(table.device_name) != "nvidia"
    return asks and "SPLIT_K" not in parameters


def swaps_operands(kind: str, dtype: str | None, compute_capability: str, block_m: Any, block_n: Any, swap_ab: Any = None) -> Any:
    """Whether a kernel computes its tile transposed, so that BLOCK_SIZE_N makes the rows of the matrix instruction.

    The fused-MoE kernels of both stacks do for fp8 activations and weights on sm_90, however they are scaled and however the table was
    tuned, where BLOCK_SIZE_M < 64 <= BLOCK_SIZE_N: the dot is then wgmma (vLLM 0.33, `fused_moe.utils.enable_swap_ab`, pull request
    36559; SGLang 0.5.23, `should_enable_swap_ab`, pull requests 15712 and 16723). A kernel that does not swap reads shared memory more
    often and multiplies more slowly, so that a bound that reckons with the swap holds for it too. SGLang's block-scaled GEMM does as
    its entry's SWAP_AB says there (`fp8_kernel._w8a8_block_fp8_matmul_hopper`).

    Args:
        kind: Of the table, or the family of the problem: fused_moe or gemm.
        dtype: Of the operands as they are multiplied.
        compute_capability: "9.0", or "gfx942" for AMD.
        block_m: BLOCK_SIZE_M, a number or an array.
        block_n: BLOCK_SIZE_N.
        swap_ab: SWAP_AB of the configuration, which decides where it is given (0: a kernel of one's own that does not swap).
    """
    if compute_capability != "9.0":
        return np.zeros(1, dtype=bool)
    if swap_ab is not None:
        return np.asarray(swap_ab) != 0
    return (kind == "fused_moe") & (dtype == "fp8") & (np.asarray(block_m) < 64) & (np.asarray(block_n) >= 64)


def pipeline_buffers(num_stages: Any, compute_capability: str, block_m: Any = 64, num_warps: Any = 4) -> Any:
    """Copies of each operand tile that Triton's software pipeline keeps in shared memory.

    wgmma and tcgen05 (compute capability 9.0, 10.x; 64 rows and four warps at least) read both operands from shared memory
    while the loads of every other stage are under way: one buffer per stage. mma copies a stage to registers before it
    computes, and the HIP back end keeps one stage in registers: one buffer fewer. Checked by cross-compiling the fused-MoE
    kernel with Triton 3.6.0 and 3.9.0, 64 x 128 x 64, bf16, 3 stages: 48 KiB on 8.0, 8.9, 12.0, 72 KiB on 9.0 and 10.0 (gfx942
    with 3.9.0 only: 48 KiB).

    Args:
        num_stages: A number or an integer array.
        compute_capability: "9.0", or "gfx942" for AMD.
        block_m: Rows of the tile as multiplied: BLOCK_SIZE_M, or BLOCK_SIZE_N where the kernel swaps (`swaps_operands`).
        num_warps: Warps per CTA.
    """
    fewer = np.maximum(np.asarray(num_stages) - 1, 1)
    if compute_capability.split(".", 1)[0] not in ("9", "10"):
        return fewer
    warp_group = (np.asarray(block_m) >= 64) & (np.asarray(num_warps) >= 4)
    return np.where(warp_group, np.maximum(num_stages, 1), fewer)


def shared_memory_bytes(
    block_m: Any,
    block_n: Any,
    block_k: Any,
    num_stages: Any,
    *,
    compute_capability: str,
    num_warps: Any = 4,
    a_bytes: float = 2,
    b_bytes: float | None = None,
) -> Any:
    """Shared memory of the pipelined operand tiles of one CTA, in bytes; numbers or arrays, broadcast together.

    Args:
        block_m: BLOCK_SIZE_M; BLOCK_SIZE_N where the kernel swaps its operands (`swaps_operands`).
        block_n: The other of the two.
        block_k: BLOCK_SIZE_K as the launcher passes it (after clamping).
        num_stages: As in the entry.
        compute_capability: "9.0", or "gfx942" for AMD.
        num_warps: Warps per CTA; a warp-group instruction needs four.
        a_bytes: Bytes per element of the activations.
        b_bytes: Bytes per element of the weights; None: as `a_bytes`.
    """
    m, n, k = (np.asarray(block, dtype=np.int64) for block in (block_m, block_n, block_k))
    buffers = pipeline_buffers(num_stages, compute_capability, m, num_warps)
    fewer = np.maximum(np.asarray(num_stages) - 1, 1)
    if b_bytes is None or b_bytes == a_bytes:
        return np.asarray((m * k + k * n) * a_bytes * buffers).astype(np.int64)
    # Weights of another type are converted on the way: mma takes them from registers, a warp-group instruction from one more
    # buffer in shared memory (Triton 3.9.0, sm_90, bf16 x int8, 64 x 128 x 128, 3 stages: 112 KiB).
    warp_group = buffers > fewer
    converted = np.where(warp_group, k * n * a_bytes, 0)
    return np.asarray(m * k * a_bytes * buffers + k * n * b_bytes * fewer + converted).astype(np.int64)
