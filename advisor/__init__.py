"""triton-advisor: how fast a Triton kernel can be, how far away it is, why, and what to change.

`autotune`, `warmup` and `best_config` are loaded on first use: importing this package loads neither torch nor triton.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "resolve_target": "advisor.resolve",
    "Request": "advisor.targets",
    "load_gpu": "advisor.hardware",
    "list_gpus": "advisor.hardware",
    "load_predictor": "advisor.learned",
    "autotune": "advisor.autotune",
    "best_config": "advisor.autotune",
    "warmup": "advisor.autotune",
}

__all__ = [
    "Request",
    "__version__",
    "autotune",
    "best_config",
    "list_gpus",
    "load_gpu",
    "load_predictor",
    "resolve_target",
    "warmup",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY and name in __all__:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'advisor' has no attribute {name!r}; it has {', '.join(__all__)}")


def __dir__() -> list[str]:
    return sorted(__all__)
