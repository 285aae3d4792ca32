"""Which targets of `advise` are code that the compiler has to look at, and which are tables or bundled kernels."""

from __future__ import annotations

import os
from pathlib import Path

from advisor.gpus.hardware import GpuSpec


def is_code(text: str) -> bool:
    """Whether a target is a kernel in source, a record, or a cache of Triton; what a table needs loads without the compiler's part."""
    there = os.path.exists(text)  # noqa: PTH110 - pathlib raises where a name is too long to be a path
    if (text.isidentifier() and not there) or (text.endswith(".json") and not is_triton_cache(text)):
        return False
    from advisor.compiled.launch_report import is_compiled_target

    return is_compiled_target(text)


def is_triton_cache(text: str) -> bool:
    """Whether a target is a cache of Triton, part of one, or an entry of it."""
    path = Path(text.partition("::")[0])
    try:
        if not (path.is_dir() or path.with_suffix(".ttir").is_file()):
            return False
    except (OSError, ValueError):  # no path at all: too long, a null byte
        return False
    from advisor.compiled.launches.triton_cache import is_cache_target

    return is_cache_target(text)


def cached_gpu(text: str) -> tuple[GpuSpec, str] | None:
    """A GPU that the newest entry of a cache of Triton runs on, and a sentence that it was assumed.

    None: the target is no such cache, or no GPU that runs its code is described.
    """
    if not is_triton_cache(text):
        return None
    from advisor.compiled.launches.target import gpu_of
    from advisor.compiled.launches.triton_cache import cached_kernels

    entry = cached_kernels(text)[0]
    gpu = gpu_of(entry.target)
    return None if gpu is None else (gpu, f"no --gpu is given: taken as run on {gpu.name}, which runs code for {entry.target.name}")
