"""The physics of operators over rows: it finds the constants that made the rows, and carries to GPUs it never saw."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned.library import direct
from advisor.learned.machine import machine
from advisor.pipelines import ProblemBatch, column
from advisor.training import training
from advisor.training.data import Measured

TRUE = {"add": (12.0, 1.1), "softmax": (30.0, 1.9)}


def rows(op: str) -> ProblemBatch:
    b, h = np.meshgrid(2.0 ** np.arange(10, 18), [512.0, 1000.0, 4096.0, 12288.0], indexing="ij")
    family = "normalization" if op == "softmax" else "elementwise"
    return ProblemBatch(family=family, op=op, dtype="fp32", sizes={"B": column(b.ravel()), "H": column(h.ravel())})


def measured(name: str, op: str, noise: np.random.Generator) -> Measured:
    overhead_us, ratio = TRUE[op]
    problem, gpu = rows(op), load_gpu(name)
    us = overhead_us + ratio * direct.memory_us(problem, machine(gpu, "fp32"))
    us *= np.exp(0.01 * noise.standard_normal(us.size))
    return Measured(kind="direct", gpu=gpu, problem=problem, configuration=None, latency_us=us)


@pytest.fixture(scope="module")
def parts() -> list[Measured]:
    noise = np.random.default_rng(0)
    return [measured(name, op, noise) for name in ("T4", "V100-PCIe", "A100-40GB-PCIe") for op in TRUE]


def test_finds_the_constants_of_a_known_world(parts):
    found = direct.fit([(p.problem, machine(p.gpu, "fp32"), p.latency_us) for p in parts])
    for op, (overhead_us, ratio) in TRUE.items():
        assert found.parameters[direct.OPERATORS.index(op)] == pytest.approx([overhead_us, ratio], rel=0.03)
    assert found.parameters[direct.OPERATORS.index("silu_and_mul")] == pytest.approx(direct.START)


def test_carries_to_a_gpu_never_seen(parts):
    model = training.fit_library("rows/fp32", parts, lambda text: None)
    assert model.held_out["gpu"]["mape_percent"] < 3
    h100 = machine(load_gpu("H100"), "fp32")
    for op, (overhead_us, ratio) in TRUE.items():
        truth = overhead_us + ratio * direct.memory_us(rows(op), h100)
        (us, low, high), _ = model.predict(rows(op), h100, seen=False)
        assert np.abs(us / truth - 1).mean() < 0.05
        assert ((low <= us) & (us <= high)).all()
    stored, meta = model.arrays()
    again = direct.load(stored, "rows/fp32", meta)
    assert again.predict(rows("add"), h100, seen=False)[0][0] == pytest.approx(model.predict(rows("add"), h100, seen=False)[0][0])


def test_what_an_l2_holds_does_not_come_from_dram():
    """2 x 16 MiB are a third of the L40's L2, and far more than the T4's."""
    problem = ProblemBatch(family="elementwise", op="relu", dtype="fp32", sizes={"B": column(4096.0), "H": column(1024.0)})
    for name, from_dram in (("L40", False), ("T4", True)):
        gpu = machine(load_gpu(name), "fp32")
        dram_us = float(direct.bytes_moved(problem)[0] / gpu.streamed_dram_bytes)
        assert (direct.memory_us(problem, gpu)[0] > 0.99 * dram_us) == from_dram
        assert from_dram or direct.memory_us(problem, gpu)[0] < dram_us / 3


def test_two_operands_move_half_as_much_again():
    assert direct.bytes_moved(rows("add")) == pytest.approx(1.5 * direct.bytes_moved(rows("softmax")))
