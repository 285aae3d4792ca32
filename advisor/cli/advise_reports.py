"""One target of `advisor advise` that is no code: its request, advice and export; writing and printing reports, of one and of several."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from advisor import __version__
from advisor.cli import options
from advisor.system.errors import AdvisorError, NothingMatchedError, UsageError, printable
from advisor.system.resources import phrase
from advisor.system.writing import progress_bar

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


def write(result: Result, output: Path) -> Path:
    """Write report.html and result.json, or the page that `output` names with its JSON; the path of the page."""
    from advisor.rendering.page import to_html
    from advisor.result.result_json import to_json

    document, (page, path) = to_json(result), options.page_and_document(output, "report.html", "result.json")
    options.write_text(path, document)
    options.write_text(page, to_html(result, document))
    return page


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


def show_commands(result: Result) -> None:
    """Print the command for each kernel of a file that lacks something, as code in Markdown."""
    for action in result.actions:
        if action.rule is None and action.snippet:
            print("\n" + "\n".join(f"    {line}" for line in action.snippet.splitlines()))


def show_gpus(reports: Sequence[tuple[Result, Path]], arguments: argparse.Namespace) -> None:
    """Write the page of several GPUs, given with the folders of their reports, and print its table; in JSON they stand in one list.

    Nothing where there is one GPU, or no launch.
    """
    from advisor.rendering.overview import row_of

    if len(reports) > 1 and any(result.launches for result, _ in reports):
        rows = [row_of(result, result.target, f"{folder.name}/report.html") for result, folder in reports]
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
    for tokens, tuned in {table.tuned.untried: table.tuned for table in reversed(tables) if table.tuned.untried}.items():  # each once
        options.warn(phrase("export.untried", table=tuned.before.name.file_name(), tokens=", ".join(map(str, tokens))))
    rest = tuple(export for export in result.exports if export.kind != "table")
    return replace(result, exports=(*(table.export for table in tables), *rest)), write_predicted(folder, tables, result)


def folder_of_tables(arguments: argparse.Namespace) -> list[str]:
    """Advise on every table below a folder, for every GPU asked for, and show them together; the JSON document of each GPU."""
    from advisor.advising.options import refuse_unfit, request_from
    from advisor.gpus.hardware import load_gpu
    from advisor.learned import load_predictor

    refuse_unfit("table", arguments.target, options.values_of(arguments), flags=True)
    predictor = load_predictor(Path(arguments.weights) if arguments.weights else None)
    output = Path(arguments.output)
    # A misspelt GPU is told before the first report is written.
    folders = report_folders(output, [load_gpu(name).name for name in arguments.gpu]) if arguments.gpu else [output]
    documents: list[str] = []
    rows: list[Row] = []
    try:
        for gpu, folder in zip(arguments.gpu or [None], folders, strict=True):
            request = request_from(options.values_of(arguments, gpu=gpu, routing=arguments.routing or "random"))
            documents.append(_tables(arguments, request, predictor, folder, rows))
    finally:  # what was found until Ctrl-C too
        if rows:
            show_overview(rows, arguments, title=f"Tables of {arguments.target}")
    return documents


def _of_folder(table: Path, *, arguments: argparse.Namespace, request: Request, output: Path) -> tuple[Row | None, Any]:
    """Advise on one table of a folder and write its report: what the overview and the JSON document show of it; or why not."""
    from advisor.advising.public import report_on_launches
    from advisor.advising.table_workers import predictor_of_worker
    from advisor.advising.targets.table_targets import table_target
    from advisor.rendering.overview import row_of

    predictor = predictor_of_worker()
    relative = table.relative_to(arguments.target)
    command = shlex.join(["advisor", "advise", str(table)])
    try:
        target = table_target(table, replace(request, assume=True))
        if arguments.export:
            result, _ = exported(target, request, predictor, arguments, command)
        else:
            result = report_on_launches(target, predictor, arguments.measured, command=command, resolved=warn_of_target)
        page = write(result, output / relative.with_suffix(""))
    except AdvisorError as error:
        return None, str(error).removeprefix(f"{printable(table.name)}: ")  # which the path says already
    return row_of(result, str(relative), page.relative_to(arguments.output).as_posix()), {
        "table": str(relative),
        "gpu": result.gpu,
        "verdict": result.verdict.sentence,
        "current_us": result.verdict.current_us,
        "ceiling_us": result.verdict.ceiling_us,
        "bound_us": result.verdict.bound_us,
    }


def _tables(arguments: argparse.Namespace, request: Request, predictor: Predictor, output: Path, rows: list[Row]) -> str:
    """Advise on every table below the folder for one GPU, or its own: the report of each under `output`, what the overview shows of it
    added to `rows`, and the JSON document."""
    from advisor.advising.table_workers import table_workers
    from advisor.advising.targets.resolve import tables_in

    path = Path(arguments.target)
    tables = tables_in(path)
    if not tables:
        raise NothingMatchedError(
            f"{path}: no tables in this folder", None, "files named E=…,N=….json or N=…,K=….json", "name a folder that has some"
        )
    one = partial(_of_folder, arguments=arguments, request=request, output=output)
    done = 0
    lines: list[object] = []
    with progress_bar("advising on tables") as advance, table_workers(len(tables), arguments.weights, predictor) as each_of:
        for number, (table, (row, line)) in enumerate(zip(tables, each_of(one, tables), strict=True), start=1):
            advance(number, len(tables))
            if row is None:
                print(f"advisor: skipped {printable(str(table.relative_to(path)))}: {line}", file=sys.stderr)
                continue
            done += 1
            rows.append(row)
            lines.append(line)
    print(f"advisor: {done} of {len(tables)} tables advised on; reports in {output}", file=sys.stderr)
    if not done:
        raise NothingMatchedError(f"{path}: none of {len(tables)} files could be advised on", None, None, "see the lines above")
    return json.dumps(lines, indent=2, ensure_ascii=False) + "\n"


TO_MEASURE = 6
"""Token counts that the command to measure names: two of decoding, then those at which two models disagree, then where most may be won."""


def note_of_unsure(result: Result, arguments: argparse.Namespace) -> None:
    """Say on stderr how to measure the entries of a fused-MoE table that may win and of which no other is known to be better, and those at
    which the models of layers and of launches disagree."""
    from advisor.advising.verdict import DECODE
    from advisor.rendering import figures
    from advisor.tables.models import find_model, fused_experts

    launches = result.launches
    open_ones = [
        (int(launch.problem.sizes["M"]), 1 - launch.ceiling.us / launch.predicted.us)
        for launch in launches
        if launch.kept and launch.predicted and launch.ceiling and "M" in launch.problem.sizes
    ]
    apart = {tokens: share for tokens, (share, _) in figures.layers_apart(result.layers, launches).items()}
    if not (open_ones or apart) or launches[0].problem.family != "fused_moe":
        return
    most = sorted({tokens for tokens, _ in open_ones}, key=lambda count: -sum(share for tokens, share in open_ones if tokens == count))
    decode = [count for count in most if count <= DECODE][: TO_MEASURE // 3]  # what a server does most, whatever its share
    doubtful = sorted(apart, key=lambda count: -apart[count])
    tokens = sorted(list(dict.fromkeys([*decode, *doubtful, *most]))[:TO_MEASURE])
    table = launches[0].problem.dtype if arguments.target == "fused_moe" else None  # a table says its own
    sizes = launches[0].problem.sizes  # a tuner is not told the stack, nor what it adds to a model's experts
    fused = (
        table
        and arguments.model
        and fused_experts(arguments.model, (arguments.stack or "").partition(":")[0], arguments.expert_parallel or 1)
    )
    given = {
        "--model": arguments.model,
        "--hidden-size": arguments.hidden_size,
        "--top-k": arguments.top_k,
        "--sizes": f"E={sizes['E']},topk={sizes['topk']}" if fused and sizes["topk"] > find_model(arguments.model).top_k else None,
        "--tensor-parallel": arguments.tensor_parallel,
        "--expert-parallel": arguments.expert_parallel,
        "--dtype": table,
        "--routing": launches[0].problem.distribution,
        "--tokens": ",".join(map(str, tokens)),
        "--export": "tuned",
    }
    words = [word for option, value in given.items() if value not in (None, 1) for word in (option, str(value))]
    command = shlex.join(["advisor", "tune", arguments.target, "--gpu", result.gpu, *words])
    key = "measure_rest" if any(launch.recommendation for launch in launches) else "measure"
    options.note(phrase(f"export.{key}", gpu=result.gpu, command=command))
