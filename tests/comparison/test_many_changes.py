"""More changed files than are compared."""

from __future__ import annotations

import pytest

from advisor.comparison import compare
from advisor.rendering.comparison_markdown import to_comment

from .conftest import KERNEL, TABLE, entry, table
from .repository import compared


@pytest.mark.parametrize(
    ("last", "reason"),
    [
        ({f"z/{TABLE}": table(M64=entry(block_k=256, stages=9))}, "entry 64 (needs"),
        ({f"z/{TABLE}": "{"}, "not valid JSON"),
        ({"z.py": KERNEL.format(m=16) + "\n("}, "z.py (line"),
        ({f"z/{TABLE}": table(M64=entry())}, None),
    ],
)
def test_past_the_limit_what_is_certain_to_fail_still_gates(repository, predictor, monkeypatch, last, reason):
    monkeypatch.setattr(compare, "LARGEST_CHANGES", 2)
    base = repository.commit({"z.py": KERNEL.format(m=16), **{f"{name}/{TABLE}": table(M64=entry(32)) for name in "abyz"}})
    more = {f"{name}/{TABLE}": table(M64=entry()) for name in "aby"}
    found = compared(repository, base, repository.commit({**more, "odd.py": "x = 1", **last}), predictor)
    assert "2 more changed files were only audited, not judged." in found.gate.sentence
    assert found.gate.failed is (reason is not None) and (reason or "") in found.gate.sentence
    assert len(found.subjects) == 2 + (reason is not None)


@pytest.mark.parametrize("count", [2, 3])
def test_what_is_said_of_many_kernels_is_said_once(repository, predictor, count):
    text = KERNEL.format(m=16)
    base = repository.commit({f"{number}.py": text.replace("matmul", f"matmul{number}") for number in range(count)})
    changed = {f"{number}.py": text.replace("matmul", f"matmul{number}").replace("num_stages=3", "num_stages=4") for number in range(count)}
    comment = to_comment(compared(repository, base, repository.commit(changed), predictor))
    once = count > 2
    assert comment.count("neither advisor.toml nor a KERNELS literal says which family it is") == (1 if once else count)
    assert ("Of 3 kernels: No prediction: KERNEL: neither" in comment) is once and comment.count("Added configurations") == count
