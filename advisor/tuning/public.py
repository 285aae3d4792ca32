"""`advisor.tune`: what the command of that name does, as a function."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from advisor.advising.options import request_from
from advisor.result.schema import Result
from advisor.search.stopping import MARGIN
from advisor.tuning import tune_order
from advisor.tuning.export import markdown, write_exports
from advisor.tuning.order import Order


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
