"""The physics of library products: it finds the tiles and rates that made the rows, and carries to GPUs it never saw."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned.library import direct, tiled
from advisor.learned.machine import machine
from advisor.pipelines import ProblemBatch, column
from advisor.training import training
from advisor.training.data import Measured


def products(m, n, k) -> ProblemBatch:
    sizes = dict(zip("MNK", np.broadcast_arrays(*(column(x) for x in (m, n, k))), strict=True))
    return ProblemBatch(family="gemm", op="gemm", dtype="fp8", sizes={name: c.astype(float) for name, c in sizes.items()})


@pytest.fixture(scope="module")
def grid() -> ProblemBatch:
    m, n, k = np.meshgrid([8, 64, 200, 640, 2048, 8192], [512, 1536, 4096, 7168], [512, 2048, 5120], indexing="ij")
    return products(m.ravel(), n.ravel(), k.ravel())


@pytest.mark.parametrize("library", ["scaled", "plain"])
def test_finds_the_library_and_rates_of_a_known_world(grid, library):
    true = tiled.start(library)
    names = list(tiled.PARAMETERS)
    shifted = true.parameters.copy()
    shifted[names.index("launch_us")] += 0.4
    shifted[names.index("pipeline_share")] -= 0.2
    true = dataclasses.replace(true, parameters=shifted)
    rows = [(grid, gpu := machine(load_gpu(name), "fp8"), tiled.terms(grid, gpu, true)[0]) for name in ("H20", "H800")]
    found = tiled.fit(rows)
    assert found.library == library
    other = machine(load_gpu("H200"), "fp8")
    assert tiled.terms(grid, other, found)[0] == pytest.approx(tiled.terms(grid, other, true)[0], rel=0.03)


def test_latency_grows_with_every_size(grid):
    gpu, physics = machine(load_gpu("H800"), "fp8"), tiled.start("plain")
    us = tiled.terms(grid, gpu, physics)[0]
    for name in "MNK":
        more = tiled.terms(dataclasses.replace(grid, sizes=grid.sizes | {name: grid.sizes[name] * 2}), gpu, physics)[0]
        assert (more >= us * 0.999).all(), name


def test_a_single_row_of_tiles_takes_the_same_time_however_few_rows():
    """fp8 kernels with one tile of 128 rows: M from 1 to 128 is one tile."""
    gpu, physics = machine(load_gpu("H20"), "fp8"), tiled.start("scaled")
    us = tiled.terms(products([4, 32, 128], 2048, 2048), gpu, physics)[0]
    assert us.max() / us.min() < 1.05
    # 16 steps of 2 x 128 x 128 x 128 FLOP at 2,048 FLOP per clock and SM, 1.83 GHz: 18 us
    assert us.min() > 16 * 2 * 128**3 / gpu.flop_per_clock_per_sm / gpu.clock_mhz


def test_a_plain_product_is_padded_by_what_its_library_loads_at_a_time():
    """sgemm loads 8 of K at a time, so a batch with K = 64 takes half of one with K = 128; scaled fp8 takes as much for both."""
    gpu = machine(load_gpu("V100"), "fp32")
    batch = [dataclasses.replace(p, sizes=p.sizes | {"B": column(512.0)}) for p in (products(256, 256, 64), products(256, 256, 128))]
    half, whole = (tiled.terms(b, gpu, tiled.start("plain"))[1][0, 0] for b in batch)
    assert 0.45 < half / whole < 0.65
    half, whole = (tiled.terms(b, gpu, tiled.start("scaled"))[1][0, 0] for b in batch)
    assert half == whole


def test_k_is_split_where_tiles_are_too_few_for_the_gpu():
    """One tile of 64 x 128 and 8,192 of K: sixteen CTAs share it, and a reduction adds them up."""
    gpu, physics = machine(load_gpu("A100"), "fp32"), tiled.start("plain")
    alone, split = (tiled.terms(products(64, 128, 8192), gpu, p)[0][0] for p in (tiled.start("scaled"), physics))
    assert split < alone / 4
    assert tiled.terms(products(4096, 4096, 8192), gpu, physics)[0][0] > 1.9 * tiled.terms(products(4096, 4096, 4096), gpu, physics)[0][0]


def test_training_carries_to_gpus_never_seen(grid, monkeypatch):
    """The H100 is an H800 here, the H200 has another memory; of the RTX 4090 no generation was learned. 144 rows ask for few trees."""
    monkeypatch.setattr(training, "GEMM", training.GEMM | {"max_iter": 150})
    true = tiled.start("scaled")
    noise = np.random.default_rng(0)
    parts = []
    for name in ("H20", "H800"):
        us = tiled.terms(grid, machine(load_gpu(name), "fp8"), true)[0] * np.exp(0.003 * noise.standard_normal(72))
        parts.append(Measured(kind="direct", gpu=load_gpu(name), problem=grid, configuration=None, latency_us=us))
    model = training.fit_library("gemm/fp8", parts, lambda text: None)
    assert model.held_out["shape"]["mape_percent"] < 6
    other = machine(load_gpu("H200"), "fp8")
    (us, low, high), far = model.predict(grid, other, seen=False)
    truth = tiled.terms(grid, other, true)[0]
    assert (far <= 2).all()
    assert np.abs(us / truth - 1).mean() < 0.05
    assert ((low <= us) & (us <= high)).all()
    halves = [
        np.log(high / low).mean() / 2
        for _, low, high in (model.predict(grid, machine(load_gpu(name), "fp8"), seen=False)[0] for name in ("H100", "H200", "RTX 4090"))
    ]
    assert direct.TWIN_SPREAD < halves[0] < 0.04 < halves[1] < 0.1 < halves[2]
    stored, meta = model.arrays()
    again = direct.load(stored, "gemm/fp8", meta)
    assert again.predict(grid, other, seen=False)[0][0] == pytest.approx(us)
