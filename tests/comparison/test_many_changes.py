"""More changed files than are compared."""

from __future__ import annotations

import pytest

from advisor.comparison import Options, compare, compare_trees
from advisor.comparison.trees import RevisionTree

from .conftest import KERNEL, TABLE, entry, table


def compared(repository, base, head, predictor):
    trees = [RevisionTree(folder=repository.folder, label=name, revision=commit) for name, commit in (("base", base), ("head", head))]
    return compare_trees(*trees, Options(compiling=False), predictor)


@pytest.mark.parametrize(
    ("last", "reason"),
    [({f"z/{TABLE}": table(M64=entry(block_k=256, stages=9))}, "entry 64 (needs"), ({f"z/{TABLE}": "{"}, "not valid JSON"),
     ({"z.py": KERNEL.format(m=16) + "\n("}, "z.py (line"), ({f"z/{TABLE}": table(M64=entry())}, None)],
)  # fmt: skip
def test_past_the_limit_what_is_certain_to_fail_still_gates(repository, predictor, monkeypatch, last, reason):
    monkeypatch.setattr(compare, "LARGEST_CHANGES", 2)
    base = repository.commit({"z.py": KERNEL.format(m=16), **{f"{name}/{TABLE}": table(M64=entry(32)) for name in "abyz"}})
    more = {f"{name}/{TABLE}": table(M64=entry()) for name in "aby"}
    found = compared(repository, base, repository.commit({**more, "odd.py": "x = 1", **last}), predictor)
    assert "2 more changed files were only audited, not judged." in found.gate.sentence
    assert found.gate.failed is (reason is not None) and (reason or "") in found.gate.sentence
    assert len(found.subjects) == 2 + (reason is not None)
