"""Tables in another folder and kernels in another file than before: a rename hides no change."""

from __future__ import annotations

import pytest

from advisor.comparison import Options, compare_trees
from advisor.comparison.trees.trees import RevisionTree

from .conftest import KERNEL, TABLE, entry, table

PATH = "kernels/matmul.py"
SETTINGS = """
gpus = ["H100"]
fail_on = ["predicted-regressed"]
[kernels."kernels/matmul.py::matmul"]
family = "gemm"
problems = [{M = 4096, N = 4096, K = 4096}]
"""
OF_DESTINATION = """
[kernels."kernels/other.py"]
family = "gemm"
problems = [{M = 16, N = 128, K = 128}]
"""
GOOD, BAD = KERNEL.format(m=128), KERNEL.format(m=16)
OTHER = GOOD.replace("def matmul", "def other")


def compared(repository, predictor, before, after, settings=SETTINGS):
    base = repository.commit({"advisor.toml": settings, **before})
    head = repository.commit({**dict.fromkeys(before), "advisor.toml": settings, **after})
    trees = [RevisionTree(folder=repository.folder, label=name, revision=commit) for name, commit in (("base", base), ("head", head))]
    return compare_trees(*trees, Options(compiling=False), predictor)


def test_a_table_in_another_folder_runs_as_before(repository, predictor):
    text = table(M64=entry(), M1024=entry(64, 128))
    found = compared(repository, predictor, {f"old/{TABLE}": text}, {f"new/{TABLE}": text})
    (subject,) = found.subjects
    assert subject.path == f"new/{TABLE}" and subject.notes[0] == f"Moved here from old/{TABLE}."
    assert {row.verdict for row in subject.static} == {"predicted-unchanged"} and {row.compared_with for row in subject.static} == {"base"}


def test_what_is_said_of_a_table_holds_in_another_folder(repository, predictor):
    settings = '[tables."old/*"]\nmodel = "Qwen3-30B-A3B"\ntokens = [7]'
    found = compared(repository, predictor, {f"old/{TABLE}": table(M64=entry())}, {f"new/{TABLE}": table(M64=entry(32))}, settings)
    assert [row.label for row in found.subjects[0].static] == ["M=7"]
    assert not any("assum" in note.lower() for note in found.subjects[0].notes)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({PATH: GOOD}, {"kernels/gemm.py": BAD}),  # renamed
        ({PATH: GOOD}, {"kernels/gemm.py": OTHER + BAD}),  # with another kernel besides
        ({PATH: OTHER + GOOD}, {PATH: OTHER, "kernels/gemm.py": BAD}),  # parted
        ({PATH: GOOD, "kernels/other.py": OTHER}, {"kernels/other.py": OTHER + BAD}),  # into a file that was there
        ({PATH: GOOD, "old/conv.py": GOOD}, {"new/matmul.py": BAD, "new/conv.py": GOOD}),  # the name is in two files: by theirs
        ({PATH: GOOD, "old/conv.py": GOOD + "# 2"}, {"new/gemm.py": BAD, "new/folded.py": GOOD + "# 2"}),  # by the content of the other
    ],
)
def test_a_kernel_that_moved_is_compared_with_what_it_was(repository, predictor, before, after):
    found = compared(repository, predictor, before, after)
    assert found.gate.failed and found.gate.triggered[0].startswith("predicted-regressed: ")
    (subject,) = (each for each in found.subjects if each.title.endswith("::matmul"))
    assert subject.notes[0] == f"Moved here from {PATH}." and {row.compared_with for row in subject.static} == {"base"}
    assert "missing" not in found.static_counts


@pytest.mark.parametrize("key", [f"{PATH}::matmul", PATH])
def test_what_is_said_of_a_file_is_not_said_of_a_kernel_that_came_to_it(repository, predictor, key):
    """Of the small problem of the other kernel no prediction is worse: the gate would pass."""
    settings = SETTINGS.replace(f"{PATH}::matmul", key) + OF_DESTINATION
    found = compared(repository, predictor, {PATH: GOOD, "kernels/other.py": OTHER}, {"kernels/other.py": OTHER + BAD}, settings)
    (subject,) = (each for each in found.subjects if each.title.endswith("::matmul"))
    assert {problem.sizes["M"] for row in subject.static for problem in row.problems} == {4096} and found.gate.failed


def test_what_is_said_of_a_moved_kernel_by_name_counts(repository, predictor):
    """By its new name before its old one, and by either before what is said of files."""
    named = OF_DESTINATION.replace("other.py", "other.py::matmul")
    settings = SETTINGS + OF_DESTINATION.replace("M = 16", "M = 32") + named
    found = compared(repository, predictor, {PATH: GOOD, "kernels/other.py": OTHER}, {"kernels/other.py": OTHER + BAD}, settings)
    (subject,) = (each for each in found.subjects if each.title.endswith("::matmul"))
    assert {problem.sizes["M"] for row in subject.static for problem in row.problems} == {16}


def test_a_kernel_that_only_moved_is_no_change(repository, predictor):
    assert compared(repository, predictor, {PATH: GOOD}, {"kernels/gemm.py": GOOD}).subjects == ()


def test_where_it_is_not_clear_what_moved_nothing_is_paired(repository, predictor):
    found = compared(repository, predictor, {PATH: GOOD}, {"a.py": BAD, "b.py": BAD + "# 2"})
    assert found.static_counts == {"missing": 1} and {each.change for each in found.subjects} == {"added", "removed"}
