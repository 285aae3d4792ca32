"""`advisor advise` on bundled kernels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.cli import main


@pytest.mark.parametrize("target", ["empty.py", "empty.py::kernel"])
def test_a_file_without_a_kernel_matches_nothing(tmp_path, monkeypatch, capsys, target):
    monkeypatch.chdir(tmp_path)
    Path("empty.py").write_text("x = 1\n")
    assert main(["inspect", target, "--gpu", "H200"]) == 5
    assert "no Triton kernel" in capsys.readouterr().err


@pytest.mark.parametrize(
    "kernel",
    [
        "gemm",
        "gemm::gemm_persistent_kernel",
        "attention",
        "attention::decode_kernel",
        "rms_norm",
        "layer_norm",
        "softmax",
        "silu_and_mul",
        "fused_moe::combine_kernel",
    ],
)
def test_every_bundled_kernel_gets_a_report(tmp_path, capsys, kernel):
    assert main(["advise", kernel, "--gpu", "H200", "--output", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    launch = result["launches"][0]
    assert launch["configuration"] is None and launch["recommendation"] is not None
    assert "is unknown" in " ".join(result["verdict"]["unknowns"])
    assert launch["bound"]["us"] <= launch["recommendation"]["latency"]["us"]


def test_sizes_of_a_bundled_kernel(tmp_path, capsys):
    assert main(["advise", "gemm", "--gpu", "H200", "--sizes", "M=512,N=1024,K=256", "--output", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "result.json").read_text())["launches"][0]["problem"]["sizes"] == {"M": 512, "N": 1024, "K": 256}
    page = tmp_path / "gemm.html"
    assert main(["advise", "gemm", "--gpu", "H200", "--sizes", "M=512,N=1024,K=256", "--output", str(page)]) == 0
    assert page.read_text().startswith("<!doctype html>") and json.loads(page.with_suffix(".json").read_text())["launches"]
    assert main(["advise", "gemm", "--gpu", "H200,H100", "--sizes", "M=512,N=1024,K=256", "--output", str(page)]) == 2
    assert main(["advise", "gemm", "--gpu", "H200", "--sizes", "Q=512", "--output", str(tmp_path)]) == 2
    assert main(["advise", "gemm", "--gpu", "H200", "--sizes", "M=0", "--output", str(tmp_path)]) == 2
    assert main(["advise", "gemm::nothing", "--gpu", "H200"]) == 2


def test_fused_moe_takes_its_sizes(tmp_path):
    given = ["--sizes", "E=64,N=1408", "--hidden-size", "2048", "--top-k", "6"]
    assert main(["advise", "fused_moe", "--gpu", "H200", *given, "--tokens", "64", "--output", str(tmp_path)]) == 0
    sizes = json.loads((tmp_path / "result.json").read_text())["launches"][0]["problem"]["sizes"]
    assert sizes == {"M": 64, "E": 64, "topk": 6, "H": 2048, "N": 1408}


def test_the_sizes_of_a_rank_may_stand_beside_its_model(tmp_path):
    given = ["--model", "Mixtral-8x7B", "--sizes", "E=8,N=3584,topk=1"]
    assert main(["advise", "fused_moe", "--gpu", "H200", *given, "--tokens", "64", "--output", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["model"] == "Mixtral-8x7B"
    assert result["launches"][0]["problem"]["sizes"] == {"M": 64, "E": 8, "topk": 1, "H": 4096, "N": 3584}


def test_a_bundled_kernel_is_at_no_share_of_its_ceiling_and_its_recommendation_has_a_demand(tmp_path):
    assert main(["advise", "softmax", "--gpu", "H200", "--output", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["verdict"]["percent_of_ceiling"] == 0.0 < result["verdict"]["ceiling_us"]
    (launch,) = result["launches"]
    assert launch["configuration"] is None and launch["recommendation"]["demand"]["dram"] > 0
