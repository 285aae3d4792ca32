"""Which configurations of a family's space a problem may be launched with."""

from __future__ import annotations

import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned.analytical import AnalyticalPredictor
from advisor.pipelines import problem_batch
from advisor.pipelines.space import block_k_range, family_space, problem_space, typical_configurations
from advisor.result.schema import Problem
from advisor.system.errors import UsageError

MOE = {"M": 64, "E": 128, "topk": 8, "H": 2048, "N": 768}
GEMM = {"M": 64, "N": 1024, "K": 2048}
DECODE = {"B": 1, "H": 32, "H_kv": 8, "M": 1, "N": 131072, "D": 128}


def moe(**types) -> Problem:
    return Problem(family="fused_moe", op="w13", sizes=MOE, **types)


def gemm(**types) -> Problem:
    return Problem(family="gemm", op="gemm", sizes=GEMM, **types)


@pytest.mark.parametrize(
    ("problem", "stack", "deepest"),
    [
        (moe(dtype="fp8", block_shape=(128, 128)), None, 128),
        (moe(dtype="int8", block_shape=(64, 64)), "sglang", 64),
        (moe(dtype="fp8", block_shape=(64, 128)), "vllm", 64),  # cut down to the smaller side
        (moe(dtype="fp8", block_shape=(64, 128)), "sglang", 128),
        (moe(dtype="fp8", block_shape=(64, 128)), None, 64),
        (gemm(dtype="fp8", block_shape=(32, 32)), "sglang", 32),
        (gemm(dtype="fp8", block_shape=(64, 128)), "vllm", 128),
        # The greatest power of two that divides the block's depth, in whose steps no block ends.
        (moe(dtype="fp8", block_shape=(128, 192)), "sglang", 64),
        (moe(dtype="fp8", block_shape=(128, 192)), "vllm", 64),
        (moe(dtype="fp8", block_shape=(128, 96)), None, 32),
        (gemm(dtype="fp8", block_shape=(128, 96)), "sglang", 32),
        # MXFP8's blocks, and others that vLLM's launcher would cut every depth down to less than a dot takes.
        (moe(dtype="fp8", block_shape=(1, 32)), None, 32),
        (moe(dtype="fp8", block_shape=(16, 128)), None, 128),
        (moe(dtype="bf16", weight_dtype="int4", block_shape=(1, 128)), None, 256),  # its kernel finds the scale of every element
        (moe(dtype="fp8"), None, 256),
        (moe(), None, 256),
        (gemm(), None, 128),
    ],
)
def test_no_step_spans_two_quantization_blocks(problem, stack, deepest):
    space = problem_space(problem, stack=stack)
    assert space.parameters["BLOCK_SIZE_K"].max() == deepest
    whole = family_space(problem.family).parameters["BLOCK_SIZE_K"]
    shallow = problem.family == "fused_moe" and problem.dtype in ("fp8", "int8") and deepest > whole.min()
    assert space.parameters["BLOCK_SIZE_K"].min() == (64 if shallow else whole.min())  # 64 bytes: of less nothing was measured
    assert (space is family_space(problem.family)) == (deepest == whole.max() and not shallow)
    if stack is None:
        assert {each.parameters["BLOCK_SIZE_K"][0] <= deepest for each in typical_configurations(problem, "nvidia")} == {True}


@pytest.mark.parametrize("gpu", ["H200", "MI300X"])
@pytest.mark.parametrize("block_shape", [(1, 32), (1, 128), (16, 128)])
def test_small_blocks_have_a_ceiling(gpu, block_shape):
    """As good as that of the space that SGLang's launcher gives."""
    problem, spec = moe(dtype="fp8", block_shape=block_shape), load_gpu(gpu)
    batch, predictor = problem_batch([problem]), AnalyticalPredictor()
    best = predictor.predict(batch, problem_space(problem, spec.vendor, "sglang"), spec).us.min()
    assert best <= predictor.ceiling(batch, spec).us[0] < 1.3 * best


def test_a_block_that_no_step_fits():
    with pytest.raises(UsageError, match="BLOCK_SIZE_K"):
        problem_space(moe(dtype="fp8", block_shape=(16, 16)))


@pytest.mark.parametrize(
    ("dtype", "vendor", "least"),
    [("fp8", "nvidia", 32), ("int8", "nvidia", 32), ("bf16", "nvidia", 16), ("fp32", "nvidia", 8), ("fp8", "amd", 1)],
)
def test_the_least_depth_of_a_dot(dtype, vendor, least):
    assert block_k_range(gemm(dtype=dtype), vendor)[0] == least


@pytest.mark.parametrize(
    ("stack", "vendor", "dtype", "least"),
    [("sglang", "amd", "fp8", 128), ("sglang", "amd", "int8", 1), ("vllm", "amd", "fp8", 1), ("sglang", "nvidia", "fp8", 32)],
)
def test_no_depth_that_a_loader_would_raise(stack, vendor, dtype, least):
    assert block_k_range(gemm(dtype=dtype, block_shape=(128, 128)), vendor, stack) == (least, 128)


@pytest.mark.parametrize(
    ("problem", "name", "values"),
    [
        (gemm(), "SPLIT_K", {1, 2, 4, 8, 16, 32, 64}),
        (gemm(dtype="fp8", block_shape=(128, 128)), "SPLIT_K", None),
        (Problem(family="attention", op="decode", sizes=DECODE), "NUM_KV_SPLITS", {1, 2, 4, 8, 16, 32, 64, 128}),
        (Problem(family="attention", op="prefill", sizes=DECODE), "NUM_KV_SPLITS", None),
        (moe(), "SPLIT_K", None),
    ],
)
def test_kernels_that_split_the_depth_have_a_larger_space(problem, name, values):
    plain, split = problem_space(problem), problem_space(problem, splits=True)
    assert name not in plain.parameters
    assert split is plain if values is None else set(split.parameters[name]) == values
    assert values is None or len(split) < 2500  # ranked in milliseconds
    assert len({len(column) for column in (*split.parameters.values(), split.num_warps, split.num_stages)} - {1}) == 1


@pytest.mark.parametrize(("dtype", "depth"), [("tf32", 32), ("bf16", 64), ("fp8", 64)])
def test_typical_tiles_of_wide_types_need_no_more_memory(dtype, depth):
    tiles = {tuple(int(each.parameters[f"BLOCK_SIZE_{n}"][0]) for n in "MNK") for each in typical_configurations(gemm(dtype=dtype))}
    assert (128, 256, depth) in tiles


@pytest.mark.parametrize(
    ("gpu", "problem"),
    [
        ("MI355X", Problem(family="fused_moe", op="w13", sizes={"M": 8192, "E": 160, "topk": 8, "H": 5120, "N": 384}, dtype="fp8")),
        ("GH200", Problem(family="fused_moe", op="w13", sizes={"M": 65536, "E": 8, "topk": 2, "H": 4096, "N": 14336}, dtype="tf32")),
        ("MI300X", Problem(family="gemm", op="gemm", sizes={"M": 16, "N": 4096, "K": 4096}, dtype="fp8")),
        ("B200", Problem(family="gemm", op="gemm", sizes={"M": 4096, "N": 11008, "K": 14336}, dtype="int8")),
        ("H200", moe(dtype="bf16")),
    ],
)
def test_the_analytical_ceiling_comes_near_the_best_of_the_space(gpu, problem):
    predictor, spec, batch = AnalyticalPredictor(), load_gpu(gpu), problem_batch([problem])
    least = predictor.predict(batch, problem_space(problem, spec.vendor), spec).us.min()
    assert 1 - 1e-9 < predictor.ceiling(batch, spec).us[0] / least < 1.1


@pytest.mark.parametrize("problem", [moe(), gemm(), gemm(dtype="fp8")])
def test_on_amd_no_more_stages_are_tried_than_its_stacks_try(problem):
    assert set(problem_space(problem, "amd").num_stages) == {2}
    assert set(problem_space(problem).num_stages) == {2, 3, 4, 5}


@pytest.mark.parametrize("columns", [64, 128])
def test_short_rows_share_ctas(columns):
    """A norm over heads in CTAs of four rows spends most of its time on starting them."""
    gpu = load_gpu("H200")
    problem = Problem(family="normalization", op="rms_norm", sizes={"B": 65536, "H": columns})
    space = problem_space(problem)
    latency = AnalyticalPredictor().predict(problem_batch([problem]), space, gpu).us
    few = space.parameters["ROWS_PER_CTA"] <= 4
    assert latency.min() < 0.65 * latency[few].min()
    assert AnalyticalPredictor().ceiling(problem_batch([problem]), gpu).us[0] == pytest.approx(latency.min(), rel=0.01)
