"""`advisor model`: the step as text, JSON and page; what it refuses."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from advisor.cli import main
from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.rendering.step_text import step_page, steps_text
from advisor.steps.model_config import load_architecture
from advisor.steps.step import StepRequest, predict_step
from advisor.steps.workload import Load
from tests.rendering.test_page import Document


def test_a_decode_step_in_json(capsys):
    assert main(["model", "Qwen3-30B-A3B", "--gpu", "H200", "--tp", "1", "--batch", "64", "--context", "4096", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found["step"]) == {"us", "low_us", "high_us"}
    assert {"attention", "experts", "gaps"} <= {row["name"] for row in found["operators"]}


def test_a_curve_over_batches_and_gpus_side_by_side(capsys):
    assert main(["model", "Qwen3-8B", "--gpu", "H100,L40S", "--batch", "1,64", "--context", "1000", "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["gpu"], each["load"]) for each in found] == [
        (gpu, f"decode of {batch}, context 1,000") for gpu in ("H100", "L40S") for batch in ("1 sequence", "64 sequences")
    ]
    assert found[0]["step"]["us"] < found[1]["step"]["us"] < found[3]["step"]["us"]


def test_several_steps_stand_beside_each_other_first():
    load = Load(contexts=(900,))
    one = predict_step(StepRequest(model=load_architecture("Qwen3-0.6B"), load=load), load_gpu("H100"), load_predictor())
    full = replace(one.memory, kv_bytes=1e12)
    more = replace(one, load="decode of 64 sequences, context 900", tokens=64, memory=full)
    steps = [one, more, replace(one, gpu="L4"), replace(more, gpu="L4")]
    lines = steps_text(steps).splitlines()
    assert lines[0].split() == ["step", "H100", "L4"] and lines[3] == ""
    assert "tokens/s" in lines[1] and lines[2].startswith("decode of 64 sequences") and lines[2].endswith("does not fit")
    page = step_page(steps, "0")
    assert "2 steps on 2 GPUs" in page and page.count('class="line s-') >= 4 and "Latency over the tokens of a step" in page
    assert page.index("does not fit:") < page.index(">Decode of 64 sequences, context 900:") and 'class="band s-' not in page
    assert 'class="band s-predicted"' in step_page(steps[:2], "0")
    over = replace(one, memory=replace(one.memory, weights_bytes=50e9, kv_bytes=45e9, gpu_bytes=100e9))
    assert "vLLM's default --gpu-memory-utilization of 0.9 (newer versions: 0.92) has room for 89 % of this cache." in steps_text([over])
    assert "tokens/s, above vLLM's default share of memory  " in steps_text([over, replace(one, gpu="L4")]).splitlines()[1]
    assert "default" not in steps_text([one])
    assert "Latency over the tokens" not in step_page([one], "0") and steps_text([one]).startswith("Qwen3-0.6B")


def test_text_says_first_what_does_not_fit(capsys):
    assert main(["model", "Llama-3.1-70B", "--gpu", "L4", "--prefill", "100,300"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("does not fit") and "prefill of 2 prompts, 400 tokens" in lines[2]


def test_the_page_is_whole_and_escaped(tmp_path, capsys):
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 100}
    place = tmp_path / "<b>me" / "config.json"
    place.parent.mkdir()
    place.write_text(json.dumps(config))
    out = tmp_path / "out"
    assert main(["model", str(place), "--gpu", "A100", "--prefill", "9", "--output", str(out)]) == 0
    page = (out / "model.html").read_text()
    document = Document(page)
    assert "<b>me" not in page.partition("<script>")[0]
    assert not [value for _, name, value in document.attributes if name in ("src", "href") and not value.startswith("#")]
    assert any("qkv_proj" in text for text in document.text)
    assert json.loads((out / "model.json").read_text())["model"] == "<b>me"


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ([], "no step is named"),
        (["--context", "4096"], "--context says what each decoding sequence sees"),
        (["--contexts", "5,6", "--batch", "3"], "leave out --batch"),
        (["--prefill", "5", "--tp", "3"], "divide"),
        (["--prefill", "5", "--train"], "does not train"),
        (["--prefill", "0"], "between 1"),
    ],
)
def test_what_makes_no_step_is_refused(arguments, word, capsys):
    assert main(["model", "Qwen3-8B", "--gpu", "H100", *arguments]) == 2
    assert word in capsys.readouterr().err


def test_a_batch_alone_decodes_with_a_context_that_is_said_and_a_cache_that_is_too_large_says_how_much_fits(capsys):
    assert main(["model", "Qwen3-30B-A3B", "--gpu", "H100", "--batch", "64"]) == 0
    told = capsys.readouterr().out
    assert "context 4,096" in told and "Assumes 4,096 keys for each decoding sequence" in told
    assert "does not fit" in told and "93 % of this KV cache fits" in told and "tuned table" not in told
    assert main(["model", "Qwen3-30B-A3B", "--gpu", "H200", "--batch", "1", "--stack", "sglang:0.5.14"]) == 0
    assert "Assumes experts with a tuned table." in capsys.readouterr().out  # as it was measured there
    assert main(["model", "Qwen3-30B-A3B", "--gpu", "A10", "--batch", "1"]) == 0
    assert "Split the model with --tp or --pp." in capsys.readouterr().out


def test_a_model_with_states_and_one_of_sparse_attention_are_told_with_stack_version_bound_and_what_is_missing(capsys):
    for name, split, mixer in (("Qwen3.5-35B-A3B", "1", "mixer rule (decode)"), ("DeepSeek-V3.2", "8", "sparse attention (decode)")):
        asked = ["model", name, "--gpu", "H200", "--tp", split, "--batch", "32", "--context", "4096", "--stack", "vllm:0.24"]
        assert main([*asked, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert (found["engine"], found["stack_version"]) == ("vllm", "0.24") and 0 < found["bound_us"] < found["step"]["us"]
        (row,) = [each for each in found["operators"] if each["name"] == mixer]
        assert row["bound_us"] <= row["us"] and "vLLM 0.24" in row["problem"]
        sure = [(max(each["gain"], each["gain_at_library"]), each["gain_at_bound"]) for each in found["operators"]]
        gains = [gain if gain >= 0.005 else at_bound for gain, at_bound in sure]
        assert gains == sorted(gains, reverse=True)
        assert main(asked) == 0
        text = capsys.readouterr().out
        assert "vllm 0.24" in text.splitlines()[0] and "bound" in text.splitlines()[1] and "! not priced: drafted tokens" in text
        assert text.splitlines()[-1].startswith("step ") and ("GB of states" in text) == (name == "Qwen3.5-35B-A3B")


def test_a_stack_of_another_name_is_refused(capsys):
    assert main(["model", "Qwen3-8B", "--gpu", "H200", "--prefill", "100", "--stack", "tgi:3"]) == 2
    assert "vllm:0.24" in capsys.readouterr().err
