"""attention.py in Triton's interpreter, against its reference."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_harness import check, check_inputs, far_apart, load

MODULE = load("attention")
BLOCKS = {
    "BLOCK_M": st.sampled_from([16, 32]),
    "BLOCK_N": st.sampled_from([16, 32]),
    "num_warps": st.just(4),
    "num_stages": st.just(2),
}
PREFILL = st.fixed_dictionaries(BLOCKS)
DECODE = st.fixed_dictionaries({**BLOCKS, "NUM_KV_SPLITS": st.sampled_from([1, 2, 8])})
CONFIG = {"BLOCK_M": 16, "BLOCK_N": 16, "num_warps": 4, "num_stages": 2}
KERNELS = [("attention_kernel", CONFIG), ("decode_kernel", {**CONFIG, "NUM_KV_SPLITS": 2})]


@st.composite
def problems(draw, queries, keys, op):
    kv_heads = draw(st.integers(1, 2))
    return {
        "op": op,
        "B": draw(st.integers(1, 2)),
        "H": kv_heads * draw(st.integers(1, 2)),
        "H_kv": kv_heads,
        "M": draw(queries),
        "N": draw(keys),
        "D": draw(st.sampled_from([8, 16, 24, 64])),
        "causal": draw(st.integers(0, 1)),
        "dtype": draw(st.sampled_from(["bf16", "fp16", "fp32"])),
    }


def inputs_of(m=20, n=33, **other):
    problem = {"op": "prefill", "B": 2, "H": 4, "H_kv": 2, "M": m, "N": n, "D": 16, "causal": 1, "dtype": "fp16"}
    return MODULE.make_inputs({**problem, **other}, "cpu", torch.Generator().manual_seed(0))


@given(problems(st.integers(1, 40), st.integers(1, 50), "prefill"), PREFILL)
def test_prefill_matches_reference(problem, config):
    check(MODULE, "attention_kernel", problem, config)


@given(problems(st.integers(1, 5), st.integers(1, 100), "decode"), DECODE)
def test_decode_matches_reference(problem, config):
    check(MODULE, "decode_kernel", problem, config)


@pytest.mark.parametrize(("kernel", "config"), KERNELS)
def test_queries_that_see_nothing_give_zeros(kernel, config):
    inputs = inputs_of(m=20, n=7, B=1, H=2, H_kv=1)
    check_inputs(MODULE, kernel, inputs, config)
    assert (inputs["output"][:, :, : 20 - 7] == 0).all()


def test_no_keys_give_zeros():
    q, k = torch.randn(1, 2, 3, 16).half(), torch.randn(1, 2, 0, 16).half()
    assert (MODULE.attention(q, k, k) == 0).all()


@pytest.mark.parametrize("causal", [0, 1])
def test_key_lengths(causal):
    inputs = inputs_of(m=2, n=50, causal=causal, H=2, H_kv=1)
    inputs["key_lengths"] = torch.tensor([50, 19], dtype=torch.int32)
    inputs["k"][1, :, 19:], inputs["v"][1, :, 19:] = float("nan"), float("nan")  # never to be read
    reference = {**inputs, "k": inputs["k"].nan_to_num(), "v": inputs["v"].nan_to_num()}
    want = MODULE.reference(reference)
    for splits in (1, 4):
        got = MODULE.prepare_decode(inputs, {**CONFIG, "NUM_KV_SPLITS": splits})()
        torch.testing.assert_close(got.double(), want, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize(("kernel", "config"), KERNELS)
def test_large_scores_do_not_overflow(kernel, config):
    inputs = inputs_of(m=3, n=40, dtype="fp32")
    inputs["q"] *= 300
    check_inputs(MODULE, kernel, inputs, config)


@pytest.mark.parametrize(("kernel", "config"), KERNELS)
def test_offsets_past_2_31(kernel, config):
    inputs = inputs_of(m=3, n=3, B=1, H=2, H_kv=1)
    inputs["k"], inputs["v"] = (far_apart(inputs[name], 2**30 + 64, dim=2) for name in "kv")
    inputs["q"] = far_apart(inputs["q"], 2**30 + 64, dim=2)
    inputs["output"] = far_apart(inputs["output"], 2**30 + 64, dim=2)
    check_inputs(MODULE, kernel, inputs, config)


@pytest.mark.parametrize("m", [1, 70])
def test_attention_function(m):
    inputs = inputs_of(m=m, n=80)
    got = MODULE.attention(inputs["q"], inputs["k"], inputs["v"], causal=True)
    torch.testing.assert_close(got.double(), MODULE.reference(inputs), rtol=5e-3, atol=5e-3)


def test_attention_function_says_what_is_wrong():
    q, k = torch.zeros(1, 3, 2, 16), torch.zeros(1, 2, 2, 16)
    with pytest.raises(ValueError, match="multiple of key/value heads"):
        MODULE.attention(q, k, k)
    q, k = torch.zeros(1, 2, 200, 16), torch.zeros(1, 2, 200, 16)
    with pytest.raises(ValueError, match="at most 64 queries"):
        MODULE.attention(q, k, k, key_lengths=torch.tensor([3]))
