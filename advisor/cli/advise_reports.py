"""One target of `advisor advise` that is no code: its request, advice and export; writing and printing reports, of one and of several."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from advisor import __version__
from advisor.cli import options
from advisor.system.errors import UsageError

if TYPE_CHECKING:
    from advisor.advising.targets import Request, Target
    from advisor.learned.base import Predictor
    from advisor.rendering.overview import Row
    from advisor.result.schema import Result

OVERVIEW = "overview.html"


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
    """The JSON document, if that is asked for; else nothing, and the result is printed: its first screen, or all of it where
    `verbose`."""
    from advisor.result.result_json import to_json

    if style == "json":
        return to_json(result)
    if style == "md":
        from advisor.rendering.markdown import to_markdown

        print(to_markdown(result))
    else:
        from advisor.rendering import terminal

        terminal.show(result, report=page, details=verbose)
    return ""


def show_commands(result: Result, indent: str) -> None:
    """Print the command for each kernel of a file that lacks something."""
    for action in result.actions:
        if action.rule is None and action.snippet:
            print("\n" + "\n".join(indent + line for line in action.snippet.splitlines()))


def show_gpus(found: Sequence[tuple[Result, Path]], arguments: argparse.Namespace) -> None:
    """Write the page of several GPUs, given with the folders of their reports, and print its table; in JSON they stand in one list.

    Nothing where there is one GPU, or no launch.
    """
    from advisor.rendering.overview import row_of

    if len(found) > 1 and any(result.launches for result, _ in found):
        rows = [row_of(result, result.target, f"{folder.name}/report.html") for result, folder in found]
        show_overview(rows, arguments, title=arguments.target)


def show_overview(rows: Sequence[Row], arguments: argparse.Namespace, *, title: str) -> None:
    """Write the page of many results, and print it."""
    from advisor.rendering import overview, terminal
    from advisor.rendering.overview import to_page

    page = Path(arguments.output) / OVERVIEW
    command = shlex.join(["advisor", *sys.argv[1:]])
    options.write_text(page, to_page(rows, title=title, command=command, version=__version__))
    if arguments.format == "md":
        print(overview.to_markdown(rows))
    elif arguments.format == "text":
        terminal.show_overview(rows, report=str(page))


def tell_of_others(output: Path, *names: str) -> None:
    """Say which files of those names, that this run does not write, lie beside what it wrote: they stay, as someone may want them."""
    if there := [name for name in names if os.path.exists(output / name)]:  # noqa: PTH110 - pathlib raises where it may not look
        options.note(f"{' and '.join(there)} in {output} {'is' if len(there) == 1 else 'are'} of another run, and not of this one")


def warn_of_target(target: Target) -> None:
    """Warn of what a target lacks."""
    for warning in target.warnings:
        options.warn(warning)


def exported(
    target: Target, request: Request, predictor: Predictor, arguments: argparse.Namespace, command: str
) -> tuple[Result, list[Path]]:
    """Advise on a target, on the table that lies under its name in the folder to export to if there is one, and write the predicted table.

    Raises:
        UsageError: No stack asks for a table of the target.
    """
    from advisor.advising.exports import layer_table_name, predicted_tables
    from advisor.advising.public import report_on_launches
    from advisor.advising.targets.table_targets import table_target
    from advisor.tables.tuned_table import STANDARD_TOKENS
    from advisor.tuning.export import table_path, write_predicted
    from advisor.tuning.order import check_exported

    folder = Path(arguments.export)
    check_exported(target)
    name = layer_table_name(target) if target.table is None else None
    if name is not None and (path := table_path(folder, name)).exists():
        sizes, tokens = target.launches[0].problem.sizes, request.tokens or STANDARD_TOKENS
        target = table_target(path, replace(request, sizes=None, tokens=tokens, hidden_size=sizes["H"], top_k=sizes["topk"], model=None))
    result = report_on_launches(target, predictor, arguments.measured, command=command, resolved=warn_of_target)
    tables = predicted_tables(target, result.launches)
    if not tables:
        raise UsageError(
            f"{target.title}: no serving stack looks for a table of this", None, "a tuned table, or fused_moe", "leave out --export"
        )
    rest = tuple(each for each in result.exports if each.kind != "table")
    return replace(result, exports=(*(each.export for each in tables), *rest)), write_predicted(folder, tables, result)
