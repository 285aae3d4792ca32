"""What the predictor says outside of what was learned, with the shipped weights: never faster for more work, never below the bound."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from advisor import pipelines
from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.learned.analytical import AnalyticalPredictor, stack_configuration
from advisor.learned.estimator import PREDICTORS
from advisor.learned.machine import machine
from advisor.learned.moe.launch import as_configuration
from advisor.learned.weights import shipped
from advisor.pipelines import ProblemBatch, column, problem_batch
from advisor.pipelines.bound import throughput_per_us
from advisor.pipelines.from_rows import one_problem
from advisor.pipelines.space import family_space
from advisor.result.schema import Configuration, Problem
from tests.learned import samples

OLMOE = {"M": 2, "E": 64, "topk": 8, "H": 2048, "N": 1024}


@pytest.fixture(scope="module")
def predictor():
    return load_predictor(shipped())


def moe(M, E=8, topk=2, H=4096, N=1792, op="w13", **kind):
    sizes = {name: column(value) for name, value in (("M", M), ("E", E), ("topk", topk), ("H", H), ("N", N))}
    return ProblemBatch(family="fused_moe", op=op, sizes=sizes, **kind)


@pytest.mark.parametrize(("gpu", "tokens"), [("RTX PRO 6000 S", 4096), ("A100", 4096), ("H800", 64)])
def test_the_edge_of_what_was_learned_is_no_step_down_to_the_ceiling(predictor, gpu, tokens):
    """As served, 2 N = 12,290 is outside; it takes what the launched configuration takes, not what the best one would."""
    inside, outside = (predictor.predict(moe(tokens, N=n), None, load_gpu(gpu)) for n in (6144, 6145))
    assert inside.learned.all() and not outside.learned.any()
    assert outside.us[0] == pytest.approx(inside.us[0], rel=0.03)
    assert (outside.us >= predictor.ceiling(moe(tokens, N=6145), load_gpu(gpu)).us).all()


@pytest.mark.parametrize("cache", ["warm", "cold"])
@pytest.mark.parametrize("gpu", ["A100", "A40", "L40"])
def test_the_analytical_model_takes_over_without_a_step(predictor, gpu, cache):
    """2 N up to 6,144 was learned: extrapolated up to eight times that, and wholly analytical from 64 times on."""
    widths = np.round(2 ** np.arange(12.5, 18.0, 0.02) / 16) * 16
    configuration = as_configuration(np.array([[64, 128, 64, 8, 4, 3]], dtype=float))
    found = predictor.predict(moe(512.0, N=widths, cache=cache), configuration, load_gpu(gpu))
    for us in (found.us, found.low_us, found.high_us):
        assert np.abs(np.diff(np.log(us / widths))).max() < 0.06
    assert found.learned.tolist() == [bool(cache == "warm" and n <= 6144) for n in widths]
    beyond = moe(512.0, N=widths[widths >= 64 * 3072], cache=cache)
    expected = AnalyticalPredictor().predict(beyond, configuration, load_gpu(gpu)).us
    np.testing.assert_allclose(found.us[widths >= 64 * 3072], expected)


def test_what_is_extrapolated_is_said_and_less_sure(predictor):
    near, far, beyond = (predictor.predict(moe(64.0, N=n), None, load_gpu("A40")) for n in (3072.0, 14336.0, 300_000.0))
    assert [p.source(0, "model") for p in (near, far, beyond)] == ["model", "model, extrapolated", "analytical model"]
    assert np.log(far.high_us / far.low_us) > 1.5 * np.log(near.high_us / near.low_us)
    assert predictor.predict(moe(64.0), None, load_gpu("B200")).source(0, "model") == "model"  # its whole layers were measured


@pytest.mark.parametrize(
    "kind",
    [
        {"dtype": "fp8", "block_shape": (128, 128)},
        {"dtype": "fp8"},
        {"weight_dtype": "int4", "block_shape": (128, 128)},
        {"op": "w2", "dtype": "int8"},
    ],
)
@pytest.mark.parametrize("gpu", ["H100", "B200", "MI300X", "L4"])
def test_quantised_products_as_served_are_no_faster_than_their_ceiling(predictor, kind, gpu):
    problem = moe([1, 64, 128, 4096], **kind)
    served, least = predictor.predict(problem, None, load_gpu(gpu)), predictor.ceiling(problem, load_gpu(gpu))
    assert np.isfinite(served.us).all()
    assert (served.us >= least.us).all()
    assert gpu != "H100" or (served.us > 1.02 * least.us).any()


@pytest.mark.parametrize("configuration", [None, as_configuration(samples.CONFIGURATIONS[:1])])
@pytest.mark.parametrize("gpu", ["A100", "H20", "RTX PRO 6000 S"])
def test_a_cold_cache_makes_nothing_faster(predictor, configuration, gpu):
    warm, cold = (moe([1, 16, 64, 512, 4096], E=64, topk=6, H=2048, N=1408, cache=cache) for cache in ("warm", "cold"))
    spec = load_gpu(gpu)
    for before, after in (
        (predictor.predict(warm, configuration, spec), predictor.predict(cold, configuration, spec)),
        (predictor.ceiling(warm, spec), predictor.ceiling(cold, spec)),
    ):
        assert (after.us >= before.us).all() and (after.us >= pipelines.bound(pipelines.work(cold, spec), spec, "cold").us).all()
        assert (after.low_us <= after.us).all() and (after.us <= after.high_us).all()
        assert not after.learned.any()


@pytest.mark.parametrize("N", [2560.0, 14336.0])
def test_no_interval_reaches_beyond_a_factor_of_four(predictor, N):
    """The A40 throttles in a fifth of its rows: what that makes of a quantile is no latency of the others."""
    found = predictor.predict(moe([1.0, 256.0, 4096.0, 16384.0, 65536.0], E=64, topk=8, H=3584, N=N), None, load_gpu("A40"))
    assert (found.high_us / found.us < 4.01).all() and (found.us / found.low_us < 4.01).all()
    assert (found.high_us / found.us > 1.5).any()


def test_a_cold_row_is_the_same_alone_and_beside_others(predictor):
    """Of which some lie within what was learned, and none below its bound."""
    depths = np.array([128.0, 2048.0, 7168.0, 65536.0])
    sizes = {"M": column(64), "E": column(128), "topk": column(8), "H": depths, "N": column(768)}
    problem, gpu = ProblemBatch(family="fused_moe", op="w2", sizes=sizes, cache="cold"), load_gpu("H20")
    together = predictor.predict(problem, None, gpu)
    assert (together.low_us >= pipelines.bound(pipelines.work(problem, gpu), gpu, "cold").us * (1 - 1e-12)).all()
    for i in range(depths.size):
        alone = predictor.predict(one_problem(problem, i), None, gpu)
        for name in ("us", "low_us", "high_us"):
            assert getattr(alone, name)[0] == pytest.approx(getattr(together, name)[i], rel=1e-5)


def test_a_cold_launch_takes_as_long_as_dram_needs_for_the_mean_draw(predictor):
    """Of OLMoE's 64 experts two tokens reach 14.7 or 15: 126 MB, 155 µs of an L40S. A warm prediction has part of them from DRAM."""
    gpu = load_gpu("L40S")
    problem = problem_batch([Problem(family="fused_moe", op="w13", dtype="bf16", sizes=OLMOE, distribution="random", cache="cold")])
    served = stack_configuration(problem, gpu)
    demand = pipelines.demand(problem, served, gpu)
    least = demand.compulsory_bytes / throughput_per_us(gpu, demand.tensor_dtype)["dram"]
    assert least == pytest.approx(155.4, abs=0.5)
    for found in (predictor.predict(problem, served, gpu), predictor.ceiling(problem, gpu)):
        assert (found.us >= 0.999 * least).all() and (found.high_us >= found.us).all()


@pytest.mark.parametrize("gpu", ["T4", "V100", "P4", "A40", "H100", "B200", "MI300X"])
@pytest.mark.parametrize("weights", ["bf16", "fp8", "int8", "int4"])
@pytest.mark.filterwarnings("error")
def test_block_scaled_weights_have_a_latency_on_every_gpu(predictor, gpu, weights):
    problem = moe([1, 64, 4096], weight_dtype=weights, block_shape=(128, 128))
    for found in (predictor.predict(problem, None, load_gpu(gpu)), predictor.ceiling(problem, load_gpu(gpu))):
        assert np.isfinite(found.us).all() and (found.us > 0).all()


def test_tiles_that_spill_their_accumulators_are_not_fast(predictor):
    rows = np.array([[128, 256, 64, 16, 8, 4], [256, 256, 32, 1, 8, 2], [256, 256, 32, 1, 4, 2]], dtype=float)
    p = predictor.predict(moe(4096, H=1024, N=512), as_configuration(rows), load_gpu("H800"))
    assert p.learned.tolist() == [True, False, False]
    assert p.us[0] < p.us[1] < p.us[2]


def test_a_block_scaled_product_keeps_two_accumulators():
    """Eight warps hold 128 x 256 of a plain product, and spill where the sum is kept beside the scaled product."""
    blocks = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 16}
    tile, sizes, latency = Configuration(parameters=blocks, num_warps=8, num_stages=3), {"M": 4096, "N": 4096, "K": 4096}, {}
    for block_shape in (None, (128, 128)):
        problem = problem_batch([Problem(family="gemm", op="gemm", sizes=sizes, dtype="fp8", block_shape=block_shape)])
        demand = pipelines.demand(problem, pipelines.configuration_batch([tile]), load_gpu("H100"))
        latency[block_shape] = pipelines.latency_us(demand, load_gpu("H100"))[0]
    assert latency[(128, 128)] > 1.5 * latency[None]


@pytest.mark.parametrize("gpu", ["L40S", "RTX 6000 Ada", "H100 PCIe", "RTX 4090"])
def test_learned_latencies_are_not_below_the_bound(predictor, gpu):
    sizes = {"M": column([65536, 1, 8192]), "N": column([7168, 24576, 128]), "K": column([128, 18432, 7168])}
    problem = ProblemBatch(family="gemm", op="gemm", sizes=sizes, dtype="fp8")
    spec = load_gpu(gpu)
    p, least = predictor.predict(problem, None, spec), pipelines.bound(pipelines.work(problem, spec), spec, "warm").us
    assert p.learned.any()
    assert (p.low_us >= least * (1 - 1e-12)).all() and (p.us >= p.low_us).all() and (p.high_us >= p.us).all()


@pytest.mark.parametrize(
    ("op", "sizes"),
    [
        ("gemm", {"B": 1, "M": 64, "N": 8192, "K": 8192}),
        ("layer_norm", {"B": 16384, "H": 4096}),
        ("add", {"B": 4096, "H": 4096}),
    ],
)
def test_library_kernels_are_learned_of_every_cuda_gpu(predictor, op, sizes):
    """More DRAM makes nothing slower, also between GPUs none of which was measured; ROCm's libraries are others."""
    family = {"gemm": "gemm", "layer_norm": "normalization", "add": "elementwise"}[op]
    problem = ProblemBatch(family=family, op=op, sizes={name: column(value) for name, value in sizes.items()}, dtype="fp32")
    found = [predictor.predict(problem, None, load_gpu(name)) for name in ("T4", "A10", "A40", "A100", "H100")]
    assert all(p.learned.all() for p in found)
    us = [float(p.us[0]) for p in found]
    assert us[0] > us[1] > us[3] or op == "gemm"  # an A10 has more lanes for fp32 than an A100, an A40 twice as many
    assert us[0] > us[3] and us[4] < 1.1 * us[3] and us[0] > us[1] > us[2]
    assert all(p.low_us[0] < p.us[0] < p.high_us[0] for p in found)
    assert not predictor.predict(problem, None, load_gpu("MI300X")).learned.any()


@pytest.mark.parametrize(
    ("gpu", "dtype"),
    [
        ("H20", "fp8"),
        ("RTX 4090", "fp8"),
        ("H200", "fp8"),
        ("T4", "fp32"),
        ("A10", "fp32"),
        ("A100", "fp32"),
        ("H100", "fp32"),
        ("B200", "fp32"),
    ],
)
def test_one_row_or_column_more_of_a_library_product_takes_no_more_than_the_tiles_it_adds(predictor, gpu, dtype):
    for k in (1024, 8192):
        sizes = {"M": column([64, 64, 128, 129, 256, 257]), "N": column([128, 129, 1024, 1024, 1024, 1024]), "K": column(k)}
        found = predictor.predict(ProblemBatch(family="gemm", op="gemm", sizes=sizes, dtype=dtype), None, load_gpu(gpu))
        assert found.share is not None and (found.share[2:] > 0.5).all()  # tiny ones are not for one wave of large tiles
        assert (found.us[1::2] < 3 * found.us[::2]).all() and (found.us[1::2] > 0.9 * found.us[::2]).all()


@pytest.mark.parametrize("gpu", ["B200", "H200", "T4"])
def test_a_kernel_of_ones_own_over_rows_is_no_library_kernel(predictor, gpu):
    problem = ProblemBatch(family="normalization", op="softmax", sizes={"B": column(2048), "H": column(14123)}, dtype="fp32")
    spec = load_gpu(gpu)
    configuration = pipelines.configuration_batch([Configuration(parameters={"ROWS_PER_CTA": 64}, num_warps=1, num_stages=1)])
    found, library = predictor.predict(problem, configuration, spec), predictor.predict(problem, None, spec)
    assert not found.learned.any() and (found.share is not None) == (gpu == "H200")  # what kernels have in common was measured on Hopper
    assert library.share is not None and library.share[0] > 0.5
    assert found.us[0] >= pipelines.analyse(problem, configuration, spec).config_bound.us[0]


def test_what_one_generation_says_of_another_is_not_sure(predictor):
    problem = ProblemBatch(family="gemm", op="gemm", sizes={"M": column(1), "N": column(4096), "K": column(4096)}, dtype="fp8")
    width = [float(np.log(p.high_us / p.low_us)[0]) for p in (predictor.predict(problem, None, load_gpu(g)) for g in ("H100", "RTX 4090"))]
    assert width[1] > 0.59 > width[0]


@pytest.mark.parametrize("gpu", ["L40S", "H100 PCIe", "RTX 6000 Ada"])
def test_a_prediction_that_the_bound_raises_is_not_certain(predictor, gpu):
    sizes = {"M": column([1, 64]), "N": column([14336, 28672]), "K": column([28672, 8192])}
    found = predictor.predict(ProblemBatch(family="gemm", op="gemm", sizes=sizes, dtype="fp8"), None, load_gpu(gpu))
    assert found.share is not None and (found.share == 1).all() and (found.high_us > 1.05 * found.us).all()


def test_no_interval_reaches_below_what_the_configuration_needs(predictor):
    generator = np.random.default_rng(0)
    space = family_space("fused_moe")
    chosen = space.take(generator.integers(0, len(space), 2000))
    problem = moe(generator.integers(1, 4096, 2000).astype(float), E=128, topk=8, H=2048, N=768)
    for name in ("H200", "A30"):
        gpu = load_gpu(name)
        needed = pipelines.analyse(problem, chosen, gpu).config_bound.us
        found = predictor.predict(problem, chosen, gpu)
        assert (found.low_us >= needed * (1 - 1e-12)).all()


def test_probabilities_are_no_surer_than_held_out_errors_can_tell(predictor):
    problem, gpu = moe([1, 64, 4096], weight_dtype="int8"), load_gpu("H100")
    served, least = predictor.predict(problem, None, gpu), predictor.ceiling(problem, gpu)
    for latency in (least.us, least.us * 1000):
        p = predictor.p_speedup(problem, gpu, latency, served, least)
        assert ((p >= 0.001) & (p <= 0.999)).all()


@pytest.mark.parametrize("name", ["RTX 4090", "A10", "L40S"])
def test_what_is_predicted_to_be_slow_on_a_gpu_never_seen_can_be_won(predictor, name):
    """Errors of such GPUs lie to one side, of the launch as of the ceiling."""
    problem, space, gpu = moe([16, 256, 1024], E=128, topk=8, H=2048, N=768), family_space("fused_moe"), load_gpu(name)
    found = []
    for i in range(3):
        one = one_problem(problem, i)
        least = predictor.ceiling(one, gpu)
        us = predictor.predict(one, space, gpu).us
        slow = space.take(np.flatnonzero((us > 1.12 * least.us) & (us < 1.2 * least.us)))
        each = problem.take(np.full(len(slow), i))
        if len(slow):
            found.append(predictor.p_speedup(each, gpu, None, predictor.predict(each, slow, gpu), predictor.ceiling(each, gpu), slow))
    assert sum(p.size for p in found) > 20
    assert np.median(np.concatenate(found)) > 0.5


def test_intervals_far_from_what_was_learned_stay_within_a_factor_of_four(predictor):
    problem = ProblemBatch(family="normalization", op="softmax", sizes={"B": column(16384), "H": column(50257)}, dtype="fp32")
    for gpu in ("P100", "V100", "A100"):
        p = predictor.predict(problem, None, load_gpu(gpu))
        assert p.share is not None and (p.share == 1).all()
        assert p.high_us[0] / p.low_us[0] <= 16


def test_the_l2_of_a_relative_runs_at_the_clock_that_was_learned():
    server, workstation = (machine(load_gpu(f"RTX PRO 6000 {name}"), "bf16") for name in ("S", "Workstation"))
    assert workstation.l2_rate_bytes / server.l2_rate_bytes == pytest.approx(workstation.clock_mhz / server.clock_mhz, rel=0.01)


def test_the_routing_of_every_row_is_its_own(predictor):
    counts = np.array([[100.0, 1, 1, 1, 1, 1, 1, 1], [1.0, 2, 3, 4, 5, 6, 7, 8]])
    problem = moe([54, 18], expert_rows=counts, expert_count=np.ones((2, 8)))
    space, gpu = family_space("fused_moe"), load_gpu("H100")
    for i in range(2):
        alone = moe(problem.sizes["M"][i], expert_rows=counts[i], expert_count=np.ones(8))
        assert np.array_equal(predictor.scores(one_problem(problem, i), space, gpu), predictor.scores(alone, space, gpu))


def test_the_page_on_latencies_has_every_predictor_in_its_place():
    """`reports/docs/latency.md` numbers those who are asked, in order, by the files that exist."""
    root = Path(__file__).resolve().parents[2]
    text = (root / "reports/docs/latency.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) (.*?) \|", text, flags=re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, len(PREDICTORS) + 1))
    files = re.findall(r"^\| (?:\d+ )?`([\w/.]+)`", text, flags=re.MULTILINE)
    assert len(files) >= len(PREDICTORS) and all((root / "advisor" / file).exists() for file in files)
