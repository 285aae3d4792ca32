"""Kernels that go by another name than before: paired by their bodies, so that a new name hides no change."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from typing import TypeVar

from advisor.comparison.kernels.kernel_digest import undocumented

Name = TypeVar("Name", bound=Hashable)
"""What a kernel is known by: its name in a file, or that and the file."""

LEAST_ALIKE = 0.8
"""Share of parameters and lines in common from which on two bodies are versions of one kernel. Of the 7,535 pairs of different kernels
in one file of Liger-Kernel, FlagGems and flash-linear-attention 5 % are as alike; half in common, git's measure of files, have 18 %."""


def renamed(lost: Mapping[Name, ast.FunctionDef], gained: Mapping[Name, ast.FunctionDef]) -> dict[Name, Name]:
    """Of kernels that are gone and those that are new, in a file or in several: the old name of each new one, as far as that is clear.

    Two are a pair where either is more like the other than any further one is.
    """
    shares = {(old, new): _alike(lines, others) for old, lines in _lines(lost).items() for new, others in _lines(gained).items()}
    found = {}
    for (old, new), share in shares.items():
        rivals = [other for pair, other in shares.items() if (pair[0] == old) != (pair[1] == new)]
        if share >= LEAST_ALIKE and all(share > rival for rival in rivals):
            found[new] = old
    return found


def _lines(functions: Mapping[Name, ast.FunctionDef]) -> dict[Name, Counter[str]]:
    """Parameters and lines of each body, as often as they occur; comments, docstrings and decorators aside."""
    return {name: Counter(_parts(undocumented(node))) for name, node in functions.items()}


def _parts(function: ast.FunctionDef) -> Iterator[str]:
    yield from ast.unparse(function.args).split(", ")
    for statement in function.body:
        yield from ast.unparse(statement).splitlines()


def _alike(lines: Counter[str], others: Counter[str]) -> float:
    return (lines & others).total() / max(lines.total(), others.total(), 1)
