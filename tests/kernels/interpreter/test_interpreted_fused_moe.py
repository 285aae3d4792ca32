"""fused_moe.py in Triton's interpreter, against its references."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from kernel_harness import check, check_inputs, compare, far_apart, load

MODULE = load("fused_moe")
CONFIGS = st.fixed_dictionaries(
    {
        "BLOCK_SIZE_M": st.sampled_from([16, 32]),
        "BLOCK_SIZE_N": st.sampled_from([16, 32, 64]),
        "BLOCK_SIZE_K": st.sampled_from([32, 64, 128]),
        "GROUP_SIZE_M": st.sampled_from([1, 2, 4, 64]),
        "num_warps": st.just(4),
        "num_stages": st.just(3),
    }
)
CONFIG = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 2, "num_warps": 4, "num_stages": 3}


@st.composite
def problems(draw, dtypes=("bf16", "fp16", "fp8")):
    experts = draw(st.integers(1, 7))
    return {
        "op": draw(st.sampled_from(["w13", "w2"])),
        "M": draw(st.integers(1, 20)),
        "E": experts,
        "topk": draw(st.integers(1, min(4, experts))),
        "H": draw(st.integers(1, 150)),
        "N": draw(st.integers(1, 70)),
        "dtype": draw(st.sampled_from(dtypes)),
    }


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


@given(problems(), CONFIGS, st.integers(0, 3))
def test_product_matches_reference(problem, config, seed):
    check(MODULE, "fused_moe_kernel", problem, config, seed=seed)


@given(problems(), CONFIGS, st.integers(0, 3))
def test_swapped_operands_give_the_same_product(problem, config, seed):
    check(MODULE, "fused_moe_kernel", problem, {**config, "SWAP_AB": True}, seed=seed)


@pytest.mark.parametrize("op", ["w13", "w2"])
@pytest.mark.parametrize("routing", [(0, 0, 6, 0), (6, 6, 0, 0), (3, 6, 1, 2)])
def test_empty_and_crowded_experts(op, routing):
    topk = sum(routing) // 6
    problem = {"op": op, "M": 6, "E": 4, "topk": topk, "H": 48, "N": 40, "dtype": "fp16", "routing": routing}
    inputs = MODULE.make_inputs(problem, "cpu", generator())
    assert torch.bincount(inputs["topk_ids"].flatten(), minlength=4).tolist() == list(routing)
    check_inputs(MODULE, "fused_moe_kernel", inputs, CONFIG)


def test_an_impossible_routing_says_so():
    with pytest.raises(ValueError, match="routing must give each of 2 experts at most 3"):
        MODULE.make_routing({"M": 3, "E": 2, "topk": 1, "routing": (4, 0)}, "cpu", generator())


@pytest.mark.parametrize("op", ["w13", "w2"])
def test_experts_of_other_ranks_give_zeros(op):
    problem = {"op": op, "M": 5, "E": 3, "topk": 2, "H": 64, "N": 32, "dtype": "fp16"}
    inputs = MODULE.make_inputs(problem, "cpu", generator())
    inputs["expert_map"] = torch.tensor([-1, 0, -1, 2, 1, -1])
    inputs["topk_ids"] = MODULE.make_routing({"M": 5, "E": 6, "topk": 2}, "cpu", generator())
    check_inputs(MODULE, "fused_moe_kernel", inputs, CONFIG)


@given(problems(dtypes=("fp16",)), st.sampled_from([16, 32]))
def test_alignment(problem, block):
    ids = MODULE.make_routing(problem, "cpu", generator())
    slots, experts, used = MODULE.align_tokens(ids, block, problem["E"])
    assert slots.numel() == block * experts.numel() and used % block == 0 and used <= slots.numel()
    real = slots[: int(used)]
    assert sorted(real[real < ids.numel()].tolist()) == list(range(ids.numel()))
    assert (slots[int(used) :] == ids.numel()).all()
    for index, slot in enumerate(real.tolist()):
        if slot < ids.numel():
            assert ids.flatten()[slot] == experts[index // block]


def test_offsets_past_2_31():
    problem = {"op": "w13", "M": 3, "E": 3, "topk": 2, "H": 40, "N": 8, "dtype": "fp16"}
    inputs = MODULE.make_inputs(problem, "cpu", generator())
    inputs["b"] = far_apart(inputs["b"], 2**30 + 64)
    inputs["a"] = far_apart(inputs["a"], 2**30 + 64)
    inputs["output"] = far_apart(inputs["output"], 2**30 + 64)
    check_inputs(MODULE, "fused_moe_kernel", inputs, CONFIG)


def test_any_strides():
    problem = {"op": "w13", "M": 7, "E": 3, "topk": 2, "H": 40, "N": 24, "dtype": "fp16"}
    inputs = MODULE.make_inputs(problem, "cpu", generator())
    inputs["a"] = inputs["a"].T.contiguous().T
    inputs["b"] = inputs["b"].transpose(1, 2).contiguous().transpose(1, 2)
    inputs["output"] = inputs["output"].T.contiguous().T
    check_inputs(MODULE, "fused_moe_kernel", inputs, CONFIG)


@given(
    problems(dtypes=("bf16", "fp16", "fp32")),
    st.sampled_from([16, 64, 256]),
    st.sampled_from([("activation_kernel", "activation"), ("combine_kernel", "combine")]),
)
def test_activation_and_combine(problem, block, kernel_and_op):
    kernel, op = kernel_and_op
    check(MODULE, kernel, {**problem, "op": op}, {"BLOCK_SIZE": block, "num_warps": 4, "num_stages": 1})


@given(st.integers(1, 5), st.integers(1, 300))
def test_quantize(rows, columns):
    x = torch.randn(rows, columns, generator=generator()).half()
    x[0] = 0
    values, scale = MODULE.quantize(x)
    assert scale.shape == (rows, -(-columns // 128))
    compare(MODULE.dequantize(values, scale, blocks=False), x, [2**-4, 1e-3], "quantize")


@pytest.mark.parametrize("tokens", [0, 1, 9])
@pytest.mark.parametrize("mapped", [False, True])
def test_layer(tokens, mapped):
    g = generator(tokens)
    x = torch.randn(tokens, 72, generator=g).half()
    w13, w2 = (torch.randn(4, 80, 72, generator=g) / 8).half(), (torch.randn(4, 72, 40, generator=g) / 6).half()
    expert_map = torch.tensor([0, -1, 1, 2, -1, 3]) if mapped else None
    ids = MODULE.make_routing({"M": tokens, "E": 6 if mapped else 4, "topk": 2}, "cpu", g)
    weights = torch.rand(tokens, 2, generator=g)
    got = MODULE.fused_moe(x, w13, w2, weights, ids, CONFIG, expert_map=expert_map)
    compare(got, MODULE.reference_layer(x, w13, w2, weights, ids, expert_map), [1e-2, 5e-3], "layer")


def test_block_scaled_layer():
    g = generator()
    x = torch.randn(6, 200, generator=g).half()
    w13, w2 = torch.randn(3, 300, 200, generator=g) / 14, torch.randn(3, 200, 150, generator=g) / 12
    ids, weights = MODULE.make_routing({"M": 6, "E": 3, "topk": 2}, "cpu", g), torch.rand(6, 2, generator=g)

    def in_blocks(w):
        scale = torch.full((3, -(-w.shape[1] // 128), -(-w.shape[2] // 128)), 1 / 64)
        values = (w * 64).to(torch.float8_e4m3fn)
        wide = torch.stack([MODULE.dequantize(v, s, blocks=True) for v, s in zip(values, scale, strict=True)])
        return values, scale, wide

    (q13, s13, wide13), (q2, s2, wide2) = in_blocks(w13), in_blocks(w2)
    got = MODULE.fused_moe(x, q13, q2, weights, ids, CONFIG, w13_scale=s13, w2_scale=s2)
    want = MODULE.reference_layer(x, wide13, wide2, weights, ids)
    # Activations are rounded to three mantissa bits (2.6 % rms) twice on the way; w13's error comes through both halves.
    assert (got - want).square().mean().sqrt() < 0.06 * want.square().mean().sqrt()
    compare(got, want, [0.1, 0.25], "fp8 layer")
