"""The verdicts are right as often as `reports/docs/pull-requests.md` says: half as many simulated comparisons each as the page's."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from advisor.measurement.statistics import Side, verdict
from advisor.result.schema import Round

_SPEC = importlib.util.spec_from_file_location("verdicts", Path(__file__).parent.parent / "bench" / "verdicts.py")
assert _SPEC is not None and _SPEC.loader is not None
verdicts = importlib.util.module_from_spec(_SPEC)
sys.modules["verdicts"] = verdicts
_SPEC.loader.exec_module(verdicts)
SCENARIOS = {scenario.name: scenario for scenario in verdicts.SCENARIOS}
TRIALS = 1_000


@pytest.mark.parametrize("name", SCENARIOS)
def test_without_a_change_hardly_anything_regresses_and_drift_alone_never(name):
    found = verdicts.rates(SCENARIOS[name], 0.0, trials=TRIALS, seed=1)
    assert found["regressed"] <= 0.01 and found["improved"] <= 0.01
    if name.startswith("drift"):
        assert found["regressed"] == 0.0


def test_three_percent_are_found_at_one_percent_noise():
    assert verdicts.rates(SCENARIOS["1 % noise"], 0.03, trials=TRIALS, seed=3)["regressed"] >= 0.95
    assert verdicts.rates(SCENARIOS["1 % noise"], -0.03, trials=TRIALS, seed=3)["improved"] >= 0.95


def test_the_vectorised_decision_is_the_verdict_function():
    generator = np.random.default_rng(4)
    for scenario in verdicts.SCENARIOS:
        for change in (0.0, 0.02, 0.04):
            base, head = scenario.simulate(generator, 6, 10, change)
            found = verdicts.decide(base, head)
            for i in range(6):
                sides = [Side(rounds=tuple(Round(samples_us=(float(v),)) for v in side[i]), session="s") for side in (base, head)]
                assert verdict(*sides).verdict == found[i]


def test_a_clock_that_differs_between_two_runs_is_not_a_regression():
    """Separate runs, the second at a clock 6 % lower: time moves, cycles do not."""
    generator = np.random.default_rng(5)
    for _ in range(50):
        sides = []
        for clock in (1980.0, 1861.0):
            latencies = 100 * (1980.0 / clock) * np.exp(0.005 * generator.standard_normal(10))
            sides.append(Side(rounds=tuple(Round(samples_us=(float(v),), sm_clock_mhz=clock) for v in latencies), session=str(clock)))
        assert verdict(*sides).verdict in ("inconclusive", "unchanged")
