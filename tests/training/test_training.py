"""Which rows are learned together."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.pipelines import ProblemBatch, column, configuration_batch
from advisor.result.schema import Configuration
from advisor.training import moe_training, training
from advisor.training.data import Measured
from advisor.training.moe_tables import keys_of


def rows(**kind: object) -> Measured:
    sizes = {name: column(value).astype(float) for name, value in {"M": 64, "E": 8, "topk": 2, "H": 4096, "N": 1792}.items()}
    problem = ProblemBatch(**({"family": "fused_moe", "op": "w13", "dtype": "bf16", "sizes": sizes} | kind))  # type: ignore[arg-type]
    return Measured(kind="exact", gpu=load_gpu("H100"), problem=problem, configuration=None, latency_us=np.array([100.0]))


OTHERS = [{"dtype": "fp8"}, {"weight_dtype": "int8"}, {"weight_dtype": "int4", "block_shape": (128, 128)}, {"cache": "cold"}]


@pytest.mark.parametrize("other", OTHERS)
def test_launches_that_the_model_does_not_answer_are_not_learned(other, monkeypatch):
    learned: list[Measured] = []
    monkeypatch.setattr(moe_training, "fit", lambda parts, *rest: learned.extend(parts))
    plain, w2 = rows(), rows(op="w2")
    training.fit([rows(**other), plain, w2, rows(dtype="fp16")], {})
    assert plain in learned and w2 in learned and len(learned) == 3


def test_only_launches_of_libraries_are_learned_as_such():
    sizes = {name: column(1024.0) for name in "MNK"}
    warm, cold = (ProblemBatch(family="gemm", op="gemm", dtype="fp8", sizes=sizes, cache=cache) for cache in ("warm", "cold"))
    tile = configuration_batch([Configuration(parameters={"BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 16, "BLOCK_SIZE_K": 32}, num_warps=4)])
    parts = [
        Measured(kind="direct", gpu=load_gpu("H100"), problem=problem, configuration=configuration, latency_us=np.array([us]))
        for problem, configuration, us in ((warm, None, 20.0), (cold, None, 30.0), (warm, tile, 300.0))
    ]
    assert training.library_groups(parts) == {"gemm/fp8": parts[:1]}


SKEWED = {"expert_rows": column([64.0, 16.0, 0.0]), "expert_count": column([1.0, 4.0, 3.0])}


@pytest.mark.parametrize("other", [*OTHERS, {"op": "w2"}, SKEWED])
def test_problems_that_differ_in_more_than_their_sizes_are_not_one(other):
    assert keys_of(rows()) == keys_of(rows(weight_dtype="bf16")) != keys_of(rows(**other))


def test_a_routing_is_one_however_it_is_written():
    padded = {"expert_rows": np.array([[16.0, 64.0, 8.0]]), "expert_count": np.array([[4.0, 1.0, 0.0]])}
    assert keys_of(rows(**SKEWED)) == keys_of(rows(**padded)) and len({*keys_of(rows(**SKEWED)), *keys_of(rows())}) == 2
