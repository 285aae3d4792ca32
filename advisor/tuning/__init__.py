"""Tuning a target: the search of `advisor.search` wired to a GPU or to recorded rows, and what comes out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.advising.measured.row_matching import holds_simulated
from advisor.advising.options import request_from
from advisor.gpus.hardware import match_device_name
from advisor.measurement.devices.device import find_device
from advisor.result.schema import Result
from advisor.search.sampler import MARGIN, StoppingRule
from advisor.search.storage import database_errors_named
from advisor.search.study import Budget, Tuner
from advisor.system.errors import NoGpuError, UsageError
from advisor.tuning.backends import MeasuringBackend, RecordedBackend
from advisor.tuning.export import markdown, write_exports
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


def tune(
    target: str | os.PathLike[str],
    *,
    gpu: str | None = None,
    model: str | None = None,
    tokens: int | Iterable[int] | None = None,
    sizes: Mapping[str, int] | Iterable[Mapping[str, int]] = (),
    hidden_size: int | None = None,
    top_k: int | None = None,
    tensor_parallel: int | None = None,
    expert_parallel: int | None = None,
    dtype: str | None = None,
    routing: Sequence[int] | str | os.PathLike[str] | None = None,
    cache: str = "warm",
    op: str | None = None,
    recorded: str | os.PathLike[str] | None = None,
    device: str = "auto",
    trials: int | None = None,
    time_limit_s: float | None = None,
    margin: float = MARGIN,
    storage: str | os.PathLike[str] = "advisor-out/study.journal",
    study: str | None = None,
    export: str | os.PathLike[str] | None = None,
    weights: str | os.PathLike[str] | None = None,
) -> Result:
    """Search for better configurations, measuring as few as possible, on this machine's GPU or in recorded rows.

    The same call goes on with the study that `storage` holds.

    Args:
        target: A tuned table's file, `fused_moe`, a bundled kernel, or `FILE.py::KERNEL`, which is imported and run.
        gpu: As for `advisor.advise`, and so `model`, `tokens`, `hidden_size`, `top_k`, `tensor_parallel`, `expert_parallel`, `dtype`,
            `routing`, `cache` and `weights`.
        sizes: The problem of a kernel, or several.
        op: Only launches of this operator, e.g. w13.
        recorded: A file of measured rows to replay in place of a GPU.
        device: As for `advisor measure --device`.
        trials: Trials per decision, at most.
        time_limit_s: For all of it, in seconds.
        margin: Stop within this share of the ceiling.
        storage: A file, or the URL of an Optuna storage.
        study: The name under which it is kept and resumed; None: from the target and the GPU.
        export: A folder for the table (merged into the one there), the configurations and `before-after.md`.

    Returns:
        What `advisor tune --format json` prints: `searches` holds every trial, `exports` the tables; latencies are in microseconds.

    Raises:
        NoGpuError: There is nothing to measure on.
        AdvisorError: What is given is not known, cannot be read, or does not fit the target.

    >>> import advisor
    >>> options = {"model": "Qwen3-30B-A3B", "gpu": "H200", "tokens": 16, "recorded": "tests/data/sweep.csv", "trials": 3}
    >>> result = advisor.tune("fused_moe", **options)
    >>> [len(search.trials) for search in result.searches]
    [3]
    """
    order = Order(
        target=os.fspath(target),
        request=request_from(
            {
                "gpu": gpu,
                "model": model,
                "tokens": tokens,
                "hidden_size": hidden_size,
                "top_k": top_k,
                "tensor_parallel": tensor_parallel,
                "expert_parallel": expert_parallel,
                "dtype": dtype,
                "routing": routing,
                "cache": cache,
            }
        ),
        sizes=(sizes,) if isinstance(sizes, Mapping) else tuple(sizes),
        op=op,
        recorded=None if recorded is None else os.fspath(recorded),
        device=device,
        trials=trials,
        time_limit_s=time_limit_s,
        margin=margin,
        storage=os.fspath(storage),
        study=study,
        export=None if export is None else os.fspath(export),
        weights=None if weights is None else os.fspath(weights),
    )
    tuned = tune_order(order)
    if export is not None:
        write_exports(Path(export), tuned.result.exports, markdown(tuned.winners, tuned.about, tuned.source, tuned.warnings), tuned.table)
    return tuned.result


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


__all__ = ["Order", "Tuned", "make_plan", "tune", "tune_order"]
