"""`advisor audit`: its gates, and what it cannot read."""

from __future__ import annotations

import json
import os

import pytest

from advisor.cli import main
from tests.cli.command_line import ENTRY, EXAMPLE, NAME, advise, table


def test_own_results_are_no_tables(tmp_path, capsys):
    """Reports lie beside the tables they are about."""
    table(tmp_path, EXAMPLE.read_text(encoding="utf-8"))
    assert advise(tmp_path / NAME, tmp_path / "advisor-out", "--tokens", "64") == 0
    result = str(tmp_path / "advisor-out" / "result.json")
    assert main(["compare", result, result, "--output", str(tmp_path)]) == 0
    (tmp_path / "model.json").write_text('{"schema_version": "1.0", "model": "Qwen3-8B", "operators": []}')
    capsys.readouterr()
    assert main(["audit", str(tmp_path), "--no-regret", "--fail-on", "error", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["files"] == 1
    assert main(["advise", str(tmp_path), "--tokens", "64", "--output", str(tmp_path / "advisor-out")]) == 0
    assert "1 of 1 tables" in capsys.readouterr().err
    (tmp_path / "other.json").write_text('{"schema_version": "1"}')  # somebody else's is still told
    assert main(["audit", str(tmp_path), "--no-regret", "--fail-on", "error"]) == 1


def test_a_folder_that_may_not_be_read_is_told(tmp_path, monkeypatch, capsys):
    def denied(path):
        raise PermissionError(13, "Permission denied", os.fspath(path))

    monkeypatch.setattr(os, "scandir", denied)
    for command in (["audit", str(tmp_path)], ["advise", str(tmp_path)]):
        assert main(command) == 2
        assert f"{tmp_path}: permission denied" in capsys.readouterr().err


def test_audit_gates(tmp_path, capsys):
    huge = table(tmp_path, {"1": {**ENTRY, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 256, "num_stages": 5}})
    assert main(["audit", str(huge), "--no-regret"]) == 0
    assert main(["audit", str(huge), "--fail-on", "does-not-fit"]) == 1
    assert main(["audit", str(huge), "--fail-on", "nonsense"]) == 2
    capsys.readouterr()
    assert main(["audit", str(huge), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["does-not-fit"] == 1


@pytest.mark.parametrize(
    ("name", "text"), [("moe.csv", "gpu,M\nA100,1\n"), ("config.json", '{"a": 1}'), (NAME, "{}"), (NAME, '{"1": {"BLOCK_SIZE_M": 3}}')]
)
def test_an_audit_that_can_read_nothing_says_so(tmp_path, capsys, name, text):
    path = tmp_path / name
    path.write_text(text)
    assert main(["audit", str(path), "--no-regret"]) == 2
    printed = capsys.readouterr()
    assert name in printed.out and "nothing that was named can be read" in printed.err
    assert main(["audit", str(path), "--no-regret", "--fail-on", "error"]) == 1
    assert main(["audit", str(path), str(EXAMPLE), "--no-regret"]) == 0
    (tmp_path / "headdim=64,device_name=X.json").write_text("{}")
    assert main(["audit", str(tmp_path / "headdim=64,device_name=X.json")]) == 0  # of another kernel: skipped


@pytest.mark.parametrize(
    ("name", "said", "model"),
    [
        ("E=17,N=801,device_name=NVIDIA_H100_80GB_HBM3.json", "H=4096, top-k=8 are assumed; E=17, N=801 fits no known model", None),
        (
            "E=16,N=800,device_name=NVIDIA_H100_80GB_HBM3.json",
            "for Phi-3.5-MoE, tensor-parallel 8 (H=4096, top-k=2)",
            "Phi-3.5-MoE, tensor-parallel 8",
        ),
        (
            NAME,
            "Qwen3-30B-A3B (H=2048, top-k=8) is assumed; E=128, N=768 fits 1 other shape too (Qwen3-235B-A22B, tensor-parallel 2)",
            "Qwen3-30B-A3B",
        ),
        ("N=4096,K=4096,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128,128].json", "probability", None),
    ],
)
def test_predicted_regret_says_which_model_it_is_for(tmp_path, capsys, name, said, model):
    path = table(tmp_path, {"4096": {**ENTRY, "BLOCK_SIZE_K": 128, "num_stages": 2}}, name)
    assert main(["audit", str(path), "--all"]) == 0
    assert said in capsys.readouterr().out
    assert main(["audit", str(path), "--format", "json"]) == 0
    (issue,) = (each for each in json.loads(capsys.readouterr().out)["issues"] if each["check"] == "predicted-regret")
    assert (issue["predicted_for"] is None) == name.startswith("N=")
    if issue["predicted_for"] is not None:
        assert issue["predicted_for"]["model"] == model
        assert f"H={issue['predicted_for']['hidden_size']}, top-k={issue['predicted_for']['top_k']}" in said


@pytest.mark.parametrize("empty", ["", " ", ","])
def test_an_empty_gate_is_refused(tmp_path, capsys, empty):
    """`--fail-on "$UNSET"` must not let everything pass."""
    for command in (["compare", str(EXAMPLE), str(EXAMPLE)], ["audit", str(EXAMPLE), "--no-regret"]):
        assert main([*command, "--fail-on", empty]) == 2
        assert "--fail-on" in capsys.readouterr().err
