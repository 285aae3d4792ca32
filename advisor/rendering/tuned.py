"""The outcome of `@advisor.autotune`, in the words that terminal, Markdown and page share."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.rendering import figures
from advisor.result.schema import TunedProblem, TunedTiming

STATES = {
    "measured": "measured",
    "compile": "does not compile",
    "fit": "does not fit the GPU",
    "time": "takes too long",
    "output": "wrong output",
    "crash": "failed",
    "not-measured": "not measured",
}
SHOWN = 200
"""Configurations listed of one problem, and problems listed; the rest stand in the JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingRow:
    """One configuration of a tuned problem, as text. `chosen`: it is the one that runs."""

    label: str
    state: str
    us: str
    interval: str
    predicted: str
    ratio: str  # predicted / measured
    slower: str  # against the chosen one
    reason: str
    chosen: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemView:
    """One tuned problem, ready to be shown."""

    problem: TunedProblem
    title: str
    chosen: str
    latency: str
    counts: str
    accuracy: str
    rows: tuple[TimingRow, ...]
    more: int


def views(problems: tuple[TunedProblem, ...]) -> list[ProblemView]:
    """Every problem, in order."""
    return [_view(problem) for problem in problems]


def _view(problem: TunedProblem) -> ProblemView:
    error = problem.prediction_error
    ordered = sorted(problem.timings, key=lambda timing: (timing.us is None, timing.us or 0.0))  # Python sorts stably
    return ProblemView(
        problem=problem,
        title=figures.clean(f"{problem.kernel} {problem.key}"),
        chosen=figures.clean(problem.configuration.label()) if problem.configuration is not None else "none works",
        latency=f"{figures.microseconds(problem.latency_us)} µs {problem.origin}" if problem.latency_us is not None else "not measured",
        counts=counts(problem),
        accuracy=f"predictions off by {100 * error:.0f} % in the median" if error is not None else "nothing predicted",
        rows=tuple(_row(timing, problem) for timing in ordered[:SHOWN]),
        more=max(0, len(ordered) - SHOWN),
    )


def counts(problem: TunedProblem) -> str:
    """`8 measured, 2 left out: 1 does not compile, 1 does not fit the GPU`."""
    measured = sum(timing.us is not None for timing in problem.timings)
    left: dict[str, int] = {}
    for timing in problem.timings:
        if timing.us is None:
            word = STATES.get(timing.state, figures.clean(timing.state))
            left[word] = left.get(word, 0) + 1
    if not left:
        return f"{measured} {problem.origin}, none left out"
    why = ", ".join(f"{count} {word if count == 1 else _of_several(word)}" for word, count in left.items())
    return f"{measured} {problem.origin}, {sum(left.values())} left out: {why}"


def _of_several(word: str) -> str:
    """`do not fit the GPU` for `does not fit the GPU`."""
    return word.replace("does not", "do not").replace("takes too", "take too")


def _row(timing: TunedTiming, problem: TunedProblem) -> TimingRow:
    us, predicted, now = timing.us, timing.predicted_us, problem.latency_us
    spread = us is not None and timing.low_us is not None and timing.high_us is not None and timing.low_us < timing.high_us
    return TimingRow(
        label=figures.clean(timing.configuration.label()),
        state=problem.origin if timing.state == "measured" else STATES.get(timing.state, figures.clean(timing.state)),
        us=figures.microseconds(us) if us is not None else "-",
        interval=f"{figures.microseconds(timing.low_us or 0.0)}–{figures.microseconds(timing.high_us or 0.0)}" if spread else "-",
        predicted=figures.microseconds(predicted) if predicted is not None else "-",
        ratio=f"{predicted / us:.2f}" if predicted is not None and us else "-",
        slower=f"{us / now:.2f}x" if us is not None and now else "-",
        reason=figures.clean(timing.reason),
        chosen=timing.configuration == problem.configuration,
    )
