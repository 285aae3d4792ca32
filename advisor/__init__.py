"""triton-advisor: how fast a Triton kernel can be, how far away it is, why, and what to change.

Names are loaded on first use: importing this package loads neither torch nor triton, optuna nor plotly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.autotune import autotune as autotune
    from advisor.autotune import best_config as best_config
    from advisor.autotune import warmup as warmup
    from advisor.hardware import list_gpus as list_gpus
    from advisor.hardware import load_gpu as load_gpu
    from advisor.learned import load_predictor as load_predictor
    from advisor.schema import Problem as Problem
    from advisor.search import AdvisorSampler as AdvisorSampler
    from advisor.targets import Request as Request
    from advisor.targets.resolve import resolve_target as resolve_target

__version__ = "0.1.0"

_HOMES = {
    "AdvisorSampler": "search", "Problem": "schema", "Request": "targets", "autotune": "autotune", "best_config": "autotune",
    "list_gpus": "hardware", "load_gpu": "hardware", "load_predictor": "learned", "resolve_target": "targets.resolve", "warmup": "autotune",
}  # fmt: skip

__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
