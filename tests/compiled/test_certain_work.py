"""Bounds of compiled kernels against the least time that hardware could take, worked out by hand."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import pytest

from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.compiler.kernel import Target
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.target import make_launch
from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.pipelines.bound import L2_PORT_BYTES_PER_CLOCK, least_launch_us
from advisor.python_source.source import read_source

from .shared_pool import POOL

HEAD = "import triton\nimport triton.language as tl\n\n@triton.jit\n"
BLOCK = 1024


def analysed(kernel: str, tmp_path: Path, gpu: GpuSpec, grid: int, types: dict[str, str], **constants: Any) -> KernelAnalysis:
    path = tmp_path / "k.py"
    path.write_text(HEAD + textwrap.dedent(kernel))
    launch = make_launch(read_source(path), "k", types=types, constexprs={"BLOCK": BLOCK, **constants}, grid=(grid,))
    return kernel_analysis(inspect_launch(launch, Target.of(gpu), POOL, sass=False), gpu, "warm")


def us(clocks: float, gpu: GpuSpec) -> float:
    """Time of so many clocks of an SM, with the launch."""
    return clocks / gpu.max_clock_mhz + least_launch_us(gpu)


CHAIN = """
    def k(x, out, BLOCK: tl.constexpr, TRIPS: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        first = tl.load(x + at)
        value = first
        for i in range(TRIPS):
            value = value * first + first
        tl.store(out + at, value)
"""


@pytest.mark.parametrize(
    ("name", "kind", "lanes"), [("H100", "fp16", 256), ("H100", "fp32", 128), ("A100", "bf16", 256), ("L40", "fp16", 128)]
)
def test_arithmetic_of_16_bits_may_be_packed(name: str, kind: str, lanes: int, tmp_path: Path) -> None:
    """`lanes` multiply and add per clock and SM: of fp16 twice as many as of fp32 (A100: four times), where the GPU packs them."""
    gpu = load_gpu(name)
    programs, trips = 4 * gpu.num_sms, 3000
    found = analysed(CHAIN, tmp_path, gpu, programs, {"x": f"*{kind}", "out": f"*{kind}"}, TRIPS=trips)
    least = us(4 * BLOCK * trips / lanes, gpu)
    assert found.bound.us == pytest.approx(least) and found.config_bound.us == pytest.approx(least)


SIGNS = CHAIN.replace("value * first + first", "tl.abs(value) * first + (-first)")


def test_signs_cost_nothing(tmp_path: Path) -> None:
    gpu = load_gpu("H100")
    plain, signed = (analysed(kernel, tmp_path, gpu, 528, {"x": "*fp32", "out": "*fp32"}, TRIPS=3000) for kernel in (CHAIN, SIGNS))
    assert signed.bound.us == plain.bound.us and signed.config_bound.us == plain.config_bound.us


AGAIN = """
    def k(x, out, BLOCK: tl.constexpr, TRIPS: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        for i in range(TRIPS):
            total += tl.load(x + at + {})
        tl.store(out + at, total)
"""
AGAIN_TRIPS = 500


@pytest.mark.parametrize(("shift", "rows"), [("i % 2", 1 + 1 / BLOCK), ("i * BLOCK", AGAIN_TRIPS), ("tl.load(x + i).to(tl.int32)", 0.0)])
def test_what_a_program_loads_again_may_be_in_the_l1(shift: str, rows: float, tmp_path: Path) -> None:
    gpu = load_gpu("H100")
    found = analysed(AGAIN.format(shift), tmp_path, gpu, 100, {"x": "*fp32", "out": "*fp32"}, TRIPS=AGAIN_TRIPS)
    compared = us(100 / gpu.num_sms * AGAIN_TRIPS * BLOCK / gpu.fma_flop_per_clock_per_sm["fp32"], gpu)
    through_port = us(rows * BLOCK * 4 / L2_PORT_BYTES_PER_CLOCK, gpu)
    most = us(AGAIN_TRIPS * BLOCK / gpu.fma_flop_per_clock_per_sm["fp32"], gpu)
    assert max(compared, through_port) <= found.config_bound.us * 1.001 <= 1.002 * max(most, through_port)


ROWS_OF_TWO = """
    def k(x, out, BLOCK: tl.constexpr, TRIPS: tl.constexpr):
        rows = tl.program_id(0) * 32 + tl.arange(0, 32)
        pair = tl.load(x + rows[:, None] * 2 + tl.arange(0, 2)[None, :])
        total = tl.zeros((32,), tl.float32)
        for i in range(TRIPS):
            total += tl.sum(pair * i, axis=1)
        tl.store(out + rows, total)
"""


def test_a_sum_may_stay_in_a_thread(tmp_path: Path) -> None:
    """Each of 32 threads multiplies twice and adds twice per trip, 128 of an SM in a clock; no byte of shared memory is needed."""
    gpu = load_gpu("H100")
    found = analysed(ROWS_OF_TWO, tmp_path, gpu, 80 * gpu.num_sms, {"x": "*fp32", "out": "*fp32"}, TRIPS=1000)
    assert found.config_bound.us <= us(80 * 1000 * 32 * 4 / 128, gpu)


LIGHT = """
    def k(x, out, BLOCK: tl.constexpr, TRIPS: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        first = tl.load(x + at)
        value = first
        trips = TRIPS
        if tl.program_id(0) >= 133:
            trips = TRIPS // 110
        for i in range(trips):
            value = value * first + first
        tl.store(out + at, value)
"""


def test_programs_that_do_little_do_not_make_others_larger(tmp_path: Path) -> None:
    """Of 133 large programs two may share an SM, which then need take none of the small ones; else the mean load is certain."""
    gpu, trips = load_gpu("H100"), 11_000
    found = analysed(LIGHT, tmp_path, gpu, 13_333, {"x": "*fp32", "out": "*fp32"}, TRIPS=trips)
    clocks = BLOCK / 128
    mean, two = (133 * trips + 13_200 * (trips // 110)) / gpu.num_sms, 2 * trips
    assert us(clocks * mean, gpu) <= found.config_bound.us * 1.0001 <= 1.0002 * us(clocks * max(mean, two), gpu)


UNEVEN = """
    def k(x, out, BLOCK: tl.constexpr, TRIPS: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        first = tl.load(x + at)
        value = first
        if tl.program_id(0) == 0:
            count = at
            for i in range(TRIPS):
                count = (count ^ i) + (count >> 3)
            value = count.to(tl.float32)
        else:
            for i in range(300):
                value = tl.exp2(value)
        tl.store(out + at, value)
"""


def test_the_largest_program_is_that_of_each_pipeline(tmp_path: Path) -> None:
    """One that counts for long does not make the exponentials of the others more."""
    gpu = load_gpu("H100")
    found = analysed(UNEVEN, tmp_path, gpu, 2 * gpu.num_sms, {"x": "*fp32", "out": "*fp32"}, TRIPS=60_000)
    assert found.config_bound.us <= us(2 * BLOCK * 300 / gpu.xu_op_per_clock_per_sm, gpu) * 1.001


SELDOM = """
    def k(x, out, BLOCK: tl.constexpr, EACH: tl.constexpr):
        if tl.program_id(0) % EACH == EACH - 1:
            at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
            first = tl.load(x + at)
            value = first
            for i in range(2000):
                value = value * first + first
            tl.store(out + at, value)
"""


@pytest.mark.parametrize(("each", "grid"), [(1000, 1_000_000), (333, 500_000), (7, 100_000), (2, 100_000), (1, 100_000)])
def test_programs_that_work_seldom_are_no_more_than_there_are(each: int, grid: int, tmp_path: Path) -> None:
    """Among those looked at there may be more of them than their share."""
    gpu = load_gpu("H100")
    found = analysed(SELDOM, tmp_path, gpu, grid, {"x": "*fp32", "out": "*fp32"}, EACH=each)
    assert found.inspection.demand.scale > 1
    flop = found.inspection.demand.certain.fma_flop
    assert flop <= grid // each * BLOCK * 4000
    assert flop >= {1: 1.0, 2: 0.9, 7: 0.8}.get(each, 0.0) * (grid // each * BLOCK * 4000)


PRODUCTS = """
    def k(x, out, BLOCK: tl.constexpr, HALF: tl.constexpr):
        at = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :] + tl.program_id(0) * 4096
        left = tl.load(x + at)
        right = tl.trans(left)
        total = tl.zeros((64, 64), tl.float16 if HALF else tl.float32)
        for i in range(1000):
            total = tl.dot(left, right, total, out_dtype=tl.float16 if HALF else tl.float32)
        tl.store(out + at, total)
"""


@pytest.mark.parametrize(
    ("name", "kind", "half", "rate"),
    [
        ("RTX 4090", "fp16", True, 1024),
        ("RTX 4090", "fp16", False, 512),
        ("RTX 4090", "fp8e5", True, 2048),
        ("RTX 4090", "fp8e5", False, 1024),
        ("RTX 3090", "fp8e5", True, 1024),
        ("RTX 3090", "fp8e5", False, 512),
        ("RTX 5090", "fp16", True, 1024),
        ("RTX 5090", "fp8e5", True, 2048),
        ("L40S", "fp16", True, 1024),
        ("L40S", "fp16", False, 1024),
        ("A100", "fp16", True, 2048),
    ],
)
def test_sums_in_fp16_take_half_the_time_on_geforce(name: str, kind: str, half: bool, rate: float, tmp_path: Path) -> None:
    """The 3090 multiplies no fp8: it is widened to fp16."""
    gpu = load_gpu(name)
    found = analysed(PRODUCTS, tmp_path, gpu, 4 * gpu.num_sms, {"x": f"*{kind}", "out": "*fp32"}, HALF=half)
    least = us(4 * 1000 * 2 * 64**3 / rate, gpu)
    assert found.bound.us == pytest.approx(least) and found.config_bound.us == pytest.approx(least)
    assert found.predicted is not None and found.predicted.us >= least
    (tensor,) = (each for each in found.pipelines if each.pipeline == "tensor")
    assert tensor.demand == 4 * gpu.num_sms * 1000 * 2 * 64**3


def test_products_of_two_kinds_of_sums_take_as_long_as_each_does(tmp_path: Path) -> None:
    gpu = load_gpu("RTX 4090")
    single = """
        single = tl.zeros((64, 64), tl.float32)
        for i in range(1500):
            single = tl.dot(left, right, single)
        tl.store(out + at, total + single)
"""
    both = PRODUCTS.replace("\n        tl.store(out + at, total)\n", single)
    assert both != PRODUCTS
    found = analysed(both, tmp_path, gpu, 4 * gpu.num_sms, {"x": "*fp16", "out": "*fp32"}, HALF=True)
    least = us(4 * 2 * 64**3 * (1000 / 1024 + 1500 / 512), gpu)
    assert found.bound.us == pytest.approx(least) and found.config_bound.us == pytest.approx(least)


OF_FP32 = """
    def k(x, out, BLOCK: tl.constexpr, PRECISION: tl.constexpr):
        at = tl.arange(0, 64)[:, None] * 64 + tl.arange(0, 64)[None, :] + tl.program_id(0) * 4096
        left = tl.load(x + at)
        right = tl.trans(left)
        total = left * 0
        for i in range(1000):
            total = tl.dot(left, right, total, input_precision=PRECISION, out_dtype=total.dtype)
        tl.store(out + at, total)
"""


@pytest.mark.parametrize(
    ("name", "precision", "rate", "own"),
    [
        ("RTX 4090", "tf32x3", 256, 256 / 3),
        ("RTX 4090", "bf16x6", 256, 512 / 6),
        ("T4", "bf16x3", 128, 128),
        ("A100", "tf32x3", 1024 / 3, 1024 / 3),
        ("A100", "bf16x3", 2048 / 3, 2048 / 3),
    ],
)
def test_a_bound_does_products_of_fp32_themselves_where_that_is_faster(
    name: str, precision: str, rate: float, own: float, tmp_path: Path
) -> None:
    gpu = load_gpu(name)
    found = analysed(OF_FP32, tmp_path, gpu, 4 * gpu.num_sms, {"x": "*fp32", "out": "*fp32"}, PRECISION=precision)
    flop = 4 * 1000 * 2 * 64**3
    assert found.bound.us == pytest.approx(us(flop / rate, gpu), rel=1e-3)
    assert found.config_bound.us == pytest.approx(us(flop / own, gpu), rel=1e-3)


@pytest.mark.parametrize(("name", "rate"), [("A100", 128), ("H100", 256), ("V100", 64), ("B200", 128), ("RTX 4090", 4), ("L40S", 4)])
def test_products_of_fp64_run_at_the_rate_of_fp64(name: str, rate: float, tmp_path: Path) -> None:
    """The matrix units of A100 and H100 do twice what the vector units do; others are bound by these (Ada: at 1/64 of fp32)."""
    gpu = load_gpu(name)
    found = analysed(OF_FP32, tmp_path, gpu, 4 * gpu.num_sms, {"x": "*fp64", "out": "*fp64"}, PRECISION="ieee")
    assert found.bound.us == pytest.approx(us(4 * 1000 * 2 * 64**3 / rate, gpu), rel=2e-3)
