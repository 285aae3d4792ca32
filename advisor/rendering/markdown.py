"""The result as GitHub Markdown, for a pull-request comment or a step summary.

At most 60,000 characters: rows that change nothing go first, then the last rows, and the text says how many.

The templates of `reports/` are compiled once for all processes of a user: compiling the page takes as long as filling it.
"""

from __future__ import annotations

import contextlib
import html
import re
from functools import cache
from typing import Any

from jinja2 import Environment, FileSystemBytecodeCache, FileSystemLoader, StrictUndefined
from jinja2.bccache import Bucket

from advisor.rendering import figures, views
from advisor.rendering.views import group
from advisor.result.schema import Finding, Fingerprint, Result
from advisor.system.resources import folder
from advisor.system.settings import read_settings

LIMIT = 60_000
LONGEST_CELL = 300
LONGEST_SNIPPET = 6_000
SHORTEST_ROW = 150

_ACTIVE = re.compile(r"([\\`*_{}\[\]()#+!|~^$])")
_LINKED = re.compile(r"(@|#|://|\bwww\.|\bGH-)", re.IGNORECASE)


def to_markdown(result: Result, *, limit: int = LIMIT) -> str:
    """The result as Markdown of at most `limit` characters."""
    pairs = [(part, launch) for part in group(result.launches) for launch in part.launches]
    findings: list[tuple[str, Finding]] = [("table", item) for item in result.table_findings]
    labels = {launch.id: f"{part.name} {part.label(launch)}" for part, launch in pairs}
    findings += [(labels[launch.id], item) for launch in result.launches for item in launch.findings]
    findings.sort(key=lambda pair: (pair[1].severity != "error", -(pair[1].saving_us or 0.0)))
    order = sorted(range(len(pairs)), key=lambda index: pairs[index][1].recommendation is None)  # those that change are kept first
    most, shown = len(pairs), len(findings)
    while True:
        text = filled_markdown(
            "result.md.jinja",
            result=result,
            rows=[pairs[index] for index in sorted(order[:most])],
            findings=findings[:shown],
            count=len(findings),
            faults=[fault for launch in result.launches for fault in launch.faults],
            tuned=views.tuned_views(result.tuned),
            most=max(most, 1),
            environment=fingerprint_rows,
            f=figures,
        )
        if len(text) <= limit or not most:
            return text
        most = min(int(0.9 * most), limit // SHORTEST_ROW)
        shown = most // 20  # findings are the first to go


def escape(text: object, *, longest: int = LONGEST_CELL) -> str:
    """Text from outside as inert Markdown: no HTML, no formatting, no table cell, no mention, no reference, no link."""
    short = figures.shortened(figures.clean(text), longest)
    # A zero-width space behind the sign keeps GitHub from notifying people or linking; escapes alone do not.
    apart = _LINKED.sub("\\1\u200b", short)
    return html.escape(_ACTIVE.sub(r"\\\1", apart), quote=False).replace("\\|", "&#124;")


def code(text: object) -> str:
    """Text from outside as a code span that nothing in it can end, in a table cell too."""
    short = figures.shortened(figures.clean(text).replace("|", "¦"), LONGEST_CELL)  # a bar ends the cell even inside a code span
    fence = "`" * (_longest_run(short) + 1)
    pad = " " if short.startswith("`") or short.endswith("`") or not short.strip() else ""
    return f"{fence}{pad}{short}{pad}{fence}"


def block(text: str, language: str = "") -> str:
    """Text from outside as a fenced block that nothing in it can end."""
    cleaned = figures.clean(text, lines=True).rstrip()
    if len(cleaned) > LONGEST_SNIPPET:
        cleaned = cleaned[:LONGEST_SNIPPET] + "\n… (cut; the whole is in result.json)"
    fence = "`" * max(3, _longest_run(cleaned) + 1)
    return f"{fence}{language}\n{cleaned}\n{fence}\n"


def filled_markdown(template: str, **values: Any) -> str:
    """One of the Markdown templates in `reports/` with these values."""
    return _environment(str(folder("reports"))).get_template(template).render(values)


@cache
def _environment(templates: str) -> Environment:
    jinja = environment(templates)
    jinja.filters |= {
        "md": lambda text, longest=LONGEST_CELL: escape(text, longest=longest),
        "code": code,
        "block": block,
        "html": html.escape,
        "clean": figures.clean,
        "us": figures.microseconds,
        "source": figures.source_text,
        "row": lambda cells: f"| {' | '.join(cells)} |",
    }
    return jinja


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall("`+", text)), default=0)


def fingerprint_rows(fingerprint: Fingerprint, where_run: str = "offline: nothing was run") -> list[tuple[str, str]]:
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


class _Kept(FileSystemBytecodeCache):
    """Compiled templates in the user's cache folder; where that cannot be written, none are kept."""

    def dump_bytecode(self, bucket: Bucket) -> None:
        with contextlib.suppress(OSError):
            super().dump_bytecode(bucket)


def environment(templates: str, **options: Any) -> Environment:
    """An environment of the templates in a folder, which fails where one asks for what it was not given.

    Args:
        templates: The folder.
        options: Further options of `jinja2.Environment`.
    """
    place, bytecode = read_settings().cache_dir / "templates", None
    with contextlib.suppress(OSError):
        place.mkdir(parents=True, exist_ok=True)
        bytecode = _Kept(str(place))
    loader = FileSystemLoader(templates)
    return Environment(
        loader=loader,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        bytecode_cache=bytecode,
        auto_reload=False,
        **options,
    )
