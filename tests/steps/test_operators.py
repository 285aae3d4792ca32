"""Operators of a step: every weight and every query-key pair is counted once, however the step is split or ragged."""

from __future__ import annotations

import pytest

from advisor.steps.model_config import load_architecture
from advisor.steps.operators import step_operators
from advisor.steps.torch_operators import torch_operators
from advisor.steps.workload import Load, Split, parameters
from advisor.system.errors import UsageError

QWEN, LLAMA, MOE, SHARED = "Qwen3-32B", "Llama-3.1-70B", "Qwen3-30B-A3B", "GLM-4.5-Air"


def weights(operators) -> float:
    """Of all products with weights, without the experts', and of the experts."""
    dense = sum(each.count * each.sizes["N"] * each.sizes["K"] for each in operators if each.kind == "gemm")
    moe = sum(3 * each.count * each.sizes["E"] * each.sizes["H"] * each.sizes["N"] for each in operators if each.kind == "moe")
    return dense + moe


@pytest.mark.parametrize("name", [QWEN, LLAMA, MOE, SHARED])
@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_ranks_share_every_weight(name, ranks):
    model = load_architecture(name)
    found = step_operators(model, Load(contexts=(100, 200)), Split(tensor=ranks))
    router = model.experts.layers * model.hidden * model.experts.count if model.experts else 0
    whole = parameters(model) + model.vocabulary * model.hidden
    assert (weights(found) - router) * ranks == pytest.approx(whole, rel=1e-3)
    blocks = 1 + (model.dense_layers > 0) + (model.experts is not None)
    assert sum(each.kind == "collective" for each in found) == (2 + blocks if ranks > 1 else 0)


def test_kv_heads_are_repeated_where_there_are_more_ranks():
    model = load_architecture("Phi-4")  # 40 query heads, 10 for keys and values
    Split(tensor=20).check(model)
    qkv = next(each for each in step_operators(model, Load(contexts=(9,)), Split(tensor=20)) if each.name == "qkv_proj")
    assert qkv.sizes["N"] == (2 + 2) * 128
    with pytest.raises(UsageError, match="KV heads"):
        Split(tensor=4).check(model)


def test_a_ragged_prefill_has_the_pairs_and_tokens_of_its_prompts():
    lengths = (17, 300, 1001)
    model = load_architecture(QWEN)
    found = next(each for each in step_operators(model, Load(prompts=tuple((n, n) for n in lengths)), Split()) if each.op == "prefill")
    assert found.sizes["B"] * found.sizes["M"] == pytest.approx(sum(lengths))
    assert found.sizes["B"] * found.sizes["M"] * found.sizes["N"] == pytest.approx(sum(n * n for n in lengths))


def test_a_mixed_step_has_one_product_over_all_tokens_and_two_attentions():
    model = load_architecture(QWEN)
    found = step_operators(model, Load(prompts=((512, 512),), contexts=(900,) * 31), Split())
    assert next(each for each in found if each.name == "qkv_proj").sizes["M"] == 543
    assert {each.op for each in found if each.kind == "attention"} == {"prefill", "decode"}
    assert next(each for each in found if each.name == "lm_head").sizes["M"] == 32


def test_weights_and_kv_cache_are_cold_and_activations_warm():
    found = step_operators(load_architecture(MOE), Load(contexts=(4096,) * 64), Split())
    cold = {each.name for each in found if each.cache == "cold"}
    assert {"qkv_proj", "o_proj", "attention", "experts", "lm_head"} <= cold
    assert not cold & {"input norm", "rope", "q norm"}


def test_expert_parallel_ranks_hold_whole_experts():
    found = step_operators(load_architecture(MOE), Load(contexts=(64,)), Split(tensor=4, experts=True))
    experts = next(each for each in found if each.kind == "moe")
    assert (experts.sizes["E"], experts.sizes["ranks"], experts.sizes["N"]) == (128, 4, 768)


@pytest.mark.parametrize("name", ["bert_large", "gpt2_large", "opt_13"])
def test_training_does_every_product_three_times(name):
    model = load_architecture(name)
    load = Load(prompts=((64, 64),) * 2)

    def flop(training: bool) -> float:
        operators = torch_operators(model, load, Split(), training=training)
        return sum(
            each.count * each.sizes["M"] * each.sizes["N"] * each.sizes["K"] * each.sizes.get("B", 1)
            for each in operators
            if each.family == "gemm" and not each.name.startswith(("lm_head", "transform", "pooler"))
        )

    assert flop(True) == pytest.approx(3 * flop(False))


def test_the_compiler_launches_less():
    model, load = load_architecture("gpt2_large"), Load(prompts=((64, 64),))
    eager, compiled = (sum(each.count for each in torch_operators(model, load, Split(), compiled=c)) for c in (False, True))
    assert compiled < 0.6 * eager


def test_copies_add_up_their_gradients_once():
    model = load_architecture("gpt2_large")
    found = torch_operators(model, Load(prompts=((64, 64),)), Split(), training=True, replicas=4)
    (reduced,) = [each for each in found if each.kind == "collective"]
    assert reduced.ranks == 4 and reduced.message_bytes == pytest.approx(4 * 774e6, rel=0.05)
    staged = torch_operators(model, Load(prompts=((64, 64),)), Split(pipeline=4), training=True, replicas=4)
    assert next(each for each in staged if each.op == "all_reduce").message_bytes == reduced.message_bytes / 4


@pytest.mark.parametrize(("training", "passes"), [(False, 1), (True, 2)])
def test_ranks_reduce_activations_and_stages_hand_them_on(training, passes):
    """GPT-2 Large (36 layers of 1,280), four sequences of 1,024 in fp32: 20.97 MB of activations."""
    model, load = load_architecture("gpt2_large"), Load(prompts=((1024, 1024),) * 4)
    size = 4 * 4 * 1024 * 1280
    (reduced,) = [
        each for each in torch_operators(model, load, Split(tensor=4), training=training, dtype="fp32") if each.kind == "collective"
    ]
    assert (reduced.op, reduced.count, reduced.message_bytes, reduced.ranks) == ("all_reduce", (2 * 36 + 1) * passes, size, 4)
    (sent,) = [
        each for each in torch_operators(model, load, Split(pipeline=4), training=training, dtype="fp32") if each.kind == "collective"
    ]
    assert (sent.op, sent.count, sent.message_bytes) == ("send", 3 * passes, size)


def test_tensor_ranks_multiply_a_quarter_each_and_stages_all_of_it():
    model, load = load_architecture("gpt2_large"), Load(prompts=((64, 64),))

    def flop(split: Split) -> float:
        operators = torch_operators(model, load, split, training=True)
        return sum(
            each.count * each.sizes["M"] * each.sizes["N"] * each.sizes["K"] * each.sizes.get("B", 1)
            for each in operators
            if each.family == "gemm"
        )

    whole = flop(Split())
    assert flop(Split(tensor=4)) == pytest.approx(whole / 4, rel=1e-3) and flop(Split(pipeline=4)) == whole


def test_pytorch_does_not_serve():
    with pytest.raises(UsageError, match="whole sequences"):
        torch_operators(load_architecture("gpt2_large"), Load(contexts=(64,)), Split())
    with pytest.raises(UsageError, match="knows BERT"):
        torch_operators(load_architecture(QWEN), Load(prompts=((64, 64),)), Split())
