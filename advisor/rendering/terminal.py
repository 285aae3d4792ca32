"""The result on a terminal, or down a pipe: rows in stable columns, never cut, and broken between words on a narrow terminal only."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console
from rich.text import Text

from advisor.rendering import figures, overview, views
from advisor.rendering.screen import LINES, head_lines, screen, win_of
from advisor.rendering.views import Group, group
from advisor.result.schema import Finding, Latency, LaunchReport, Result, SourceText
from advisor.system.phrases import phrase

FINDINGS_OF_ONE_LAUNCH = 3
MOST_TUNED = 20
TIMINGS_OF_ONE_PROBLEM = 12
_NUMBER = 8  # characters of the widest latency, "1,234,567" excepted
_GAINS = 96  # column of what a finding saves and what a recommendation takes; a longer text pushes it out
_ASCII = str.maketrans({"µ": "u", "±": "+-", "–": "-", "—": "-", "−": "-", "→": "->", "·": "-", "×": "x", "≥": ">=", "≤": "<=", "…": "..."})
_STYLES = {"error": "bold red", "warning": "yellow", "advice": "cyan", "info": "dim"}


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


def to_text(result: Result, *, report: str | None = None) -> str:
    """The same as plain text, without colours."""
    sink = io.StringIO()
    show(result, report=report, file=sink)
    return sink.getvalue()


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
    for part in groups:
        out += _group_lines(part, result, single=len(result.launches) == 1)
    out += _layer_lines(result)
    out += [line for view in views.tuned_views(result.tuned)[:MOST_TUNED] for line in _tuned_lines(view)]
    if len(result.tuned) > MOST_TUNED:
        out.append(Text(f"  {len(result.tuned) - MOST_TUNED} more tuned problems, in the report"))
    if not groups and not result.tuned:
        out.append(Text(f"{figures.subject(result)}: no launches", style="bold"))
    return out + [_finding(item, indent=2, where=item.scope) for item in figures.ordered_findings(result.table_findings)]


def _group_lines(part: Group, result: Result, *, single: bool) -> list[Text]:
    head = Text(part.name, style="bold")
    head.append(f"  {part.shared}   {figures.clean(result.gpu)}", style="not bold")
    out = [head]
    labels = [part.label(launch) if part.size else part.apart.get(launch.id, "") for launch in part.launches]
    width = max(map(len, labels))
    for launch, label in zip(part.launches, (text.ljust(width) for text in labels), strict=True):
        unsized = figures.of_one_program(launch, result)
        out += _launch_lines(launch, label, result.sources, findings=FINDINGS_OF_ONE_LAUNCH if single else 1, unsized=unsized)
    out.append(Text(""))
    return out


def _layer_lines(result: Result) -> list[Text]:
    """The layers, whole, with what is recommended for their products."""
    if not result.layers:
        return []
    first = result.layers[0]
    head = Text("layer" if first.routing else "linear", style="bold")
    what = f"{first.routing} routing" if first.routing else "with the quantisation of its activations"
    head.append(f"  as {figures.clean(first.stack)} launches it, {what}", style="not bold")
    out, width = [head], max(len(str(layer.tokens)) for layer in result.layers)
    for layer in result.layers:
        line = Text(f"  M {layer.tokens:<{width}}  ")
        line.append(_column(_latency(layer.now)), style="bold")
        line.append(f"ceiling {_us(layer.ceiling.us)}   bound {_us(layer.bound.us)}   ")
        if layer.recommended is not None:
            line.append(f"-> {_us(layer.recommended.us)} with the recommended ({figures.saved(layer)})", style="green")
        out.append(line)
        if layer.library is not None:
            reached = f"{figures.clean(layer.library.source)} {_us(layer.library.us)} {figures.interval(layer.library)}".rstrip()
            out.append(Text(f"  {' ' * (width + 4)}{reached} ({layer.library.origin})"))
    return [*out, *(Text(f"  {text}", style="dim") for text in [figures.products_apart(result)] if text), Text("")]


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


def _launch_lines(launch: LaunchReport, label: str, sources: Sequence[SourceText], *, findings: int, unsized: bool) -> list[Text]:
    now = figures.current(launch)
    line = Text(f"  {label}  " if label else "  ")
    line.append(_column("cannot launch" if figures.stuck(launch) else "latency unknown" if unsized else _latency(now)), style="bold")
    if launch.ceiling is not None:
        line.append(f"{'best so far' if launch.unsearched else 'ceiling'} {_us(launch.ceiling.us)}   ")
    bound = figures.shown_bound(launch)
    line.append(f"{bound.name} {_us(bound.us)}{f' ({bound.unit})' if bound.unit else ''}".ljust(24))
    line.append("   " if (win := win_of(launch)) else "").append(win)
    if not unsized and (peak := figures.peak_text(launch)):
        line.append(f"   {peak}")
    line.rstrip()
    out = [line]
    if launch.library is not None:
        reached = f"library {_us(launch.library.us)} {figures.interval(launch.library)}".rstrip()
        out.append(Text(f"{' ' * (4 if label else 2)}{reached} ({launch.library.origin}: {figures.clean(launch.library.source)})"))
    out += [Text(f"  x fault: {figures.clean(fault)}", style="bold red") for fault in launch.faults]
    indent = 4 if label else 2
    out += [_finding(item, indent=indent) for item in figures.ordered_findings(launch.findings)[:findings]]
    heaviest = [] if unsized else figures.heaviest_lines(launch, sources)
    out += [Text(f"{' ' * indent}· {text}", style="dim") for text in heaviest]
    advice = launch.recommendation
    if advice is not None:
        line = Text(" " * indent + "> ")
        line.append(figures.clean(advice.configuration.label()), style="green")
        line.pad_right(max(0, _GAINS - len(line)))
        gain = f", {figures.speedup_text(advice.speedup)}" if figures.compares(launch) else ""
        if gain and figures.speedup_word(advice.speedup) == "slower" and launch.decision is not None:
            gain += ", but others that share its entry gain more"
        takes = f"   takes {_us(advice.latency.us)} {figures.interval(advice.latency)}".rstrip()
        line.append(f"{takes} ({advice.latency.origin}{gain})")
        out.append(line)
        if advice.record:
            out.append(Text(f"{' ' * indent}  {figures.clean(advice.record)}", style="dim"))
    elif launch.kept is not None:
        out.append(Text(f"{' ' * indent}> {figures.clean(launch.kept)}", style="dim"))
    return out


def _latency(value: Latency) -> str:
    word = "bound of configuration" if value.origin == "specified" else value.origin
    return f"{word:<9} {_us(value.us)} {figures.interval(value)}".rstrip()


def _column(text: str) -> str:
    """The text in the first column of a launch's line; a longer one pushes what follows out."""
    return f"{text} ".ljust(32)


def _us(us: float) -> str:
    return f"{figures.microseconds(us):>{_NUMBER}} µs"


def _finding(item: Finding, *, indent: int, where: str = "") -> Text:
    line = Text(" " * indent)
    line.append(f"{'x' if item.severity == 'error' else '!'} {figures.clean(item.rule):<20}", style=_STYLES[item.severity])
    line.append(f" {figures.clean(item.title)}")
    if item.saving_us is not None:
        line.pad_right(max(0, _GAINS - len(line)))
        line.append(f"   saves {'~' + figures.microseconds(item.saving_us):>{_NUMBER}} µs ({item.saving_origin})")
    if place := figures.clean(where) or (figures.source_text(item) if item.source_line is not None else ""):
        line.append(f"   ({place})")
    return line


def _encodable(line: Text, encoding: str) -> Text:
    """The line in characters that the output can carry: an ASCII terminal gets `us`, not a traceback."""
    try:
        line.plain.encode(encoding)
    except (UnicodeEncodeError, LookupError):
        plain = line.plain.translate(_ASCII).encode("ascii", "replace").decode("ascii")
        return Text(plain, no_wrap=line.no_wrap)
    return line
