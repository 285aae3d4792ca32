"""Decisions on a board at its power limit, through the decorator."""

from __future__ import annotations

import random

from advisor.measurement.devices.fake import PowerLimit

from .fakes import Bench, FakeKernel, Tensor
from .kernels import configs, scale

CLOCK_MHZ = 1980.0


def decided(seed: int, driver) -> tuple[bool, bool, int, object]:
    """Whether a pair that differs by 3 to 12 % rested was decided right, and by the first measurement of each, and measurements."""
    from advisor.autotuning.decorator import autotune

    dice = random.Random(seed)
    base = dice.uniform(20, 400)
    us = {32: base, 64: base * (1 + dice.uniform(0.03, 0.12))}
    blocks = [32, 64]
    dice.shuffle(blocks)
    draw = {block: dice.uniform(600, 1100) for block in blocks}
    board = PowerLimit(cap_w=700.0, burst_j=dice.uniform(5, 60))
    board.excess_j = dice.random() * board.burst_j
    seconds, power = dice.uniform(0.02, 0.15), dice.uniform(0.7, 1.0)
    share = [1.0]
    driver.get_sm_clock_mhz = lambda: CLOCK_MHZ * share[0]

    def latency_ms(launch):
        board.rest(0.005)
        share[0] = board.run(draw[launch["BLOCK"]], seconds)
        return us[launch["BLOCK"]] * share[0] ** -power * (1 + dice.gauss(0, 0.003)) / 1e3

    kernel = FakeKernel(scale)
    bench = Bench(kernel, latency_ms)
    tuned = autotune(configs(*blocks), do_bench=bench, key=["n"], cache_results=False)(kernel)
    tuned[(1,)](Tensor(), seed)
    first = {config.kwargs["BLOCK"]: times[0] for config, times in tuned.configs_timings.items()}
    return tuned.best_config.kwargs["BLOCK"] == 32, min(first, key=first.__getitem__) == 32, tuned.decision.measurements, tuned.decision


def test_pairs_that_differ_rested_are_decided_right(fake_driver):
    found = [decided(seed, fake_driver) for seed in range(200)]
    assert sum(right for right, *_ in found) >= 198
    assert sum(once for _, once, *_ in found) < 195, "as measured once each in turn, it is not"
    assert all(measurements <= 4 for *_, measurements, _ in found)


def test_the_decision_says_at_which_clock_and_shows_each(fake_driver):
    for seed in range(20):
        *_, measurements, decision = decided(seed, fake_driver)
        if measurements > 2 and "judged at one clock" in decision.reason:
            break
    assert "of them measured in rounds" in decision.reason
    assert all(" MHz" in line for line in str(decision).splitlines() if line.startswith("  "))
