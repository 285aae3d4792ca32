"""The first screen: the headline, at most three actions, and one line for each launch, or for each MoE layer of a table; `advisor advise
-v` shows the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.text import Text

from advisor.rendering import figures
from advisor.rendering.views import Group
from advisor.result.schema import Action, Finding, LaunchReport, Result, SourceText
from advisor.system.resources import phrase

LINES = 40
"""Lines of the whole screen, the path of the report included."""
ACTIONS = 3
_STYLES = {"error": "bold red", "warning": "yellow", "advice": "cyan", "info": "dim"}
COMMANDS = 20
"""Commands for kernels without a size that are shown."""
PASTED = 4
"""Lines of a snippet that are shown; a longer one stands in the report."""


def screen(result: Result, groups: Sequence[Group], *, report: str | None, width: int | None = None) -> list[Text]:
    """At most `LINES` lines, of a terminal of `width` columns; of launches those without a change and with least to win are left out first,
    and counted."""
    head = head_lines(result, COMMANDS)
    single = result.launches[0] if len(result.launches) == 1 else None
    if single is not None and single.kept is not None and single.recommendation is None:
        head.append(Text(f"  {figures.clean(single.kept)}", style="dim"))
    unsized = _unsized(result)
    end = [*_of_the_table(result), *_end(result, report, of=single.kernel if single is not None and not unsized else "")]
    if unsized:
        return [*head, *end]
    return [*head, Text(""), *_launches(result, groups, LINES - 1 - sum(_height(line, width) for line in (*head, *end)), width), *end]


def _height(line: Text, width: int | None) -> int:
    """Lines of a terminal that a line takes: what follows the first is indented."""
    return 1 if width is None or line.no_wrap else max(-(-len(line) // (width - 4)), 1)


def _unsized(result: Result) -> bool:
    return result.verdict.current_us == 0 and any(figures.of_one_program(launch, result) for launch in result.launches)


def head_lines(result: Result, commands: int | None = None) -> list[Text]:
    """The headline, sums where there are several launches, what to do, and what to know of it; at most so many `commands` for kernels
    without a size."""
    verdict = result.verdict
    out = [Text(figures.clean(verdict.sentence), style="bold")]
    if len(result.launches) > 1 and verdict.current_us > 0 and not figures.of_several_steps(result):
        out.append(_totals(result))
    for number, action in figures.numbered(result.actions[:ACTIONS]):
        if action.snippet is not None and _unsized(result):  # a command says what to do by itself
            out += _command(action, commands)
            break
        out += _action(number, action, result)
    overlap = [Text(f"  {text}", style="dim") for text in [figures.overlap(result)] if text]
    return [*out, *overlap, *(Text(f"  ! {figures.clean(note)}", style="yellow") for note in verdict.notes)]


def _of_the_table(result: Result) -> list[Text]:
    """Errors and warnings of the table as a whole, and how many there are besides."""
    findings = [item for item in ordered_findings(result.table_findings) if item.severity in ("error", "warning")]
    out = [finding_line(item, 2, item.scope) for item in findings[:ACTIONS]]
    if len(findings) > ACTIONS:
        out.append(Text(f"  {phrase('screen.more_findings', count=len(findings) - ACTIONS)}", style="dim"))
    return out


AT_BEST = 0.98
"""Share of a layer's time below which its best is said where no change of its entry is sure."""
EXPLAINED = 0.1
"""Share of the distance to the bound that a finding has to save for the distance to be explained, and of the latency that it has to be for
there to be anything to explain."""

HEAVIEST = 3
"""Lines of source that stand for an explanation."""


def heaviest_lines(launch: LaunchReport, sources: Sequence[SourceText]) -> list[str]:
    """The lines of source that ask most of the pipeline that binds the configuration, where no finding says why it is far from its bound:
    `k.py:8, 12.3 µs of alu: row = i // (2 * HALF)`."""
    gap = figures.current(launch).us - figures.shown_bound(launch).us
    saved = max((finding.saving_us or 0.0 for finding in launch.findings), default=0.0)
    name = launch.config_binding_pipeline
    if figures.stuck(launch) or gap < EXPLAINED * figures.current(launch).us or saved >= EXPLAINED * gap:
        return []
    texts = {(piece.file, number): text for piece in sources for number, text in enumerate(piece.lines, piece.first_line)}
    lines = sorted(launch.source_lines, key=lambda line: -line.time_us.get(name, 0.0))[:HEAVIEST]
    return [
        figures.clean(f"{line.file}:{line.line}, {figures.microseconds(us)} µs of {name}: {texts.get((line.file, line.line), '').strip()}")
        for line in lines
        if (us := line.time_us.get(name, 0.0)) >= EXPLAINED * gap
    ]


def ordered_findings(findings: tuple[Finding, ...]) -> list[Finding]:
    """Errors first, then by saving; where no saving can be said, by severity."""
    return sorted(
        findings,
        key=lambda item: (item.severity != "error", -(item.saving_us or 0.0), figures.SEVERITIES.index(item.severity)),
    )


def finding_line(item: Finding, indent: int, place: str = "", cured: bool = False) -> Text:
    """What was found, what curing it saves (of what the recommended change cures that stands there), where it is (a place, or the line of
    source), and the rule."""
    line = Text(" " * indent)
    line.append({"error": "x ", "info": "· "}.get(item.severity, "! "), style=_STYLES[item.severity])
    saves = f"saves {figures.microseconds(item.saving_us)} µs ({item.saving_origin})" if item.saving_us is not None else ""
    saves = phrase("screen.cured") if cured else saves
    place = figures.clean(place) or (figures.source_text(item) if item.source_line is not None else "")
    line.append("   ".join(filter(None, (figures.clean(item.title), saves, place, f"[{figures.clean(item.rule)}]"))))
    return line


def _totals(result: Result) -> Text:
    verdict = result.verdict
    origins, us = figures.origins(result), figures.with_interval(verdict.current_us, figures.sum_interval(result))
    line = Text(f"  {figures.counted(result)}: " + (f"{us} ({origins})" if "," in origins else f"{origins} {us}"))
    if verdict.peak_pipeline is not None and verdict.share_of_peak is not None and verdict.share_of_peak < 1.005:
        line.append(f"   {figures.share_text(verdict.share_of_peak)} of {figures.unit_peak(verdict.peak_pipeline)}")
    if verdict.percent_of_ceiling > 0:
        line.append("   ")
        line.append(win_text(verdict.percent_of_ceiling / 100, "".join(launch.unsearched for launch in result.launches)))
        line.append(f" ({rated})" if (rated := figures.rated(result)) else "")
    line.append(f"   {figures.shown_bound(result).text}")
    return line


def win_text(share: float | None, unsearched: str = "") -> Text:
    """What tuning can win of the time, from the share of the ceiling that is reached; at least so much where something is unsearched."""
    if share is None:
        return Text("")
    if share >= 1.005:
        return Text("faster than the predicted ceiling", style="magenta")
    won = "<1 %" if share >= 0.99 and not unsearched else f"{figures.share_text(1 - share)}{' or more' if unsearched else ''}"
    return Text(f"tuning can win {won}", style="green" if share >= 0.9 else "yellow" if share >= 0.6 else "red")


def _command(action: Action, most: int | None) -> list[Text]:
    """The one command that a launch without a size needs; of several kernels one for each, and how many are left out."""
    commands = (action.snippet or "").splitlines()
    out = [Text(""), *(_pasted(command, 2) for command in commands[:most]), Text("")]
    if left := len(commands) - len(commands[:most]):
        out.append(Text(f"  {phrase('screen.more_commands', count=left)}", style="dim"))
    return out


def _pasted(text: str, indent: int) -> Text:
    """A line to paste, which no terminal may break."""
    return Text(f"{' ' * indent}{figures.clean(text)}", style="green", no_wrap=True)


def _action(number: str, action: Action, result: Result) -> list[Text]:
    line = Text(f"  {number}{'. ' if number.isdigit() else '  '}")
    line.append(figures.clean(action.title), style="bold")
    if action.saving_us > 0:
        us, share = figures.saving(action, result)
        if len(result.launches) == 1 and (left := figures.current(result.launches[0]).us - action.saving_us) > 0:
            us = f"{us} of {figures.microseconds(left + action.saving_us)}"
        line.append(f"   saves {us} µs ({', '.join(filter(None, (action.origin, share)))})", style="green")
    out = [line]
    pasted = [item for item in (action.snippet or "").strip().splitlines() if item.replace(", ", " and ") not in action.title]
    if len(pasted) <= PASTED:
        out += [_pasted(item, 5) for item in pasted]
    elif action.saving_us > 0 and "--export" not in result.command:  # which has written them
        out.append(Text(f"     {phrase('screen.entries')}", style="dim"))
    if action.detail:
        causes = (item.title for launch in result.launches for item in launch.findings if item.rule == action.rule)
        cause = next((title for title in causes if title in result.verdict.sentence), "")  # that the headline names
        out.append(Text(f"     {figures.clean(action.detail.replace(f'{cause}. ', '', 1) if cause else action.detail)}"))
    if action.rule is None and (record := _record(action, result)):
        out.append(Text(f"     {figures.clean(record)}", style="dim"))
    return out


def _record(action: Action, result: Result) -> str:
    """What recommendations of the kind won where they were measured: of the touched launch that gains most."""
    touched = [launch for launch in result.launches if launch.id in action.launches and launch.recommendation is not None]
    best = max(touched, key=figures.to_win, default=None)
    return best.recommendation.record if best is not None and best.recommendation is not None else ""


def _launches(result: Result, groups: Sequence[Group], room: int, width: int | None) -> list[Text]:
    """A line for each launch below the head of its kernel, with what explains a single one."""
    if _of_layers(result):
        return _layers(result, group_head(groups[0], result, phrase("screen.layers")), room, width)
    heads, by_id = [group_head(part, result) for part in groups], rows(result, groups)
    if len(result.launches) == 1:
        return [*heads, *launch_lines(result.launches[0], result, by_id[result.launches[0].id])][: max(room, 1)]
    changing = {launch.id for launch in result.launches if launch.recommendation is not None}
    order = sorted(result.launches, key=lambda it: (not figures.stuck(it), it.id not in changing, -figures.to_win(it)))
    shown = _that_fit(by_id, [launch.id for launch in order], room - sum(_height(head, width) for head in heads), width)
    out: list[Text] = []
    for head, part in zip(heads, groups, strict=True):
        visible = [by_id[launch.id] for launch in part.launches if launch.id in shown]
        out += [head, *visible] if visible else []
    left = len(result.launches) - len(shown)
    return [*out, Text(f"  {phrase('screen.left_out', count=left)}", style="dim")] if left else out


def _of_layers(result: Result) -> bool:
    """Whether the launches are the products of MoE layers at several token counts, both decided together, that all run."""
    decided = {launch.decision for launch in result.launches}
    whole = sum(len(layer.launches) for layer in result.layers) == len(result.launches) and len(decided) == len(result.layers)
    return whole and len(result.layers) > 1 and not any(figures.stuck(launch) or launch.faults for launch in result.launches)


def _layers(result: Result, head: Text, room: int, width: int | None) -> list[Text]:
    """A line for each token count, of the whole layer: `M=64   497.0 → 407.6 µs ±7.1 %   saves 18 %   w13: 65 % of DRAM's peak   > …`. The
    peak, and what to change, are those of the longer of its launches, which is named."""
    by_id, gains, cells = {launch.id: launch for launch in result.launches}, {}, []
    for layer in result.layers:
        longer = max((by_id[name] for name in layer.launches), key=lambda launch: figures.current(launch).us)
        then = layer.recommended
        gains[layer.id] = 0.0 if then is None else layer.predicted.us - then.us
        us = Text(f"{layer.now.origin} {figures.microseconds(layer.now.us):>8} µs {figures.interval(layer.now)}", style="bold")
        best = f"{figures.microseconds(layer.ceiling.us)} µs at best" if layer.ceiling.us < AT_BEST * layer.now.us else ""
        won = best if then is None else f"→ {figures.microseconds(then.us):>8} µs, {figures.saved(layer)}"
        _, peak, _, change = _cells(longer, result)
        peak = Text(phrase("screen.longer_launch", op=longer.problem.op, peak=peak.plain.strip())) if peak else peak
        cells.append((Text(f"M={layer.tokens}"), us, Text(won, style="dim" if then is None else "green"), peak, change))
    lines = dict(zip(gains, _in_columns(cells), strict=True))
    shown = _that_fit(lines, sorted(lines, key=lambda name: -gains[name]), room - _height(head, width), width)
    left = len(lines) - len(shown)
    out = [head, *(line for name, line in lines.items() if name in shown)]
    return [*out, Text(f"  {phrase('screen.layers_left_out', count=left)}", style="dim")] if left else out


def _that_fit(lines: Mapping[str, Text], order: Sequence[str], room: int, width: int | None) -> set[str]:
    """The names of the lines that fit so many lines of the screen, in this order, and at least one; what is left out takes a line."""
    room -= sum(_height(line, width) for line in lines.values()) > room
    shown: set[str] = set()
    for name in order:
        room -= _height(lines[name], width)
        if room >= 0 or not shown:
            shown.add(name)
    return shown


def group_head(part: Group, result: Result, name: str = "") -> Text:
    head = Text(name or part.name, style="bold")
    head.append(f"  {part.shared}   {figures.clean(result.gpu)}", style="not bold")
    sources = {launch.configuration_source for launch in part.launches}
    if len(sources) == 1 and "default" in (source := sources.pop()):  # of a table's entries each has its own
        head.append(f"   {figures.clean(source)}", style="not bold")
    return head


def rows(result: Result, groups: Sequence[Group]) -> dict[str, Text]:
    """By id of a launch `M=64   predicted 299.9 µs ±8.6 %   66 % of DRAM's peak   tuning can win 26 %   > BLOCK_SIZE_M 64→16`, in columns;
    a single launch needs no label."""
    pairs = [(part, launch) for part in groups for launch in part.launches]
    labels = [part.label(it) if part.size else part.apart.get(it.id, "") or part.by_size(it) for part, it in pairs if len(pairs) > 1]
    cells = [(Text(label), *_cells(launch, result)) for label, (_, launch) in zip(labels or [""], pairs, strict=True)]
    return dict(zip((launch.id for _, launch in pairs), _in_columns(cells), strict=True))


def _in_columns(cells: Sequence[tuple[Text, ...]]) -> list[Text]:
    """Lines of cells in columns; one that is empty in all lines is left out."""
    widths, out = [max(map(len, column)) for column in zip(*cells, strict=True)], []
    for row in cells:
        for cell, width in zip(row, widths, strict=True):
            cell.pad_right(width - len(cell))
        out.append(Text("  ") + Text("   ").join(cell for cell, width in zip(row, widths, strict=True) if width))
        out[-1].rstrip()
    return out


def _cells(launch: LaunchReport, result: Result) -> tuple[Text, Text, Text, Text]:
    """A launch's latency, its share of a peak, what tuning can win, and what to change or what is wrong."""
    latency, peak, win = Text(style="bold"), Text(), Text()
    if figures.stuck(launch):
        latency = Text("cannot launch", style="bold red")
    elif figures.of_one_program(launch, result):
        latency = Text(phrase("screen.no_size"))
    else:
        now, share = figures.current(launch), launch.share_of_peak
        origin = "bound of configuration" if now.origin == "specified" else now.origin
        latency.append(f"{origin} {figures.microseconds(now.us):>8} µs {figures.interval(now)}")
        if share is not None and share < 1.005:
            padding = f", {padded} padding" if (padded := figures.padded([launch])) else ""
            peak.append(f"{figures.share_text(share):>5} of {figures.unit_peak(launch.peak_pipeline)}{padding}")
        unset = figures.unset(launch) and launch.ceiling is not None  # nothing says which configuration runs: the time is of the best
        win = Text(phrase("screen.unset")) if unset else win_text(figures.share_of_ceiling(launch), launch.unsearched)
    advice, change = launch.recommendation, Text()
    if advice is not None and advice.configuration != launch.configuration:
        change.append(f"> {', '.join(figures.changes(launch.configuration, advice.configuration))}", style="green")
    elif advice is None and launch.kept is not None and len(result.launches) > 1:  # of a single one the sentence stands above
        change.append(f"· {figures.clean(launch.kept.rpartition(': ')[2].rstrip('.'))}", style="dim")
    if launch.faults:
        change.append(f"{'   ' if change else ''}x fault: {figures.clean(launch.faults[0])}", style="bold red")
    return latency, peak, win, change


def launch_lines(launch: LaunchReport, result: Result, row: Text, findings: int = ACTIONS) -> list[Text]:
    """A launch: its row, its bound, ceiling and library, so many of its findings, and the source lines that ask most."""
    bound = [figures.shown_bound(launch).text]
    if launch.ceiling is not None:
        bound.append(f"{'best so far' if launch.unsearched else 'tunable ceiling'} {figures.microseconds(launch.ceiling.us)} µs")
    if (library := launch.library) is not None:
        bound.append(f"library {figures.with_interval(library.us, library)} ({library.origin}: {figures.clean(library.source)})")
    out = [row, *(Text(f"    x fault: {figures.clean(fault)}", style="bold red") for fault in launch.faults[1:])]
    out.append(Text(f"    {'   '.join(bound)}"))
    why = launch.recommendation.reason if launch.recommendation is not None else ""
    first = ordered_findings(launch.findings)[:findings]
    out += [finding_line(item, 4, cured=phrase("choice.cures", what=item.title) in why) for item in first]
    heaviest = [] if figures.of_one_program(launch, result) else heaviest_lines(launch, result.sources)
    return out + [Text(f"    · {text}", style="dim") for text in heaviest]


def _end(result: Result, report: str | None, *, of: str) -> list[Text]:
    """What is assumed of the kernel `of` (its types, strides, grid) and which of its configurations were tried; how many assumptions there
    are besides, and where the page is."""
    of_kernel = [text for text in result.verdict.unknowns if of and text.startswith(f"{of}: ")][:ACTIONS]
    out = [Text(f"  ? {figures.clean(text)}", style="dim") for text in of_kernel]
    if count := len(result.verdict.unknowns) - len(of_kernel):
        out.append(Text(f"  {phrase('screen.more_assumptions' if of_kernel else 'screen.assumptions', count=count)}", style="dim"))
    return out + ([Text(f"  report: {figures.clean(report)}")] if report is not None else [])
