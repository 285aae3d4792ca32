"""ROWS and SHAPES files."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pytest

from advisor.measurement.launch import FAILURE_KINDS
from advisor.measurement.measured_rows import read_measured
from advisor.rows.rows import LINES_AT_ONCE, parse_rows, read_rows, write_rows
from advisor.system.errors import InputError, UsageError

HEAD = "gpu,gemm,M,E,topk,H,N"
CONFIG = "BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,GROUP_SIZE_M,num_warps,num_stages"


def parse(text: str, **options: bool) -> object:
    return parse_rows(text, "rows.csv", **options)


def test_fused_moe_rows() -> None:
    rows = parse_rows(f"{HEAD},note\nH20,w13,1,8,2,1024,512,a\nH20,w2,64.0,8,2,1024,512,\n", "rows.csv")
    assert len(rows) == 2 and rows.gpus() == ("H20",)
    assert rows.family.tolist() == ["fused_moe"] * 2 and rows.op.tolist() == ["w13", "w2"] and rows.dtype[0] == "bf16"
    assert rows.columns["M"].tolist() == [1, 64] and rows.columns["M"].dtype == np.int64
    assert not rows.has_configuration.any()
    assert set(rows.groups()) == {("fused_moe", "w13", "bf16"), ("fused_moe", "w2", "bf16")}
    assert rows.groups("gpu")["fused_moe", "w2", "bf16", "H20"].tolist() == [1]


def test_families() -> None:
    text = "family,op,dtype,M,N,K,B,H\n,,,8,8,8,,\n,softmax,fp32,,,,4,64\n,addu,float16,,,,4,64\n,linear,,1,2,3,4,\n"
    rows = parse_rows(text, "rows.csv")
    assert rows.family.tolist() == ["gemm", "normalization", "elementwise", "gemm"]
    assert rows.op.tolist() == ["gemm", "softmax", "addu", "gemm"]
    assert rows.dtype.tolist() == ["bf16", "fp32", "fp16", "bf16"]
    # NeuSight's operators are M x N times N x K: their N is what is summed over.
    assert rows.columns["K"].tolist() == [8, 0, 0, 2] and rows.columns["N"].tolist() == [8, 0, 0, 3]
    assert rows.text["K"] == ("8", "", "", "3")


def test_attention_without_an_operator_is_decode_of_one_query() -> None:
    head = "family,op,B,H,H_kv,M,N,D\n"
    rows = parse_rows(f"{head}attention,,2,8,2,1,4096,128\nattention,,2,8,2,2,4096,128\nattention,prefill,2,8,2,1,4096,128\n", "rows.csv")
    assert rows.op.tolist() == ["decode", "prefill", "prefill"]


def test_configurations() -> None:
    line = "H20,w13,1,8,2,1024,512"
    rows = parse_rows(f"{HEAD},{CONFIG}\n{line},16,32,64,1,4,3\n{line},,,,,,\n{line},16,32,64,,,\n{line},16,32,64,1,8,0\n", "rows.csv")
    assert rows.has_configuration.tolist() == [True, False, True, True]
    assert rows.columns["num_warps"].tolist() == [4, 0, 4, 8]
    assert rows.columns["num_stages"].tolist() == [3, 0, 3, 1]  # no stages pipeline as much as one
    shapes = parse_rows(f"{HEAD},{CONFIG}\n{line},x,y,z,,,\n", "rows.csv", problems_only=True)
    assert not shapes.has_configuration.any() and shapes.text["BLOCK_SIZE_M"] == ("x",)


def test_pass_through_and_append(tmp_path: Path) -> None:
    text = f'{HEAD},"a, b",bound_us\nH20,w13,1.0,8,2,1024,512,"x, ""y""",old\n'
    rows = parse_rows(text, "rows.csv")
    out = io.StringIO()
    write_rows(rows, out, {"bound_us": [1.23456789], "low_us": np.array([np.nan]), "pipe": ["dram"]})
    assert out.getvalue().splitlines() == [
        f'{HEAD},"a, b",bound_us,low_us,pipe',
        'H20,w13,1.0,8,2,1024,512,"x, ""y""",1.23457,,dram',
    ]
    again = io.StringIO()
    write_rows(rows, again, {"rank": [1, 2]}, index=np.array([0, 0]))
    assert len(again.getvalue().splitlines()) == 3
    write_rows(rows, tmp_path / "out.csv.gz", {"rank": [1]})
    assert read_rows(tmp_path / "out.csv.gz").text["rank"] == ("1",)
    with pytest.raises(UsageError, match="cannot be written"):
        write_rows(rows, tmp_path / "missing" / "out.csv", {})


GOOD = "H20,w13,{},8,2,1024,512"


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "nan", "inf", "", "x", "1e30", str(2**31), "9" * 40, "1_0", "<b>", "-1.0"])
def test_a_bad_size_names_file_row_column_value(value: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_rows(f"{HEAD}\n{GOOD.format(1)}\n{GOOD.format(value)}\n", "rows.csv")
    message = str(caught.value)
    assert "rows.csv" in message and "row 2" in message and ": M" in message and "\n" not in message
    assert caught.value.remedy and caught.value.limit


@pytest.mark.parametrize(
    ("column", "value"),
    [("BLOCK_SIZE_M", "24"), ("BLOCK_SIZE_N", "0"), ("BLOCK_SIZE_K", ""), ("num_warps", "0"), ("num_stages", "99")],
)
def test_a_bad_configuration(column: str, value: str) -> None:
    names = CONFIG.split(",")
    cells = [value if name == column else "16" for name in names]
    with pytest.raises(InputError, match=f"row 1: {column}"):
        parse_rows(f"{HEAD},{CONFIG}\n{GOOD.format(1)},{','.join(cells)}\n", "rows.csv")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "empty"),
        ("a,b\n1\n", "cells"),
        ("M,M\n1,1\n", "twice"),
        ("M\n1\n", "nothing says"),
        ("M,E,topk,H\n1,8,2,64\n", "column N is missing"),
        ("M,E,topk,H,N\n1,8,9,64,64\n", "topk exceeds E"),
        ("M,N,K,family\n1,2,3,gem\n", "family"),
        ("M,N,K,dtype\n1,2,3,bf17\n", "dtype"),
        ("M,N,K,op,family\n1,2,3,softmax,gemm\n", "operator"),
        ("M,N,K,latency_us\n1,2,3,-4\n", "latency_us"),
        ("M,N,K,latency_us\n1,2,3,fast\n", "latency_us"),
        ("M,N,K,latency_us\n1,2,3,5e-324\n", "latency_us"),
        ("M,N,K,latency_us\n1,2,3,1e308\n", "latency_us"),
        ("M,N,K,latency_us\n1,2,3,4\n1,2,3,0\n", "row 2: latency_us"),
        ("M,N,K,latency_us\n1,2,3,\n1,2,3,inf\n", "row 2: latency_us"),
        ('M,N,K\n1,2,"3' + "x" * 200_000 + "\n", "CSV"),
        ('M,N,K\n1,2\n1,2,"3' + "x" * 200_000 + "\n", "not CSV"),
    ],
)
def test_bad_files(text: str, what: str) -> None:
    with pytest.raises(InputError, match=what):
        parse_rows(text, "rows.csv")


@pytest.mark.parametrize("number", [1, LINES_AT_ONCE, LINES_AT_ONCE + 1, 2 * LINES_AT_ONCE, 2 * LINES_AT_ONCE + 1])
def test_long_files_are_read_in_pieces_and_their_rows_counted_on(number: int) -> None:
    lines = [f"H200,{m},8,9" for m in range(1, number + 1)]
    rows = parse("\n\n".join(["gpu,M,N,K", *lines, ""]))
    assert rows.columns["M"].tolist() == list(range(1, number + 1)) and len(rows.text["gpu"]) == number
    with pytest.raises(InputError, match=f"row {number}: 5 cells under 4 columns"):
        parse("\n".join(["gpu,M,N,K", *lines[:-1], "H200,1,2,3,4", "H200", *lines, ""]))


def test_places(tmp_path: Path) -> None:
    (tmp_path / "bad.csv.gz").write_bytes(gzip.compress(b"M,N,K\n1,2,3\n")[:-6])
    (tmp_path / "bad.csv").write_bytes(b"\xff\xfe\x00")
    for path, what in [
        (tmp_path, "directory"),
        (tmp_path / "none.csv", "cannot be read"),
        (tmp_path / "bad.csv.gz", "gzip"),
        (tmp_path / "bad.csv", "UTF-8"),
    ]:
        with pytest.raises(InputError, match=what):
            read_rows(path)
    with pytest.raises(InputError, match="gpu"):
        parse_rows("M,N,K\n1,2,3\n", "rows.csv", required=("gpu",))


def test_a_header_alone_is_no_rows() -> None:
    assert len(parse_rows("M,N,K\n", "rows.csv")) == 0


@pytest.mark.parametrize(
    ("file", "count", "families"),
    [
        ("fused_moe_default", 20_000, {"fused_moe"}),
        ("fused_moe_near_optimal", 20_000, {"fused_moe"}),
        ("fused_moe_sweep_summary", 500, {"fused_moe"}),
        ("gemm_fp8", 10_000, {"gemm"}),
        ("library_ops", 20_000, {"gemm", "normalization", "elementwise"}),
    ],
)
def test_the_published_measurements(data_dir: Path, file: str, count: int, families: set[str]) -> None:
    rows = read_rows(data_dir / f"{file}.csv.gz")
    assert len(rows) > count and set(rows.family) == families
    assert rows.has_configuration.all() == (file == "fused_moe_near_optimal")


@pytest.mark.parametrize(("mark", "word"), [(";", "semicolons"), ("\t", "tabs"), ("|", "bars")])
def test_another_delimiter_is_told(mark: str, word: str) -> None:
    text = "gpu,M,N,K\nH100,1,2,3\n".replace(",", mark)
    with pytest.raises(InputError, match=f"x.csv: the columns are separated by {word}, not by commas"):
        parse_rows(text, "x.csv")


_FAILURES = (
    "failed",
    "OutOfResources",
    "out of memory",
    "CUDA error: an illegal memory access",
    "PTXASError",
    "RuntimeError",
    "launch failed",
    "Segfault",
    "killed",
    "skipped",
    "not supported",
    "False",
    "rejected",
)


@pytest.mark.parametrize("status", [*FAILURE_KINDS, *_FAILURES])
def test_no_command_takes_a_latency_from_a_row_that_failed(status):
    rows = parse_rows(f"M,N,K,latency_us,best_us,status\n1,2,3,4,4,{status}\n1,2,3,5,5,ok\n", "rows.csv")
    for name in ("latency_us", "best_us"):
        assert np.isnan(rows.columns[name][0]) and rows.columns[name][1] == 5


@pytest.mark.parametrize("cell", ["inf", "nan", "0", "-1", "n/a", " "])
def test_what_stands_for_the_latency_of_a_failed_launch_is_not_read(cell, tmp_path):
    text = f"M,N,K,gpu,latency_us,status\n1,2,3,H100,{cell},OutOfResources\n2,2,3,H100,5,ok\n"
    rows = parse_rows(text, "rows.csv")
    assert np.isnan(rows.columns["latency_us"][0]) and rows.columns["latency_us"][1] == 5
    (tmp_path / "rows.csv").write_text(text)
    assert [row.latency_us for row in read_measured(tmp_path / "rows.csv")] == [None, 5]


@pytest.mark.parametrize("cell", ["  ", "nan", "NaN", " nan "])
def test_blanks_and_nan_are_empty_cells(cell, tmp_path):
    text = f"M,N,K,gpu,BLOCK_SIZE_M,latency_us\n1,2,3,H100,{cell},{cell}\n1,2,3,H100,, 5\n"
    columns = parse_rows(text, "rows.csv").columns
    assert np.isnan(columns["latency_us"][0]) and columns["latency_us"][1] == 5 and columns["BLOCK_SIZE_M"].tolist() == [0, 0]
    (tmp_path / "rows.csv").write_text(text)
    assert [(row.latency_us, row.configuration) for row in read_measured(tmp_path / "rows.csv")] == [(None, None), (5, None)]


_SUCCESSES = (
    "",
    "ok",
    "OK",
    "success",
    "passed",
    "cached",
    "discarded",
    "no error",
    "unchanged",
    "1",
    "True",
    "compiled ok",
    "0 errors",
    "verified: no mismatch",
    "memory-bound",
    "ok (max error 0.01)",
    "Passed; error 1e-3",
    "compiled; no failures",
)


@pytest.mark.parametrize("status", _SUCCESSES)
def test_other_words_leave_a_row_its_latency(status):
    assert parse_rows(f"M,N,K,latency_us,status\n1,2,3,4,{status}\n", "rows.csv").columns["latency_us"][0] == 4


def test_json_is_told_from_csv():
    with pytest.raises(InputError, match=r"r\.csv: JSON, not CSV; got .*is this the file you mean"):
        parse_rows('{\n    "1": {\n        "BLOCK_SIZE_M": 16,\n', "r.csv")


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("BLOCK_SIZE_M", "block_size_m"),
        ("gpu", "GPU"),
        ("dtype", "DType"),
        ("topk", "TopK"),
        ("latency_us", "Latency_us"),
        ("status", "Status"),
    ],
)
def test_a_known_column_in_other_letters_is_not_passed_over(name, other):
    header = "gpu,M,E,topk,H,N,gemm,dtype,BLOCK_SIZE_M,BLOCK_SIZE_N,BLOCK_SIZE_K,latency_us,status"
    row = "H20,1,8,2,1024,512,w2,fp8,16,64,64,5,ok"
    assert len(parse_rows(f"{header},n\n{row},3\n", "r.csv")) == 1
    with pytest.raises(InputError, match=f"column {other}; got {other}; expected {name}.*rename it"):
        parse_rows(f"{header.replace(name, other)}\n{row}\n", "r.csv")


@pytest.mark.parametrize(
    ("header", "name", "other"),
    [("GPU,m,n,k", "M", "m"), ("gpu,M,e,topk,H,N", "E", "e"), ("gpu,OP,B,H", "op", "OP"), ("Family,B,H", "family", "Family")],
)
def test_letters_are_told_where_nothing_else_says_what_the_rows_are(header, name, other):
    row = ",".join("1" for _ in header.split(","))
    with pytest.raises(InputError, match=f"column {other}; got {other}; expected {name}, .*rename it"):
        parse_rows(f"{header}\n{row}\n", "r.csv")


@pytest.mark.parametrize("other", ["Family", "Op", "Cache", "GEMM", "block_size", "Mean_us", "Routing", "Weight_dtype"])
def test_a_column_whose_letters_change_nothing_passes_through(other):
    rows = parse_rows(f"gpu,M,N,K,latency_us,{other}\nH100,64,64,64,5,TN\n", "r.csv")
    assert (rows.text[other], list(rows.family)) == (("TN",), ["gemm"])


def test_a_columns_letters_count_where_its_family_is():
    header, row = "gpu,op,B,H,Block_Size,latency_us", "H100,softmax,2,64,64,5"
    with pytest.raises(InputError, match="column Block_Size; got Block_Size; expected BLOCK_SIZE,"):
        parse_rows(f"{header}\n{row}\n", "r.csv")
    assert len(parse_rows("gpu,M,N,K,GPU,num_warps\nH100,64,64,64,x,\n", "r.csv")) == 1
    assert len(parse_rows("gpu,M,N,K,block_size_m,Latency_us,Status\nH100,64,64,64,a,b,c\n", "r.csv", problems_only=True)) == 1


@pytest.mark.parametrize("block", ["BLOCK_M", "block_m", "Block_M"])
def test_blocks_of_products_under_the_names_of_attention_are_not_passed_over(block):
    text = f"gpu,M,N,K,{block},latency_us\nH100,64,64,64,64,6\n"
    with pytest.raises(InputError, match=f"row 1: column {block}; got {block}; expected BLOCK_SIZE_M for gemm and fused_moe"):
        parse_rows(text, "r.csv")
    assert len(parse_rows(text, "r.csv", problems_only=True)) == 1
    assert len(parse_rows(text.replace(",64,6\n", ",,6\n"), "r.csv")) == 1  # the block of another row's kernel
