"""Kernels that a file makes of functions further down: a change to what is made of them is a change of the kernel."""

from __future__ import annotations

import pytest

from advisor.comparison import Options, compare_trees
from advisor.comparison.trees.trees import RevisionTree

FUNCTION = """import triton
import triton.language as tl

def scale(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), n)

"""
MADE = "scale = triton.heuristics({'BLOCK': lambda a: 64})(triton.jit(scale))\n"
SEVERAL = """scale = triton.jit(scale)
near = triton.heuristics({'BLOCK': lambda a: 64})(scale)
tuned = triton.autotune([triton.Config({}, num_warps=4)], [])(near)
other = triton.autotune([triton.Config({}, num_warps=8)], [])(near)
"""


@pytest.mark.parametrize(
    ("base", "old", "new"),
    [
        (FUNCTION + MADE, "BLOCK), n", "BLOCK), n + 1"),
        (FUNCTION + MADE, "a: 64", "a: 128"),
        (FUNCTION + SEVERAL, "a: 64", "a: 128"),
        (FUNCTION + SEVERAL, "num_warps=8", "num_warps=2"),
    ],
)
def test_what_is_made_a_kernel_further_down_is_compared(repository, predictor, base, old, new):
    assert old in base
    commits = [repository.commit({"k.py": text}) for text in (base, base.replace(old, new), "# a comment\n" + base.replace(old, new))]
    trees = [RevisionTree(folder=repository.folder, label=str(number), revision=commit) for number, commit in enumerate(commits)]
    changed, same = (compare_trees(*each, Options(compiling=False), predictor) for each in (trees[:2], trees[1:]))
    assert [(each.title, each.change) for each in changed.subjects] == [("k.py::scale", "modified")] and not same.subjects
