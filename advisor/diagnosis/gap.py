"""The waterfall: bound -> predicted -> measured, split into causes that add up exactly."""

from __future__ import annotations

import math

from advisor.diagnosis.context import LaunchContext
from advisor.pipelines.schedule import CAUSES
from advisor.result.schema import UNCERTAIN, GapPart

NOTES: dict[str, str] = {
    UNCERTAIN: "work that is likely, not certain: it hangs on data that are not given, or is that of programs not looked at",
    "padding": "rows and columns of tiles that hold no data",
    "tail-wave": "SMs that idle while the last CTAs finish, or that get no CTA at all",
    "occupancy": "too few resident CTAs per SM to hide each other's loads",
    "latency": "loads that the software pipeline cannot hide",
    "traffic": "bytes beyond those of the bound: read more than once, from the L2 or from DRAM, or not found in the L2 where they might be",
    "launch": "the launch beyond what it takes at least, starting its CTAs, and filling the pipeline after it",
    "power": "a clock held down by the board's power limit",
    "efficiency": "pipelines that sustain less than their peak",
}


def gap_parts(context: LaunchContext) -> tuple[GapPart, ...]:
    """Steps from the bound to the predicted and, where there is one, the measured latency.

    The analytical model says how the gap divides; its parts are scaled so that they add up to predicted - bound. A prediction
    below the bound has nothing to divide: that difference goes to `unexplained`, the only part that may be negative.

    Returns:
        Parts in the order of `schema.GAP_CAUSES` that add up to measured - bound, or to predicted - bound without a measurement;
        nothing where neither is known.
    """
    bound, measured, origin = context.bound_us, context.measured_us, context.measured_origin
    if not context.runs or context.demand is None:
        if measured is None:
            return ()
        return (GapPart(cause="unexplained", us=measured - bound, origin=origin, note="nothing is predicted of it"),)
    total = context.current_us - bound
    if total < 0:
        if measured is None:
            note = "the prediction is below the bound: a fault of the model"
            return (*_split({}, 0.0), GapPart(cause="unexplained", us=total, origin="predicted", note=note))
        rest = GapPart(cause="unexplained", us=measured - bound, origin=origin, note=f"{origin} against the bound")
        return (*_split({}, 0.0), rest)
    parts = _split(context.divided, total)
    if measured is None:
        return parts
    rest_us = measured - bound - math.fsum(part.us for part in parts)
    note = f"{origin} {'slower' if rest_us >= 0 else 'faster'} than predicted"
    return (*parts, GapPart(cause="unexplained", us=rest_us, origin=origin, note=note))


def _split(weights: dict[str, float], total: float) -> tuple[GapPart, ...]:
    """`total` divided in proportion to `weights`; all of it is `efficiency` where they say nothing."""
    everything = math.fsum(weights.values())
    parts = {cause: total * weights.get(cause, 0.0) / everything if everything > 0 else 0.0 for cause in CAUSES}
    parts["efficiency"] = max(total - math.fsum(parts.values()), 0.0)
    return tuple(GapPart(cause=cause, us=us, origin="predicted", note=NOTES[cause]) for cause, us in parts.items())
