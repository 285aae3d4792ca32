"""Measured steps: read as requests, judged with constants of other GPUs, throttled boards apart."""

from __future__ import annotations

import json

import pytest

from advisor.cli import main
from advisor.learned import load_predictor
from advisor.steps.constants import load_constants
from advisor.training.whole_steps.cases import _parallel, is_steps_folder, read_cases
from advisor.training.whole_steps.evaluation import evaluate_steps, fit_gaps

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
    assert main(["evaluate", str(folder)]) == 0
    out = capsys.readouterr().out
    assert "serving decode" in out and "pipeweave" in out and "neusight" in out
    assert main(["evaluate", str(folder), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["suites"]["four GPUs"]["cases"] == 1
