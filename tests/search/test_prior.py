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


def test_one_row_of_tiles_is_tried_in_groups_first():
    """GROUP_SIZE_M orders nothing there, and the compiler makes slower code with 1."""
    problem, gpu = Problem(family="gemm", op="gemm", sizes={"M": 16, "N": 4096, "K": 4096}), load_gpu("H100")
    space = SearchSpace.of_problem(problem, gpu.vendor)
    first = int(np.argmin(prior_of([problem], space, gpu, load_predictor()).mean))
    assert space.columns["BLOCK_SIZE_M"][first] >= 16 and space.columns["GROUP_SIZE_M"][first] > 1
    assert space.row(first) == best_config("gemm", **problem.sizes, gpu="H100")
