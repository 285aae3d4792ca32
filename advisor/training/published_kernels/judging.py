"""How well launches of compiled kernels are predicted: by the constants as they are, or with each GPU left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from advisor.compiled.phases import LONG_US, shipped
from advisor.system.errors import NothingMatchedError
from advisor.training.library_kernels.judging import summed
from advisor.training.published_kernels.fitting import Rows, calibrated, stacked
from advisor.training.published_kernels.launches import read


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

    Raises:
        NothingMatchedError: Nothing was measured on these GPUs.
    """
    rows = stacked(read(paths, (), progress))
    judged: list[tuple[Rows, np.ndarray, np.ndarray]] = []
    for part in rows:
        if leave_out and part.gpu.name not in leave_out:
            continue
        constants = shipped()
        if leave_out is not None:
            progress(f"{part.gpu.name} left out")
            constants = calibrated([other for other in rows if other.gpu.name != part.gpu.name])
        us = part.predicted_us(constants)
        ends = [constants.interval(float(each), part.gpu) for each in us]
        inside = np.array([low <= taken <= high for (low, high), taken in zip(ends, part.us, strict=True)])
        judged.append((part, np.log(us / part.us), inside))
    if not judged:
        raise NothingMatchedError(
            "nothing was measured on these GPUs", ", ".join(leave_out or ()), ", ".join(part.gpu.name for part in rows)
        )
    groups = {part.gpu.name: {part.gpu.name} for part in rows}
    groups |= {"NVIDIA": {part.gpu.name for part in rows if part.gpu.vendor == "nvidia"}, "all": set(groups)}
    found = {}
    for name, gpus in groups.items():
        for far in (True, False):
            columns = []
            for part, error, inside in judged:
                chosen = (part.us >= LONG_US) == far if part.gpu.name in gpus else np.zeros(len(part.us), bool)
                columns.append((error[chosen], inside[chosen], (part.us < part.bound_us)[chosen]))
            together = [np.concatenate(column) for column in zip(*columns, strict=True)]
            if together[0].size:
                found[f"{name}, {'from' if far else 'below'} {LONG_US:g} us"] = summed(*together)
    return found
