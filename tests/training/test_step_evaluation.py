"""Measured steps: read as requests, judged with constants of other GPUs, throttled boards apart."""

from __future__ import annotations

import json

import pytest

from advisor.cli import main
from advisor.cli.evaluate_command import CARD_MARK
from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.steps.collectives import load_constants
from advisor.steps.model_config import architecture
from advisor.steps.step import StepRequest, price
from advisor.steps.workload import Load
from advisor.training.step_cases import Point, _parallel, is_steps_folder, read_cases
from advisor.training.step_evaluation import evaluate_steps, fit_gaps, fit_served, judge_curves

SIZES = {
    "hidden_size": 1024,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 3072,
    "vocab_size": 32000,
    "num_hidden_layers": 4,
}


@pytest.fixture
def folder(tmp_path):
    """Two served runs and a training step, which took whatever it says here."""
    serving = "gpu,tp,pp,engine,model,load,output_tokens,prefill_ms,decode_step_ms,pipeweave_prefill_ms,pipeweave_decode_ms\n"
    serving += "H100,1,1,sglang,Tiny,a,11,5.0,1.0,6.0,2.0\nL40,2,1,sglang,Tiny,a,11,50.0,2.0,,\nnonesuch,1,1,sglang,Tiny,a,11,5,1,,\n"
    (tmp_path / "serving.csv").write_text(serving)
    load = {"prompt_lengths": [100, 200], "steps": 11, "model_params": SIZES, "decode_kv_lengths_last": [111, 211]}
    (tmp_path / "serving_loads.json").write_text(json.dumps({"Tiny_a": load}))
    fp32 = "gpu,model,mode,sequence,batch,compiled,parallel,num_layer,forward_ms,backward_ms,step_ms,neusight_step_ms\n"
    (tmp_path / "fp32_models.csv").write_text(
        fp32 + "V100-PCIe,bert,train,128,4,False,,12,9,9,40,50\nA100,bert,train,128,8,False,dp4,12,9,9,30,50\n"
        "A100,bert,train,128,64,False,tp4,12,,,,\n"
    )
    return tmp_path


def test_rows_become_requests(folder):
    told: list[str] = []
    cases = read_cases(folder, load_predictor(), load_constants(), told.append)
    assert [(case.suite, case.gpu) for case in cases] == [
        ("serving prefill", "H100"),
        ("serving decode", "H100"),
        ("serving prefill", "L40"),
        ("serving decode", "L40"),
        ("fp32 training", "V100-PCIe"),
        ("four GPUs", "A100"),
    ]
    assert any("nonesuch" in line for line in told)
    decode = cases[1].priced.kernels
    assert next(operator for operator, _ in decode if operator.op == "decode").sizes["N"] == (106 + 206) / 2
    reduced = [operator for operator, _ in cases[-1].priced.kernels if operator.kind == "collective"]
    assert [operator.ranks for operator in reduced] == [4]
    assert sum(operator.kind == "collective" for operator, _ in cases[2].priced.kernels) == 4


@pytest.mark.parametrize(
    ("text", "found"), [("", ("", 1)), ("dp4", ("dp", 4)), ("tp2", ("tp", 2)), ("pp4_4", ("pp", 4)), ("tp", ("tp", 4))]
)
def test_ways_to_be_parallel(text, found):
    assert _parallel(text) == found


def test_a_gpu_that_constants_were_fitted_to_is_judged_with_others(folder):
    predictor, shipped = load_predictor(), load_constants()
    cases = read_cases(folder, predictor, shipped)
    assert fit_gaps(cases, shipped).gaps["torch"].busy != shipped.gaps["torch"].busy
    found = evaluate_steps(folder, predictor)
    by_suite = found["suites"]
    assert by_suite["serving total, throttled boards"]["cases"] == 1 and by_suite["serving total, others"]["cases"] == 1
    whole = next(row for row in found["cases"] if row["suite"] == "serving total" and row["gpu"] == "H100")
    assert whole["measured_ms"] == pytest.approx(5 + 10 * 1) and whole["peers_ms"] == {"pipeweave": pytest.approx(6 + 10 * 2)}


def test_the_table_on_the_command_line(folder, capsys):
    assert is_steps_folder(folder) and not is_steps_folder(folder.parent)
    card = folder / "card.md"
    card.write_text("no mark")
    assert main(["evaluate", str(folder), "--card", str(card)]) == 2
    card.write_text(f"before\n{CARD_MARK}\n\n| old |\n| --- |\n\nafter\n")
    assert main(["evaluate", str(folder), "--card", str(card)]) == 0
    out = capsys.readouterr().out
    assert "serving decode" in out and "pipeweave" in out and "neusight" in out
    written = card.read_text().splitlines()
    assert written[0] == "before" and written[-2:] == ["", "after"] and "| old |" not in written
    assert next(line for line in written if line.startswith("| serving total")).count("|") == 8
    assert main(["evaluate", str(folder), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["suites"]["four GPUs"]["cases"] == 1


def point(engine: str, model: str, measured_us: float = 900.0, host_us: float = 0.0) -> Point:
    """16 users of 100 tokens each."""
    asked = [StepRequest(model=architecture(SIZES, model), load=load) for load in (Load(contexts=(50,) * 16), Load(prompts=((900, 900),)))]
    priced = [price(each.operators(), load_gpu("H100"), load_predictor(), load_constants(), engine=engine, eager=False) for each in asked]
    return Point(
        gpu="H100",
        model=model,
        run="",
        users=16,
        tokens=100,
        measured_us=measured_us,
        first_us=0.0,
        host_us=host_us,
        decode=priced[0],
        prefill=priced[1],
    )


def test_users_of_vllm_wait_for_all_prefills_of_the_others_and_those_of_sglang_for_half():
    """vLLM's prompts save most of the step that they are computed beside."""
    fitted = load_constants()
    for engine, share, saved in (("vllm", 1.0, 0.8), ("sglang", 0.5, 0.0)):
        found = point(engine, "a")
        decode, prefill = found.decode.time(fitted).us, found.prefill.time(fitted).us
        between = share * 15 / 100
        assert found.time(fitted).us == pytest.approx(decode + between * (prefill - saved * min(decode, prefill)))
        assert point(engine, "a", host_us=30.0).time(fitted).us == pytest.approx(found.time(fitted).us + 16 * 30)


def test_more_than_the_bounds_allow_is_of_prompts_computed_before():
    plain = point("vllm", "a")
    least = plain.decode.bound_us + 16 / 100 * plain.prefill.bound_us
    assert not point("vllm", "a", 1.01 * least).cached and point("vllm", "a", 0.99 * least).cached


def test_the_doubt_of_a_served_model_is_that_of_the_others():
    fitted = load_constants()
    us = point("vllm", "a").time(fitted).us
    points = [point("vllm", "a", us * 1.02)] * 5 + [point("vllm", "b", us * 2)] * 5
    found = fit_served(points, fitted).served
    assert found["a"] > 0.5 > found["b"] and set(found) == {"", "a", "b"}


def test_all_reduces_of_a_gpu_left_out_go_by_its_sibling():
    sizes = [2.0**e for e in range(9, 31)]
    us = [5 + size / 1e5 for size in sizes]
    found = judge_curves({(gpu, "all_reduce/vllm", 8): (sizes, us) for gpu in ("H100", "H200")})
    assert found["H200"]["left out"] < 5 and found["H100"]["seen"] < 20
    slower = judge_curves({("H100", "all_reduce/vllm", 8): (sizes, us), ("H200", "all_reduce/vllm", 8): (sizes, [2 * each for each in us])})
    assert slower["H200"]["left out"] == pytest.approx(50, abs=3)
