"""Notes on a launch measured well above its ceiling: why nothing is recommended, and whether the ceiling is real."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from advisor.advising.drafts import Measured
from advisor.advising.verdict import GAIN
from advisor.rendering.figures import microseconds
from advisor.result.schema import LaunchReport

_NAMED = 3


def ceiling_doubts(launches: Sequence[LaunchReport], measured: Mapping[str, Measured]) -> tuple[str, ...]:
    """Sentences on predicted ceilings that measurements put in doubt; none where nothing does.

    A measured latency lowers a ceiling and never raises one, for another configuration may reach it all the same. So a ceiling stays
    where the configuration ranked first was measured to be slower, and where nothing is predicted to be faster than what was measured
    far above it.
    """
    refuted = {report.id: us for report in launches if (us := _refuted_us(report, measured)) is not None}
    stuck = [report.id for report in launches if report.id not in refuted and _is_stuck(report)]
    # What rows say was simulated is not called measured.
    word = "simulated" if any(launch.measured is not None and launch.measured.origin == "simulated" for launch in launches) else "measured"
    out = []
    if refuted:
        named = {report.id: report.ceiling.us for report in launches if report.ceiling is not None}
        each = [f"{microseconds(us)} µs of {name} (ceiling {microseconds(named[name])})" for name, us in refuted.items()]
        out.append(
            f"The configuration ranked first was {word} too, and lies above the predicted tunable ceiling: {_listed(each)}. "
            "Whether another one reaches it is not known."
        )
    if stuck:
        who, whose = (f"{_listed(stuck)} was", "the launch") if len(stuck) == 1 else (f"{_listed(stuck)} were", "the launches")
        out.append(
            f"{who} {word} {100 * (GAIN - 1):.0f} % or more above the tunable ceiling, and the model has no configuration that is "
            f"worth changing to: it is off here, or something else slows {whose} (advisor tune measures others)."
        )
    return tuple(out)


def _refuted_us(report: LaunchReport, measured: Mapping[str, Measured]) -> float | None:
    """Measured microseconds of the first-ranked configuration, where they lie above the interval of the ceiling; else None."""
    ceiling = report.ceiling
    if ceiling is None or ceiling.origin != "predicted" or report.id not in measured:
        return None
    took = [latency.us for configuration, latency in measured[report.id].others if configuration == report.ceiling_configuration]
    return next((us for us in took if us > (ceiling.high_us or ceiling.us)), None)


def _is_stuck(report: LaunchReport) -> bool:
    """Whether there is much to win as measured, and nothing to win it with."""
    predicted = report.ceiling is not None and report.ceiling.origin == "predicted"
    return report.measured is not None and predicted and report.recommendation is None and (report.headroom or 0.0) >= GAIN - 1


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
