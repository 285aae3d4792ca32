"""Measured evidence: rows and results with rounds, baselines, exit codes, and what every surface says of them."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.cli import main
from advisor.comparison import Options, assemble, new_result
from advisor.comparison.files import Ran, measured_row
from advisor.comparison.gate import conditions
from advisor.comparison.settings import Settings
from advisor.comparison.sides import compare_files
from advisor.learned import load_predictor
from advisor.measurement.launch import Failure
from advisor.rendering.comparison_files import MARKER, to_comment, to_page, to_sarif, to_summary, to_text
from advisor.result.comparison_schema import Compared, Subject, comparison_from_json, comparison_to_json
from advisor.result.result_json import from_json
from advisor.result.schema import Fingerprint, Problem, Round
from advisor.system.errors import InputError, UsageError

DATA = Path(__file__).parent.parent / "data" / "compare"
PROBLEM = Problem(family="gemm", op="gemm", sizes={"M": 64, "N": 4096, "K": 4096})
PRINT = Fingerprint(mode="gpu", gpu="NVIDIA H200", driver="570", cuda="12.8", triton="3.9.0")


def ran(us: float, *, seed: int = 0, rounds: int = 12, **changes) -> Ran:
    noise = 1 + 0.002 * np.random.default_rng(seed).standard_normal(rounds)
    base = Ran(
        kernel="gemm_kernel",
        gpu="H200",
        problem=PROBLEM,
        configuration=None,
        session="one",
        fingerprint=PRINT,
        rounds=tuple(Round(samples_us=(us * float(each),)) for each in noise),
    )
    return replace(base, **changes)


CASES = {
    "regressed": (ran(100), ran(110, seed=1)),
    "improved": (ran(100), ran(90, seed=1)),
    "unchanged": (ran(100), ran(100.1, seed=1)),
    "inconclusive": (ran(100), ran(110, seed=1, rounds=4)),
    "not comparable": (ran(100), ran(100, fingerprint=replace(PRINT, driver="999"))),
    "new": (None, ran(100)),
    "missing": (ran(100), None),
    "failed": (ran(100), ran(50, failure=Failure(kind="wrong-output", message="off by <b>one</b>", stage="check"))),
}


def comparison(*names: str, fail_on: tuple[str, ...] = ("regressed", "failed", "cannot-launch")):
    rows = tuple(measured_row(name, f"{name} <row>", *CASES[name]) for name in names)
    subject = Subject(kind="rows", title="rows.csv", path="rows.csv", change="compared", measured=rows)
    predictor = type("P", (), {"name": "analytical model"})()
    return assemble(Compared(label="a"), Compared(label="b"), [subject], Options(fail_on=fail_on), Settings(), predictor, ())


@pytest.mark.parametrize("name", CASES)
def test_every_verdict_reaches_every_surface(name):
    found = comparison(name)
    assert found.measured_counts == {name: 1} and found.headline.partition(".")[0] == f"1 {name} (measured)"
    assert found.gate.failed == (name in ("regressed", "failed"))
    for text in (to_comment(found), to_summary(found), to_page(found), to_text(found)):
        assert name in text and found.gate.sentence[:6] in text
    assert to_comment(found).startswith(MARKER) and MARKER not in to_summary(found)
    assert "<row>" not in to_page(found)


def test_wrong_output_shows_no_speed():
    (row,) = comparison("failed").subjects[0].measured
    assert row.head is None and row.effect is None and row.verdict == "failed"


@pytest.mark.parametrize("name", CASES)
def test_the_gate_the_words_and_the_condition_agree(name):
    for condition in ("regressed", "inconclusive", "failed"):
        found = comparison(name, fail_on=(condition,))
        assert found.gate.failed == (name == condition)
        assert ("❌" in to_comment(found)) == found.gate.failed
        assert ("Gate failed" in to_page(found)) == found.gate.failed


def test_changed_rows_come_first_and_unchanged_ones_are_folded():
    text = to_comment(comparison(*CASES))
    assert text.index("**regressed**") < text.index("**improved**") < text.index("<details><summary>1 row unchanged")


def test_a_latency_without_rounds_decides_nothing():
    (_, head) = CASES["regressed"]
    bare = replace(head, rounds=(), latency=measured_row("x", "x", None, head).head)
    row = measured_row("x", "x", replace(bare), bare)
    assert row.verdict == "inconclusive" and "rounds" in row.reason


def test_json_and_back_and_unknown_versions():
    found = comparison(*CASES)
    assert comparison_from_json(comparison_to_json(found)) == found
    with pytest.raises(InputError, match="schema_version"):
        comparison_from_json(comparison_to_json(replace(found, schema_version="2.0")))
    for text in ("", "[]", "{}", '{"subjects": 1, "gate": 2, "schema_version": "1.0"}'):
        with pytest.raises(InputError):
            comparison_from_json(text)


def test_sarif_has_the_shape_of_2_1_0():
    document = json.loads(to_sarif(comparison(*CASES)))
    (run,) = document["runs"]
    assert document["version"] == "2.1.0" and {result["ruleId"] for result in run["results"]} >= {"regressed", "failed", "inconclusive"}
    for result in run["results"]:
        assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "rows.csv"


def test_an_alert_stays_the_same_when_its_figures_change():
    def marks(found) -> list[str]:
        return [each["partialFingerprints"]["advisor/v2"] for each in json.loads(to_sarif(found))["runs"][0]["results"]]

    found = comparison(*CASES)
    (subject,) = found.subjects
    later = [replace(row, reason="another", effect=row.effect and replace(row.effect, relative=9.0)) for row in subject.measured]
    assert marks(found) == marks(replace(found, subjects=(replace(subject, measured=tuple(later)),)))
    assert all("%" not in mark and mark.count(":") >= 2 for mark in marks(found))


def test_conditions_are_checked():
    assert conditions(["none"]) == () and conditions(["ceiling<70", "spills"]) == ("ceiling<70", "spills")
    with pytest.raises(UsageError, match="one of regressed"):
        conditions(["slower"])
    with pytest.raises(UsageError, match="`none` stands alone; got none,regressed"):
        conditions(["none", "regressed"])


# --------------------------------------------------------------------------------------------------------- files, command


def test_two_results(capsys, tmp_path):
    before, after = str(DATA / "before.json"), str(DATA / "after.json")
    assert main(["compare", before, after, "--output", str(tmp_path)]) == 0
    assert "4 predicted faster" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "comment.md",
        "comparison.html",
        "comparison.json",
        "comparison.sarif",
        "summary.md",
    ]
    assert main(["compare", after, before, "--fail-on", "predicted-regressed"]) == 1
    assert main(["compare", before, before]) == 0
    capsys.readouterr()
    written = str(tmp_path / "comparison.json")
    assert main(["compare", written, written]) == 2
    assert f"show it with `advisor compare --render {written}`" in capsys.readouterr().err
    assert main(["compare", "--render", str(tmp_path / "comparison.json"), "--format", "md"]) == 0
    assert capsys.readouterr().out.rstrip("\n") == (tmp_path / "comment.md").read_text(encoding="utf-8").rstrip("\n")


@pytest.mark.parametrize("style", ["text", "md", "json", "sarif"])
def test_formats(style, capsys):
    assert main(["compare", str(DATA / "before.json"), str(DATA / "after.json"), "--format", style]) == 0
    assert capsys.readouterr().out.strip()


def test_baselines_change_only_when_asked(tmp_path, capsys):
    result, folder = tmp_path / "result.json", tmp_path / "baselines"
    shutil.copy(DATA / "before.json", result)
    assert main(["compare", "--baseline", str(folder), str(result)]) == 0
    assert not folder.exists() and "--update" in capsys.readouterr().err
    assert main(["compare", "--baseline", str(folder), str(result), "--update"]) == 0
    (stored,) = folder.rglob("*.json")
    known = from_json(result.read_bytes())
    assert stored.parent.parent.name == known.gpu and stored.parent.name == f"triton-{known.fingerprint.triton or 'unknown'}"
    content = stored.read_bytes()
    shutil.copy(DATA / "after.json", result)
    assert main(["compare", "--baseline", str(folder), str(result)]) == 0
    assert "4 predicted faster" in capsys.readouterr().out and stored.read_bytes() == content
    assert main(["compare", str(result), str(result), "--update"]) == 2
    assert main(["compare", "--baseline", str(folder), str(result), "--merge-base", "main"]) == 2


def test_rows_that_were_measured(tmp_path, capsys):
    options = ["--device", "fake", "--sizes", "M=64,N=1024,K=1024"]
    for name in ("a", "b"):
        assert main(["measure", "gemm_kernel", "-o", str(tmp_path / f"{name}.csv"), *options]) == 0
    capsys.readouterr()
    assert main(["compare", str(tmp_path / "a.csv"), str(tmp_path / "b.csv"), "--fail-on", "failed"]) == 0
    out = capsys.readouterr().out
    assert "(simulated)" in out and "µs predicted" in out
    found = compare_files(tmp_path / "a.csv", tmp_path / "b.csv", Options(), load_predictor())
    assert found.predictor == "; ".join({row.head.predicted.source for subject in found.subjects for row in subject.static})
    assert found.base.fingerprint.driver == found.head.fingerprint.driver == "fake" and "driver fake" in to_comment(found)
    store = str(tmp_path / "baselines")
    assert main(["compare", "--baseline", store, str(tmp_path / "a.csv"), "--update", "--fail-on", "none"]) == 0
    assert main(["compare", "--baseline", store, str(tmp_path / "a.csv"), "--fail-on", "none"]) == 0


def test_sides_that_do_not_go_together(tmp_path):
    (tmp_path / "x.csv").write_text("gpu,M,N,K,latency_us\nH200,1,1,1,1\n")
    assert main(["compare", str(DATA / "before.json"), str(tmp_path / "x.csv")]) == 2
    assert main(["compare", str(DATA / "before.json")]) == 2
    assert main(["compare"]) == 2
    assert main(["compare", str(DATA), str(DATA / "before.json")]) == 2


def test_an_old_result_without_a_baseline_is_all_new(predictor):
    found = new_result(from_json((DATA / "before.json").read_bytes()), Options(), predictor, "nowhere")
    assert set(found.static_counts) == {"new"}


def test_tables_of_two_gpus_are_told(tmp_path, capsys):
    example = Path(__file__).parents[2] / "reports/examples/E=128,N=768,device_name=NVIDIA_H20.json"
    other = tmp_path / "E=128,N=768,device_name=NVIDIA_H200.json"
    other.write_text(example.read_text())
    assert main(["compare", str(example), str(other), "--model", "Qwen3-30B-A3B"]) == 0
    assert "are for different launches" in capsys.readouterr().err
    assert main(["compare", str(other), str(other), "--model", "Qwen3-30B-A3B"]) == 0
    assert "different launches" not in capsys.readouterr().err


@pytest.mark.parametrize("name", ["E=128,N=192,device_name=NVIDIA_H20.json", "E=128,N=768,device_name=NVIDIA_H20,dtype=fp8_w8a8.json"])
def test_tables_of_two_problems_are_compared_on_one(tmp_path, capsys, name):
    """What another problem takes says nothing of the entries: the same ones are no change."""
    example = Path(__file__).parents[2] / "reports/examples/E=128,N=768,device_name=NVIDIA_H20.json"
    (tmp_path / name).write_text(example.read_text())
    assert main(["compare", str(example), str(tmp_path / name), "--hidden-size", "2048", "--top-k", "8", "--format", "json"]) == 0
    out, err = capsys.readouterr()
    rows = json.loads(out)["subjects"][0]["static"]
    assert rows and {row["change"] for row in rows} == {0.0} and "are for different launches" in err


def test_tables_of_two_kernels_are_refused(tmp_path, capsys):
    example = Path(__file__).parents[2] / "reports/examples/E=128,N=768,device_name=NVIDIA_H20.json"
    gemm = tmp_path / "N=1536,K=7168,device_name=NVIDIA_H20,dtype=fp8_w8a8,block_shape=[128,128].json"
    gemm.write_text(example.read_text())
    assert main(["compare", str(example), str(gemm)]) == 2
    assert "different kernels" in capsys.readouterr().err


def test_the_gpu_asked_for_is_honoured_or_refused(tmp_path, capsys):
    before, after = str(DATA / "before.json"), str(DATA / "after.json")
    rows = str(DATA.parent / "rows.csv")
    example = str(Path(__file__).parents[2] / "reports/examples/E=128,N=768,device_name=NVIDIA_H20.json")
    for sides in ([before, after], [rows, rows], ["--baseline", str(tmp_path), before]):
        assert main(["compare", *sides, "--gpu", "H100"]) == 2
        assert "say which GPU they are for" in capsys.readouterr().err
    assert main(["compare", example, example, "--model", "Qwen3-30B-A3B", "--gpu", "H100", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["gpus"] == ["H100"]


OF_TABLES = [["--model", "Mixtral-8x7B"], ["--hidden-size", "64"], ["--top-k", "2"], ["--tensor-parallel", "2"], ["--expert-parallel", "2"]]


@pytest.mark.parametrize("option", [*OF_TABLES, ["--launches", str(DATA / "before.json")]])
def test_what_says_nothing_of_results_and_rows_is_refused(tmp_path, capsys, option):
    before, rows = str(DATA / "before.json"), str(DATA.parent / "rows.csv")
    for sides in ([before, before], [rows, rows], ["--baseline", str(tmp_path), before], ["--baseline", str(tmp_path), rows]):
        assert main(["compare", *sides, *option]) == 2
        assert option[0] in capsys.readouterr().err


def test_a_model_says_nothing_of_kernels(tmp_path, capsys):
    (tmp_path / "k.py").write_text("import triton")
    assert main(["compare", *[str(tmp_path / "k.py")] * 2, *OF_TABLES[0]]) == 2
    assert "--model: only said of tables" in capsys.readouterr().err


@pytest.mark.parametrize(
    "option",
    [
        *OF_TABLES,
        ["--fail-on", "predicted-regressed"],
        ["--fail-on", "none"],
        ["--gpu", "H100"],
        ["--update"],
        ["--no-compile"],
        ["--launches", "x"],
        ["--weights", "x"],
        ["--merge-base", "main"],
        ["--baseline", "x"],
        ["side"],
    ],
)
def test_what_is_shown_again_takes_no_other_word(tmp_path, capsys, option):
    main(["compare", str(DATA / "before.json"), str(DATA / "after.json"), "--output", str(tmp_path)])
    written = str(tmp_path / "comparison.json")
    assert main(["compare", "--render", written, "--format", "md"]) == 0
    capsys.readouterr()
    assert main(["compare", "--render", written, *option]) == 2
    assert capsys.readouterr().err.startswith("advisor: error: --render ")


def test_rows_of_which_nothing_is_known_are_shown_and_compare_with_nothing(tmp_path, capsys):
    """As the serving stack launches it, and not measured: neither figure is there."""
    rows = DATA.parent / "rows.csv"
    assert main(["compare", str(rows), str(rows)]) == 0
    out = capsys.readouterr().out
    assert "1 not comparable, 3 predicted unchanged" in out and "L40" in out and "neither a configuration nor a latency" in out
    lines = rows.read_text().splitlines()
    served, empty = tmp_path / "served.csv", tmp_path / "empty.csv"
    served.write_text(f"{lines[0]}\n{lines[-1]}\n")
    empty.write_text(f"{lines[0]}\n{lines[1]}\n")
    for style in ("text", "md", "json"):
        assert main(["compare", str(served), str(served), "--format", style]) == 4
        captured = capsys.readouterr()
        assert "Nothing could be compared" in captured.out and "not comparable" in captured.err
    assert main(["compare", str(served), str(empty)]) == 4
    assert "1 new, 1 missing" in capsys.readouterr().out


def test_sides_for_different_gpus_are_not_comparable(tmp_path, capsys):
    before = DATA / "before.json"
    gpu = from_json(before.read_bytes()).gpu
    other, folder = tmp_path / "other.json", tmp_path / "folder"
    other.write_text(before.read_text().replace(f'"gpu": "{gpu}"', '"gpu": "H100"'))
    rows, elsewhere = tmp_path / "rows.csv", tmp_path / "elsewhere.csv"
    rows.write_text("gpu,M,N,K,latency_us\nH200,64,4096,4096,20\nH200,128,4096,4096,30\n")
    elsewhere.write_text(rows.read_text().replace("H200", "H100"))
    for sides in ((before, other), (rows, elsewhere)):
        assert main(["compare", *map(str, sides), "--output", str(folder)]) == 4
        captured = capsys.readouterr()
        assert "are for different GPUs" in captured.out and "Nothing could be compared" in captured.out and "not comparable" in captured.err
        assert main(["compare", "--render", str(folder / "comparison.json")]) == 4
    both = tmp_path / "both.csv"
    both.write_text(rows.read_text() + elsewhere.read_text().partition("\n")[2])
    capsys.readouterr()
    assert main(["compare", str(rows), str(both)]) == 0
    assert "different GPUs" not in capsys.readouterr().out


def test_a_side_that_is_not_there_is_the_one_named(tmp_path, monkeypatch, capsys):
    before = str(DATA / "before.json")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for folder in (Path(__file__).parent, tmp_path):  # in a repository, and in none
        monkeypatch.chdir(folder)
        assert main(["compare", before, "nope"]) == 2
        assert "error: nope: " in capsys.readouterr().err
        assert main(["compare", before]) == 2
        told = capsys.readouterr().err
        assert "before.json is a path" in told and "--baseline DIR" in told
