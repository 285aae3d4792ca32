"""`advisor evaluate ROWS --weights W` on each kind of file alone: every figure that the rows allow, and no other."""

from __future__ import annotations

import json

import pytest

from advisor.cli import main
from advisor.cli.evaluate_command import show_splits
from advisor.learned import weights as store
from advisor.learned.moe.launch import as_rows
from advisor.pipelines.space import family_space
from advisor.training import evaluate

LIBRARY = """gpu,op,B,M,N,K,H,latency_us,kernel
Tesla T4,softmax,64,,,,1024,20.5,k
Tesla T4,linear,1,64,128,256,,30.5,k
Tesla P4,add,8,,,,512,9,k
"""
EVALUATE = evaluate.evaluate
GEMM = "gpu,M,N,K,latency_us\nH20,64,512,1024,12.5\nH200,64,512,1024,9.5\n"


@pytest.fixture
def judged(weights, tmp_path, capsys, monkeypatch):
    """Runs the command on files; returns its JSON, and checks that the tables print too, of the same figures."""
    store.save(weights, tmp_path / "w.npz")

    def run(*paths):
        arguments = ["evaluate", *map(str, paths), "--weights", str(tmp_path / "w.npz")]
        figures = []

        def evaluated(*given):
            if not figures:
                figures.append(EVALUATE(*given))
            return figures[0]

        monkeypatch.setattr(evaluate, "evaluate", evaluated)
        assert main(arguments) == 0
        text = capsys.readouterr().out
        assert "nan" not in text.split("\n")[0]
        assert main([*arguments, "--format", "json"]) == 0
        found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        for note in found.get("notes", ()):
            assert note in text
        return found

    return run


def test_served_alone(judged, world):
    found = judged(world / "default.csv")
    assert set(found["tasks"]) == {"served"} and "ranking" not in found and "diagnosis" not in found
    assert found["in_sample"] is True
    served = found["tasks"]["served"]
    assert served["mape_percent"] < 1.5 and set(served["per_gpu"]) == {"A100", "H800", "L40"}
    assert {"M <= E", "memory-bound"} <= set(served["per_regime"]) and len(served["per_model"]) == 3
    assert set(served["per_novelty"]) == {"GPU seen, model seen"}


def test_near_optimal_alone_has_its_own_best(judged, world):
    found = judged(world / "near.csv")
    assert set(found["tasks"]) == {"exact", "best"}
    assert found["ranking"]["hit_at_8_percent"] > 80
    assert "diagnosis" not in found
    both = judged(world / "near.csv", world / "summary.csv")
    assert both["ranking"] == found["ranking"] and both["diagnosis"]["all"]["rows"] == found["ranking"]["problems"]
    assert not any("least" in note for note in both.get("notes", ()))


def test_summary_alone_is_not_ranked(judged, world):
    found = judged(world / "summary.csv")
    assert set(found["tasks"]) == {"exact", "best"}
    assert found["diagnosis"]["all"]["rows"] == found["tasks"]["best"]["rows"]
    assert "ranking" not in found and any("ranking is not judged" in note for note in found["notes"])


def test_single_configurations_are_no_sweep(judged, world, tmp_path):
    lines = (world / "near.csv").read_text().splitlines()
    first: dict[tuple[str, ...], str] = {}
    for line in lines[1:]:
        first.setdefault(tuple(line.split(",")[:7]), line)
    (tmp_path / "one.csv").write_text("\n".join([lines[0], *first.values()]) + "\n")
    found = judged(tmp_path / "one.csv")
    assert set(found["tasks"]) == {"exact"} and "ranking" not in found


def test_the_least_of_a_few_configurations_is_no_best_of_a_sweep(judged, tmp_path):
    """A campaign's first visit to a problem tries eight of thousands; half of what can launch is a sweep, and is ranked."""
    space = [row for row in as_rows(family_space("fused_moe")).astype(int).tolist() if row[3] == 1]
    names = "BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,GROUP_SIZE_M,num_warps,num_stages"
    for name, groups in (("few", (1,)), ("half", (1, 4, 8, 16))):
        rows = [[*row[:3], group, *row[4:]] for group in groups for row in (space if name == "half" else space[100:108])]
        lines = [f"A100,64,8,2,1024,512,{100 + 7 * i % 97},{','.join(map(str, row))}" for i, row in enumerate(rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join([f"gpu,M,E,topk,H,N,latency_us,{names}", *lines]) + "\n")
    few, half = judged(tmp_path / "few.csv"), judged(tmp_path / "half.csv")
    assert set(few["tasks"]) == {"exact"} and "ranking" not in few
    assert any("few.csv: 1 of 1 problems are no sweep" in note for note in few["notes"])
    assert set(half["tasks"]) == {"exact", "best"} and half["ranking"]["problems"] == 1
    assert not any("no sweep, for" in note for note in half["notes"])


def test_library_kernels_and_a_mix(judged, world, tmp_path):
    (tmp_path / "gemm_fp8.csv").write_text(GEMM)
    (tmp_path / "library_ops.csv").write_text(LIBRARY)
    found = judged(tmp_path / "gemm_fp8.csv")
    assert set(found["tasks"]) == {"gemm/fp8"} and set(found["tasks"]["gemm/fp8"]["per_gpu"]) == {"H20", "H200"}
    assert found["in_sample"] is False and set(found["tasks"]["gemm/fp8"]["per_novelty"]) == {"GPU new"}
    found = judged(tmp_path / "library_ops.csv")
    assert set(found["tasks"]) == {"gemm/fp32", "rows/fp32"}
    assert set(found["tasks"]["rows/fp32"]["per_operator"]) == {"softmax", "add"}
    mixed = judged(tmp_path / "library_ops.csv", tmp_path / "gemm_fp8.csv", world)
    assert set(mixed["tasks"]) == {"served", "exact", "best", "gemm/fp8", "gemm/fp32", "rows/fp32"}
    assert "ranking" in mixed and "diagnosis" in mixed


def test_rows_that_cannot_launch_are_counted_and_named_and_left_out_of_the_errors(judged, tmp_path):
    header = "gpu,M,E,topk,H,N,latency_us,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,num_warps,num_stages\n"
    good, stuck = "H100,64,128,8,2048,768,300,16,64,64,4,3\n", "H100,64,128,8,2048,768,3,256,256,256,4,5\n"
    (tmp_path / "good.csv").write_text(header + good)
    (tmp_path / "both.csv").write_text(header + good + stuck)
    (tmp_path / "stuck.csv").write_text(header + stuck)
    plain, found = (judged(tmp_path / name)["tasks"]["exact"] for name in ("good.csv", "both.csv"))
    assert (plain.pop("cannot_launch"), found.pop("cannot_launch")) == (0, 1)
    assert (plain.pop("bound_violations"), found.pop("bound_violations")) == (0, 1), "below the bound it is still"
    figures = [name for name, value in plain.items() if isinstance(value, float | int)]
    assert {name: found[name] for name in figures} == pytest.approx({name: plain[name] for name in figures}, rel=1e-6)
    notes = judged(tmp_path / "both.csv")["notes"]
    assert any("both.csv: 1 of 2 rows measured on H100 cannot launch" in note and "(row 2)" in note for note in notes)
    none = judged(tmp_path / "stuck.csv")
    assert not none["tasks"] and any("stuck.csv" in note for note in none["notes"])


SUMMARY = "gpu,M,E,topk,H,N,best_us,default_us,default_BLOCK_SIZE_M,default_BLOCK_SIZE_N,default_BLOCK_SIZE_K"


@pytest.mark.parametrize("command", ["evaluate", "predict"])
@pytest.mark.parametrize(
    ("header", "cells", "column"),
    [
        ("", ("abc", "64", "64"), "default_BLOCK_SIZE_M"),
        ("", ("16", "", "64"), "default_BLOCK_SIZE_N"),
        ("", ("17", "64", "64"), "default_BLOCK_SIZE_M"),
        ("", ("nan", "64", "64"), "default_BLOCK_SIZE_M"),
        ("", ("-16", "64", "64"), "default_BLOCK_SIZE_M"),
        (",default_num_warps", ("16", "64", "64", "0"), "default_num_warps"),
    ],
)
def test_a_bad_default_of_a_summary_is_named(tmp_path, capsys, command, header, cells, column):
    rows = tmp_path / "summary.csv"
    good, bad = (",".join(["H100,64,128,8,2048,768,250,300", *each]) for each in (["16", "64", "64", "4"][: len(cells)], cells))
    rows.write_text(f"{SUMMARY}{header}\n{good}\n{bad}\n")
    assert main([command, str(rows), *(["-o", str(tmp_path / "out.csv")] if command == "predict" else [])]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert f"summary.csv: row 2: {column}" in message and "internal" not in message


def test_what_a_default_leaves_out_is_what_predict_takes(judged, tmp_path):
    (tmp_path / "whole.csv").write_text(
        f"{SUMMARY},default_GROUP_SIZE_M,default_num_warps,default_num_stages\nH100,64,128,8,2048,768,250,300,16,64,64,1,4,3\n"
    )
    (tmp_path / "blocks.csv").write_text(f"{SUMMARY}\nH100,64,128,8,2048,768,250,300,16,64,64\n")
    assert set(judged(tmp_path / "blocks.csv")["tasks"]) == {"exact", "best"}
    assert judged(tmp_path / "blocks.csv") == judged(tmp_path / "whole.csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--leave-out", "gpu", "--test-gpu", "A100"], "splits of its own"),
        (["--leave-out", "gpu", "--weights", "w.npz"], "trains anew"),
        (["--test-gpu", "H20"], "H20"),
        (["--leave-out", "nk"], "nk"),
        (["--card", "/no/such/folder/CARD.md"], "cannot write"),
    ],
)
def test_usage(world, capsys, options, message):
    assert main(["evaluate", str(world), *options]) == 2
    assert message in capsys.readouterr().err


def test_what_is_said_of_a_split_in_words_is_printed(capsys) -> None:
    show_splits(
        {
            "layers: models left out": {
                "layer bf16": {"rows": 3, "mape_percent": 4.2},
                "two defaults": {"rows": 2, "words": "correlation 0.9"},
            }
        }
    )
    plain, said = capsys.readouterr().out.splitlines()[-2:]
    assert plain.split() == ["layer", "bf16", "3", "4.20"] and said.endswith("  correlation 0.9")
