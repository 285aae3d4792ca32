"""Prints what the static verdict calls a change that is known to have helped: pytest -m bench -s tests/bench/test_predicted_changes.py.

In the published sweeps the default configuration and nearly best ones of the same problem were measured. Replacing the one by the
other is a change whose effect is known; the static verdict has to call it from predictions alone.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advisor import load_predictor
from advisor.comparison.static import judge
from advisor.gpus.hardware import match_device_name
from advisor.measurement.measured_rows import read_measured
from advisor.pipelines import configuration_batch, problem_batch
from advisor.result.comparison_schema import StaticSide
from advisor.result.schema import Latency

BINS = ((0.0, 0.02), (0.02, 0.1), (0.1, 0.3), (0.3, 1.0), (1.0, 100.0))
EVERY = 7


@pytest.mark.bench
def test_print_predicted_changes(data_dir: Path) -> None:
    predictor = load_predictor(None)
    default = {}
    for row in read_measured(data_dir / "fused_moe_sweep_summary.csv.gz"):
        if row.latency_us is not None and row.configuration is not None:
            default[row.gpu, repr(row.problem)] = row
    calls: dict[tuple[float, float], list[str]] = {each: [] for each in BINS}
    for number, row in enumerate(read_measured(data_dir / "fused_moe_near_optimal.csv.gz")):
        before, gpu = default.get((row.gpu, repr(row.problem))), match_device_name(row.gpu)
        if number % EVERY or before is None or gpu is None or row.latency_us is None or row.configuration is None:
            continue
        sides = []
        for configuration in (before.configuration, row.configuration):
            us = float(predictor.predict(problem_batch([row.problem]), configuration_batch([configuration]), gpu).us[0])
            latency = Latency(us=us, origin="predicted", source="") if np.isfinite(us) else None
            sides.append(StaticSide(configuration=configuration, source="", predicted=latency))
        gain = before.latency_us / row.latency_us - 1
        for low, high in BINS:
            if low <= gain < high:
                calls[low, high].append(judge(sides[0], sides[1], in_base=True)[0])
    print(f"\n{'measured speedup':<20}{'pairs':>7}{'improved':>11}{'unchanged':>11}{'regressed':>11}{'other':>8}   as predicted, in %")
    for (low, high), found in calls.items():
        shares = [100 * np.mean([call == f"predicted-{word}" for call in found]) for word in ("improved", "unchanged", "regressed")]
        line = f"{low:>6.0%} to {min(high, 9.99):<9.0%}{len(found):>7}" + "".join(f"{share:>11.1f}" for share in shares)
        print(f"{line}{100 - sum(shares):>8.1f}")
