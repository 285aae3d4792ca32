"""Measured latencies from a ROWS file, matched to the launches of a target."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from advisor.advise import Measured
from advisor.configs.rows import CONFIG_COLUMNS, FAMILY_PARAMETERS, Rows, read_rows
from advisor.errors import InputError, NothingMatchedError
from advisor.hardware import match_device_name
from advisor.schema import Latency
from advisor.targets import PlannedLaunch, Target


def match(target: Target, path: str | os.PathLike[str]) -> tuple[Mapping[str, Measured], str | None]:
    """Latencies by launch id, and a sentence on what was left unmatched (None: nothing).

    A row belongs to a launch when GPU, operator and all sizes agree, and the configuration too where the row names one. Several
    rows of one launch give their median, with least and greatest as the interval.

    Raises:
        InputError: The file cannot be read, or has no latency_us.
        NothingMatchedError: No row belongs to any launch.
    """
    rows = read_rows(path)
    latency = rows.columns.get("latency_us")
    if latency is None:
        raise InputError(f"{Path(path).name}: no column latency_us", ", ".join(rows.header), "measured latencies", "add it")
    on_gpu = _on_gpu(rows, target)
    out: dict[str, Measured] = {}
    used = np.zeros(len(rows), dtype=bool)
    for launch in target.launches:
        chosen = on_gpu & _same_problem(rows, launch) & _same_configuration(rows, launch) & np.isfinite(latency) & (latency > 0)
        if not chosen.any():
            continue
        used |= chosen
        values = latency[chosen]
        several = values.size > 1
        source = f"{Path(path).name}, {values.size} rows" if several else Path(path).name
        out[launch.id] = Measured(
            latency=Latency(
                us=float(np.median(values)), origin="measured", source=source,
                low_us=float(values.min()) if several else None, high_us=float(values.max()) if several else None,
                coverage=1.0 if several else None,
            )
        )  # fmt: skip
    if not out:
        raise NothingMatchedError(f"{Path(path).name}: none of {len(rows)} rows belongs to {target.title} on {target.gpu.name}",
                                  None, "rows with the same GPU, sizes and configuration", "check the columns")  # fmt: skip
    missing, spare = len(target.launches) - len(out), int((~used).sum())
    if not missing and not spare:
        return out, None
    return out, f"{Path(path).name}: {len(out)} of {len(target.launches)} launches have a measurement; {spare} rows belong to none"


def _on_gpu(rows: Rows, target: Target) -> np.ndarray:
    if "gpu" not in rows.header:
        return np.ones(len(rows), dtype=bool)
    names = np.asarray(rows.text["gpu"], dtype=object)
    same = {name for name in set(rows.text["gpu"]) if (found := match_device_name(name)) and found.name == target.gpu.name}
    return np.isin(names, list(same | {target.gpu.name}))


def _same_problem(rows: Rows, launch: PlannedLaunch) -> np.ndarray:
    problem = launch.problem
    same = (rows.family == problem.family) & (rows.op == problem.op)
    for name, value in problem.sizes.items():
        same &= rows.columns[name] == value if name in rows.columns else False
    if "dtype" in rows.header:
        same &= rows.dtype == problem.dtype
    return same


def _same_configuration(rows: Rows, launch: PlannedLaunch) -> np.ndarray:
    """Rows without a configuration count as any."""
    if launch.configuration is None:
        return ~rows.has_configuration
    same = np.ones(len(rows), dtype=bool)
    fields = {**launch.configuration.parameters, "num_warps": launch.configuration.num_warps,
              "num_stages": launch.configuration.num_stages}  # fmt: skip
    for name in (*CONFIG_COLUMNS, *FAMILY_PARAMETERS.get(launch.problem.family, ())):
        if name in rows.columns and name in fields:
            same &= rows.columns[name] == fields[name]
    return same | ~rows.has_configuration
