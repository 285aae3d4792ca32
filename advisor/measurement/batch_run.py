"""Runs one batch on one device, in this process: inputs, first launches, checks, then interleaved rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from advisor.measurement.devices.device import Bench, Device
from advisor.measurement.kernel_file import KernelRef
from advisor.measurement.launch import Batch, Failure, Outcome, Sustained, classify, is_fatal
from advisor.measurement.rounds import SideTimings, measure_rounds
from advisor.measurement.statistics import noise_floor

Report = Callable[[str, int | None], None]
"""Told (stage, launch) before each step: whoever watches knows what hangs or crashes."""


class FatalFailure(Exception):  # noqa: N818
    """Nothing can run in this process any more; `index` None: it was not one launch's doing."""

    def __init__(self, index: int | None, failure: Failure) -> None:
        super().__init__(index, failure)
        self.index, self.failure = index, failure


@dataclass(slots=True)
class _Run:
    """The state of a batch that is being measured."""

    device: Device
    batch: Batch
    report: Report
    benches: dict[KernelRef, Bench] = field(default_factory=dict)
    launched: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, Failure] = field(default_factory=dict)
    sustained: dict[int, Sustained | None] = field(default_factory=dict)

    def bench(self, index: int) -> Bench:
        kernel = self.batch.launches[index].kernel
        if kernel not in self.benches:
            self.report("inputs", None)
            try:
                self.benches[kernel] = self.device.open(kernel, self.batch.problem, self.batch.seed)
            except Exception as error:
                failure = classify(error, "inputs")
                if is_fatal(error, failure):
                    raise FatalFailure(None, failure) from error
                raise _InputsFailedError(failure) from error
        return self.benches[kernel]

    def attempt(self, index: int, stage: str, step: Callable[[], Any]) -> Any:
        """One step of one launch; a failure is written down, a fatal one ends the batch."""
        self.report(stage, index)
        try:
            return step()
        except Exception as error:
            failure = classify(error, stage)
            if is_fatal(error, failure):
                raise FatalFailure(index, failure) from error
            self.failures[index] = failure
            return None


class _InputsFailedError(Exception):
    def __init__(self, failure: Failure) -> None:
        super().__init__(failure)
        self.failure = failure


def run_batch(device: Device, batch: Batch, report: Report = lambda stage, index: None) -> list[Outcome]:
    """One outcome per launch, in order.

    Raises:
        FatalFailure: The process (or its CUDA context) is of no use any more.
    """
    run = _Run(device=device, batch=batch, report=report)
    try:
        for index in range(len(batch.launches)):
            _prepare(run, index)
        return _time(run)
    finally:
        for bench in run.benches.values():
            bench.close()


def _prepare(run: _Run, index: int) -> None:
    try:
        bench = run.bench(index)
    except _InputsFailedError as error:
        run.failures[index] = error.failure
        return
    configuration = run.batch.launches[index].configuration
    launched = run.attempt(index, "launch", lambda: bench.launch(configuration))
    if index in run.failures:
        return
    run.attempt(index, "check", lambda: bench.check(launched))
    if index not in run.failures:
        run.launched[index] = launched


def _time(run: _Run) -> list[Outcome]:
    """Rounds of every launch that ran and was right; the first one is timed twice where a noise floor is wanted."""
    batch = run.batch
    failing = True
    timings: dict[int, SideTimings] = {}
    floor = None
    while failing and run.launched:
        failing = False
        owners = list(run.launched)
        if batch.floor:
            owners.append(owners[0])

        def time_side(side: int, number: int, owners: list[int] = owners) -> Any:
            index = owners[side]
            launch = batch.launches[index]
            replica = sum(batch.launches[other] == launch for other in owners[:side])
            return run.bench(index).time(run.launched[index], number, replica)

        current: list[int] = []

        def before(side: int, number: int, owners: list[int] = owners, current: list[int] = current) -> None:
            current[:] = [owners[side]]
            run.report("rounds", owners[side])

        try:
            taken = measure_rounds(
                time_side,
                len(owners),
                rounds=batch.rounds,
                max_rounds=batch.max_rounds,
                seed=batch.seed,
                default_clock_mhz=run.device.default_clock_mhz,
                together=batch.together,
                before=before,
            )
        except Exception as error:
            failure = classify(error, "rounds")
            if is_fatal(error, failure):
                raise FatalFailure(current[0], failure) from error
            run.failures[current[0]] = failure  # and the others once more, without it
            del run.launched[current[0]]
            failing = True
            continue
        timings = dict(zip(run.launched, taken, strict=False))
        if batch.floor:
            floor = noise_floor(taken[0].rounds, taken[-1].rounds)
    for index in list(run.launched) if batch.sustained_s else ():
        bench, launched = run.bench(index), run.launched[index]
        run.sustained[index] = run.attempt(index, "sustained", lambda: bench.sustain(launched, batch.sustained_s))  # noqa: B023
    return [_outcome(run, index, timings, floor) for index in range(len(batch.launches))]


def _outcome(run: _Run, index: int, timings: dict[int, SideTimings], floor: float | None) -> Outcome:
    if index in run.failures:
        return Outcome(failure=run.failures[index])
    taken = timings[index]
    return Outcome(
        rounds=taken.rounds,
        noise_floor=floor,
        timer=run.bench(index).timer(run.launched[index]),
        throttle=taken.throttle,
        temperature_c=taken.temperature_c,
        power_w=taken.power_w,
        sustained=run.sustained.get(index),
    )
