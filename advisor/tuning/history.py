"""What ran before the first run of a study: a later run finds the table that the first one wrote."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from advisor.schema import Configuration
from advisor.tuning.export import Row

if TYPE_CHECKING:
    from optuna.study import Study

CHANGED = "advisor:changed"  # study attribute: the row of the last run that changed something


def since_the_first_run(study: Study, row: Row) -> Row:
    """The row with what ran before this study changed anything, where what runs today is what the study chose earlier."""
    earlier = study.user_attrs.get(CHANGED)
    if earlier is not None and row.before is not None and row.before == _configuration(earlier["after"]):
        note = row.note if row.changed else f"{earlier['note']} (an earlier run)"
        row = replace(row, before=_configuration(earlier["before"]), before_us=earlier["before_us"], verdict=earlier["verdict"], note=note)
    if row.changed and row.after is not None and row.verdict in ("improved", "new"):
        study.set_user_attr(CHANGED, {
            "before": None if row.before is None else asdict(row.before), "before_us": row.before_us, "after": asdict(row.after),
            "verdict": row.verdict, "note": row.note.removesuffix(" (an earlier run)"),
        })  # fmt: skip
    return row


def _configuration(stored: dict[str, Any] | None) -> Configuration | None:
    return None if stored is None else Configuration(**stored)
