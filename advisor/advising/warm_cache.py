"""A note on bounds that a warm L2 lowers: whoever checks one by bytes over the bandwidth of DRAM has to know."""

from __future__ import annotations

from collections.abc import Sequence

from advisor.result.schema import LaunchReport

TOLD_FROM = 1.25
"""A launch counts where its least bytes would take this many times its bound, came all of them from DRAM."""


def warm_cache(launches: Sequence[LaunchReport]) -> tuple[str, ...]:
    """A sentence, where the bounds of launches count on operands that the L2 still holds of an earlier run; else none."""
    count = sum(report.problem.cache == "warm" and _from_dram_us(report) >= TOLD_FROM * report.bound.us for report in launches)
    if not count:
        return ()
    whose = "this launch" if len(launches) == 1 else f"{count} of the {len(launches)} launches"
    held = f"it holds operands of {whose} that come from DRAM where other kernels run between"
    return (f"The L2 is taken as warm, as in a benchmark: {held} (give --cache cold).",)


def _from_dram_us(report: LaunchReport) -> float:
    """The least bytes that pass through the L2, at the bandwidth of DRAM, in microseconds; 0 where one of them is not known."""
    parts = {part.pipeline: part for part in report.pipelines}
    if "l2" not in parts or "dram" not in parts or not parts["dram"].throughput_per_s:
        return 0.0
    return 1e6 * parts["l2"].problem_demand / parts["dram"].throughput_per_s
