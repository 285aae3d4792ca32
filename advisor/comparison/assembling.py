"""What every comparison comes down to: what was asked for, and from its subjects the counts, the headline and the gate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from advisor import __version__
from advisor.advising.targets import Request
from advisor.comparison import gate as gates
from advisor.comparison.kernels.changed_launches import COMPARED, SAME, WORKED_OUT
from advisor.comparison.settings import Settings
from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.learned.base import Predictor
from advisor.rendering import comparison_words as words
from advisor.rendering.comparison_files import answer
from advisor.rendering.figures import shortened
from advisor.result.comparison_schema import (
    MEASURED_WORDS,
    SAME_CODE,
    STATIC_WORDS,
    UNKNOWN,
    Compared,
    ComparisonResult,
    ResourceRow,
    Subject,
    evidence,
)
from advisor.system.resources import phrase, phrases

MOST_NAMED = 2
"""Of what is worst; the rest is counted."""
LAUNCHED = "launched otherwise"
CODE_CHANGED = "whose launch other code works out"
IMPORTING = "importing what changed"
LONGEST_NOTE = 160
"""Characters of what is said of a file, where that is all there is."""
LONGEST_REASON = 120
"""Characters of why it is."""


def counts(subjects: Sequence[Subject]) -> tuple[dict[str, int], dict[str, int]]:
    """Measured and static verdicts, counted, in the order of display."""
    measured = Counter(row.verdict for subject in subjects for row in subject.measured)
    static = Counter(row.verdict for subject in subjects for row in subject.static)
    return (
        {word: measured[word] for word in MEASURED_WORDS if measured[word]},  # type: ignore[index]
        {word: static[word] for word in STATIC_WORDS if static[word]},  # type: ignore[index]
    )


def means(subjects: Sequence[Subject]) -> tuple[float | None, float | None]:
    """Geometric means of the relative changes, measured and predicted; None where fewer than two rows have one."""
    measured = [row.effect.relative for subject in subjects for row in subject.measured if row.effect is not None]
    static = [row.change for subject in subjects for row in subject.static if row.change is not None]
    return _mean(measured), _mean(static)


def _mean(changes: Sequence[float]) -> float | None:
    logs = [math.log1p(change) for change in changes if change > -1]
    return math.expm1(sum(logs) / len(logs)) if len(logs) > 1 else None


def headline(subjects: Sequence[Subject], measured: dict[str, int], static: dict[str, int]) -> str:
    """A sentence that begins with what is certain and large: what is to fail, what compiles again, spills, configurations that are tuned
    over, what is launched with other constants, and registers where none of these is there; then measured verdicts where something was
    run, else predictions, and that they are that; then what could not be told, and without what; and what is worst is named."""
    first = []
    for words_of_kind, is_known in (("Certain to fail", True), ("What runs is unclear", False)):
        failing = [
            f"{' '.join(filter(None, (subject.title, failure.what)))} ({shortened(failure.reason.removeprefix(UNKNOWN), LONGEST_REASON)})"
            for subject in subjects
            for failure in subject.failures
            if failure.reason.startswith(UNKNOWN) is not is_known
        ]
        first += [f"{words_of_kind}: {_several(failing)}"] if failing else []
    again = [subject.title for subject in subjects if _compiles_again(subject)]
    if again:
        first.append(f"{_counted(len(again), 'kernel')} compile{'s' * (len(again) == 1)} again ({_several(again)})")
    if answered := answer(subjects):  # it counts them
        first.append(answered)
    for word, grown in (("New or more spills", True), ("Spills gone or fewer", False)):
        if spills := [text for subject in subjects if (text := _spills(subject, grown))]:
            first.append(f"{word}: {_several(spills)}")
    if tuned := [
        f"{_short_name(subject)} ({_configurations(subject)})"
        for subject in subjects
        if subject.kind == "kernel" and (subject.configurations_added or subject.configurations_removed)
    ]:
        first.append(f"Other configurations to tune over: {_several(tuned)}")
    if launched := [text for subject in subjects if not answered and (text := _launched_with(subject))]:
        first.append(_several(launched))
    if not first and not answered and (registers := [text for subject in subjects if (text := _registers(subject))]):
        first.append(f"Registers per thread: {_several(registers)}")
    named = "; ".join(f"{word}: {_several(worst)}" for word, worst in _worst(subjects).items())
    lacking = words.untimed({_short_name(subject): words.lacking_for_time(subject) for subject in subjects}, ", ", MOST_NAMED)
    last = [f"no time can be predicted for {lacking}"] if lacking else []
    unread = [
        _short_name(subject) for subject in subjects if subject.kind == "kernel" and subject.change == "modified" and _is_silent(subject)
    ]
    if unread and any(subject.static or subject.resources for subject in subjects):
        last.append(f"not compared: {_several(unread)}")
    verdicts, named = ("", "") if answered else (_verdicts(subjects, measured, static, naming=not first or len(subjects) > 1), named)
    parts = [text for text in (*first, verdicts, *last) if text]
    text = "; ".join(part[:1].lower() + part[1:] if number and part in (answered, verdicts) else part for number, part in enumerate(parts))
    return f"{text}. {named[:1].upper()}{named[1:]}" if named else text


def _is_silent(subject: Subject) -> bool:
    return not (subject.static or subject.resources or subject.measured or subject.failures)


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _short_name(subject: Subject) -> str:
    return subject.title.rpartition("::")[2]


def _configurations(subject: Subject) -> str:
    """`18 → 90`, that one side is not tuned, or what came and went where both do not say how many there are; and of how many a note says
    that they cannot launch."""
    came, went = len(subject.configurations_added), len(subject.configurations_removed)
    before, after = subject.configurations
    text = f"{before} → {after}" if before != after else f"{went} replaced" if came == went else f"{came} more, {went} fewer"
    if before != after and not (before and after):
        text = f"{before} → no longer tuned" if before else f"not tuned → {after}"
    unusable = len({note.partition(" on ")[0] for note in subject.notes if PASSED_OVER in note})
    return f"{text}, {unusable} of the new cannot launch" if unusable else text


PASSED_OVER = str(phrases()["answer.passed_over"]).partition(" {")[0]
"""Begins the note on a configuration that cannot launch."""


def _spills(subject: Subject, grown: bool) -> str:
    """The largest change of spills one way: `attn_fwd on H100 0 → 6,232 B`."""
    known = [
        (row.head.spill_bytes - row.base.spill_bytes, row)
        for row in subject.resources
        if not row.guessed
        and row.base is not None
        and row.head is not None
        and _heavy(row)
        and row.base.spill_bytes is not None
        and row.head.spill_bytes is not None
    ]
    worst = max((item for item in known if (item[0] > 0 if grown else item[0] < 0)), key=lambda item: abs(item[0]), default=None)
    if worst is None:
        return ""
    row = worst[1]
    assert row.base is not None and row.head is not None
    return f"{row.kernel} on {row.gpu} {row.base.spill_bytes:,} → {row.head.spill_bytes:,} B per thread"


LIGHT = 0.01
"""Of the bytes that a launch moves, spills that move less are told beside the other resources alone."""


def _heavy(row: ResourceRow) -> bool:
    """Whether what more or less is spilled, stored and loaded again, is a part of what a thread moves; where that is not known, too."""
    spills = [side.spill_bytes or 0 for side in (row.base, row.head) if side is not None]
    return row.thread_bytes is None or 2 * abs(spills[-1] - spills[0]) >= LIGHT * row.thread_bytes


def _worst(subjects: Sequence[Subject]) -> dict[str, list[str]]:
    """The rows that fail, regressed, or are predicted to, by the word for it; where there is more than one subject, with its name. Of
    predictions, only where nothing worse is there."""
    rows_by_word: dict[str, list[str]] = {"failed": [], "cannot launch": [], "regressed": [], "predicted slower": []}
    gpus = {row.gpu for subject in subjects for row in subject.measured} | {row.gpu for subject in subjects for row in subject.static}
    for subject in subjects:
        name = f"{subject.title} " if len(subjects) > 1 else ""
        of_kernel = bool(subject.resources) and all(row.label.startswith("grid ") for row in subject.static)
        of_kernel = of_kernel and len({row.gpu for row in subject.static}) == len(subject.static)
        alike: dict[tuple[str, str, str], list[str]] = {}
        for row in sorted(subject.static, key=lambda row: -abs(row.change or 0.0)):
            change = words.change_text(row.change)
            why = change if row.verdict == "predicted-regressed" else row.reason
            alike.setdefault((STATIC_WORDS[row.verdict], row.gpu, why), []).append(row.label)
        for entry in sorted(subject.measured, key=lambda row: -abs(row.effect.relative if row.effect is not None else 0.0)):
            effect = words.change_text(entry.effect.relative) if entry.effect is not None else entry.reason
            alike.setdefault((entry.verdict, entry.gpu, effect), []).append(entry.label)
        for (word, gpu, why), labels in alike.items():
            on = f" on {gpu}" if len(gpus) > 1 else ""
            if word in rows_by_word:
                what = _short_name(subject) if of_kernel else f"{name}{words.labels_text(labels)}"
                rows_by_word[word].append(f"{what}{on}" + (f" ({shortened(why, LONGEST_REASON)})" if why else ""))
    worst = {word: entry for word, entry in rows_by_word.items() if entry and word != "predicted slower"}
    return worst or {word: item for word, item in rows_by_word.items() if item}


def _several(names: Sequence[str]) -> str:
    more = f", and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _compiles_again(subject: Subject) -> bool:
    """Whether the base of a kernel was certain to be refused, and the head is not."""
    return any(row.base is None and row.head is not None and row.reason and not row.unfinished for row in subject.resources)


LEAST_REGISTERS = 0.1
"""A part of a thread's registers, less than which is no news: 63 → 64."""


def _registers(subject: Subject) -> str:
    """The largest change of registers: `k on H100 24 → 32`; empty where there is none that is news."""
    known = [
        (abs(math.log(row.head.registers_per_thread / row.base.registers_per_thread)), row)
        for row in subject.resources
        if not row.guessed
        and row.base is not None
        and row.head is not None
        and row.base.registers_per_thread
        and row.head.registers_per_thread
    ]
    change, row = max(known, key=lambda item: item[0], default=(0.0, None))
    if row is None or change < math.log1p(LEAST_REGISTERS):
        return ""
    assert row.base is not None and row.head is not None
    return f"{row.kernel} on {row.gpu} {row.base.registers_per_thread} → {row.head.registers_per_thread}"


def _launched_with(subject: Subject) -> str:
    """With what other constants and options a kernel is launched, `BLOCK 64 → 32 of k on H100 (registers 40 → 29)`; empty: with the same,
    or it is tuned."""
    row = next((row for row in subject.resources if row.changed), None)
    if row is None or subject.configurations_added or subject.configurations_removed:
        return ""
    sides = [side for side in (row.base, row.head) if side is not None and not row.guessed]
    registers = [side.registers_per_thread for side in sides if side.registers_per_thread]
    warps = [side.resident_warps_per_sm for side in sides if side.resident_warps_per_sm]
    compiled = f" (registers {' → '.join(map(str, registers))})" if len(set(registers)) == 2 else ""
    if len(set(warps)) == 2:  # they decide more than the registers that allow them
        grid = f", {words.BY_GRID}" * any(side.limiter == "grid" for side in sides)
        compiled = f" (resident warps per SM {' → '.join(map(str, warps))}{grid})"
    return f"{', '.join(row.changed)} of {row.kernel} on {row.gpu}{compiled}"


def _verdicts(subjects: Sequence[Subject], measured: dict[str, int], static: dict[str, int], naming: bool) -> str:
    if measured:
        origin = evidence(row for subject in subjects for row in subject.measured)
        return ", ".join(f"{count} {word}" for word, count in measured.items()) + f" ({origin})"
    if told_rows := {word: count for word, count in static.items() if word != "cannot-tell"}:
        judged = [row for subject in subjects for row in subject.static if row.verdict != "cannot-tell"]
        names = _several([*dict.fromkeys(row.kernel for row in judged if row.kernel)])
        if set(told_rows) == {"predicted-unchanged"} and all(row.reason == SAME_CODE for subject in subjects for row in subject.static):
            return f"{names}: {SAME_CODE}"
        if set(told_rows) == {"within-doubt"}:
            return f"{f'{names}: ' if names and naming else ''}{_doubt(subjects)}: measure both sides to know"
        listed = ", ".join(f"{count} {STATIC_WORDS[word]}" for word, count in told_rows.items())
        return f"{listed}: predictions only, nothing was measured"
    if static:
        return _listed(subjects)
    if any(row.base is not None and row.head is not None for subject in subjects for row in subject.resources):
        return "Compiled resources only: nothing was measured, and nothing could be predicted"
    match subjects:
        case [Subject(kind="file", failures=(), notes=(first, *_))]:
            return shortened(first.rstrip("."), LONGEST_NOTE)
    if subjects:
        gone = all(subject.change == "removed" for subject in subjects)
        return _listed(subjects) if gone else f"{_listed(subjects)}: nothing could be predicted, and nothing was measured"
    return "No kernel and no table changed"


def _doubt(subjects: Sequence[Subject]) -> str:
    """The predicted changes, and that the model's doubt is more: `+0.5 % predicted, less than the model's doubt of ±8 %`."""
    rows = [row for subject in subjects for row in subject.static if row.verdict == "within-doubt"]
    changes = sorted(row.change or 0.0 for row in rows)
    texts = dict.fromkeys(words.change_text(change) for change in (changes[0], changes[-1]))
    return phrase("answer.doubt", count=len(rows), changes=" to ".join(texts), doubt=min(map(words.doubt_text, rows))[1])


_CHANGED = {"modified": "changed", "added": "new", "removed": "removed", "type changed": "changed", "compared": "compared"}


def _listed(subjects: Sequence[Subject]) -> str:
    """What changed of which kind, "1 changed table, 2 new kernels"; kernels and tables apart all are files."""
    kinds = Counter((_word(subject), subject.kind if subject.kind in ("kernel", "table") else "file") for subject in subjects)
    phrases = {False: "{count} {word} {kind}{s}", True: "{count} unchanged {kind}{s} {word}"}
    return ", ".join(
        phrases[word in (LAUNCHED, CODE_CHANGED, IMPORTING)].format(count=count, word=word, kind=kind, s="s" if count > 1 else "")
        for (word, kind), count in kinds.items()
    )


def _word(subject: Subject) -> str:
    notes = [note for note in subject.notes if note.startswith(SAME)] if subject.change == "modified" else []
    if not notes:
        return IMPORTING if phrase("answer.imports_changed") in subject.notes else _CHANGED[subject.change]
    return CODE_CHANGED if all(any(text in note for text in (WORKED_OUT, COMPARED, " changed: the code ")) for note in notes) else LAUNCHED


DEFAULT_GPUS = ("H100", "H200")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked for besides the sides.

    Raises:
        UsageError: There is no such condition in `fail_on`.
    """

    gpus: tuple[str, ...] = ()  # empty: advisor.toml's, else DEFAULT_GPUS
    fail_on: tuple[str, ...] | None = None  # None: advisor.toml's, else the default conditions
    compiling: bool = True
    launches: tuple[Path, ...] = ()  # records of `advisor record`, besides those that advisor.toml names
    settings: Path | None = None  # an advisor.toml that counts in place of the sides' own
    args: Mapping[str, Any] = field(default_factory=dict)  # values of arguments and constants of kernels, before advisor.toml's
    request: Request = field(default_factory=Request)
    command: str = ""
    weights: str | None = None  # of what predicts; None: those in use
    processes: bool = False  # whether many tables may be compared by several, which a script of the user's may not be ready for
    room: str = ""  # what is said of the room that kernels are compiled in

    def __post_init__(self) -> None:
        gates.conditions(self.fail_on or ())  # here, and not after minutes of comparing

    @property
    def records(self) -> list[tuple[str, Path | bytes]]:
        """The records of launches, each with its name."""
        return [(str(path), path) for path in self.launches]


def chosen_gpus(options: Options, settings: Settings) -> tuple[GpuSpec, ...]:
    """The GPUs to predict and compile for: those asked for, else advisor.toml's.

    Raises:
        UnknownGpuError: One is not described.
    """
    return tuple(load_gpu(name) for name in dict.fromkeys(options.gpus or settings.gpus or DEFAULT_GPUS))


def assemble(
    base: Compared,
    head: Compared,
    subjects: Sequence[Subject],
    options: Options,
    settings: Settings,
    predictor: Predictor,
    gpus: Sequence[GpuSpec],
    *,
    warnings: Sequence[str] = (),
    skipped: Sequence[str] = (),
    unjudged: int = 0,
    renamed: Sequence[str] = (),
    around: Sequence[str] = (),
) -> ComparisonResult:
    """The result of the subjects: counts, headline and gate."""
    subjects = _told_apart(subjects)
    wanted = options.fail_on if options.fail_on is not None else settings.fail_on
    conditions = gates.conditions(wanted if wanted is not None else gates.DEFAULT)
    measured, static = counts(subjects)
    measured_mean, static_mean = means(subjects)
    groups = [rows for subject in subjects for rows in (subject.measured, subject.static, subject.resources)]
    shown = dict.fromkeys(gpu for rows in groups for row in cast(Sequence[ResourceRow], rows) for gpu in row.gpu.split(", "))
    return ComparisonResult(
        tool_version=__version__,
        command=options.command,
        base=base,
        head=head,
        gpus=tuple(sorted(shown, key=[*(gpu.name for gpu in gpus), *shown].index)) or tuple(gpu.name for gpu in gpus),
        predictor="; ".join(_sources(subjects)) or predictor.name,
        headline=headline(subjects, measured, static) if subjects or not around else words.around_alone(around),
        measured_counts=measured,
        static_counts=static,
        measured_mean=measured_mean,
        static_mean=static_mean,
        subjects=tuple(subjects),
        gate=gates.gate(subjects, conditions, unjudged=unjudged),
        warnings=tuple(warnings),
        room=options.room,
        skipped=tuple(skipped),
        renamed=tuple(renamed),
        around=tuple(around),
    )


def _told_apart(subjects: Sequence[Subject]) -> list[Subject]:
    """The subjects, tables of one name under their paths: SGLang keeps one for each of several versions of Triton."""
    alike = Counter(subject.title for subject in subjects if subject.kind == "table")
    return [replace(subject, title=subject.path) if alike[subject.title] > 1 else subject for subject in subjects]


def _sources(subjects: Sequence[Subject]) -> list[str]:
    """Where the predictions of the rows come from: of a launch far outside what was learned, not from the predictor asked for."""
    sides = [side for subject in subjects for row in subject.static for side in (row.base, row.head, row.default)]
    return list(dict.fromkeys(side.predicted.source for side in sides if side is not None and side.predicted is not None))
