"""Weights from measured operators in the publishers' layouts (`rows.silicon`, `rows.aiter`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from advisor.gpus.hardware import list_gpus
from advisor.learned.library import kernels
from advisor.rows import aiter, silicon
from advisor.training import library_training


def is_layout(path: Path | str) -> bool:
    """Whether a folder is in one of these layouts."""
    return silicon.is_layout(path) or aiter.is_layout(path)


def train(
    paths: Iterable[Path | str], exclude_gpus: Sequence[str] = (), progress: Callable[[str], None] = lambda text: None
) -> dict[str, NDArray[Any]]:
    """Arrays of `Weights.silicon`.

    Args:
        paths: Folders for which `is_layout` holds.
        exclude_gpus: Names of GPUs to leave out entirely.
        progress: Told what is being done.
    """
    gpus = [gpu.name for gpu in list_gpus() if gpu.name not in exclude_gpus]
    parts = library_training.read(paths, gpus, progress)
    return kernels.arrays_of(library_training.fit(parts, progress))
