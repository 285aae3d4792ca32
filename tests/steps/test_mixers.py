"""Layers that are no attention to every key: what a configuration says of them, what a step launches for them, what they keep."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.steps.model_config import load_architecture
from advisor.steps.operators import step_operators
from advisor.steps.workload import Load, Split, memory, parameters

DECODE = Load(contexts=(4096,) * 8)
PREFILL = Load(prompts=((2048, 2048),))


def named(operators, part):
    return [each for each in operators if part in each.name]


def test_qwen_has_three_recurrent_layers_for_one_of_attention():
    model = load_architecture("Qwen3.5-35B-A3B")
    rule = model.recurrence
    assert (rule.kind, rule.layers, model.attention_layers, model.layers) == ("gdn", 30, 10, 40)
    assert (rule.key_heads, rule.value_heads, rule.channels) == (16, 32, 2 * 16 * 128 + 32 * 128)
    operators = step_operators(model, DECODE, Split(tensor=2))
    (kernel,) = named(operators, "mixer rule")
    assert (kernel.op, kernel.count, dict(kernel.words)["phase"]) == ("gdn", 30, "generation")
    assert (kernel.sizes["num_k_heads"], kernel.sizes["num_v_heads"], kernel.sizes["batch_size"]) == (8, 16, 8)
    (qkv,) = named(operators, "qkv_proj")
    assert qkv.sizes["N"] == (2 * 16 // 2 + 2 * 1) * 256  # twice the queries: a gate beside them
    assert named(operators, "attention gate")[0].count == 10


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen3.5-27B", 27), ("Qwen3.5-35B-A3B", 35), ("Qwen3.5-122B-A10B", 122), ("Qwen3.5-397B-A17B", 397), ("Qwen3-Next-80B-A3B", 80),
        ("DeepSeek-V3.2", 671), ("GLM-5", 744), ("Kimi-K3", 2780), ("Nemotron-3-Nano-30B-A3B", 31.6), ("Nemotron-3-Super-120B-A12B", 120.6),
        ("Nemotron-3-Ultra-550B-A55B", 550), ("Nemotron-H-56B", 56.5),
    ],
)  # fmt: skip
def test_parameters_are_those_of_the_name(name, billions):
    model = load_architecture(name)
    assert (parameters(model) + 2 * model.vocabulary * model.hidden) / 1e9 == pytest.approx(billions, rel=0.012)


def test_states_are_kept_beside_the_cache_and_do_not_grow_with_the_context():
    model, gpu = load_architecture("Qwen3.5-35B-A3B"), load_gpu("H200")
    short, long = (memory(model, Load(contexts=(n,) * 8), Split(), gpu) for n in (1024, 8192))
    state = 30 * (4 * 32 * 128 * 128 + 2 * 8192 * 3)
    assert short.state_bytes == long.state_bytes == 8 * state
    assert long.kv_bytes == 8 * short.kv_bytes == 8 * 8192 * 10 * 2 * 2 * 256 * 2
    assert memory(load_architecture("Qwen3-8B"), DECODE, Split(), gpu).state_bytes == 0


def test_layers_that_see_a_window_keep_no_more_than_that():
    model = load_architecture("gpt-oss-120b")  # every other of 36 layers sees 128 keys
    found = memory(model, Load(prompts=((512, 4096),), contexts=(100, 8192)), Split(), load_gpu("H100"))
    a_layer = 2 * 2 * 8 * 64
    assert found.kv_bytes == 18 * a_layer * (4096 + 100 + 8192) + 18 * a_layer * (128 + 512 + 100 + 128 + 1)


def test_sparse_attention_is_one_module_with_its_projections():
    model = load_architecture("DeepSeek-V3.2")
    operators = step_operators(model, DECODE, Split(tensor=8))
    (module,) = named(operators, "sparse attention (decode)")
    assert (module.op, module.count, module.sizes["num_heads"], module.sizes["step"]) == ("dsa_generation_module", 61, 16, 4095)
    assert dict(module.words)["gemm_type"] == "fp8_block" and not named(operators, "qkv") and not named(operators, "o_proj")
    (module,) = named(step_operators(model, PREFILL, Split()), "sparse attention")
    assert (module.op, module.sizes["isl"], module.sizes["step"]) == ("dsa_context_module", 2048, 0)


def test_minimax_has_three_layers_of_plain_attention():
    model = load_architecture("MiniMax-M3")
    assert (model.sparse.kind, model.sparse.layers, model.attention_layers) == ("msa", 57, 3)
    operators = step_operators(model, PREFILL, Split())
    assert named(operators, "sparse attention (prefill)")[0].op == "msa_context_module" and named(operators, "qkv_proj")[0].count == 3


def test_nemotron_has_a_mixer_or_an_mlp_in_each_layer():
    model = load_architecture("Nemotron-H-56B")
    assert (model.recurrence.kind, model.recurrence.layers, model.attention_layers, model.dense_layers, model.layers) == (
        "mamba2", 54, 10, 54, 118,
    )  # fmt: skip
    operators = step_operators(model, PREFILL, Split())
    norms = sum(each.count for each in named(operators, "norm") if each.name in ("mixer input norm", "input norm", "post-attention norm"))
    assert norms == 118
    (scan,) = named(operators, "mixer rule")
    assert scan.sizes["d_state"] == 256 and dict(scan.words)["kernel_source"] == "chunk_scan"
    (state,) = named(step_operators(model, DECODE, Split()), "mixer rule")
    assert 2 * 2 * np.prod(list(state.sizes.values())) == 2 * 8 * 256 * 256 * 64 * 4  # read and written, four bytes a value


def test_experts_of_fewer_values_lie_between_two_projections():
    model = load_architecture("Nemotron-3-Super-120B-A12B")
    operators = step_operators(model, DECODE, Split())
    assert named(operators, "experts down")[0].sizes["N"] == 1024 == named(operators, "experts up")[0].sizes["K"]
    (experts,) = [each for each in operators if each.name == "experts"]
    assert (experts.sizes["H"], experts.sizes["E"], experts.count) == (1024, 512, 40)


def test_what_is_not_priced_is_said():
    assert load_architecture("Qwen3.5-35B-A3B").unpriced == ("drafted tokens (multi-token prediction)",)
    assert any("blocks" in each for each in load_architecture("Kimi-K3").unpriced)
    assert load_architecture("Qwen3-8B").unpriced == ()
