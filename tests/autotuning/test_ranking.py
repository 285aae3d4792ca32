"""Measured rows replayed as the GPU, through the decorator, for kernels that nobody described and problems that the weights did not see."""

from __future__ import annotations

import collections
import csv
import gzip
import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytest.importorskip("lightgbm")

import torch

from advisor.autotuning import ranking
from advisor.autotuning.decorator import autotune
from advisor.autotuning.keys import identity
from advisor.autotuning.ranking import Recognised
from advisor.autotuning.trials import Trials
from advisor.result.schema import Problem

from .left_out import fold_of, predictors
from .stranger_kernels import flash, product
from .test_compiled_ranking import SIDES, configs, h100, of_attention, of_product

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")]

__all__ = ["h100"]  # a fixture, for every test here


def replayed(kernel, names, table, arguments, grid):
    """A decision where the benchmark is a table of microseconds: its regret, and how many were measured."""
    launched = []
    real = kernel.run

    def run(*args, grid, warmup, **options):
        if warmup:
            return real(*args, grid=grid, warmup=True, **options)
        launched.append((*(options[name] for name in names), options["num_warps"], options["num_stages"]))
        return None

    def bench(call, quantiles):
        call()
        return [table[launched[-1]] / 1e3] * 3

    kernel.run = run
    try:
        tuned = autotune(configs(names, *table), do_bench=bench, key=[], cache_results=False, compile_ahead=False)(kernel)
        decision = tuned.decide(*arguments, grid=grid)
    finally:
        del kernel.run
    assert "its code" in decision.ranked_by, decision.ranked_by
    chosen = (*(decision.config.kwargs[name] for name in names), decision.config.num_warps, decision.config.num_stages)
    return table[chosen] / min(table.values()), len(set(launched))


def published(data, kernel):
    """Rows of a kernel on an H100 by problem: a table of microseconds by configuration."""
    path = data / "h100" / "tiles.csv.gz"
    if not path.exists():
        pytest.skip("the published rows are not at hand")
    found = collections.defaultdict(dict)
    with gzip.open(path, "rt") as file:
        for row in csv.DictReader(file):
            if row["kernel"] != kernel or row["status"] != "ok":
                continue
            more = json.loads(row["parameters"])
            sizes = tuple(int(row[name] or 0) for name in ("B", "H", "H_kv", "M", "N", "K", "D", "causal"))
            tile = [more.get(each) or int(row[other] or 0) for each, other in (("BLOCK_M", "BLOCK_SIZE_M"), ("BLOCK_N", "BLOCK_SIZE_N"))]
            if kernel == "gemm_kernel":
                tile += [int(row["BLOCK_SIZE_K"]), int(row["GROUP_SIZE_M"]), more["SPLIT_K"]]
            found[row["dtype"], sizes][(*tile, int(row["num_warps"]), int(row["num_stages"]))] = float(row["latency_us"])
    return found


def judged(monkeypatch, kernel, names, tables, call_of):
    """Of each problem, left out of the weights: latency of the choice over the best, and how many were measured, [n] both."""
    regrets, counts = [], []
    for (dtype, sizes), table in tables.items():
        left_out = predictors()[fold_of(sizes)]
        monkeypatch.setattr(ranking, "predictor", lambda model=left_out: model)
        regret, measured = replayed(kernel, names, table, *call_of(dtype, *sizes))
        regrets.append(regret)
        counts.append(measured)
    return np.array(regrets), np.array(counts)


def test_products_of_an_h100_take_four_measurements(data_dir, monkeypatch):
    kinds = {"bf16": torch.bfloat16, "fp8": torch.float8_e4m3fn}
    tables = {(dtype, (m, n, k, 1)): rows for (dtype, (*_, m, n, k, _, _)), rows in published(data_dir, "gemm_kernel").items()}
    regrets, counts = judged(monkeypatch, product, SIDES, tables, lambda dtype, m, n, k, _: of_product(m, n, k, kinds[dtype]))
    print(f"{regrets.size} products: within 2 % {np.mean(regrets <= 1.02):.3f}, worst {regrets.max():.3f}, measured {counts.max()}")
    assert regrets.size > 50 and counts.max() <= 4 and np.mean(regrets <= 1.02) >= 0.9 and regrets.max() <= 1.1


def test_attention_of_an_h100_takes_four_measurements(data_dir, monkeypatch):
    tables = published(data_dir, "attention_kernel")
    tables = {(dtype, (b, h, h_kv, m, n, d, causal)): rows for (dtype, (b, h, h_kv, m, n, _, d, causal)), rows in tables.items()}
    of = lambda dtype, b, h, h_kv, m, n, d, causal: of_attention(b, h, h_kv, n, d, causal)  # noqa: E731
    regrets, counts = judged(monkeypatch, flash, ("ROWS", "COLS"), tables, of)
    print(f"{regrets.size} of attention: within 2 % {np.mean(regrets <= 1.02):.3f}, worst {regrets.max():.3f}, measured {counts.max()}")
    assert regrets.size >= 12 and counts.max() <= 4 and np.mean(regrets <= 1.02) >= 0.9 and regrets.max() <= 1.1


NAMES = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")
GPUS = {"A100-SXM4-80GB": "A100", "H100-SXM-80GB-HBM3": "H100", "V100-PCIE-16GB": "V100-PCIe-16GB", "MI250X/MI250": "MI250X"}
MOST_PROBLEMS = 100


def test_swept_products_take_few_trials(data_dir, monkeypatch):
    """All configurations of a problem as the list, up to 14,351; of the many problems of a GPU a sample. Trials go on to 20, whatever they
    promise."""
    tables = collections.defaultdict(dict)
    with gzip.open(data_dir / "dejavu" / "gemm.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            if row["status"] == "ok" and row["num_ctas"] == "1":
                config = tuple(int(row[name]) for name in (*NAMES, "num_warps", "num_stages"))
                tables[row["gpu"], *(int(row[name]) for name in "MNK")][config] = float(row["latency_us"])
    monkeypatch.setattr("advisor.autotuning.trials.GAIN", 0.0)
    until, after = collections.defaultdict(list), []
    for (gpu, m, n, k), table in sampled(tables):
        left_out = predictors(data_dir / "dejavu")[fold_of((m, n, k))]
        monkeypatch.setattr(ranking, "predictor", lambda model=left_out: model)
        listed = configs(NAMES, *table)
        problem = Problem(family="gemm", op="gemm", sizes={"M": m, "N": n, "K": k}, dtype="fp16")
        ranked = ranking.rank([identity(each) for each in listed], Recognised(problem=problem, how="hint"), "", GPUS[gpu])
        assert ranked.modelled, ranked.by
        trials = Trials(ranked=ranked, configurations=[each.all_kwargs() for each in listed], most=20)
        us, measured = list(table.values()), {}
        while batch := trials.next(measured, 4):
            measured |= {place: us[place] for place in batch}
        over_best = np.minimum.accumulate(list(measured.values())) / min(us)
        until[gpu].append(int(np.argmax(over_best <= 1.02)) + 1 if over_best[-1] <= 1.02 else 21)
        after.append(over_best[-1])
    for gpu, counts in {**until, "all": [count for each in until.values() for count in each]}.items():
        print(f"{gpu}: {len(counts)} products, {np.median(counts):g} trials to within 2 % in the median, p90 {np.quantile(counts, 0.9):g}")
    print(f"after 20 at worst {max(after):.3f} of the best")
    assert np.median(counts) <= 2 and np.quantile(counts, 0.9) <= 6 and max(after) <= 1.25


def sampled(tables):
    """Problems of 20 configurations and more, at most `MOST_PROBLEMS` of a GPU."""
    for gpu in GPUS:
        own = [each for each in sorted(tables.items()) if each[0][0] == gpu and len(each[1]) >= 20]
        yield from (own[i] for i in np.random.default_rng(0).permutation(len(own))[:MOST_PROBLEMS])
