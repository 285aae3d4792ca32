"""Tuning a target: the search of `advisor.search` wired to a GPU or to recorded rows, and what comes out."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from advisor.advising.measured.row_matching import holds_simulated
from advisor.gpus.hardware import match_device_name
from advisor.measurement.devices.device import find_device
from advisor.search.stopping import StoppingRule
from advisor.search.storage import database_errors_named
from advisor.search.study import Budget, Tuner
from advisor.system.errors import NoGpuError, UsageError
from advisor.tuning.backends import MeasuringBackend, RecordedBackend
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


def tune_order(order: Order, *, command: str = "", watch: Watch | None = None) -> Tuned:
    """Searches for every decision of a target, measures winners against what runs today, and reports.

    Args:
        order: What to tune, and how.
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
    with database_errors_named(order.storage), open_backend(plan, deadlines) as backend:
        tuner = make_tuner(plan, None if watch is None else _numbered(watch, plan))
        tuner.run(backend, deadlines.search)
        return report(plan, tuner, backend, command, deadlines.compare)


def _numbered(watch: Watch, plan: Plan) -> Watch:
    """The watch, told of each decision which of them it is: `M64 (3 of 18)`."""
    numbers = {decision.task.id: number for number, decision in enumerate(plan.decisions, 1)}

    def watch_numbered(task: str, trials: int, best_us: float | None) -> None:
        watch(f"{task} ({numbers[task]} of {len(numbers)})" if len(numbers) > 1 else task, trials, best_us)

    return watch_numbered


def open_backend(plan: Plan, deadlines: Deadlines) -> AbstractContextManager[Any]:
    """The source of a plan's latencies, to be closed after use.

    Raises:
        UsageError: From another GPU than the one that is tuned for.
    """
    if plan.recording is not None:
        simulated = plan.order.recorded is not None and holds_simulated(plan.order.recorded)
        return nullcontext(RecordedBackend(plan.recording, plan.problems, simulated=simulated))
    assert plan.kernel is not None
    backend = MeasuringBackend(plan.order.device, plan.kernel, plan.problems, plan.launched, deadlines.search)
    try:
        _check_gpu(plan, backend.gpu)
    except UsageError:
        backend.scheduler.close()
        raise
    return backend


def _check_gpu(plan: Plan, measured: str) -> None:
    """A GPU that is not described may be taken for the one that --gpu or the table names; another one that is described may not."""
    measuring = match_device_name(measured)
    if measuring is not None and measuring.name != plan.target.gpu.name:
        raise UsageError(
            "the GPU that measures is not the one that is tuned for",
            measuring.name,
            plan.target.gpu.name,
            f"tune on that GPU, or for this one with --gpu '{measuring.name}'",
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


__all__ = ["Order", "Tuned", "make_plan", "tune_order"]
