"""Tuning a target: the search of `advisor.search` wired to a GPU or to recorded rows, its workers, and what comes out."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from typing import Any

from advisor.advising.measured.file import holds_simulated
from advisor.gpus.hardware import match_device_name
from advisor.measurement import find_device
from advisor.search.stopping import StoppingRule
from advisor.search.storage import database_errors_named, open_storage
from advisor.search.study import Budget, Tuner
from advisor.system.errors import AdvisorError, NoGpuError, UsageError
from advisor.system.processes import end_with_parent, hear_interrupts, sigterm_as_interrupt, starting_workers
from advisor.tuning.backends import MeasuringBackend, RecordedBackend
from advisor.tuning.export import Row
from advisor.tuning.order import Order
from advisor.tuning.plan import Plan, make_plan
from advisor.tuning.tuned_result import Tuned, report

Watch = Callable[[str, int, float | None], None]
"""Told (decision, trials so far, best so far in microseconds)."""

COMPARING_SHARE, COMPARING_S = 0.2, 30.0
"""Share of a time limit that is kept for comparing winners with what runs today; at most so many seconds for each launch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadlines:
    """When to stop searching, and when to stop comparing winners; on `time.monotonic`, which all processes share. None: no limit."""

    search: float | None = None
    compare: float | None = None

    @classmethod
    def of(cls, plan: Plan, began: float) -> Deadlines:
        """The deadlines of a plan whose run began at `began`."""
        limit_s = plan.order.time_limit_s
        if limit_s is None:
            return cls()
        kept_s = 0.0 if plan.recording is not None else min(COMPARING_SHARE * limit_s, COMPARING_S * len(plan.target.launches))
        return cls(search=began + limit_s - kept_s, compare=began + limit_s)


def tune_order(order: Order, *, workers: int = 1, command: str = "", watch: Watch | None = None) -> Tuned:
    """Searches for every decision of a target, measures winners against what runs today, and reports.

    Args:
        order: What to tune, and how.
        workers: Processes; with a GPU, one GPU each.
        command: The command line that repeats this.
        watch: Told how far this process is.

    Raises:
        NoGpuError: There is nothing to measure on.
        UsageError, InputError, NothingMatchedError: See `make_plan`.
    """
    began = time.monotonic()
    if order.recorded is None:
        try:
            order = replace(order, device=find_device(order.device))  # once for all: looking takes seconds, of the time limit too
        except NoGpuError as error:
            remedy = "run where there is one, or replay measured rows with --recorded ROWS.csv"
            if order.export:
                remedy += "; without a GPU `advisor advise` takes the same target and --export, and writes the table as predicted"
            raise NoGpuError(error.what, error.got, error.limit, remedy) from None

    plan = make_plan(order)
    deadlines = Deadlines.of(plan, began)
    killed: tuple[str, ...] = ()
    with ExitStack() as stack:
        stack.enter_context(database_errors_named(order.storage))
        if workers > 1:
            with open_backend(plan, deadlines):  # what is wrong with it is said once, not by every worker
                pass
            open_storage(order.storage)  # the same; and a new database has its tables before they all want to create them
            killed = _run_workers(order, workers, deadlines)
        backend = stack.enter_context(open_backend(plan, deadlines))
        tuner = make_tuner(plan, None if watch is None else _numbered(watch, plan))
        tuner.run(backend, deadlines.search)  # all of it where this is the only worker; else what dead workers left
        tuned = report(plan, tuner, backend, command, deadlines.compare)
    return replace(tuned, result=replace(tuned.result, warnings=(*tuned.result.warnings, *killed)))


def _numbered(watch: Watch, plan: Plan) -> Watch:
    """The watch, told of each decision which of them it is: `M64 (3 of 18)`."""
    numbers = {decision.task.id: number for number, decision in enumerate(plan.decisions, 1)}

    def told(task: str, trials: int, best_us: float | None) -> None:
        watch(f"{task} ({numbers[task]} of {len(numbers)})" if len(numbers) > 1 else task, trials, best_us)

    return told


def open_backend(plan: Plan, deadlines: Deadlines) -> AbstractContextManager[Any]:
    """The source of a plan's latencies, to be closed after use.

    Raises:
        UsageError: From another GPU than the one that is tuned for.
    """
    if plan.recording is not None:
        simulated = plan.order.recorded is not None and holds_simulated(plan.order.recorded)
        return nullcontext(RecordedBackend(plan.recording, plan.subjects, simulated=simulated))
    backend = MeasuringBackend(plan.order.device, plan.subjects, plan.launched, deadlines.search)
    try:
        _check_gpu(plan, backend.gpu)
    except UsageError:
        backend.scheduler.close()
        raise
    return backend


def _check_gpu(plan: Plan, measured: str) -> None:
    """A GPU that is not described may be taken for the one that --gpu or the table names; another one that is described may not."""
    found = match_device_name(measured)
    if found is not None and found.name != plan.target.gpu.name:
        raise UsageError(
            "the GPU that measures is not the one that is tuned for",
            found.name,
            plan.target.gpu.name,
            f"tune on that GPU, or for this one with --gpu '{found.name}'",
        )


def make_tuner(plan: Plan, watch: Watch | None = None) -> Tuner:
    """The search over a plan's decisions, on its storage."""
    order = plan.order
    return Tuner(
        space=plan.space,
        decisions=plan.decisions,
        storage=order.storage,
        name=plan.name,
        watch=watch,
        stopping=StoppingRule(margin=order.margin),
        budget=Budget(trials=order.trials, time_limit_s=order.time_limit_s),
    )


INTERRUPTED = 130
"""Exit status of a worker that was told to leave."""

LEAVING_S = 3.0
"""What workers that Ctrl-C reached have to leave before they are told to."""


def work(order: Order, number: int, deadlines: Deadlines) -> None:
    """One worker process. `number` picks its GPU where there are several; `deadlines` began when the caller did."""
    end_with_parent()
    if order.recorded is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = visible.split(",") if visible else None
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)] if gpus else str(number)

    try:
        hear_interrupts()
        with sigterm_as_interrupt():  # a trial that its worker is told to leave is not taken for what killed it
            plan = make_plan(order)
            with open_backend(plan, deadlines) as backend, database_errors_named(order.storage):
                make_tuner(plan).run(backend, deadlines.search)
    except AdvisorError as error:  # in a line, as everywhere; the other workers, or the caller, go on
        sys.exit(f"advisor: worker {number} ended: {error}")
    except KeyboardInterrupt:  # the caller says so
        sys.exit(INTERRUPTED)


def _run_workers(order: Order, workers: int, deadlines: Deadlines) -> tuple[str, ...]:
    """Runs workers to their end. One that dies costs its trial and nothing else: the others, or the caller, go on.

    Returns:
        A sentence on each that a signal ended: it could say nothing itself.
    """
    cuda = order.recorded is None and find_device(order.device, look=False).kind == "cuda"
    if cuda and (found := _count_gpus()) < workers:
        raise UsageError(
            "more workers than GPUs",
            workers,
            f"at most {found}",
            "several workers on one GPU disturb each other's timings; start workers on other machines with the same --storage and --study",
        )
    context = multiprocessing.get_context("spawn")  # a forked CUDA or database connection is of no use
    running = [context.Process(target=work, args=(order, number, deadlines), name=f"tune-{number}") for number in range(workers)]
    try:
        with starting_workers():
            for process in running:
                process.start()
        for process in running:
            process.join()
    except KeyboardInterrupt:
        begun = [process for process in running if process.pid is not None]
        _wait(begun, LEAVING_S)  # a terminal has told them as well
        for process in begun:
            process.terminate()
        _wait(begun, 10.0)
        raise
    codes = [process.exitcode or 0 for process in running]
    return tuple(
        f"worker {number} of {workers} was killed by {signal.Signals(-code).name}: what it measured is kept, and the search went "
        "on without it"
        for number, code in enumerate(codes, 1)
        if code < 0
    )


def _wait(running: Sequence[BaseProcess], seconds: float) -> None:
    """Waits until processes have ended, but so long at most in all."""
    until = time.monotonic() + seconds
    for process in running:
        process.join(timeout=max(0.0, until - time.monotonic()))


def _count_gpus() -> int:
    """GPUs of this machine that may be used."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible:
        return len(visible.split(","))
    try:
        done = subprocess.run(["nvidia-smi", "--list-gpus"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return 1
    return max(1, sum(line.startswith("GPU ") for line in done.stdout.splitlines()))


__all__ = ["Order", "Row", "Tuned", "make_plan", "tune_order"]
