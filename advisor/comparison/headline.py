"""Counts, means and the sentence that every surface begins with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from advisor.comparison.kernels.kernel_notes import SAME
from advisor.rendering import comparison_words as words
from advisor.result.comparison_schema import MEASURED_WORDS, STATIC_WORDS, Subject, evidence

MOST_NAMED = 2
"""Of what is worst; the rest is counted."""
LAUNCHED = "launched otherwise"
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
    """A sentence that begins with what is certain and large: what is to fail, what no longer compiles or does again, spills, and the
    configurations that are tuned over; then measured verdicts where something was run, else predictions, and that they are that; and what
    is worst is named."""
    certain = [
        f"{' '.join(filter(None, (subject.title, failure.what)))} ({_short(failure.reason)})"
        for subject in subjects
        for failure in subject.failures
    ]
    first = [f"Certain to fail: {_several(certain)}"] if certain else []
    lost = [subject for subject in subjects if _refused(subject, "head") and not subject.failures]
    if lost:
        launches = f"{'its' if len(lost) == 1 else 'their'} launches ({_several([subject.title for subject in lost])})"
        first.append(f"{_counted(len(lost), 'kernel')} no longer compile{'s' * (len(lost) == 1)} with what is known of {launches}")
    again = [subject.title for subject in subjects if _refused(subject, "base")]
    if again:
        first.append(f"{_counted(len(again), 'kernel')} compile{'s' * (len(again) == 1)} again ({_several(again)})")
    for word, grown in (("New or more spills", True), ("Spills gone or fewer", False)):
        if spills := [text for subject in subjects if (text := _spills(subject, grown))]:
            first.append(f"{word}: {_several(spills)}")
    if tuned := [
        f"{_short_name(subject)} ({_configurations(subject)})"
        for subject in subjects
        if subject.kind == "kernel" and (subject.configurations_added or subject.configurations_removed)
    ]:
        first.append(f"Other configurations to tune over: {_several(tuned)}")
    named = "; ".join(f"{word}: {_several(worst)}" for word, worst in _worst(subjects).items())
    text = "; ".join([*first, _verdicts(subjects, measured, static)])
    return f"{text}. {named[:1].upper()}{named[1:]}" if named else text


def _counted(count: int, word: str) -> str:
    return f"{count} {word}{'s' * (count != 1)}"


def _short_name(subject: Subject) -> str:
    return subject.title.rpartition("::")[2]


def _configurations(subject: Subject) -> str:
    """`18 → 90`, or what came and went where both do not say how many there are."""
    came, went = len(subject.configurations_added), len(subject.configurations_removed)
    before, after = subject.configurations
    return f"{before} → {after}" if before != after else f"{went} replaced" if came == went else f"{came} more, {went} fewer"


def _spills(subject: Subject, grown: bool) -> str:
    """The largest change of spills one way: `attn_fwd on H100 0 → 6,232 B`."""
    known = [
        (row.head.spill_bytes - row.base.spill_bytes, row)
        for row in subject.resources
        if row.base is not None and row.head is not None and row.base.spill_bytes is not None and row.head.spill_bytes is not None
    ]
    worst = max((each for each in known if (each[0] > 0 if grown else each[0] < 0)), key=lambda each: abs(each[0]), default=None)
    if worst is None:
        return ""
    row = worst[1]
    assert row.base is not None and row.head is not None
    return f"{row.kernel} on {row.gpu} {row.base.spill_bytes:,} → {row.head.spill_bytes:,} B per thread"


def _worst(subjects: Sequence[Subject]) -> dict[str, list[str]]:
    """The rows that fail, regressed, or are predicted to, by the word for it; where there is more than one subject, with its name. Of
    predictions, only where nothing worse is there."""
    found: dict[str, list[str]] = {"failed": [], "cannot launch": [], "regressed": [], "predicted slower": []}
    gpus = {row.gpu for subject in subjects for row in subject.measured} | {row.gpu for subject in subjects for row in subject.static}
    for subject in subjects:
        name = f"{subject.title} " if len(subjects) > 1 else ""
        of_kernel = bool(subject.resources) and all(row.label.startswith("grid ") for row in subject.static)
        alike: dict[tuple[str, str, str], list[str]] = {}
        for row in sorted(subject.static, key=lambda row: -abs(row.change or 0.0)):
            change = words.change_text(row.change)
            why = change if row.verdict == "predicted-regressed" else row.reason
            alike.setdefault((STATIC_WORDS[row.verdict], row.gpu, why), []).append(row.label)
        for each in sorted(subject.measured, key=lambda row: -abs(row.effect.relative if row.effect is not None else 0.0)):
            effect = words.change_text(each.effect.relative) if each.effect is not None else each.reason
            alike.setdefault((each.verdict, each.gpu, effect), []).append(each.label)
        for (word, gpu, why), labels in alike.items():
            on = f" on {gpu}" if len(gpus) > 1 else ""
            if word in found:
                what = _short_name(subject) if of_kernel else f"{name}{words.labels_text(labels)}"
                found[word].append(f"{what}{on}" + (f" ({_short(why)})" if why else ""))
    worst = {word: each for word, each in found.items() if each and word != "predicted slower"}
    return worst or {word: each for word, each in found.items() if each}


def _several(names: Sequence[str]) -> str:
    more = f", and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return ", ".join(names[:MOST_NAMED]) + more


def _short(reason: str) -> str:
    return reason if len(reason) <= LONGEST_REASON else reason[: LONGEST_REASON - 1].rstrip() + "…"


def _refused(subject: Subject, side: str) -> bool:
    """Whether one side of a kernel was refused where the other was compiled with the same; one that was removed gives no reason."""
    other = {"head": "base", "base": "head"}[side]
    return any(
        getattr(row, side) is None and getattr(row, other) is not None and row.reason and not row.unfinished for row in subject.resources
    )


def _verdicts(subjects: Sequence[Subject], measured: dict[str, int], static: dict[str, int]) -> str:
    if measured:
        origin = evidence(row for subject in subjects for row in subject.measured)
        return ", ".join(f"{count} {word}" for word, count in measured.items()) + f" ({origin})"
    if static:
        listed = ", ".join(f"{count} {STATIC_WORDS[word]}" for word, count in static.items())
        return f"{listed}: predictions only, nothing was measured"
    if any(subject.resources for subject in subjects):
        return "Compiled resources only: nothing was measured, and nothing could be predicted"
    if subjects:
        gone = all(subject.change == "removed" for subject in subjects)
        return _listed(subjects) if gone else f"{_listed(subjects)}: nothing could be predicted, and nothing was measured"
    return "No kernel and no table changed"


_CHANGED = {"modified": "changed", "added": "new", "removed": "removed", "type changed": "changed", "compared": "compared"}


def _listed(subjects: Sequence[Subject]) -> str:
    """What changed of which kind, "1 changed table, 2 new kernels"; kernels and tables apart all are files."""
    kinds = Counter((_word(each), each.kind if each.kind in ("kernel", "table") else "file") for each in subjects)
    phrases = {False: "{count} {word} {kind}{s}", True: "{count} unchanged {kind}{s} {word}"}
    return ", ".join(
        phrases[word == LAUNCHED].format(count=count, word=word, kind=kind, s="s" if count > 1 else "")
        for (word, kind), count in kinds.items()
    )


def _word(subject: Subject) -> str:
    same = subject.change == "modified" and any(note.startswith(SAME) for note in subject.notes)
    return LAUNCHED if same else _CHANGED[subject.change]
