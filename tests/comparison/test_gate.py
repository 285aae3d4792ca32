"""What makes the exit code 1."""

from __future__ import annotations

import pytest

from advisor.comparison.gate import gate
from advisor.result.comparison_schema import ResourceRow, Resources, Subject


def subject(before: int | None, after: int | None) -> Subject:
    """A kernel that spills so many bytes per thread on each side; None: it is not there."""
    held = [
        None if each is None else Resources(origin="compiled", registers_per_thread=32, spill_bytes=each, shared_memory_bytes=0)
        for each in (before, after)
    ]
    row = ResourceRow(kernel="k", gpu="H100", label="BLOCK=64", base=held[0], head=held[1], reason="")
    return Subject(kind="kernel", title="k", path="k.py", change="modified", resources=(row,))


@pytest.mark.parametrize(
    ("before", "after", "failed"),
    [(0, 0, False), (8, 8, False), (8, 4, False), (8, 9, True), (0, 4, True), (None, 4, True), (4, None, False)],
)
def test_gate_on_spills_fails_where_they_grow_and_only_there(before: int | None, after: int | None, failed: bool) -> None:
    assert gate([subject(before, after)], ("spills",)).failed == failed
    assert not gate([subject(before, after)], ("regressed",)).failed
