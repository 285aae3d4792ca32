"""The result as GitHub Markdown, for a pull-request comment or a step summary.

At most 60,000 characters: rows that change nothing go first, then the last rows, and the text says how many.
"""

from __future__ import annotations

import html
import re
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from advisor.rendering import figures, tuned
from advisor.rendering.grouping import Group, group
from advisor.result.schema import Finding, Fingerprint, LaunchReport, Result, SearchReport
from advisor.system.resources import folder

LIMIT = 60_000
LONGEST_CELL = 300
LONGEST_SNIPPET = 6_000
MOST_TUNED = 40

_ACTIVE = re.compile(r"([\\`*_{}\[\]()#+!|~^$])")
_LINKED = re.compile(r"(@|#|://|\bwww\.|\bGH-)", re.IGNORECASE)
_MARKS = {"error": "error", "warning": "warning", "advice": "advice", "info": "info"}


def to_markdown(result: Result, *, limit: int = LIMIT) -> str:
    """The result as Markdown of at most `limit` characters."""
    head = _fitting(_head(result), budget=int(limit * 0.3))
    tail = _fitting(_tail(result), budget=int(limit * 0.3))
    rest = limit - len(head) - len(tail)
    table = _launch_table(result, budget=int(rest * 0.7))
    layers = _layers(result, budget=int(rest * 0.2))
    findings = _findings(result, budget=rest - len(table) - len(layers))
    return head + table + layers + findings + tail


def _fitting(parts: list[str], *, budget: int) -> str:
    """As many whole parts as fit: to cut inside one could end a code span and free what is in it."""
    kept: list[str] = []
    for part in parts:
        if sum(map(len, kept)) + len(part) + 1 <= budget:
            kept.append(part + "\n")
    return "".join(kept)


def escape(text: object, *, longest: int = LONGEST_CELL) -> str:
    """Text from outside as inert Markdown: no HTML, no formatting, no table cell, no mention, no reference, no link."""
    short = figures.clean(text)
    short = short if len(short) <= longest else short[: longest - 1] + "…"
    # A zero-width space behind the sign keeps GitHub from notifying people or linking; escapes alone do not.
    apart = _LINKED.sub("\\1\u200b", short)
    return html.escape(_ACTIVE.sub(r"\\\1", apart), quote=False).replace("\\|", "&#124;")


def code(text: object, *, longest: int = LONGEST_CELL) -> str:
    """Text from outside as a code span that nothing in it can end, in a table cell too."""
    short = figures.clean(text).replace("|", "¦")  # a bar ends the cell even inside a code span
    short = short if len(short) <= longest else short[: longest - 1] + "…"
    fence = "`" * (_longest_run(short) + 1)
    pad = " " if short.startswith("`") or short.endswith("`") or not short.strip() else ""
    return f"{fence}{pad}{short}{pad}{fence}"


def block(text: str, language: str = "") -> str:
    """Text from outside as a fenced block that nothing in it can end."""
    kept = figures.clean(text, lines=True).rstrip()
    if len(kept) > LONGEST_SNIPPET:
        kept = kept[:LONGEST_SNIPPET] + "\n… (cut; the whole is in result.json)"
    fence = "`" * max(3, _longest_run(kept) + 1)
    return f"{fence}{language}\n{kept}\n{fence}\n"


def details(summary: str, body: str) -> str:
    """A folded part; `summary` must be escaped already."""
    return f"<details><summary>{summary}</summary>\n\n{body}\n</details>\n\n"


def filled_markdown(template: str, **values: Any) -> str:
    """One of the Markdown templates in `reports/` with these values."""
    return _environment(str(folder("reports"))).get_template(template).render(values)


@cache
def _environment(templates: str) -> Environment:
    environment = Environment(loader=FileSystemLoader(templates), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "md": lambda text, longest=LONGEST_CELL: escape(text, longest=longest),
        "code": code,
        "block": block,
        "html": html.escape,
        "clean": figures.clean,
        "us": figures.microseconds,
        "source": figures.source_text,
        "row": lambda cells: f"| {' | '.join(cells)} |",
    }
    return environment


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def _head(result: Result) -> list[str]:
    verdict = result.verdict
    share = figures.share_text(verdict.percent_of_ceiling / 100 or None, passed="beyond the predicted ceiling")
    if verdict.percent_of_ceiling > 0 and figures.rated(result):
        share += f" ({figures.rated(result)})"
    ceiling = f"{figures.microseconds(verdict.ceiling_us)} µs" if verdict.ceiling_us > 0 else "not known"
    origins, counted = figures.origins(result), figures.counted(result)
    origins += "" if counted.startswith("all ") else f", {counted}"
    parts = [
        f"### {escape(verdict.sentence, longest=600)}\n",
        f"{code(result.target)} on {escape(result.gpu)}" + (f", {escape(result.model)}" if result.model else "") + "\n",
    ]
    if verdict.current_us > 0:  # something can launch
        parts.append(
            f"| {origins} | ceiling ({figures.ceiling_origins(result)}) | bound | of ceiling | binding pipeline |\n"
            "|--:|--:|--:|--:|---|\n"
            f"| {figures.with_interval(verdict.current_us, figures.sum_interval(result))} | {ceiling}"
            f" | {figures.microseconds(verdict.bound_us)} µs | {share} | {escape(verdict.binding_pipeline)} |\n"
        )
    if result.fingerprint.simulated:
        parts.append(f"**{figures.SIMULATED}.**\n")
    elif result.fingerprint.mode == "offline":
        given = figures.where_run(result) != "offline: nothing was run"
        ran = "Nothing was run for this report, what is *measured* was given to it" if given else "Nothing was run"
        words = "the word *measured*"
        if any(launch.measured is not None and launch.measured.origin == "simulated" for launch in result.launches):
            ran = ran.replace("*measured*", "*measured* or *simulated*")
            words = "one of these words"
        parts.append(f"{ran}: every latency without {words} is a prediction.\n")
    for number, action in enumerate(result.actions[:3], 1):
        saving = f", saves ~{figures.microseconds(action.saving_us)} µs ({action.origin})" if action.saving_us > 0 else ""
        parts.append(f"{number}. **{escape(action.title)}**{saving}. {escape(action.detail, longest=600)}")
    if result.actions:
        parts.append("")
    faults = [fault for launch in result.launches for fault in launch.faults]
    parts += [f"> **Fault:** {escape(fault)}" for fault in faults[:5]]
    if faults:
        parts.append("")
    return parts


def _launch_table(result: Result, *, budget: int) -> str:
    """The launches that fit; `budget` is in characters."""
    if not result.launches:
        return "No launches.\n\n"
    groups = group(result.launches)
    rows = [_launch_row(part, launch, result) for part in groups for launch in part.launches]
    changed = [launch.recommendation is not None for part in groups for launch in part.launches]
    header = (
        "| launch | now | ceiling | bound | of ceiling | binding | recommended | speedup | change |\n"
        "|---|--:|--:|--:|--:|---|--:|--:|---|\n"
    )
    # In the order they are kept: those that change first, the others after them, each from the first.
    order = sorted(range(len(rows)), key=lambda index: not changed[index])
    kept, used = set(), len(header) + 200
    for index in order:
        used += len(rows[index])
        if used > budget:
            break
        kept.add(index)
    left_out = len(rows) - len(kept)
    unchanged = sum(1 for index in range(len(rows)) if index not in kept and not changed[index])
    said = f"\n{left_out} of {len(rows)} rows left out for length ({unchanged} with nothing to change).\n" if left_out else ""
    return header + "".join(row for index, row in enumerate(rows) if index in kept) + said + "\n"


def _layers(result: Result, *, budget: int) -> str:
    """The layers that fit, the first ones; `budget` is in characters."""
    if not result.layers:
        return ""
    first = result.layers[0]
    head = f"| layer, {escape(first.stack)}, {first.routing} routing | now | ceiling | bound | recommended |\n|---|--:|--:|--:|--:|\n"
    rows = []
    for layer in result.layers:
        cells = [f"M {layer.tokens}", f"{figures.with_interval(layer.now.us, layer.now)} {layer.now.origin}"]
        cells += [f"{figures.microseconds(each.us)} µs" for each in (layer.ceiling, layer.bound)]
        cells.append(f"{figures.microseconds(layer.recommended.us)} µs, {figures.saved(layer)}" if layer.recommended else "-")
        rows.append("| " + " | ".join(cells) + " |\n")
    return head + "".join(rows[: max(1, (budget - len(head)) // max(map(len, rows)))]) + "\n"


def _launch_row(part: Group, launch: LaunchReport, result: Result) -> str:
    now = figures.current(launch)
    ceiling, advice = launch.ceiling, launch.recommendation
    share = figures.share_text(figures.share_of_ceiling(launch))
    unknown = figures.unset(launch) or figures.of_one_program(launch, result)
    latency = "not known" if unknown else f"{figures.with_interval(now.us, now)} {now.origin}"
    cells = [
        f"{escape(part.name)} {escape(part.label(launch))}",
        "cannot launch" if figures.stuck(launch) else latency,
        f"{figures.microseconds(ceiling.us)} µs" if ceiling else "-",
        f"{figures.microseconds(launch.bound.us)} µs",
        share,
        escape(launch.binding_pipeline),
        f"{figures.with_interval(advice.latency.us, advice.latency)} {advice.latency.origin}" if advice else "-",
        figures.speedup_text(advice.speedup) if advice and figures.compares(launch) else "-",
        code(", ".join(figures.changes(launch.configuration, advice.configuration)) or "none") if advice else "-",
    ]
    return "| " + " | ".join(cells) + " |\n"


def _findings(result: Result, *, budget: int) -> str:
    """The findings, those that save most first, as many as fit."""
    pairs: list[tuple[str, Finding]] = [("table", item) for item in result.table_findings]
    labels = {launch.id: f"{part.name} {part.label(launch)}" for part in group(result.launches) for launch in part.launches}
    pairs += [(labels[launch.id], item) for launch in result.launches for item in launch.findings]
    if not pairs:
        return ""
    pairs.sort(key=lambda pair: (pair[1].severity != "error", -(pair[1].saving_us or 0.0)))
    rows: list[str] = []
    used = 500
    for where, item in pairs:
        saving = f"~{figures.microseconds(item.saving_us)} µs {item.saving_origin}" if item.saving_us is not None else "-"
        source = code(figures.source_text(item)) if item.source_file else ""
        row = (
            f"| {_MARKS[item.severity]} | {code(item.rule)} | {escape(where)} | {escape(item.title)}: "
            f"{escape(item.evidence)} {source} | {saving} | {escape(item.remedy)} |\n"
        )
        used += len(row)
        if used > budget:
            break
        rows.append(row)
    left_out = len(pairs) - len(rows)
    body = "Savings do not add up: each is what curing this one cause alone would save.\n\n"
    body += "| severity | rule | where | evidence | saves | remedy |\n|---|---|---|---|--:|---|\n" + "".join(rows)
    title = f"{len(pairs)} finding" + ("" if len(pairs) == 1 else "s")
    if left_out:
        body += f"\n{left_out} of {title} left out for length.\n"
    return details(title, body)


def _tail(result: Result) -> list[str]:
    """Unknowns, the environment and exports, the needed ones first."""
    parts = []
    if result.verdict.unknowns:
        parts.append("What is not known:\n" + "".join(f"- {escape(text)}\n" for text in result.verdict.unknowns[:20]))
    rows = "".join(f"| {name} | {escape(value)} |\n" for name, value in environment(result.fingerprint, figures.where_run(result)))
    body = f"| | |\n|---|---|\n{rows}| advisor | {escape(result.tool_version)} |\n\n{block(result.command, 'sh')}"
    parts.append(details("Environment and the command to repeat it", body).rstrip() + "\n")
    parts += [_search(search) for search in result.searches]
    if result.tuned:
        parts.append(_tuned(result).rstrip() + "\n")
    for export in result.exports[:4]:
        language = "json" if export.kind == "table" else "python"
        title = f"{'table' if export.kind == 'table' else 'triton.Config list'}: {escape(export.name)}"
        parts.append(details(title, block(export.content, language)).rstrip() + "\n")
    return parts


def _search(search: SearchReport) -> str:
    done = sum(trial.latency_us is not None for trial in search.trials)
    failures = ", ".join(f"{count} {escape(name)}" for name, count in list(search.failures.items())[:10]) or "none"
    return (
        f"Search on {code(search.launch)}: {len(search.trials)} trials, {done} with a latency, failures: {failures}; "
        f"{escape(search.sampler)}; stopped: {escape(search.stopped_because)}\n"
    )


def _tuned(result: Result) -> str:
    """A line for each tuned problem; every timing is on the page and in the JSON."""
    rows = [
        f"| {code(view.title)} | {code(view.chosen)} | {view.latency} | {escape(view.accuracy)} | {escape(view.counts)} |\n"
        for view in tuned.views(result.tuned)
    ]
    kept = rows[:MOST_TUNED]
    body = "| tuned | runs | latency | model | configurations |\n|---|---|--:|---|---|\n" + "".join(kept)
    if len(rows) > len(kept):
        body += f"\n{len(rows) - len(kept)} of {len(rows)} left out for length.\n"
    return details(f"{len(rows)} tuned problems", body)


def environment(fingerprint: Fingerprint, where_run: str = "offline: nothing was run") -> list[tuple[str, str]]:
    """The known facts of the machine, by name, in the order shown; `where_run` where it was offline (`figures.where_run`)."""
    mode = where_run.replace("offline:", "offline,") if fingerprint.mode == "offline" else "on a GPU"
    values: list[tuple[str, object]] = [
        ("mode", figures.SIMULATED if fingerprint.simulated else mode),
        ("GPU", fingerprint.gpu),
        ("GPU UUID", fingerprint.gpu_uuid),
        ("driver", fingerprint.driver),
        ("CUDA", fingerprint.cuda),
        ("torch", fingerprint.torch),
        ("Triton", fingerprint.triton),
        ("Python", fingerprint.python),
        ("SM clock (MHz)", fingerprint.sm_clock_mhz),
        ("memory clock (MHz)", fingerprint.memory_clock_mhz),
        ("MIG", None if fingerprint.mig is None else "on" if fingerprint.mig else "off"),
        ("power cap (W)", fingerprint.power_cap_w),
    ]
    return [(name, f"{value:g}" if isinstance(value, float) else str(value)) for name, value in values if value is not None]
