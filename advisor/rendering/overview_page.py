"""The results of many tables as one HTML page that leads to theirs: opens offline, asks the network for nothing, needs no JavaScript."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from advisor.rendering import overview
from advisor.rendering.page import _environment
from advisor.system.resources import folder


def to_page(rows: Sequence[overview.Row], *, title: str, command: str, version: str) -> str:
    """The page.

    Args:
        rows: One of each table and GPU.
        title: What the tables are, as a heading.
        command: The command line that repeats this.
        version: Of the advisor.
    """
    templates = folder("reports")
    css = (templates / "page.css").read_text(encoding="utf-8") + (templates / "comparison.css").read_text(encoding="utf-8")
    return (
        _environment(str(templates))
        .get_template("overview.html.jinja")
        .render(
            title=title,
            command=command,
            version=version,
            about=overview.ABOUT,
            columns=overview.COLUMNS,
            rows=[(row.page, overview.cells(row)) for row in overview.ordered(rows)],
            gpu_columns=overview.GPU_COLUMNS,
            gpus=overview.gpu_cells(rows),
            right=overview.RIGHT,
            css=Markup(css),
            script=Markup((templates / "page.js").read_text(encoding="utf-8")),
        )
    )
