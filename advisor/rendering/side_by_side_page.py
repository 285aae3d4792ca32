"""The results of several GPUs as one HTML page that leads to theirs: opens offline, asks the network for nothing, needs no JavaScript."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from advisor.rendering import side_by_side
from advisor.rendering.page import _environment
from advisor.result.schema import Result
from advisor.system.resources import folder

MOST_BESIDE = 2
"""GPUs whose columns stand beside each other; of more the last would lie out of sight, and each has a line of its own."""


def to_page(results: Sequence[Result], pages: Sequence[str]) -> str:
    """The page for these results of one target.

    Args:
        results: One of each GPU; at least one.
        pages: Where the page of each is, seen from this one: `h200/report.html`.
    """
    templates = folder("reports")
    rows, notes = side_by_side.rows_of(results)
    context: dict[str, Any] = {
        "first": results[0],
        "sides": list(zip(results, pages, strict=True)),
        "shared": side_by_side.shared_unknowns(results),
        "most_beside": MOST_BESIDE,
        "columns": side_by_side.COLUMNS,
        "rows": rows,
        "notes": notes,
        "css": Markup((templates / "page.css").read_text(encoding="utf-8") + (templates / "comparison.css").read_text(encoding="utf-8")),
        "script": Markup((templates / "page.js").read_text(encoding="utf-8")),
    }
    return _environment(str(templates)).get_template("side_by_side.html.jinja").render(context)
