"""The tunable ceiling that every command shows."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.advising import advise_target
from advisor.advising.targets import Request
from advisor.advising.targets.resolve import resolve_target
from advisor.learned import load_predictor
from advisor.learned.base import Prediction, tunable_ceiling
from advisor.pipelines import configuration_batch, problem_batch
from advisor.pipelines.space import family_space
from advisor.search.prior import prior_of
from advisor.search.space import SearchSpace


def test_what_is_predicted_faster_is_reached_and_nothing_is_below_the_bound() -> None:
    calibrated = Prediction(us=np.full(3, 10.0), low_us=np.full(3, 9.0), high_us=np.full(3, 11.0), learned=np.ones(3, dtype=bool))
    found = tunable_ceiling(calibrated, np.array([5.0, 5.0, 12.0]), np.array([12.0, 8.0, np.inf]), np.array([np.inf, 8.5, 20.0]))
    assert found.us.tolist() == [10.0, 8.0, 12.0]
    assert (found.low_us <= found.us).all() and (found.us <= found.high_us).all()


@pytest.mark.parametrize("gpu", ["H200", "L40"])
def test_commands_differ_only_in_the_configurations_they_know(gpu: str) -> None:
    """`predict` knows the launch; a search the first-ranked one as well; `advise` both, and what it recommends."""
    predictor = load_predictor(None)
    target = resolve_target("fused_moe", Request(gpu=gpu, model="Qwen3-30B-A3B", tokens=(4, 64, 4096)))
    space = SearchSpace.from_batch(family_space("fused_moe"))
    for launch in advise_target(target, predictor, command="").launches:
        assert launch.ceiling is not None and launch.configuration is not None and launch.predicted is not None
        problem = problem_batch([launch.problem])
        alone = predictor.predict(problem, configuration_batch([launch.configuration]), target.gpu).us
        calibrated = predictor.ceiling(problem, target.gpu)
        predicted = tunable_ceiling(calibrated, np.array([launch.bound.us]), alone).us[0]
        searched = prior_of([launch.problem], space, target.gpu, predictor).ceiling_us[0]
        named = [launch.predicted.us] + ([launch.recommendation.latency.us] if launch.recommendation else [])
        assert launch.ceiling.us == pytest.approx(min(predicted, searched, *named))
        assert launch.ceiling.us >= 0.95 * predicted
