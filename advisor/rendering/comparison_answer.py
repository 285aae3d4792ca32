"""The answer to a comparison that has one: a kernel or an entry, of which one prediction a GPU says faster or slower."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.rendering import figures
from advisor.result.comparison_schema import StaticRow, StaticSide, Subject
from advisor.result.schema import Latency
from advisor.system.phrases import phrase

FACTOR_FROM = 1.5
"""Times as long from which on a change is a factor, and no share."""
MOST_GPUS = 2


def answering(subjects: Sequence[Subject]) -> Sequence[StaticRow]:
    """The rows that are the answer, one a GPU; none where something was measured, or several rows say something."""
    rows = [row for subject in subjects for row in subject.static if row.verdict != "cannot-tell"]
    sure = all(row.verdict in ("predicted-improved", "predicted-regressed") and _sides(row) is not None for row in rows)
    alone = len({row.gpu for row in rows}) == len(rows) <= MOST_GPUS and len({row.verdict for row in rows}) == 1
    return rows if sure and alone and not any(subject.measured for subject in subjects) else ()


def answer(subjects: Sequence[Subject]) -> str:
    """`Predicted about 6x faster on H100 (253.5 → 43.3 µs; 80 % intervals 198 to 310 → 39.5 to 77.4): BLOCK 128 → 4096; not
    measured`; empty: there is no such answer."""
    rows = answering(subjects)
    if not rows:
        return ""
    subject = next(item for item in subjects if rows[0] in item.static)
    launched = [change for row in subject.resources for change in row.changed]
    configured = [side.configuration if side is not None else None for side in (rows[0].base, rows[0].head)]
    changes = list(dict.fromkeys(launched or (figures.changes(configured[0], configured[1]) if configured[1] is not None else [])))
    name = "" if subject.resources else f" at {rows[0].label}"
    causes = "; ".join(filter(None, (rows[0].cause, ", ".join(changes))))
    changed = f": {causes}" if causes else ""
    return phrase("answer.predicted", what=f"{name} and ".join(map(_on_gpu, rows)) + name, changed=changed)


def why(subjects: Sequence[Subject]) -> str:
    """What limits the sides of the answer, where it is known of both; of several GPUs on the first."""
    rows = answering(subjects)
    if not rows or rows[0].base is None or rows[0].head is None:
        return ""
    before, after = _limited(rows[0].base), _limited(rows[0].head)
    if not (before and after):
        return ""
    on = f" on {rows[0].gpu}" if len(rows) > 1 else ""
    return phrase("answer.why", on=on, before=_within(before), after=_within(after))


def _within(sentence: str) -> str:
    """As it stands within another: `memory-bound`, but `L2-bound`."""
    return sentence[:1].lower() + sentence[1:] if sentence[1:2].islower() else sentence


def _limited(side: StaticSide) -> str:
    return figures.limited_by(side.peak_pipeline, figures.share_text(side.share_of_peak or 0), side.share_of_peak or 0)


def _on_gpu(row: StaticRow) -> str:
    sides = _sides(row)
    assert sides is not None
    before, after = sides
    ends = [
        f"{figures.microseconds(side.low_us)} to {figures.microseconds(side.high_us)}" for side in sides if side.low_us and side.high_us
    ]
    interval = f"; {100 * (after.coverage or 0):.0f} % intervals {' → '.join(ends)}" if len(ends) == 2 else ""
    times = max(before.us, after.us) / min(before.us, after.us)
    word = "slower" if after.us > before.us else "faster"
    much = f"about {times:.0f}x" if times >= 3 else f"about {times:.1f}x" if times >= FACTOR_FROM else f"{100 * abs(row.change or 0):.0f} %"
    return f"{much} {word} on {row.gpu} ({figures.microseconds(before.us)} → {figures.microseconds(after.us)} µs{interval})"


def _sides(row: StaticRow) -> tuple[Latency, Latency] | None:
    """The latencies of both sides; None: one is not known, or what stands against it is no base."""
    if row.compared_with != "base" or row.base is None or row.head is None or row.base.predicted is None or row.head.predicted is None:
        return None
    return row.base.predicted, row.head.predicted
