"""What ran before the first run of a study: a later run finds the table that the first one wrote."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.schema import Configuration
from advisor.tuning.export import Row

if TYPE_CHECKING:
    from optuna.study import Study

CHANGED = "advisor:changed"  # study attribute: the row of the runs that changed what the export folder holds


def since_the_first_run(study: Study, row: Row, export: str | None) -> Row:
    """The row with what ran before this study first changed the table in `export`, where what runs today is what it wrote there."""
    if export is None:
        return row
    folder, earlier = str(Path(export).resolve()), study.user_attrs.get(CHANGED)
    if earlier is not None and earlier["folder"] == folder and row.before is not None and row.before == _configuration(earlier["after"]):
        row = _after(earlier, row)
    if row.changed and row.after is not None and row.verdict in ("improved", "new"):
        study.set_user_attr(CHANGED, {
            "folder": folder, "before": None if row.before is None else asdict(row.before), "before_us": row.before_us,
            "after": asdict(row.after), "after_us": row.after_us, "verdict": row.verdict, "note": row.note,
        })  # fmt: skip
    return row


def _after(earlier: dict[str, Any], row: Row) -> Row:
    """Both as one. Latencies of one run are comparable, those of two are not: speedups multiply."""
    before, before_us, after_us = _configuration(earlier["before"]), earlier["before_us"], earlier["after_us"]
    if not row.changed:
        note = str(earlier["note"])
        note += "" if note.endswith(AGAIN) else AGAIN
        if row.verdict != "unchanged":
            note = f"{note.removesuffix(AGAIN)}; since then {row.verdict}: {row.note}"
        return replace(row, before=before, before_us=before_us, after_us=after_us, verdict=earlier["verdict"], note=note)
    known = before_us and after_us and row.before_us
    merged = replace(row, before=before, before_us=before_us / after_us * row.before_us if known else None, verdict=earlier["verdict"])
    return merged if merged.changed else replace(merged, verdict="unchanged", note=f"back to what ran at first: {row.note}")


AGAIN = " (an earlier run)"


def _configuration(stored: dict[str, Any] | None) -> Configuration | None:
    return None if stored is None else Configuration(**stored)
