"""Architectures from configurations: sizes under every name, splits of layers, and what is refused in one line."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from advisor.steps.model_config import architecture, bundled, load_architecture
from advisor.steps.workload import Split
from advisor.system.errors import InputError, UsageError
from advisor.tables.models import MODELS

DENSE = {
    "model_type": "llama",
    "hidden_size": 96,
    "num_hidden_layers": 5,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 200,
    "vocab_size": 1001,
}


def test_sizes_by_any_of_their_names():
    renamed = {"n_embd": 96, "n_layer": 5, "n_head": 6, "multi_query_group_num": 2, "ffn_dim": 200, "padded_vocab_size": 1001}
    ours, other = architecture(DENSE, "a"), architecture({"model_type": "llama", **renamed}, "a")
    assert ours == other
    assert (ours.head_dim, ours.kv_heads, ours.gated, ours.norm) == (16, 2, True, "rms_norm")


def test_a_language_model_inside_of_another():
    nested = {"model_type": "vision", "vision_config": {"hidden_size": 7}, "text_config": DENSE}
    found = architecture(nested, "a")
    assert found.unpriced == ("the tower that sees or hears",) and replace(found, unpriced=()) == architecture(DENSE, "a")


def test_sizes_that_a_published_configuration_leaves_out():
    text = {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    found = architecture({"model_type": "gemma3", "text_config": text}, "a")
    assert (found.heads, found.kv_heads, found.head_dim, found.vocabulary, found.windowed) == (8, 4, 256, 262_208, 29)
    assert architecture({"text_config": text | {"num_attention_heads": 32}}, "a").heads == 32


def test_mixtures_count_their_layers():
    moe = DENSE | {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
    assert architecture(moe, "a").experts.layers == 5
    found = architecture(moe | {"first_k_dense_replace": 2, "n_shared_experts": 3}, "a")
    assert (found.experts.layers, found.dense_layers, found.experts.shared) == (3, 2, 120)
    assert architecture(moe | {"decoder_sparse_step": 2}, "a").experts.layers == 2


def test_windows_of_some_layers():
    some = DENSE | {"sliding_window": 64, "layer_types": ["sliding_attention", "full_attention"] * 2 + ["full_attention"]}
    assert (architecture(some, "a").window, architecture(some, "a").windowed) == (64, 2)
    assert architecture(DENSE | {"sliding_window": 64, "use_sliding_window": False}, "a").window is None


@pytest.mark.parametrize(
    ("extra", "word"),
    [
        ({"mamba_d_state": 16}, "Mamba"),
        ({"model_type": "mamba2"}, "Mamba"),
        ({"model_type": "rwkv"}, "RWKV"),
        ({"layer_types": ["linear_attention"] * 5}, "linear_attention"),
        ({"index_topk": 2048}, "indexer"),
        ({"hidden_size": "wide"}, "hidden_size"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "nvfp4"),
        ({"block_configs": [{"attention": {"no_op": True}}]}, "differ from one another"),
        ({"sparse_attention_config": {"sparse_topk_blocks": 16}}, "sparse attention"),
        ({"attn_type_list": [1, 0, 1]}, "lightning attention"),
    ],
)
def test_what_is_not_known_is_said_in_one_line(extra, word):
    with pytest.raises(InputError) as refused:
        architecture(DENSE | extra, "a")
    assert word in str(refused.value) and "\n" not in str(refused.value)


def test_every_bundled_name_gives_an_architecture_or_says_why_not():
    known = 0
    for name in bundled():
        try:
            found = load_architecture(name)
        except InputError as refused:
            assert "not predicted" in str(refused)
            continue
        known += 1
        mixers = (found.recurrence.layers if found.recurrence else 0) + found.attention_layers if found.mixers else 0
        assert found.layers == mixers + found.dense_layers + (found.experts.layers if found.experts else 0)
        Split(tensor=1).check(found)
    assert known > 60


def test_bundled_experts_are_those_that_tables_are_read_with():
    for model in MODELS:
        if model.name not in bundled():
            continue
        try:
            found = load_architecture(model.name)
        except InputError:
            continue
        hidden = found.experts.hidden or found.hidden
        assert (found.experts.count, found.experts.top_k, hidden, found.experts.intermediate) == (
            model.E,
            model.top_k,
            model.H,
            model.N,
        )


def test_what_is_written_beside_or_about_single_layers_counts(tmp_path):
    plain = architecture(DENSE, "mine")
    assert architecture({**DENSE, "attn_type_list": [1] * plain.layers}, "mine") == plain
    some = architecture({**DENSE, "sliding_window": 128, "hybrid_layer_pattern": [0, 1, 1] + [0] * (plain.layers - 3)}, "mine")
    assert (some.window, some.windowed) == (128, 2)
    place = tmp_path / "mine"
    place.mkdir()
    (place / "config.json").write_text(json.dumps(DENSE))
    (place / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "FP8", "exclude_modules": ["lm_head"]}}))
    assert load_architecture(str(place)).dtype == "fp8"
    sizes = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
    (place / "config.json").write_text(json.dumps(DENSE | sizes))
    (place / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}))
    packed = load_architecture(str(place))
    assert packed.dtype == "bf16" and packed.experts is not None and packed.experts.stored == "nvfp4"
    (place / "hf_quant_config.json").write_text("{")
    with pytest.raises(InputError, match="no JSON"):
        load_architecture(str(place))


def test_a_name_may_have_an_organisation_and_a_suffix(tmp_path):
    assert load_architecture("Qwen/Qwen2.5-14B-Instruct").name == "Qwen2.5-14B"
    place = tmp_path / "mine" / "config.json"
    place.parent.mkdir()
    place.write_text(json.dumps(DENSE))
    assert load_architecture(str(place)) == load_architecture(str(place.parent)) == architecture(DENSE, "mine")
    with pytest.raises(UsageError, match="unknown model"):
        load_architecture("nonesuch")


def test_a_name_says_how_weights_are_stored():
    plain = load_architecture("Qwen3-30B-A3B")
    eight = load_architecture("Qwen/Qwen3-30B-A3B-Instruct-2507-FP8")
    assert (plain.dtype, eight.dtype, eight.block_shape) == ("bf16", "fp8", (128, 128))
    assert load_architecture("nvidia/Llama-3.1-8B-Instruct-FP8").block_shape is None
    assert load_architecture("deepseek-ai/DeepSeek-V3-FP8") == load_architecture("DeepSeek-V3")
    four = load_architecture("nvidia/DeepSeek-R1-FP4")
    assert four.experts is not None and (four.experts.stored, four.dtype) == ("nvfp4", "bf16")
    for name, word in (("Qwen3-30B-A3B-AWQ", "awq"), ("nvidia/Qwen3-32B-NVFP4", "without experts")):
        with pytest.raises(UsageError, match=word):
            load_architecture(name)
