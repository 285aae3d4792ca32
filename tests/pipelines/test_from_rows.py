"""Rows as batches: what a row says of its problem is what the model is asked."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from advisor.cli import main
from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.pipelines import bound, from_rows, work
from advisor.rows.rows import parse_rows
from advisor.training import data

ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
TABLES = (
    "E=16,N=7168,device_name=NVIDIA_A100-SXM4-80GB,dtype=int8_w8a16",
    "E=16,N=768,device_name=NVIDIA_H200,dtype=int4_w4a16",
    "E=128,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8",
    "E=128,N=768,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128]",
    "E=128,N=768,device_name=NVIDIA_H200",
)


def predicted(rows: Path, out: Path, *options: str) -> list[dict[str, str]]:
    assert main(["predict", str(rows), "-o", str(out), *options]) == 0
    with out.open(newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.mark.parametrize("name", TABLES)
def test_rows_of_a_table_are_predicted_as_advise_predicts_the_table(name, tmp_path, capsys):
    """Weights of half the bytes, blocks of scales: `measure` writes them down, and every command reads them."""
    table, rows = tmp_path / f"{name}.json", tmp_path / "rows.csv"
    table.write_text(json.dumps({"1": ENTRY, "16": ENTRY}))
    asked = [str(table), "--hidden-size", "4096", "--top-k", "2", "--tokens", "1,16"]
    gpu = "A100" if "A100" in name else "H200"
    assert main(["measure", *asked, "--device", f"fake,gpu={gpu}", "-o", str(rows)]) == 0
    capsys.readouterr()
    assert main(["advise", *asked, "--routing", "balanced", "--format", "json", "--output", str(tmp_path / "out")]) == 0
    launches = {launch["id"]: launch for launch in json.loads(capsys.readouterr().out)["launches"]}
    with rows.open(newline="") as stream:
        bounds = [row["bound_us"] for row in csv.DictReader(stream)]
    lines = predicted(rows, tmp_path / "out.csv")
    assert [line["bound_us"] for line in lines] == bounds and "below the bound" not in capsys.readouterr().err
    for line in lines:
        launch = launches[f"{line['op']}-M{line['M']}"]
        told = {"bound_us": launch["bound"]["us"]} | {
            f"predicted_{name}": launch["predicted"][name] for name in ("us", "low_us", "high_us")
        }
        assert {name: float(line[name]) for name in told} == pytest.approx(told, rel=1e-5), launch["id"]
    assert main(["rank", str(rows), "-o", str(tmp_path / "ranked.csv"), "--top", "1"]) == 0
    with (tmp_path / "ranked.csv").open(newline="") as stream:
        ranked = [row["predicted_us"] for row in csv.DictReader(stream)]
    assert [line["predicted_us"] for line in predicted(tmp_path / "ranked.csv", tmp_path / "again.csv")] == ranked
    assert main(["evaluate", str(rows), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["tasks"]["exact"]["bound_violations"] == 0


def test_rows_of_one_file_may_differ_in_what_is_stored(tmp_path):
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "gpu,M,N,K,dtype,weight_dtype,output_dtype,block_shape,latency_us\n"
        "H200,8,8192,8192,bf16,,,,40\nH200,8,8192,8192,bf16,fp8,,,40\nH200,8192,8192,64,bf16,,fp32,,40\n"
        "H200,8,8192,8192,fp8,,,128x128,40\n"
    )
    problems = [part.problem for part in data.read([rows])]
    assert [(p.weight_dtype, p.output_dtype, p.block_shape) for p in problems] == [
        (None, None, None),
        ("fp8", None, None),
        (None, "fp32", None),
        (None, None, (128, 128)),
    ]
    plain, narrow = (float(line["bound_us"]) for line in predicted(rows, tmp_path / "out.csv")[:2])
    assert narrow < 0.6 * plain


@pytest.mark.parametrize(("column", "cell"), [("weight_dtype", "int9"), ("output_dtype", "x"), ("block_shape", "128")])
@pytest.mark.parametrize("command", ["predict", "rank", "evaluate", "train"])
def test_what_no_type_is_called_is_refused(command, column, cell, tmp_path, capsys):
    rows, out = tmp_path / "rows.csv", tmp_path / "out"
    rows.write_text(f"gpu,M,E,topk,H,N,latency_us,{column}\nH200,64,128,8,2048,768,300,\nH200,64,128,8,2048,768,300,{cell}\n")
    assert main([command, str(rows), *(["-o", str(out)] if command != "evaluate" else [])]) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert "rows.csv: row 2" in message and column in message and cell in message
    assert not out.exists()


ROUTED = "gpu,op,M,E,topk,H,N,routing"


def test_routings_of_their_own_share_a_batch_and_change_nothing_else(monkeypatch):
    rng = np.random.default_rng(0)
    lines = [f"H100,w13,{m},16,2,2048,768,{' '.join(map(str, rng.integers(0, 40, 16)))}" for m in (1, 64, 300, 4096, 64, 64)]
    uniform = ["H100,w13,64,16,2,2048,768,", "H100,w13,8,16,2,2048,768,Uniform"]
    ask = load_predictor()

    def told(*some: str) -> dict[int, tuple[float, ...]]:
        found = {}
        for batch in from_rows.batches(parse_rows("\n".join([ROUTED, *some]), "rows.csv"), load_gpu):
            us = ask.predict(batch.problem, None, batch.gpu).us, ask.ceiling(batch.problem, batch.gpu).us
            least = bound(work(batch.problem, batch.gpu), batch.gpu, batch.problem.cache).us
            found |= dict(zip(batch.rows.tolist(), zip(*us, least, strict=True), strict=True))
        return found

    alone = [told(line)[0] for line in (*lines, *uniform)]
    together = told(*lines, *uniform)
    # Single precision: forests add up few rows in another order than many.
    assert [together[i] for i in range(len(alone))] == [pytest.approx(each, rel=1e-6) for each in alone]
    assert [together[i][2] for i in range(len(alone))] == [pytest.approx(each[2], rel=1e-15) for each in alone]
    assert [together[i] for i in (6, 7)] == list(told(*uniform).values()), "uniform rows are as if no other were there"
    rows = parse_rows("\n".join([ROUTED, *lines, *uniform]), "rows.csv")
    assert [batch.rows.tolist() for batch in from_rows.batches(rows, load_gpu)] == [[6, 7], [0, 1, 2, 3, 4, 5]]
    monkeypatch.setattr(from_rows, "ROUTINGS_PER_BATCH", 4)
    assert [batch.rows.tolist() for batch in from_rows.batches(rows, load_gpu)] == [[6, 7], [0, 1, 2, 3], [4, 5]]


@pytest.mark.parametrize("cell", ["0 0 0 0", "1 2 3", "1 2 3 x", "1 2 -3 4", f"1 2 3 {10**20}", f"1 2 3 {'9' * 400}"])
def test_a_routing_that_is_none_is_named(cell, tmp_path, capsys):
    rows = tmp_path / "rows.csv"
    rows.write_text(f"{ROUTED}\nH100,w13,64,4,2,2048,768,1 2 3 4\nH100,w13,64,4,2,2048,768,{cell}\n")
    assert main(["predict", str(rows), "-o", str(tmp_path / "out.csv")]) == 2
    message = capsys.readouterr().err
    assert "rows.csv: row 2: routing" in message and "correct the cell" in message and message.count("\n") == 1


@pytest.mark.parametrize(
    ("header", "first", "second"),
    [
        (
            "family,op,B,H,num_warps,num_stages,ROWS_PER_CTA,BLOCK_SIZE",
            "elementwise,silu_and_mul,65536,64,4,1,,1024",
            "elementwise,silu_and_mul,4096,4096,4,1,2,1024",
        ),
        (
            "family,op,B,H,num_warps,num_stages,ROWS_PER_CTA,BLOCK_SIZE",
            "normalization,rms_norm,4096,64,4,1,2,",
            "normalization,rms_norm,4096,16384,4,1,1,4096",
        ),
        (
            "M,N,K,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,GROUP_SIZE_M,num_warps,num_stages,SPLIT_K",
            "64,64,4096,64,64,64,1,4,3,",
            "64,64,4096,64,64,64,1,4,3,4",
        ),
    ],
)
def test_what_other_rows_fill_changes_no_row(header, first, second, tmp_path):
    """An empty ROWS_PER_CTA is one long row, an empty BLOCK_SIZE all of it, whatever the file's other rows say."""

    def latencies(*lines):
        path = tmp_path / "rows.csv"
        path.write_text("\n".join([header, *lines]) + "\n")
        return [row["predicted_us"] for row in predicted(path, tmp_path / "out.csv", "--gpu", "H200")]

    assert latencies(first, second) == [*latencies(first), *latencies(second)]


OF_A_RECORD = "gpu,family,op,B,H,dtype,latency_us\nH200,elementwise,recorded_scale,64,512,fp32,5\n"


def test_rows_of_a_record_are_left_out_of_what_knows_operators(tmp_path, capsys):
    """`advisor measure LAUNCHES.jsonl` writes them, into a file that may hold others."""
    mixed, alone = tmp_path / "mixed.csv", tmp_path / "alone.csv"
    alone.write_text(OF_A_RECORD)
    mixed.write_text(OF_A_RECORD + "H200,normalization,softmax,64,512,bf16,4\n")
    of_record, softmax = predicted(mixed, tmp_path / "predicted.csv")
    assert of_record["op"] == "recorded_scale" and of_record["predicted_us"] == "" and float(softmax["predicted_us"]) > 0
    assert main(["evaluate", str(mixed), "--format", "json"]) == 0
    assert sum(task["rows"] for task in json.loads(capsys.readouterr().out)["tasks"].values()) == 1
    for command in (["predict", str(alone), "-o", str(tmp_path / "out.csv")], ["evaluate", str(alone)]):
        assert main(command) == 5
        error = capsys.readouterr().err
        assert "no model knows what a recorded launch computes; got recorded_scale" in error and "correct the cell" not in error


def test_what_is_judged_is_told_once(tmp_path, capsys):
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "gpu,family,op,B,H,dtype,latency_us,num_warps,num_stages,parameters\n"
        + "".join(
            f'H200,normalization,softmax,{b},512,bf16,4,{warps},1,"{{""BLOCK_SIZE"": 512, ""ROWS_PER_CTA"": {each}}}"\n'
            for b, warps, each in ((64, 1, 1), (128, 2, 1), (256, 4, 2))
        )
    )
    assert main(["evaluate", str(rows)]) == 0
    told = capsys.readouterr().err.splitlines()
    assert len(told) == len(set(told)) and any("judging" in line for line in told)
