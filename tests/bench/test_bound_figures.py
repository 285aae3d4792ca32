"""Prints how near the bound is to the measurements: pytest -m bench -s tests/bench/test_bound_figures.py."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "pipelines"))

from published import measurements


@pytest.mark.bench
def test_print_bound_figures(data_dir: Path) -> None:
    print(f"\n{'file':24} {'GPU':20} {'op':8} {'rows':>6} {'faster':>6} {'max':>6} {'median':>6}   bound / latency; config_bound alike")
    default = []
    for m in measurements(data_dir):
        if m.source == "fused_moe_default":
            default.append(m.share)
        line = f"{m.source:24} {m.gpu.name:20} {m.op:8} {m.share.size:6} {int((m.share > 1).sum()):6} {m.share.max():6.3f}"
        line += f" {np.median(m.share):6.3f}"
        if m.config_bound_us is not None:
            share = m.config_bound_us / m.latency_us
            line += f"   {int((share > 1).sum())} {share.max():.3f} {np.median(share):.3f}"
        print(line)
    print(f"fused_moe_default, all GPUs: median bound / latency {np.median(np.concatenate(default)):.4f} (at least 0.72)")
