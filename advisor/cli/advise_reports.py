"""Writing and printing the results of `advisor advise`: a report each, and the pages and tables of several."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli import options

if TYPE_CHECKING:
    from advisor.rendering.overview import Row
    from advisor.result.schema import Result

SIDE_BY_SIDE, OVERVIEW = "side-by-side.html", "overview.html"


def report_folders(output: Path, gpus: Sequence[str]) -> list[Path]:
    """A folder for the report of each GPU: `output` for one, below it for several, numbered where their names read alike."""
    if len(gpus) == 1:
        return [output]
    names: dict[str, None] = {}
    for gpu in gpus:
        stem = "".join(c if c.isalnum() else "-" for c in gpu.lower()) or "gpu"
        names[next(name for n in count(1) if (name := stem if n == 1 else f"{stem}-{n}") not in names)] = None
    return [output / name for name in names]


def write(result: Result, folder: Path) -> Path:
    """Write report.html and result.json; the path of the page."""
    from advisor.rendering.page import to_html
    from advisor.result.result_json import to_json

    document = to_json(result)
    options.write_text(folder / "result.json", document)
    options.write_text(folder / "report.html", to_html(result, document))
    return folder / "report.html"


def shown(result: Result, style: str, page: str, *, verbose: bool = False) -> str:
    """The JSON document, if that is asked for; else nothing, and the result is printed: all of it, but on a terminal only what fits a
    screen unless `verbose`."""
    if style == "json":
        from advisor.result.result_json import to_json

        return to_json(result)
    if style == "md":
        from advisor.rendering.markdown import to_markdown

        print(to_markdown(result))
    else:
        from advisor.rendering import terminal

        terminal.show(result, report=page, details=verbose or not sys.stdout.isatty())
    return ""


def show_commands(result: Result, indent: str) -> None:
    """Print the command for each kernel of a file that lacks something."""
    for action in result.actions:
        if action.rule is None and action.snippet:
            print("\n" + "\n".join(indent + line for line in action.snippet.splitlines()))


def show_side_by_side(found: Sequence[tuple[Result, Path]], arguments: argparse.Namespace) -> None:
    """Write the page of several GPUs, given with the folders of their reports, and print its table; in JSON they stand in one list.

    Nothing where there is one GPU, or no launch.
    """
    from advisor.rendering.side_by_side import to_page

    results, page, style = [result for result, _ in found], Path(arguments.output) / SIDE_BY_SIDE, arguments.format
    if len(results) < 2 or not any(result.launches for result in results):
        return
    options.write_text(page, to_page(results, [f"{folder.name}/report.html" for _, folder in found]))
    if style == "md":
        from advisor.rendering.side_by_side import to_markdown

        print(to_markdown(results))
    elif style == "text":
        from advisor.rendering import terminal

        terminal.show_side_by_side(results, report=str(page))


def show_overview(rows: Sequence[Row], arguments: argparse.Namespace) -> None:
    """Write the page of all tables, and print it."""
    from advisor import __version__
    from advisor.rendering import overview, terminal
    from advisor.rendering.overview import to_page

    page = Path(arguments.output) / OVERVIEW
    command = shlex.join(["advisor", *sys.argv[1:]])
    options.write_text(page, to_page(rows, title=f"Tables of {arguments.target}", command=command, version=__version__))
    if arguments.format == "md":
        print(overview.to_markdown(rows))
    elif arguments.format == "text":
        terminal.show_overview(rows, report=str(page))


def tell_of_others(output: Path, *names: str) -> None:
    """Say which files of those names, that this run does not write, lie beside what it wrote: they stay, as someone may want them."""
    if there := [name for name in names if os.path.exists(output / name)]:  # noqa: PTH110 - pathlib raises where it may not look
        options.note(f"{' and '.join(there)} in {output} {'is' if len(there) == 1 else 'are'} of another run, and not of this one")
