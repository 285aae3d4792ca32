"""A predictor that answers the same question once: both sides of a comparison ask for the same problem, and often the same launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np

from advisor.hardware import GpuSpec
from advisor.learned.base import Prediction, Predictor
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberingPredictor:
    """Predicts as `predictor` does, for one GPU. It keeps every answer, so it should end with what it was made for."""

    predictor: Predictor
    _answers: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def name(self) -> str:
        """What results call it."""
        return self.predictor.name

    def predict(self, problem: ProblemBatch, configuration: ConfigurationBatch | None, gpu: GpuSpec) -> Prediction:
        """Latencies; see `Predictor`."""
        key = ("predict", _key(problem), _key(configuration))
        if key not in self._answers:
            self._answers[key] = self.predictor.predict(problem, configuration, gpu)
        answer: Prediction = self._answers[key]
        return answer

    def ceiling(self, problem: ProblemBatch, gpu: GpuSpec) -> Prediction:
        """The best latency within the kernel's configuration space."""
        key = ("ceiling", _key(problem))
        if key not in self._answers:
            self._answers[key] = self.predictor.ceiling(problem, gpu)
        answer: Prediction = self._answers[key]
        return answer

    def scores(self, problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Array:
        """For ranking configurations of one problem."""
        key = ("scores", _key(problem), _key(configuration))
        if key not in self._answers:
            self._answers[key] = self.predictor.scores(problem, configuration, gpu)
        answer: Array = self._answers[key]
        return answer

    def p_speedup(self, problem: ProblemBatch, gpu: GpuSpec, latency_us: Array | None, prediction: Prediction,
                  ceiling: Prediction, configuration: ConfigurationBatch | None = None, at_least: float = 1.1) -> Array:  # fmt: skip
        """The probability that something can be won, not kept: of a launch it is asked once."""
        return self.predictor.p_speedup(problem, gpu, latency_us, prediction, ceiling, configuration, at_least)


def _key(value: object) -> object:
    """What columns hold, hashable: equal where all of it is."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Mapping):
        return tuple((name, _key(each)) for name, each in value.items())
    if is_dataclass(value):
        return tuple(_key(getattr(value, each.name)) for each in fields(value))
    return value
