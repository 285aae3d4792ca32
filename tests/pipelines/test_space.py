"""Which configurations of a family's space a problem may be launched with."""

from __future__ import annotations

import pytest

from advisor.errors import UsageError
from advisor.pipelines.space import block_k_range, family_space, problem_space, typical_configurations
from advisor.schema import Problem

MOE = {"M": 64, "E": 128, "topk": 8, "H": 2048, "N": 768}
GEMM = {"M": 64, "N": 1024, "K": 2048}


def moe(**types) -> Problem:
    return Problem(family="fused_moe", op="w13", sizes=MOE, **types)


def gemm(**types) -> Problem:
    return Problem(family="gemm", op="gemm", sizes=GEMM, **types)


@pytest.mark.parametrize(
    ("problem", "stack", "deepest"),
    [
        (moe(dtype="fp8", block_shape=(128, 128)), None, 128), (moe(dtype="int8", block_shape=(64, 64)), "sglang", 64),
        (moe(dtype="fp8", block_shape=(64, 128)), "vllm", 64),  # cut down to the smaller side
        (moe(dtype="fp8", block_shape=(64, 128)), "sglang", 128), (moe(dtype="fp8", block_shape=(64, 128)), None, 64),
        (gemm(dtype="fp8", block_shape=(32, 32)), "sglang", 32), (gemm(dtype="fp8", block_shape=(64, 128)), "vllm", 128),
        # The greatest power of two that divides the block's depth, in whose steps no block ends.
        (moe(dtype="fp8", block_shape=(128, 192)), "sglang", 64), (moe(dtype="fp8", block_shape=(128, 192)), "vllm", 64),
        (moe(dtype="fp8", block_shape=(128, 96)), None, 32), (gemm(dtype="fp8", block_shape=(128, 96)), "sglang", 32),
        (moe(dtype="bf16", weight_dtype="int4", block_shape=(1, 128)), None, 256),  # its kernel finds the scale of every element
        (moe(dtype="fp8"), None, 256), (moe(), None, 256), (gemm(), None, 128),
    ],
)  # fmt: skip
def test_no_step_spans_two_quantization_blocks(problem, stack, deepest):
    space = problem_space(problem, stack=stack)
    assert space.parameters["BLOCK_SIZE_K"].max() == deepest
    assert (space is family_space(problem.family)) == (deepest == family_space(problem.family).parameters["BLOCK_SIZE_K"].max())
    most = block_k_range(problem, stack=stack)[1]
    assert {each.parameters["BLOCK_SIZE_K"][0] <= deepest for each in typical_configurations(problem.family, "nvidia", most)} == {True}


def test_a_block_that_no_step_fits():
    with pytest.raises(UsageError, match="BLOCK_SIZE_K"):
        problem_space(moe(dtype="fp8", block_shape=(16, 16)))


@pytest.mark.parametrize(("dtype", "vendor", "least"), [("fp8", "nvidia", 32), ("int8", "nvidia", 32), ("bf16", "nvidia", 16),
                                                        ("fp32", "nvidia", 8), ("fp8", "amd", 1)])  # fmt: skip
def test_the_least_depth_of_a_dot(dtype, vendor, least):
    assert block_k_range(gemm(dtype=dtype), vendor)[0] == least
