"""Predictors: what a launch will take, what can be reached, and how sure that is."""

from __future__ import annotations

from pathlib import Path

from advisor.learned.base import Prediction, Predictor


def load_predictor(weights: Path | None = None) -> Predictor:
    """The predictor to use: the analytical model, where no learned weights are shipped or given."""
    from advisor.learned.analytical import AnalyticalPredictor

    return AnalyticalPredictor()


__all__ = ["Prediction", "Predictor", "load_predictor"]
