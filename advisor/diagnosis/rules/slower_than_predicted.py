"""The measurement is far above the prediction."""

from __future__ import annotations

from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found, microseconds
from advisor.result.schema import Finding

FAR = 1.5
"""Ratio from which the model cannot be merely imprecise; its 90th-percentile error on the sweeps of `data/README.md` is below."""


class SlowerThanPredicted:
    """Something the model does not know costs time."""

    id = "slower-than-predicted"
    title = "The measured latency is far above the predicted one"
    needs: tuple[Need, ...] = ("configuration", "runs", "measured")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where the measurement is half as slow again as predicted."""
        measured, predicted = context.measured_us, context.current_us
        if measured is None or measured <= FAR * predicted:
            return None
        return found(
            self,
            context,
            "advice",
            f"{context.measured_origin.capitalize()} {microseconds(measured)}, {measured / predicted:.1f} times the predicted "
            f"{microseconds(predicted)}",
            evidence=f"{microseconds(measured - predicted)} are unexplained",
            remedy="look for spills with `advisor inspect`, measure again with clocks recorded, check alignment",
        )


RULE = SlowerThanPredicted()
