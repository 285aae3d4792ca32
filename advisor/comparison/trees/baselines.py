"""Stored measurements to compare with, one file per GPU, Triton version and thing measured: `DIR/H200/triton-3.9.0/NAME`.

A baseline changes only when that is asked for (`--update`), never because a comparison ran.
"""

from __future__ import annotations

import re
from pathlib import Path

from advisor.gpus.hardware import match_device_name
from advisor.measurement.measured_rows import MeasuredRow
from advisor.result.schema import Result
from advisor.system.errors import InputError


def _slug(text: str) -> str:
    """Text as one safe part of a path, that no table's name looks like."""
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:120]
    return short or "unnamed"


def baseline_path(folder: Path, gpu: str, triton: str | None, name: str) -> Path:
    """Where the baseline of a GPU, a Triton version and a name lies."""
    return folder / _slug(gpu) / _slug(f"triton-{triton or 'unknown'}") / _slug(name)


def of_result(folder: Path, result: Result) -> Path:
    """Where a result's baseline lies."""
    return baseline_path(folder, result.gpu, result.fingerprint.triton, f"{_slug(result.target.removesuffix('.json'))}.result.json")


def of_rows(folder: Path, rows: list[MeasuredRow], file_name: str) -> Path:
    """Where the baseline of a file of rows lies.

    Raises:
        InputError: Its rows are of several GPUs or Triton versions.
    """
    keys = {(_gpu(row), row.fingerprint.triton if row.fingerprint is not None else None) for row in rows}
    if len(keys) != 1:
        listed = ", ".join(sorted(f"{gpu} / Triton {triton or 'unknown'}" for gpu, triton in keys)) or "no rows"
        raise InputError(f"{file_name}: a baseline holds one GPU and one Triton version", listed, "one", "split the file")
    gpu, triton = keys.pop()
    return baseline_path(folder, gpu, triton, file_name)


def _gpu(row: MeasuredRow) -> str:
    found = match_device_name(row.gpu)
    return found.name if found is not None else row.gpu
