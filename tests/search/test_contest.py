"""Configurations told apart on a board at its power limit, and how often that is measured."""

from __future__ import annotations

import random

import pytest

from advisor.measurement.devices.fake import PowerLimit
from advisor.search.contest import BURST_US, MOST, Reading, contest


def test_power_limit_falls_with_energy_and_recovers_with_rest():
    board = PowerLimit(cap_w=700.0, burst_j=20.0, idle_w=100.0)
    assert board.run(600.0, 10.0) == 1.0, "what draws less than the limit runs at the full clock for ever"
    assert board.run(900.0, 0.02) > 0.99, "a burst passes"
    for _ in range(20):
        share = board.run(900.0, 0.1)
    assert share == pytest.approx((600 / 800) ** (1 / 3), rel=0.01), "the cube of the clock brings the power down to the limit"
    board.rest(1.0)
    assert board.excess_j == 0.0 and board.run(900.0, 0.02) > 0.99


class Board:
    """Two configurations on a board at its power limit; what each takes rested, and what it draws."""

    def __init__(self, dice: random.Random, us: list[float]) -> None:
        self.us, self.draw = us, [dice.uniform(600, 1100) for _ in us]
        self.limit = PowerLimit(cap_w=700.0, burst_j=dice.uniform(5, 60))
        self.limit.excess_j = dice.random() * self.limit.burst_j
        self.seconds, self.power, self.dice = dice.uniform(0.02, 0.15), dice.uniform(0.7, 1.0), dice
        self.measured: list[int] = []

    def measure(self, place: int) -> Reading:
        self.measured.append(place)
        self.limit.rest(0.005)
        share = self.limit.run(self.draw[place], self.seconds)
        us = self.us[place] * share**-self.power * (1 + self.dice.gauss(0, 0.003))
        return Reading(us=us, clock_mhz=1980 * share)


def pairs(count: int):
    """Pairs that differ by more than 3 % rested, up to 12."""
    for seed in range(count):
        dice = random.Random(seed)
        base = dice.uniform(20, 400)
        us = [base, base * (1 + dice.uniform(0.03, 0.12))]
        dice.shuffle(us)
        yield dice, us


def test_pairs_on_a_hot_board_are_decided_right():
    right = once = 0
    for dice, us in pairs(200):
        board = Board(dice, us)
        first = {place: board.measure(place) for place in (0, 1)}
        found = contest(first, board.measure)
        right += min(found.us, key=found.us.__getitem__) == us.index(min(us))
        once += (first[0].us < first[1].us) == (us[0] < us[1])
        assert len(board.measured) <= 4
    assert right >= 198 and once < 195, "measured once each in turn, more are wrong"


def test_what_outlasts_a_burst_is_judged_as_it_is_sustained():
    board = Board(random.Random(1), [2 * BURST_US, 2.1 * BURST_US])
    board.draw, board.seconds, board.power = [1100.0, 650.0], 2.0, 1.0
    found = contest({place: board.measure(place) for place in (0, 1)}, board.measure)
    assert found.judged == "sustained" and found.us[1] < found.us[0], "the faster one rested draws more than the board supplies"
    assert "clock that each sustains" in str(found)


def test_the_clock_stands_beside_each():
    board = Board(random.Random(2), [100.0, 104.0])
    board.draw = [1000.0, 1000.0]
    board.limit = PowerLimit(cap_w=700.0, burst_j=30.0)
    found = contest({place: board.measure(place) for place in (0, 1)}, board.measure)
    assert found.judged == "rested" and found.us[1] / found.us[0] == pytest.approx(1.04, abs=0.01)
    assert all(1600 < low <= high <= 1980 for low, high in found.clocks_mhz.values()) and f"{found.clock_mhz:.0f} MHz" in str(found)


@pytest.mark.parametrize("count", [2, 3, 48])
def test_what_does_not_change_is_not_measured_for_long(count):
    first = {place: Reading(us=1000.0 + place / 100) for place in range(count)}
    found = contest(first, first.__getitem__)
    assert found.measurements <= 4 and found.told_apart and found.judged == "as measured"
    assert found.us == {place: first[place].us for place in range(min(count, MOST))}


def test_what_is_far_from_the_best_is_not_measured_again():
    found = contest({0: Reading(us=100.0), 1: Reading(us=111.0), 2: Reading(us=250.0)}, lambda place: pytest.fail("measured"))
    assert found.measurements == 0 and found.us == {0: 100.0} and str(found) == ""


def test_a_measurement_that_fails_ends_it():
    found = contest({0: Reading(us=100.0), 1: Reading(us=104.0)}, lambda place: None)
    assert found.measurements == 0 and not found.told_apart


def test_never_more_than_as_many_again():
    dice = random.Random(3)
    for count in (2, 5, 16):
        made = []
        measure = lambda place: (made.append(place), Reading(us=100 * (1 + dice.uniform(0, 0.2))))[1]  # noqa: E731, B023
        found = contest({place: Reading(us=100 * (1 + dice.uniform(0, 0.08))) for place in range(count)}, measure)
        assert found.measurements == len(made) <= count
