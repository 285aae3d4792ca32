"""No rule promises more than the ceiling, or than what the same page recommends."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from advisor.advising import advise_target
from advisor.advising.choice import Measured
from advisor.advising.targets import Request
from advisor.advising.targets.resolve import resolve_target
from advisor.diagnosis.neighbours import Change, Limits
from advisor.learned import load_predictor
from advisor.pipelines import problem_batch
from advisor.pipelines.space import family_space
from advisor.rendering import markdown, page
from advisor.result.schema import Latency, LaunchReport
from tests.rendering.terminal import to_text

EXAMPLE = Path(__file__).resolve().parents[2] / "reports" / "examples" / "E=128,N=768,device_name=NVIDIA_H20.json"


@pytest.mark.parametrize(
    ("us", "slower", "promised", "limit"),
    [
        (9.0, {}, 9.0, ""),
        (5.0, {}, 8.0, "ranked"),
        (5.0, {"w2": 4.0}, 6.0, "ceiling"),
        (7.0, {"w2": -3.0}, 11.0, "ranked"),
        (8.0 - 1e-12, {}, 8.0, ""),  # the first-ranked configuration itself
    ],
)
def test_limits(us: float, slower: dict[str, float], promised: float, limit: str) -> None:
    """Over all launches that run with the configuration: what others win, this one need not."""
    found = Limits(least_us=6.0, ranked=Change(parameters={}, us=7.0, slower_us={"w2": 1.0})).apply({"num_warps": 8}, us, slower)
    assert found.us == promised and limit in found.limit and bool(found.limit) == bool(limit)
    assert Limits(least_us=6.0).apply({}, us, slower).us == max(us, 6.0)


@pytest.mark.parametrize(("gpu", "model"), [("A100", "Mixtral-8x7B"), ("H200", "Mixtral-8x7B")])
def test_no_finding_saves_more_than_what_is_recommended(gpu: str, model: str) -> None:
    target = resolve_target("fused_moe", Request(gpu=gpu, model=model, tokens=(8, 512, 1536, 2048)))
    decisions: dict[str, list[LaunchReport]] = {}
    for launch in advise_target(target, load_predictor(None), command="").launches:
        decisions.setdefault(launch.decision or launch.id, []).append(launch)
    looked_at = 0
    for launches in decisions.values():
        gains = [each.predicted.us - each.recommendation.latency.us for each in launches if each.recommendation and each.predicted]
        for finding in [finding for launch in launches for finding in launch.findings if finding.net_saving_us is not None and gains]:
            assert (finding.net_saving_us or 0.0) <= sum(gains) * 1.0001, finding
            looked_at += 1
    assert looked_at > 2


def test_no_saving_exceeds_what_is_left_to_the_ceiling_of_what_was_measured() -> None:
    """Both launches of an entry that runs faster than predicted: the one that is diagnosed, and the one that shares its entry."""
    target = resolve_target(str(EXAMPLE), Request(model="Qwen3-30B-A3B", tokens=(64,)))
    us_of = {"w13-M64": 245.0, "w2-M64": 115.5}
    measured = {name: Measured(latency=Latency(us=us, origin="measured", source="rows")) for name, us in us_of.items()}
    result = advise_target(target, load_predictor(None), command="", measured=measured)
    w13, w2 = result.launches
    assert w13.ceiling is not None and w2.ceiling is not None and w2.ceiling.us == 115.5
    left = 245.0 - w13.ceiling.us
    savings = [finding.saving_us for finding in w13.findings if finding.saving_us is not None]
    assert savings and max(savings) <= left * 1.0001
    assert not [finding for finding in w2.findings if finding.saving_us], "it runs at its ceiling"
    assert all(0 < action.saving_us <= left * 1.0001 for action in result.actions)
    assert not [finding for finding in w13.findings if "takes" in finding.remedy and "less" in finding.remedy], "w2 has nothing to win"


def test_nothing_is_saved_where_what_was_measured_is_a_fault() -> None:
    """Neither in that launch nor, by a change for both, through it in the one that shares its entry."""
    target = resolve_target(str(EXAMPLE), Request(model="Qwen3-30B-A3B", tokens=(64,)))
    measured = {"w13-M64": Measured(latency=Latency(us=5.0, origin="measured", source="rows"))}
    result = advise_target(target, load_predictor(None), command="", measured=measured)
    w13, w2 = result.launches
    assert w13.faults and w13.recommendation is None and w2.recommendation is None
    assert not [finding for finding in w2.findings if finding.net_saving_us], "the entry is kept"
    assert not result.actions


def test_a_recommendation_is_called_what_it_is_and_no_ceiling_lies_above_what_is_predicted() -> None:
    """The order is learned for itself: what is predicted faster may rank behind."""
    predictor, space = load_predictor(None), family_space("fused_moe")
    target = resolve_target("fused_moe", Request(gpu="A40", model="Qwen3-30B-A3B", tokens=(8, 64, 512, 2048)))
    result = advise_target(target, predictor, command="")
    overtaken = 0
    for launch in result.launches:
        if launch.recommendation is None:
            continue
        assert launch.ceiling is not None and launch.predicted is not None
        shown = launch.recommendation.latency.us
        overtaken += bool(np.nanmin(predictor.predict(problem_batch([launch.problem]), space, target.gpu).us) < shown)
        assert launch.recommendation.reason.startswith("ranked first of all configurations")
        assert launch.ceiling.us <= min(shown, launch.predicted.us)
    assert overtaken
    assert "best predicted" not in f"{to_text(result)}{markdown.to_markdown(result)}{page.to_html(result)}"


def test_what_the_actions_change_the_table_of_sizes_changes_too() -> None:
    """Where neither the first-ranked configuration nor another is worth a change, no rule says that one is."""
    target = resolve_target(str(EXAMPLE), Request(model="Qwen3-30B-A3B", tokens=(1, 2, 4, 8, 16, 64)))
    result = advise_target(target, load_predictor(None), command="")
    kept = {launch.id for launch in result.launches if launch.recommendation is None}
    assert 0 < len(kept) < len(result.launches)
    assert not [finding for launch in result.launches if launch.id in kept for finding in launch.findings if finding.net_saving_us]
    assert all(action.snippet is not None and not kept & set(action.launches) for action in result.actions)
