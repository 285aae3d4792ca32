"""`advisor advise` on tuned tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.rendering.figures import microseconds
from advisor.result.schema import SCHEMA_VERSION
from tests.cli.command_line import ENTRY, EXAMPLE, NAME, ROOT, advise, table


def test_advise_writes_page_and_result(tmp_path, capsys):
    assert advise(EXAMPLE, tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert "MoE layers  E=" in printed and "\x1b" not in printed
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert result["schema_version"] == SCHEMA_VERSION
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a100", "h200", "overview.html"]


@pytest.mark.parametrize("style", ["text", "md"])
def test_several_gpus_have_a_line_each(tmp_path, capsys, style):
    assert advise(EXAMPLE, tmp_path, "--tokens", "1,64", "--gpu", "H200,A100", "--format", style) == 0
    table = capsys.readouterr().out.partition("Worst first:")[2]
    page = (tmp_path / "overview.html").read_text(encoding="utf-8")
    assert 'href="h200/report.html"' in page and 'href="a100/report.html"' in page
    for name in ("H200", "A100"):
        verdict = json.loads((tmp_path / name.lower() / "result.json").read_text())["verdict"]
        line = next(line for line in table.splitlines() if name in line)
        for text in (microseconds(verdict["current_us"]), microseconds(verdict["ceiling_us"]), verdict["binding_pipeline"]):
            assert text in line and text in page
    assert advise(EXAMPLE, tmp_path, "--tokens", "64", "--gpu", "H200", "--format", style) == 0
    assert "Worst first" not in capsys.readouterr().out


def test_blocks_that_most_stacks_do_not_load_are_the_headline(tmp_path, capsys, monkeypatch):
    """With what would load, and no saving; the folder is named after the split and the types."""
    monkeypatch.chdir(tmp_path)
    layer = ["--model", "Qwen/Qwen3-235B-A22B", "--dtype", "fp8", "--tp", "8", "--block-shape", "128,128"]
    assert main(["advise", "fused_moe", *layer, "--gpu", "H200", "--tokens", "64"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert "do not load this: 192 columns per rank, in blocks of 128. Use --tp 4 or --expert-parallel 8." in first and "save" not in first
    assert any("No other backend is faster: " in line for line in rest)
    assert (tmp_path / "advisor-out" / "fused_moe-Qwen-Qwen3-235B-A22B-tp8-fp8-block128,128-H200" / "report.html").exists()


def test_reports_of_another_run_in_the_folder_are_told(tmp_path, capsys):
    """They are kept, and would pass for this run's."""
    assert advise(EXAMPLE, tmp_path, "--tokens", "64") == 0
    assert "another run" not in capsys.readouterr().err
    assert advise(EXAMPLE, tmp_path, "--tokens", "64", "--gpu", "H200,A100") == 0
    assert f"report.html and result.json in {tmp_path} are of another run" in capsys.readouterr().err
    assert advise(EXAMPLE, tmp_path, "--tokens", "64") == 0
    assert f"overview.html in {tmp_path} is of another run" in capsys.readouterr().err and (tmp_path / "overview.html").exists()


def test_two_descriptions_of_one_file_name_make_two_reports(tmp_path, capsys):
    text = (ROOT / "ceilings" / "h200.toml").read_text()
    files = [tmp_path / folder / "mine.toml" for folder in ("x", "y")]
    for file in files:
        file.parent.mkdir()
        file.write_text(text)
    out = tmp_path / "out"
    assert advise(EXAMPLE, out, "--tokens", "64", "--gpu", str(files[0]), "--gpu", str(files[1])) == 0
    assert sorted(path.name for path in out.iterdir()) == ["h200", "h200-2", "overview.html"]
    assert str(out / "h200-2" / "report.html") in capsys.readouterr().out.replace("\n", "")


def test_tokens_take_the_nearest_entry(tmp_path):
    assert advise(EXAMPLE, tmp_path, "--tokens", "70,5000") == 0
    sources = {
        launch["problem"]["sizes"]["M"]: launch["configuration_source"]
        for launch in json.loads((tmp_path / "result.json").read_text())["launches"]
    }
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


@pytest.mark.parametrize(
    ("key", "entry", "words"),
    [
        ("64", MISSING, "entry 64: BLOCK_SIZE_K is missing"),
        ("64", {**ENTRY, "BLOCK_SIZE_K": "64"}, "entry 64: BLOCK_SIZE_K"),
        ("64", [], "entry 64"),
        ("x", ENTRY, "key 'x' is not a token count"),
    ],
)
def test_a_bad_entry_is_named_and_the_others_are_diagnosed(tmp_path, capsys, key, entry, words):
    bad = table(tmp_path, {"1": ENTRY, key: entry, "1024": ENTRY})
    assert advise(bad, tmp_path / "out") == 0
    printed = capsys.readouterr()
    assert words in printed.err and "bad-entry" in printed.out and f"entry {'M=' * key.isdigit()}{key}   [bad-entry]" in printed.out
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
    assert "The last entry of each is used" in error and "('1')" in error and "passed over" not in error
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    used = {launch["problem"]["sizes"]["M"]: launch["configuration"] for launch in result["launches"]}
    assert used.keys() == {1, 64} and used[1]["num_warps"] == 8 != used[64]["num_warps"]
    twice.write_text(f'{{"1": {json.dumps(ENTRY)}, "1": {json.dumps(MISSING)}, "64": {json.dumps(ENTRY)}}}')
    assert advise(twice, tmp_path / "out") == 0
    error = capsys.readouterr().err
    assert "passed over: '1'" in error and "The last entry of each is used" not in error


def test_many_bad_entries_are_one_line(tmp_path, capsys):
    assert advise(table(tmp_path, {"1": ENTRY, **{str(m): MISSING for m in range(2, 40)}}), tmp_path / "out") == 0
    printed = capsys.readouterr()
    assert printed.err.count("warning: ") == 1 and "and 30 more" in printed.err and "entries 2, 3, " in printed.out


@pytest.mark.parametrize(
    "name",
    [
        "E=0,N=768,device_name=NVIDIA_H20.json",
        "E=-1,N=768,device_name=NVIDIA_H20.json",
        "E=1.5,N=768,device_name=NVIDIA_H20.json",
        "E=99999999999999,N=1,device_name=NVIDIA_H20.json",
        "N=768.json",
        "hello.json",
        "E=8,N=768,device_name=NO_SUCH_GPU.json",
    ],
)
def test_a_bad_name_gets_one_line_and_exit_code_2(tmp_path, capsys, name):
    assert advise(table(tmp_path, {"1": ENTRY}, name), tmp_path / "out") == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_a_table_of_very_many_entries_is_refused(tmp_path, capsys):
    body = "{" + ",".join(f'"{m}":{{}}' for m in range(1, 50_001)) + "}"
    assert advise(table(tmp_path, body), tmp_path / "out") == 2
    assert "entries" in capsys.readouterr().err


def test_html_in_a_name_is_escaped(tmp_path):
    hostile = "E=128,N=768,device_name=<img src=x onerror=alert(1)>.json"
    path = table(tmp_path, {"1": ENTRY}, hostile)
    assert advise(path, tmp_path / "out", "--gpu", "H20") in (0, 2)
    page = tmp_path / "out" / "report.html"
    if page.exists():
        assert "<img src=x" not in page.read_text(encoding="utf-8")


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
    assert "rename it by the pattern E=128,N=768,device_name=NVIDIA_H200" in capsys.readouterr().err


def test_a_rank_may_hold_fewer_experts_than_a_token_takes(tmp_path):
    arguments = ["advise", "fused_moe", "--gpu", "H200", "--model", "Qwen3-30B-A3B", "--expert-parallel", "32", "--tokens", "64"]
    assert main([*arguments, "--output", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "result.json").read_text())["launches"][0]["problem"]["sizes"]["topk"] == 4


def test_a_folder_without_tables_matches_nothing(tmp_path, capsys):
    assert main(["advise", str(tmp_path)]) == 5
    assert capsys.readouterr().err.count("\n") == 1


def test_the_verdict_and_the_sum_say_the_same_share(tmp_path, capsys):
    """99.6 % is not all of it, in a sentence as in a figure."""
    rows = tmp_path / "rows.csv"
    assert main(["advise", str(EXAMPLE), "--model", "Qwen3-30B-A3B", "--tokens", "64", "--output", str(tmp_path)]) == 0
    ceilings = [launch["ceiling"]["us"] for launch in json.loads((tmp_path / "result.json").read_text())["launches"]]
    rows.write_text(
        "gemm,M,E,topk,H,N,latency_us\n"
        + "".join(f"{op},64,128,8,2048,768,{us / 0.996}\n" for op, us in zip(("w13", "w2"), ceilings, strict=True))
    )
    capsys.readouterr()
    assert advise(EXAMPLE, tmp_path, "--tokens", "64", "--measured", str(rows)) == 0
    printed = capsys.readouterr().out
    assert "tuning can win <1 %" in printed and "100 %" not in printed, printed


@pytest.mark.parametrize("dtype", ["mxfp4", "nvfp4", "fp8_w4a8"])
def test_a_table_of_an_unknown_type_is_not_taken_for_bf16(tmp_path, capsys, dtype):
    path = table(tmp_path, {"1": ENTRY, "64": ENTRY}, f"E=128,N=768,device_name=NVIDIA_H200,dtype={dtype}.json")
    assert advise(path, tmp_path / "out") == 2
    assert f"dtype={dtype}: this operand type is unknown" in capsys.readouterr().err
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
    assert any("only fp16 GEMMs of an MI250X were measured" in text for text in result["verdict"]["unknowns"]) == said


@pytest.mark.parametrize(("gpu", "said"), [("MI300X", True), ("H200", False)])
def test_every_command_that_predicts_for_amd_says_so(tmp_path, capsys, gpu, said):
    rows = tmp_path / "rows.csv"
    rows.write_text(f"gpu,M,E,topk,H,N\n{gpu},64,8,2,1024,512\n")
    device = {"MI300X": "AMD_Instinct_MI300X", "H200": "NVIDIA_H200"}[gpu]
    tuned = tmp_path / f"E=8,N=14336,device_name={device}.json"
    tuned.write_text(json.dumps({"64": ENTRY}))
    for command in (
        ["predict", str(rows), "-o", str(tmp_path / "o.csv")],
        ["rank", str(rows), "-o", str(tmp_path / "o.csv")],
        ["audit", str(tuned)],
    ):
        assert main(command) == 0
        assert ("only fp16 GEMMs of an MI250X were measured" in capsys.readouterr().err) == said, command


def test_nothing_is_said_of_amds_library_products_which_were_measured(tmp_path, capsys):
    rows = tmp_path / "rows.csv"
    rows.write_text("gpu,op,M,N,K,dtype\nMI300X,gemm,4096,4096,4096,bf16\n")
    assert main(["predict", str(rows), "-o", str(tmp_path / "o.csv")]) == 0
    assert "No AMD" not in capsys.readouterr().err


def test_a_folder_that_is_named_like_a_table(tmp_path, capsys):
    (tmp_path / NAME).mkdir()
    assert advise(tmp_path / NAME, tmp_path / "out") == 2
    assert "is a directory" in capsys.readouterr().err


def test_token_counts_that_no_entry_covers(tmp_path, capsys):
    name = "N=512,K=512,device_name=NVIDIA_H20,dtype=fp8_w8a8,block_shape=[128,128].json"
    partly = table(tmp_path, {"1": ENTRY, "64": None}, name)
    assert advise(partly, tmp_path / "out", "--tokens", "1,64") == 0
    assert "entry 64 runs there, and cannot be read" in capsys.readouterr().err
    assert advise(partly, tmp_path / "out", "--tokens", "64,128") == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1 and name in message and "64" in message


def test_a_table_of_a_thousand_entries_asks_which(tmp_path, capsys):
    long = table(tmp_path, {str(m): ENTRY for m in range(1, 1001)})
    assert advise(long, tmp_path / "out") == 2
    assert "--tokens" in capsys.readouterr().err
    assert advise(long, tmp_path / "out", "--tokens", "1000") == 0


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


def test_the_stack_asked_for_is_whose_table_it_is_and_its_version_is_said(tmp_path):
    told = {}
    for stack in ("vllm:0.19", "sglang:0.5.10"):
        assert advise(EXAMPLE, tmp_path / stack[:4], "--tokens", "64", "--stack", stack) == 0
        told[stack] = json.loads((tmp_path / stack[:4] / "result.json").read_text())["layers"][0]["stack"]
    assert told == {"vllm:0.19": "vLLM 0.19", "sglang:0.5.10": "SGLang 0.5.10"}


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
