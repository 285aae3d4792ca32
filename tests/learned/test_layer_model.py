"""One product of a layer as whole layers taught it."""

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.learned.weights import in_use, load
from advisor.pipelines import ConfigurationBatch, ProblemBatch, column


def problem(m, dtype="bf16", op="w13", **types):
    sizes = {name: column(value) for name, value in {"M": m, "E": 128, "topk": 8, "H": 2048, "N": 768}.items()}
    return ProblemBatch(family="fused_moe", op=op, sizes=sizes, dtype=dtype, **types)


def tile(rows=64, stages=3):
    parameters = {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8}
    return ConfigurationBatch(
        parameters={name: column(value) for name, value in parameters.items()}, num_warps=column(4), num_stages=column(stages)
    )


@pytest.mark.parametrize(
    ("gpu", "types", "vouched"),
    [
        ("B200", {}, True),
        ("B200", {"dtype": "fp8"}, True),
        ("GB300", {}, False),
        ("H200", {"dtype": "fp8"}, True),
        ("A100", {"weight_dtype": "int8"}, False),
    ],
)
def test_products_are_vouched_for_where_their_layers_were_measured(gpu, types, vouched):
    found = load_predictor().predict(problem(1024, **types), tile(), load_gpu(gpu))
    assert found.analytical == 0 and bool(found.learned[0]) is vouched
    assert found.low_us[0] < found.us[0] < found.high_us[0]


def test_what_cannot_launch_has_no_latency_and_others_agree():
    products = load(in_use()).layer_products
    assert products is not None and not products.covers(problem(64, dtype="fp8"), load_gpu("A100"))
    found = products.predict(problem(np.array([64.0, 4096.0])), tile(), load_gpu("B200"))
    alone = products.predict(problem(4096), tile(), load_gpu("B200"))
    assert found.us[1] == pytest.approx(alone.us[0]) and found.us[0] < found.us[1]
    assert np.isinf(products.predict(problem(64), tile(rows=256, stages=9), load_gpu("B200")).us).all()
