"""Symbolic links: to a file of the tree they are that file, and elsewhere they are not followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.comparison import Options, compare_trees
from advisor.comparison.trees.trees import FolderTree

from .conftest import KERNEL, TABLE, entry, table
from .repository import compared_files

OTHER = TABLE.replace("H200", "H100_80GB_HBM3")
SOUND, CHANGED = table(M1=entry(), M64=entry()), table(M1=entry(), M64=entry(stages=3))


def compared(repository, predictor, base, head):
    return compared_files(repository, predictor, base, head, gpus=("H200",))


@pytest.mark.parametrize("target", [Path(OTHER), Path("..") / "configs" / OTHER, Path("link.json")])
def test_a_link_in_place_of_a_table_is_the_table_that_it_leads_to(repository, predictor, target):
    files = {f"configs/{TABLE}": SOUND, f"configs/{OTHER}": CHANGED, "configs/link.json": Path(OTHER)}
    found = compared(repository, predictor, files, {f"configs/{TABLE}": target})
    (subject,) = found.subjects
    assert subject.title == TABLE and [row.label for row in subject.static if row.changed] == ["M=64"] and not found.gate.failed


def test_a_link_changes_with_its_file(repository, predictor):
    found = compared(repository, predictor, {f"a/{TABLE}": Path("../b/t.json"), "b/t.json": SOUND}, {"b/t.json": CHANGED})
    assert [subject.path for subject in found.subjects] == [f"a/{TABLE}"]
    kernel = KERNEL.format(m=16)
    found = compared(repository, predictor, {"k.py": Path("real.py"), "real.py": kernel}, {"real.py": KERNEL.format(m=32)})
    assert {subject.path for subject in found.subjects} == {"k.py", "real.py"}


@pytest.mark.parametrize("target", [Path("/etc/passwd"), Path("../../outside.json"), Path("nowhere.json"), Path(TABLE), Path()])
def test_a_link_that_leads_elsewhere_is_not_followed(repository, predictor, target):
    (repository.folder.parent / "outside.json").write_text(CHANGED)
    found = compared(repository, predictor, {TABLE: SOUND, "odd.py": Path("/etc/hostname")}, {TABLE: target})
    assert found.gate.failed and "a symbolic link, which is not followed" in found.gate.sentence


@pytest.mark.parametrize(("target", "followed"), [(OTHER, True), ("../outside.json", False), ("nowhere.json", False), (TABLE, False)])
def test_folders_alike(tmp_path, predictor, target, followed):
    for name in ("base", "head"):
        (tmp_path / name).mkdir()
        (tmp_path / name / OTHER).write_text(CHANGED)
    (tmp_path / "outside.json").write_text(CHANGED)
    (tmp_path / "base" / TABLE).write_text(SOUND)
    (tmp_path / "head" / TABLE).symlink_to(target)
    trees = [FolderTree(folder=tmp_path / name, label=name) for name in ("base", "head")]
    found = compare_trees(*trees, Options(gpus=("H200",), compiling=False), predictor)
    assert found.gate.failed is not followed and len(found.subjects) == 1


def test_a_folder_is_what_it_was_when_it_was_first_asked_for(tmp_path):
    """Its files are read to tell what is in them, and it is asked for with every one that is followed."""
    (tmp_path / "a.py").write_text("x = 1\n")
    tree = FolderTree(folder=tmp_path, label="a")
    before = dict(tree.entries())
    (tmp_path / "b.py").write_text("x = 2\n")
    assert tree.entries() == before and set(FolderTree(folder=tmp_path, label="a").entries()) == {"a.py", "b.py"}
