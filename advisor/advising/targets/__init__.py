"""Targets of advice: a tuned table, a bundled kernel or one described in its file, as launches of known problems."""

from advisor.advising.targets.target import (
    CONFIGURATION_UNKNOWN,
    GEMM_OF_LAYER,
    STACKS,
    PlannedLaunch,
    Request,
    Target,
    routing_assumed,
    routing_given,
    slots_of_a_rank,
)

__all__ = [
    "CONFIGURATION_UNKNOWN",
    "GEMM_OF_LAYER",
    "STACKS",
    "PlannedLaunch",
    "Request",
    "Target",
    "routing_assumed",
    "routing_given",
    "slots_of_a_rank",
]
