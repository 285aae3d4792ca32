"""The layers that a table's products belong to."""

from __future__ import annotations

import csv
import json
import shlex
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import advisor
from advisor.advising.layers import weighed
from advisor.cli import main
from advisor.diagnosis import WORTH_CHANGING
from advisor.gpus.hardware import load_gpu
from advisor.learned.layers.moe_layer import TunedTables
from advisor.pipelines import bound, problem_batch, token_draws, work
from advisor.rendering.figures import layers_apart
from advisor.rendering.markdown import to_markdown
from advisor.rendering.page import to_html
from advisor.result.schema import Action, Latency, Problem
from advisor.system.errors import InputError, UsageError
from tests.cli.command_line import table
from tests.rendering.terminal import to_text

SMALL = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8, "num_warps": 4, "num_stages": 3}
MODEL = {"hidden_size": 2048, "top_k": 8, "tokens": (64, 4096)}


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return table(tmp_path_factory.mktemp("t"), {"64": SMALL, "4096": SMALL}, "E=128,N=768,device_name=NVIDIA_H200.json")


@pytest.fixture(scope="module")
def result(path) -> advisor.Result:
    return advisor.advise(path, **MODEL)


def test_layers_stand_beside_their_products(result):
    assert [layer.id for layer in result.layers] == ["layer-M64", "layer-M4096"]
    by_id = {launch.id: launch for launch in result.launches}
    for layer in result.layers:
        assert layer.routing == "random"
        products = [by_id[name] for name in layer.launches]
        assert [launch.problem.op for launch in products] == ["w13", "w2"]
        assert layer.bound.us <= layer.ceiling.us <= layer.predicted.us
        assert sum(layer.parts.values()) == pytest.approx(layer.predicted.us)
        assert layer.predicted.us > 0.8 * sum(launch.predicted.us for launch in products)
    large = result.layers[1]
    assert large.recommended.us < 0.8 * large.predicted.us  # 64x64x32 is slow on Hopper
    action = max(result.actions, key=lambda each: each.saving_us)
    assert "layer" in action.detail


@pytest.mark.parametrize(
    ("stack", "layer_of", "note"),
    [
        ("vllm:0.11", "vLLM 0.11", "vLLM 0.14 to 0.24: those of 0.11 are predicted like those of 0.14."),
        ("vllm:0.30.1", "vLLM 0.30", "vLLM 0.14 to 0.24: those of 0.30.1 are predicted like those of 0.24."),
        ("sglang:0.4.1", "SGLang 0.4.1", "SGLang 0.5.6 to 0.5.14: those of 0.4.1 are predicted like those of 0.5.6."),
        ("vllm:0.20", "vLLM 0.20", ""),
        ("sglang", "SGLang 0.5.14", ""),
    ],
)
def test_a_version_outside_of_those_measured_names_the_one_it_is_predicted_like(stack: str, layer_of: str, note: str) -> None:
    result = advisor.advise("fused_moe", gpu="H200", model="Qwen3-30B-A3B", tokens=(64,), stack=stack)
    assert [layer.stack for layer in result.layers] == [layer_of]
    notes = [text for text in result.verdict.notes if text.startswith("Whole layers were measured with")]
    assert notes == [f"Whole layers were measured with {note}"] * bool(note)


STEP = "What such layers are of a whole step: advisor "


@pytest.mark.parametrize(
    ("gpu", "options"),
    [
        ("A100", {"model": "Phi-3.5-MoE", "tensor_parallel": 2, "stack": "vllm"}),
        ("A100", {"model": "Phi-3.5-MoE", "tensor_parallel": 2, "stack": "vllm:0.16"}),
        ("H20", {"model": "Qwen3-30B-A3B"}),
        ("H200", {"model": "Qwen3-30B-A3B", "dtype": "fp8"}),
        ("L40S", {"model": "Qwen3-30B-A3B", "stack": "sglang"}),
    ],
)
def test_the_printed_step_launches_the_layers_as_they_were_advised_on(gpu, options, capsys, monkeypatch) -> None:
    """Run as printed: of a version that nobody names both doors take the newest default, whichever was measured on the GPU."""
    monkeypatch.setattr("advisor.learned.layers.moe_layer.here", TunedTables)
    result = advisor.advise("fused_moe", gpu=gpu, tokens=(4, 32, 64), cache="cold", **options)
    (command,) = (note.removeprefix(STEP) for note in result.verdict.notes if note.startswith(STEP))
    assert main([*shlex.split(command), "--format", "json"]) == 0
    steps = json.loads(capsys.readouterr().out)
    experts = [next(row for row in step["operators"] if row["name"] == "experts") for step in steps]
    assert [row["us"] for row in experts] == pytest.approx([layer.predicted.us for layer in result.layers], rel=1e-6)
    assert [row["parts"][0] for row in experts] == [["w13", pytest.approx(layer.parts["w13"], rel=1e-6)] for layer in result.layers]
    told = [text for text in steps[0]["caveats"] if "Experts are launched as vllm 0.17 and later do" in text]
    assert bool(told) is (gpu == "A100" and options.get("stack") == "vllm"), "which version's measured layers stand in"


def test_a_default_is_named_by_the_version_that_brought_it_and_what_older_ones_lose_is_said() -> None:
    """On an A100 layers of vLLM 0.14 were measured, whose default took half as long again at 32 tokens."""
    options = {"model": "Phi-3.5-MoE", "tensor_parallel": 2, "gpu": "A100", "tokens": (16, 32)}
    newest, older = (advisor.advise("fused_moe", stack=stack, **options) for stack in ("vllm", "vllm:0.16"))
    assert {launch.configuration_source for launch in newest.launches} == {"vLLM's default since 0.17, as without a table"}
    assert {layer.stack for layer in newest.layers} == {"vLLM 0.17"}, "not that of the measured version, whose default is another"
    more = older.layers[1].predicted.us / newest.layers[1].predicted.us - 1
    said = f"vLLM before 0.17 takes up to {100 * more:.0f} % longer by its default (M = 32): for it give --stack vllm:0.16."
    assert said in newest.verdict.notes and more > 0.3
    assert any("Layers are timed like those of vLLM 0.14" in text for text in newest.verdict.unknowns)
    assert not any("by its default" in text for text in older.verdict.notes)
    sglang = advisor.advise("fused_moe", stack="sglang", **options)
    assert not any("by its default" in text for text in sglang.verdict.notes) and "since" not in sglang.launches[0].configuration_source


def test_no_entry_is_written_that_the_model_of_whole_layers_says_loses() -> None:
    """At 512 tokens launches alone are predicted to gain 5 %, and their layer to take longer."""
    result = advisor.advise("fused_moe", model="Phi-3.5-MoE", tensor_parallel=2, gpu="A100", tokens=(512, 2048))
    by_id = {launch.id: launch for launch in result.launches}
    assert all(by_id[f"{op}-M512"].recommendation is None and by_id[f"{op}-M2048"].recommendation for op in ("w13", "w2"))
    assert "its launches alone are predicted faster, the whole layer 14." in by_id["w13-M512"].kept
    assert [row.tokens for export in result.exports for row in export.rows if row.changed] == [2048, 2048]
    assert result.layers[0].recommended is None and "M=512" not in result.actions[0].title


@pytest.mark.parametrize("gpu", ["A100", "H200", "L40S"])
def test_products_take_what_layers_were_measured_to_spend_on_them(gpu) -> None:
    """Of the stacks' default for more tokens than experts, which no sweep of near-optimal configurations holds."""
    result = advisor.advise("fused_moe", gpu=gpu, model="Qwen3-30B-A3B", tokens=(256,), stack="vllm:0.14")
    (layer,) = result.layers
    assert SMALL.items() >= result.launches[0].configuration.parameters.items()
    alone = sum(launch.predicted.us for launch in result.launches)
    assert alone == pytest.approx(layer.parts["w13"] + layer.parts["w2"], rel=0.15)


def test_a_layer_s_ceiling_is_no_higher_than_what_another_entry_of_the_table_takes(tmp_path) -> None:
    """Whichever entry one starts with: that of 64 tokens is known at 32 too."""
    slow = {**SMALL, "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}
    fast = {**slow, "BLOCK_SIZE_N": 64, "GROUP_SIZE_M": 32}
    name, model = "E=128,N=192,device_name=NVIDIA_H100_80GB_HBM3.json", {"hidden_size": 4096, "top_k": 8, "tokens": (32,)}
    both, alone = (advisor.advise(table(tmp_path, entries, name), **model) for entries in ({"32": slow, "64": fast}, {"32": fast}))
    assert both.layers[0].ceiling.us <= alone.layers[0].predicted.us < both.layers[0].predicted.us


def test_a_library_is_named_where_no_triton_layer_was_measured(tmp_path) -> None:
    """On an MI355X what AITER's fused MoE takes; on an MI300X, tuned for three models, nothing is known of it."""
    for gpu, known in (("MI355X", True), ("MI300X", False)):
        name = f"E=128,N=768,device_name=AMD_Instinct_{gpu},dtype=fp8_w8a8,block_shape=[128, 128].json"
        result = advisor.advise(table(tmp_path, {"64": SMALL, "4096": SMALL}, name), **MODEL)
        notes = [note for note in result.verdict.notes if "AITER" in note]
        assert not result.layers and len(notes) == known
        assert not known or (f"No Triton layer was measured on {gpu}" in notes[0] and "for 4096 tokens" in notes[0])


@pytest.mark.parametrize("gpu", ["V100", "T4"])
def test_layers_need_the_matrix_units_of_those_that_were_measured(gpu) -> None:
    """Before Ampere none takes bf16: the products are predicted, and no layer around them."""
    result = advisor.advise("fused_moe", gpu=gpu, model="Qwen3-30B-A3B", tokens=(64,), dtype="fp16")
    assert result.verdict.current_us > 0
    assert not result.layers


def test_a_saving_that_the_whole_layer_does_not_show_is_within_doubt(result):
    layer = result.layers[1]
    slower = replace(layer, recommended=Latency(us=layer.predicted.us * 1.01, origin="predicted", source="model"))
    action = Action(title="Change", detail="faster", saving_us=2.0, origin="predicted", launches=layer.launches)
    assert "within the model's error" in weighed((action,), [slower], set())[0].detail
    assert "within the model's error" not in weighed((action,), [layer], set())[0].detail


@pytest.mark.parametrize(
    ("changing", "measured", "saved"),
    [((0, 1), (), True), ((0,), (), True), ((1,), (), True), ((0, 1), (1,), False), ((), (), False)],
)
def test_a_layer_gains_where_one_of_its_launches_changes_and_none_was_measured(result, changing, measured, saved):
    """One denominator for all sizes: the layer's time, whether both of its products have another configuration or one alone."""
    layer = result.layers[1]
    action = Action(title="Change", detail="", saving_us=2.0, origin="predicted", launches=tuple(layer.launches[i] for i in changing))
    (weighed_action,) = weighed((action,), [layer], {layer.launches[i] for i in measured})
    assert weighed_action.layers_us == (layer.predicted.us if saved else None)
    assert weighed_action.saving_us == pytest.approx(layer.predicted.us - layer.recommended.us if saved else 2.0)


def test_every_surface_shows_them(result):
    text, page, markdown = to_text(result), to_html(result), to_markdown(result)
    assert "random routing" in text and "with the recommended (saves" in text
    assert 'id="layers"' in page and "random routing" in page
    assert "| layer, vLLM" in markdown


@pytest.mark.parametrize(
    "text",
    [
        "gpu,op,M,E,topk,H,N,latency_us\nH200,layer,64,128,8,2048,768,321.5\n",
        "Namespace(model='Qwen3')\nBatch size: 64, config: {'BLOCK_SIZE_M': 64}\nKernel time: 321.50 us\n",
    ],
    ids=["rows", "benchmark_moe"],
)
def test_measured_layers_are_taken(path, tmp_path, text):
    measured = tmp_path / "measured.txt"
    measured.write_text(text)
    found = advisor.advise(path, **MODEL, measured=measured)
    assert found.layers[0].measured.us == 321.5
    assert found.layers[1].measured is None
    assert all(launch.measured is None for launch in found.launches)


def test_routing_is_random_unless_it_is_said(path, result):
    balanced = advisor.advise(path, **MODEL, routing="balanced")
    skewed = advisor.advise(path, **MODEL, routing="power_law:1.2")
    assert {launch.problem.distribution for launch in result.launches} == {"random"}
    assert {launch.problem.distribution for launch in balanced.launches} == {None}
    # At M = 64 balanced routing uses all 128 experts; random routing nearly all.
    assert result.launches[0].bound.us < balanced.launches[0].bound.us
    assert skewed.layers[0].routing == "power_law:1.2"
    with pytest.raises(InputError):
        advisor.advise(path, **MODEL, routing="power_law:x")


def test_nearly_every_draw_stays_above_the_bound():
    gpu, rng = load_gpu("H200"), np.random.default_rng(0)
    sizes = {"M": 8, "E": 64, "topk": 6, "H": 4096, "N": 1024}
    least = bound(work(problem_batch([Problem(family="fused_moe", op="w13", sizes=sizes, distribution="random")]), gpu), gpu, "cold").us[0]
    below = 0
    for _ in range(300):
        chosen = np.concatenate([rng.permutation(64)[:6] for _ in range(8)])
        drawn = Problem(family="fused_moe", op="w13", sizes=sizes, routing=tuple(np.bincount(chosen, minlength=64).tolist()))
        below += bound(work(problem_batch([drawn]), gpu), gpu, "cold").us[0] < least
    assert below <= 6


def test_few_balanced_tokens_lie_on_all_ranks_alike():
    """16 tokens of 22 experts each, of 512 on two ranks: half of the slots each."""
    found = token_draws.loads(*(np.array([float(n)]) for n in (16, 512, 22, 2)), np.array([token_draws.BALANCED]))
    assert found.slots[0] == pytest.approx(16 * 22 / 2, abs=12)


def test_one_token_uses_its_experts_and_no_fewer():
    one = np.ones(1)
    assert token_draws.loads(one, 64 * one, 6 * one, one, token_draws.RANDOM * one).least_used[0] == pytest.approx(6)


def test_nothing_is_recommended_that_makes_a_measured_gpu_s_layer_slower():
    """Of a B200's products in fp8 nothing is learned, of its layers much: at four tokens the two disagree by a sixth of the layer. And what
    is not learned is not likely enough to win to be recommended at all."""
    found = advisor.advise("fused_moe", model="GLM-4.5-Air", tensor_parallel=4, gpu="B200", dtype="fp8", tokens=(2, 4, 64))
    assert [layer.recommended is None for layer in found.layers] == [True, True, True]
    for layer in found.layers:
        assert layer.recommended is None or layer.recommended.us < layer.predicted.us * WORTH_CHANGING


@pytest.mark.parametrize(
    ("gpu", "sizes", "dtype", "posted", "most"),
    [
        ("L40S", {"E": 256, "N": 512, "H": 2048, "topk": 8}, "fp8", {2: 31.9, 4: 78.6}, 1.15),
        ("H20", {"E": 8, "N": 256, "H": 4096, "topk": 2}, "bf16", {1: 21.1, 8: 25.8, 32: 34.0, 96: 51.8}, 1.65),
    ],
)
def test_a_layer_is_bounded_below_what_people_post_and_predicted_as_predict_does(gpu, sizes, dtype, posted, most, tmp_path):
    """Layers as `benchmark_moe` times them, again and again: warm. Their weights are as large as the L2, or nearly."""
    result = advisor.advise("fused_moe", gpu=gpu, sizes=sizes, tokens=tuple(posted), dtype=dtype)
    assert all(layer.bound.us < posted[layer.tokens] for layer in result.layers) and len(result.layers) == len(posted)
    cold = advisor.advise("fused_moe", gpu=gpu, sizes=sizes, tokens=tuple(posted), dtype=dtype, cache="cold")
    assert all(layer.bound.us > warm.bound.us for layer, warm in zip(cold.layers, result.layers, strict=True))
    # Of fewest tokens the L2 holds the weights of a layer that runs again and again.
    assert cold.layers[0].predicted.us > result.layers[0].predicted.us * 1.02
    rows = tmp_path / "layers.csv"
    lines = [",".join([gpu, "layer", str(m), *(str(sizes[name]) for name in ("E", "topk", "H", "N")), dtype]) for m in posted]
    rows.write_text("\n".join(["gpu,op,M,E,topk,H,N,dtype", *lines]) + "\n")
    out = tmp_path / "out.csv"
    assert main(["predict", str(rows), "-o", str(out)]) == 0
    with out.open() as file:
        predicted = [float(row["predicted_us"]) for row in csv.DictReader(file)]
    assert predicted == pytest.approx([layer.predicted.us for layer in result.layers], rel=1e-3)
    assert all(1 / 1.15 < us / theirs < most for us, theirs in zip(predicted, posted.values(), strict=True))


def test_the_command_of_a_step_names_the_model_of_a_table_without_how_it_is_split(tmp_path):
    tuned = table(tmp_path, {"64": SMALL}, "E=128,N=384,device_name=NVIDIA_H200.json")
    notes = advisor.advise(tuned, tokens=64).verdict.notes
    command = "advisor model Qwen3-30B-A3B --gpu H200 --stack vllm --tp 2 --batch 64"
    assert f"What such layers are of a whole step, there without this table: {command}" in notes


@pytest.mark.parametrize(("model", "split", "warned"), [("GLM-4.5-Air", 4, True), ("Qwen3-30B-A3B", 2, False), ("Qwen3-30B-A3B", 4, True)])
def test_blocks_that_do_not_divide_a_rank_s_columns_are_the_headline(model, split, warned):
    """As a crash of Qwen3-30B-A3B-FP8 on four ranks was reported (192 columns a rank, blocks of 128)."""
    options = {"model": model, "tensor_parallel": split, "gpu": "H200", "dtype": "fp8", "tokens": 64}
    result = advisor.advise("fused_moe", block_shape=(128, 128), **options)
    assert ("do not load this" in result.verdict.sentence) is warned
    assert not advisor.advise("fused_moe", **options).warnings
    notes = result.verdict.notes
    assert f"What such layers are of a whole step: advisor model {model}-FP8 --gpu H200 --stack vllm --tp {split} --batch 64" in notes
    assert sum("--moe-backend triton" in note for note in notes) == 1
    assert sum(f"--expert-parallel {split} in place of --tp {split}" in note for note in notes) == 1


def test_weights_that_the_l2_keeps_for_a_launch_alone_are_no_disagreement_of_two_models():
    """The 16 experts of two tokens fit the 96 MB of an L40S, one product's at a time: a layer reads both from DRAM."""
    of = {cache: advisor.advise("fused_moe", model="Qwen3-30B-A3B", gpu="L40S", tokens=(2,), cache=cache) for cache in ("warm", "cold")}
    notes = {cache: " ".join(result.verdict.notes) for cache, result in of.items()}
    assert "At M = 2 the L2 keeps the weights" in notes["warm"] and not any("Two models" in text for text in notes.values())
    assert "the L2 keeps" not in notes["cold"]
    (layer,), launches = of["warm"].layers, of["warm"].launches
    assert layer.predicted.us > 3 * sum(launch.predicted.us for launch in launches)
    assert layer.predicted.us < 1.3 * sum(launch.predicted.us for launch in of["cold"].launches)
    assert "as predicted alone" not in to_text(of["warm"])


def test_models_that_disagree_by_more_than_the_l2_says_so_as_before(result):
    slower = [
        replace(launch, predicted=replace(launch.predicted, us=2 * launch.predicted.us)) for launch in result.launches if launch.predicted
    ]
    assert layers_apart(result.layers, slower).keys() == {64, 4096}


def test_a_layer_of_a_gpu_never_measured_takes_what_its_tiles_ask_of_the_matrix_units():
    """An H20 has a seventh of an H100's matrix units to more DRAM: by what was measured elsewhere its tiles would beat their peak."""
    sizes = {"E": 64, "N": 1536, "H": 2560, "topk": 6}
    result = advisor.advise("fused_moe", gpu="H20", sizes=sizes, tokens=(2048,), stack="vllm:0.24")
    (layer,), gpu = result.layers, load_gpu("H20")
    padded = 64 * -(-(2048 * 6 / 64 + 63) // 128) * 128  # rows of blocks of 128, the default's there
    own_us = 2 * padded * 3 * 1536 * 2560 / gpu.peak_tensor_flop_per_s("bf16") * 1e6
    assert layer.predicted.us > own_us and layer.predicted.low_us < layer.predicted.us < layer.predicted.high_us


def test_a_model_is_a_name_and_its_file_is_answered_with_what_to_say():
    with pytest.raises(UsageError, match="--model takes no file") as raised:
        advisor.advise("fused_moe", gpu="H20", model="config.json")
    assert "--sizes E=" in str(raised.value)
