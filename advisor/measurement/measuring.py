"""Measuring launches and whole campaigns into a file of rows."""

from __future__ import annotations

import os
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path

from advisor.gpus.hardware import GpuSpec, match_device_name
from advisor.measurement.devices.ceilings import file_name, write_ceilings
from advisor.measurement.devices.device import DeviceSpec, find_device
from advisor.measurement.launch import Batch, Launch, Outcome, problem_key
from advisor.measurement.measured_rows import OK, Journal, bound_us, row_key, row_of
from advisor.measurement.plan import batches_of, read_plan
from advisor.measurement.scheduler import Limits, Scheduler, measure_ceilings
from advisor.measurement.statistics import MAX_ROUNDS, MIN_ROUNDS, Comparison, Side, verdict
from advisor.result.schema import Fingerprint
from advisor.system.errors import AdvisorError, MeasurementError, NoGpuError, NothingMatchedError

CEILINGS_S = 120.0
"""How long a GPU's own ceilings may take to measure."""
MAX_BATCH = 16
"""Launches of one problem that share rounds, at most: with more, the rounds of one launch lie too far apart."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Progress of a run. `total` None: a campaign, which has no end but the time limit."""

    done: int
    total: int | None
    failed: int
    elapsed_s: float
    last: str


@dataclass(slots=True, kw_only=True)
class Summary:
    """The outcome of a run of `measure`.

    Attributes:
        gpu: What it ran on.
        measured: Launches with a latency.
        failed: Launches without, by kind of failure.
        reasons: The first reason of each kind.
        skipped: Launches the file had already.
        faults: Rows faster than the bound.
        finished: Whether nothing was left to do (else: the time limit).
        ceilings: The file the GPU's own ceilings went to.
    """

    gpu: str
    output: str
    fingerprint: Fingerprint
    measured: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    skipped: int = 0
    faults: list[str] = field(default_factory=list)
    finished: bool = False
    ceilings: Path | None = None
    warnings: list[str] = field(default_factory=list)


Watch = Callable[[Progress], None]


def measure(
    launches: Sequence[Launch],
    output: str | os.PathLike[str],
    *,
    device: str | DeviceSpec = "auto",
    rounds: int = MIN_ROUNDS,
    time_limit_s: float | None = None,
    resume: bool = True,
    limits: Limits | None = None,
    compile_workers: int | None = None,
    seed: int = 0,
    watch: Watch | None = None,
) -> Summary:
    """Times launches and appends a row for each, as they come.

    Args:
        launches: In the order in which to measure; consecutive launches of one problem share their rounds.
        output: The rows file; what it holds already is not measured again, but for failures that may have been the machine's.
        device: `auto`, `cuda` or `fake…`.
        rounds: Rounds that must count, per launch.
        time_limit_s: After which nothing more is begun, and what is running is left.
        resume: Whether the file may have rows already.
        limits: How long a launch may take before it counts as hung.
        compile_workers: Processes that compile ahead; None: two less than cores.
        seed: Of inputs and orders.
        watch: Told how far it is.

    Raises:
        NothingMatchedError: There are no launches.
        NoGpuError: There is no device to measure on.
        UsageError: The file cannot be written.
        MeasurementError: Nothing can be launched on this machine.
    """
    if not launches:
        raise NothingMatchedError("nothing to measure", None, "at least one launch", "widen the selection")
    start = time.monotonic()
    spec = find_device(device, look=False)
    with Scheduler(spec, limits=limits, compile_workers=compile_workers) as scheduler, Journal(output, resume=resume) as journal:
        done, gpu = journal.keys(), scheduler.description.gpu
        left = [launch for launch in launches if _key(gpu, launch) not in done]
        summary = Summary(gpu=gpu, output=os.fspath(output), fingerprint=scheduler.description.fingerprint)
        summary.skipped = len(launches) - len(left)
        batches = _batches(left, rounds, seed)
        _run(batches, scheduler, journal, summary, start, time_limit_s, len(left), watch)
    return summary


def run_plan(
    path: str | Path,
    output: str | os.PathLike[str],
    time_limit_s: float | None = None,
    *,
    device: str | DeviceSpec = "auto",
    rounds: int | None = None,
    resume: bool = True,
    limits: Limits | None = None,
    compile_workers: int | None = None,
    ceilings_folder: str | os.PathLike[str] | None = None,
    watch: Watch | None = None,
) -> Summary:
    """Measures a campaign, most informative first, until it is done or the time is up; resumable on any machine.

    The GPU's own ceilings are measured first, once, where a folder for them is named. Arguments are those of `measure`; `rounds` None:
    the plan's.

    Raises:
        InputError: The plan cannot be read.
        NoGpuError: There is no device to measure on.
        UsageError: The file cannot be written.
        MeasurementError: As for `measure`.
    """
    start = time.monotonic()
    plan = read_plan(path)
    if rounds is not None:
        plan = replace(plan, rounds=rounds)
    spec = find_device(device, look=False)
    with Scheduler(spec, limits=limits, compile_workers=compile_workers) as scheduler, Journal(output, resume=resume) as journal:
        done, gpu = journal.keys(), scheduler.description.gpu
        summary = Summary(gpu=gpu, output=os.fspath(output), fingerprint=scheduler.description.fingerprint)
        if ceilings_folder is not None:
            _ceilings(scheduler, spec, Path(ceilings_folder), summary)

        def key(launch: Launch) -> str:
            row = _key(gpu, launch)
            summary.skipped += row in done
            return row

        batches = batches_of(plan, match_device_name(gpu), done=done, key=key)
        _run(batches, scheduler, journal, summary, start, time_limit_s, None, watch, skip_unfit=True)
    return summary


def _ceilings(scheduler: Scheduler, spec: DeviceSpec, folder: Path, summary: Summary) -> None:
    path = folder / file_name(summary.gpu)
    try:
        if path.exists():  # measured before: a resumed run has better things to do
            return
        figures = scheduler.ask(measure_ceilings, CEILINGS_S)
        if figures:
            origin = "measured" if spec.kind == "cuda" else f"simulated by the {spec.kind} device"
            summary.ceilings = write_ceilings(folder, summary.gpu, figures, summary.fingerprint, origin)
    except NoGpuError:
        raise
    except (AdvisorError, OSError) as error:
        summary.warnings.append(f"the GPU's own ceilings were not measured: {error}")


def _key(gpu: str, launch: Launch) -> str:
    return row_key(gpu, launch.kernel.function, launch.problem, launch.configuration)


def _batches(launches: Iterable[Launch], rounds: int, seed: int) -> Iterator[Batch]:
    for _, group in groupby(launches, key=lambda launch: (launch.kernel, problem_key(launch.problem))):
        same = list(group)
        for begin in range(0, len(same), MAX_BATCH):
            yield Batch(launches=tuple(same[begin : begin + MAX_BATCH]), rounds=rounds, max_rounds=max(rounds, MAX_ROUNDS), seed=seed)


def _run(
    batches: Iterable[Batch],
    scheduler: Scheduler,
    journal: Journal,
    summary: Summary,
    start: float,
    time_limit_s: float | None,
    total: int | None,
    watch: Watch | None,
    *,
    skip_unfit: bool = False,
) -> None:
    """The loop: a batch, its rows to the disk, the next. `skip_unfit`: problems whose inputs find no memory get no rows."""
    gpu = match_device_name(summary.gpu)
    deadline = None if time_limit_s is None else start + time_limit_s
    expected = 0
    unfit: set[tuple[str, str]] = set()
    if scheduler.spec.kind == "cuda" and summary.fingerprint.sm_clock_mhz is None:
        summary.warnings.append("clocks are not recorded, and no round is left out for a low one: pip install nvidia-ml-py")

    def counted() -> Iterator[Batch]:
        nonlocal expected
        for batch in batches:
            if _inputs_key(batch) in unfit:
                continue
            expected += 1
            yield batch
        summary.finished = True  # all batches were drawn; whether all came back is seen below

    came_back = 0
    for batch, outcomes in scheduler.run(counted(), deadline=deadline):
        came_back += 1
        # A session's sides were interleaved. Nothing was, where nothing ran.
        session = secrets.token_hex(6) if scheduler.spec.kind == "cuda" else scheduler.spec.kind
        rows = _rows(batch, outcomes, summary, gpu, session)
        if skip_unfit and all(outcome.failure is not None and outcome.failure.no_memory_for_inputs for outcome in outcomes):
            if _inputs_key(batch) not in unfit:
                what = f"{batch.launches[0].kernel.function} {_sizes(batch.launches[0])}"
                summary.warnings.append(f"left out, for its inputs found no memory: {what}")
            unfit.add(_inputs_key(batch))
        else:
            journal.append(rows)
        if watch is not None:
            done, failed = summary.measured + sum(summary.failed.values()), sum(summary.failed.values())
            last = f"{batch.launches[0].kernel.function} {_sizes(batch.launches[0])}"
            watch(Progress(done=done, total=total, failed=failed, elapsed_s=time.monotonic() - start, last=last))
    summary.finished = summary.finished and came_back == expected


def _inputs_key(batch: Batch) -> tuple[str, str]:
    """The facts that the inputs of a batch depend on."""
    return batch.launches[0].kernel.function, problem_key(batch.problem)


def _rows(batch: Batch, outcomes: list[Outcome], summary: Summary, gpu: GpuSpec | None, session: str) -> list[dict[str, str]]:
    bound = bound_us(batch.problem, gpu)
    rows = []
    for launch, outcome in zip(batch.launches, outcomes, strict=True):
        cells = row_of(launch, outcome, gpu=summary.gpu, fingerprint=summary.fingerprint, session=session, bound=bound)
        if cells["status"] == OK:
            summary.measured += 1
        else:
            summary.failed[cells["status"]] += 1
            summary.reasons.setdefault(cells["status"], cells["reason"])
        if cells["fault"]:
            summary.faults.append(f"{launch.kernel.function} {_sizes(launch)}: {cells['latency_us']} us, bound {cells['bound_us']} us")
        rows.append(cells)
    return rows


def _sizes(launch: Launch) -> str:
    return f"{launch.problem.op} " + " ".join(f"{name}={value}" for name, value in launch.problem.sizes.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredComparison:
    """A verdict, and what both sides measured."""

    comparison: Comparison
    base: Outcome
    head: Outcome
    fingerprint: Fingerprint


def compare_launches(
    base: Launch,
    head: Launch,
    *,
    scheduler: Scheduler,
    seed: int = 0,
    deadline: float | None = None,
) -> MeasuredComparison:
    """Measures two launches in the same rounds (of two revisions of a kernel, or two configurations) and gives the verdict.

    At least 10 rounds; 30 where 10 do not settle it.

    Args:
        base: What is compared to.
        head: What is judged; of the same problem.
        scheduler: What measures them, and the A/A floor in the same rounds.
        seed: Of inputs and order.
        deadline: On the scheduler's clock; what fewer rounds said by then stands.

    Raises:
        MeasurementError: The problems differ.
        OutOfTimeError: The deadline passed before both were measured.
    """
    if base.problem != head.problem:
        raise MeasurementError("only launches of one problem can be compared", f"{base.problem.sizes} and {head.problem.sizes}")
    batch = Batch(launches=(base, head), rounds=MIN_ROUNDS, max_rounds=MIN_ROUNDS, together=True, seed=seed, floor=True)
    measured = _verdict(scheduler, batch, deadline)
    if measured is None:
        raise OutOfTimeError("the time limit ended it")
    if measured.comparison.wants_more_rounds:
        measured = _verdict(scheduler, replace(batch, rounds=MAX_ROUNDS, max_rounds=MAX_ROUNDS), deadline) or measured
    return measured


class OutOfTimeError(MeasurementError):
    """The deadline of a comparison passed before both sides were measured."""


def _verdict(scheduler: Scheduler, batch: Batch, deadline: float | None) -> MeasuredComparison | None:
    """The verdict of the rounds of a batch of two; None: the deadline passed first."""
    if (outcomes := scheduler.outcomes(batch, deadline)) is None:
        return None
    (base, head), fingerprint = outcomes, scheduler.description.fingerprint
    sides = [Side(rounds=o.rounds, failure=o.failure, fingerprint=fingerprint, session="interleaved") for o in (base, head)]
    return MeasuredComparison(comparison=verdict(sides[0], sides[1], floor=base.noise_floor), base=base, head=head, fingerprint=fingerprint)
