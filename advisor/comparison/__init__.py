"""Comparing two sides: results, rows, tables, kernels, folders or git revisions, with static and measured evidence kept apart."""

from __future__ import annotations

from advisor.comparison.assembling import DEFAULT_GPUS, Options, assemble
from advisor.comparison.compare import compare_trees
from advisor.comparison.gate import CONDITIONS, DEFAULT
from advisor.comparison.sides import compare_files, new_result

__all__ = ["CONDITIONS", "DEFAULT", "DEFAULT_GPUS", "Options", "assemble", "compare_files", "compare_trees", "new_result"]
