"""`advisor advise FOLDER`: every table below a folder, in several processes where they are many, and the overview of all."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.cli import options
from advisor.cli.advise_reports import (
    exported,
    report_folders,
    show_overview,
    warn_of_target,
    write,
)
from advisor.system.errors import AdvisorError, NothingMatchedError, printable
from advisor.system.processes import end_with_parent, hear_interrupts, starting_workers
from advisor.system.progress import progress_bar

if TYPE_CHECKING:
    from advisor.advising.targets import Request
    from advisor.learned.base import Predictor
    from advisor.rendering.overview import Row


TABLES_PER_WORKER = 8
"""Tables from which on another process is worth the second that it takes to start."""


def folder_of_tables(arguments: argparse.Namespace) -> list[str]:
    """Advise on every table below a folder, for every GPU asked for, and show them together; the JSON document of each GPU."""
    from advisor.advising.options import refuse_unfit
    from advisor.gpus.hardware import load_gpu
    from advisor.learned import load_predictor

    refuse_unfit("table", arguments.target, options.values_of(arguments), flags=True)
    predictor = load_predictor(Path(arguments.weights) if arguments.weights else None)
    output = Path(arguments.output)
    # A misspelt GPU is told before the first report is written.
    folders = report_folders(output, [load_gpu(name).name for name in arguments.gpu]) if arguments.gpu else [output]
    documents: list[str] = []
    rows: list[Row] = []
    try:
        for gpu, folder in zip(arguments.gpu or [None], folders, strict=True):
            documents.append(_tables(arguments, options.request_of(arguments, gpu), predictor, folder, rows))
    finally:  # what was found until Ctrl-C too
        if rows:
            show_overview(rows, arguments, title=f"Tables of {arguments.target}")
    return documents


_worker: dict[str, Predictor] = {}
"""What a worker process predicts with: loaded once, for all its tables."""


def _load_in_worker(weights: str | None, predictor: Predictor | None = None) -> None:

    from advisor.learned import load_predictor

    if predictor is None:
        end_with_parent()
    _worker["predictor"] = predictor or load_predictor(Path(weights) if weights else None)


@contextlib.contextmanager
def _table_workers(count: int, weights: str | None, predictor: Predictor) -> Iterator[Callable[..., Iterator[Any]]]:
    """A `map` over tables, in their order: of this process for a few, else of one worker process per processor."""
    processes = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, count // TABLES_PER_WORKER)
    if processes < 2:
        _load_in_worker(weights, predictor)
        yield map
        return
    pool = ProcessPoolExecutor(processes, get_context("spawn"), _load_in_worker, (weights,))

    def each_of(one: Callable[..., Any], tables: list[Path]) -> Iterator[Any]:
        with starting_workers():
            return pool.map(one, tables)

    try:
        yield each_of
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _of_folder(table: Path, *, arguments: argparse.Namespace, request: Request, output: Path) -> tuple[Row | None, Any]:
    """Advise on one table of a folder and write its report: what the overview and the JSON document show of it; or why not."""
    from advisor.advising.public import report_on_launches
    from advisor.advising.targets.table_targets import table_target
    from advisor.rendering.overview import row_of

    hear_interrupts()
    predictor = _worker["predictor"]
    relative = table.relative_to(arguments.target)
    command = shlex.join(["advisor", "advise", str(table)])
    try:
        target = table_target(table, replace(request, assume=True))
        if arguments.export:
            result, _ = exported(target, request, predictor, arguments, command)
        else:
            result = report_on_launches(target, predictor, arguments.measured, command=command, resolved=warn_of_target)
        page = write(result, output / relative.with_suffix(""))
    except AdvisorError as error:
        return None, str(error).removeprefix(f"{printable(table.name)}: ")  # which the path says already
    return row_of(result, str(relative), page.relative_to(arguments.output).as_posix()), {
        "table": str(relative),
        "gpu": result.gpu,
        "verdict": result.verdict.sentence,
        "current_us": result.verdict.current_us,
        "ceiling_us": result.verdict.ceiling_us,
        "bound_us": result.verdict.bound_us,
    }


def _tables(arguments: argparse.Namespace, request: Request, predictor: Predictor, output: Path, rows: list[Row]) -> str:
    """Advise on every table below the folder for one GPU, or its own: the report of each under `output`, what the overview shows of it
    added to `rows`, and the JSON document."""
    from advisor.advising.targets.resolve import tables_in

    path = Path(arguments.target)
    found = tables_in(path)
    if not found:
        raise NothingMatchedError(
            f"{path}: no tables in this folder", None, "files named E=…,N=….json or N=…,K=….json", "name a folder that has some"
        )
    one = partial(_of_folder, arguments=arguments, request=request, output=output)
    done = 0
    lines: list[object] = []
    with progress_bar("advising on tables") as advance, _table_workers(len(found), arguments.weights, predictor) as each_of:
        for number, (table, (row, said)) in enumerate(zip(found, each_of(one, found), strict=True), start=1):
            advance(number, len(found))
            if row is None:
                print(f"advisor: skipped {printable(str(table.relative_to(path)))}: {said}", file=sys.stderr)
                continue
            done += 1
            rows.append(row)
            lines.append(said)
    print(f"advisor: {done} of {len(found)} tables advised on; reports in {output}", file=sys.stderr)
    if not done:
        raise NothingMatchedError(f"{path}: none of {len(found)} files could be advised on", None, None, "see the lines above")
    return json.dumps(lines, indent=2, ensure_ascii=False) + "\n"
