"""One name per GPU model, however CUDA, a path or a user spells it."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=256)
def gpu_model(name: str) -> str:
    """The short name that `ceilings/` gives it, else the name as it is."""
    from advisor.gpus.hardware import match_device_name

    spec = match_device_name(name)
    return spec.name if spec is not None else name
