"""Many tables at a time: worker processes, one per processor, each of which loads what predicts once."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from advisor.learned import load_predictor
from advisor.learned.base import Predictor
from advisor.system.processes import end_with_parent, hear_interrupts, starting_workers

TABLES_PER_WORKER = 8
"""Tables from which on another process is worth the second that it takes to start."""

_worker: dict[str, Predictor] = {}


def predictor_of_worker() -> Predictor:
    """What the process predicts with that `table_workers` hands a table; Ctrl-C is heard from here on."""
    hear_interrupts()
    return _worker["predictor"]


def _load_in_worker(weights: str | None) -> None:
    end_with_parent()
    _worker["predictor"] = load_predictor(Path(weights) if weights else None)


@contextmanager
def table_workers(
    count: int, weights: str | None, predictor: Predictor
) -> Iterator[Callable[[Callable[[Any], Any], Collection[Any]], Iterator[Any]]]:
    """A `map` over tables, in their order: of this process for a few, else of one worker process per processor.

    Args:
        count: How many tables there are.
        weights: The weights that `predictor` was loaded from; None: those in use.
        predictor: What this process predicts with.
    """
    processes = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, count // TABLES_PER_WORKER)
    if processes < 2:
        _worker["predictor"] = predictor
        yield map
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    pool = ProcessPoolExecutor(processes, get_context("spawn"), _load_in_worker, (weights,))

    def each_of(one: Callable[[Any], Any], tables: Collection[Any]) -> Iterator[Any]:
        with starting_workers():
            return pool.map(one, tables)

    try:
        yield each_of
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
