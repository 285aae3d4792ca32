"""Comparing two sides: results, rows, tables, kernels, folders or git revisions, with static and measured evidence kept apart."""

from __future__ import annotations

from advisor.comparison.compare import DEFAULT_GPUS, Options, assemble, compare_files, compare_trees, new_result
from advisor.comparison.gate import CONDITIONS, DEFAULT

__all__ = ["CONDITIONS", "DEFAULT", "DEFAULT_GPUS", "Options", "assemble", "compare_files", "compare_trees", "new_result"]
