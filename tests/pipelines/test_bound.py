"""What must hold of bounds, schedules and latencies for every family, configuration and GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.gpus.hardware import GpuSpec, list_gpus, load_gpu
from advisor.pipelines import Analysis, ConfigurationBatch, ProblemBatch, analyse, bound, column, gap, latency_us, least_launch_us, work
from advisor.pipelines.batch import SIZES
from advisor.pipelines.space import combinations, family_space

FEW = settings(max_examples=60, derandomize=True, deadline=None)
GPUS = list_gpus()

LARGE = st.integers(1, 9000)
SMALL = st.integers(1, 40)
HEAD = st.sampled_from([32, 64, 80, 96, 128, 256])
RANGES: dict[str, dict[str, st.SearchStrategy[int]]] = {
    "gemm": {"M": LARGE, "N": LARGE, "K": LARGE, "B": SMALL},
    "fused_moe": {"M": LARGE, "E": st.integers(8, 300), "topk": st.integers(1, 8), "H": LARGE, "N": LARGE},
    "attention": {"B": SMALL, "H_kv": st.integers(1, 16), "M": LARGE, "N": LARGE, "D": HEAD, "causal": st.integers(0, 1)},
    "normalization": {"B": LARGE, "H": LARGE},
    "elementwise": {"B": LARGE, "H": LARGE},
}
OPERATORS = [*SIZES, *(("elementwise", op) for op in ("add", "silu_and_mul", "gelu", "tanh", "relu", "sigmoid", "silu"))]
DECODE = {"BLOCK_M": (16, 64), "BLOCK_N": (16, 128), "NUM_KV_SPLITS": (1, 2, 8, 64), "num_warps": (4, 8), "num_stages": (2, 4)}
SPLIT = {
    "BLOCK_SIZE_M": (16, 64, 128),
    "BLOCK_SIZE_N": (32, 128),
    "BLOCK_SIZE_K": (32, 128),
    "GROUP_SIZE_M": (1, 16),
    "SPLIT_K": (1, 3, 16),
    "num_warps": (4, 8),
    "num_stages": (2, 4),
}


@st.composite
def problems(draw: st.DrawFn) -> ProblemBatch:
    """One problem of any family, operator, type and cache state."""
    family, op = draw(st.sampled_from(OPERATORS))
    sizes = {name: draw(values) for name, values in RANGES[family].items()}
    if family == "attention":
        sizes["H"] = sizes["H_kv"] * draw(st.sampled_from([1, 4, 7]))
        sizes["M"] = draw(st.sampled_from([1, 2, 5])) if op == "decode" else sizes["M"]
    dtype = draw(st.sampled_from(["bf16", "fp16", "fp8", "int8", "fp32", "tf32"]))
    block_shape = (128, 128) if dtype == "fp8" and family in ("gemm", "fused_moe") and draw(st.booleans()) else None
    return ProblemBatch(
        family=family,
        op=op,
        sizes={n: column(v) for n, v in sizes.items()},
        dtype=dtype,
        block_shape=block_shape,
        cache=draw(st.sampled_from(["cold", "warm"])),
    )


def space_of(problem: ProblemBatch) -> ConfigurationBatch:
    if problem.op == "decode":
        return combinations(DECODE)
    if problem.family == "gemm":
        return combinations(SPLIT)
    batch = family_space(problem.family)
    return batch.take(np.arange(0, len(batch), max(len(batch) // 150, 1)))


@FEW
@given(problems(), st.sampled_from(GPUS))
def test_bound_config_bound_and_latency_are_ordered(problem: ProblemBatch, gpu: GpuSpec) -> None:
    a = analyse(problem, space_of(problem), gpu)
    launches = a.schedule.resident > 0
    assert launches.any()
    assert (a.bound.us > least_launch_us(gpu)).all()
    assert np.isfinite(a.config_bound.us).all()
    assert (a.bound.us <= a.config_bound.us * (1 + 1e-9)).all()
    assert np.isfinite(a.latency_us[launches]).all()
    assert np.isinf(a.latency_us[~launches]).all()
    assert (a.latency_us >= a.bound.us * (1 - 1e-9)).all()


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_a_bound_counts_less_of_a_launch_than_any_graph_takes(gpu: GpuSpec) -> None:
    problem = ProblemBatch(
        family="elementwise",
        op="add",
        sizes={"B": column(1), "H": column(1024)},
        dtype="fp32",
        block_shape=None,
        cache="warm",
    )
    a = analyse(problem, space_of(problem), gpu)
    for each in (a.bound, a.config_bound):
        assert (each.times_us["launch"] <= 0.5).all()
        assert (each.us < 0.8).all()  # a launch in a CUDA graph on a B200, the least that is published
    assert (a.latency_us > gpu.launch_latency_us).all()  # predicted as launched in a stream
    freer = replace(gpu, launch_latency_us=0.1)
    assert (bound(work(problem, freer), freer, problem.cache).times_us["launch"] == 0.1).all()


@FEW
@given(problems(), st.sampled_from(GPUS))
def test_demand_is_never_below_work(problem: ProblemBatch, gpu: GpuSpec) -> None:
    a = analyse(problem, space_of(problem), gpu)
    totals, least = a.demand.totals(), a.work.amounts()
    for pipeline in ("tensor", "l2", "dram"):
        needed = a.bound.times_us["dram"][0] * 1e-9 if pipeline == "dram" else least[pipeline]
        assert (totals[pipeline] >= needed * (1 - 1e-9)).all(), pipeline
    assert (a.demand.useful_fraction <= 1 + 1e-9).all()
    assert (a.demand.useful_fraction > 0).all()
    assert (a.demand.launched_ctas >= a.demand.ctas).all()
    assert (a.demand.compulsory_bytes == a.work.compulsory_bytes).all()


@FEW
@given(problems(), st.sampled_from(GPUS), st.data())
def test_bound_grows_with_every_size(problem: ProblemBatch, gpu: GpuSpec, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from([n for n in problem.sizes if n != "causal"]))
    more = {**problem.sizes, name: problem.sizes[name] + data.draw(st.integers(1, 500))}
    before = bound(work(problem, gpu), gpu, problem.cache)
    after = bound(work(replace(problem, sizes=more), gpu), gpu, problem.cache)
    assert after.us[0] >= before.us[0] * (1 - 1e-12)


@FEW
@given(problems(), st.sampled_from(GPUS))
def test_a_cold_cache_is_never_faster(problem: ProblemBatch, gpu: GpuSpec) -> None:
    cold, warm = (analyse(replace(problem, cache=cache), space_of(problem), gpu) for cache in ("cold", "warm"))
    assert (cold.bound.us >= warm.bound.us).all()
    assert (cold.config_bound.us >= warm.config_bound.us).all()
    launches = cold.schedule.resident > 0
    assert (cold.latency_us[launches] >= warm.latency_us[launches] * (1 - 1e-9)).all()


@FEW
@given(problems(), st.sampled_from(GPUS))
def test_the_waves_hold_all_ctas(problem: ProblemBatch, gpu: GpuSpec) -> None:
    a = analyse(problem, space_of(problem), gpu)
    launches = a.schedule.resident > 0
    slots = a.schedule.resident * gpu.num_sms
    assert (np.ceil(a.schedule.waves - 1e-9) * slots >= a.demand.ctas)[launches].all()
    assert ((a.schedule.last_wave_fill > 0) & (a.schedule.last_wave_fill <= 1)).all()
    busiest = a.demand.busiest_sm(gpu.num_sms)
    for pipeline, total in a.demand.totals().items():
        if pipeline in busiest:
            assert (busiest[pipeline] * gpu.num_sms >= total * (1 - 1e-9)).all()


@FEW
@given(problems(), st.sampled_from(GPUS))
def test_the_gap_adds_up(problem: ProblemBatch, gpu: GpuSpec) -> None:
    a = analyse(problem, space_of(problem), gpu)
    parts = gap(a.demand, gpu, a.bound.us)
    launches = a.schedule.resident > 0
    total = sum(part[launches] for part in parts.values())
    assert total == pytest.approx((a.latency_us - a.bound.us)[launches])


def _rows(a: Analysis, read: Callable[[Analysis], np.ndarray]) -> list[float]:
    return [float(v) for v in np.atleast_1d(read(a))]


@pytest.mark.parametrize(("family", "op"), sorted(SIZES))
def test_a_batch_is_its_rows(family: str, op: str) -> None:
    """Columns of problems, one configuration each, give what every row gives alone."""
    gpu = load_gpu("A100")
    every = [
        {"M": 5, "N": 129, "K": 300, "H": 256, "E": 8, "topk": 2, "B": 3, "H_kv": 2, "D": 64, "causal": 1},
        {"M": 700, "N": 1000, "K": 64, "H": 1024, "E": 60, "topk": 4, "B": 17, "H_kv": 4, "D": 128, "causal": 0},
        {"M": 333, "N": 77, "K": 4096, "H": 512, "E": 16, "topk": 1, "B": 1, "H_kv": 8, "D": 80, "causal": 1},
    ]
    names = [*SIZES[family, op], *(["causal"] if family == "attention" else [])]
    config = space_of(ProblemBatch(family=family, op=op, sizes={n: column(e[n]) for n, e in zip(names, [every[0]] * 20, strict=False)}))
    index = np.arange(3) * 7 % len(config)

    def batch(rows: list[dict[str, int]]) -> ProblemBatch:
        return ProblemBatch(family=family, op=op, sizes={n: column([r[n] for r in rows]) for n in names})

    together = analyse(batch(every), config.take(index), gpu)
    for i, row in enumerate(every):
        alone = analyse(batch([row]), config.take(index[i : i + 1]), gpu)
        for read in (lambda a: a.latency_us, lambda a: a.bound.us, lambda a: a.config_bound.us, lambda a: a.demand.l2_bytes):
            assert _rows(together, read)[i] == pytest.approx(_rows(alone, read)[0])
    assert np.isfinite(latency_us(together.demand, gpu)).all()


@pytest.mark.parametrize("name", ["MI300X", "MI308X", "MI325X", "MI350X", "MI355X"])
@pytest.mark.parametrize("megabytes", [4, 134, 268])
def test_nothing_outruns_the_infinity_cache(name: str, megabytes: int) -> None:
    """17.2 TB/s (CDNA 3 white paper) for what the 32 MB of L2 do not hold, though `l2_bytes_per_s` is twice that."""
    gpu = load_gpu(name)
    assert gpu.l2_near_bytes is not None and gpu.l2_far_bytes_per_s is not None
    moved = megabytes * 1e6  # read and written
    problem = ProblemBatch(family="elementwise", op="relu", sizes={"B": column(moved / 4 / 4096), "H": column(4096)}, dtype="bf16")
    us = float(latency_us(analyse(problem, ConfigurationBatch(parameters={"BLOCK_SIZE": column(1024)}), gpu).demand, gpu)[0])
    assert us > (moved - gpu.l2_near_bytes) / gpu.l2_far_bytes_per_s * 1e6
    assert float(bound(work(problem, gpu), gpu, "warm").times_us["l2"][0]) == pytest.approx(
        max(moved / 2 / gpu.l2_bytes_per_s, (moved / 2 - gpu.l2_near_bytes) / gpu.l2_far_bytes_per_s) * 1e6
    )
    one_level = replace(gpu, l2_near_bytes=None, l2_far_bytes_per_s=None)  # as on NVIDIA, whose L2 is the last cache
    assert float(bound(work(problem, one_level), gpu=one_level, cache_state="warm").times_us["l2"][0]) == pytest.approx(
        moved / 2 / gpu.l2_bytes_per_s * 1e6
    )


def test_a_launch_may_end_with_its_results_in_the_l2() -> None:
    """The L2 writes back later: with a cold cache all inputs come from DRAM, of the results only what it cannot hold goes there."""
    gpu = load_gpu("H200")
    rate, half = gpu.dram_bytes_per_s * gpu.dram_achievable_fraction / 1e6, 2048 * 4096 * 2

    def copy(rows: int, cache: str) -> Analysis:
        sizes = {"B": column(rows), "H": column(4096)}
        return analyse(ProblemBatch(family="elementwise", op="copy", sizes=sizes, cache=cache), family_space("elementwise"), gpu)

    cold = copy(2048, "cold")
    for each in (cold.bound, cold.config_bound):
        assert each.times_us["dram"][0] == pytest.approx(half / rate)
        assert each.us[0] < 4.6  # which one of its timings took
    assert cold.demand.dram_bytes[0] == 2 * half  # what is predicted
    assert (cold.latency_us > 2 * half / rate).all()
    many = copy(32 * 2048, "cold").bound.times_us["dram"][0]
    assert many == pytest.approx((2 * 32 * half - gpu.l2_bytes) / rate)
    # Launches alike one after another begin with what the one before left: an L2 of inputs and results together.
    assert copy(2 * 2048, "warm").bound.times_us["dram"][0] == pytest.approx((4 * half - gpu.l2_bytes) / rate)


@pytest.mark.parametrize("name", ["MI350X", "MI355X"])
def test_tf32_is_three_bf16_products_where_there_is_no_instruction(name: str) -> None:
    gpu = load_gpu(name)

    def us(dtype: str) -> float:
        sizes = {size: column(8192) for size in "MNK"}
        found = analyse(ProblemBatch(family="gemm", op="gemm", sizes=sizes, dtype=dtype), family_space("gemm"), gpu)
        assert (found.demand.useful_fraction <= 1).all()
        assert found.demand.totals()["tensor"].min() >= found.work.tensor_flop[0] * (1 - 1e-9)
        return float(found.bound.us[0])

    assert us("tf32") == pytest.approx(3 * us("bf16"), rel=0.01)
    assert us("tf32") < us("fp32") / 4


@pytest.mark.parametrize("op", ["sigmoid", "silu"])
def test_a_sigmoid_takes_one_special_function_at_least(op: str) -> None:
    """1/2 + 1/2 tanh(x/2); predicted are the two of an exponential and a division."""
    gpu, space, sizes = load_gpu("A100"), family_space("elementwise"), {"B": column(2048), "H": column(5120)}
    found, tanh = (analyse(ProblemBatch(family="elementwise", op=each, sizes=sizes, dtype="fp16"), space, gpu) for each in (op, "tanh"))
    assert found.work.xu_op[0] <= 2048 * 5120
    assert found.bound.us[0] == pytest.approx(tanh.bound.us[0], rel=0.05)
    assert (found.config_bound.times_us["xu"] == tanh.config_bound.times_us["xu"]).all()
    assert (found.demand.per_cta["xu"] == 2 * tanh.demand.per_cta["xu"]).all()


@pytest.mark.parametrize(
    ("name", "dtype", "gain"),
    # P4: 22 TOPS of int8 by dp4a, at 1,063 MHz; P100: 21.2 TFLOPS of fp16, 10.6 of fp32; a T4 has no bf16.
    [
        ("P4", "int8", 4),
        ("P4", "int4", 4),
        ("P4", "fp16", 1),
        ("P100", "fp16", 2),
        ("P100", "int8", 2),
        ("P100", "int4", 2),
        ("T4", "bf16", 1),
        ("A100", "fp32", 1),
    ],
)
def test_products_without_matrix_units_may_be_packed(name: str, dtype: str, gain: int) -> None:
    gpu, size = load_gpu(name), 8192
    problem = ProblemBatch(family="gemm", op="gemm", sizes=dict.fromkeys("MNK", column(size)), dtype=dtype)
    found = bound(work(problem, gpu), gpu, "warm")
    assert found.binding_pipeline(0) == "fma"
    assert found.times_us["fma"][0] == pytest.approx(2e6 * size**3 / gpu.peak_fma_flop_per_s() / gain)


@pytest.mark.parametrize(("name", "dtype", "gain"), [("A100", "bf16", 4), ("H100", "fp16", 2), ("A100", "fp32", 1), ("V100", "bf16", 1)])
@pytest.mark.parametrize(("family", "op"), [("elementwise", "relu"), ("normalization", "layer_norm")])
def test_row_operators_may_be_packed(family: str, op: str, name: str, dtype: str, gain: int) -> None:
    """Two values of 16 bits in one instruction are no more than a kernel may do, whatever its configuration."""
    gpu = load_gpu(name)
    sizes = {"B": column(2048), "H": column(4096)}
    whole = ProblemBatch(family=family, op=op, sizes=sizes, dtype="fp32")
    found, exact = (analyse(each, family_space(family), gpu) for each in (replace(whole, dtype=dtype), whole))
    for read in (lambda a: a.bound, lambda a: a.config_bound):
        np.testing.assert_allclose(read(found).times_us["fma"] * gain, read(exact).times_us["fma"], rtol=1e-3)
    np.testing.assert_array_equal(found.demand.per_cta["fma"], exact.demand.per_cta["fma"])
