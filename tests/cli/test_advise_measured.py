"""`advisor advise` with measurements."""

from __future__ import annotations

import dataclasses
import json
import os
import threading

import pytest

from advisor.advising.measured.profiles import match_file
from advisor.advising.targets import Request
from advisor.advising.targets.resolve import resolve_target
from advisor.cli import main
from advisor.measurement.importers import launched_ctas
from advisor.measurement.kernel_file import KernelRef
from advisor.measurement.launch import Launch
from advisor.system.errors import NothingMatchedError
from tests.cli.command_line import EXAMPLE, ROOT, advise


def test_measured_rows_are_compared(tmp_path, capsys):
    rows = tmp_path / "rows.csv"
    rows.write_text("gpu,gemm,M,E,topk,H,N,latency_us\nH20,w13,64,128,8,2048,768,300.0\nNVIDIA H20,w2,64,128,8,2048,768,0.5\n")
    assert advise(EXAMPLE, tmp_path, "--tokens", "64", "--measured", str(rows)) == 0
    first, second = json.loads((tmp_path / "result.json").read_text())["launches"]
    assert first["measured"]["us"] == 300.0 and first["measured"]["origin"] == "measured"
    assert sum(p["us"] for p in first["gap"]) == pytest.approx(300.0 - first["bound"]["us"], rel=1e-6)
    assert second["faults"], "a measurement below the bound must be reported as a fault"
    assert second["efficiency"] > 1, "and never clipped"
    assert "fault" in capsys.readouterr().out


FUSED_MOE = ("fused_moe", "--model", "Qwen3-30B-A3B", "--gpu", "H200", "--tokens", "64")


@pytest.mark.parametrize("name", ["ncu_raw.csv", "ncu_details.csv", "torch_trace.json"])
def test_a_profile_is_matched_to_the_launches(tmp_path, capsys, name):
    target = resolve_target("fused_moe", Request(model="Qwen3-30B-A3B", gpu="H200", tokens=(64,)))
    first = target.launches[0]
    launch = Launch(kernel=KernelRef(file="", function=first.kernel), problem=first.problem, configuration=first.configuration)
    profile = tmp_path / name
    text = (ROOT / "tests" / "measurement" / "fixtures" / name).read_text()
    profile.write_text(text.replace("12288", str(launched_ctas(launch, target.gpu))))
    assert main(["advise", *FUSED_MOE, "--measured", str(profile), "--output", str(tmp_path / "out")]) == 0
    error = capsys.readouterr().err
    assert f"{name}: 1 of 2 launches has a measurement; left out: " in error and "kernel" in error
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    (measured,) = (each["measured"] for each in result["launches"] if each["measured"])
    assert measured["us"] == pytest.approx(61.44, rel=0.02) and measured["origin"] == "measured" and name in measured["source"]
    assert any("--cache-control none" in each for each in result["verdict"]["unknowns"]) == name.startswith("ncu")


@pytest.mark.parametrize("rows", [True, False])
def test_measurements_come_through_a_pipe(tmp_path, capsys, rows):
    reading, writing = os.pipe()
    source = ROOT / "tests" / ("data/sweep.csv" if rows else "measurement/fixtures/torch_trace.json")

    def write() -> None:
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(source.read_bytes())

    threading.Thread(target=write, daemon=True).start()
    assert main(["advise", *FUSED_MOE, "--measured", f"/dev/fd/{reading}", "--output", str(tmp_path / "out")]) == (0 if rows else 5)
    assert ("1 of 2 launches has a measurement" if rows else "12288 CTAs, the launches to measure have") in capsys.readouterr().err


@pytest.mark.parametrize(
    ("target", "name", "words"),
    [
        (FUSED_MOE, "ncu_raw.csv", "12288 CTAs"),
        (FUSED_MOE, "proton.hatchet", "neither threads per CTA nor CTAs"),
        (("gemm", "--gpu", "H200", "--sizes", "M=64,N=64,K=64"), "ncu_raw.csv", "which configuration"),
    ],
)
def test_a_profile_without_a_launch_says_why(tmp_path, capsys, target, name, words):
    profile = ROOT / "tests" / "measurement" / "fixtures" / name
    assert main(["advise", *target, "--measured", str(profile), "--output", str(tmp_path / "out")]) == 5
    assert words in capsys.readouterr().err


def test_a_kernel_known_by_its_name_alone_is_no_launch(tmp_path):
    """Even where one launch alone has the name: others of the program may have it too."""
    target = resolve_target("fused_moe", Request(model="Qwen3-30B-A3B", gpu="H200", tokens=(64,)))
    target = dataclasses.replace(target, launches=target.launches[1:])
    with pytest.raises(NothingMatchedError, match=r"neither threads per CTA nor CTAs.*got a profile of proton.*ncu --csv"):
        match_file(target, ROOT / "tests" / "measurement" / "fixtures" / "proton.hatchet")
    trace = tmp_path / "trace.json"
    kernels = [
        {"cat": "kernel", "name": name, "dur": 60, "args": arguments}
        for name, arguments in (("fused_moe_kernel", {}), ("combine_kernel", {"grid": [1, 1, 1], "block": [128, 1, 1]}))
    ]
    trace.write_text(json.dumps({"traceEvents": kernels}))
    with pytest.raises(NothingMatchedError, match="fused_moe_kernel: neither its threads per CTA nor its CTAs are known"):
        match_file(target, trace)


def test_a_measurement_lowers_the_ceiling_and_is_never_advised_against(tmp_path):
    """Faster than predicted: that is reached, so the ceiling is no higher, and nothing predicted slower is recommended."""
    rows = tmp_path / "rows.csv"
    rows.write_text("gpu,gemm,M,E,topk,H,N,latency_us\nH20,w13,512,128,8,2048,768,195.0\nH20,w2,512,128,8,2048,768,100.0\n")
    assert advise(EXAMPLE, tmp_path, "--tokens", "512", "--measured", str(rows)) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    for launch in result["launches"]:
        assert launch["bound"]["us"] < launch["measured"]["us"] == launch["ceiling"]["us"]
        assert launch["ceiling"]["origin"] == "measured" and launch["headroom"] == 0
        assert launch["recommendation"] is None
        there = launch["measured"]["us"] - launch["bound"]["us"]
        assert all((finding["saving_us"] or 0) <= there * (1 + 1e-9) for finding in launch["findings"]), "no more than is there"
    assert result["verdict"]["percent_of_ceiling"] == pytest.approx(100)


def test_a_measurement_below_the_bound_is_left_out_of_the_verdict(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text("gpu,gemm,M,E,topk,H,N,latency_us\nH20,w13,512,128,8,2048,768,0.5\n")
    assert advise(EXAMPLE, tmp_path, "--tokens", "512", "--measured", str(rows)) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    first, second = result["launches"]
    assert result["verdict"]["current_us"] == pytest.approx(second["predicted"]["us"])
    assert result["verdict"]["percent_of_ceiling"] <= 100 and "below the bound" in result["verdict"]["notes"][0]
    assert first["recommendation"] is None, "nothing slower than what was measured is recommended, whatever is wrong with it"
    assert not any(first["id"] in action["launches"] for action in result["actions"])
