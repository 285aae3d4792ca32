"""Backends of the search: a GPU through `advisor.measurement`, or a file of recorded rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from advisor.measurement.devices.device import DeviceSpec, find_device
from advisor.measurement.kernel_file import KernelRef
from advisor.measurement.launch import Batch, Launch, Outcome
from advisor.measurement.measuring import OutOfTimeError, compare_launches
from advisor.measurement.plan import as_launched
from advisor.measurement.replay import Recording
from advisor.measurement.scheduler import Scheduler
from advisor.measurement.statistics import MAX_ROUNDS, MIN_ROUNDS, median_interval
from advisor.rendering.figures import microseconds
from advisor.result.schema import Configuration, MeasuredRounds, Problem
from advisor.search.contest import Reading
from advisor.search.storage import NOT_COMPARED, Measurement, Task, Versus, Watch, not_recorded, recorded_versus

FIRST_ROUNDS = 3
"""After so many rounds a measurement that loses is cut short."""

MAX_SLOW = 3
"""Measurements without a round that counts before that is put down to the configuration, which may be what draws the clock down."""

NEAR_OPTIMAL = 1.0102
"""Near-optimal rows are those within 1 % of the best of a sweep (latencies come rounded)."""

NEAR_OPTIMAL_PROBLEMS, NEAR_OPTIMAL_ROWS = 8, 2.0
"""What such rows have at least: so many problems, and rows per problem on average. The published ones have 18 token counts of every
layer, and 2.5 rows or more for each (`fused_moe_near_optimal`: 4 GPUs, 12 layers)."""


class RecordedBackend:
    """Replays rows. Absent configurations of a near-optimal file are taken to be slower than its best, and counted as trials.

    `problems`: of the launches, by name. `simulated`: rows of the file say that nothing was run for them.
    """

    noise_floor: float | None = None

    def __init__(self, recording: Recording, problems: Mapping[str, Problem], *, simulated: bool = False) -> None:
        self.recording, self.problems, self.simulated = recording, problems, simulated
        self.name = f"recorded {recording.source}" + (", simulated" if simulated else "")
        self.only_best = holds_only_best(recording)

    def measure(self, task: Task, configuration: Configuration, watch: Watch) -> Measurement:
        """Looks the configuration up for every launch of the task."""
        parts: dict[str, float] = {}
        for name in task.launches:
            us = self._latency(name, configuration)
            if us is None:
                return not_recorded(self.only_best)
            parts[name] = us
        return Measurement(us=sum(parts.values()), parts_us=parts)

    def again(self, task: Task, configuration: Configuration, deadline: float | None = None) -> Reading | None:
        """Nothing: a row stays what it is."""

    def compare(self, task: Task, base: Configuration, head: Configuration, deadline: float | None = None) -> Versus:
        """Compares recorded latencies; below 0.5 % they count as equal."""
        sides = []
        for configuration in (base, head):
            parts = {name: self._latency(name, configuration) for name in task.launches}
            sides.append({name: us for name, us in parts.items() if us is not None})
        before, after = (sum(side.values()) if len(side) == len(task.launches) else None for side in sides)
        measured = recorded_versus(before, after, least_gain=0.005)
        return replace(measured, base_parts_us=sides[0] if before else {}, head_parts_us=sides[1] if after else {})

    def _latency(self, name: str, configuration: Configuration) -> float | None:
        return self.recording.latency_us(self.problems[name], configuration)


def holds_only_best(recording: Recording) -> bool:
    """Whether a file lists the near-optimal rows of sweeps and no others, so that a search need not try what is absent.

    No problem has a row more than 1 % behind its best, and there are many rows of many problems: a few rows of whatever somebody
    measured may lie as near to each other, and say nothing of the others.
    """
    problems = [[us for us, _ in rows.values()] for rows in recording.latencies.values() if rows]
    many = len(problems) >= NEAR_OPTIMAL_PROBLEMS and len(recording) >= NEAR_OPTIMAL_ROWS * len(problems)
    return many and all(max(problem) <= NEAR_OPTIMAL * min(problem) for problem in problems)


def _clocks(outcome: Outcome) -> list[float]:
    """SM clocks in MHz of the rounds that count."""
    return [round_.sm_clock_mhz for round_ in outcome.rounds if round_.sm_clock_mhz is not None and round_.discarded is None]


class MeasuringBackend:
    """Times launches on a device. A context manager: its workers end with it.

    Args:
        device: As `advisor measure --device`; or the device itself, found.
        kernel: What runs the launches.
        problems: Of the launches, by name.
        launched: What is launched for a configuration, by launch.
        search_until: On `time.monotonic`; a measurement that has not ended then is left.
    """

    def __init__(
        self,
        device: str | DeviceSpec,
        kernel: KernelRef,
        problems: Mapping[str, Problem],
        launched: Callable[[Configuration, str], Configuration],
        search_until: float | None = None,
    ) -> None:
        self.kernel, self.problems, self.launched, self.search_until = kernel, problems, launched, search_until
        spec = find_device(device, look=False)  # the worker that opens it finds out
        self.scheduler = Scheduler(spec)
        self.gpu = self.scheduler.description.gpu
        self.name = f"measured on {self.gpu}" + (" (a fake device)" if spec.kind == "fake" else "")
        self.simulated = self.scheduler.description.fingerprint.simulated
        self.noise_floor: float | None = None  # A/A, of the first measurement
        self._slow: Counter[tuple[str, str]] = Counter()  # measurements without a round that counts, by task and configuration

    def __enter__(self) -> MeasuringBackend:
        return self

    def __exit__(self, *_: object) -> None:
        self.scheduler.close()

    def measure(self, task: Task, configuration: Configuration, watch: Watch) -> Measurement:
        """A few rounds of every launch, then, unless that has lost already, as many as count."""
        for rounds in (FIRST_ROUNDS, MIN_ROUNDS):
            parts: dict[str, float] = {}
            clocks: list[float] = []
            for name in task.launches:
                launch, floor = self._launch(name, configuration), rounds > FIRST_ROUNDS and self.noise_floor is None
                outcome = self._run(launch, rounds, floor=floor, deadline=self.search_until)
                if outcome is None:
                    return Measurement(failure="out-of-time", again=True, message="the time limit of the search ended it")
                if outcome.failure is not None:
                    return Measurement(failure=outcome.failure.kind, message=outcome.failure.message)
                if outcome.noise_floor is not None:
                    self.noise_floor = max(self.noise_floor or 0.0, outcome.noise_floor)
                interval = median_interval(outcome.rounds)
                clocks += _clocks(outcome)
                if interval is not None:
                    parts[name] = interval[0]
                elif rounds > FIRST_ROUNDS:
                    return self._too_slow(task, configuration, len(outcome.rounds))
                else:  # a few rounds at a low clock say nothing: those that follow are more
                    break
            us = sum(parts.values())
            if rounds == FIRST_ROUNDS and len(parts) == len(task.launches) and watch(rounds, us * self._fall(clocks)):
                return Measurement(us=sum(parts.values()), parts_us=parts, stopped=True)
        return Measurement(us=sum(parts.values()), parts_us=parts, clock_mhz=median(clocks) if clocks else None)

    def again(self, task: Task, configuration: Configuration, deadline: float | None = None) -> Reading | None:
        """A few rounds of every launch, whatever its clock."""
        total, clocks = 0.0, list[float]()
        for name in task.launches:
            outcome = self._run(self._launch(name, configuration), FIRST_ROUNDS, floor=False, deadline=deadline)
            if outcome is None or outcome.failure is not None or not any(round_.samples_us for round_ in outcome.rounds):
                return None
            total += median(us for round_ in outcome.rounds for us in round_.samples_us)
            clocks += [round_.sm_clock_mhz for round_ in outcome.rounds if round_.sm_clock_mhz is not None]
        return Reading(us=total, clock_mhz=median(clocks) if clocks else None)

    def compare(self, task: Task, base: Configuration, head: Configuration, deadline: float | None = None) -> Versus:
        """Interleaved rounds of both, launch by launch; the head wins where it improves some and the sum, and regresses none."""
        before: dict[str, float] = {}
        after: dict[str, float] = {}
        base_rounds: dict[str, MeasuredRounds] = {}
        verdicts, reasons = [], []
        for name in task.launches:
            pair = (self._launch(name, base), self._launch(name, head))
            try:
                measured = compare_launches(*pair, scheduler=self.scheduler, deadline=deadline)
            except OutOfTimeError as error:
                return Versus(base_us=None, head_us=None, verdict=NOT_COMPARED, reason=str(error))
            word = measured.comparison.verdict
            verdicts.append(word)
            reasons.append(f"{name} {word}")
            for parts, outcome in ((before, measured.base), (after, measured.head)):
                interval = median_interval(outcome.rounds) if outcome.failure is None else None
                if interval is not None:
                    parts[name] = interval[0]
            if name in before:
                won = f": {microseconds(after[name])} µs, {word}" if name in after else ", which failed"
                source = f"{self.name}, in the same rounds as {pair[1].configuration.label()}{won}"
                base_rounds[name] = MeasuredRounds(rounds=measured.base.rounds, noise_floor=measured.base.noise_floor, source=source)
        base_us = sum(before.values()) if len(before) == len(task.launches) else None
        head_us = sum(after.values()) if len(after) == len(task.launches) else None
        if head_us is None:
            word = "failed"
        elif base_us is None or ("improved" in verdicts and "regressed" not in verdicts and head_us < base_us):
            word = "improved"  # or what runs today does not run at all
        else:
            word = next((verdict for verdict in ("regressed", "inconclusive") if verdict in verdicts), "unchanged")
        return Versus(
            base_us=base_us,
            head_us=head_us,
            verdict=word,
            reason=", ".join(reasons),
            base_parts_us=before,
            head_parts_us=after,
            base_rounds=base_rounds,
        )

    def _fall(self, clocks: Sequence[float]) -> float:
        """By which share of its latency a measurement at these clocks may be faster at the full one: it is not cut short for a hot GPU."""
        full = self.scheduler.description.fingerprint.sm_clock_mhz
        return min(median(clocks) / full, 1.0) if clocks and full else 1.0

    def _too_slow(self, task: Task, configuration: Configuration, rounds: int) -> Measurement:
        """The outcome of a measurement none of whose rounds counts."""
        slow = (task.id, configuration.label())
        self._slow[slow] += 1
        return Measurement(
            failure="no-round-counts", again=self._slow[slow] < MAX_SLOW, message=f"the clock was too low in all of {rounds} rounds"
        )

    def _launch(self, name: str, configuration: Configuration) -> Launch:
        return Launch(kernel=self.kernel, problem=as_launched(self.problems[name]), configuration=self.launched(configuration, name))

    def _run(self, launch: Launch, rounds: int, *, floor: bool, deadline: float | None) -> Outcome | None:
        """The outcome of a launch; None: the deadline passed first."""
        batch = Batch(launches=(launch,), rounds=rounds, max_rounds=rounds if rounds < MIN_ROUNDS else MAX_ROUNDS, floor=floor)
        outcomes = self.scheduler.outcomes(batch, deadline)
        return None if outcomes is None else outcomes[0]
