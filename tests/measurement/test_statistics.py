"""The verdict function: exhaustive, disjoint, and right about noise, drift and outliers."""

from __future__ import annotations

import itertools
from typing import get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisor.measurement import statistics
from advisor.measurement.launch import Failure
from advisor.measurement.statistics import Side, VerdictName, effect, noise_floor, outliers, verdict
from advisor.result.schema import Fingerprint, Round
from advisor.system.errors import UsageError

GPU = Fingerprint(mode="gpu", gpu="H200", driver="580", cuda="13.0", triton="3.9.0", power_cap_w=700.0)


def rounds(values, clock=1980.0, discarded=None):
    return tuple(Round(samples_us=(float(v),), sm_clock_mhz=clock, discarded=discarded) for v in values)


def side(values, **changes):
    return Side(rounds=rounds(values), fingerprint=GPU, session="one", **changes)


def noisy(level, count, seed, noise=0.01):
    return level * np.exp(noise * np.random.default_rng(seed).standard_normal(count))


@pytest.mark.parametrize(
    ("base", "head", "expected"),
    [
        (side(noisy(100, 10, 1)), side(noisy(110, 10, 2)), "regressed"),
        (side(noisy(110, 10, 1)), side(noisy(100, 10, 2)), "improved"),
        (side(noisy(100, 30, 1)), side(noisy(100, 30, 2)), "unchanged"),
        (side(noisy(100, 10, 1, 0.05)), side(noisy(101, 10, 2, 0.05)), "inconclusive"),
        (side(noisy(100, 9, 1, 0)), side(noisy(200, 9, 2, 0)), "inconclusive"),  # too few rounds, however clear
        (None, side([1.0]), "new"),
        (side([1.0]), None, "missing"),
        (side([1.0]), Side(failure=Failure(kind="hang", message="", stage="launch")), "failed"),
        (Side(failure=Failure(kind="hang", message="", stage="launch")), side([1.0]), "failed"),
        (side([1.0] * 10), Side(rounds=rounds([1.0] * 10, discarded="clock"), fingerprint=GPU), "inconclusive"),
        (side([1.0] * 10), Side(rounds=rounds([1.0] * 10), fingerprint=Fingerprint(mode="gpu", gpu="H100")), "not comparable"),
    ],
)
def test_each_verdict(base, head, expected):
    assert verdict(base, head).verdict == expected


def test_needs_a_side():
    with pytest.raises(UsageError):
        verdict(None, None)


def test_the_floor_widens_tau():
    base, head = side(noisy(100, 30, 1)), side(noisy(104, 30, 2))
    assert verdict(base, head).verdict == "regressed"
    assert verdict(base, head, floor=0.06).verdict == "unchanged"


def test_time_that_moved_with_the_clock_is_inconclusive():
    base = Side(rounds=rounds([100.0] * 10, clock=1980.0), session="one")
    head = Side(rounds=rounds([110.0] * 10, clock=1800.0), session="one")
    found = verdict(base, head)
    assert found.verdict == "inconclusive" and "cycles" in found.reason
    unknown = Side(rounds=rounds([110.0] * 10, clock=None), session="one")
    assert verdict(base, unknown).verdict == "regressed"


def test_boards_and_live_clocks_do_not_keep_from_comparing_but_drivers_do():
    def with_(**changes):
        values = {"mode": "gpu", "gpu": "H200", "driver": "580", "gpu_uuid": "a", "sm_clock_mhz": 1980.0, "power_cap_w": 700.0}
        return Fingerprint(**{**values, **changes})

    assert statistics.fingerprint_difference(with_(), with_(gpu_uuid="b", sm_clock_mhz=1800.0, power_cap_w=700.4)) is None
    assert statistics.fingerprint_difference(with_(), with_(driver=None)) is None
    assert "driver" in statistics.fingerprint_difference(with_(), with_(driver="570"))
    assert "power_cap_w" in statistics.fingerprint_difference(with_(), with_(power_cap_w=500.0))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(st.floats(0.5, 2.0), min_size=1, max_size=14),
    st.lists(st.floats(0.5, 2.0), min_size=1, max_size=14),
    st.floats(0, 0.2),
    st.booleans(),
)
def test_exhaustive_and_symmetric(base, head, floor, paired):
    """Any two sides get one of the verdicts, and swapping them swaps regressed and improved (up to the bootstrap's edges)."""
    sides = [Side(rounds=rounds(values), session="one" if paired else None) for values in (base, head)]
    found, swapped = verdict(*sides, floor=floor), verdict(*reversed(sides), floor=floor)
    assert found.verdict in get_args(VerdictName)
    assert {found.verdict, swapped.verdict} not in ({"regressed"}, {"improved"})
    if found.effect is not None:
        assert found.effect.low <= found.effect.relative <= found.effect.high
        if found.verdict == "unchanged":
            assert abs(found.effect.relative) < found.tau


def test_deterministic():
    base, head = side(noisy(100, 10, 1)), side(noisy(102, 10, 2))
    assert verdict(base, head) == verdict(base, head)


def test_drift_cancels_only_when_paired():
    drift = np.linspace(1.0, 1.3, 10)
    base, head = rounds(100 * drift), rounds(100 * drift)
    assert effect(base, head) == statistics.Effect(relative=0.0, low=0.0, high=0.0, rounds=10)
    assert effect(base, head, paired=False).high > 0.02


def test_noise_floor_and_outliers():
    assert noise_floor(rounds([1.0] * 10), rounds([1.0] * 10)) == 0.0
    assert 0.003 < noise_floor(rounds(noisy(1, 10, 1)), rounds(noisy(1, 10, 2))) < 0.03
    assert noise_floor(rounds([1.0] * 10), rounds([1.0] * 10, discarded="x")) is None
    spiky = tuple(Round(samples_us=(1.0, 1.001, 0.999, 3.0 if i == 4 else 1.0)) for i in range(10))
    assert outliers(spiky) == 1 and outliers(()) == 0


def simulate(seed, change=0.0, noise=0.01, drift=0.0, outlier_share=0.02, floor=0.0):
    """A comparison as `compare_launches` makes it: 10 rounds, 30 where they do not settle it."""
    generator = np.random.default_rng(seed)

    def sides(count):
        common = 1 + drift * np.arange(count) / 30 + 0.005 * generator.standard_normal(count)
        out = []
        for level in (100.0, 100.0 * (1 + change)):
            values = level * common[:, None] * np.exp(noise * generator.standard_normal((count, 1)))
            values = values * np.exp(0.004 * generator.standard_normal((count, 5)))
            values[generator.random(values.shape) < outlier_share] *= 4
            out.append(Side(rounds=tuple(Round(samples_us=tuple(row)) for row in values), session="one"))
        return out

    found = verdict(*sides(10), floor=floor)
    return (verdict(*sides(30), floor=floor) if found.wants_more_rounds else found).verdict


def test_no_change_is_unchanged_in_99_of_100():
    found = [simulate(seed) for seed in range(300)]
    assert found.count("unchanged") >= 0.99 * len(found), {name: found.count(name) for name in set(found)}


def test_drift_alone_is_never_a_regression():
    for seed, drift in itertools.product(range(60), (0.1, 0.5, -0.3)):
        assert simulate(seed, drift=drift) not in ("regressed", "improved")


def test_three_percent_is_found():
    found = [simulate(1000 + seed, change=0.03) for seed in range(200)]
    assert found.count("regressed") >= 0.95 * len(found), {name: found.count(name) for name in set(found)}
