"""A ceiling that a measurement puts in doubt is not shown as if nothing were known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from advisor.advising import advise_target
from advisor.advising.choice import Measured
from advisor.advising.measured_choice import ceiling_doubts
from advisor.advising.targets import Request
from advisor.advising.targets.resolve import resolve_target
from advisor.learned import load_predictor
from advisor.result.schema import Configuration, Latency, LaunchReport
from tests.rendering import factory


def took(us: float, other: tuple[Configuration, float] | None = None) -> Measured:
    def latency(each: float) -> Latency:
        return Latency(us=each, origin="measured", source="rows.csv")

    return Measured(latency=latency(us), others=((other[0], latency(other[1])),) if other else ())


def unknowns(measured: Mapping[str, Measured] | None = None) -> tuple[tuple[str, ...], tuple[LaunchReport, ...]]:
    """Of a launch without a table on an H20, which the model knows to be far from its ceiling."""
    request = Request(model="Qwen3-30B-A3B", gpu="H20", tokens=(1024,))
    result = advise_target(resolve_target("fused_moe", request), load_predictor(), command="", measured=measured)
    return result.verdict.unknowns, result.launches


def test_a_ceiling_whose_own_configuration_was_measured_slower_is_called_in_doubt() -> None:
    _, (launch, *_) = unknowns()
    best, us = launch.ceiling_configuration, launch.ceiling.us
    told, (found, *_) = unknowns({launch.id: took(1.5 * launch.predicted.us, (best, 2.0 * us))})
    assert found.ceiling.us == us and found.ceiling.origin == "predicted", "a measurement never raises it"
    [said] = [each for each in told if "was measured too" in each]
    assert f"{2.0 * us:.1f} µs of {launch.id} (ceiling {us:.1f})" in said

    within, _ = unknowns({launch.id: took(1.5 * launch.predicted.us, (best, launch.ceiling.high_us))})
    assert not any("was measured too" in each for each in within), "the interval says as much"


@pytest.mark.parametrize(("above", "said"), [(1.05, False), (1.43, True)])
def test_a_launch_far_above_its_ceiling_without_a_remedy_says_so(above: float, said: bool) -> None:
    first, second = factory.result((64, 256), ("w13",), measured=True).launches
    stuck = replace(first, recommendation=None, headroom=above - 1)
    helped = replace(second, headroom=0.5)
    assert helped.recommendation is not None
    told = ceiling_doubts((stuck, helped), {})
    assert [each.startswith(f"{first.id} was measured 10 % or more above the tunable ceiling") for each in told] == [True] * said
    simulated = replace(stuck, measured=replace(stuck.measured, origin="simulated"))
    assert [f"{first.id} was simulated 10 %" in each for each in ceiling_doubts((simulated,), {})] == [True] * said
    assert ceiling_doubts((replace(stuck, measured=None), helped), {}) == (), "what is only predicted is explained by its gap"
