"""gemm.py in Triton's interpreter, against its reference."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_harness import check, check_inputs, far_apart, load

MODULE = load("gemm")
BLOCKS = {
    "BLOCK_SIZE_M": st.sampled_from([16, 32]),
    "BLOCK_SIZE_N": st.sampled_from([16, 32, 64]),
    "BLOCK_SIZE_K": st.sampled_from([32, 64]),
    "GROUP_SIZE_M": st.sampled_from([1, 3, 8]),
    "num_warps": st.just(4),
    "num_stages": st.just(3),
}
CONFIGS = st.fixed_dictionaries({**BLOCKS, "SPLIT_K": st.sampled_from([1, 2, 4])})
PERSISTENT = st.fixed_dictionaries(
    {
        **BLOCKS,
        "EPILOGUE_SUBTILE": st.sampled_from([1, 2]),
        "FLATTEN": st.booleans(),
        "WARP_SPECIALIZE": st.just(False),
    }
)
CONFIG = {
    "BLOCK_SIZE_M": 16,
    "BLOCK_SIZE_N": 32,
    "BLOCK_SIZE_K": 32,
    "GROUP_SIZE_M": 2,
    "num_warps": 4,
    "num_stages": 3,
}
PERSISTENT_CONFIG = {**CONFIG, "EPILOGUE_SUBTILE": 1, "FLATTEN": True, "WARP_SPECIALIZE": False}
DTYPES = st.sampled_from(["bf16", "fp16", "fp8", "tf32", "fp32"])


def problem(m, n, k, dtype="fp16"):
    return {"op": "gemm", "M": m, "N": n, "K": k, "dtype": dtype}


def inputs_of(*sizes):
    return MODULE.make_inputs(problem(*sizes), "cpu", torch.Generator().manual_seed(0))


@given(st.integers(1, 70), st.integers(1, 70), st.integers(1, 200), DTYPES, CONFIGS)
def test_gemm_matches_reference(m, n, k, dtype, config):
    check(MODULE, "gemm_kernel", problem(m, n, k, dtype), config)


@given(st.integers(1, 70), st.integers(1, 6), st.integers(1, 12), DTYPES, PERSISTENT)
def test_persistent_matches_reference(m, n16, k16, dtype, config):
    if dtype != "fp32":
        check(MODULE, "gemm_persistent_kernel", problem(m, 16 * n16, 16 * k16, dtype), config)


@pytest.mark.parametrize("split", [1, 4])
def test_any_strides(split):
    inputs = inputs_of(37, 45, 70)
    inputs["a"] = inputs["a"].T.contiguous().T
    inputs["b"] = inputs["b"].contiguous()
    inputs["output"] = inputs["output"].T.contiguous().T
    check_inputs(MODULE, "gemm_kernel", inputs, {**CONFIG, "SPLIT_K": split})


def test_persistent_takes_rows_of_b_too():
    inputs = inputs_of(37, 48, 80)
    inputs["b"] = inputs["b"].contiguous()
    check_inputs(MODULE, "gemm_persistent_kernel", inputs, PERSISTENT_CONFIG)


def test_offsets_past_2_31():
    inputs = inputs_of(3, 3, 40)
    inputs["a"] = far_apart(inputs["a"], 2**30 + 64)
    inputs["b"] = far_apart(inputs["b"].T, 2**30 + 64).T
    inputs["output"] = far_apart(inputs["output"], 2**30 + 64)
    for split in (1, 2):
        check_inputs(MODULE, "gemm_kernel", inputs, {**CONFIG, "SPLIT_K": split})


def test_empty_products():
    for sizes in ((0, 5, 7), (5, 0, 7), (5, 7, 0)):
        a, b = torch.ones(sizes[0], sizes[2]), torch.ones(sizes[2], sizes[1])
        assert torch.equal(MODULE.gemm(a, b), a @ b)


@pytest.mark.parametrize("sizes", [(1, 9, 33), (5, 77, 700)])
def test_gemm_function(sizes):
    m, n, k = sizes
    a, b = torch.randn(m, k).half(), torch.randn(k, n).half()
    torch.testing.assert_close(MODULE.gemm(a, b).float(), a.float() @ b.float(), rtol=1e-2, atol=5e-2)


def test_descriptors_fit():
    assert MODULE.descriptors_fit(torch.empty(4, 8).half(), torch.empty(16, 8).half().T)
    assert not MODULE.descriptors_fit(torch.empty(4, 9).half())
    assert not MODULE.descriptors_fit(torch.empty(4, 16).half()[:, 1:])
    assert not MODULE.descriptors_fit(torch.empty(4, 16).half()[:, ::2])
