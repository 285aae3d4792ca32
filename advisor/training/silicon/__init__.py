"""Fitting and judging what whole layers, library kernels and published operators take, from tables in their publishers' layouts
(`rows.silicon`, `rows.aiter`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from advisor.gpus.hardware import list_gpus
from advisor.learned.library import kernels
from advisor.rows import aiter, silicon
from advisor.training.grow import one_thread
from advisor.training.silicon import layer_training, library_kernels, moe_library, operators

SPLITS = ("shape", "model", "gpu", "version")
"""What is left out in turn."""


def is_layout(path: Path | str) -> bool:
    """Whether a folder is in one of these layouts, or holds tuned tables of the stacks, which say what ran."""
    return silicon.is_layout(path) or aiter.is_layout(path) or holds_tables(path)


def holds_tables(path: Path | str) -> bool:
    """Whether a folder holds tuned tables of fused-MoE kernels."""
    return Path(path).is_dir() and next(Path(path).rglob("E=*,N=*.json"), None) is not None


def train(
    paths: Iterable[Path | str],
    exclude_gpus: Sequence[str] = (),
    exclude_models: Sequence[tuple[int, int, int, int]] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, NDArray[Any]]:
    """Arrays of `Weights.silicon`.

    Args:
        paths: Folders for which `is_layout` holds.
        exclude_gpus: Names of GPUs to leave out entirely.
        exclude_models: Mixture-of-experts models (E, topk, H, inter) to leave out of the layers.
        progress: Told what is being done.

    Raises:
        MissingDependencyError: Packages of the extra `train` are not installed.
    """
    gpus = [gpu.name for gpu in list_gpus() if gpu.name not in exclude_gpus]
    paths = list(paths)
    folders = [path for path in paths if silicon.is_layout(path)]
    tables = [path for path in paths if holds_tables(path)]
    with one_thread():
        layers = layer_training.train(folders, exclude_gpus, exclude_models, tables, progress)
        parts = library_kernels.read([path for path in paths if path not in tables], gpus, progress)
        return layers | (kernels.arrays_of(library_kernels.fit(parts, progress)) if parts else {})


def judge(
    paths: Iterable[Path | str],
    gpus: Sequence[str] | None = None,
    leave_out: Sequence[str] = SPLITS,
    progress: Callable[[str], None] = lambda text: None,
    given: Sequence[int] = (),
) -> dict[str, Any]:
    """Figures of layers, of library layers, of published operators and of library kernels by split; arguments as of
    `layer_training.judge` and `library_kernels.judge`."""
    paths = list(paths)
    tables, folders = ([path for path in paths if table(path)] for table in (holds_tables, silicon.is_layout))
    layers = layer_training.judge(folders, tables, gpus, leave_out, progress, given)
    for published in (moe_library, operators) if folders else ():
        layers |= published.judge(folders, gpus, leave_out, progress)
    return layers | library_kernels.judge([path for path in paths if path not in tables], gpus, leave_out, progress, given)
