"""Rounds: interleaved, enough of them, and dropped ones kept with their reason."""

from __future__ import annotations

import numpy as np

from advisor.measurement.launch import Timing
from advisor.measurement.rounds import measure_rounds


def steady(side, number):
    return Timing(samples_us=(100.0 + side,), sm_clock_mhz=1800.0)


def test_every_side_once_per_round_in_changing_order():
    order = []

    def time_side(side, number):
        order.append((number, side))
        return steady(side, number)

    found = measure_rounds(time_side, 4, seed=3)
    assert [len(side.rounds) for side in found] == [10] * 4
    assert [number for number, _ in order] == sorted(number for number, _ in order)
    by_round = [tuple(side for number, side in order if number == r) for r in range(10)]
    assert all(sorted(sides) == [0, 1, 2, 3] for sides in by_round) and len(set(by_round)) > 3


def test_slow_clocks_are_dropped_with_a_reason_and_made_up_for():
    def time_side(side, number):
        slow = number in (2, 5)
        return Timing(
            samples_us=(150.0 if slow else 100.0,), sm_clock_mhz=1000.0 if slow else 1800.0, throttle=("hw-thermal",) if slow else ()
        )

    (found,) = measure_rounds(time_side, 1, default_clock_mhz=1800.0)
    assert len(found.rounds) == 12 and sum(r.discarded is None for r in found.rounds) == 10
    assert found.rounds[2].discarded == "clock 1000 MHz is 56 % of the default 1800 MHz (hw-thermal)"
    assert found.rounds[2].samples_us == (150.0,) and found.throttle == ("hw-thermal",)


def test_noisy_sides_get_more_rounds_and_quiet_ones_do_not():
    generator = np.random.default_rng(0)

    def time_side(side, number):
        return Timing(samples_us=(100.0 * (1 + 0.2 * generator.standard_normal() * side),))

    quiet, noisy = measure_rounds(time_side, 2)
    assert len(quiet.rounds) == 10 and len(noisy.rounds) == 30
    together = measure_rounds(time_side, 2, together=True)
    assert [len(side.rounds) for side in together] == [30, 30]


def test_a_gpu_that_is_always_throttled_gives_up_at_thirty():
    (found,) = measure_rounds(lambda side, number: Timing(samples_us=(1.0,), sm_clock_mhz=10.0), 1, default_clock_mhz=1000.0)
    assert len(found.rounds) == 30 and all(r.discarded for r in found.rounds)


def test_a_gpu_that_its_power_cap_holds_down_is_judged_by_the_clock_it_keeps():
    """An L4 under load runs at some 60 % of its highest clock for as long as it is busy."""

    def time_side(side, number):
        return Timing(samples_us=(100.0,), sm_clock_mhz=700.0 if number == 4 else 1230.0 - 10 * side, throttle=("sw-power-cap",))

    for side in measure_rounds(time_side, 2, default_clock_mhz=2040.0):
        assert len(side.rounds) == 11 and [i for i, r in enumerate(side.rounds) if r.discarded] == [4]
        assert side.rounds[4].discarded.startswith("clock 700 MHz is 57 % of the default 12")


def test_heat_is_no_excuse():
    hot = Timing(samples_us=(1.0,), sm_clock_mhz=1000.0, throttle=("sw-power-cap", "sw-thermal"))
    (found,) = measure_rounds(lambda side, number: hot, 1, default_clock_mhz=2040.0)
    assert all(r.discarded for r in found.rounds)
