"""Matrix product C[M, N] = A[M, K] B[K, N], optionally batched (B) and block-scaled."""

from __future__ import annotations

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import tile
from advisor.pipelines.batch import ConfigurationBatch, ProblemBatch
from advisor.pipelines.columns import column
from advisor.pipelines.demand import Demand, Work
from advisor.result.schema import result_dtype


def product(problem: ProblemBatch) -> tile.Product:
    """The product, one group per batch entry."""
    m, n, k = (problem.sizes[name] for name in ("M", "N", "K"))
    batch = problem.sizes.get("B", column(1))
    a_row, b_group = k * problem.operand_bytes, n * k * problem.weight_bytes
    if problem.block_shape is not None:  # float32 scales
        block_n, block_k = problem.block_shape
        a_row = a_row + 4 * np.ceil(k / block_k)
        b_group = b_group + 4 * np.ceil(n / block_n) * np.ceil(k / block_k)
    shape = np.broadcast_shapes(m.shape, batch.shape)
    return tile.Product(
        rows=np.broadcast_to(m, shape)[:, None],
        count=np.broadcast_to(batch, shape)[:, None],
        width=n,
        depth=k,
        distinct_a_bytes=batch * m * a_row,
        distinct_b_bytes=batch * b_group,
        a_row_bytes=a_row,
        b_group_bytes=b_group,
        output_bytes=batch * m * n * problem.result_bytes,
        a_bytes=problem.operand_bytes,
        b_bytes=problem.weight_bytes,
        c_dtype=result_dtype(problem.dtype, problem.output_dtype),
        dtype=problem.dtype,
        l2_resident=problem.cache,
        block_scaled=problem.block_shape is not None,
    )


def work(problem: ProblemBatch, gpu: GpuSpec) -> Work:
    """2 M N K FLOP, each matrix once."""
    return tile.work(product(problem), problem.dtype, gpu)


def demand(problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Demand:
    """The demand of the launch: edges padded to whole tiles, SPLIT_K partial results stored SPLIT_K times."""
    return tile.demand(product(problem), configuration, gpu)
