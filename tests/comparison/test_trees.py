"""Symbolic links are named, and not followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.comparison import Options, compare_trees
from advisor.comparison.trees.trees import FolderTree

from .conftest import TABLE, entry, table
from .repository import compared_files

OTHER = TABLE.replace("H200", "H100_80GB_HBM3")
SOUND, CHANGED = table(M1=entry(), M64=entry()), table(M1=entry(), M64=entry(stages=3))


def compared(repository, predictor, base, head):
    return compared_files(repository, predictor, base, head, gpus=("H200",))


@pytest.mark.parametrize(
    "target", [Path(OTHER), Path("/etc/passwd"), Path("../../outside.json"), Path("nowhere.json"), Path(TABLE), Path()]
)
def test_a_link_is_named_and_not_followed(repository, predictor, target):
    (repository.folder.parent / "outside.json").write_text(CHANGED)
    found = compared(repository, predictor, {TABLE: SOUND, OTHER: CHANGED, "odd.py": Path("/etc/hostname")}, {TABLE: Path(target)})
    assert found.gate.failed and "a symbolic link, which is not followed" in found.gate.sentence


@pytest.mark.parametrize("target", [OTHER, "../outside.json", "nowhere.json", TABLE])
def test_folders_alike(tmp_path, predictor, target):
    for name in ("base", "head"):
        (tmp_path / name).mkdir()
        (tmp_path / name / OTHER).write_text(CHANGED)
    (tmp_path / "outside.json").write_text(CHANGED)
    (tmp_path / "base" / TABLE).write_text(SOUND)
    (tmp_path / "head" / TABLE).symlink_to(target)
    trees = [FolderTree(folder=tmp_path / name, label=name) for name in ("base", "head")]
    found = compare_trees(*trees, Options(gpus=("H200",), compiling=False), predictor)
    assert [subject.notes for subject in found.subjects] == [("head: a symbolic link, which is not followed",)]


def test_a_folder_is_what_it_was_when_it_was_first_asked_for(tmp_path):
    """Its files are read to tell what is in them, and it is asked for with every one that is followed."""
    (tmp_path / "a.py").write_text("x = 1\n")
    tree = FolderTree(folder=tmp_path, label="a")
    before = dict(tree.entries())
    (tmp_path / "b.py").write_text("x = 2\n")
    assert tree.entries() == before and set(FolderTree(folder=tmp_path, label="a").entries()) == {"a.py", "b.py"}
