"""The sentence that every surface begins with."""

from __future__ import annotations

from dataclasses import replace

import pytest

from advisor.comparison.assembling import counts, headline
from advisor.comparison.kernels.changed_launches import SAME
from advisor.result.comparison_schema import UNKNOWN, Failure, StaticRow, Subject

NOTHING = "nothing could be predicted, and nothing was measured"


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ([("kernel", "added"), ("kernel", "removed"), ("kernel", "added")], f"2 new kernels, 1 removed kernel: {NOTHING}"),
        ([("file", "type changed"), ("table", "modified")], f"1 changed file, 1 changed table: {NOTHING}"),
        ([("kernel", "removed")], "1 removed kernel"),
        ([], "No kernel and no table changed"),
    ],
)
def test_what_has_no_row_is_said_by_kind(changed, told):
    subjects = [Subject(kind=kind, title="k", path="k.py", change=change) for kind, change in changed]
    assert headline(subjects, {}, {}) == told


def row(label: str, verdict: str, gpu: str = "H200", change: float | None = None, reason: str = "") -> StaticRow:
    return StaticRow(
        id=label,
        label=label,
        gpu=gpu,
        kernel="k",
        problems=(),
        base=None,
        head=None,
        default=None,
        bound=None,
        ceiling=None,
        verdict=verdict,
        change=change,
        compared_with="base",
        reason=reason,
        changed=True,
    )


def said(*subjects: Subject) -> str:
    return headline(subjects, *counts(subjects))


def a_table(*rows: StaticRow, title: str = "t.json", **more) -> Subject:
    return Subject(kind="table", title=title, path=title, change="modified", static=rows, **more)


ONLY = "predictions only, nothing was measured"


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        ([row("M=1", "predicted-unchanged")], f"1 predicted unchanged: {ONLY}"),
        (
            [row("M=1", "failed", reason="not valid JSON"), row("M=2", "failed", reason="not valid JSON")],
            f"2 failed: {ONLY}. Failed: M=1, M=2 (not valid JSON)",
        ),
        (
            [row("M=1", "cannot-launch", reason="num_warps 3"), row("M=2", "predicted-regressed", change=0.2)],
            f"1 predicted slower, 1 cannot launch: {ONLY}. Cannot launch: M=1 (num_warps 3)",
        ),
        (
            [row(f"M={n}", "predicted-regressed", change=n / 100) for n in (10, 30, 20, 11)],
            f"4 predicted slower: {ONLY}. Predicted slower: M=30 (+30.0 %), M=20 (+20.0 %), and 2 more",
        ),
        (
            [row("M=1", "predicted-regressed", "A100", 0.1), row("M=1", "predicted-unchanged")],
            f"1 predicted slower, 1 predicted unchanged: {ONLY}. Predicted slower: M=1 on A100 (+10.0 %)",
        ),
    ],
)
def test_what_is_worst_is_named(rows, told):
    parts = sorted(told.partition(":")[0].split(", "))
    assert sorted(said(a_table(*rows)).partition(":")[0].split(", ")) == parts
    assert said(a_table(*rows)).partition(":")[2] == told.partition(":")[2]


def test_of_several_subjects_the_name_is_said():
    text = said(a_table(row("M=1", "failed", reason="broken")), a_table(row("M=1", "predicted-unchanged"), title="other.json"))
    assert text.endswith("Failed: t.json M=1 (broken)")


def test_what_is_certain_to_fail_comes_first():
    lost = Subject(
        kind="kernel",
        title="k.py::k",
        path="k.py",
        change="modified",
        failures=(Failure(condition="failed", what="", reason="NameError: " + "very " * 40 + "long"),),
    )
    text = said(lost, a_table(row("M=1", "predicted-unchanged")))
    assert text.startswith("Certain to fail: k.py::k (NameError: very") and text.endswith(f"…); 1 predicted unchanged: {ONLY}")
    unknown = replace(lost, title="k.py::other", failures=(Failure(condition="failed", what="", reason=f"{UNKNOWN}tl is bound again"),))
    assert said(unknown).startswith("What runs is unclear: k.py::other (tl is bound again)") and "Certain" not in said(unknown)
    assert "long…); What runs is unclear: k.py::other (" in said(lost, unknown).replace("very…", "long…")


def test_a_launch_that_changed_is_no_kernel_that_did():
    launched = Subject(
        kind="kernel",
        title="k.py::k",
        path="k.py",
        change="modified",
        notes=(f"{SAME} in ops.py changed: num_warps=4 → num_warps=8.",),
    )
    changed = Subject(kind="kernel", title="k.py::other", path="k.py", change="modified")
    assert said(launched, launched, changed) == f"2 unchanged kernels launched otherwise, 1 changed kernel: {NOTHING}"
    moved = replace(launched, notes=(f"{SAME} in its file changed: the code of run, on which the grid depends.",))
    assert said(moved, launched).startswith("1 unchanged kernel whose launch other code works out, 1 unchanged kernel launched otherwise: ")


def test_kernels_whose_time_hangs_on_the_same_are_named_together():
    names = [("a", "without n"), ("b", "without n"), ("c", "without m"), ("d", "without k"), ("e", "without k")]
    subjects = [
        Subject(kind="kernel", title=name, path="k.py", change="modified", static=(row("grid 1", "cannot-tell", reason=why),))
        for name, why in names
    ]
    assert said(*subjects).endswith("no time can be predicted for a, b without n, c without m, and 2 more")
