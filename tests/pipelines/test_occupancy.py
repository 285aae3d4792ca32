"""Resident CTAs against the CUDA occupancy calculator, and the resources of a dot against what Triton 3.9.0 compiled."""

from __future__ import annotations

import csv
import importlib.util
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.pipelines import ProblemBatch, analyse, column, configuration_batch, demand, occupancy
from advisor.pipelines.batch import ELEMENT_BYTES
from advisor.pipelines.space import family_space
from advisor.result.schema import Configuration
from advisor.system.resources import folder
from advisor.tables.launchability import shared_memory_bytes, swaps_operands

KIB = 1024
COMPILED = Path(__file__).with_name("compiled_resources.csv")
GPU_OF = {"80": "A100", "86": "A40", "89": "L40", "90": "H100", "100": "B200", "120": "RTX 5090"}


@pytest.mark.parametrize(
    ("gpu", "warps", "registers", "shared", "resident", "limiter"),
    [
        ("A100", 4, 32, 0, 16, "warps"),  # 64 warps
        ("A100", 4, 128, 0, 4, "registers"),  # 16 warps of 4,096 registers
        ("A100", 4, 104, 0, 4, "registers"),  # 19 warps' registers, but 4 in each quarter of the SM
        ("A100", 8, 255, 0, 1, "registers"),  # 8 warps
        ("A100", 4, 64, 48 * KIB, 3, "shared-memory"),  # 164 KiB, one reserved for each CTA
        ("A100", 4, 64, 163 * KIB, 1, "shared-memory"),
        ("A100", 4, 64, 163 * KIB + 1, 0, "shared-memory"),
        ("A100", 1, 32, 0, 32, "slots"),
        ("H100", 4, 168, 72 * KIB, 3, "registers"),  # 12 warps of 5,376 registers; 228 KiB hold 3 as well
        ("H100", 4, 90, 72 * KIB, 3, "shared-memory"),
        ("H100", 4, 64, 227 * KIB, 1, "shared-memory"),
        ("H100", 4, 64, 228 * KIB, 0, "shared-memory"),
        ("A40", 4, 32, 0, 12, "warps"),  # 48 warps
        ("A40", 2, 32, 0, 16, "slots"),
        ("A40", 4, 64, 99 * KIB, 1, "shared-memory"),
        ("A40", 4, 64, 100 * KIB, 0, "shared-memory"),
        ("T4", 8, 64, 0, 4, "warps"),  # 32 warps
        ("T4", 4, 64, 32 * KIB, 2, "shared-memory"),  # nothing reserved before sm_80
        ("V100", 4, 64, 0, 8, "registers"),
    ],
)
def test_occupancy(gpu: str, warps: int, registers: int, shared: int, resident: int, limiter: str) -> None:
    resources = occupancy.Resources(registers=column(registers), shared_memory_bytes=column(shared), num_warps=column(warps))
    count, which = occupancy.resident_ctas(load_gpu(gpu), resources)
    assert count[0] == resident
    assert occupancy.LIMITERS[which[0]] == limiter


def test_tensor_memory_limits_blackwell() -> None:
    resources = occupancy.Resources(
        registers=column(64), shared_memory_bytes=column(0), num_warps=column(4), tensor_memory_columns=column(256)
    )
    count, which = occupancy.resident_ctas(load_gpu("B200"), resources)
    assert (count[0], occupancy.LIMITERS[which[0]]) == (2, "tensor-memory")


def compiled_rows() -> list[dict[str, str]]:
    with COMPILED.open() as file:
        return list(csv.DictReader(file))


def estimated(rows: list[dict[str, str]]) -> list[occupancy.Resources]:
    """The estimate for every compiled fused-MoE w13 (H = 2048, N = 768), or gemm (K = 2048)."""
    out = []
    for row in rows:
        names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K")
        config = Configuration(
            # The bundled kernel does not swap its operands.
            parameters={name: int(row[name]) for name in names} | {"GROUP_SIZE_M": 16, "SWAP_AB": 0},
            num_warps=int(row["num_warps"]),
            num_stages=int(row["num_stages"]),
        )
        moe = row["kernel"] == "fused_moe"
        sizes = {"M": 64, "E": 128, "topk": 8, "H": 2048, "N": 768} if moe else {"M": 512, "N": 1024, "K": 2048}
        problem = ProblemBatch(
            family="fused_moe" if moe else "gemm",
            op="w13" if moe else "gemm",
            dtype=row["dtype"],
            sizes={n: column(v) for n, v in sizes.items()},
            block_shape=(128, 128) if moe and row["dtype"] == "fp8" else None,
        )
        out.append(demand(problem, configuration_batch([config]), load_gpu(GPU_OF[row["sm"]])).resources)
    return out


def test_shared_memory_is_what_triton_allocates() -> None:
    """Exact where the operand buffers decide, which is everywhere near a GPU's limit; elsewhere within the epilogue's scratch."""
    rows = compiled_rows()
    assert len(rows) > 300
    exact = 0
    for row, resources in zip(rows, estimated(rows), strict=True):
        got, compiled = float(resources.shared_memory_bytes[0]), int(row["shared_memory_bytes"])
        exact += got == compiled
        columns = resources.tensor_memory_columns
        assert (0 if columns is None else columns[0]) == int(row["tensor_memory_columns"]), row
        if int(row["num_stages"]) >= 3 or int(row["BLOCK_SIZE_K"]) > 32:
            assert got == compiled, row
        else:
            limit = load_gpu(GPU_OF[row["sm"]]).smem_bytes_per_cta
            assert (got > limit) == (compiled > limit), row
            assert max(got, compiled) <= 66 * KIB or got == compiled, row
    assert exact / len(rows) > 0.9


def test_registers_are_close() -> None:
    """The compiler decides; the estimate is within a tenth on average, and half the CTAs that registers allow are exact."""
    rows = [row for row in compiled_rows() if row["kernel"] == "fused_moe"]
    estimates = np.array([float(r.registers[0]) for r in estimated(rows)])
    compiled = np.array([float(row["registers"]) for row in rows])
    error = np.abs(np.minimum(estimates, 255) - compiled) / compiled
    assert error.mean() < 0.10
    assert np.quantile(error, 0.9) < 0.25
    # Where the estimate says the registers are full, they are.
    assert (compiled[estimates >= 275] >= 240).all()


def shared_memory(gpu: str, n: int, k: int, block: tuple[int, int, int], warps: int, stages: int) -> float:
    """Bytes of a CTA of a fp16 product of 64 rows."""
    parameters = dict(zip(("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"), block, strict=True))
    config = configuration_batch([Configuration(parameters={**parameters, "GROUP_SIZE_M": 1}, num_warps=warps, num_stages=stages)])
    sizes = {"M": column(64), "N": column(n), "K": column(k)}
    asked = demand(ProblemBatch(family="gemm", op="gemm", sizes=sizes, dtype="fp16"), config, load_gpu(gpu))
    return float(asked.resources.shared_memory_bytes[0])


@pytest.mark.parametrize(
    ("gpu", "n", "k", "compiled"),
    [
        ("A100", 64, 2048, 49152),
        ("A100", 63, 2047, 24576),
        ("A100", 64, 2047, 32768),  # rows of the right operand along N
        ("H100", 64, 2048, 73728),
        ("H100", 63, 2047, 24576),
        ("H100", 64, 2047, 40960),
        ("MI250X", 64, 2048, 49152),
        ("MI250X", 63, 2047, 16384),  # one operand after the other
        ("MI250X", 64, 2047, 32768),
    ],
)
def test_an_operand_of_odd_rows_is_not_pipelined(gpu: str, n: int, k: int, compiled: int) -> None:
    """Two-byte elements of a stride that is no multiple of 16 cannot be copied asynchronously, and their operand has one buffer
    (compiled with Triton 3.9.0 for sm_80, sm_90 and gfx90a)."""
    assert shared_memory(gpu, n, k, (64, 32, 128), 4, 3) == compiled


def test_an_operand_of_less_than_four_bytes_a_thread_is_not_pipelined() -> None:
    """Compiled with Triton 3.9.0: 2 KB of the right operand for 1,024 threads."""
    assert shared_memory("A100", 64, 2048, (128, 16, 64), 32, 3) == 34816
    assert shared_memory("H100", 64, 2048, (128, 16, 64), 32, 2) == 34816


@pytest.mark.parametrize(("warps", "launches"), [(8, True), (16, False), (32, False)])
def test_one_wgmma_needs_its_sums_in_registers(warps: int, launches: bool) -> None:
    """256 x 256 among 16 or 32 warps: ptxas refuses (CUDA 12.9, sm_90a)."""
    parameters = {"BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1}
    config = configuration_batch([Configuration(parameters=parameters, num_warps=warps, num_stages=2)])
    sizes = {name: column(1024) for name in "MNK"}
    asked = demand(ProblemBatch(family="gemm", op="gemm", sizes=sizes, dtype="fp16"), config, load_gpu("H100"))
    assert (occupancy.resident_ctas(load_gpu("H100"), asked.resources)[0][0] > 0) == launches


@pytest.mark.parametrize(
    ("gpu", "op", "d", "block_m", "block_n", "warps", "stages", "compiled"),
    [
        ("A100", "prefill", 128, 64, 64, 4, 2, 57344),
        ("A100", "prefill", 128, 128, 64, 8, 3, 98304),
        ("A100", "prefill", 128, 64, 32, 4, 4, 69632),
        ("A100", "prefill", 128, 64, 64, 4, 1, 40960),
        ("A100", "decode", 128, 16, 128, 4, 3, 139264),
        ("A100", "prefill", 64, 128, 64, 4, 3, 49152),
        ("H100", "prefill", 128, 128, 128, 8, 2, 163840),
        ("H100", "prefill", 128, 64, 64, 4, 1, 32768),
        ("H100", "prefill", 128, 64, 32, 4, 4, 81920),
        ("H100", "decode", 128, 16, 64, 4, 2, 38912),
        ("RTX 5090", "prefill", 128, 64, 64, 4, 2, 57344),
        ("RTX 5090", "decode", 128, 16, 128, 4, 3, 139264),
        ("B200", "prefill", 128, 128, 64, 4, 3, 132096),
        ("B200", "prefill", 128, 128, 128, 8, 2, 164864),
    ],
)
def test_shared_memory_of_attention(gpu: str, op: str, d: int, block_m: int, block_n: int, warps: int, stages: int, compiled: int) -> None:
    """Compiled with Triton 3.9.0 from triton_kernels/attention.py, bf16."""
    config = Configuration(parameters={"BLOCK_M": block_m, "BLOCK_N": block_n}, num_warps=warps, num_stages=stages)
    sizes = {"B": 4, "H": 32, "H_kv": 8, "M": 4096 if op == "prefill" else 1, "N": 4096, "D": d, "causal": 1}
    problem = ProblemBatch(family="attention", op=op, sizes={n: column(v) for n, v in sizes.items()})
    asked = demand(problem, configuration_batch([config]), load_gpu(gpu))
    assert asked.resources.shared_memory_bytes[0] == compiled


@pytest.mark.parametrize("gpu", ["A100", "A40", "L40", "H100", "B200", "RTX 5090", "MI300X"])
@pytest.mark.parametrize(("dtype", "weight_dtype"), [("bf16", None), ("fp8", None), ("bf16", "int8")])
def test_the_audit_and_the_model_agree_on_what_fits(gpu: str, dtype: str, weight_dtype: str | None) -> None:
    """`tables` has the same rule without GPUs and problems; both must give one answer over the whole space."""
    spec, space = load_gpu(gpu), family_space("fused_moe")
    sizes = {"M": 64, "E": 128, "topk": 8, "H": 2048, "N": 768}
    problem = ProblemBatch(
        family="fused_moe", op="w13", sizes={n: column(v) for n, v in sizes.items()}, dtype=dtype, weight_dtype=weight_dtype
    )
    ours = demand(problem, space, spec).resources.shared_memory_bytes
    m, n, k = (space.parameters[f"BLOCK_SIZE_{axis}"] for axis in "MNK")
    swapped = swaps_operands("fused_moe", dtype, spec.compute_capability, m, n)
    assert swapped.any() == (gpu == "H100" and dtype == "fp8")
    m, n = np.where(swapped, n, m), np.where(swapped, m, n)
    theirs = shared_memory_bytes(
        m,
        n,
        k,
        space.num_stages,
        compute_capability=spec.compute_capability,
        num_warps=space.num_warps,
        a_bytes=ELEMENT_BYTES[dtype],
        b_bytes=ELEMENT_BYTES[weight_dtype or dtype],
    )
    assert ((ours > spec.smem_bytes_per_cta) == (theirs > spec.smem_bytes_per_cta)).all()
    # Beside the buffers only this model counts the epilogue's scratch (at most 64 KiB) and the barrier of tcgen05; and it alone knows
    # that an operand of fewer than 4 bytes a thread has one buffer.
    a_bytes, b_bytes = ELEMENT_BYTES[dtype], ELEMENT_BYTES[weight_dtype or dtype]
    wide = np.minimum(m * a_bytes, n * b_bytes) * k >= 4 * spec.warp_size * space.num_warps
    assert (ours >= theirs)[wide].all() and wide.mean() > 0.8
    assert (ours <= np.maximum(theirs + 16, 64 * KIB)).all()


@pytest.mark.parametrize(
    ("block_m", "block_n", "block_k", "warps", "stages", "scaled", "compiled"),
    [
        (16, 64, 128, 4, 3, True, 30720),
        (16, 128, 128, 4, 4, True, 74240),
        (32, 128, 128, 4, 3, False, 61440),
        (32, 64, 64, 8, 3, True, 18432),
        (16, 128, 128, 8, 3, True, 55296),
        (32, 256, 128, 8, 3, True, 111616),
        (32, 256, 256, 4, 4, False, 294912),
        (16, 64, 32, 4, 2, True, 5120),
        (32, 128, 64, 4, 5, False, 51200),
    ],
)
def test_the_kernels_of_the_stacks_swap_few_rows_of_fp8_on_hopper(block_m, block_n, block_k, warps, stages, scaled, compiled) -> None:
    """The loop of vLLM 0.33's `fused_moe_kernel` with SWAP_AB, compiled with Triton 3.9.0: wgmma in every case."""
    sizes = {"M": 64, "E": 128, "topk": 8, "H": 2048, "N": 768}
    config = Configuration(
        parameters={"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": block_n, "BLOCK_SIZE_K": block_k}, num_warps=warps, num_stages=stages
    )
    problem = ProblemBatch(
        family="fused_moe",
        op="w13",
        sizes={n: column(v) for n, v in sizes.items()},
        dtype="fp8",
        block_shape=(128, 128) if scaled else None,
    )
    asked = demand(problem, configuration_batch([config]), load_gpu("H100"))
    assert asked.resources.shared_memory_bytes[0] == compiled
    assert asked.tensor_rate[0] == 1
    for other, gpu in ((replace(problem, dtype="bf16"), "H100"), (problem, "B200")):
        assert demand(other, configuration_batch([config]), load_gpu(gpu)).tensor_rate[0] < 1


def test_plain_products_take_the_rate_without_block_scales() -> None:
    """The configuration's bound, not the problem's: `tl.dot_scaled` with all scales 1 would be twice as fast."""
    problem = ProblemBatch(family="gemm", op="gemm", sizes={n: column(8192) for n in "MNK"}, dtype="fp8")
    config = Configuration(parameters={"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64}, num_warps=8, num_stages=3)
    for gpu, times in (("RTX 5090", 2.0), ("RTX PRO 6000 Workstation", 1.0)):
        found = analyse(problem, configuration_batch([config]), load_gpu(gpu))
        least, own = (float(each.times_us["tensor"][0]) for each in (found.bound, found.config_bound))
        waves = np.ceil(64 * 64 / load_gpu(gpu).num_sms) * load_gpu(gpu).num_sms / (64 * 64)
        assert own == pytest.approx(times * waves * least)


@pytest.mark.parametrize("block_m", [16, 128])
def test_the_rate_without_block_scales_holds_where_warp_groups_multiply(block_m: int) -> None:
    gpu = load_gpu("B200")
    slower = replace(gpu, plain_dot_flop_per_clock_per_sm={"fp8": 0.125 * gpu.tensor_flop_per_clock_per_sm["fp8"]})
    config = Configuration(parameters={"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64}, num_warps=4, num_stages=3)
    for dtype, share in (("fp8", 0.125), ("bf16", 1.0)):
        problem = ProblemBatch(family="gemm", op="gemm", sizes={n: column(8192) for n in "MNK"}, dtype=dtype)
        fast, slow = (demand(problem, configuration_batch([config]), each).tensor_rate[0] for each in (gpu, slower))
        assert slow == min(fast, share)


@pytest.mark.parametrize("gpu", ["H100", "H20", "H200"])
@pytest.mark.parametrize("op", ["w13", "w2"])
def test_a_bound_that_reckons_with_the_swap_holds_without_it(gpu: str, op: str) -> None:
    """Not every kernel swaps; where it is not known, no bound may claim more than is certain."""
    space, spec = family_space("fused_moe"), load_gpu(gpu)
    unswapped = replace(space, parameters={**space.parameters, "SWAP_AB": column(0)})
    lower = 0
    for tokens in (1, 64, 16384):
        sizes = {"M": tokens, "E": 256, "topk": 8, "H": 7168, "N": 256}
        problem = ProblemBatch(family="fused_moe", op=op, sizes={n: column(v) for n, v in sizes.items()}, dtype="fp8")
        with_swap, without = (analyse(problem, each, spec).config_bound.us for each in (space, unswapped))
        assert (with_swap <= without).all()
        lower += int((with_swap < without).sum())
    assert lower


LIVE = [
    (80, "bf16", 16, 64, 64, 4, 3),
    (90, "bf16", 64, 64, 64, 4, 3),
    (90, "bf16", 16, 128, 128, 4, 4),
    (120, "bf16", 64, 128, 64, 4, 3),
    (90, "fp8", 16, 128, 128, 4, 4),
    (90, "fp8", 32, 64, 64, 8, 3),
    (90, "fp8", 16, 32, 128, 4, 3),
]


@pytest.mark.parametrize(("sm", "dtype", "block_m", "block_n", "block_k", "warps", "stages"), LIVE)
def test_shared_memory_of_a_live_compilation(
    sm: int, dtype: str, block_m: int, block_n: int, block_k: int, warps: int, stages: int
) -> None:
    """The installed Triton still allocates what the estimate says (no GPU needed)."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    path = folder("triton_kernels") / "fused_moe.py"
    spec = importlib.util.spec_from_file_location("bundled_fused_moe", path)
    assert spec is not None and spec.loader is not None
    bundled = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = bundled
    spec.loader.exec_module(bundled)
    sizes = {"M": 64, "E": 128, "topk": 8, "H": 2048, "N": 768}
    config = {"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": block_n, "BLOCK_SIZE_K": block_k, "GROUP_SIZE_M": 1}
    arguments = bundled.arguments({**sizes, "op": "w13", "dtype": dtype, "compute_capability": f"{sm / 10}"}, config) | config
    signature, constants, attributes = {}, {}, {}
    for index, parameter in enumerate(bundled.fused_moe_kernel.params):
        value = arguments[parameter.name]
        if parameter.is_constexpr or value is None or value == 1:
            signature[parameter.name], constants[parameter.name] = "constexpr", value
            continue
        signature[parameter.name] = value if isinstance(value, str) else "i32"
        if isinstance(value, str) or value % 16 == 0:
            attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(bundled.fused_moe_kernel, signature, constants, attributes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        kernel = triton.compile(source, target=GPUTarget("cuda", sm, 32), options={"num_warps": warps, "num_stages": stages})
    problem = ProblemBatch(
        family="fused_moe",
        op="w13",
        sizes={n: column(v) for n, v in sizes.items()},
        dtype=dtype,
        block_shape=(128, 128) if dtype == "fp8" else None,
    )
    batch = configuration_batch([Configuration(parameters=dict(config), num_warps=warps, num_stages=stages)])
    asked = demand(problem, batch, load_gpu(GPU_OF[str(sm)]))
    assert asked.resources.shared_memory_bytes[0] == kernel.metadata.shared
    assert ("wgmma.mma_async" in kernel.asm["ptx"]) == (sm == 90 and (block_m >= 64 or (dtype == "fp8" and block_n >= 64)))


@pytest.mark.parametrize(("gpu", "stages", "runs"), [("MI250X", 0, False), ("MI250X", 1, True), ("A100", 0, True)])
def test_no_stages_are_none_of_amd_s(gpu: str, stages: int, runs: bool) -> None:
    problem = ProblemBatch(family="gemm", op="gemm", sizes={name: column(512) for name in "MNK"}, dtype="fp16")
    tile = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1}
    asked = demand(problem, configuration_batch([Configuration(parameters=tile, num_warps=4, num_stages=stages)]), load_gpu(gpu))
    assert bool(occupancy.resident_ctas(load_gpu(gpu), asked.resources)[0][0] > 0) == runs
