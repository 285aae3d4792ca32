"""Baselines: fitted where they apply, and better than nothing in a world with known laws."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.training import data, evaluate
from tests.bench import peers
from tests.bench.peers import fit_network


def test_linear_model_and_bound_in_every_task(world, monkeypatch):
    monkeypatch.setattr(peers, "fit_network", lambda counts, efficiency, quantile=None: lambda other: np.full(len(other), 0.5))
    split = evaluate.split_without(data.read([world]), ("L40",))[0]
    found = peers.figures([peers.judge(split.kept, split.test)])
    assert set(found["tasks"]) == {"served", "exact", "best"}
    assert set(found["tasks"]["served"]) == {peers.LINEAR, peers.PIPEWEAVE}
    assert found["tasks"]["served"][peers.LINEAR]["mape_percent"] < 100
    assert set(found["tasks"]["served"][peers.LINEAR]["per_gpu"]) == {"L40"}
    assert len(found["diagnosis"]) == 3


def test_network_learns_and_its_quantile_lies_above():
    pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    counts = np.exp(rng.uniform(0, 8, (2000, 3)))
    efficiency = 0.2 + 0.5 / (1 + np.exp(-np.log(counts[:, 0]) + 4)) + rng.uniform(-0.1, 0.1, 2000)
    assert np.mean(np.abs(fit_network(counts, efficiency, epochs=30)(counts) / efficiency - 1)) < 0.25
    high = fit_network(counts, efficiency, quantile=0.8, epochs=30)(counts)
    assert 0.65 < (efficiency <= high).mean() < 0.95


def test_same_seed_same_network():
    pytest.importorskip("torch")
    counts = np.arange(1.0, 301.0).reshape(100, 3)
    first, second = (fit_network(counts, np.linspace(0.1, 0.9, 100), epochs=3)(counts) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_counts_are_those_of_the_published_rows(tmp_path):
    # The first row of PipeWeave's dataset/gemm_fp8_train.csv: tensor operations and cycles, and KiB, of the GPU and its busiest SM.
    (tmp_path / "gemm_fp8.csv").write_text("gpu,M,N,K,latency_us\nH20,108,8192,1024,13.6596\n")
    counts, us = peers._counts(data.read([tmp_path]))
    ops, cycles, sm_ops, sm_cycles, kib = counts[0, [0, 1, 2, 3, 4]]
    np.testing.assert_allclose(
        [ops, cycles, sm_ops, sm_cycles, kib, counts[0, 7]], [2147483648, 13443.282, 33554432, 16384, 8320, 256], rtol=1e-4
    )
    assert us[0] / 13.6596 == pytest.approx(0.53779, rel=1e-3)
