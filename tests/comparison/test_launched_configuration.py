"""Kernels of a family whose configuration stands where they are launched, and nowhere else: compiled and predicted as they are launched."""

from __future__ import annotations

import pytest

from advisor.comparison import Options, compare_trees
from advisor.comparison.trees.trees import RevisionTree

ROWS = """
import triton
import triton.language as tl

@triton.jit
def double(x_ptr, width, BLOCK_SIZE: tl.constexpr):
    at = tl.arange(0, BLOCK_SIZE)
    for start in range(0, width, BLOCK_SIZE):
        tl.store(x_ptr + start + at, tl.load(x_ptr + start + at, mask=start + at < width) * 2, mask=start + at < width)

def run(x, rows, width):
    double[(rows,)](x, width, BLOCK_SIZE=min(LIMIT, triton.next_power_of_2(width)), num_warps=8)
"""
OF_ROWS = """
gpus = ["H100"]
[kernels."ops.py::double"]
family = "normalization"
op = "rms_norm"
problems = [{B = 4096, H = 4096}]
sizes = {H = "width"}
"""


def compared(repository, predictor, settings=OF_ROWS, **options):
    base, head = (repository.commit({"advisor.toml": settings, "ops.py": ROWS.replace("LIMIT", each)}) for each in ("8192", "1024"))
    trees = [RevisionTree(folder=repository.folder, label=commit, revision=commit) for commit in (base, head)]
    (subject,) = compare_trees(*trees, Options(**options), predictor).subjects
    return subject


def test_what_is_compiled_is_what_is_predicted(repository, predictor):
    pytest.importorskip("triton")
    subject = compared(repository, predictor)
    (row,) = subject.static
    assert row.base.predicted.us > 0 and row.head.predicted.us > 0 and row.compared_with == "base"
    (compiled,) = subject.resources
    assert compiled.label.startswith("BLOCK_SIZE=4096 → 1024") and compiled.base != compiled.head


def test_every_problem_is_predicted(repository, predictor):
    """Of the first alone, a kernel would be the same that is slower at the second."""
    pytest.importorskip("triton")
    problems = "{B = 1, H = 64}, {B = 4096, H = 4096}, {B = 1, H = 4096}"
    subject = compared(repository, predictor, OF_ROWS.replace("{B = 4096, H = 4096}", problems), args={"rows": 4096})
    same, other = subject.static
    assert (same.label, same.verdict) == ("grid 4096, width=64", "predicted-unchanged")
    assert other.label == "grid 4096, width=4096" and other.change and other.id != same.id
    assert "1 of its 3 problems is the same launch as another: `sizes` in advisor.toml names the arguments." in subject.notes
    small, large = subject.resources
    assert small.label.startswith("BLOCK_SIZE=64") and large.label == "BLOCK_SIZE=4096 → 1024 num_warps=8 at B=4096 H=4096 bf16"


def test_uncompiled_it_is_not_predicted(repository, predictor):
    subject = compared(repository, predictor, compiling=False)
    assert not subject.static and any("neither version lists configurations" in note for note in subject.notes)
