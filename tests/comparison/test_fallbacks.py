"""Tables that one side does not have: compared with what SGLang runs in their place."""

from __future__ import annotations

import pytest

from advisor.comparison import Options, compare_trees
from advisor.comparison.tables import fallback_entry, version_folders
from advisor.comparison.trees.trees import Entry, FolderTree
from advisor.rendering.comparison_files import to_comment

from .conftest import TABLE, entry, table
from .repository import compared

DOWN = TABLE.replace(".json", "_down.json")


def found(path: str, *others: str) -> str | None:
    entries = {each: Entry(path=each, kind="file", identity="", size_bytes=1) for each in others}
    entry = fallback_entry(path, entries, version_folders(entries))
    return entry.path if entry is not None else None


def test_a_table_for_a_new_version_is_compared_with_the_newest_of_the_others(repository, predictor):
    old, newest = table(M64=entry(16), M1024=entry(16)), table(M64=entry(32), M1024=entry(64, 128))
    base = repository.commit({f"c/triton_3_4_0/{TABLE}": old, f"c/triton_3_10_0/{TABLE}": newest})
    head = repository.commit({f"c/triton_3_11_0/{TABLE}": table(M64=entry(16, 32, 32, 2), M1024=entry(64, 128))})
    comparison = compared(repository, base, head, predictor)
    (subject,) = comparison.subjects
    rows = {row.label: row for row in subject.static}
    assert subject.change == "added" and {row.compared_with for row in rows.values()} == {"base"}
    assert rows["M=1024"].verdict == "predicted-unchanged" and not rows["M=1024"].changed and rows["M=1024"].change == 0
    assert rows["M=64"].base.configuration.parameters["BLOCK_SIZE_M"] == 32
    assert rows["M=64"].base.source == f"table entry 64 of triton_3_10_0/{TABLE}" and rows["M=64"].head.source == "table entry 64"
    assert any("SGLang falls back to triton_3_10_0/" in note for note in subject.notes)
    assert "to default" not in to_comment(comparison)

    (gone,) = compared(repository, head, base, predictor).subjects
    assert gone.change == "removed" and {row.label: row.verdict for row in gone.static}["M=1024"] == "predicted-unchanged"
    assert {row.head.source for row in gone.static} == {f"table entry {m} of triton_3_10_0/{TABLE}" for m in (64, 1024)}


def test_folders_fall_back_as_revisions_do(tmp_path, predictor):
    for side, folders in (("base", ("triton_3_4_0",)), ("head", ("triton_3_4_0", "triton_3_5_1"))):
        for name in folders:
            place = tmp_path / side / name
            place.mkdir(parents=True)
            (place / TABLE).write_text(table(M64=entry()))
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in ("base", "head")]
    (subject,) = compare_trees(*trees, Options(compiling=False), predictor).subjects
    assert [row.verdict for row in subject.static] == ["predicted-unchanged"]


def test_a_tree_is_listed_once_for_all_of_its_tables(tmp_path, predictor, monkeypatch):
    from advisor.comparison import changed_files

    listed = []
    monkeypatch.setattr(changed_files, "version_folders", lambda entries: listed.append(len(entries)) or version_folders(entries))
    for side, names in (("base", ()), ("head", (TABLE, TABLE.replace("E=", "E=1"), DOWN))):
        place = tmp_path / side / "triton_3_4_0"
        place.mkdir(parents=True)
        for name in names:
            (place / name).write_text(table(M64=entry()))
    trees = [FolderTree(folder=tmp_path / side, label=side) for side in ("base", "head")]
    assert len(compare_trees(*trees, Options(compiling=False), predictor).subjects) == 3 and listed == [0, 3]


def test_a_down_table_is_compared_with_the_entries_that_the_second_gemm_ran_with(repository, predictor):
    base = repository.commit({f"triton_3_4_0/{TABLE}": table(M64=entry(16))})
    head = repository.commit({f"triton_3_5_1/{DOWN}": table(M64=entry(16))})
    (subject,) = compared(repository, base, head, predictor).subjects
    (row,) = subject.static
    assert row.verdict == "predicted-unchanged" and [problem.op for problem in row.problems] == ["w2"]
    assert row.base.source == f"table entry 64 of triton_3_4_0/{TABLE}"


def test_a_fallback_that_cannot_be_read_is_said(repository, predictor):
    base = repository.commit({f"triton_3_4_0/{TABLE}": "{"})
    head = repository.commit({f"triton_3_5_1/{TABLE}": table(M64=entry(16))})
    (subject,) = compared(repository, base, head, predictor).subjects
    assert any("falls back to triton_3_4_0/" in note and note.endswith("cannot be read.") for note in subject.notes)
    assert not subject.cured_issues  # the broken file is there still


@pytest.mark.parametrize(
    ("path", "others", "expected"),
    [
        (f"c/triton_3_6_0/{TABLE}", (f"c/triton_3_5_1/{TABLE}", f"c/triton_3_7_1/{TABLE}"), f"c/triton_3_7_1/{TABLE}"),
        (f"c/triton_3_6_0/{DOWN}", (f"c/triton_3_5_1/{DOWN}", f"c/triton_3_6_0/{TABLE}"), f"c/triton_3_5_1/{DOWN}"),
        (f"c/triton_3_6_0/{DOWN}", (f"c/triton_3_6_0/{TABLE}",), f"c/triton_3_6_0/{TABLE}"),
        (f"c/triton_3_6_0/{TABLE}", (f"d/triton_3_5_1/{TABLE}", f"c/triton_new/{TABLE}", f"c/{TABLE}"), None),
        (f"vllm/{TABLE}", (f"vllm/triton_3_5_1/{TABLE}",), None),
        (
            "triton_3_6_0/N=64,K=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json",
            ("triton_3_5_1/N=64,K=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json",),
            None,
        ),
    ],
)
def test_the_order_is_that_of_sglang(path, others, expected):
    assert found(path, *others) == expected
