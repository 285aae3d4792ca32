"""A latency is below what is possible."""

from __future__ import annotations

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found, microseconds
from advisor.pipelines import least_launch_us
from advisor.result.schema import Finding


class BelowBound:
    """A fault of the model or of the measurement."""

    id = "below-bound"
    title = "A measured latency is below the bound"
    needs: tuple[Need, ...] = ("measured",)

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where the measurement beats a bound."""
        measured = context.measured_us
        if measured is None:
            return None
        origin = context.measured_origin
        made = "measurement" if origin == "measured" else "simulation"
        launch = least_launch_us(context.gpu)
        limits = [("the bound", context.bound_us, context.bound.binding_pipeline(0), "routing and cache")]
        if context.config_bound is not None:
            config = context.config_bound
            also = "routing, cache and configuration"
            limits.append(("the bound of its configuration", first(config.us), config.binding_pipeline(0), also))
        for name, limit, pipeline, also in limits:
            if measured < limit:
                return found(
                    self,
                    context,
                    "error",
                    f"{origin.capitalize()} {microseconds(measured)} is below {name}, {microseconds(limit)}",
                    evidence=f"{pipeline} alone takes {microseconds(limit - launch)} after a launch of "
                    f"{microseconds(launch)} at least, cache {context.problem.cache}",
                    remedy=f"a fault of the model or of the {made}: check GPU, sizes, type, {also} of the row",
                )
        return None


RULE = BelowBound()
