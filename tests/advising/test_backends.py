"""The library reference of a layer, and the action that changes the backend."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import advisor
from advisor.advising.layers import backends, layer_notes
from advisor.advising.verdict import verdict
from advisor.rendering.page import to_html
from advisor.result.result_json import from_json, to_json
from advisor.result.schema import Latency
from tests.cli.command_line import table
from tests.rendering.terminal import to_text

SMALL = {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8, "num_warps": 4, "num_stages": 3}
MODEL = {"hidden_size": 4096, "top_k": 8, "tokens": (64, 4096)}


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    return table(tmp_path_factory.mktemp("t"), {"64": SMALL, "4096": SMALL}, "E=128,N=1536,device_name=NVIDIA_B200.json")


@pytest.fixture(scope="module")
def result(path) -> advisor.Result:
    return advisor.advise(path, **MODEL)


def test_a_layer_has_its_library_reference(result):
    for layer in result.layers:
        assert layer.library is not None and layer.library.origin == "predicted" and layer.library.coverage == 0.8
        assert layer.bound.us * 0.999 <= layer.library.low_us <= layer.library.us < layer.library.high_us
        assert layer.library.source.endswith("(vLLM 0.24.0)")
    assert result.layers[1].library.us < 0.6 * result.layers[1].predicted.us  # 64 x 64 x 32 reaches a fifth of a B200's matrix units


def test_the_reference_is_shown_everywhere(result):
    source = result.layers[0].library.source
    assert source in to_text(result) and source in to_html(result)
    assert from_json(to_json(result)).layers == result.layers


def test_a_library_that_beats_the_tile_is_an_action(result):
    (action,) = [each for each in result.actions if each.title.startswith("Change the backend")]
    faster = [layer for layer in result.layers if layer.library.source in action.title and set(layer.launches) <= set(action.launches)]
    assert action.saving_us == pytest.approx(sum(layer.now.us - layer.library.us for layer in faster))
    assert "measure it before" in action.detail and action.origin == "predicted"


def test_a_library_that_is_hardly_faster_or_of_another_stack_is_none(result):
    layer = replace(result.layers[0], recommended=None)
    assert layer.library is not None
    hardly = replace(layer, library=replace(layer.library, us=layer.now.us / 1.05))
    assert backends([hardly], "vllm") == []
    half = Latency(us=layer.now.us / 2, origin="predicted", source="FlashInfer CUTLASS (SGLang 0.5.14)")
    assert backends([replace(layer, library=half)], "vllm") == []
    (action,) = backends([replace(layer, library=half)], "sglang")
    assert action.saving_us == pytest.approx(layer.now.us / 2) and "FlashInfer CUTLASS" in action.title


@pytest.mark.parametrize(
    ("times", "said"),
    [
        (0.8, "of another stack"),
        (0.97, "less than such predictions err"),
        (1.04, "takes 1.04 times as long as these layers at best, within doubt at M = "),
        (1.2, "No other backend is faster: "),
    ],
)
def test_a_library_is_told_beside_the_best_tiles(result, times, said):
    """One that beats what runs now, and not what is recommended, is of no other stack, and no faster."""
    layer = result.layers[0]
    assert layer.library is not None
    best = replace(layer.now, us=layer.now.us / 2)
    beside = replace(layer, recommended=best, library=replace(layer.library, us=times * best.us))
    (note,) = [text for text in layer_notes([beside], (), result.launches) if beside.library.source in text]
    assert said in note


def test_the_headline_names_the_change_that_stands_first(result):
    (first, *_) = result.actions
    assert ("Changing the backend" in result.verdict.sentence) is first.title.startswith("Change the backend")
    other = verdict(result.launches, (), layers=result.layers, backend=replace(first, saving_us=3.0, layers_us=10.0))
    assert other.sentence.endswith("Changing the backend should save 30 % of MoE layer time.")


def test_a_library_of_the_stack_that_is_slower_than_triton_is_no_reference(tmp_path):
    """FlashInfer CUTLASS as vLLM 0.24 runs it in fp8 on Hopper takes six times as long as the layer; TensorRT-LLM's does not."""
    name = table(tmp_path, {"64": SMALL | {"BLOCK_SIZE_K": 128}}, "E=128,N=1408,device_name=NVIDIA_H200,dtype=fp8_w8a8.json")
    result = advisor.advise(name, hidden_size=4096, top_k=8, tokens=(64,))
    assert result.layers[0].library.us < 1.2 * result.layers[0].predicted.us and "TensorRT-LLM" in result.layers[0].library.source
    assert " fp8 per tensor " in to_text(result) and any("2 of 2 intervals are wide" in note for note in result.verdict.notes)


@pytest.mark.parametrize(("device", "said"), [("NVIDIA_H800", "never measured on H800"), ("NVIDIA_H20", None), ("NVIDIA_A40", None)])
def test_a_gpu_that_was_never_measured_says_so_or_has_none(tmp_path, device, said):
    """The SMs of a H20 multiply at a seventh of a H100's rate; of an A40's generation none was measured near."""
    name = table(tmp_path, {"64": SMALL}, f"E=128,N=768,device_name={device}.json")
    (layer,) = advisor.advise(name, hidden_size=2048, top_k=8, tokens=(64,)).layers
    assert (layer.library is None) if said is None else said in layer.library.source
