"""The configurations that ran before the first run of a study: a later run finds the table that the first one wrote."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor.result.schema import Configuration
from advisor.tuning.export import Row

if TYPE_CHECKING:
    from optuna.study import Study

CHANGED = "advisor:changed"  # study attribute: the row of the runs that changed what the export folder holds


def since_the_first_run(study: Study, row: Row, export: str | None) -> Row:
    """The row with what ran before this study first changed the table in `export`, where what runs today is what it wrote there."""
    if export is None:
        return row
    folder: str = str(Path(export).resolve())
    earlier: dict[str, Any] = study.user_attrs.get(CHANGED, {})
    if earlier.get("folder") == folder and row.before == _configuration(earlier["after"]):
        if not row.changed:
            return _repeated(earlier, row)
        row = _both(earlier, row)
    if row.changed and row.after is not None:
        study.set_user_attr(
            CHANGED,
            {
                "folder": folder,
                "before": None if row.before is None else asdict(row.before),
                "before_us": row.before_us,
                "after": asdict(row.after),
                "after_us": row.after_us,
                "verdict": row.verdict,
                "note": row.note,
                "beside": row.beside,
            },
        )
    return row


def _repeated(earlier: dict[str, Any], row: Row) -> Row:
    """The earlier row, and what this run says besides."""
    since = "an earlier run" if row.verdict == "unchanged" else f"an earlier run; since then {row.verdict}: {row.note}"
    return replace(
        row,
        before=_configuration(earlier["before"]),
        before_us=earlier["before_us"],
        after_us=earlier["after_us"],
        verdict=earlier["verdict"],
        note=f"{earlier['note']} ({since})",
        beside=_beside(earlier),
    )


def _both(earlier: dict[str, Any], row: Row) -> Row:
    """Both changes as one. Latencies of one run are comparable, those of two are not: speedups multiply."""
    known = earlier["before_us"] and earlier["after_us"] and row.before_us
    before_us = earlier["before_us"] / earlier["after_us"] * row.before_us if known else None
    both = replace(
        row,
        before=_configuration(earlier["before"]),
        before_us=before_us,
        verdict=earlier["verdict"],
        beside=(*_beside(earlier), *row.beside),
    )
    return both if both.changed else replace(both, verdict="unchanged", note=f"back to what ran at first: {row.note}")


def _beside(earlier: dict[str, Any]) -> tuple[str, ...]:
    return tuple(earlier.get("beside", ()))  # studies of earlier versions have none


def _configuration(stored: dict[str, Any] | None) -> Configuration | None:
    return None if stored is None else Configuration(**stored)
