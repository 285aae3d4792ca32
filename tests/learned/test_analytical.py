"""What the analytical model says of library kernels that no learned model answers for."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from advisor.cli import main
from advisor.gpus.hardware import load_gpu
from advisor.learned.analytical import NOTICED, SIGMA, AnalyticalPredictor
from advisor.learned.base import Prediction
from advisor.pipelines import ConfigurationBatch, ProblemBatch, analyse, column
from advisor.pipelines.batch import problem_batch
from advisor.pipelines.space import problem_space
from advisor.result.schema import Problem


def gemm(m: int, n: int, k: int, dtype: str) -> ProblemBatch:
    return ProblemBatch(family="gemm", op="gemm", sizes={"M": column(m), "N": column(n), "K": column(k)}, dtype=dtype)


@pytest.mark.parametrize(
    ("name", "dtype", "size", "teraflops"),
    [
        # Of cuBLAS, as published (more in `published_products.csv`).
        ("H100", "bf16", 8192, 797),
        ("H100", "tf32", 4096, 402),
        ("H100", "tf32", 8192, 372),
        ("A40", "tf32", 8192, 59.5),
        ("A100", "bf16", 8192, 260),
        ("H800 PCIe", "tf32", 8192, 243),
        ("H800 PCIe", "bf16", 8192, 500),
    ],
)
def test_large_library_products_are_predicted_as_fast_as_published(name: str, dtype: str, size: int, teraflops: float) -> None:
    found = AnalyticalPredictor().predict(gemm(size, size, size, dtype), None, load_gpu(name))
    us = 2 * size**3 / teraflops / 1e6
    assert float(found.us[0]) == pytest.approx(us, rel=0.1)
    assert found.low_us[0] < us < found.high_us[0]


def test_triton_kernels_share_no_tiles_between_ctas() -> None:
    """TMA multicast is the libraries'; the ceiling is of kernels that have none."""
    gpu, problem = load_gpu("H100"), gemm(8192, 8192, 8192, "bf16")
    model = AnalyticalPredictor()
    assert model.ceiling(problem, gpu).us[0] > 1.2 * model.predict(problem, None, gpu).us[0]
    tile = {name: column(value) for name, value in (("BLOCK_SIZE_M", 128), ("BLOCK_SIZE_N", 256), ("BLOCK_SIZE_K", 64))}
    plain, shared = (ConfigurationBatch(parameters={**tile, **more}, num_warps=column(8)) for more in ({}, {"MULTICAST": column(2)}))
    assert model.predict(gemm(128, 8192, 8192, "bf16"), plain, gpu).us == model.predict(gemm(128, 8192, 8192, "bf16"), shared, gpu).us


@pytest.mark.parametrize(("m", "n", "k", "dtype"), [(16, 128, 16384, "bf16"), (128, 128, 65536, "bf16"), (512, 512, 65536, "fp16")])
def test_library_products_split_a_long_depth(m: int, n: int, k: int, dtype: str) -> None:
    """As `advise gemm::gemm_kernel` finds, and cuBLAS does: too few tiles fill no GPU."""
    for name in ("H100", "A100"):
        found = AnalyticalPredictor().predict(gemm(m, n, k, dtype), None, load_gpu(name))
        assert found.us[0] < AnalyticalPredictor().ceiling(gemm(m, n, k, dtype), load_gpu(name)).us[0] / 1.4


def test_decoding_splits_the_keys(tmp_path: Path) -> None:
    """Of one long sequence; `rank` and `predict` with the best of its rows agree.

    Without a configuration a library's kernel is meant, which others measured: it takes as long within a tenth.
    """
    shapes, ranked, told, plain = (tmp_path / name for name in ("shapes.csv", "ranked.csv", "told.csv", "plain.csv"))
    shapes.write_text("gpu,family,op,dtype,B,H,H_kv,M,N,D\nH100,attention,decode,fp16,1,32,8,1,262144,128\n")
    assert main(["rank", str(shapes), "-o", str(ranked), "--top", "1"]) == 0
    assert main(["predict", str(ranked), "-o", str(told)]) == 0
    assert main(["predict", str(shapes), "-o", str(plain)]) == 0
    (best,), (of_best,), (unsaid,) = (list(csv.DictReader(path.read_text().splitlines())) for path in (ranked, told, plain))
    assert int(best["NUM_KV_SPLITS"]) > 1
    us = [float(row["predicted_us"]) for row in (best, of_best, unsaid)]
    all_keys_us = 2 * 262144 * 8 * 128 * 2 / load_gpu("H100").dram_bytes_per_s * 1e6  # more than an L2 holds: none is left in it
    assert us[1] == pytest.approx(us[0], rel=0.005) and us[2] == pytest.approx(us[0], rel=0.1)
    assert float(unsaid["bound_us"]) < us[0] < 1.2 * all_keys_us
    assert float(of_best["ceiling_us"]) == pytest.approx(us[0], rel=0.05)


@pytest.mark.parametrize(("name", "dtype"), [("MI300X", "fp32"), ("MI300X", "fp16"), ("L40", "fp32"), ("A100", "tf32"), ("T4", "bf16")])
@pytest.mark.parametrize("sizes", [{"B": 1, "H": 32, "H_kv": 8, "N": 131072, "D": 128}, {"B": 2, "H": 64, "H_kv": 1, "N": 32768, "D": 256}])
def test_decoding_splits_the_keys_whatever_the_shared_memory_holds(name: str, dtype: str, sizes: dict[str, int]) -> None:
    """Without a configuration as with the best of those that `rank` ranks: it fits with small blocks in few stages at least."""
    gpu, problem = load_gpu(name), problem_batch([Problem(family="attention", op="decode", sizes={**sizes, "M": 1}, dtype=dtype)])
    best = analyse(problem, problem_space(problem, gpu.vendor, splits=True), gpu).latency_us.min()
    assert AnalyticalPredictor().predict(problem, None, gpu).us[0] < 1.05 * best


def test_predict_says_where_nothing_learned_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("gpu,M,N,K,dtype\nT4,2048,2048,2048,fp16\nH100,4096,4096,4096,tf32\nH20,2048,4096,4096,fp8\n")
    assert main(["predict", str(rows), "-o", str(tmp_path / "out.csv")]) == 0
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "analytical model" in line)
    assert line == "advisor: launches far outside of what was learned: 2; the analytical model answers for them"


def test_what_cannot_be_won_is_not_promised(tmp_path: Path) -> None:
    """A tenth faster than 48 µs would be below the bound of 44.9 µs."""
    rows, out = tmp_path / "rows.csv", tmp_path / "out.csv"
    launch = "H100,elementwise,add,fp16,8192,4096,1024,4,1"
    rows.write_text(f"gpu,family,op,dtype,B,H,BLOCK_SIZE,num_warps,num_stages,latency_us\n{launch},48\n{launch},85\n")
    assert main(["predict", str(rows), "-o", str(out)]) == 0
    below, above = csv.DictReader(out.read_text().splitlines())
    assert float(below["latency_us"]) / 1.1 < float(below["bound_us"]) and float(below["p_speedup_10pct"]) == 0.001
    assert float(above["p_speedup_10pct"]) > 0.5


def test_two_predicted_latencies_are_less_certain_than_one_that_was_measured() -> None:
    """A standard deviation above `at_least`, 84.13 of 100 win (table of the normal distribution); two errors are sqrt(2) wide."""
    problem, gpu, predictor = gemm(4096, 4096, 4096, "bf16"), load_gpu("H100"), AnalyticalPredictor()

    def latency(us: float) -> Prediction:
        return Prediction(us=np.array([us]), low_us=np.array([us]), high_us=np.array([us]), learned=False)

    ceiling = latency(1000.0)
    both = latency(1100.0 * np.exp(SIGMA * 2**0.5))
    assert predictor.p_speedup(problem, gpu, None, both, ceiling)[0] == pytest.approx(0.8413, abs=1e-3)
    measured = np.array([1100.0 * np.exp(SIGMA)])
    assert predictor.p_speedup(problem, gpu, measured, both, ceiling)[0] == pytest.approx(0.8413, abs=1e-3)
    now = latency(1000.0 * NOTICED * np.exp(SIGMA * 2**0.5))
    assert predictor.p_gain(problem, gpu, now, ceiling) == pytest.approx(0.8413, abs=1e-3)


def test_products_on_amd_are_said_to_be_as_far_from_the_model_as_those_measured() -> None:
    """Four fp8 launches of a fused MoE posted for an MI300X took 2.3 to 12.5 times what the pipelines need."""
    problem, gpu = gemm(512, 4096, 4096, "fp8"), load_gpu("MI300X")
    parameters = {"BLOCK_SIZE_M": column(128), "BLOCK_SIZE_N": column(128), "BLOCK_SIZE_K": column(64), "GROUP_SIZE_M": column(1)}
    configuration = ConfigurationBatch(parameters=parameters, num_warps=column(8), num_stages=column(2))
    needed = analyse(problem, configuration, gpu).latency_us
    found = AnalyticalPredictor().predict(problem, configuration, gpu)
    assert found.low_us < 2.3 * needed < 5 * needed < found.high_us and found.low_us < found.us < found.high_us
    silu = ProblemBatch(family="elementwise", op="silu", sizes={"B": column(4096), "H": column(4096)}, dtype="bf16")
    moved = AnalyticalPredictor().predict(silu, None, gpu)
    assert moved.high_us / moved.us < 1.4  # without products it is as near as on other GPUs
