"""How well launches of compiled kernels are predicted: by the constants as they are, or with each GPU left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from advisor.compiled.phases import LONG_US, Constants, shipped
from advisor.training.published_kernels.fitting import Rows, calibrated, stacked
from advisor.training.published_kernels.launches import Measured, read


def judge(
    paths: Iterable[Path | str],
    leave_out: Sequence[str] | None,
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Figures by GPU and length of the launch.

    Args:
        paths: Folders of measured launches.
        leave_out: GPUs to leave out one by one, all that were measured where it is empty; None: the constants shipped are judged.
        progress: Told what is being done.
    """
    measured = read(paths, (), progress)
    rows = stacked(measured)
    judged = []
    for part in rows:
        if leave_out is None:
            judged.append(_judged(part, shipped(), measured))
        elif not leave_out or part.gpu.name in leave_out:
            progress(f"{part.gpu.name} left out")
            judged.append(_judged(part, calibrated([other for other in rows if other.gpu.name != part.gpu.name]), measured))
    columns = [np.concatenate(column) for column in zip(*judged, strict=True)]
    error, inside, below, long, gpus = columns
    nvidia = np.array(["MI" not in name for name in gpus])
    groups = {name: gpus == name for name in dict.fromkeys(gpus.tolist())} | {"NVIDIA": nvidia, "all": np.ones(len(gpus), bool)}
    return {
        f"{name}, {'from' if far else 'below'} {LONG_US:g} us": _figures(error[chosen], inside[chosen], below[chosen])
        for name, group in groups.items()
        for far in (True, False)
        if (chosen := group & (long == far)).any()
    }


def _judged(part: Rows, constants: Constants, measured: Sequence[Measured]) -> tuple[Any, ...]:
    """Columns: log(predicted / measured), whether the interval holds it, whether it is below the bound, whether it is long, the GPU."""
    us = part.predicted_us(constants)
    ends = [constants.interval(float(each), part.gpu) for each in us]
    bounds = np.array([each.analysis.bound.us for each in measured if each.gpu.name == part.gpu.name and each.analysis.cache == part.cache])
    inside = [low <= taken <= high for (low, high), taken in zip(ends, part.us, strict=True)]
    return np.log(us / part.us), np.array(inside), part.us < bounds, part.us >= LONG_US, np.full(len(us), part.gpu.name)


def _figures(error: Any, inside: Any, below: Any) -> dict[str, Any]:
    off = 100 * np.abs(np.expm1(error))
    return {
        "rows": len(error),
        "mape_percent": float(off.mean()),
        "median_percent": float(np.median(off)),
        "bias_percent": float(100 * error.mean()),
        "coverage_percent": float(100 * inside.mean()),
        "bound_violations": int(below.sum()),
    }
