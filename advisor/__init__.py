"""triton-advisor: how fast a Triton kernel can be, how far away it is, why, and what to change.

Names are loaded on first use: importing this package loads neither torch nor triton nor optuna.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.advising.targets import Request as Request
    from advisor.advising.targets.resolve import resolve_target as resolve_target
    from advisor.autotuning.decorator import autotune as autotune
    from advisor.autotuning.decorator import best_config as best_config
    from advisor.autotuning.decorator import warmup as warmup
    from advisor.gpus.hardware import list_gpus as list_gpus
    from advisor.gpus.hardware import load_gpu as load_gpu
    from advisor.learned import load_predictor as load_predictor
    from advisor.result.schema import Problem as Problem
    from advisor.search import AdvisorSampler as AdvisorSampler

__version__ = "0.1.0"

_HOMES = {
    "AdvisorSampler": "search",
    "Problem": "result.schema",
    "Request": "advising.targets",
    "autotune": "autotuning.decorator",
    "best_config": "autotuning.decorator",
    "list_gpus": "gpus.hardware",
    "load_gpu": "gpus.hardware",
    "load_predictor": "learned",
    "resolve_target": "advising.targets.resolve",
    "warmup": "autotuning.decorator",
}

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
