"""A comparison in words: what its surfaces say alike."""

from __future__ import annotations

import argparse
import math
import re
import shlex
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

from advisor.rendering import figures
from advisor.result.comparison_schema import (
    ELSEWISE,
    MEASURED_WORDS,
    PREDICTED_TAU,
    SAME_CODE,
    SHARED_ERROR,
    STATIC_WORDS,
    WRITES,
    Compared,
    ComparisonResult,
    MeasuredRow,
    ResourceRow,
    Resources,
    StaticRow,
    StaticSide,
    Subject,
)
from advisor.result.schema import Finding, Latency, Recommendation
from advisor.system import grouped
from advisor.system.resources import phrase

MARKS = {
    "regressed": "🔴",
    "failed": "🔴",
    "cannot-launch": "🔴",
    "predicted-regressed": "🟠",
    "inconclusive": "🟡",
    "not comparable": "⚪",
    "improved": "🟢",
    "predicted-improved": "🟢",
    "launches-again": "🟢",
    "new": "🔵",
    "missing": "⚪",
    "unchanged": "",
    "predicted-unchanged": "",
    "never-launches": "⚪",
    "within-doubt": "⚪",
    "cannot-tell": "⚪",
}
"""A sign beside each verdict's word; never without it."""

QUIET = frozenset({"unchanged", "predicted-unchanged", "within-doubt", "cannot-tell", "never-launches"})
"""Verdicts whose rows are folded."""


REASONED = frozenset({"failed", "cannot-launch", "not comparable", "cannot-tell", "within-doubt"})
"""Static verdicts that mean little without their reason."""


def verdict_word(verdict: str) -> str:
    """A verdict in words."""
    return STATIC_WORDS.get(verdict, verdict)


def lacking_for_time(subject: Subject) -> str:
    """Without what the time of a subject cannot be told, in words; empty: it can, or nothing was asked."""
    gpus: dict[str, dict[str, None]] = {}
    for row in subject.static:
        if row.verdict == "cannot-tell":
            gpus.setdefault(row.reason, {})[row.gpu] = None
    everywhere = gpu_count(subject)
    reasons = [reason if len(names) == everywhere else f"on {', '.join(names)} {reason}" for reason, names in gpus.items()]
    alone = [row for row in subject.resources if (row.base is None) != (row.head is None) and row.unfinished and row.reason]
    reasons += [f"as the {'base' if row.base is None else 'head'} could not be compiled" for row in alone]
    return " or ".join(dict.fromkeys(reasons))


def untimed_line(comparison: ComparisonResult) -> str:
    """One line for all whose time cannot be told: `Cannot tell the time of k without n.`, with files where several kernels are called so;
    empty: there is nothing."""
    titles = [subject.title for subject in comparison.subjects]
    often = Counter(title.rpartition("::")[2] for title in titles)
    names = [name if often[name := title.rpartition("::")[2]] == 1 else title for title in titles]
    text = untimed(dict(zip(names, map(lacking_for_time, comparison.subjects), strict=True)), ", of ", MOST_LISTED)
    return f"Cannot tell the time of {text}." if text else ""


def untimed(reasons: Mapping[str, str], joint: str, most: int) -> str:
    """Kernels whose time cannot be told, with why: `a and b without n, c without its grid`; those of one reason are named together, and of
    more than `most` reasons it is said of how many kernels they are; empty: of all of them it can be told."""
    alike = grouped((reason, name) for name, reason in reasons.items() if reason)
    texts = [f"{', '.join(names[:MOST_LISTED])}{_more(len(names) - MOST_LISTED)} {reason}" for reason, names in alike.items()]
    return joint.join(texts[:most]) + _more(sum(len(names) for names in list(alike.values())[most:]))


def _more(count: int) -> str:
    return f", and {count} more" if count > 0 else ""


def hints(comparison: ComparisonResult, lacking: bool) -> list[str]:
    """What advisor.toml may say of kernels: of those whose time cannot be told, or (not `lacking`) that were judged at typical sizes."""
    return [subject.hint for subject in comparison.subjects if subject.hint and bool(lacking_for_time(subject)) is lacking]


def measuring(comparison: ComparisonResult) -> list[str]:
    """Commands that measure both sides, on a machine with the GPU, where predictions cannot tell them apart; none: they can, or the sides
    are no revisions."""
    sides = [(side.revision or "")[:12] for side in (comparison.base, comparison.head)]
    doubtful = [subject for subject in comparison.subjects if any(row.verdict == "within-doubt" for row in subject.static)]
    if not doubtful or not all(sides):
        return []
    kernels = [subject.title.rpartition("::")[2] for subject in doubtful if subject.kind == "kernel"]
    if kernels:
        one = f"::{kernels[0]}" if len(kernels) == 1 else ""
        steps = ["advisor record --contents all -o $side.jsonl -- $PROGRAM", f"advisor measure $side.jsonl{one} -o $side.csv"]
    else:  # a table, for the model that it was compared for
        sizes = next((problem.sizes for row in doubtful[0].static for problem in row.problems), {})
        model = f" --hidden-size {sizes['H']} --top-k {sizes['topk']}" if "topk" in sizes else ""
        steps = [f"advisor measure {shlex.quote(subject.path)}{model} -o $side.csv" for subject in doubtful]
    return [
        *(["PROGRAM='python PROGRAM.py'  # your own, that launches the kernel"] if kernels else []),
        f"for side in {' '.join(sides)}; do git checkout --quiet $side && {' && '.join(steps)} || break; done",
        f"advisor compare {sides[0]}.csv {sides[1]}.csv",
    ]


def searching(comparison: ComparisonResult) -> str:
    """The command that looks for a better configuration than that of the head, where one kernel is launched with another; empty where none
    is, or several."""
    kernels = [subject for subject in comparison.subjects if subject.kind == "kernel" and timed_rows(subject.static)]
    changed = [row for subject in kernels for row in timed_rows(subject.static) if row.changed and row.base and row.head]
    listed = any(subject.configurations_added or subject.configurations_removed for subject in kernels)  # what a tuner chooses from
    if len(kernels) != 1 or listed or not changed or not changed[0].head or not changed[0].head.configuration:
        return ""
    sizes = changed[0].problems[0].sizes if len(changed[0].problems) == 1 else {}
    given = [word for name, value in sizes.items() if name != "programs" for word in ("--arg", f"{name}={value}")]
    typed = argparse.ArgumentParser(add_help=False)
    typed.add_argument("--signature", action="append", default=[])
    types = typed.parse_known_args(shlex.split(comparison.command))[0].signature
    given += [word for item in types for word in ("--signature", re.sub(r"=\s*\*?", "=*", item))]  # `advise` takes scalars too
    return shlex.join(["advisor", "advise", kernels[0].title, "--gpu", changed[0].gpu, *given])


def timed_rows(rows: Sequence[StaticRow]) -> list[StaticRow]:
    """The rows that say something of a time; what the others lack is said once for all of a comparison."""
    return [row for row in rows if row.verdict != "cannot-tell"]


def static_order(rows: Sequence[StaticRow]) -> list[StaticRow]:
    """As verdicts are ordered, the largest change first within one; unchanged rows as they come."""
    rank = {word: number for number, word in enumerate(STATIC_WORDS)}
    return sorted(rows, key=lambda row: (rank[row.verdict], 0.0 if row.verdict in QUIET else -abs(row.change or 0.0)))


def reason_of(row: StaticRow) -> str:
    """Why a row has its verdict, where that means little without, or what it comes from."""
    return row.reason if row.verdict in REASONED or row.reason == SAME_CODE else row.cause


def reasoned(rows: Sequence[StaticRow]) -> list[tuple[StaticRow, str]]:
    """The rows in order, each with why it has its verdict, where the verdict means little without. What another row of the GPU has said is
    not said anew: of a file that cannot be read it is the same for all."""
    first: dict[tuple[str, str], StaticRow] = {}
    out = []
    for row in static_order(rows):
        reason = reason_of(row)
        first_row = first.setdefault((row.gpu, reason), row)
        out.append((row, reason if first_row is row or not reason else f"as for {first_row.label}"))
    return out


def measured_order(rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    """As verdicts are ordered, the largest change first within one; unchanged rows as they come."""
    rank = {word: number for number, word in enumerate(MEASURED_WORDS)}
    return sorted(
        rows, key=lambda row: (rank[row.verdict], 0.0 if row.effect is None or row.verdict in QUIET else -abs(row.effect.relative))
    )


def change_text(change: float | None) -> str:
    """`+3.1 %`, `−0.4 %`, `0 %` where nothing changed, `-` where there is nothing to compare; `45 times`
    from ten times on."""
    if change is None:
        return "-"
    if abs(change) < 5e-4:
        return "0 %"
    if change >= 9:
        return f"{1 + change:.0f} times"
    sign = "+" if change > 0 else "−"
    return f"{sign}{abs(100 * change):.1f} %"


def effect_text(row: MeasuredRow) -> str:
    """`+3.1 % [+2.6, +3.5]`: the change and its 99 % interval."""
    if row.effect is None:
        return "-"
    low, high = (100 * value for value in (row.effect.low, row.effect.high))
    return f"{change_text(row.effect.relative)} [{low:+.1f}, {high:+.1f}]".replace("-", "−")


def latency_text(latency: Latency | None, *, absent: str = "-") -> str:
    """Microseconds, without the unit."""
    return figures.microseconds(latency.us) if latency is not None else absent


def side_text(side: StaticSide | None) -> str:
    """The prediction of a side, or that it cannot launch."""
    return latency_text(side.predicted, absent="cannot launch") if side is not None else "-"


def interval_text(latency: Latency | None) -> str:
    """`12.1–15.8`: the interval in microseconds; empty where there is none."""
    if latency is None or latency.low_us is None or latency.high_us is None:
        return ""
    return f"{figures.microseconds(latency.low_us)}–{figures.microseconds(latency.high_us)}"


def gate_mark(comparison: ComparisonResult) -> str:
    """A sign beside the gate: passed for certain only where nothing is predicted slower, and no measurement is open."""
    verdicts: set[str] = {row.verdict for subject in comparison.subjects for row in subject.static}
    verdicts |= {row.verdict for subject in comparison.subjects for row in subject.measured}
    return "❌" if comparison.gate.failed else MARKS["predicted-regressed"] if verdicts & {"predicted-regressed", "inconclusive"} else "✅"


def assumed_sizes(rows: Iterable[StaticRow]) -> str:
    """Where the sizes in labels come from that no one said; empty: none is there."""
    return phrase("answer.typical") if any("typical " in row.label for row in rows) else ""


def what_counts() -> str:
    """From where on a predicted change counts, a sentence."""
    return phrase("answer.counts", least=figures.percent(PREDICTED_TAU), part=SHARED_ERROR)


def doubt_text(row: StaticRow) -> tuple[float, str]:
    """The least change of a row that its predictions can tell, as a logarithm and, the way it went, as `8 %`."""
    known = [side.predicted for side in (row.base or row.default, row.head) if side is not None and side.predicted is not None]
    least = max(doubt_of(*known), math.log1p(PREDICTED_TAU))
    return least, figures.percent(share_of(least, row.change))


def share_of(least: float, change: float | None) -> float:
    """A change's logarithm as a share of what was, as a change of that direction is told: 23 % more, or 19 % less."""
    return -math.expm1(-least) if (change or 0.0) < 0 else math.expm1(least)


def doubt_of(*latencies: Latency) -> float:
    """By how much (a logarithm) two predictions of one problem have to differ to tell which is less: `SHARED_ERROR` of what the
    wider interval allows.

    Of the published sweeps pairs of configurations are predicted to 2 % (80 %, in what was learned); further out intervals are wider, and
    most of what they allow is the problem's and common to both.
    """
    widths = [math.log(latency.high_us / latency.low_us) / 2 for latency in latencies if latency.low_us and latency.high_us]
    return SHARED_ERROR * max(widths, default=0.0)


INSTRUCTIONS = " instructions"
SAME_WORK = " (for the same work)"
BY_GRID = "as many as the grid has"
"""Said of resident CTAs where the code would allow more."""
A_CTA_S = "synchronisation"
"""The class of instructions that a CTA meets as often, however many warps it has."""


def compiled_cells(row: ResourceRow) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
    """`resource_cells`, apart: resources, and counts of instructions in the code, which loops run any number of times."""
    cells = resource_cells(row)
    return [cell for cell in cells if INSTRUCTIONS not in cell[0]], [cell for cell in cells if INSTRUCTIONS in cell[0]]


def share_text(ceiling: Latency | None, latency: Latency | None) -> str:
    """The share of the tunable ceiling that a latency reaches."""
    return figures.share_text(figures.share_of(ceiling.us, latency.us)) if ceiling is not None and latency is not None else "-"


def configuration_change(row: StaticRow) -> list[str]:
    """What differs between the configurations of the sides, or all of head's where the base has none."""
    if row.head is None or row.head.configuration is None:
        return []
    against = row.base or row.default
    if row.base is not None and not row.changed:
        return []
    return figures.changes(against.configuration if against else None, row.head.configuration)


LABELS_SHOWN = 4
"""Of rows that are told together."""


def labels_text(labels: Sequence[str]) -> str:
    """`M=1, M=2, M=4, M=8 and 14 more`."""
    return ", ".join(labels[:LABELS_SHOWN]) + (f" and {len(labels) - LABELS_SHOWN} more" if len(labels) > LABELS_SHOWN else "")


def worse(rows: Sequence[StaticRow]) -> list[StaticRow]:
    """The rows that look worse than what they replace."""
    return [row for row in rows if row.verdict in ("predicted-regressed", "cannot-launch", "failed")]


def below_default(rows: Sequence[StaticRow]) -> list[StaticRow]:
    """Rows that a change left predicted slower than the stack's default, by as much as counts as a change, and beyond half of what the
    interval allows."""
    below = []
    for row in rows:
        head = row.head.predicted if row.head is not None else None
        default = row.default.predicted if row.default is not None else None
        if head is not None and default is not None and row.compared_with == "base" and row.changed:
            least = min(head.us / 1.05, (head.us * (head.low_us or head.us)) ** 0.5)
            below += [row] if least > default.us else []
    return below


def how_much_worse(row: StaticRow) -> str:
    """By how much a row is slower than what it replaces, or its verdict."""
    return change_text(row.change) if row.change is not None else verdict_word(row.verdict)


def against_default(row: StaticRow) -> str:
    """The change from the stack's default; empty where one of the two is not predicted."""
    head, default = (side.predicted if side is not None else None for side in (row.head, row.default))
    return change_text(head.us / default.us - 1) if head is not None and default is not None else ""


def likely_causes(row: StaticRow) -> list[Finding]:
    """The findings that may be why the head is slower: where bytes or code are a cause, those alone that would save something."""
    return [item for item in row.new_findings if item.saving_us or not row.cause]


def cured_rules(rows: Iterable[StaticRow]) -> list[tuple[str, int]]:
    """The rules whose findings count no more in the head of rows that are not slower, and how often, the most frequent first."""
    return Counter(item.rule for row in rows if (row.change or 0.0) <= 0 for item in row.cured_findings).most_common()


def own_notes(subject: Subject, common: Container[str]) -> list[str]:
    """The notes of a subject that are not said of many."""
    return [note for note in subject.notes if of_any(note, subject) not in common]


def by_weight(rows: Sequence[ResourceRow]) -> tuple[list[ResourceRow], int]:
    """The rows that matter before the others, and how many do."""
    return sorted(rows, key=lambda row: not resources_matter(row)), sum(map(resources_matter, rows))


def unlike(cells: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """Those of some cells that are another in head."""
    return [cell for cell in cells if cell[1] != cell[2]]


def resource_cells(row: ResourceRow) -> list[tuple[str, str, str]]:
    """(name, base, head) of what the compiler says, with only the instruction classes that differ between two versions that compile: where
    a thread of the head does more or less, its instructions for what one of the base does; whose they are, `whose_code` says."""
    if row.unfinished and (row.base is None) != (row.head is None):  # alone it says nothing of the change
        return []
    cells = [(name, _figure(row.base, key), _figure(row.head, key)) for name, key in _RESOURCES]
    held = [(side.resident_ctas_per_sm, side.resident_warps_per_sm) for side in (row.base, row.head) if side is not None]
    warps = _warps_of_a_cta(row)
    other_warps = len(set(warps)) > 1
    if other_warps:  # of CTAs of other sizes the number alone says nothing of occupancy
        base, head = (f"{ctas:,} ({warps:,} warps)" for ctas, warps in held)
        cells[-1] = (cells[-1][0], base, head)
    if any(side is not None and side.limiter == "grid" for side in (row.base, row.head)):
        cells[-1] = (f"{cells[-1][0]} ({BY_GRID})", *cells[-1][1:])
    mixes = [side.instruction_mix if side is not None else {} for side in (row.base, row.head)]
    for kind in sorted({*mixes[0], *mixes[1]}) if all(mixes) and row.work else ():
        counts = [mixes[0].get(kind, 0), mixes[1].get(kind, 0) / row.work]
        if other_warps and kind == A_CTA_S:
            counts[1] *= warps[0] / warps[1]
        elif other_warps:
            counts = [warps[0] * count for count in counts]
        before, after = (f"{count:.2g}" if count < 10 else f"{count:,.0f}" for count in counts)
        if before != after:
            cells.append((kind + INSTRUCTIONS + SAME_WORK * (abs(row.work - 1) > 0.01), before, after))
    return cells


def _warps_of_a_cta(row: ResourceRow) -> list[float]:
    """Of either side, where it is known."""
    held = [(side.resident_ctas_per_sm, side.resident_warps_per_sm) for side in (row.base, row.head) if side is not None]
    return [warps / ctas for ctas, warps in held if ctas and warps]


def whose_code(row: ResourceRow) -> str:
    """Whose instructions are counted: one warp's, or where the sides have other numbers of warps those of all."""
    return "of all warps of a CTA" if len(set(_warps_of_a_cta(row))) > 1 else "of one warp"


_RESOURCES = (
    ("registers per thread", "registers_per_thread"),
    ("spills (B per thread)", "spill_bytes"),
    ("shared memory (B)", "shared_memory_bytes"),
    ("resident CTAs per SM", "resident_ctas_per_sm"),
)


def _figure(side: Resources | None, key: str) -> str:
    value = getattr(side, key) if side is not None else None
    return f"{value:,}" if value is not None else "-"


def the_same(row: ResourceRow) -> str:
    """What two versions of which no cell differs have in common; instructions only where they were counted."""
    mixes = [side.instruction_mix if side is not None else {} for side in (row.base, row.head)]
    if all(mixes) and (row.work or mixes[0] == mixes[1]):
        return "the same resources, and as many instructions"
    why = "are not compared, for programs do not all do the same" if all(mixes) else "were not counted"
    return f"the same resources; instructions {why}"


def resources_matter(row: ResourceRow) -> bool:
    """Whether what the compiler made of the head may decide something: one side alone, spills, or another number of CTAs on an SM."""
    if row.reason or row.base is None or row.head is None:
        return True
    sides = [(side.spill_bytes, side.resident_ctas_per_sm) for side in (row.base, row.head)]
    return sides[0] != sides[1]


OFTEN = 3
"""Kernels of which the same is said: then it is said once."""


def rank(subject: Subject) -> int:
    """Where a subject stands among others: what is certain to fail first, then what spills or is refused now, then predictions."""
    verdicts = {row.verdict for row in subject.measured} | {row.verdict for row in subject.static}
    if verdicts & {"failed", "regressed", "cannot-launch"} or subject.failures:
        return 0
    if any(row.base is not None and (row.head is None or _spills(row.head) > _spills(row.base)) for row in subject.resources):
        return 1
    if verdicts & {"predicted-regressed", "inconclusive"} or any(issue.severity == "error" for issue in subject.new_issues):
        return 2
    return 3 if verdicts - QUIET else 4


def _spills(side: Resources) -> int:
    return side.spill_bytes or 0


AUDITED = "Audited, and not predicted"
"""Begins the note on a table for whose prediction there was no time."""


def is_brief(subject: Subject) -> bool:
    """Whether all there is to say of a kernel is that it came, went or changed, or of a table that it changed."""
    if any((timed_rows(subject.static), subject.measured, subject.resources, subject.failures, subject.new_issues, subject.cured_issues)):
        return False
    if subject.kind == "kernel":
        return not (subject.configurations_added or subject.configurations_removed) and len(subject.notes) <= 1
    return any(AUDITED in note for note in subject.notes)


MOST_BRIEF = 8
"""Kernels of which the same is said that have a line each; more are counted, and listed in a fold."""


def brief_lines(subjects: Sequence[Subject]) -> dict[str, list[str]]:
    """What there is to say of such subjects, with the titles of those of which it is."""
    return grouped(("; ".join([subject_sentence(subject), *subject.notes[:1]]), subject.title) for subject in subjects)


def is_unchanged(subject: Subject) -> bool:
    """Whether a kernel is the same code, launched alike, and takes as long: of several kernels that is no more than a line."""
    sides = [(row.verdict, row.changed) == ("predicted-unchanged", False) for row in timed_rows(subject.static)]
    sides += [row.base == row.head and not row.reason and not row.changed for row in subject.resources]
    others = subject.measured, subject.failures, subject.new_issues, subject.cured_issues, subject.notes[1:]
    return subject.kind == "kernel" and all(sides) and not any((*others, subject.configurations_added, subject.configurations_removed))


def of_any(note: str, subject: Subject) -> str:
    """A note as it would be of any kernel."""
    name = subject.title.partition("::")[2]
    return note.replace(subject.title, "FILE.py::KERNEL").replace(name, "KERNEL") if name else note


def common_notes(subjects: Sequence[Subject]) -> dict[str, int]:
    """What is said of many kernels, with how many these are."""
    counts = Counter(note for subject in subjects if subject.kind == "kernel" for note in {of_any(note, subject) for note in subject.notes})
    return {note: count for note, count in sorted(counts.items()) if count >= OFTEN}


def gpu_count(subject: Subject) -> int:
    """How many GPUs its rows are for."""
    return len({row.gpu for row in subject.static} | {row.gpu for row in subject.measured})


def has_ceiling(subject: Subject) -> bool:
    """Whether a tunable ceiling is known for one of its predicted rows."""
    return any(row.ceiling is not None for row in subject.static)


def conditions(comparison: ComparisonResult) -> str:
    """The operand types and what the L2 holds in the predicted rows, `; bf16; warm L2`; empty where nothing was predicted."""
    problems = [problem for subject in comparison.subjects for row in subject.static for problem in row.problems]
    types, caches = (sorted({getattr(problem, name) for problem in problems}) for name in ("dtype", "cache"))
    return f"; {', '.join(types)}; {' and '.join(caches)} L2" if problems else ""


def assumed_cache(comparison: ComparisonResult) -> str:
    """What the predictions take the L2 to hold, a sentence; "": nothing was predicted, or the headline says so."""
    rows = (row for subject in comparison.subjects for row in timed_rows(subject.static))
    states = " or ".join(sorted({problem.cache for row in rows for problem in row.problems}))
    return phrase("answer.state", state=states) if states and phrase("answer.cache", state=states) not in comparison.headline else ""


def advice_text(advice: Recommendation) -> str:
    """What is advised, to paste: a table's entry, or a `triton.Config`."""
    return advice.triton_config if advice.table_entry is None else str(advice.table_entry).replace("'", '"')


def subject_sentence(subject: Subject) -> str:
    """What happened to a subject, with its counts."""
    words = {"compared": "", "modified": "changed", "added": "new", "removed": "removed", "type changed": "changed type"}
    word = "not compared" if phrase("answer.imports_changed") in subject.notes else words[subject.change]
    parts = [word] if word else []
    for rows, names in ((subject.measured, MEASURED_WORDS), (timed_rows(subject.static), tuple(STATIC_WORDS))):
        for name in names:
            count = sum(row.verdict == name for row in rows)  # type: ignore[attr-defined]
            if count:
                parts.append(f"{count} {verdict_word(name)}")
    return ", ".join(parts)


def compared_text(side: Compared) -> str:
    """`main (1a2b3c4d5e6f)`."""
    return f"{side.label} ({side.revision[:12]})" if side.revision else side.label


MOST_LISTED = 8
FIRST_LISTED = 3


def first_listed(items: Sequence[str]) -> Sequence[str]:
    """Those that are listed: all, or of more than `MOST_LISTED` the first, for nobody reads on."""
    return items if len(items) <= MOST_LISTED else items[:FIRST_LISTED]


"""Configurations that came, or went, that are named."""


MOST_AROUND = 6
"""Functions around kernels that are named; the rest is counted."""


def around_alone(around: Sequence[str]) -> str:
    """The headline where nothing changed but functions around kernels."""
    marks = (WRITES, f"{ELSEWISE} ")
    named = (item.partition("::")[2].partition(": ")[0] for item in around)
    names = grouped((next((mark for mark in marks if mark in item), ""), item) for item in named)
    sentences = (
        ("writing", [item.partition(" (")[0] for item in names.get(marks[0], ())]),
        ("foreign", names.get(marks[1], [])),
        ("others" if names.keys() - {""} else "alone", names.get("", [])),
    )
    return "; ".join(phrase(f"answer.around_{word}", functions=_around(listed)) for word, listed in sentences if listed)


def around_kernels(comparison: ComparisonResult) -> list[str]:
    """Which functions around kernels changed, by file, and what of them is compared; then what changed of that, each with its function.
    Empty: none, or the headline says so."""
    shown = comparison.around[:MOST_AROUND]
    if not any(": " in item for item in shown) and not comparison.subjects and len(comparison.around) <= MOST_AROUND:
        return []
    named = grouped(item.partition(": ")[0].partition("::")[::2] for item in shown)
    last = [path.rpartition("/")[2] for path in named]
    files = [f"{name if last.count(name) == 1 else path}: {', '.join(named[path])}" for path, name in zip(named, last, strict=True)]
    kind = "around" if any(": " in item for item in comparison.around) else "around_quiet"
    line = phrase(f"answer.{kind}", functions="; ".join(files) + _more(len(comparison.around[MOST_AROUND:])))
    return [line, *(item.partition("::")[2].replace(": ", " ", 1) for item in shown if ": " in item)] if shown else []


def _around(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_AROUND]) + _more(len(names[MOST_AROUND:]))
