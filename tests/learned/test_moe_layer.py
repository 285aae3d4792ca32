"""Products that scale blocks: as posted with their quantisation, and as one expert."""

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.learned.layers.moe_layer import as_expert, quantisation_us, scales_blocks
from advisor.pipelines import ConfigurationBatch, ProblemBatch, column

SHIPPED = {
    1: (16, 32, 1, 4, 5, 23.3),
    16: (16, 32, 1, 4, 3, 23.3),
    64: (16, 64, 16, 4, 5, 30.4),
    128: (64, 64, 16, 4, 3, 32.8),
    256: (64, 64, 16, 4, 4, 35.4),
    512: (128, 64, 16, 4, 5, 50.8),
    1024: (256, 64, 1, 8, 5, 84.5),
    2048: (128, 64, 1, 4, 4, 156.6),
    4096: (128, 64, 1, 4, 4, 307.7),
}
"""By M: rows, columns and group of the tile, warps, stages of the shipped table, and microseconds of product and quantisation together, as
posted for an H100 (vLLM's pull request 23280)."""

DEFAULT = {1: 57.4, 16: 53.5, 512: 72.0, 4096: 406.4}
"""By M: the same with the stack's default tile (pull request 23939)."""


def product(m: float, dtype: str = "fp8") -> ProblemBatch:
    sizes = {"M": column(m), "N": column(2112), "K": column(7168)}
    return ProblemBatch(family="gemm", op="gemm", sizes=sizes, dtype=dtype, block_shape=(128, 128))


def tile(rows: int, columns: int, group: int, warps: int, stages: int) -> ConfigurationBatch:
    parameters = {"BLOCK_SIZE_M": rows, "BLOCK_SIZE_N": columns, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": group}
    return ConfigurationBatch(
        parameters={name: column(value) for name, value in parameters.items()}, num_warps=column(warps), num_stages=column(stages)
    )


def test_linear_as_posted():
    gpu, errors = load_gpu("H100"), []
    default = [(m, (64, 128, 32, 4, 2, posted)) for m, posted in DEFAULT.items()]
    for m, (*configuration, posted) in [*SHIPPED.items(), *default]:
        found = load_predictor().predict(product(m), tile(*configuration), gpu)
        assert found.learned.all() and found.low_us[0] < found.us[0] < found.high_us[0]
        errors.append(abs((found.us[0] + quantisation_us(column(m), column(7168), gpu)[0]) / posted - 1))
    assert np.mean(errors) < 0.08 and np.mean(errors[: len(SHIPPED)]) < 0.08


def test_quantisation_grows_from_its_launch_to_its_bytes():
    gpu = load_gpu("H100")
    us = quantisation_us(np.array([1.0, 1024.0, 65_536.0]), column(7168), gpu)
    assert us[0] == pytest.approx(2.5, abs=0.1) and (np.diff(us) > 0).all()
    assert us[2] == pytest.approx(65_536 * 7168 * 3.03 / (0.45 * gpu.dram_bytes_per_s * gpu.dram_achievable_fraction) * 1e6, rel=0.02)


def test_only_products_in_blocks_of_8_bits_become_an_expert():
    as_one = as_expert(product(64))
    assert (as_one.family, as_one.op, float(as_one.sizes["N"][0])) == ("fused_moe", "w13", 1056)
    plain = ProblemBatch(family="gemm", op="gemm", sizes=product(64).sizes, dtype="bf16")
    assert as_expert(plain) is plain and not scales_blocks(plain) and scales_blocks(product(64, "int8"))


@pytest.mark.parametrize(("gpu", "dtype", "vouched"), [("B200", "fp8", True), ("H20", "int8", False), ("A800", "int8", False)])
def test_measured_layers_stand_behind_products_elsewhere(gpu, dtype, vouched):
    found = load_predictor().predict(product(64, dtype), tile(64, 128, 32, 4, 3), load_gpu(gpu))
    assert found.analytical == 0 and bool(found.learned[0]) is vouched
