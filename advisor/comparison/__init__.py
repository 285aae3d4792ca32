"""Comparing two sides: results, rows, tables, kernels, folders or git revisions, with static and measured evidence kept apart.

Names are loaded on first use: reading a revision's name needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.comparison.assembling import DEFAULT_GPUS, Options, assemble
    from advisor.comparison.compare import compare_trees
    from advisor.comparison.gate import CONDITIONS, DEFAULT
    from advisor.comparison.sides import compare_files, new_result

__all__ = ["CONDITIONS", "DEFAULT", "DEFAULT_GPUS", "Options", "assemble", "compare_files", "compare_trees", "new_result"]

_HOMES = {
    "CONDITIONS": "gate",
    "DEFAULT": "gate",
    "compare_files": "sides",
    "compare_trees": "compare",
    "new_result": "sides",
}
"""The modules of the names; `assembling` has the others."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'assembling')}"), name)
