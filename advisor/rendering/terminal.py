"""The result on a terminal, or down a pipe: rows in stable columns, never cut, and broken between words on a narrow terminal only."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from advisor.rendering import figures, overview, views
from advisor.rendering.screen import ACTIONS, LINES, finding_line, group_head, head_lines, launch_lines, ordered_findings, rows, screen
from advisor.rendering.views import Group, group
from advisor.result.schema import LaunchReport, Result
from advisor.system.resources import phrase

MOST_TUNED = 20
TIMINGS_OF_ONE_PROBLEM = 12
_NUMBER = 8  # characters of the widest latency, "1,234,567" excepted
_GAINS = 96  # column of what a finding saves and what a recommendation takes; a longer text pushes it out
_ASCII = str.maketrans({"µ": "u", "±": "+-", "–": "-", "—": "-", "−": "-", "→": "->", "·": "-", "×": "x", "≥": ">=", "≤": "<=", "…": "..."})


class _Console(Console):
    """A console that leaves a closed pipe to the caller; Rich's own would end the process with exit code 1."""

    def on_broken_pipe(self) -> None:
        """Called by Rich while it handles the BrokenPipeError."""
        raise


def show(result: Result, *, report: str | None = None, file: TextIO | None = None, details: bool = True) -> None:
    """Print the result.

    Args:
        result: What to show.
        report: Path of the HTML page, named in the last line where there is one.
        file: Where to print; standard output where None. Colours only on a terminal, and not under NO_COLOR.
        details: Whether everything is shown; without, the first screen.
    """
    console, width = _console(file)
    _print(lines(result, report=report, details=details, width=width), console, width)


def show_overview(rows: Sequence[overview.Row], *, report: str) -> None:
    """Print one table of many results, and the path `report` of its HTML page."""
    _print([*overview.lines(rows), Text(f"  report: {figures.clean(report)}")], *_console(None))


def _console(file: TextIO | None) -> tuple[_Console, int | None]:
    """Where to print, and how many columns it has; None: it is no terminal."""
    console = _Console(file=file, highlight=False, markup=False, emoji=False)
    return console, console.width if (file or sys.stdout).isatty() else None


def _print(text: Sequence[Text], console: Console, width: int | None) -> None:
    """A line wider than the terminal goes on below its own text; one to paste is left to the terminal, which copies it as one."""
    for line in (_encodable(line, console.encoding) for line in text):
        indent = len(line.plain) - len(line.plain.lstrip()) + 2
        parts = [line] if width is None or line.no_wrap or line.cell_len <= width else line.wrap(console, max(width - indent, 20))
        for number, part in enumerate(parts):
            part.pad_left(indent if number else 0)
            part.rstrip()
            console.print(part, soft_wrap=True)


def lines(result: Result, *, report: str | None = None, details: bool = True, width: int | None = None) -> list[Text]:
    """Every line, styled: with `details` the verdict, what to do and all launches; else the first screen, of a terminal of `width`."""
    groups = group(result.launches)
    if not details and groups and not result.tuned:
        return screen(result, groups, report=report, width=width)
    unknowns = [Text(f"  ? {figures.clean(unknown)}", style="dim") for unknown in result.verdict.unknowns]
    head = [*head_lines(result), *unknowns, Text("")] if groups or result.tuned else []
    body = _details(result, groups)
    if not details and len(head) + len(body) > LINES:
        room = max(0, LINES - len(head) - 2)
        body = [*body[:room], Text(f"  {phrase('screen.more_lines', count=len(body) - room)}", style="dim")]
    end = [] if report is None else [Text(f"  report: {figures.clean(report)}")]
    return [*head, *body, *end]


def _details(result: Result, groups: list[Group]) -> list[Text]:
    out: list[Text] = []
    by_id, most = rows(result, groups) if groups else {}, ACTIONS if len(result.launches) == 1 else 1
    for part in groups:
        out.append(group_head(part, result))
        for launch in part.launches:
            out += [*launch_lines(launch, result, by_id[launch.id], most), *_advice_lines(launch)]
        out.append(Text(""))
    out += _layer_lines(result)
    out += [line for view in views.tuned_views(result.tuned)[:MOST_TUNED] for line in _tuned_lines(view)]
    if len(result.tuned) > MOST_TUNED:
        out.append(Text(f"  {len(result.tuned) - MOST_TUNED} more tuned problems, in the report"))
    if not groups and not result.tuned:
        out.append(Text(f"{figures.subject(result)}: no launches", style="bold"))
    return out + [finding_line(item, 2, item.scope) for item in ordered_findings(result.table_findings)]


def _layer_lines(result: Result) -> list[Text]:
    """The layers, whole, with what is recommended for their products."""
    if not result.layers:
        return []
    first = result.layers[0]
    head = Text("layer" if first.routing else "linear", style="bold")
    what = f"{first.routing} routing" if first.routing else "with the quantisation of its activations"
    head.append(f"  as {figures.clean(first.stack)} launches it, {what}", style="not bold")
    out, width = [head], max(len(str(layer.tokens)) for layer in result.layers)
    apart = figures.alone_texts(result)
    for layer in result.layers:
        line = Text(f"  M {layer.tokens:<{width}}  ")
        line.append(f"{layer.now.origin:<9} {_us(layer.now.us)} {figures.interval(layer.now)} ".ljust(32), style="bold")
        line.append(f"ceiling {_us(layer.ceiling.us)}   bound {_us(layer.bound.us)}   ")
        if layer.recommended is not None:
            line.append(f"-> {_us(layer.recommended.us)} with the recommended ({figures.saved(layer)})   ", style="green")
        line.append(apart.get(layer.tokens, ""), style="yellow")
        out.append(line)
        if layer.library is not None:
            reached = f"{figures.clean(layer.library.source)} {_us(layer.library.us)} {figures.interval(layer.library)}".rstrip()
            out.append(Text(f"  {' ' * (width + 4)}{reached} ({layer.library.origin})"))
    return [*out, Text("")]


def _tuned_lines(view: views.ProblemView) -> list[Text]:
    """A tuned problem: what runs, the next best, and what was left out."""
    head = Text(f"tuned {view.title}", style="bold")
    head.append(f"   {view.problem.decided}; {view.counts}; {view.accuracy}", style="not bold")
    out = [head]
    for row in view.rows[:TIMINGS_OF_ONE_PROBLEM]:
        line = Text(f"  {'*' if row.chosen else ' '} ")
        line.append(row.label, style="green" if row.chosen else "")
        line.pad_right(max(0, _GAINS - len(line)))
        predicted = f"   predicted {row.predicted:>{_NUMBER}} µs" if row.predicted != "-" else ""
        outcome = f"   {view.problem.origin} {row.us:>{_NUMBER}} µs {row.slower:>7}" if row.us != "-" else f"   {row.state}"
        line.append(outcome + predicted + (f"   ({row.reason})" if row.reason else ""))
        out.append(line)
    rest = len(view.rows) + view.more - TIMINGS_OF_ONE_PROBLEM
    if rest > 0:
        out.append(Text(f"    {rest} more, in the report"))
    if view.problem.note:
        out.append(Text(f"  ? {figures.clean(view.problem.note)}", style="dim"))
    return [*out, Text("")]


def _advice_lines(launch: LaunchReport) -> list[Text]:
    """The recommended configuration, what it takes and how often such won; or why nothing is recommended."""
    advice = launch.recommendation
    if advice is None:
        return [Text(f"    > {figures.clean(launch.kept)}", style="dim")] if launch.kept is not None else []
    gain = f", {figures.speedup_text(advice.speedup)}" if figures.compares(launch) else ""
    if gain and figures.speedup_word(advice.speedup) == "slower" and launch.decision is not None:
        gain += ", but others that share its entry gain more"
    line = Text("    > ")
    line.append(figures.clean(advice.configuration.label()), style="green")
    line.append(f"   takes {figures.with_interval(advice.latency.us, advice.latency)} ({advice.latency.origin}{gain})")
    return [line, *([Text(f"      {figures.clean(advice.record)}", style="dim")] if advice.record else [])]


def _us(us: float) -> str:
    return f"{figures.microseconds(us):>{_NUMBER}} µs"


def _encodable(line: Text, encoding: str) -> Text:
    """The line in characters that the output can carry: an ASCII terminal gets `us`, not a traceback."""
    try:
        line.plain.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        plain = line.plain.translate(_ASCII).encode("ascii", "replace").decode("ascii")
        return Text(plain, no_wrap=line.no_wrap)
    return line
