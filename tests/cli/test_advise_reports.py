"""`advisor advise` writes reports: `--export`, the table without a GPU, as both stacks load it; and folders of tables, a line each."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.cli import build_parser, main
from advisor.cli.advise_reports import note_of_unsure
from advisor.rendering.figures import range_text
from advisor.result.schema import LayerReport
from advisor.system import triton_install
from advisor.tables.audit import audit_table
from advisor.tables.entries import default_configuration
from advisor.tables.tables import entry_of, read_table, select
from tests.rendering import factory

GLM = ["advise", "fused_moe", "--model", "GLM-4.5-Air", "--tensor-parallel", "4", "--gpu", "H200"]
QWEN = ["--model", "Qwen3-30B-A3B", "--tensor-parallel", "1"]
NAME = "E=128,N=352,device_name=NVIDIA_H200.json"
FUSED = NAME.replace("E=128", "E=129")
"""What SGLang loads: it runs the shared expert of GLM-4.5-Air as one more routed one."""
VLLM_KEYS = {"BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages"}


def advise(tmp_path: Path, *more: str, folder: str = "tables") -> int:
    where = ["--export", str(tmp_path / folder), "--output", str(tmp_path / "out")]
    return main([*GLM, *where, *more])


def vllm_loads(folder: Path, name: str) -> dict[int, dict[str, int]]:
    """What vLLM 0.33 does with a file in VLLM_TUNED_CONFIG_FOLDER (`fused_moe.get_moe_configs`)."""
    tuned = json.loads((folder / name).read_text(encoding="utf-8"))
    tuned.pop("triton_version", None)
    return {int(key): value for key, value in tuned.items()}


def sglang_loads(folder: Path, name: str) -> dict[int, dict[str, int]]:
    """What SGLang 0.5.23 does with a file in SGLANG_MOE_CONFIG_DIR (`fused_moe_triton_config.get_moe_configs`)."""
    (path,) = (folder / "configs").glob(f"triton_*/{name}")
    return {int(key): value for key, value in json.loads(path.read_text(encoding="utf-8")).items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """What one command exports, for every token count."""
    made = tmp_path_factory.mktemp("predicted")
    assert advise(made) == 0
    return made / "tables"


def test_a_predicted_table_is_loaded_by_both_stacks(folder):
    up, down = sglang_loads(folder, FUSED), sglang_loads(folder, FUSED.replace(".json", "_down.json"))
    for entries in (vllm_loads(folder, NAME), up, down):
        assert {1, 64, 4096} <= set(entries) and all(set(entry) >= VLLM_KEYS for entry in entries.values())
    assert up.keys() == down.keys()
    assert all(up[key]["BLOCK_SIZE_M"] == down[key]["BLOCK_SIZE_M"] for key in up), "SGLang asserts it of every pair"
    for path in folder.rglob("E=*.json"):
        assert not [issue for issue in audit_table(path)[1] if issue.severity == "error"], path


def test_every_entry_is_marked_and_what_is_not_recommended_runs_as_before(folder):
    entries = vllm_loads(folder, NAME)
    marks = json.loads((folder / "predicted.json").read_text(encoding="utf-8"))["tables"]
    assert {path.rpartition("/")[2] for path in marks} == {NAME, FUSED, FUSED.replace(".json", "_down.json")}
    own = marks[NAME]["entries"]
    assert own.keys() == {str(key) for key in entries}
    for tokens, entry in entries.items():
        before = entry_of(default_configuration("vllm", tokens, 128))
        assert (own[str(tokens)]["origin"] == "predicted") == (entry != before), tokens
    predicted = [mark for mark in own.values() if mark["origin"] == "predicted"]
    assert predicted and all(len(mark["launches"]) == 2 for mark in predicted), "w13 and w2, what one loses included"
    assert all(sum(row["after_us"] for row in mark["launches"]) < sum(row["before_us"] for row in mark["launches"]) for mark in predicted)


def test_every_entry_of_the_usual_token_counts_was_examined(folder):
    """The exported table has entries beyond the tuner's token counts: pinned unseen, a prefill loses what it could win."""
    own = json.loads((folder / "predicted.json").read_text(encoding="utf-8"))["tables"][NAME]["entries"]
    assert {"8192", "16384"} <= own.keys() and all(own[key]["launches"] for key in ("1", "4096", "8192", "16384"))


def test_the_default_is_that_of_the_version_named_on_the_first_screen(tmp_path, capsys):
    now = {}
    for version in ("0.16", "0.17"):
        assert advise(tmp_path, "--stack", f"vllm:{version}", "--tokens", "1024", "--format", "json", folder=version) == 0
        result = json.loads(capsys.readouterr().out)
        now[version] = {launch["configuration"]["parameters"]["BLOCK_SIZE_K"] for launch in result["launches"]}
        assert advise(tmp_path, "--stack", f"vllm:{version}", "--tokens", "1024", folder=f"{version}-shown") == 0
        assert f"vLLM {version}'s default, as without a table" in capsys.readouterr().out
    assert now == {"0.16": {32}, "0.17": {64}}
    table = read_table(tmp_path / "0.16" / NAME)
    assert entry_of(select(table, 2048).configuration) == entry_of(default_configuration("vllm", 2048, 128, version=1600))


def test_a_stack_is_told_where_its_table_lies_if_one_was_written_for_it(tmp_path, capsys):
    for more, stacks in (((), {"VLLM_TUNED_CONFIG_FOLDER", "SGLANG_MOE_CONFIG_DIR"}), (("--stack", "vllm"), {"VLLM_TUNED_CONFIG_FOLDER"})):
        assert advise(tmp_path, "--tokens", "64", *more) == 0
        notes = capsys.readouterr().err
        assert notes.count("only where the warning names that file") == 1
        lines = [line for line in notes.splitlines() if ": export " in line]
        assert {line.rpartition("export ")[2].partition("=")[0] for line in lines} == stacks
        assert all(line.endswith(f"={(tmp_path / 'tables').resolve()}") for line in lines)


def test_a_table_of_defaults_is_told_apart_and_what_may_win_is_to_be_measured(tmp_path, capsys, monkeypatch):
    """Where no change is sure enough the table that is written changes nothing, and `advisor tune` names the token counts to measure."""
    monkeypatch.setattr("advisor.advising.table_report.LIKELY", 1.01)
    assert advise(tmp_path, "--stack", "vllm", "--tokens", "64,512") == 0
    out, notes = capsys.readouterr()
    assert "holds the stack's defaults" in notes and re.search(r"· a gain of 2 % has a chance of \d+ %, 101 % needed", out)
    command = next(line.partition(": advisor tune ")[2] for line in notes.splitlines() if ": advisor tune " in line)
    words = shlex.split(command)
    assert (
        words[0] == "fused_moe"
        and "64" in words[words.index("--tokens") + 1]
        and set(words[words.index("--tokens") + 1].split(",")) <= {"64", "512"}
    )
    assert build_parser("tune").parse_args(["tune", *words]).routing == "random"


@pytest.mark.parametrize(("part", "tokens"), [(1.2, "128"), (1.0, "")])
def test_sizes_at_which_two_models_disagree_are_to_be_measured_whatever_is_recommended(part, tokens, capsys):
    result = factory.result((64, 128), ("w13", "w2"))
    assert not any(launch.kept for launch in result.launches)
    own = [launch for launch in result.launches if launch.problem.sizes["M"] == 128]
    parts = {launch.problem.op: part * launch.predicted.us for launch in own}
    layer = LayerReport(
        id="layer-M128",
        tokens=128,
        stack="vLLM 0.24",
        routing="random",
        launches=tuple(launch.id for launch in own),
        bound=own[0].bound,
        predicted=own[0].predicted,
        ceiling=own[0].predicted,
        recommended=None,
        measured=None,
        parts=parts,
    )
    note_of_unsure(replace(result, layers=(layer,)), build_parser("advise").parse_args(["advise", "fused_moe"]))
    noted = capsys.readouterr().err
    assert f"--tokens {tokens} --export" in noted if tokens else not noted


def test_a_name_that_says_fp8_is_no_model_of_16_bits(tmp_path, capsys):
    """As `advisor model` reads it: Qwen3-235B-A22B-FP8 has a scale for 128 x 128 weights."""
    command = ["advise", "fused_moe", "--gpu", "H200", "--tokens", "64", "--tp", "4", "--output", str(tmp_path / "out")]
    assert main([*command, "--model", "Qwen3-235B-A22B-FP8"]) == 0 and " fp8 block_shape=[128,128] " in capsys.readouterr().out
    assert main([*command, "--model", "Qwen3-235B-A22B-FP8", "--dtype", "bf16"]) == 0 and " bf16 " in capsys.readouterr().out
    assert main([*command, "--model", "Qwen3-235B-A22B-AWQ"]) == 2 and "tables are of bf16 and of fp8" in capsys.readouterr().err


def test_the_table_of_a_model_whose_shared_expert_is_fused_is_named_as_sglang_asks_for_it(tmp_path, capsys):
    assert advise(tmp_path, "--stack", "sglang:0.5.8", "--tokens", "64,512") == 0
    printed = capsys.readouterr()
    assert "E=129 topk=9 H=4096 N=352" in printed.out and "E = 129 and top-k 9, as in the table's name" in printed.out
    assert sglang_loads(tmp_path / "tables", FUSED) and not list((tmp_path / "tables").rglob(NAME))
    assert "--sizes E=129,topk=9" in printed.err, "a tuner is not told the stack"
    apart = ["--stack", "sglang", "--tokens", "64", "--sizes", "E=128,topk=8"]
    assert advise(tmp_path, *apart, folder="apart") == 0
    assert "as one more routed one" not in capsys.readouterr().out and sglang_loads(tmp_path / "apart", NAME)


def test_a_layer_without_a_table_is_advised_in_entries(tmp_path, capsys):
    """vLLM's user pastes no `triton.Config`, and an entry of vLLM serves both products."""
    assert advise(tmp_path, *QWEN, "--stack", "vllm", "--tokens", "6144,8192", "--format", "json") == 0
    result = json.loads(capsys.readouterr().out)
    first = result["actions"][0]
    assert first["title"] == "Write a table with entries M=6144, 8192" and first["snippet"].startswith('"6144": {')
    assert len(first["launches"]) == 4 and "Changing 2 of 2 table entries " in result["verdict"]["sentence"]
    before, after = ([layer[name]["us"] for layer in result["layers"]] for name in ("predicted", "recommended"))
    assert first["saving_us"] == pytest.approx(sum(before) - sum(after)) and first["layers_us"] == pytest.approx(sum(before))
    share = range_text([1 - then / now for now, then in zip(before, after, strict=True)])
    assert result["verdict"]["sentence"].endswith(f" should save {share} of MoE layer time."), "a step runs one layer, not their sum"
    launches = {launch["id"]: launch for launch in result["launches"]}
    for layer in result["layers"]:
        now, then = (
            sum(latency["us"] for latency in side)
            for side in zip(*((launches[i]["predicted"], launches[i]["recommendation"]["latency"]) for i in layer["launches"]), strict=True)
        )
        gain = layer["predicted"]["us"] / layer["recommended"]["us"]
        assert 1 < gain < now / then, "a layer gains less than its products alone: its other kernels take what they took"
    assert advise(tmp_path, *QWEN, "--stack", "sglang", "--tokens", "6144", "--format", "json") == 0
    entries = json.loads(capsys.readouterr().out)["actions"][0]["snippet"]
    assert entries.startswith('"6144": {') and '_down table:\n"6144": {' in entries, "one table for each product"
    assert advise(tmp_path, *QWEN, "--stack", "vllm", "--tokens", "6144,8192", folder="shown") == 0
    shown = capsys.readouterr().out
    rows = [line for line in shown.splitlines() if line.startswith("  M=")]
    assert "MoE layers  E=" in shown and len(rows) == 2 and all(" → " in row and "saves" in row for row in rows), "one line for each layer"
    assert "all 4 launches" not in shown and "triton.Config" not in shown
    assert advise(tmp_path, *QWEN, "--stack", "vllm", "--tokens", "6144,8192", "-v", folder="shown") == 0
    assert " 4 launches" not in capsys.readouterr().out, "a step runs one token count: their sum is no time"


def test_several_models_and_gpus_go_into_one_folder(tmp_path, capsys):
    command = [*GLM, "--tokens", "64", "--export", str(tmp_path / "tables"), "--output", str(tmp_path / "out"), "--stack", "vllm"]
    command[command.index("GLM-4.5-Air")] = "GLM-4.5-Air,Qwen3-235B-A22B"
    assert main([*command, "--gpu", "B200"]) == 0
    marks = json.loads((tmp_path / "tables" / "predicted.json").read_text(encoding="utf-8"))["tables"]
    assert {(each["model"], each["gpu"]) for each in marks.values()} == {
        (model, gpu) for model in ("GLM-4.5-Air", "Qwen3-235B-A22B") for gpu in ("H200", "B200")
    }
    assert all((tmp_path / "tables" / path).is_file() for path in marks)
    assert (tmp_path / "out" / "Qwen3-235B-A22B" / "b200" / "report.html").is_file()
    command[command.index("GLM-4.5-Air,Qwen3-235B-A22B")] = "GLM-4.5-Air,Qwen3-235B-A22C"
    command[command.index(str(tmp_path / "out"))] = str(tmp_path / "none")
    assert main(command) == 2 and not (tmp_path / "none").exists() and "Qwen3-235B-A22B" in capsys.readouterr().err


def test_the_page_has_the_table_before_and_after(tmp_path, capsys):
    assert advise(tmp_path, "--tokens", "64,4096") == 0
    assert "written:" in capsys.readouterr().err
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    (export,) = (each for each in json.loads((tmp_path / "out" / "result.json").read_text())["exports"] if each["kind"] == "table")
    assert export["name"] == NAME and [row["launch"] for row in export["rows"]] == ["w13-M64", "w2-M64", "w13-M4096", "w2-M4096"]
    assert f'aria-label="Before and after {NAME}"' in page


def test_a_second_run_changes_nothing(tmp_path):
    assert advise(tmp_path, "--tokens", "2,64,4096") == 0
    tables = sorted((tmp_path / "tables").rglob("E=*.json"))
    before = [path.read_bytes() for path in tables]
    assert len(before) == 3
    assert advise(tmp_path, "--tokens", "2,64,4096") == 0
    assert [path.read_bytes() for path in tables] == before


def test_an_entry_that_is_there_gives_way_only_beyond_doubt(tmp_path):
    """A far worse one is replaced; one that is predicted a little slower stays, and what is not asked about is not touched."""
    folder = tmp_path / "tables"
    folder.mkdir()
    slow = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 64, "num_warps": 8, "num_stages": 2}
    good = entry_of(default_configuration("vllm", 1, 128))
    (folder / NAME).write_text(json.dumps({"1": good, "64": slow, "8192": slow}))
    assert advise(tmp_path, "--stack", "vllm", "--tokens", "1,64") == 0
    after = vllm_loads(folder, NAME)
    assert after[64] != slow and after[1] == good and after[8192] == slow
    marks = json.loads((folder / "predicted.json").read_text())["tables"][NAME]["entries"]
    assert (marks["64"]["origin"], marks["1"]["origin"], marks["8192"]["origin"]) == ("predicted", "as it was", "as it was")
    assert select(read_table(folder / NAME), 4096).configuration is not None


def test_tables_of_a_folder_are_exported_for_every_gpu(tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    entry = {"BLOCK_SIZE_M": 128, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 64, "num_warps": 8, "num_stages": 2}
    for name in ("E=128,N=768,device_name=NVIDIA_H200.json", "E=64,N=1408,device_name=NVIDIA_H200.json"):
        (source / name).write_text(json.dumps({"16": entry}))
    arguments = ["advise", str(source), "--gpu", "H100,H200", "--export", str(tmp_path / "new"), "--output", str(tmp_path / "out")]
    assert main(arguments) == 0
    assert sorted(path.name for path in (tmp_path / "new").glob("E=*.json")) == [
        f"E={layer},device_name=NVIDIA_{gpu}.json" for layer in ("128,N=768", "64,N=1408") for gpu in ("H100_80GB_HBM3", "H200")
    ]
    assert len(json.loads((tmp_path / "new" / "predicted.json").read_text())["tables"]) == 4


@pytest.mark.parametrize(("dtype", "more", "name"), [("fp8", ["--block-shape", "128,128"], ",dtype=fp8_w8a8,block_shape=[128,128]")])
def test_a_quantization_block_is_in_the_name(tmp_path, dtype, more, name):
    assert advise(tmp_path, "--dtype", dtype, *more, "--tokens", "64") == 0
    assert (tmp_path / "tables" / NAME.replace(".json", f"{name}.json")).is_file()
    (sglang,) = (tmp_path / "tables" / "configs").glob("*/*block_shape=[[]128, 128[]].json")
    assert json.loads(sglang.read_text())


@pytest.mark.parametrize(("installed", "folder"), [("3.9.0", "triton_3_9_0"), ("3.7.0rc1+git12ab", "triton_3_7_0"), (None, "triton_3_6_0")])
def test_sglang_can_sort_the_folder_whatever_triton_is_here(installed, folder, tmp_path, monkeypatch):
    """`get_moe_configs` turns what is between underscores into integers, of every folder that lies there."""
    monkeypatch.setattr(triton_install, "version", lambda: installed)
    assert advise(tmp_path, "--tokens", "64", "--stack", "sglang") == 0
    assert [path.name for path in (tmp_path / "tables" / "configs").iterdir()] == [folder]


def test_what_no_stack_asks_for_is_refused(tmp_path, capsys):
    assert main(["advise", "softmax", "--sizes", "B=64,H=512", "--gpu", "H200", "--export", str(tmp_path), "--output", str(tmp_path)]) == 2
    assert "no serving stack looks for a table" in capsys.readouterr().err


def test_tune_without_a_gpu_names_the_way(tmp_path, capsys):
    arguments = ["tune", "fused_moe", "--model", "GLM-4.5-Air", "--gpu", "H200", "--export", str(tmp_path), "--output", str(tmp_path / "o")]
    assert main(arguments) == 4
    assert "`advisor advise` takes the same target and --export" in capsys.readouterr().err


ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}
NAMES = ("E=128,N=768,device_name=NVIDIA_H20.json", "E=128,N=768,device_name=NVIDIA_H200.json")


@pytest.fixture
def tables(tmp_path):
    """One that is good enough, and one with an entry far too large."""
    folder = tmp_path / "tables"
    folder.mkdir()
    large = {**ENTRY, "BLOCK_SIZE_M": 256, "BLOCK_SIZE_N": 256, "num_stages": 2}
    for name, entry in zip(NAMES, (ENTRY, large), strict=True):
        (folder / name).write_text(json.dumps({"64": entry}), encoding="utf-8")
    return folder


def test_all_tables_and_gpus_stand_together(tables, tmp_path, capsys):
    assert main(["advise", str(tables), "--output", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if ".json" in line] == ["H200", "H20"]
    page = (tmp_path / "out" / "overview.html").read_text(encoding="utf-8")
    for name in NAMES:
        assert (tmp_path / "out" / name.removesuffix(".json") / "report.html").is_file() and name in page


def test_several_gpus_have_one_overview(tables, tmp_path, capsys):
    assert main(["advise", str(tables), "--gpu", "H100,L40S", "--output", str(tmp_path / "out"), "--format", "md"]) == 0
    assert capsys.readouterr().out.count("\n| L40S | ") == 2
    page = (tmp_path / "out" / "overview.html").read_text(encoding="utf-8")
    assert all(f'href="{gpu}/E%3D128' in page for gpu in ("h100", "l40s")) and (tmp_path / "out" / "l40s").is_dir()


def test_json_says_the_gpu_of_each_table(tables, tmp_path, capsys):
    assert main(["advise", str(tables), "--output", str(tmp_path / "out"), "--format", "json"]) == 0
    assert [(row["table"], row["gpu"]) for row in json.loads(capsys.readouterr().out)] == list(zip(NAMES, ("H20", "H200"), strict=True))


def test_what_was_found_is_shown_where_it_is_interrupted(tables, tmp_path, capsys, monkeypatch):
    from advisor.advising import public

    advise = public.report_on_launches

    def interrupted(target, *more, **options):
        if target.gpu.name == "H200":
            raise KeyboardInterrupt
        return advise(target, *more, **options)

    monkeypatch.setattr(public, "report_on_launches", interrupted)
    assert main(["advise", str(tables), "--output", str(tmp_path / "out")]) == 130
    assert NAMES[0] in capsys.readouterr().out and (tmp_path / "out" / "overview.html").is_file()


def test_a_table_that_is_skipped_is_named_once(tables, tmp_path, capsys):
    (tables / NAMES[0]).write_text("{", encoding="utf-8")
    assert main(["advise", str(tables), "--output", str(tmp_path / "out")]) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if line.startswith("advisor: skipped "))
    assert f"skipped {NAMES[0]}: not valid JSON" in line and line.count(NAMES[0]) == 1
