"""The launch outlasts the work."""

from __future__ import annotations

from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found, microseconds, percent
from advisor.pipelines import least_launch_us
from advisor.result.schema import Finding

NEAR = 2.0
"""Multiple of launch and work up to which the launch is the main part of the latency: where this rule looks, it is at least half of
the two."""


class LaunchBound:
    """Too little work for a launch of its own."""

    id = "launch-bound"
    title = "The launch takes longer than the work"
    needs: tuple[Need, ...] = ()

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where a launch costs more than the work."""
        launch = context.gpu.launch_latency_us
        work = context.bound_us - least_launch_us(context.gpu)
        if launch <= work:
            return None
        if context.configuration is not None and not (context.runs and context.current_us <= NEAR * (launch + work)):
            return None  # there is something to win first
        return found(
            self,
            context,
            "info",
            f"{percent(launch / (launch + work))} of launch and work is the launch",
            evidence=f"launch in a stream {microseconds(launch)}, work at full throughput {microseconds(work)}",
            remedy="fuse it with a neighbouring kernel, or batch more work into one launch; no configuration helps",
        )


RULE = LaunchBound()
