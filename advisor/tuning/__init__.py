"""Tuning a target: the search of `advisor.search` wired to a GPU or to recorded rows, its workers, and what comes out."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from advisor.advise import Measured, advise, triton_config
from advisor.configs.tables import entry_of
from advisor.diagnosis import actions
from advisor.errors import NoGpuError, UsageError
from advisor.hardware import match_device_name
from advisor.schema import Latency, LaunchReport, Recommendation, Result, SearchReport
from advisor.tuning import history
from advisor.tuning.backends import MeasuringBackend, RecordedBackend
from advisor.tuning.export import Row, exports
from advisor.tuning.plan import Order, Plan, make_plan
from advisor.verdict import verdict as verdict_of

if TYPE_CHECKING:
    from advisor.search.backend import Backend
    from advisor.search.study import Tuner
    from advisor.search.winner import Winner

Watch = Callable[[str, int, float | None], None]
"""Told (decision, trials so far, best so far in microseconds)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuned:
    """What came out: the result, the before/after rows, and where latencies came from."""

    result: Result
    rows: tuple[Row, ...]
    source: str
    study: str
    exported: Mapping[str, str]


def tune(order: Order, *, workers: int = 1, command: str = "", watch: Watch | None = None) -> Tuned:
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
    if order.recorded is None:
        from advisor.measurement import find_device

        try:
            find_device(order.device)
        except NoGpuError as error:
            remedy = "run where there is one, or replay measured rows with --recorded ROWS.csv"
            raise NoGpuError(error.what, error.got, error.limit, remedy) from None
    plan = make_plan(order)
    with ExitStack() as stack:
        if workers > 1:
            with open_backend(plan):  # what is wrong with it is said once, not by every worker
                pass
            _run_workers(order, workers)
        backend = stack.enter_context(open_backend(plan))
        tuner = make_tuner(plan, watch)
        tuner.run(backend)  # all of it where this is the only worker; else what dead workers left
        return _report(plan, tuner, backend, command)


def open_backend(plan: Plan) -> AbstractContextManager[Any]:
    """Where a plan's latencies come from.

    Raises:
        UsageError: From another GPU than the one that is tuned for.
    """
    if plan.recording is not None:
        return nullcontext(RecordedBackend(plan.recording, plan.subjects))
    backend = MeasuringBackend(plan.order.device, plan.subjects, plan.launched)
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
        raise UsageError("the GPU that measures is not the one that is tuned for", found.name, plan.target.gpu.name,
                         f"tune on that GPU, or for this one with --gpu '{found.name}'")  # fmt: skip


def make_tuner(plan: Plan, watch: Watch | None = None) -> Tuner:
    """The search over a plan's decisions, on its storage."""
    from advisor.search.stopping import StoppingRule
    from advisor.search.study import Budget, Tuner

    order = plan.order
    return Tuner(
        space=plan.space, decisions=plan.decisions, storage=order.storage, name=plan.name, watch=watch,
        stopping=StoppingRule(margin=order.margin), budget=Budget(trials=order.trials, time_limit_s=order.time_limit_s),
    )  # fmt: skip


def work(order: Order, number: int) -> None:
    """One worker process. `number` picks its GPU where there are several."""
    if order.recorded is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        gpus = visible.split(",") if visible else None
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[number % len(gpus)] if gpus else str(number)
    plan = make_plan(order)
    with open_backend(plan) as backend:
        make_tuner(plan).run(backend)


def _run_workers(order: Order, workers: int) -> None:
    """Runs workers to their end. One that dies costs its trial and nothing else: the others, or the caller, go on."""
    if order.recorded is None and order.device in ("auto", "cuda") and (found := _count_gpus()) < workers:
        raise UsageError("more workers than GPUs", workers, f"at most {found}", "several workers on one GPU disturb each other's "
                         "timings; start workers on other machines with the same --storage and --study")  # fmt: skip
    context = multiprocessing.get_context("spawn")  # a forked CUDA or database connection is of no use
    running = [context.Process(target=work, args=(order, number), name=f"tune-{number}") for number in range(workers)]
    try:
        for process in running:
            process.start()
        for process in running:
            process.join()
    except KeyboardInterrupt:
        for process in running:
            process.terminate()
        for process in running:
            process.join(timeout=10)
        raise


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


def _report(plan: Plan, tuner: Tuner, backend: Backend, command: str) -> Tuned:
    from advisor.search.report import search_reports
    from advisor.search.study import counts
    from advisor.search.winner import decide

    winners: dict[str, Winner] = {}
    rows: list[Row] = []
    searches: list[SearchReport] = []
    for decision in plan.decisions:
        winner = winners[decision.task.id] = decide(tuner, decision, backend)
        searches += search_reports(tuner, decision, plan.predictor.name)
        versus = winner.versus
        better = "improved" if decision.incumbent is not None else "new"
        verdict = better if winner.changed else versus.verdict if versus is not None else "unchanged"
        before_us = versus.base_us if versus is not None else None if winner.changed else winner.us
        row = Row(
            task=decision.task.id, tokens=plan.tokens.get(decision.task.id), before=decision.incumbent, before_us=before_us,
            after=winner.configuration, after_us=winner.us, verdict=verdict, note=winner.note,
            tried=sum(counts(t) for t in tuner.study(decision.task.id).get_trials(deepcopy=False)),
        )  # fmt: skip
        rows.append(history.since_the_first_run(tuner.study(decision.task.id), row, plan.order.export))
    measured: dict[str, Measured] = {}
    for decision in plan.decisions:
        won = winners[decision.task.id]
        before = won.versus.base_parts_us if won.versus is not None else {} if won.changed else won.parts_us
        measured |= {
            launch: Measured(latency=Latency(us=us, origin="measured", source=backend.name)) for launch, us in before.items()
        }
    target = plan.target
    result = advise(target, plan.predictor, command=command, measured=measured)
    launches = tuple(_with_winner(plan, report, winners, backend.name) for report in result.launches)
    searched = {launch.id for launch in target.launches if winners[launch.share].us is not None}
    found, warnings = exports(plan, winners)
    fingerprint = result.fingerprint
    if isinstance(backend, MeasuringBackend):
        fingerprint = backend.scheduler.description.fingerprint
    result = replace(
        result, launches=launches, verdict=verdict_of(launches, result.verdict.unknowns), actions=actions(launches, searched),
        exports=found, searches=tuple(searches), fingerprint=fingerprint, warnings=(*result.warnings, *warnings),
    )  # fmt: skip
    return Tuned(result=result, rows=tuple(rows), source=backend.name, study=plan.name,
                 exported={export.name: export.content for export in found})  # fmt: skip


def _with_winner(plan: Plan, report: LaunchReport, winners: Mapping[str, Winner], source: str) -> LaunchReport:
    """A launch's report that recommends what the search found, in place of a prediction."""
    launch = next(each for each in plan.target.launches if each.id == report.id)
    winner = winners[launch.share]
    if winner.us is None:
        return report
    if not winner.changed or winner.configuration is None:
        return replace(report, recommendation=None)  # it was searched, and nothing better found
    us = winner.parts_us.get(report.id)
    if us is None:
        return report
    configuration = plan.launched(winner.configuration, launch.id)
    now = report.measured.us if report.measured is not None else report.predicted.us if report.predicted is not None else us
    table = plan.target.table is not None or plan.base_table is not None
    reached = Latency(us=us, origin="measured", source=source)
    if report.ceiling is not None and us < report.ceiling.us:  # what was measured is reached, whatever was predicted
        report = replace(report, ceiling=reached, ceiling_configuration=configuration, headroom=now / us - 1)
    return replace(
        report,
        recommendation=Recommendation(
            configuration=configuration, latency=reached, speedup=now / us,
            p_speedup_10pct=None, reason=f"best of the search, against the present configuration: {winner.note}",
            triton_config=triton_config(configuration),
            table_entry=dict(entry_of(configuration, entry_of(launch.entry) if launch.entry else None)) if table else None,
        ),
    )  # fmt: skip


__all__ = ["Order", "Row", "Tuned", "make_plan", "tune"]
