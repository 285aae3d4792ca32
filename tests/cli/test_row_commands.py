"""The commands that take rows: `predict`, `rank`, `train`, `evaluate`."""

from __future__ import annotations

import csv
import gzip
import json
import os
import tracemalloc
from pathlib import Path

import pytest

from advisor.cli import main
from tests.cli.command_line import ENTRY, EXAMPLE, ROOT, advise, table


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


def test_rows_that_were_simulated_are_told(tmp_path, capsys):
    rows, measured = tmp_path / "rows.csv", tmp_path / "measured.csv"
    header, line = "gpu,gemm,M,E,topk,H,N,latency_us,{}", "H200,w13,{},128,8,2048,768,{},{}"
    fake = '"{""gpu_uuid"": ""fake""}"'
    rows.write_text(
        "\n".join(
            [
                header.format("origin,fingerprint"),
                line.format(16, 200, "simulated,"),
                line.format(32, 210, "measured,"),
                line.format(64, 220, f",{fake}"),
                line.format(128, "", "simulated,"),
                "",
            ]
        )
    )
    measured.write_text("\n".join([header.format("origin"), line.format(16, 200, "measured"), ""]))
    note = "simulated, not measured: 2 of 3 rows of rows.csv"  # one has no latency, and is no row of theirs
    assert main(["evaluate", str(rows), str(measured), "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert captured.err.splitlines().count(f"advisor: {note}") == 1 and captured.err.count("simulated") == 1
    assert note in json.loads(captured.out)["notes"]
    assert main(["train", str(rows), str(measured), "-o", str(tmp_path / "weights.npz")]) == 2, "of one model nothing is learned"
    assert capsys.readouterr().err.splitlines().count(f"advisor: {note}") == 1
    assert main(["evaluate", str(measured), "--format", "json"]) == 0
    captured = capsys.readouterr()
    assert "simulated" not in captured.err + captured.out


def test_rows_without_latencies_teach_nothing(tmp_path, capsys):
    rows = str(ROOT / "tests/data/rows.csv")
    for command in (["train", rows, "-o", str(tmp_path / "weights.npz")], ["evaluate", rows]):
        assert main(command) == 2
        captured = capsys.readouterr()
        assert "latency_us" in captured.err and captured.out == "" and not list(tmp_path.iterdir())


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
    rows.write_text(
        "gpu,gemm,M,E,topk,H,N,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,num_warps,num_stages,latency_us\n"
        f"{problem},16,128,128,4,3,50\n{problem},256,256,256,4,8,\n{problem},64,64,64,64,3,\n{problem},16,128,128,4,3,300\n"
    )
    assert main(["predict", str(rows), "-o", str(out)]) == 0
    note, *told = capsys.readouterr().err.splitlines()
    assert note == "advisor: GROUP_SIZE_M is not given by 4 configurations: 1 is assumed"
    assert len(told) == 3 and all("warning" in line for line in told), told
    assert "row 2 cannot launch" in told[0] and "2048 KiB" in told[0] and "row 3 cannot launch" in told[1] and "num_warps=64" in told[1]
    assert "row 1" in told[2] and "50 µs is below the bound" in told[2] and "fault" in told[2]
    with out.open() as stream:
        written = list(csv.DictReader(stream))
    assert [bool(row["p_speedup_10pct"]) for row in written] == [bool(row["predicted_us"]) for row in written] == [True, False, False, True]


def test_predict_says_which_depth_does_not_compile(tmp_path, capsys):
    rows = tmp_path / "rows.csv"
    rows.write_text(
        "gpu,M,E,topk,H,N,dtype,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,num_warps\n"
        "H200,64,128,8,2048,768,fp8,16,64,16,4\nH200,64,128,8,2048,768,fp8,16,64,32,4\n"
    )
    assert main(["predict", str(rows), "-o", str(tmp_path / "out.csv")]) == 0
    (told,) = [line for line in capsys.readouterr().err.splitlines() if "cannot launch" in line]
    assert "row 1 cannot launch on H200: tl.dot takes a BLOCK_SIZE_K of 32 or more of fp8 operands" in told


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


@pytest.mark.parametrize(
    "line",
    [
        ["measure", "softmax", "--device", "fake", "-o", "-"],
        ["record", "-o", "-", "--", "true"],
        ["train", "rows.csv", "-o", "-"],
    ],
)
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
    rows.write_text(
        "gpu,family,op,dtype,B,H,H_kv,M,N,D\nH200,attention,prefill,bf16,2,16,2,314,314,128\n"
        "P4,attention,prefill,fp32,128,16,2,314,157,192\n"
    )
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


def test_rank_lists_the_best_first(tmp_path):
    out = tmp_path / "out.csv"
    assert main(["rank", str(ROOT / "tests/data/shapes.csv"), "-o", str(out), "--top", "5"]) == 0
    rows = list(csv.DictReader(out.read_text().splitlines()))
    assert [row["rank"] for row in rows] == ["1", "2", "3", "4", "5"] * 2
    assert (
        len(
            {
                tuple(row[n] for n in ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages"))
                for row in rows[:5]
            }
        )
        == 5
    )


def test_a_ranking_of_whole_spaces_takes_memory_for_its_numbers_alone(tmp_path):
    """A line has some sixty bytes; with an object for each configuration, and columns of texts, it took more than a thousand."""
    shapes, out = tmp_path / "shapes.csv", tmp_path / "out.csv"
    shapes.write_text("gpu,gemm,M,E,topk,H,N\n" + "".join(f"A100,w13,{16 * i},128,8,2048,768\n" for i in range(1, 4)))
    assert main(["rank", str(shapes), "-o", str(out)]) == 0  # with all that is imported and read for it
    tracemalloc.start()
    try:
        assert main(["rank", str(shapes), "-o", str(out), "--top", "1000000"]) == 0
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    lines = out.read_text().count("\n")
    assert lines > 7_500 and peak_bytes / lines < 500


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


@pytest.mark.parametrize(
    ("field", "value", "words"), [("num_stages", 9, "shared memory"), ("num_warps", 64, "threads"), ("num_warps", 3, "power of two")]
)
def test_a_configuration_that_cannot_launch_has_no_latency(tmp_path, capsys, field, value, words):
    entry = {**ENTRY, "BLOCK_SIZE_M": 128, "BLOCK_SIZE_K": 128, field: value}
    assert advise(table(tmp_path, {"1": entry}), tmp_path / "out") == 0
    printed = capsys.readouterr().out
    assert words in printed and "cannot launch" in printed and "None of the 2 launches can run" in printed
    assert "tuning can win" not in printed and "1.00x" not in printed
    result = json.loads((tmp_path / "out" / "result.json").read_text())
    assert all(launch["predicted"] is None and launch["recommendation"] for launch in result["launches"])


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


@pytest.mark.parametrize(
    ("name", "text", "dtype"),
    [
        ("library.csv", "gpu,op,B,M,N,K,H\nT4,softmax,4096,,,,1024\nT4,bmm,8,512,512,512,\n", "fp32"),
        ("gemm_fp8.csv", "gpu,M,N,K\nH100,64,4096,4096\n", "fp8"),
        ("gemm.csv", "gpu,M,N,K\nH100,64,4096,4096\n", "bf16"),
    ],
)
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
    shapes.write_text(
        "gpu,op,M,N,K,B,H,D\nA100,gemm,128,256,512,,,\nH100,prefill,1024,1024,,2,16,128\n"
        "H100,rms_norm,,,,1024,4096,\nH100,gelu,,,,1024,4096,\n"
    )
    assert main(["rank", str(shapes), "-o", str(tmp_path / "ranked.csv"), "--top", "2"]) == 0
    assert main(["predict", str(tmp_path / "ranked.csv"), "-o", str(tmp_path / "predicted.csv")]) == 0
    ranked, predicted = (list(csv.DictReader((tmp_path / f"{name}.csv").read_text().splitlines())) for name in ("ranked", "predicted"))
    assert len(ranked) == 8
    for before, after in zip(ranked, predicted, strict=True):
        assert float(after["predicted_us"]) == pytest.approx(float(before["predicted_us"]), rel=1e-3), before


def test_predict_says_what_it_extrapolates(tmp_path, capsys):
    (tmp_path / "rows.csv").write_text("gpu,M,E,topk,H,N\nH100,256,8,2,4096,14336\nH100,256,64,8,2048,768\n")
    assert main(["predict", str(tmp_path / "rows.csv"), "-o", str(tmp_path / "out.csv")]) == 0
    assert "launches outside of what was learned: 1; their latencies are extrapolated" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("num_warps,num_stages", None),
        ("num_warp,num_stages", "num_warps is not given by 2 configurations: 4 is assumed"),
        ("num_warps,stages", "num_stages is not given by 2 configurations: 3 is assumed"),
    ],
)
def test_predict_says_what_stands_for_a_field_left_out(tmp_path, capsys, header, said):
    """A misspelt column passes through as any other, and a default would be predicted in its place unseen."""
    rows = tmp_path / "rows.csv"
    start = "gpu,gemm,M,E,topk,H,N,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,GROUP_SIZE_M,"
    launch = "H200,w13,64,128,8,2048,768,16,128,128,1,8,2\n"
    as_served = "H200,w13,64,128,8,2048,768,,,,,,\n"
    rows.write_text(f"{start}{header}\n{launch}{launch}{as_served}")
    assert main(["predict", str(rows), "-o", str(tmp_path / "out.csv")]) == 0
    told = capsys.readouterr().err
    assert told == (f"advisor: {said}\n" if said else "")


def test_evaluate_says_what_its_errors_are_shares_of(tmp_path, capsys):
    rows = tmp_path / "rows.csv"
    rows.write_text("gpu,gemm,M,E,topk,H,N,latency_us\nH20,w13,64,128,8,2048,768,300\n")
    assert main(["evaluate", str(rows)]) == 0
    legend, table = capsys.readouterr().out.split("\ntask ")
    assert "bias the mean of log(predicted / measured)" in legend and "bias %" in table
