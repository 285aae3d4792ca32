"""The launch outlasts the work."""

from __future__ import annotations

from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found, microseconds, percent
from advisor.schema import Finding

NEAR = 2.0
"""Multiple of the bound up to which the launch is the main part of the latency: where it binds, it is at least half the bound."""


class LaunchBound:
    """Too little work for a launch of its own."""

    id = "launch-bound"
    title = "The launch takes longer than the work"
    needs: tuple[Need, ...] = ()
    explanation = """\
## What it means
An empty kernel already takes microseconds from launch to end. Where the work of the problem, perfectly spread over the
GPU, takes less than that, no configuration can help.

## How it is computed
The least launch latency of the GPU against the longest pipeline time of the problem. It is information: nothing in the
configuration is wrong, so no saving is named.

## What to do
Do more per launch: fuse with the neighbouring kernel, batch several problems. A CUDA graph removes the time between
launches (which is not in these figures), not the launch latency itself.

## Source
`launch_latency_us` of the GPU's file in `ceilings/`, with its source.
"""

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where the launch binds the bound."""
        if context.bound.binding_pipeline(0) != "launch":
            return None
        if context.configuration is not None and not (context.runs and context.current_us <= NEAR * context.bound_us):
            return None  # there is something to win first
        launch = context.gpu.launch_latency_us
        return found(
            self,
            context,
            "info",
            f"{percent(launch / context.bound_us)} of the bound is the launch itself",
            evidence=f"launch {microseconds(launch)}, work at full throughput {microseconds(context.bound_us - launch)}",
            remedy="fuse it with a neighbouring kernel, or batch more work into one launch; no configuration helps",
        )


RULE = LaunchBound()
