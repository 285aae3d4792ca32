"""What makes a comparison fail. The exit code, the comment and the page all read the `Gate` that is made here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from advisor.rendering.comparison_words import labels_text, lacking_for_time
from advisor.rendering.figures import share_text
from advisor.result.comparison_schema import Gate, MeasuredRow, StaticRow, Subject
from advisor.system.errors import UsageError
from advisor.system.resources import phrase

CONDITIONS: dict[str, str] = {
    "regressed": "a measured regression",
    "inconclusive": "a measurement that settles nothing",
    "failed": "a launch that failed or wrote something wrong, or is certain to",
    "cannot-launch": "a configuration that cannot launch, and could before or is new",
    "spills": "registers that spill, and did not before",
    "predicted-regressed": "a predicted regression",
}
DEFAULT = ("regressed", "failed", "cannot-launch")
"""Only what is certain: measured regressions, failures, and launches that must fail."""

_CEILING = re.compile(r"ceiling<(\d{1,3}(?:\.\d+)?)%?")
SHOWN = 8


def conditions(words: Sequence[str]) -> tuple[str, ...]:
    """The conditions named, checked; `none` alone stands for no condition.

    Raises:
        UsageError: One is not known.
    """
    out = tuple(dict.fromkeys(word.strip() for word in words if word.strip()))
    if out == ("none",):
        return ()
    if "none" in out:
        raise UsageError("--fail-on: `none` stands alone", ",".join(out), "either `none` or conditions", "leave one of them out")
    for word in out:
        if word not in CONDITIONS and not _CEILING.fullmatch(word):
            raise UsageError("--fail-on: no such condition", word, "one of " + ", ".join((*CONDITIONS, "ceiling<PERCENT", "none")))
    return out


def gate(subjects: Sequence[Subject], wanted: tuple[str, ...], *, unjudged: int = 0) -> Gate:
    """Whether the subjects pass; `unjudged` files were past the limit of what is compared."""
    triggered = [sentence for condition in wanted for sentence in _triggers(subjects, condition)]
    listed = ", ".join(wanted) or "nothing"
    if not subjects:
        sentence = "Nothing was compared: no kernel and no table that can be read changed."
    elif not triggered and not comparable(subjects):
        sentence = "Nothing could be compared: no row has two sides that can be."
    elif not triggered:
        sentence = f"Passed: nothing that gates ({listed})." if wanted else "Nothing gates (--fail-on none)."
        untimed = sum(bool(lacking_for_time(subject)) for subject in subjects)
        sentence += f" {phrase('answer.unjudged', count=untimed)}" if untimed else ""
        slower = [_with_change(subject, row) for subject in subjects for row in subject.static if row.verdict == "predicted-regressed"]
        if slower:
            which = ", ".join(slower[:SHOWN]) + (f" and {len(slower) - SHOWN} more" if len(slower) > SHOWN else "")
            sentence += " " + phrase("answer.slower", count=len(slower), which=which)
    else:
        shown = "; ".join(triggered[:SHOWN]) + (f"; and {len(triggered) - SHOWN} more" if len(triggered) > SHOWN else "")
        sentence = f"Not passed: {shown}."
    if unjudged:
        sentence += f" {unjudged} more {'file was' if unjudged == 1 else 'files were'} not judged."
    return Gate(conditions=wanted, triggered=tuple(triggered), failed=bool(triggered), sentence=sentence)


def comparable(subjects: Sequence[Subject]) -> bool:
    """Whether a row has two sides that can be compared, or there are no rows. In folders and revisions, what comes and goes is a change
    like others; and where nothing but new rows is there, no baseline was."""
    verdicts: set[str] = {row.verdict for subject in subjects for row in subject.measured}
    verdicts |= {row.verdict for subject in subjects for row in subject.static}
    if all(subject.change == "compared" for subject in subjects) and {"new", "missing"} <= verdicts:
        return bool(verdicts - {"new", "missing", "not comparable"})
    return verdicts != {"not comparable"}


def _triggers(subjects: Sequence[Subject], condition: str) -> Iterator[str]:
    limit = _CEILING.fullmatch(condition)
    for subject in subjects:
        for row in subject.measured:
            if limit:
                yield from _below_measured(subject, row, float(limit[1]))
            elif row.verdict == condition:
                yield f"{condition}: {_name(subject, row)} ({row.reason})"
        alike: dict[tuple[str, str], list[str]] = {}
        for static in subject.static:
            if limit:
                yield from _below(subject, static, float(limit[1]))
            elif static.verdict == condition and static.change is not None:
                yield f"{condition}: {_with_change(subject, static)}"
            elif static.verdict == condition:
                alike.setdefault((static.gpu, static.reason), []).append(static.label)
        for (gpu, reason), labels in alike.items():  # a file that cannot be read is one reason for every row
            yield f"{condition}: {subject.title} {labels_text(labels)} on {gpu} ({reason})"
        for failure in subject.failures:
            if failure.condition == condition:
                yield f"{condition}: {' '.join(filter(None, (subject.title, failure.what)))} ({failure.reason})"
        if condition == "spills":
            yield from _spills(subject)
        if condition == "cannot-launch":
            for compiled in subject.resources:
                if compiled.base and compiled.head and compiled.base.resident_ctas_per_sm and compiled.head.resident_ctas_per_sm == 0:
                    yield f"cannot-launch: {compiled.kernel} {compiled.label} on {compiled.gpu} (as compiled, no CTA fits an SM)"


def _with_change(subject: Subject, row: StaticRow) -> str:
    change = f" ({100 * row.change:+.1f} %)" if row.change is not None else ""
    return f"{_name(subject, row)}{change}"


def _spills(subject: Subject) -> Iterator[str]:
    """Compiled on both sides, or new: the model's guess at registers does not gate."""
    for row in subject.resources:
        before = row.base.spill_bytes if row.base is not None else 0
        after = row.head.spill_bytes if row.head is not None else None
        if after and before is not None and after > before:
            yield f"spills: {row.kernel} {row.label} on {row.gpu} ({before} to {after} bytes per thread)"


def _below(subject: Subject, row: StaticRow, percent: float) -> Iterator[str]:
    now = row.head.predicted if row.head is not None else None
    if row.changed and now is not None and row.ceiling is not None and 100 * row.ceiling.us < percent * now.us:
        yield f"ceiling<{percent:g}: {_name(subject, row)} (predicted at {share_text(row.ceiling.us / now.us)} of the ceiling)"


def _below_measured(subject: Subject, row: MeasuredRow, percent: float) -> Iterator[str]:
    if row.head is not None and row.ceiling is not None and 100 * row.ceiling.us < percent * row.head.us:
        yield f"ceiling<{percent:g}: {_name(subject, row)} (measured at {share_text(row.ceiling.us / row.head.us)} of the ceiling)"


def _name(subject: Subject, row: MeasuredRow | StaticRow) -> str:
    return f"{subject.title} {row.label} on {row.gpu}"
