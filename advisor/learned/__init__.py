"""Predictors: what a launch will take, what can be reached, and how sure that is."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from advisor.learned.base import Prediction, Predictor


def load_predictor(weights: str | Path | None = None) -> Predictor:
    """The predictor to use: the weights given, else the user's own, else those shipped, else the analytical model.

    Raises:
        InputError: The weights cannot be read.

    >>> import advisor
    >>> advisor.load_predictor().name != ""
    True
    """
    from advisor.learned.weights import in_use

    path = Path(weights) if weights else in_use()
    if path is None:
        from advisor.learned.analytical import AnalyticalPredictor

        return AnalyticalPredictor()
    return _loaded(str(path), path.stat().st_mtime_ns if path.is_file() else 0)


@lru_cache(maxsize=2)
def _loaded(path: str, changed: int) -> Predictor:
    from advisor.learned.estimator import LearnedPredictor
    from advisor.learned.own_predictor import predictor_of
    from advisor.learned.weights import load

    del changed  # part of the key: a file that changed is read again
    return predictor_of(LearnedPredictor(load(path)))


__all__ = ["Prediction", "Predictor", "load_predictor"]
