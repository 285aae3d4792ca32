"""The bound against every published measurement: physics cannot be beaten."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from published import Measured, measurements


@pytest.fixture(scope="module")
def everything(data_dir: Path) -> list[Measured]:
    return list(measurements(data_dir))


def test_no_measurement_is_faster_than_its_bound(everything: list[Measured]) -> None:
    assert {m.source for m in everything} == {
        "fused_moe_default",
        "fused_moe_near_optimal",
        "fused_moe_sweep_summary",
        "gemm_fp8",
        "library_ops",
    }
    for m in everything:
        assert (m.share <= 1).all(), (m.source, m.gpu.name, m.op, int((m.share > 1).sum()), float(m.share.max()))


def test_no_configuration_is_faster_than_its_bound(everything: list[Measured]) -> None:
    with_configuration = [m for m in everything if m.config_bound_us is not None]
    assert with_configuration
    for m in with_configuration:
        assert (m.config_bound_us <= m.latency_us).all(), (m.source, m.gpu.name)
        assert (m.resident >= 1).all(), (m.source, m.gpu.name)  # it ran, so it fitted
        assert (m.config_bound_us >= m.bound_us * (1 - 1e-9)).all(), (m.source, m.gpu.name)


def test_no_more_dram_traffic_is_predicted_than_the_time_allows(everything: list[Measured]) -> None:
    """The A40's 6 MB L2 holds neither operand, but tiles that run at once share their rows: without that it was up to 2.6 times as much."""
    for m in everything:
        if m.dram_us is not None:
            over = m.dram_us / m.latency_us
            assert (over > 1).mean() < 0.005, (m.gpu.name, float((over > 1).mean()))
            assert over.max() < 1.25, (m.gpu.name, float(over.max()))


def test_the_bound_is_close(everything: list[Measured]) -> None:
    share = np.concatenate([m.share for m in everything if m.source == "fused_moe_default"])
    assert np.median(share) >= 0.72
