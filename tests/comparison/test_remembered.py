"""A predictor that keeps its answers gives the same ones."""

from __future__ import annotations

from collections import Counter

import numpy as np

from advisor.comparison.remembered import RememberingPredictor
from advisor.comparison.tables import table_subject
from advisor.hardware import load_gpu
from advisor.learned.analytical import AnalyticalPredictor
from advisor.pipelines import configuration_batch, problem_batch
from advisor.schema import Configuration, Problem
from advisor.targets import Request

from .conftest import TABLE, entry, table


class Counting(AnalyticalPredictor):
    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()

    def predict(self, problem, configuration, gpu):
        self.asked["predict"] += 1
        return super().predict(problem, configuration, gpu)

    def ceiling(self, problem, gpu):
        self.asked["ceiling"] += 1
        return super().ceiling(problem, gpu)

    def scores(self, problem, configuration, gpu):
        self.asked["scores"] += 1
        return super().scores(problem, configuration, gpu)


def gemm(m: int, cache: str = "warm"):
    return problem_batch([Problem(family="gemm", op="gemm", sizes={"M": m, "N": 513, "K": 1027}, cache=cache)])


def tile(block_m: int, warps: int = 4):
    parameters = {"BLOCK_SIZE_M": block_m, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 1}
    return configuration_batch([Configuration(parameters=parameters, num_warps=warps, num_stages=3)])


def test_what_differs_in_anything_is_asked_anew():
    asked, gpu = Counting(), load_gpu("H100")
    kept = RememberingPredictor(predictor=asked)
    questions = [(gemm(64), tile(64)), (gemm(65), tile(64)), (gemm(64, "cold"), tile(64)), (gemm(64), tile(32)), (gemm(64), tile(64, 8)),
                 (gemm(64), None)]  # fmt: skip
    for _ in range(2):
        for problem, configuration in questions:
            found, plain = kept.predict(problem, configuration, gpu), AnalyticalPredictor().predict(problem, configuration, gpu)
            assert (found.us, found.low_us, found.high_us) == (plain.us, plain.low_us, plain.high_us)
            if configuration is not None:
                expected = AnalyticalPredictor().scores(problem, configuration, gpu)
                assert np.array_equal(kept.scores(problem, configuration, gpu), expected)
            assert kept.ceiling(problem, gpu).us == AnalyticalPredictor().ceiling(problem, gpu).us
    assert asked.asked == {"predict": 6, "scores": 5, "ceiling": 3} and kept.name == asked.name


def test_both_sides_of_a_changed_entry_rank_one_space():
    asked = Counting()
    table_subject(TABLE, "modified", table(M64=entry(64)).encode(), table(M64=entry(128)).encode(),
                  request=Request(hidden_size=2048, top_k=8), gpus=(), predictor=asked)  # fmt: skip
    assert asked.asked["scores"] == 2  # of w13 and w2
