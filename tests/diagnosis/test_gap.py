"""The waterfall adds up."""

from __future__ import annotations

import math

import pytest

from advisor.diagnosis import diagnose, gap_parts
from advisor.diagnosis.rule import microseconds
from advisor.result.schema import GAP_CAUSES

from .launches import launch, moe, tile


def parts(**options: float) -> dict[str, float]:
    return {part.cause: part.us for part in gap_parts(launch(moe(512), tile(128, 64, 64, 32), "H20", **options))}


def test_predicted_minus_bound_is_split_over_all_causes_in_order() -> None:
    context = launch(moe(512), tile(128, 64, 64, 32), "H20")
    split = gap_parts(context)
    assert [part.cause for part in split] == list(GAP_CAUSES[:-1])
    assert math.fsum(part.us for part in split) == pytest.approx(context.current_us - context.bound_us)
    assert max(split, key=lambda part: part.us).cause == "padding"
    assert all(part.note and part.origin == "predicted" for part in split)


@pytest.mark.parametrize("predicted", [250.0, 400.0, 4000.0])
def test_another_prediction_scales_the_parts(predicted: float) -> None:
    bound = launch(moe(512), tile(128, 64, 64, 32), "H20").bound_us
    plain, scaled = parts(), parts(predicted_us=predicted)
    assert math.fsum(scaled.values()) == pytest.approx(predicted - bound)
    assert scaled["padding"] / (predicted - bound) == pytest.approx(plain["padding"] / math.fsum(plain.values()))


def test_a_measurement_adds_what_is_unexplained() -> None:
    slower, faster = parts(measured_us=5000.0), parts(measured_us=300.0)
    assert slower["unexplained"] > 0 > faster["unexplained"]
    context = launch(moe(512), tile(128, 64, 64, 32), "H20")
    assert math.fsum(faster.values()) == pytest.approx(300.0 - context.bound_us)
    assert faster["unexplained"] == pytest.approx(300.0 - context.current_us)


def test_a_prediction_at_or_below_the_bound_has_nothing_to_split() -> None:
    bound = launch(moe(512), tile(128, 64, 64, 32), "H20").bound_us
    at, below = parts(predicted_us=bound), parts(predicted_us=bound - 10)
    assert math.fsum(at.values()) == 0
    assert below.pop("unexplained") == pytest.approx(-10) and not any(below.values())
    both = parts(predicted_us=bound - 10, measured_us=bound + 30)
    assert both["unexplained"] == pytest.approx(30)


def test_without_a_prediction_all_is_unexplained() -> None:
    split = gap_parts(launch(moe(64), None, "H100", measured_us=500.0))
    assert [part.cause for part in split] == ["unexplained"]
    assert gap_parts(launch(moe(64), None, "H100")) == ()


@pytest.mark.parametrize("predicted", [None, 450.0, 2000.0])
def test_padding_costs_the_same_in_the_waterfall_and_in_its_finding(predicted: float | None) -> None:
    """Whatever is predicted: the bound is no part of what a cause costs, and is not scaled."""
    context = launch(moe(512), tile(128, 64, 64, 32), "H20", predicted_us=predicted)
    padding = next(part.us for part in gap_parts(context) if part.cause == "padding")
    assert context.costs(relax=("padding",)) == pytest.approx(padding)
    (finding,) = [finding for finding in diagnose(context).findings if finding.rule == "expert-padding"]
    assert f"padding costs {microseconds(padding)} in all" in finding.evidence
    assert finding.saving_us is not None and finding.saving_us <= padding * (1 + 1e-9)
