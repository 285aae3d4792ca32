"""The synthetic world's measurements and weights, shared with the tests of what serves."""

from tests.learned.conftest import predictor, weights, world

__all__ = ["predictor", "weights", "world"]
