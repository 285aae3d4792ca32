"""Under which name the winners of a tuning run are written, and what may be measured for it."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from advisor.advising.targets import Request
from advisor.cli import main
from advisor.measurement.kernel_file import function_of
from advisor.python_source.described import kernel_problem
from advisor.tables.entries import default_configuration
from advisor.tables.names import TableName, parse_table_name, table_dtype
from advisor.tables.tables import read_table
from advisor.tuning import Order, make_plan
from advisor.tuning.order import table_name

LAYER = ("--hidden-size", "4096", "--top-k", "2")
NAME = "E=8,N=3584,device_name=NVIDIA_H200"
ENTRY = {"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4}
FAKE = ("--device", "fake,gpu=H200")


def table(folder: Path, fields: str = "") -> Path:
    path = folder / f"{NAME}{fields}.json"
    path.write_text(json.dumps({"64": ENTRY}))
    return path


def rows(folder: Path, dtype: str, **columns: str) -> Path:
    """Recorded rows of the layer: what runs today, with a table and without, and something faster."""
    default = default_configuration("vllm", 64, 8, dtype=dtype).flat(all_options=True)
    path = folder / f"rows-{dtype}.csv"
    with path.open("w", newline="") as file:
        names = ["gpu", "gemm", "M", "E", "topk", "H", "N", *ENTRY, "latency_us", "dtype", *columns]
        writer = csv.writer(file)
        writer.writerow(names)
        for gemm in ("w13", "w2"):
            for entry, us in ((ENTRY, 100.0), (default, 100.0), ({**ENTRY, "num_warps": 8}, 50.0)):
                values = [entry[name] for name in ENTRY]
                writer.writerow(["H200", gemm, 64, 8, 2, 4096, 3584, *values, us, dtype, *columns.values()])
    return path


def tune(folder: Path, target: object, *more: str) -> int:
    return main(["tune", str(target), *LAYER, "--tokens", "64", "--trials", "3", "--output", str(folder / "out"), *more])


def test_rows_of_float32_say_how_its_products_are_made(tmp_path, capsys):
    path, recorded = table(tmp_path, ",dtype=float32"), rows(tmp_path, "tf32")
    assert tune(tmp_path, path, "--recorded", str(recorded), "--export", str(tmp_path / "tables")) == 0
    assert json.loads((tmp_path / "tables" / path.name).read_text())["64"]["num_warps"] == 8
    request = Request(hidden_size=4096, top_k=2, tokens=(64,))
    plan = make_plan(Order(target=str(path), request=request, storage="x", recorded=str(recorded)))
    assert {launch.problem.dtype for launch in plan.target.launches} == {"tf32"}
    for target in ("fused_moe", path):
        of_layer = ["--gpu", "H200", "--dtype", "tf32", "--sizes", "E=8,N=3584"] if target == "fused_moe" else []
        assert tune(tmp_path, target, *of_layer, "--recorded", str(rows(tmp_path, "float32"))) == 5
        assert "has no rows of" in (error := capsys.readouterr().err) and "tf32" in error


@pytest.mark.parametrize(
    ("fields", "got"),
    [
        (",dtype=int8_w8a16", "bf16 with int8 weights"),
        (",dtype=int4_w4a16", "bf16 with int4 weights"),
        (",dtype=fp8_w8a16", "bf16 with fp8 weights"),
        (",dtype=fp8_w8a8", "fp8 with a scale per tensor or channel"),
        (",dtype=fp8_w8a8,block_shape=[64,128]", "fp8 with scales in blocks of 64 x 128"),
        (",dtype=float32", "tf32"),
        (",dtype=int8_w8a8", "int8 with a scale per tensor or channel"),
        (",block_shape=[128,128]", "int8 with scales in blocks of 128 x 128"),
    ],
)
def test_a_table_of_another_kernel_is_not_measured(fields, got, tmp_path, capsys):
    path = table(tmp_path, fields)
    assert tune(tmp_path, path, *FAKE, "--export", str(tmp_path / "tables")) == 2
    error = capsys.readouterr().err
    assert f"got {got}; expected one of bf16, fp16, fp8 with scales in blocks of 128 x 128" in error and "--recorded" in error
    assert not (tmp_path / "tables").exists()


def test_a_table_of_an_unknown_type_is_not_measured(tmp_path, capsys):
    assert tune(tmp_path, table(tmp_path, ",dtype=mxfp4_w4a16"), "--dtype", "bf16", *FAKE) == 2
    assert "operands of an unknown type" in capsys.readouterr().err


@pytest.mark.parametrize("fields", ["", ",dtype=fp8_w8a8,block_shape=[128,128]"])
def test_what_is_launched_is_the_tables_kernel(fields, tmp_path):
    torch = pytest.importorskip("torch")
    request = Request(hidden_size=4096, top_k=2, tokens=(64,))
    plan = make_plan(Order(target=str(table(tmp_path, fields)), request=request, storage="x", device="fake,gpu=H200"))
    planned = plan.problems["w13-M64"]
    problem = {**kernel_problem(planned, None), "M": 4, "E": 2, "topk": 1, "H": 256, "N": 128}
    made = function_of(plan.kernel, "make_inputs")(problem, "cpu", torch.Generator().manual_seed(0))
    scaled = planned.block_shape is not None
    assert (made["b_scale"] is not None) == scaled == (made["b"].dtype == torch.float8_e4m3fn)
    if scaled:
        assert made["b_scale"].shape == tuple(
            -(-size // block) for size, block in zip(made["b"].shape, (1, *planned.block_shape), strict=True)
        )


def test_fp8_is_measured_and_named_as_the_kernel_has_it(tmp_path, capsys):
    """Whatever wins on the fake device: nothing of it goes under the tensor-wise name."""
    request = Request(hidden_size=4096, top_k=2, tokens=(64,), dtype="fp8", gpu="H200")
    layer = {"target": "fused_moe", "request": request, "storage": "x", "sizes": ({"E": 8, "N": 3584},)}
    plan = make_plan(Order(**layer, device="fake,gpu=H200"))
    assert {launch.problem.block_shape for launch in plan.target.launches} == {(128, 128)}
    assert plan.target.launches[0].configuration.parameters["BLOCK_SIZE_K"] == 128
    assert table_name(plan.target).file_name() == f"{NAME},dtype=fp8_w8a8,block_shape=[128,128].json"
    kernel = Request(tokens=(64,), dtype="fp8", gpu="H200", distribution="random")
    order = Order(
        target="fused_moe::fused_moe_kernel",
        request=kernel,
        storage="x",
        device="fake,gpu=H200",
        sizes=({"E": 8, "topk": 2, "H": 4096, "N": 3584},),
    )
    plan = make_plan(order)
    assert {(problem.block_shape, problem.distribution) for problem in plan.problems.values()} == {((128, 128), "random")}
    assert all("random" in decision.identity for decision in plan.decisions)
    recorded = make_plan(Order(**layer, recorded=str(rows(tmp_path, "fp8"))))
    assert table_name(recorded.target).file_name() == f"{NAME},dtype=fp8_w8a8.json"


@pytest.mark.parametrize(
    ("fields", "dtype", "taken"),
    [
        ("", "fp8", False),
        ("", "tf32", False),
        ("", "int8", False),
        ("", "fp16", True),
        (",dtype=fp8_w8a8", "bf16", False),
        (",dtype=float32", "fp32", True),
        (",dtype=int8_w8a16", "bf16", True),
    ],
)
def test_a_type_that_contradicts_a_table(fields, dtype, taken, tmp_path, capsys):
    weights = {"weight_dtype": "int8"} if "w8a16" in fields else {}
    recorded = rows(tmp_path, dtype, **weights)
    code = tune(tmp_path, table(tmp_path, fields), "--dtype", dtype, "--recorded", str(recorded), "--export", str(tmp_path / "tables"))
    assert code == (0 if taken else 2)
    assert ("--dtype contradicts the table" in capsys.readouterr().err) != taken


@pytest.mark.parametrize(
    ("dtype", "field"),
    [("bf16", ""), ("fp16", ""), ("fp32", ",dtype=float32"), ("fp8", ",dtype=fp8_w8a8"), ("tf32", ",dtype=float32"), ("int8", None)],
)
def test_a_layers_table_is_named_by_its_type(dtype, field, tmp_path, capsys):
    arguments = ["--gpu", "H200", "--sizes", "E=8,N=3584", "--dtype", dtype, "--recorded", str(rows(tmp_path, dtype))]
    code = tune(tmp_path, "fused_moe", *arguments, "--export", str(tmp_path / "tables"))
    if field is None:
        assert code == 2 and "vLLM never asks for dtype=" in capsys.readouterr().err and not (tmp_path / "tables").exists()
        assert tune(tmp_path, "fused_moe", *arguments) == 0
        assert "table" not in {export["kind"] for export in json.loads((tmp_path / "out" / "result.json").read_text())["exports"]}
        return
    assert code == 0
    (found,) = (tmp_path / "tables").glob("*.json")
    assert found.name == f"{NAME}{field}.json" and dict(read_table(found).entries)[64].num_warps == 8


def test_a_table_that_is_tuned_for_another_gpu_has_that_ones_name(tmp_path):
    path = table(tmp_path).rename(tmp_path / f"{NAME.replace('H200', 'H20')}.json")
    recorded = rows(tmp_path, "bf16")
    assert tune(tmp_path, path, "--gpu", "H200", "--recorded", str(recorded), "--export", str(tmp_path / "tables")) == 0
    assert [each.name for each in (tmp_path / "tables").glob("*.json")] == [f"{NAME}.json"]


def test_the_type_in_a_name_is_found_again():
    for field in (None, "fp8_w8a8", "fp8_w8a16", "int8_w8a8", "int8_w8a16", "int4_w4a16", "float32"):
        name = TableName(stack="vllm", kind="fused_moe", E=8, N=64, device_name="NVIDIA_H100", dtype=field)
        assert parse_table_name(name.file_name()).dtype == field == table_dtype(name.operand_dtype, name.weight_dtype)
