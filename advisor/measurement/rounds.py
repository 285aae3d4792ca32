"""Measures one batch on one device, in this process: inputs, first launches, checks, then rounds in which every launch is timed once.

Interleaving is what makes drift (clocks, temperature, a neighbour) hit all sides alike. Every sample is kept; a round that ran
at too low a clock is kept too, with the reason why it does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from advisor.measurement import statistics
from advisor.measurement.devices.device import Bench, Device
from advisor.measurement.kernel_file import KernelRef
from advisor.measurement.launch import Batch, Failure, Outcome, Timing, classify, is_fatal
from advisor.result.schema import Round

Report = Callable[[str, int | None], None]
"""Told (stage, launch) before each step: whoever watches knows what hangs or crashes."""

TimeSide = Callable[[int, int], Timing]
"""(side, round) -> what it gave."""


class FatalFailure(Exception):  # noqa: N818
    """Nothing can run in this process any more; `index` None: it was not one launch's doing."""

    def __init__(self, index: int | None, failure: Failure) -> None:
        super().__init__(index, failure)
        self.index, self.failure = index, failure


class _RoundFailedError(Exception):
    """A launch that ran before has failed: the others are timed once more, without it."""


@dataclass(slots=True)
class _Run:
    """The state of a batch that is being measured."""

    device: Device
    batch: Batch
    report: Report
    benches: dict[KernelRef, Bench] = field(default_factory=dict)
    launched: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)

    def bench(self, index: int) -> Bench:
        return self.benches[self.batch.launches[index].kernel]

    def attempt(self, index: int, stage: str, step: Callable[[], Any], *, blame: bool = True) -> Any:
        """One step of one launch; a failure is written down, a fatal one ends the batch. `blame`: it is the launch's doing."""
        launch = index if blame else None
        self.report(stage, launch)
        try:
            return step()
        except Exception as error:
            failure = classify(error, stage)
            if is_fatal(error, failure):
                raise FatalFailure(launch, failure) from error
            self.failures[index] = failure
            return None

    def prepare(self, index: int) -> None:
        """Makes the inputs, launches once and checks what was written."""
        batch, launch = self.batch, self.batch.launches[index]
        if launch.kernel not in self.benches:
            bench = self.attempt(index, "inputs", lambda: self.device.open(launch.kernel, batch.problem, batch.seed), blame=False)
            if bench is None:
                return
            self.benches[launch.kernel] = bench
        bench = self.bench(index)
        launched = self.attempt(index, "launch", lambda: bench.launch(launch.configuration))
        if index not in self.failures:
            self.attempt(index, "check", lambda: bench.check(launched))
        if index not in self.failures:
            self.launched[index] = launched

    def time(self) -> dict[int, Outcome]:
        """Rounds of every launch that ran and was right; the first one is timed twice where a noise floor is wanted."""
        batch = self.batch
        while self.launched:
            owners = [*self.launched, *[*self.launched][: batch.floor]]

            def time_side(side: int, number: int, owners: list[int] = owners) -> Timing:
                index = owners[side]
                replica = sum(batch.launches[other] == batch.launches[index] for other in owners[:side])
                timing = self.attempt(index, "rounds", lambda: self.bench(index).time(self.launched[index], number, replica))
                if timing is None:
                    del self.launched[index]
                    raise _RoundFailedError
                return timing

            try:
                taken = measure_rounds(
                    time_side,
                    len(owners),
                    rounds=batch.rounds,
                    max_rounds=batch.max_rounds,
                    seed=batch.seed,
                    default_clock_mhz=self.device.default_clock_mhz,
                    together=batch.together,
                )
            except _RoundFailedError:
                continue
            floor = statistics.noise_floor(taken[0].rounds, taken[-1].rounds) if batch.floor else None
            return {
                index: replace(outcome, noise_floor=floor, timer=self.bench(index).timer(launched))
                for (index, launched), outcome in zip(self.launched.items(), taken, strict=False)
            }
        return {}


def run_batch(device: Device, batch: Batch, report: Report = lambda stage, index: None) -> list[Outcome]:
    """One outcome per launch, in order.

    Raises:
        FatalFailure: The process (or its CUDA context) is of no use any more.
    """
    run = _Run(device=device, batch=batch, report=report)
    try:
        for index in range(len(batch.launches)):
            run.prepare(index)
        timed = run.time()
        return [timed[index] if index in timed else Outcome(failure=run.failures[index]) for index in range(len(batch.launches))]
    finally:
        for bench in run.benches.values():
            bench.close()


def measure_rounds(
    time_side: TimeSide,
    sides: int,
    *,
    rounds: int = statistics.MIN_ROUNDS,
    max_rounds: int = statistics.MAX_ROUNDS,
    seed: int = 0,
    default_clock_mhz: float | None = None,
    together: bool = False,
) -> list[Outcome]:
    """Times `sides` sides in interleaved rounds.

    Args:
        time_side: Times one side once.
        sides: How many there are.
        rounds: Rounds that must count, per side.
        max_rounds: Rounds at most; what is noisy (interval wider than tau) or was dropped is repeated up to here.
        seed: Of the order within rounds.
        default_clock_mhz: Rounds below 75 % of it do not count; None: not known, all count. Where the power cap alone kept most
            rounds below, the GPU runs at no higher clock under load (L4: 72 W), and the rounds are judged by their own median clock.
        together: Extend all sides alike.
    """
    generator = np.random.default_rng(seed)
    timings: list[list[Timing]] = [[] for _ in range(sides)]
    taken: list[list[Round]] = []
    waiting = list(range(sides))
    number = 0
    while waiting and number < max_rounds:
        for side in (waiting[i] for i in generator.permutation(len(waiting))):
            timings[side].append(time_side(side, number))
        number += 1
        if number >= min(rounds, max_rounds):
            reference = _reference_clock_mhz(timings, default_clock_mhz)
            taken = [[_round(timing, reference) for timing in of_side] for of_side in timings]
            waiting = [side for side in range(sides) if not _settled(taken[side], rounds)]
            if together and waiting:
                waiting = list(range(sides))
    return [_side(rounds_of, seen) for rounds_of, seen in zip(taken, timings, strict=True)]


def _reference_clock_mhz(timings: Sequence[Sequence[Timing]], default_clock_mhz: float | None) -> float | None:
    """The clock by which rounds are judged: the default one, or the one that the power cap holds most rounds at."""
    clocks = [(timing.sm_clock_mhz, timing.throttle) for of_side in timings for timing in of_side if timing.sm_clock_mhz is not None]
    if not clocks or not default_clock_mhz:
        return default_clock_mhz
    capped = [clock for clock, why in clocks if clock < statistics.CLOCK_SHARE * default_clock_mhz and why == ("sw-power-cap",)]
    return float(np.median(capped)) if 2 * len(capped) > len(clocks) else default_clock_mhz


def _round(timing: Timing, default_clock_mhz: float | None) -> Round:
    reason, clock = None, timing.sm_clock_mhz
    if clock is not None and default_clock_mhz and clock < statistics.CLOCK_SHARE * default_clock_mhz:
        share = 100 * clock / default_clock_mhz
        why = f" ({' and '.join(timing.throttle)})" if timing.throttle else ""
        reason = f"clock {clock:.0f} MHz is {share:.0f} % of the default {default_clock_mhz:.0f} MHz{why}"
    return Round(samples_us=timing.samples_us, sm_clock_mhz=clock, discarded=reason)


def _settled(rounds: Sequence[Round], needed: int) -> bool:
    """Enough rounds count, and they agree to within tau."""
    if sum(r.discarded is None for r in rounds) < needed:
        return False
    interval = statistics.median_interval(rounds)
    return interval is not None and interval[2] - interval[1] <= 2 * statistics.TAU * interval[0]


def _side(rounds: list[Round], timings: list[Timing]) -> Outcome:
    temperatures = [t.temperature_c for t in timings if t.temperature_c is not None]
    powers = [t.power_w for t in timings if t.power_w is not None]
    return Outcome(
        rounds=tuple(rounds),
        throttle=tuple(sorted({reason for t in timings for reason in t.throttle})),
        temperature_c=max(temperatures, default=None),
        power_w=max(powers, default=None),
    )
