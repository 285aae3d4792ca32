"""Weights of the synthetic world, trained once."""

from __future__ import annotations

import pytest

from advisor.learned.estimator import LearnedPredictor
from advisor.learned.weights import Weights
from advisor.training.training import train
from tests.learned import samples


@pytest.fixture(scope="session")
def world(tmp_path_factory):
    """Folder with the synthetic measurements."""
    return samples.write(tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="session")
def weights(world) -> Weights:
    """Weights trained on all of it."""
    pytest.importorskip("sklearn")
    return train([world])


@pytest.fixture(scope="session")
def predictor(weights) -> LearnedPredictor:
    """The predictor of these weights."""
    return LearnedPredictor(weights)
