"""More changed files than are compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.advising import table_workers
from advisor.comparison import changed_files, compare
from advisor.learned import load_predictor
from advisor.rendering.comparison_files import to_comment, to_sarif

from .conftest import KERNEL, TABLE, entry, table
from .repository import compared


def test_what_is_past_the_limit_is_said_to_be_left_out(repository, predictor, monkeypatch):
    monkeypatch.setattr(compare, "LARGEST_CHANGES", 2)
    base = repository.commit({f"{name}/{TABLE}": table(M64=entry(32)) for name in "abyz"})
    found = compared(repository, base, repository.commit({f"{name}/{TABLE}": table(M64=entry()) for name in "abyz"}), predictor)
    assert len(found.subjects) == 2 and not found.gate.failed
    assert "2 more files were not judged." in found.gate.sentence and "2 more are not compared" in found.warnings[0]


def test_tables_are_told_alike_by_one_process_and_by_several(repository, monkeypatch):
    monkeypatch.setattr(table_workers, "TABLES_PER_WORKER", 1)
    monkeypatch.setattr(table_workers.os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    base = repository.commit({f"{name}/{TABLE}": table(M64=entry(32)) for name in "ab"})
    head = repository.commit({f"{name}/{TABLE}": table(M64=entry()) for name in "ab"})
    alone = compared(repository, base, head, load_predictor())
    monkeypatch.setattr(changed_files, "table_subject", None)  # whoever compares a table here fails
    assert compared(repository, base, head, load_predictor(), processes=True) == alone and len(alone.subjects) == 2


@pytest.mark.parametrize("count", [2, 3])
def test_what_is_said_of_many_kernels_is_said_once(repository, predictor, count):
    text = KERNEL.format(m=16)
    base = repository.commit({f"{number}.py": text.replace("matmul", f"matmul{number}") for number in range(count)})
    changed = {f"{number}.py": text.replace("matmul", f"matmul{number}").replace("num_stages=3", "num_stages=4") for number in range(count)}
    comment = to_comment(compared(repository, base, repository.commit(changed), predictor))
    once = count > 2
    assert comment.count("neither advisor.toml nor a KERNELS literal says which family it is") == (1 if once else count)
    assert ("Of 3 kernels: No prediction: KERNEL: neither" in comment) is once and comment.count("Added configurations") == count


def test_an_entry_more_changes_nothing_of_the_others(repository, predictor):
    base = repository.commit({TABLE: table(M1=entry(), M64=entry())})
    found = compared(repository, base, repository.commit({TABLE: table(M1=entry(), M64=entry(), M256=entry())}), predictor)
    assert not found.gate.failed and {row.label: row.verdict for row in found.subjects[0].static}["M=64"] == "predicted-unchanged"


@pytest.mark.parametrize("path", ["\ud800/k.py", "\udfff.py", "\udcff.py"])
def test_a_path_that_is_no_text_is_shown(repository, predictor, path):
    base = repository.commit({"k.py": KERNEL.format(m=16)})
    found = compared(repository, base, repository.commit({"k.py": KERNEL.format(m=32) + "def (\n"}), predictor)
    named = replace(found, subjects=tuple(replace(subject, path=path, title=path) for subject in found.subjects))
    assert to_sarif(named).encode() and to_comment(named)
