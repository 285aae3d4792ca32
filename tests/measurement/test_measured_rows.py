"""Measured rows: what is written is read back, by us and by everything else that reads rows."""

from __future__ import annotations

import dataclasses
import pickle

import pytest

from advisor.gpus.hardware import load_gpu
from advisor.measurement import scheduler as jobs
from advisor.measurement.kernel_file import KernelRef
from advisor.measurement.launch import FAILURE_KINDS, Batch, Failure, Launch, Outcome
from advisor.measurement.measured_rows import HEADER, bound_us, line_of, read_measured, row_key, row_of
from advisor.measurement.measuring import measure
from advisor.result.schema import Configuration, Fingerprint, Problem, Round
from advisor.rows.rows import read_rows
from advisor.system.errors import InputError

from .conftest import launches, moe, violations

GPU = Fingerprint(mode="gpu", gpu="H200", driver="580", mig=False, power_cap_w=700.0)
ROUNDS = tuple(Round(samples_us=(12.5, 12.25), sm_clock_mhz=1980.0, discarded="clock, low" if i == 3 else None) for i in range(11))
PROBLEMS = [
    moe(64),
    moe(8, "w2", routing=(64, *[0] * 127)),
    moe(1, dtype="fp8", block_shape=(128, 128), output_dtype="bf16", cache="cold"),
    Problem(family="gemm", op="gemm", sizes={"M": 5, "N": 7, "K": 9}, dtype="tf32"),
    Problem(family="attention", op="decode", sizes={"B": 2, "H": 8, "H_kv": 2, "M": 1, "N": 100, "D": 64, "causal": 0}),
    Problem(family="normalization", op="softmax", sizes={"B": 3, "H": 1000}, dtype="fp32"),
    Problem(family="elementwise", op="silu_and_mul", sizes={"B": 3, "H": 1000}),
]
CONFIGURATIONS = [
    Configuration(parameters={"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 32, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 1}, num_warps=8, num_stages=4),
    Configuration(parameters={"BLOCK_M": 16, "FLATTEN": True, "MODE": 'a "b", c'}, num_warps=1, num_stages=1, num_ctas=2, maxnreg=128),
]


def write(path, launch, outcome, bound=1.0):
    cells = row_of(launch, outcome, gpu="H200", fingerprint=GPU, session="abc", bound=bound)
    path.write_text(",".join(HEADER) + "\n" + line_of(cells))
    return cells


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda p: f"{p.family}-{p.op}")
@pytest.mark.parametrize("configuration", CONFIGURATIONS, ids=["blocks", "others"])
def test_round_trip(tmp_path, problem, configuration):
    launch = Launch(kernel=KernelRef(file="f.py", function="some_kernel"), problem=problem, configuration=configuration)
    write(tmp_path / "rows.csv", launch, Outcome(rounds=ROUNDS, noise_floor=0.0125, timer="graph"))
    (row,) = read_measured(tmp_path / "rows.csv")
    assert (row.problem, row.configuration, row.rounds, row.fingerprint) == (problem, configuration, ROUNDS, GPU)
    assert row.latency_us == 12.375 and row.noise_floor == 0.0125 and row.session == "abc" and row.status == "ok"
    assert row.key() == row_key("H200", "some_kernel", problem, configuration)


@pytest.mark.parametrize("kind", FAILURE_KINDS)
def test_failures_round_trip(tmp_path, kind):
    failure = Failure(kind=kind, message='what, "it"\nsaid', stage="launch")
    write(tmp_path / "rows.csv", launches(1)[0], Outcome(failure=failure))
    (row,) = read_measured(tmp_path / "rows.csv")
    assert row.latency_us is None and row.failure == dataclasses.replace(failure, message='what, "it" said')


def test_others_read_what_we_write(tmp_path):
    launch = Launch(kernel=KernelRef(file="f.py", function="k"), problem=moe(), configuration=CONFIGURATIONS[0])
    write(tmp_path / "rows.csv", launch, Outcome(rounds=ROUNDS))
    rows = read_rows(tmp_path / "rows.csv")
    assert rows.columns["BLOCK_SIZE_N"][0] == 32 and rows.columns["latency_us"][0] == 12.375 and rows.op[0] == "w13"


def test_faster_than_the_bound_is_a_fault_and_all_throttled_is_no_latency(tmp_path):
    launch = Launch(kernel=KernelRef(file="f.py", function="k"), problem=moe(4096), configuration=CONFIGURATIONS[0])
    bound = bound_us(launch.problem, load_gpu("H200"))
    assert bound > 12.375
    cells = write(tmp_path / "rows.csv", launch, Outcome(rounds=ROUNDS), bound)
    assert "faster than the bound" in cells["fault"] and cells["latency_us"] == "12.375"  # shown, not clipped
    assert len(violations(read_measured(tmp_path / "rows.csv"))) == 1
    dropped = tuple(dataclasses.replace(r, discarded="clock") for r in ROUNDS)
    cells = write(tmp_path / "rows.csv", launch, Outcome(rounds=dropped), bound)
    assert cells["status"] == "discarded" and cells["latency_us"] == ""


def test_published_rows_are_read(data_dir):
    rows = list(read_measured(data_dir / "fused_moe_near_optimal.csv.gz"))
    assert len(rows) > 20_000 and all(row.configuration is not None and row.latency_us > 0 for row in rows)
    ops = next(iter(read_measured(data_dir / "library_ops.csv.gz")))
    assert ops.problem.family == "gemm" and ops.configuration is None


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("num_warps", "-4"),
        ("BLOCK_SIZE_M", "1.5"),
        ("BLOCK_SIZE_M", "1e99"),
        ("latency_us", "-1"),
        ("parameters", "[1]"),
        ("parameters", '{"X": [1]}'),
        ("samples_us", "1 x"),
        ("clocks_mhz", "1;2"),
        ("fingerprint", '{"gpu": 1, "x": 2}'),
        ("routing", "a b"),
        ("routing", "0 0"),
        ("cache", "lukewarm"),
        ("block_shape", "1"),
        ("weight_dtype", "int9"),
        ("output_dtype", "bf17"),
        ("noise_floor", "inf"),
        ("latency_us", "1e308"),
        ("samples_us", "5e-324"),
        ("parameters", '{"num_ctas": "abc"}'),
        ("parameters", '{"num_ctas": true}'),
        ("parameters", '{"num_ctas": -3}'),
        ("parameters", '{"maxnreg": 0}'),
        ("parameters", '{"BLOCK_SIZE_M": "16"}'),
        ("parameters", '{"num_warps": 4}'),
        ("parameters", '{"X": 99999999999999999999}'),
        ("parameters", '{"X": 1.5}'),
    ],
)
def test_a_bad_cell_is_named(tmp_path, column, value):
    launch = Launch(kernel=KernelRef(file="f.py", function="k"), problem=moe(), configuration=CONFIGURATIONS[0])
    cells = write(tmp_path / "rows.csv", launch, Outcome(rounds=ROUNDS))
    (tmp_path / "rows.csv").write_text(",".join(HEADER) + "\n" + line_of({**cells, column: value}))
    with pytest.raises(InputError, match="row 1"):
        list(read_measured(tmp_path / "rows.csv"))


@pytest.mark.parametrize(
    ("header", "cells"),
    [
        ("BLOCK_SIZE,num_warps,num_stages,num_ctas,maxnreg", "1024,8,2,2,128"),
        ("BLOCK_SIZE,parameters", '1024,"{""num_warps"": 8, ""num_stages"": 2, ""num_ctas"": 2, ""maxnreg"": 128}"'),
        ("BLOCK_SIZE,num_warps,parameters", '1024,8,"{""BLOCK_SIZE"": 1024, ""num_stages"": 2, ""num_ctas"": 2, ""maxnreg"": 128}"'),
    ],
)
def test_launch_options_count_wherever_a_row_has_them(tmp_path, header, cells):
    (tmp_path / "rows.csv").write_text(f"gpu,op,B,H,{header},latency_us\nH200,softmax,64,512,{cells},18\n")
    (row,) = read_measured(tmp_path / "rows.csv")
    assert row.configuration == Configuration(parameters={"BLOCK_SIZE": 1024}, num_warps=8, num_stages=2, num_ctas=2, maxnreg=128)


def test_messages_to_workers_round_trip():
    batch = Batch(
        launches=tuple(
            Launch(kernel=KernelRef(file="f.py", function="k"), problem=p, configuration=c)
            for p, c in zip(PROBLEMS, CONFIGURATIONS * 3, strict=False)
        ),
        rounds=12,
    )
    assert pickle.loads(pickle.dumps((jobs.measure, batch))) == (jobs.measure, batch)
    for outcome in (Outcome(rounds=ROUNDS, throttle=("a",)), Outcome(failure=Failure(kind="hang", message="", stage="check"))):
        assert pickle.loads(pickle.dumps(outcome)) == outcome


def test_one_row_per_launch_and_nothing_twice(tmp_path):
    todo = launches(2)
    first = measure(todo, tmp_path / "rows.csv", device="fake")
    again = measure([*todo, *launches(3)], tmp_path / "rows.csv", device="fake")
    assert (first.measured, first.skipped, again.measured, again.skipped) == (12, 0, 6, 24)
    assert len(list(read_measured(tmp_path / "rows.csv"))) == 18


@pytest.mark.parametrize(("status", "kind"), [("wrong-output", "wrong-output"), ("FAILED", "crash")])
def test_a_row_that_failed_has_no_latency(tmp_path, status, kind):
    path = tmp_path / "rows.csv"
    path.write_text(f"gpu,M,N,K,latency_us,samples_us,status,reason\nH200,64,512,512,5.0,nan nan,{status},check: output differs\n")
    (row,) = read_measured(path)
    assert row.latency_us is None and row.failure.kind == kind and "output differs" in row.failure.message


def test_attention_without_a_column_of_key_heads_has_as_many_as_query_heads(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("gpu,op,B,H,M,N,D,latency_us\nH200,decode,2,8,1,100,64,12.5\n")
    (row,) = read_measured(path)
    assert row.problem.sizes == {"B": 2, "H": 8, "H_kv": 8, "M": 1, "N": 100, "D": 64}


def test_rows_of_a_sweep_are_each_read_as_they_are(tmp_path):
    """Cells that several rows share are read once; which row has which, and which is the first that is off, stays exact."""
    lines = [
        f"H200,{op},{m},512,256,{warps},{1000 * m + warps}"
        for op in ("linear", "gemm")
        for m in (64, 128)
        for warps in (4, 8)
        for _ in range(2)
    ]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["gpu,op,M,N,K,num_warps,latency_us", *lines, ""]))
    rows = list(read_measured(path))
    assert [(row.problem.sizes, row.configuration.num_warps, row.latency_us) for row in rows] == [
        ({"M": m, "N": n, "K": 768 - n}, warps, 1000 * m + warps)
        for n in (256, 512)
        for m in (64, 128)
        for warps in (4, 8)
        for _ in range(2)
    ]
    path.write_text("\n".join(["gpu,op,M,N,K,num_warps,latency_us", *lines, "H200,gemm,64,512,512,x,5", "H200,gemm,64,512,512,x,6", ""]))
    with pytest.raises(InputError, match=f"row {len(lines) + 1}: num_warps"):
        list(read_measured(path))
