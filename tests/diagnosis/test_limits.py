"""No rule promises more than the ceiling, or than what the same page recommends."""

from __future__ import annotations

import pytest

from advisor.advise import advise
from advisor.diagnosis.neighbours import Change, Limits
from advisor.learned import load_predictor
from advisor.schema import LaunchReport
from advisor.targets import Request, resolve_target


@pytest.mark.parametrize(("us", "slower", "promised", "limit"), [
    (9.0, {}, 9.0, ""), (5.0, {}, 8.0, "recommended"), (5.0, {"w2": 4.0}, 6.0, "ceiling"), (7.0, {"w2": -3.0}, 11.0, "recommended"),
])  # fmt: skip
def test_limits(us: float, slower: dict[str, float], promised: float, limit: str) -> None:
    """Over all launches that run with the configuration: what others win, this one need not."""
    found = Limits(least_us=6.0, recommended=Change(parameters={}, us=7.0, slower_us={"w2": 1.0})).apply({"num_warps": 8}, us, slower)
    assert found.us == promised and limit in found.limit and bool(found.limit) == bool(limit)
    assert Limits(least_us=6.0).apply({}, us, slower).us == max(us, 6.0)


@pytest.mark.parametrize(("gpu", "model"), [("A100", "Mixtral-8x7B"), ("B200", "Qwen3-30B-A3B")])
def test_no_finding_saves_more_than_what_is_recommended(gpu: str, model: str) -> None:
    target = resolve_target("fused_moe", Request(gpu=gpu, model=model, tokens=(8, 512, 1536, 2048)))
    decisions: dict[str, list[LaunchReport]] = {}
    for launch in advise(target, load_predictor(None), command="").launches:
        decisions.setdefault(launch.decision or launch.id, []).append(launch)
    looked_at = 0
    for launches in decisions.values():
        gains = [each.predicted.us - each.recommendation.latency.us for each in launches if each.recommendation and each.predicted]
        for finding in [finding for launch in launches for finding in launch.findings if finding.net_saving_us is not None and gains]:
            assert (finding.net_saving_us or 0.0) <= sum(gains) * 1.0001, finding
            looked_at += 1
    assert looked_at > 2
