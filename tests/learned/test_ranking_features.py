"""Columns that compare the configurations of one problem."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned.machine import machine
from advisor.learned.moe import moe_physics
from advisor.learned.moe.launch import as_configuration, moe_launch
from advisor.learned.moe.ranker import Ranker
from advisor.learned.moe.ranking_features import matrix, ranking_features, rivals
from tests.learned import samples

PHYSICS = moe_physics.start()


def launch_of(rows: np.ndarray, gpu: str = "A100"):
    return moe_launch(samples.problems(tokens=(64,)), as_configuration(rows), machine(load_gpu(gpu), "bf16"))


@pytest.mark.parametrize("gpu", ["A100", "L40"])
def test_configurations_are_compared_with_all_that_may_win(gpu):
    launch = launch_of(samples.CONFIGURATIONS, gpu)
    predicted, stack = moe_physics.terms(launch, PHYSICS)
    columns = ranking_features(launch, predicted, stack, rivals(launch, predicted, stack))
    least = [values for name, values in columns.items() if name.endswith("over the least")]
    places = [values for name, values in columns.items() if name.startswith("place by")]
    assert least and all(values.min() == 0 for values in least)
    assert places and all(values.min() == 0 and values.max() < 1 for values in places)
    assert columns["place by latency"].argmax() == predicted.argmax()
    assert np.isfinite(matrix(columns)).all()


def test_asking_about_few_changes_nothing_for_them():
    launch = launch_of(samples.CONFIGURATIONS)
    others = rivals(launch, *moe_physics.terms(launch, PHYSICS))
    whole = matrix(ranking_features(launch, *moe_physics.terms(launch, PHYSICS), others))
    few = launch_of(samples.CONFIGURATIONS[1:3])
    np.testing.assert_allclose(matrix(ranking_features(few, *moe_physics.terms(few, PHYSICS), others)), whole[1:3], rtol=1e-12)


def test_the_first_look_at_few_is_that_at_all(weights):
    ranker: Ranker = weights.moe.ranker
    gpu, problem = machine(load_gpu("H800"), "bf16"), samples.problems(tokens=(64,))

    def odds(rows: np.ndarray) -> np.ndarray:
        (look,) = ranker._looks(weights.moe.core.physics, [problem], ranker._space(as_configuration(rows), gpu), gpu)
        return look.trees

    rows = ranker.known[:6]
    np.testing.assert_array_equal(odds(rows)[2:4], odds(rows[2:4]))
