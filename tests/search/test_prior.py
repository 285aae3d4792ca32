"""What is believed before anything is measured."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.autotuning.decorator import best_config
from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.result.schema import Problem
from advisor.search.prior import prior_of
from advisor.search.space import SearchSpace

MODEL = {"E": 128, "topk": 8, "H": 2048, "N": 768}


@pytest.mark.parametrize("tokens", [16, 256, 3072])
@pytest.mark.parametrize("gpu", ["H200", "L40"])
def test_a_search_for_both_gemms_begins_where_best_config_points(gpu, tokens):
    problems = [Problem(family="fused_moe", op=op, sizes={"M": tokens, **MODEL}) for op in ("w13", "w2")]
    space = SearchSpace.of_problem(problems[0], load_gpu(gpu).vendor)
    prior = prior_of(problems, space, load_gpu(gpu), load_predictor())
    assert space.row(int(np.argmin(prior.mean))) == best_config("fused_moe", M=tokens, **MODEL, gpu=gpu)
