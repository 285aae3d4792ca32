"""The commands as a user types them: what they print, what they write, how they fail."""

from __future__ import annotations

import csv
import dataclasses
import gzip
import json
import os
import re
import stat
import subprocess
import sys
import threading
import tracemalloc
from pathlib import Path
from unittest.mock import Mock

import pytest

from advisor import Request, resolve_target
from advisor.cli import COMMANDS, _module, main
from advisor.cli.progress import StatusLine
from advisor.configs.models import MODELS
from advisor.errors import NothingMatchedError
from advisor.measured.profiles import match_file
from advisor.measurement import KernelRef, Launch
from advisor.measurement.importers.matching import launched_ctas
from advisor.rendering.figures import microseconds
from tests.rendering.terminal import printed_on_a_terminal

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "reports" / "examples" / "E=128,N=768,device_name=NVIDIA_H20.json"
ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}
NAME = "E=128,N=768,device_name=NVIDIA_H20.json"


def table(folder: Path, body: object, name: str = NAME) -> Path:
    path = folder / name
    path.write_text(body if isinstance(body, str) else json.dumps(body), encoding="utf-8")
    return path


def advise(path: object, out: Path, *more: str) -> int:
    return main(["advise", str(path), "--hidden-size", "2048", "--top-k", "8", "--output", str(out), *more])


def test_advise_writes_page_and_result(tmp_path, capsys):
    assert advise(EXAMPLE, tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert "w13" in printed and "w2" in printed and "\x1b" not in printed
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["schema_version"] == "1.0"
    assert len(result["launches"]) == 36
    for launch in result["launches"]:
        assert launch["bound"]["us"] <= launch["ceiling"]["us"] <= launch["predicted"]["us"] * (1 + 1e-9)
        assert launch["bound"]["us"] <= launch["config_bound"]["us"] * (1 + 1e-9)
        gap = sum(part["us"] for part in launch["gap"])
        assert gap == pytest.approx(launch["predicted"]["us"] - launch["bound"]["us"], rel=1e-6, abs=1e-6)
    assert "<html" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")[:200]


def test_recommended_entries_suit_both_gemms_together(tmp_path):
    assert advise(EXAMPLE, tmp_path) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    by_tokens: dict[int, list[dict]] = {}
    for launch in result["launches"]:
        by_tokens.setdefault(launch["problem"]["sizes"]["M"], []).append(launch)
    changed = 0
    for launches in by_tokens.values():
        advice = [launch["recommendation"] for launch in launches]
        if advice[0] is None:
            assert advice == [None, None]
            continue
        changed += 1
        assert advice[0]["table_entry"] == advice[1]["table_entry"]
        now = sum(launch["predicted"]["us"] for launch in launches)
        then = sum(recommendation["latency"]["us"] for recommendation in advice)
        assert now / then >= 1.02
    assert changed
    exported = next(export for export in result["exports"] if export["kind"] == "table")
    assert set(json.loads(exported["content"])) == set(json.loads(EXAMPLE.read_text()))


def test_json_and_markdown_go_to_stdout(tmp_path, capsys):
    assert advise(EXAMPLE, tmp_path, "--tokens", "64", "--format", "json") == 0
    assert len(json.loads(capsys.readouterr().out)["launches"]) == 2
    assert advise(EXAMPLE, tmp_path, "--tokens", "64", "--format", "md") == 0
    assert capsys.readouterr().out.startswith(("#", "<!--"))


@pytest.mark.parametrize("gpus", [["--gpu", "H200", "--gpu", "A100"], ["--gpu", "H200,A100"]])
def test_several_gpus_make_one_document(tmp_path, capsys, gpus):
    assert advise(EXAMPLE, tmp_path, "--tokens", "64", *gpus, "--format", "json") == 0
    assert [result["gpu"] for result in json.loads(capsys.readouterr().out)] == ["H200", "A100"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a100", "h200", "side-by-side.html"]


@pytest.mark.parametrize("style", ["text", "md"])
def test_several_gpus_stand_side_by_side(tmp_path, capsys, style):
    assert advise(EXAMPLE, tmp_path, "--tokens", "1,64", "--gpu", "H200,A100", "--format", style) == 0
    table = capsys.readouterr().out.partition("Side by side:")[2]
    lines = [line for line in table.replace("\\", "").splitlines() if " M=" in line]
    assert "H200" in table and "A100" in table and len(lines) == 4
    page = (tmp_path / "side-by-side.html").read_text(encoding="utf-8")
    cells = re.findall(r"<td.*?>(.*?)</td>", page)
    assert len(cells) == 4 * 8 and 'href="h200/report.html"' in page and 'href="a100/report.html"' in page
    assert all(cell in line for number, line in enumerate(lines) for cell in cells[8 * number : 8 * number + 8])
    for name in ("h200", "a100"):
        for launch, line in zip(json.loads((tmp_path / name / "result.json").read_text())["launches"], lines, strict=True):
            figures = [launch["predicted"]["us"], launch["ceiling"]["us"], launch["bound"]["us"]]
            assert all(microseconds(us) in line for us in figures) and launch["binding_pipeline"] in line
    assert advise(EXAMPLE, tmp_path, "--tokens", "64", "--gpu", "H200", "--format", style) == 0
    assert "Side by side" not in capsys.readouterr().out


@pytest.mark.parametrize("style", ["text", "md"])
def test_several_gpus_show_what_the_best_configuration_takes(tmp_path, capsys, style):
    given = ["--sizes", "B=64,H=512", "--gpu", "H200,A100", "--format", style, "--output", str(tmp_path)]
    assert main(["advise", "layer_norm", *given]) == 0
    table = capsys.readouterr().out.partition("Side by side:")[2]
    row = next(line for line in table.replace("\\", "").splitlines() if " B=64" in line)
    for name in ("h200", "a100"):
        predicted = json.loads((tmp_path / name / "result.json").read_text())["launches"][0]["predicted"]["us"]
        assert re.search(rf"{re.escape(microseconds(predicted))} (±|−\d+/\+)[\d.]+ % predicted, best", row)
    assert "the latency is that of the best one" in table


def test_reports_of_another_run_in_the_folder_are_told(tmp_path, capsys):
    """They are kept, and would pass for this run's."""
    assert advise(EXAMPLE, tmp_path, "--tokens", "64") == 0
    assert "another run" not in capsys.readouterr().err
    assert advise(EXAMPLE, tmp_path, "--tokens", "64", "--gpu", "H200,A100") == 0
    assert f"report.html and result.json in {tmp_path} are of another run" in capsys.readouterr().err
    assert advise(EXAMPLE, tmp_path, "--tokens", "64") == 0
    assert f"side-by-side.html in {tmp_path} is of another run" in capsys.readouterr().err and (tmp_path / "side-by-side.html").exists()


def test_two_descriptions_of_one_file_name_make_two_reports(tmp_path, capsys):
    text = (ROOT / "ceilings" / "h200.toml").read_text()
    files = [tmp_path / folder / "mine.toml" for folder in ("x", "y")]
    for file in files:
        file.parent.mkdir()
        file.write_text(text)
    out = tmp_path / "out"
    assert advise(EXAMPLE, out, "--tokens", "64", "--gpu", str(files[0]), "--gpu", str(files[1])) == 0
    assert sorted(path.name for path in out.iterdir()) == ["h200", "h200-2", "side-by-side.html"]
    assert str(out / "h200-2" / "report.html") in capsys.readouterr().out.replace("\n", "")


@pytest.mark.parametrize(("gpus", "word"), [("H200,A1000", "A1000"), ("", "--gpu"), (",", "--gpu")])
def test_gpus_are_checked_before_anything_is_written(tmp_path, capsys, gpus, word):
    assert advise(EXAMPLE, tmp_path / "out", "--tokens", "64", "--gpu", gpus) == 2
    assert word in capsys.readouterr().err and not (tmp_path / "out").exists()


def test_own_results_are_no_tables(tmp_path, capsys):
    """Reports lie beside the tables they are about."""
    table(tmp_path, EXAMPLE.read_text(encoding="utf-8"))
    assert advise(tmp_path / NAME, tmp_path / "advisor-out", "--tokens", "64") == 0
    result = str(tmp_path / "advisor-out" / "result.json")
    assert main(["compare", result, result, "--output", str(tmp_path)]) == 0
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


def test_tokens_take_the_nearest_entry(tmp_path):
    assert advise(EXAMPLE, tmp_path, "--tokens", "70,5000") == 0
    sources = {launch["problem"]["sizes"]["M"]: launch["configuration_source"] for launch in
               json.loads((tmp_path / "result.json").read_text())["launches"]}  # fmt: skip
    assert sources == {70: "table entry 64", 5000: "table entry 4096"}


def test_an_ambiguous_table_says_what_it_assumes(tmp_path, capsys):
    assert main(["advise", str(EXAMPLE), "--tokens", "64", "--output", str(tmp_path)]) == 0
    assert "is assumed" in capsys.readouterr().err
    unknowns = json.loads((tmp_path / "result.json").read_text())["verdict"]["unknowns"]
    assert any("assumed" in unknown for unknown in unknowns)


def test_routing_is_part_of_the_problem(tmp_path):
    skewed = tmp_path / "routing.json"
    skewed.write_text(json.dumps([64] * 8 + [1] * 120))
    assert advise(EXAMPLE, tmp_path / "uniform", "--tokens", "256") == 0
    assert advise(EXAMPLE, tmp_path / "skewed", "--tokens", "256", "--routing", str(skewed)) == 0

    def padded(folder: str) -> float:
        launches = json.loads((tmp_path / folder / "result.json").read_text())["launches"]
        tensor = next(p for p in launches[0]["pipelines"] if p["pipeline"] == "tensor")
        return tensor["demand"] / tensor["problem_demand"]

    assert padded("skewed") > padded("uniform")


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
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    source = ROOT / "tests" / ("data/sweep.csv" if rows else "measurement/fixtures/torch_trace.json")
    threading.Thread(target=pipe.write_bytes, args=(source.read_bytes(),), daemon=True).start()
    assert main(["advise", *FUSED_MOE, "--measured", str(pipe), "--output", str(tmp_path / "out")]) == (0 if rows else 5)
    assert ("1 of 2 launches has a measurement" if rows else "12288 CTAs, the launches asked for have") in capsys.readouterr().err


@pytest.mark.parametrize(("target", "name", "words"), [
    (FUSED_MOE, "ncu_raw.csv", "12288 CTAs"), (FUSED_MOE, "proton.hatchet", "neither threads per CTA nor CTAs"),
    (("gemm", "--gpu", "H200", "--sizes", "M=64,N=64,K=64"), "ncu_raw.csv", "which configuration"),
])  # fmt: skip
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
    kernels = [{"cat": "kernel", "name": name, "dur": 60, "args": arguments} for name, arguments in
               (("fused_moe_kernel", {}), ("combine_kernel", {"grid": [1, 1, 1], "block": [128, 1, 1]}))]  # fmt: skip
    trace.write_text(json.dumps({"traceEvents": kernels}))
    with pytest.raises(NothingMatchedError, match="fused_moe_kernel: neither its threads per CTA nor its CTAs are known"):
        match_file(target, trace)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", ["JSON"]),
        ("[]", []),
        ('{"1": {"BLOCK_SIZE_M": 16}}', ["BLOCK_SIZE_N"]),
        ({"1": {**ENTRY, "BLOCK_SIZE_M": 0}}, ["BLOCK_SIZE_M", "0"]),
        ({"1": {**ENTRY, "BLOCK_SIZE_N": -64}}, ["BLOCK_SIZE_N", "-64"]),
        ({"1": {**ENTRY, "BLOCK_SIZE_K": 10**9}}, ["BLOCK_SIZE_K"]),
        ({"1": {**ENTRY, "num_warps": 4.5}}, ["num_warps", "4.5"]),
        ({"1": {**ENTRY, "BLOCK_SIZE_M": True}}, ["BLOCK_SIZE_M"]),
        ({"0": ENTRY}, ["0"]),
        ({"-3": ENTRY}, ["-3"]),
        ({"1.5": ENTRY}, ["1.5"]),
        ({}, []),
    ],
)
def test_a_bad_table_gets_one_line_and_exit_code_2(tmp_path, capsys, body, words):
    assert advise(table(tmp_path, body), tmp_path / "out") == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and message.startswith("advisor: error: ")
    assert NAME in message
    for word in words:
        assert word in message


MISSING = {key: value for key, value in ENTRY.items() if key != "BLOCK_SIZE_K"}


@pytest.mark.parametrize(("key", "entry", "words"), [
    ("64", MISSING, "entry 64: BLOCK_SIZE_K is missing"), ("64", {**ENTRY, "BLOCK_SIZE_K": "64"}, "entry 64: BLOCK_SIZE_K"),
    ("64", [], "entry 64"), ("x", ENTRY, "key 'x' is not a token count"),
])  # fmt: skip
def test_a_bad_entry_is_named_and_the_others_are_diagnosed(tmp_path, capsys, key, entry, words):
    bad = table(tmp_path, {"1": ENTRY, key: entry, "1024": ENTRY})
    assert advise(bad, tmp_path / "out") == 0
    printed = capsys.readouterr()
    assert words in printed.err and "bad-entry" in printed.out and f"(entry {'M=' * key.isdigit()}{key})" in printed.out
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert {launch["problem"]["sizes"]["M"] for launch in result["launches"]} == {1, 1024}
    (finding,) = (each for each in result["table_findings"] if each["rule"] == "bad-entry")
    assert finding["severity"] == "error" and words in finding["evidence"] and any(words in each for each in result["warnings"])
    assert words.replace("'", "&#39;") in (tmp_path / "out" / "report.html").read_text()
    for export in result["exports"]:  # the table it offers can be loaded
        assert export["kind"] != "table" or set(json.loads(export["content"])) == {"1", "1024"}
    assert main(["audit", str(bad), "--no-regret"]) == 0 and words in capsys.readouterr().out


def test_a_token_count_that_a_bad_entry_serves_is_left_out(tmp_path, capsys):
    bad = table(tmp_path, {"1": ENTRY, "64": MISSING, "1024": ENTRY})
    assert advise(bad, tmp_path / "out", "--tokens", "2,70") == 0
    assert "M = 70: entry 64 runs there, and cannot be read" in capsys.readouterr().err
    launches = json.loads((tmp_path / "out" / "result.json").read_text())["launches"]
    assert {launch["problem"]["sizes"]["M"] for launch in launches} == {2}
    assert advise(bad, tmp_path / "out", "--tokens", "70") == 2
    assert "entry 64 runs there" in capsys.readouterr().err


def test_of_a_key_that_occurs_twice_the_last_entry_is_used(tmp_path, capsys):
    last = {**ENTRY, "num_warps": 8}
    twice = table(tmp_path, {"1": last, "64": ENTRY})
    twice.write_text(f'{{"1": {json.dumps(ENTRY)}, {twice.read_text()[1:]}')
    assert advise(twice, tmp_path / "out") == 0
    error = capsys.readouterr().err
    assert "the last entry is used" in error and "('1')" in error and "passed over" not in error
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    used = {launch["problem"]["sizes"]["M"]: launch["configuration"] for launch in result["launches"]}
    assert used.keys() == {1, 64} and used[1]["num_warps"] == 8 != used[64]["num_warps"]
    twice.write_text(f'{{"1": {json.dumps(ENTRY)}, "1": {json.dumps(MISSING)}, "64": {json.dumps(ENTRY)}}}')
    assert advise(twice, tmp_path / "out") == 0
    error = capsys.readouterr().err
    assert "passed over: '1'" in error and "the last entry is used" not in error


def test_many_bad_entries_are_one_line(tmp_path, capsys):
    assert advise(table(tmp_path, {"1": ENTRY, **{str(m): MISSING for m in range(2, 40)}}), tmp_path / "out") == 0
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1 and "and 30 more" in printed.err and "entries 2, 3, " in printed.out


@pytest.mark.parametrize("name", ["E=0,N=768,device_name=NVIDIA_H20.json", "E=-1,N=768,device_name=NVIDIA_H20.json",
                                  "E=1.5,N=768,device_name=NVIDIA_H20.json", "E=99999999999999,N=1,device_name=NVIDIA_H20.json",
                                  "N=768.json", "hello.json", "E=8,N=768,device_name=NO_SUCH_GPU.json"])  # fmt: skip
def test_a_bad_name_gets_one_line_and_exit_code_2(tmp_path, capsys, name):
    assert advise(table(tmp_path, {"1": ENTRY}, name), tmp_path / "out") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_table_of_a_million_entries_is_refused_quickly(tmp_path, capsys):
    body = "{" + ",".join(f'"{m}":{{}}' for m in range(1, 1_000_001)) + "}"
    assert advise(table(tmp_path, body), tmp_path / "out") == 2
    assert "entries" in capsys.readouterr().err


def test_html_in_a_name_is_escaped(tmp_path):
    hostile = "E=128,N=768,device_name=<img src=x onerror=alert(1)>.json"
    path = table(tmp_path, {"1": ENTRY}, hostile)
    assert advise(path, tmp_path / "out", "--gpu", "H20") in (0, 2)
    page = tmp_path / "out" / "report.html"
    if page.exists():
        assert "<img src=x" not in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["advise", "nowhere.json"], ["nowhere.json"]),
        (["advise", "no-such-kernel"], ["no-such-kernel"]),
        (["advise", "fused_moe", "--model", "Qwen3-30B-A3B"], ["--gpu"]),
        (["advise", "fused_moe", "--gpu", "H200"], ["--model"]),
        (["advise", "fused_moe", "--gpu", "H2000", "--model", "Qwen3-30B-A3B"], ["H200"]),
        (["advise", "fused_moe", "--gpu", "H200", "--model", "Qwen9"], ["Qwen"]),
        (["advise", "fused_moe", "--gpu", "H200", "--model", "Mixtral 8x7B", "--tokens", "0"], ["--tokens", "0"]),
        (["advise", "fused_moe", "--gpu", "H200", "--model", "Mixtral 8x7B", "--tokens", "1.5"], ["--tokens"]),
        (["advise", "fused_moe", "--gpu", "H200", "--model", "Mixtral 8x7B", "--tensor-parallel", "9"], ["14336"]),
        (["advise", "fused_moe", "--gpu", "H200", "--model", "Qwen3-30B-A3B", "--top-k", "500"], ["top-k 500", "at most 128"]),
        (["advise", "fused_moe", "--gpu", "H200", "--sizes", "E=8,N=512,H=1024,topk=9"], ["top-k 9", "at most 8"]),
        (["advise", str(ROOT / "triton_kernels/gemm.py"), "--gpu", "H200", "--sizes", "M=1"], ["gemm.py::KERNEL", "gemm_persistent"]),
        (["tune", "gemm", "--gpu", "H200", "--device", "fake"], ["gemm::gemm_kernel, gemm::gemm_persistent_kernel"]),
        (["tune", "gemm.py::gemm_kernel", "--gpu", "H200", "--device", "fake"], ["gemm.py: no such file", "gemm::gemm_kernel"]),
        (["advise", "gemm", "--gpu", "H200", "--sizes", "M=64,N=64,K=64", "--tokens", "4,8"], ["--tokens 4,8 and M=64", "leave one out"]),
        (["tune", "gemm::gemm_kernel", "--gpu", "H200", "--device", "fake", "--sizes", "M=64,N=64,K=64", "--tokens", "4"], ["--tokens 4"]),
        (["measure", "gemm", "--device", "fake", "--sizes", "M=64,N=64,K=64", "--tokens", "4", "-o", "x.csv"], ["--tokens 4 and M=64"]),
        (["advise", "fused_moe", "--gpu", "H200", "--model", "Foo"], ["got Foo", "--sizes E=…", "advisor models", "OLMoE"]),
        (["explain", "tail-waves"], ["tail-wave"]),
        (["predict", "nowhere.csv", "-o", "x.csv"], ["nowhere.csv"]),
        (["predict"], ["ROWS.csv"]),
        (["frobnicate"], ["frobnicate"]),
        (["audit", "nowhere"], ["nowhere"]),
    ],
)  # fmt: skip
def test_usage_errors(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1, message
    for word in words:
        assert word in message


@pytest.mark.parametrize("told", [["--hidden-size", "2048", "--top-k", "8"], ["--sizes", "E=128,N=768,H=2048,topk=8"]])
def test_what_an_unknown_model_is_told_to_do_works(told, tmp_path, capsys):
    """The first for a table, the second for the kernel."""
    target = str(EXAMPLE) if told[0] == "--hidden-size" else "fused_moe"
    common = [target, "--gpu", "H20", "--tokens", "64", "--output", str(tmp_path)]
    assert main(["advise", *common, "--model", "Foo"]) == 2
    remedy = capsys.readouterr().err
    assert all(option in remedy for option in told if option.startswith("--"))
    assert main(["advise", *common, *told]) == 0


def test_a_table_under_another_name_is_told_to_be_renamed(tmp_path, capsys):
    """No option says what its name leaves out."""
    mine = tmp_path / "mytable.json"
    mine.write_bytes(EXAMPLE.read_bytes())
    assert main(["advise", str(mine), "--gpu", "H20", "--model", "Qwen3-30B-A3B"]) == 2
    assert "rename it to say what it is for, as in E=128,N=768,device_name=NVIDIA_H200" in capsys.readouterr().err


def test_a_rank_may_hold_fewer_experts_than_a_token_takes(tmp_path):
    arguments = ["advise", "fused_moe", "--gpu", "H200", "--model", "Qwen3-30B-A3B", "--expert-parallel", "32", "--tokens", "64"]
    assert main([*arguments, "--output", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "result.json").read_text())["launches"][0]["problem"]["sizes"]["topk"] == 4


def test_a_folder_without_tables_matches_nothing(tmp_path, capsys):
    assert main(["advise", str(tmp_path)]) == 5
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("target", ["empty.py", "empty.py::kernel"])
def test_a_file_without_a_kernel_matches_nothing(tmp_path, monkeypatch, capsys, target):
    monkeypatch.chdir(tmp_path)
    Path("empty.py").write_text("x = 1\n")
    assert main(["inspect", target, "--gpu", "H200"]) == 5
    assert "no Triton kernel" in capsys.readouterr().err


def test_a_few_rows_of_a_library_kernel_teach_nothing(tmp_path, capsys):
    rows, out = tmp_path / "rows.csv", tmp_path / "weights.npz"
    rows.write_text("gpu,M,N,K,latency_us\nH200,64,64,64,5.0\nH200,128,64,64,5.0\n")
    assert main(["train", str(rows), "-o", str(out)]) == 2
    error = capsys.readouterr().err
    assert "2 of gemm/bf16" in error and "at least 200" in error and not out.exists()


def test_what_measure_writes_every_command_reads(tmp_path, capsys):
    """The activation and the sum over top-k are launches of the layer too, and have no tiles."""
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    measured = ["measure", "fused_moe", "--device", "fake,gpu=H200", "--model", "Qwen3-30B-A3B", "--tokens", "64", "-o", str(rows)]
    assert main(measured) == 0
    assert main(["predict", str(rows), "-o", str(out)]) == 0
    with out.open() as stream:
        lines = {line["op"]: line for line in csv.DictReader(stream)}
    assert list(lines) == ["w13", "w2", "activation", "combine"] and all(float(line["predicted_us"]) > 0 for line in lines.values())
    capsys.readouterr()
    assert main(["evaluate", str(rows), "--format", "json"]) == 0
    judged = json.loads(capsys.readouterr().out)
    assert "fused_moe/combine/bf16" in json.dumps(judged)
    assert main(["train", str(rows), "-o", str(tmp_path / "weights.npz")]) == 2, "of one model nothing is learned that holds for others"
    assert "at least two" in capsys.readouterr().err


def test_rows_without_latencies_teach_nothing(tmp_path, capsys):
    rows = str(ROOT / "tests/data/rows.csv")
    for command in (["train", rows, "-o", str(tmp_path / "weights.npz")], ["evaluate", rows]):
        assert main(command) == 2
        captured = capsys.readouterr()
        assert "latency_us" in captured.err and captured.out == "" and not list(tmp_path.iterdir())


def test_an_output_that_cannot_be_written(tmp_path, capsys):
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert advise(EXAMPLE, blocked / "out", "--tokens", "64") == 2
    assert "--output" in capsys.readouterr().err
    if os.geteuid() != 0:
        closed = tmp_path / "closed"
        closed.mkdir()
        closed.chmod(stat.S_IRUSR | stat.S_IXUSR)
        assert advise(EXAMPLE, closed / "out", "--tokens", "64") == 2


def test_predict_adds_its_columns(tmp_path):
    out = tmp_path / "out.csv"
    assert main(["predict", str(ROOT / "tests/data/rows.csv"), "-o", str(out)]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert len(rows) == 4 and rows[0]["note"] == "small tiles"
    for row in rows:
        bound, low, us, high = (float(row[n]) for n in ("bound_us", "predicted_low_us", "predicted_us", "predicted_high_us"))
        assert 0 < bound <= us and low <= us <= high
        assert float(row["ceiling_us"]) <= us * (1 + 1e-6)
        assert 0 <= float(row["p_speedup_10pct"]) <= 1
        assert row["binding_pipeline"]
    assert rows[3]["config_bound_us"] == "" and rows[0]["config_bound_us"]


def test_predict_says_what_cannot_be(tmp_path, capsys):
    """A latency below the bound, and configurations that cannot launch: named on stderr, with no chance of a gain made up for them."""
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    problem = "H200,w13,64,128,8,2048,768"
    rows.write_text("gpu,gemm,M,E,topk,H,N,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,num_warps,num_stages,latency_us\n"
                    f"{problem},16,128,128,4,3,50\n{problem},256,256,256,4,8,\n{problem},64,64,64,64,3,\n{problem},16,128,128,4,3,300\n")
    assert main(["predict", str(rows), "-o", str(out)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 3 and all("warning" in line for line in told), told
    assert "row 2 cannot launch" in told[0] and "2048 KiB" in told[0] and "row 3 cannot launch" in told[1] and "num_warps=64" in told[1]
    assert "row 1" in told[2] and "50 µs is below the bound" in told[2] and "fault" in told[2]
    with out.open() as stream:
        written = list(csv.DictReader(stream))
    assert [bool(row["p_speedup_10pct"]) for row in written] == [bool(row["predicted_us"]) for row in written] == [True, False, False, True]


def test_predict_says_which_depth_does_not_compile(tmp_path, capsys):
    rows = tmp_path / "rows.csv"
    rows.write_text("gpu,M,E,topk,H,N,dtype,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,num_warps\n"
                    "H200,64,128,8,2048,768,fp8,16,64,16,4\nH200,64,128,8,2048,768,fp8,16,64,32,4\n")
    assert main(["predict", str(rows), "-o", str(tmp_path / "out.csv")]) == 0
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "cannot launch" in line]
    assert "row 1 cannot launch on H200: tl.dot takes a BLOCK_SIZE_K of 32 or more of fp8 operands" in told


@pytest.mark.parametrize(("term", "escapes"), [("xterm", True), ("dumb", False), ("", False), (None, False)])
def test_a_terminal_that_may_know_no_escapes_gets_none(term, escapes):
    """Where TERM is not set nothing is known of it."""
    shown = printed_on_a_terminal("explain", "--help", environment={} if term is None else {"TERM": term})
    assert "explain" in shown and ("\x1b" in shown) == escapes


@pytest.mark.parametrize(("command", "name"), [("predict", "rows.csv"), ("rank", "shapes.csv")])
def test_rows_go_to_standard_output_and_never_over_what_is_read(command, name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given = (ROOT / "tests" / "data" / name).read_bytes()
    Path(name).write_bytes(given)
    assert main([command, name, "-o", "out.csv"]) == 0
    capsys.readouterr()
    assert main([command, name, "-o", "-"]) == 0
    assert capsys.readouterr().out == Path("out.csv").read_text() and not Path("-").exists()
    Path("link.csv").symlink_to(name)
    for output in (name, f"./{name}", "link.csv"):
        assert main([command, name, "-o", output]) == 2
        told = capsys.readouterr().err
        assert "-o would replace the file that is read" in told and "- for standard output" in told
    assert Path(name).read_bytes() == given


@pytest.mark.parametrize("line", [
    ["measure", "softmax", "--device", "fake", "-o", "-"], ["record", "-o", "-", "--", "true"], ["train", "rows.csv", "-o", "-"],
])  # fmt: skip
def test_what_is_no_text_or_is_read_again_does_not_go_to_standard_output(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(line) == 2
    assert "must be a file, not standard output" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_weights_never_replace_the_rows_they_are_fitted_to(tmp_path, capsys):
    rows = tmp_path / "rows.csv"
    rows.write_text("gpu,M,N,K,latency_us\nH200,64,64,64,3\n", encoding="utf-8")
    assert main(["train", str(rows), "-o", str(rows)]) == 2
    assert "-o would replace the file that is read" in capsys.readouterr().err and rows.read_text().startswith("gpu,")


@pytest.mark.parametrize("packed", [False, True])
def test_rows_come_through_a_pipe(tmp_path, packed):
    """As in `advisor predict <(zcat rows.csv.gz)`; evaluate looks at the header first, to know a published layout."""
    data = b"gpu,gemm,M,E,topk,H,N,latency_us\nH200,w13,64,128,8,2048,768,300\n"

    def piped(*command: str) -> int:
        reading, writing = os.pipe()
        os.write(writing, gzip.compress(data) if packed else data)
        os.close(writing)
        try:
            return main([command[0], f"/dev/fd/{reading}", *command[1:]])
        finally:
            os.close(reading)

    assert piped("predict", "-o", str(tmp_path / "out.csv")) == 0
    assert piped("evaluate") == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 2


def test_the_verdict_and_the_sum_say_the_same_share(tmp_path, capsys):
    """99.6 % is not all of it, in a sentence as in a figure."""
    rows = tmp_path / "rows.csv"
    assert main(["advise", str(EXAMPLE), "--model", "Qwen3-30B-A3B", "--tokens", "64", "--output", str(tmp_path)]) == 0
    ceilings = [launch["ceiling"]["us"] for launch in json.loads((tmp_path / "result.json").read_text())["launches"]]
    rows.write_text("gemm,M,E,topk,H,N,latency_us\n"
                    + "".join(f"{op},64,128,8,2048,768,{us / 0.996}\n" for op, us in zip(("w13", "w2"), ceilings, strict=True)))
    capsys.readouterr()
    assert advise(EXAMPLE, tmp_path, "--tokens", "64", "--measured", str(rows)) == 0
    printed = capsys.readouterr().out
    assert "run at 99 % of the tunable ceiling" in printed and "100 %" not in printed, printed


@pytest.mark.parametrize("command", ["predict", "rank"])
def test_rows_say_the_gpu_they_were_predicted_for(tmp_path, command):
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows.write_text("gpu,gemm,M,E,topk,H,N\nH200,w13,64,128,8,2048,768\n")
    assert main([command, str(rows), "-o", str(out), "--gpu", "NVIDIA H100"]) == 0
    with out.open() as stream:
        assert {row["gpu"] for row in csv.DictReader(stream)} == {"H100"}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("H200,w13,0,128,8,2048,768", ["row 1", "M"]),
        ("H200,w13,64,128,8,-2048,768", ["row 1", "H"]),
        ("H200,w13,64,128,8,2048,", ["row 1", "N"]),
        ("H200,w13,64.5,128,8,2048,768", ["row 1", "M", "64.5"]),
        ("GTX9000,w13,64,128,8,2048,768", ["GTX9000"]),
        (",w13,64,128,8,2048,768", ["gpu"]),
    ],
)
def test_bad_rows_are_named(tmp_path, capsys, line, words):
    rows = tmp_path / "rows.csv"
    rows.write_text(f"gpu,gemm,M,E,topk,H,N\n{line}\n")
    assert main(["predict", str(rows), "-o", str(tmp_path / "out.csv")]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    for word in words:
        assert word in message


@pytest.mark.parametrize("command", ["predict", "rank"])
def test_rows_that_cannot_launch_are_left_out(tmp_path, capsys, caplog, command):
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows.write_text("gpu,M,N,K,dtype\nA100,128,512,1024,fp8\nH100,128,512,1024,fp8\n")
    assert main([command, str(rows), "-o", str(out)]) == 0
    assert "left out 1 row (first: row 1): cannot launch: fp8 needs compute capability 8.9, and A100 has 8.0" in caplog.text
    predicted = {row["gpu"] for row in csv.DictReader(out.read_text().splitlines()) if row["predicted_us"]}
    assert predicted == {"H100"}
    for left in ("A100,128,512,1024,fp8\n", ""):  # nothing that can launch; nothing at all
        rows.write_text("gpu,M,N,K,dtype\n" + left)
        assert main([command, str(rows), "-o", str(tmp_path / "none.csv")]) == 5
        assert ("compute capability 8.9" if left else "no rows") in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "none.csv").exists()


@pytest.mark.parametrize("command", ["predict", "rank"])
def test_a_problem_that_no_configuration_fits_is_named(tmp_path, capsys, command):
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    rows.write_text("gpu,family,op,dtype,B,H,H_kv,M,N,D\nH200,attention,prefill,bf16,2,16,2,314,314,128\n"
                    "P4,attention,prefill,fp32,128,16,2,314,157,192\n")
    assert main([command, str(rows), "-o", str(out)]) == 0
    error = capsys.readouterr().err
    assert "warning: row 2: nothing is predicted: no configuration known for it can launch on P4" in error and "row 1" not in error
    assert {row["gpu"] for row in csv.DictReader(out.read_text().splitlines()) if row["predicted_us"]} == {"H200"}


def test_fp8_is_refused_where_the_gpu_has_none(tmp_path, capsys):
    table = tmp_path / "E=128,N=768,device_name=NVIDIA_A100-SXM4-80GB,dtype=fp8_w8a8.json"
    table.write_text(Path(EXAMPLE).read_text())
    for target in (["fused_moe", "--gpu", "A100", "--dtype", "fp8", "--model", "Qwen3-30B-A3B"], [str(table)]):
        assert advise(*target[:1], tmp_path / "out", "--tokens", "64", *target[1:]) == 2
        assert "cannot launch: fp8 needs compute capability 8.9, and A100 has 8.0" in capsys.readouterr().err
    assert main(["audit", str(table), "--fail-on", "error"]) == 1
    assert "0 predicted" in capsys.readouterr().out


@pytest.mark.parametrize("dtype", ["mxfp4", "nvfp4", "fp8_w4a8"])
def test_a_table_of_an_unknown_type_is_not_taken_for_bf16(tmp_path, capsys, dtype):
    path = table(tmp_path, {"1": ENTRY, "64": ENTRY}, f"E=128,N=768,device_name=NVIDIA_H200,dtype={dtype}.json")
    assert advise(path, tmp_path / "out") == 2
    assert f"dtype={dtype}: this operand type is not known" in capsys.readouterr().err
    assert main(["audit", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "unknown-dtype" in printed and "1 table read, 0 predicted" in printed
    assert advise(path, tmp_path / "out", "--dtype", "bf16") == 0


def test_options_that_the_launch_refuses_are_not_recommended(tmp_path):
    path = table(tmp_path, {"64": {**ENTRY, "BLOCK_SIZE_M": 128, "waves_per_eu": 2, "USE_TMA": False}})
    assert advise(path, tmp_path / "out") == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    entry = result["launches"][0]["recommendation"]["table_entry"]
    assert "waves_per_eu" not in entry and entry["USE_TMA"] is False
    assert [finding["severity"] for finding in result["table_findings"] if finding["rule"] == "unknown-option"] == ["error"]


def test_values_that_no_compiler_takes_are_not_recommended(tmp_path):
    entry = {**ENTRY, "BLOCK_SIZE_M": 128, "waves_per_eu": 2, "matrix_instr_nonkdim": 8}
    assert advise(table(tmp_path, {"64": entry}, "E=128,N=768,device_name=AMD_Instinct_MI300X.json"), tmp_path / "out") == 0
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    recommended = result["launches"][0]["recommendation"]["table_entry"]
    assert "matrix_instr_nonkdim" not in recommended and recommended["waves_per_eu"] == 2


@pytest.mark.parametrize(("gpu", "said"), [("MI300X", True), ("H200", False)])
def test_a_report_for_amd_says_that_nothing_was_measured_there(tmp_path, gpu, said):
    assert main(["advise", "gemm", "--gpu", gpu, "--sizes", "M=512,N=512,K=512", "--output", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert any("No AMD measurement is behind this" in text for text in result["verdict"]["unknowns"]) == said


@pytest.mark.parametrize(("gpu", "said"), [("MI300X", True), ("H200", False)])
def test_every_command_that_predicts_for_amd_says_so(tmp_path, capsys, gpu, said):
    rows = tmp_path / "rows.csv"
    rows.write_text(f"gpu,M,E,topk,H,N\n{gpu},64,8,2,1024,512\n")
    device = {"MI300X": "AMD_Instinct_MI300X", "H200": "NVIDIA_H200"}[gpu]
    tuned = tmp_path / f"E=8,N=14336,device_name={device}.json"
    tuned.write_text(json.dumps({"64": ENTRY}))
    for command in (["predict", str(rows), "-o", str(tmp_path / "o.csv")], ["rank", str(rows), "-o", str(tmp_path / "o.csv")],
                    ["audit", str(tuned)]):  # fmt: skip
        assert main(command) == 0
        assert ("No AMD measurement is behind this" in capsys.readouterr().err) == said, command


def test_rank_lists_the_best_first(tmp_path):
    out = tmp_path / "out.csv"
    assert main(["rank", str(ROOT / "tests/data/shapes.csv"), "-o", str(out), "--top", "5"]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4", "5"] * 2
    assert len({tuple(row[n] for n in ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages"))
                for row in rows[:5]}) == 5  # fmt: skip


def test_a_ranking_of_whole_spaces_takes_memory_for_its_numbers_alone(tmp_path):
    """A line has some sixty bytes; with an object for each configuration, and columns of texts, it took more than a thousand."""
    shapes, out = tmp_path / "shapes.csv", tmp_path / "out.csv"
    shapes.write_text("gpu,gemm,M,E,topk,H,N\n" + "".join(f"H200,w13,{16 * i},128,8,2048,768\n" for i in range(1, 21)))
    assert main(["rank", str(shapes), "-o", str(out)]) == 0  # with all that is imported and read for it
    tracemalloc.start()
    try:
        assert main(["rank", str(shapes), "-o", str(out), "--top", "1000000"]) == 0
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    lines = out.read_text().count("\n")
    assert lines > 50_000 and peak_bytes / lines < 500


def test_a_short_list_has_tiles_and_no_ties_of_one(tmp_path):
    shapes, out = tmp_path / "shapes.csv", tmp_path / "out.csv"
    shapes.write_text("gpu,M,N,K,dtype\nH200,2048,4608,4096,fp8\nH800,16,4096,4096,fp8\n")
    for count in (8, 5000):
        assert main(["rank", str(shapes), "-o", str(out), "--top", str(count)]) == 0
        rows = list(csv.DictReader(out.read_text().splitlines()))
        for m in ("2048", "16"):
            mine = [row for row in rows if row["M"] == m]
            assert float(mine[0]["predicted_us"]) == min(float(row["predicted_us"]) for row in mine)
            short = [(*(row[f"BLOCK_SIZE_{axis}"] for axis in "MNK"), round(float(row["predicted_us"]), 4)) for row in mine[:8]]
            assert len(set(short)) == 8
    names = ("M", "BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "SPLIT_K", "num_warps", "num_stages")
    assert len({tuple(row[name] for name in names) for row in rows}) == len(rows) > 1000  # none lost, none twice


@pytest.mark.parametrize("command", ["predict", "rank"])
def test_bf16_that_nobody_named_is_told(tmp_path, capsys, command):
    rows = tmp_path / "rows.csv"
    for gpu, lacking in (("H100", False), ("V100", True)):
        rows.write_text(f"gpu,M,N,K\n{gpu},128,512,1024\n")
        assert main([command, str(rows), "-o", str(tmp_path / "o.csv")]) == 0
        (line,) = (line for line in capsys.readouterr().err.splitlines() if "bf16" in line)
        assert "1 row that names no type" in line and ("V100 has no matrix units for" in line) == lacking
    rows.write_text("gpu,M,N,K,dtype\nH100,128,512,1024,bf16\n")
    assert main([command, str(rows), "-o", str(tmp_path / "o.csv")]) == 0
    assert "bf16" not in capsys.readouterr().err


def test_audit_gates(tmp_path, capsys):
    huge = table(tmp_path, {"1": {**ENTRY, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "BLOCK_SIZE_K": 256, "num_stages": 5}})
    assert main(["audit", str(huge), "--no-regret"]) == 0
    assert main(["audit", str(huge), "--fail-on", "does-not-fit"]) == 1
    assert main(["audit", str(huge), "--fail-on", "nonsense"]) == 2
    capsys.readouterr()
    assert main(["audit", str(huge), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["does-not-fit"] == 1


@pytest.mark.parametrize(("name", "text"), [("moe.csv", "gpu,M\nA100,1\n"), ("config.json", '{"a": 1}'), (NAME, "{}"),
                                            (NAME, '{"1": {"BLOCK_SIZE_M": 3}}')])  # fmt: skip
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


@pytest.mark.parametrize(("name", "said", "model"), [
    ("E=17,N=801,device_name=NVIDIA_H100_80GB_HBM3.json", "H=4096, top-k=8 are assumed; E=17, N=801 fits no known model", None),
    ("E=16,N=800,device_name=NVIDIA_H100_80GB_HBM3.json", "for Phi-3.5-MoE, tensor-parallel 8 (H=4096, top-k=2)",
     "Phi-3.5-MoE, tensor-parallel 8"),
    (NAME, "Qwen3-30B-A3B (H=2048, top-k=8) is assumed; E=128, N=768 fits 1 other shape too (Qwen3-235B-A22B, tensor-parallel 2)",
     "Qwen3-30B-A3B"),
    ("N=4096,K=4096,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8,block_shape=[128,128].json", "probability", None),
])  # fmt: skip
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


def encoded(encoding: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.run([sys.executable, "-m", "advisor", *arguments], capture_output=True, env=environment, cwd=ROOT, check=False)


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "latin-1"])
def test_a_stream_that_is_not_utf_8(tmp_path, encoding):
    """A character that the terminal or the pipe cannot show must not turn a gate's answer into a failure."""
    sides = [f"tests/data/compare/{side}.json" for side in ("before", "after")]
    for style in ("text", "md"):
        done = encoded(encoding, "compare", *sides, "--format", style)
        assert done.returncode == 0 and b"?" in done.stdout, done.stderr
    document = encoded(encoding, "compare", *sides, "--format", "json")
    assert document.returncode == 0
    assert json.loads(document.stdout.decode("ascii")) == json.loads(encoded("utf-8", "compare", *sides, "--format", "json").stdout)


@pytest.mark.parametrize(("terminal", "live"), [("dumb", False), ("xterm", True)])
def test_progress_rewrites_its_line_only_where_the_terminal_can(monkeypatch, capsys, terminal, live):
    monkeypatch.setenv("TERM", terminal)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    line = StatusLine()
    line.say("measured 8/8")
    line.end()
    assert ("\x1b" in capsys.readouterr().err) == live


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["advise", "fused_moe", "--modell", "X"], "advisor advise: error: unrecognized arguments: --modell X; did you mean --model?; "),
        (["advise", "fused_moe", "--out-put=x"], "did you mean --output?"),
        (["gpus", "H200", "H100"], "advisor gpus: error: unrecognized arguments: H100; see `advisor gpus --help`"),
        (["cache", "ls", "--fromat", "json"], "did you mean --format?"),
        (["--verion"], "did you mean --version?"),
    ],
)
def test_an_unknown_option_is_told_the_nearest_of_its_command(arguments, words, capsys):
    assert main(arguments) == 2
    assert words in capsys.readouterr().err


def test_every_command_has_help(capsys):
    for command in COMMANDS:
        if _module(command) is None:
            continue
        code = main([command, "--help"])
        printed = capsys.readouterr()
        assert code == 0, f"{command}: {printed.err}"
        assert command in printed.out


def test_models_are_listed_with_the_sizes_of_their_experts(capsys):
    assert main(["models"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == [model.name for model in MODELS]
    assert main(["models", "--format", "json"]) == 0
    for line, listed in zip(lines, json.loads(capsys.readouterr().out), strict=True):
        shown = dict(zip(head.split(), line.split(), strict=False))
        assert [int(shown[size]) for size in ("E", "topk", "H", "N")] == [listed[size] for size in ("E", "top_k", "H", "N")]
        assert all(alias in line for alias in listed["aliases"])


def test_every_rule_is_explained(capsys):
    from advisor.diagnosis.rules import RULES

    for rule in RULES:
        assert main(["explain", rule.id]) == 0
        assert rule.title in capsys.readouterr().out


def test_a_rule_is_explained_in_any_case(capsys):
    assert main(["explain", "TAIL-Wave"]) == 0
    assert capsys.readouterr().out.startswith("tail-wave: ")


def test_schema_describes_the_result(tmp_path, capsys):
    jsonschema = pytest.importorskip("jsonschema")
    assert main(["schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert advise(EXAMPLE, tmp_path, "--tokens", "64") == 0
    jsonschema.validate(json.loads((tmp_path / "result.json").read_text()), schema)


@pytest.mark.parametrize("kernel", ["gemm", "gemm::gemm_persistent_kernel", "attention", "attention::decode_kernel", "rms_norm",
                                    "layer_norm", "softmax", "silu_and_mul", "fused_moe::combine_kernel"])  # fmt: skip
def test_every_bundled_kernel_gets_a_report(tmp_path, capsys, kernel):
    assert main(["advise", kernel, "--gpu", "H200", "--output", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    launch = result["launches"][0]
    assert launch["configuration"] is None and launch["recommendation"] is not None
    assert "is not known" in " ".join(result["verdict"]["unknowns"])
    assert launch["bound"]["us"] <= launch["recommendation"]["latency"]["us"]


def test_sizes_of_a_bundled_kernel(tmp_path, capsys):
    assert main(["advise", "gemm", "--gpu", "H200", "--sizes", "M=512,N=1024,K=256", "--output", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "result.json").read_text())["launches"][0]["problem"]["sizes"] == {"M": 512, "N": 1024, "K": 256}
    assert main(["advise", "gemm", "--gpu", "H200", "--sizes", "Q=512", "--output", str(tmp_path)]) == 2
    assert main(["advise", "gemm", "--gpu", "H200", "--sizes", "M=0", "--output", str(tmp_path)]) == 2
    assert main(["advise", "gemm::nothing", "--gpu", "H200"]) == 2


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
    assert result["verdict"]["percent_of_ceiling"] <= 100 and "below the bound" in result["verdict"]["sentence"]
    assert first["recommendation"] is None, "nothing slower than what was measured is recommended, whatever is wrong with it"
    assert not any(first["id"] in action["launches"] for action in result["actions"])


@pytest.mark.parametrize(("field", "value", "words"), [("num_stages", 9, "shared memory"), ("num_warps", 64, "threads"),
                                                       ("num_warps", 3, "power of two")])  # fmt: skip
def test_a_configuration_that_cannot_launch_has_no_latency(tmp_path, capsys, field, value, words):
    entry = {**ENTRY, "BLOCK_SIZE_M": 128, "BLOCK_SIZE_K": 128, field: value}
    assert advise(table(tmp_path, {"1": entry}), tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert words in printed and "cannot launch" in printed and "None of the 2 launches can run" in printed
    assert "% of ceiling" not in printed and "1.00x" not in printed
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert all(launch["predicted"] is None and launch["recommendation"] for launch in result["launches"])


def test_a_configuration_that_must_spill_is_not_recommended(tmp_path):
    for kernel in ("gemm", "attention"):
        assert main(["advise", kernel, "--gpu", "H200", "--output", str(tmp_path)]) == 0
        launch = json.loads((tmp_path / "result.json").read_text())["launches"][0]
        assert "register-spills-likely" not in [finding["rule"] for finding in launch["findings"]]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["advise", "x" * 5000], "nothing has this name"),
        (["advise", str(ROOT / "Makefile")], "nothing the advisor reads"),
        (["advise", ""], "no target is named"),
        (["compare", str(EXAMPLE), str(EXAMPLE), "--launches", str(EXAMPLE)], "--launches is for kernels that changed"),
        (["advise", "gemm::gemm_persistent_kernel", "--gpu", "MI300X"], "sm_90 or later"),
        (["advise", "gemm::gemm_persistent_kernel", "--gpu", "A100"], "sm_90 or later"),
        (["advise", str(ROOT / "reports"), "--grid", "1"], "--grid is for a kernel in a file"),
        (["advise", "x" * 5000 + ".json"], "no such file"),
        (["audit", "x" * 5000], "no such file"),
        (["predict", str(ROOT / "tests/data/rows.csv"), "-o", "a\0b"], "cannot be written"),
        (["advise", "softmax", "--gpu", "H200", "--tokens", "64"], "--tokens"),
        (["advise", "attention", "--gpu", "H200", "--sizes", "H=8,H_kv=3"], "H_kv"),
        (["advise", "fused_moe", "--gpu", "H200", "--sizes", "E=8,N=512"], "no topk, H"),
        (["advise", "fused_moe", "--gpu", "H200", "--sizes", "E=8,N=512,H=64,topk=2", "--tensor-parallel", "8"], "--model NAME"),
        (["advise", "fused_moe", "--gpu", "H200", "--sizes", "E=128,N=768", "--model", "Mixtral-8x7B"], "no rank of Mixtral-8x7B"),
        (["advise", "fused_moe", "--gpu", "H200", "--sizes", "N=7168", "--model", "Mixtral-8x7B", "--tensor-parallel", "4"], "N=7168"),
        (["advise", "fused_moe", "--gpu", "H200", "--hidden-size", "2048", "--model", "Mixtral-8x7B"], "contradicts Mixtral-8x7B"),
        (["advise", "gemm", "--gpu", "H200", "--model", "Mixtral-8x7B"], "--model is for fused_moe"),
        (["advise", "fused_moe", "--gpu", "H200", "--sizes", "E=8,Q=512"], "Q"),
        (["advise", "gemm", "--gpu", "H200", "--sizes", "M=4k,N=8,K=8"], "--sizes: must be NAME=NUMBER, as in M=4096 (got '4k')"),
        (["tune", "gemm", "--gpu", "H200", "--trials", "1,2"], "--trials: must be one whole number, as in 64 (got '1,2')"),
    ],
)
def test_odd_arguments_get_one_line(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and words in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"\x1b[31mred\x07\x9b2J", b"{}\n", bytes(range(256))])
@pytest.mark.parametrize("command", ["advise", "measure", "compare"])
def test_a_damaged_record_is_called_one_and_steers_no_terminal(tmp_path, capsys, command, content):
    record = tmp_path / "launches.jsonl"
    record.write_bytes(content)
    arguments = {
        "advise": [str(record), "--gpu", "H200"], "measure": [str(record), "--device", "fake", "-o", str(tmp_path / "rows.csv")],
        "compare": [str(EXAMPLE.parent), str(EXAMPLE.parent), "--launches", str(record)],
    }  # fmt: skip
    assert main([command, *arguments[command]]) == 2
    error = capsys.readouterr().err
    assert "launch record" in error and error.count("\n") == 1 and error.strip("\n").isprintable()


def test_an_output_that_is_a_file(tmp_path, capsys):
    (tmp_path / "out").write_text("")
    assert advise(EXAMPLE, tmp_path / "out", "--tokens", "16") == 2
    assert f"{tmp_path}/out/result.json: cannot be written" in capsys.readouterr().err


def test_an_output_whose_name_is_too_long(tmp_path, capsys):
    assert advise(EXAMPLE, tmp_path / ("x" * 300), "--tokens", "64") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_folder_that_is_named_like_a_table(tmp_path, capsys):
    (tmp_path / NAME).mkdir()
    assert advise(tmp_path / NAME, tmp_path / "out") == 2
    assert "is a directory" in capsys.readouterr().err


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


def test_options_that_do_not_apply_are_refused(tmp_path, capsys):
    routing = tmp_path / "routing.json"
    routing.write_text("[1, 2, 3]")
    gemm = table(tmp_path, {"1": ENTRY}, "N=512,K=512,device_name=NVIDIA_H20,dtype=fp8_w8a8,block_shape=[128,128].json")
    for arguments in ((gemm, "--routing", str(routing)), (EXAMPLE, "--routing", str(routing)), (EXAMPLE, "--sizes", "M=1")):
        assert advise(arguments[0], tmp_path / "out", *arguments[1:]) == 2
        message = capsys.readouterr().err
        assert message.count("\n") == 1 and arguments[1] in message
    assert not (tmp_path / "out").exists()


def test_token_counts_that_no_entry_covers(tmp_path, capsys):
    name = "N=512,K=512,device_name=NVIDIA_H20,dtype=fp8_w8a8_channelwise.json"
    partly = table(tmp_path, {"1": ENTRY, "64": None}, name)
    assert advise(partly, tmp_path / "out", "--tokens", "1,64") == 0
    assert "entry 64 is null" in capsys.readouterr().err
    assert advise(partly, tmp_path / "out", "--tokens", "64,128") == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and name in message and "64" in message


def test_a_table_of_a_thousand_entries_asks_which(tmp_path, capsys):
    long = table(tmp_path, {str(m): ENTRY for m in range(1, 1001)})
    assert advise(long, tmp_path / "out") == 2
    assert "--tokens" in capsys.readouterr().err
    assert advise(long, tmp_path / "out", "--tokens", "1000") == 0


@pytest.mark.parametrize(
    ("header", "line", "words"),
    [
        ("gpu,op,B,H,H_kv,M,N,D", "H100,prefill,1,8,3,512,512,64", ["row 1", "H_kv", "3"]),
        ("gpu,family,op,B,H,H_kv,M,N,D", "H100,attention,foo,1,8,8,512,512,64", ["row 1", "foo", "prefill"]),
        ("gpu,gemm,M,E,topk,H,N", "H100,w3,64,128,8,2048,768", ["row 1", "w3", "w13"]),
        ("gpu,op,B,H", "H100,frob,8,8", ["row 1", "frob", "gelu"]),
        ("gpu,op,B,H", "H1000,gelu,8,8", ["row 1", "H1000"]),
    ],
)
def test_odd_rows_are_named(tmp_path, capsys, header, line, words):
    rows = tmp_path / "rows.csv"
    rows.write_text(f"{header}\n{line}\n")
    assert main(["predict", str(rows), "-o", str(tmp_path / "out.csv")]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and all(word in message for word in words), message
    assert not (tmp_path / "out.csv").exists()


@pytest.mark.parametrize(("name", "text", "dtype"), [
    ("library.csv", "gpu,op,B,M,N,K,H\nT4,softmax,4096,,,,1024\nT4,bmm,8,512,512,512,\n", "fp32"),
    ("gemm_fp8.csv", "gpu,M,N,K\nH100,64,4096,4096\n", "fp8"), ("gemm.csv", "gpu,M,N,K\nH100,64,4096,4096\n", "bf16"),
])  # fmt: skip
def test_rank_writes_the_type_that_it_took(tmp_path, name, text, dtype):
    """Which followed from the file's name or columns, and no longer does from those of the ranked rows."""
    (tmp_path / name).write_text(text)
    ranked, predicted = tmp_path / "ranked.csv", tmp_path / "predicted.csv"
    assert main(["rank", str(tmp_path / name), "-o", str(ranked), "--top", "2"]) == 0
    assert main(["predict", str(ranked), "-o", str(predicted)]) == 0
    before, after = (list(csv.DictReader(path.read_text().splitlines())) for path in (ranked, predicted))
    assert {row["dtype"] for row in before} == {dtype}
    assert [row["predicted_us"] for row in before] == [row["predicted_us"] for row in after]


def test_what_rank_writes_predict_reads(tmp_path):
    shapes = tmp_path / "shapes.csv"
    shapes.write_text("gpu,op,M,N,K,B,H,D\nA100,gemm,128,256,512,,,\nH100,prefill,1024,1024,,2,16,128\n"
                      "H100,rms_norm,,,,1024,4096,\nH100,gelu,,,,1024,4096,\n")  # fmt: skip
    assert main(["rank", str(shapes), "-o", str(tmp_path / "ranked.csv"), "--top", "2"]) == 0
    assert main(["predict", str(tmp_path / "ranked.csv"), "-o", str(tmp_path / "predicted.csv")]) == 0
    ranked, predicted = (list(csv.DictReader((tmp_path / f"{name}.csv").read_text().splitlines())) for name in ("ranked", "predicted"))
    assert len(ranked) == 8
    for before, after in zip(ranked, predicted, strict=True):
        assert float(after["predicted_us"]) == pytest.approx(float(before["predicted_us"]), rel=1e-3), before


@pytest.mark.parametrize("arguments", [["gpus"], ["schema"], ["advise", str(EXAMPLE), "--top-k", "8", "--hidden-size", "2048"]])
def test_a_reader_that_goes_away_is_no_error(tmp_path, arguments):
    """`advisor … | head -1`: exit code 0 (1 would be a failed gate), and nothing on stderr."""
    read, write = os.pipe()
    os.close(read)
    run = "import sys; from advisor.cli import main; sys.exit(main(sys.argv[1:]))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", run, *arguments], stdout=write, stderr=subprocess.PIPE, cwd=tmp_path, env=environment)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_bundled_kernel_is_at_no_share_of_its_ceiling_and_its_recommendation_has_a_demand(tmp_path):
    assert main(["advise", "softmax", "--gpu", "H200", "--output", str(tmp_path)]) == 0
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["verdict"]["percent_of_ceiling"] == 0.0 < result["verdict"]["ceiling_us"]
    (launch,) = result["launches"]
    assert launch["configuration"] is None and launch["recommendation"]["demand"]["dram"] > 0


def test_predict_says_what_it_extrapolates(tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("gpu,M,E,topk,H,N\nH100,256,8,2,4096,14336\nH100,256,64,8,2048,768\n")
    assert main(["predict", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "out.csv")]) == 0
    assert "launches outside of what was learned: 1; their latencies are extrapolated" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--op", "w13"], ["--grid", "8"], ["--num-warps", "4"]])
def test_a_table_is_told_of_the_option_that_it_has(option, tmp_path, capsys):
    """A table says its own sizes: to advise --sizes led from one refusal to the next."""
    table = tmp_path / "E=128,N=768,device_name=NVIDIA_H200.json"
    table.write_text("{}")
    assert main(["advise", str(table), *option]) == 2
    error = capsys.readouterr().err
    assert error.rstrip().endswith("give --tokens instead") and "--sizes" not in error
    assert main(["advise", "softmax", *option]) == 2
    assert capsys.readouterr().err.rstrip().endswith("give --sizes instead")


def test_an_interrupt_before_a_command_begins_is_told_as_one(capsys, monkeypatch):
    monkeypatch.setattr("advisor.cli.build_parser", Mock(side_effect=KeyboardInterrupt))
    assert main(["gpus"]) == 130
    assert capsys.readouterr().err == "advisor: error: interrupted\n", "nothing was finished, and nothing is saved"
