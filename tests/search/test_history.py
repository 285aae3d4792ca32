"""What a before/after table says after several runs of one study."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from advisor.result.schema import Configuration
from advisor.tuning.export import Row
from advisor.tuning.history import since_the_first_run

C0, C1, C2 = (Configuration(parameters={"BLOCK_SIZE_M": size, "EVEN": True}, num_warps=4, maxnreg=168) for size in (16, 32, 64))


class Study:
    """Attributes as a storage keeps them: JSON."""

    def __init__(self) -> None:
        self.user_attrs: dict[str, Any] = {}

    def set_user_attr(self, name: str, value: Any) -> None:
        self.user_attrs[name] = json.loads(json.dumps(value))


def row(before: Configuration | None, before_us: float | None, after: Configuration, after_us: float, verdict: str = "improved") -> Row:
    return Row(
        task="M64",
        tokens=64,
        before=before,
        before_us=before_us,
        after=after,
        after_us=after_us,
        tried=5,
        verdict=verdict,
        note=f"{verdict} today",
    )


def run(study: Study, one: Row, folder: str | None = "tables") -> Row:
    return since_the_first_run(study, one, folder)  # type: ignore[arg-type]


def test_a_run_that_changes_nothing_repeats_what_the_first_measured():
    study = Study()
    first = run(study, row(C0, 200.0, C1, 180.0))
    again = run(study, row(C1, 230.0, C1, 230.0, "unchanged"))
    assert again.note == "improved today (an earlier run)" and again.speedup == first.speedup
    assert (again.before, again.before_us, again.after, again.after_us, again.verdict) == (C0, 200.0, C1, 180.0, "improved")
    assert run(study, row(C1, 230.0, C1, 230.0, "unchanged")) == again


def test_a_later_loss_is_said():
    study = Study()
    run(study, row(C0, 200.0, C1, 180.0))
    lost = run(study, row(C1, 181.0, C1, 181.0, "regressed"))
    assert lost.verdict == "improved" and lost.note == "improved today (an earlier run; since then regressed: regressed today)"


def test_speedups_of_two_runs_multiply():
    """Clocks differ between runs: only what was measured in the same rounds is compared."""
    study = Study()
    run(study, row(C0, 200.0, C1, 180.0))
    second = run(study, row(C1, 230.0, C2, 210.0))
    assert second.before == C0 and second.after == C2 and second.speedup == pytest.approx(200 / 180 * 230 / 210)
    third = run(study, row(C2, 205.0, C2, 205.0, "unchanged"))
    assert third.before == C0 and third.after == C2 and third.speedup == pytest.approx(second.speedup)


def test_what_the_table_got_beside_what_won_is_said_of_every_run_that_gave_it_something():
    study = Study()
    run(study, replace(row(C0, 200.0, C1, 180.0), beside=("new",)))
    assert run(study, row(C1, 181.0, C1, 181.0, "unchanged")).beside == ("new",)
    assert run(study, replace(row(C1, 181.0, C2, 170.0), beside=("more",))).beside == ("new", "more")
    assert run(study, row(C2, 170.0, C2, 170.0, "unchanged")).beside == ("new", "more")
    assert run(study, row(C0, 170.0, C0, 170.0, "unchanged")).beside == ()  # somebody else's table


def test_back_to_what_ran_at_first_changes_nothing():
    study = Study()
    run(study, row(C0, 200.0, C1, 180.0))
    back = run(study, row(C1, 190.0, C0, 170.0))
    assert not back.changed and back.verdict == "unchanged" and back.note.startswith("back to what ran at first")


def test_new_stays_new():
    study = Study()
    run(study, row(None, None, C1, 180.0, "new"))
    again = run(study, row(C1, 181.0, C1, 181.0, "unchanged"))
    assert again.before is None and again.verdict == "new" and again.speedup is None
    better = run(study, row(C1, 181.0, C2, 170.0))
    assert better.before is None and better.verdict == "new" and better.after_us == 170.0


@pytest.mark.parametrize("folder", ["elsewhere", None])
def test_only_the_folder_that_the_study_changed(folder):
    study = Study()
    run(study, row(C0, 200.0, C1, 180.0))
    plain = row(C1, 181.0, C1, 181.0, "unchanged")
    assert run(study, plain, folder) == plain
    other = row(C2, 190.0, C2, 190.0, "unchanged")
    assert run(study, other) == other  # somebody else changed the table
