"""The sentence that every surface begins with."""

from __future__ import annotations

import pytest

from advisor.comparison.headline import headline
from advisor.comparison_schema import Subject


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ([("kernel", "added"), ("kernel", "removed"), ("kernel", "added")], "2 new kernels, 1 removed kernel: no row to compare"),
        ([("file", "type changed"), ("table", "modified")], "1 changed file, 1 changed table: no row to compare"),
        ([], "No kernel and no table changed"),
    ],
)
def test_what_has_no_row_is_said_by_kind(changed, told):
    subjects = [Subject(kind=kind, title="k", path="k.py", change=change) for kind, change in changed]
    assert headline(subjects, {}, {}) == told
