"""What kernels of other authors call the parameters that a family reads."""

from __future__ import annotations

import pytest

from advisor.rows.columns import family_names


@pytest.mark.parametrize(
    ("family", "own", "theirs"),
    [
        ("gemm", ("BLOCK_M", "GROUP_M"), ("BLOCK_SIZE_M", "GROUP_SIZE_M")),
        ("gemm", ("BM", "BLOCK_M"), ("BM", "BLOCK_SIZE_M")),
        ("gemm", ("BLOCK_M", "BM"), ("BLOCK_SIZE_M", "BM")),
        ("gemm", ("BM", "BLOCK_M", "BLOCK_SIZE_M"), ("BM", "BLOCK_M", "BLOCK_SIZE_M")),
        ("attention", ("BLOCK_Q", "BLOCK_SIZE_M"), ("BLOCK_Q", "BLOCK_M")),
        ("gemm", ("GROUP_M", "GROUP_SIZE"), ("GROUP_SIZE_M", "GROUP_SIZE")),
        ("gemm", ("BLOCK_M", "GROUP_SIZE"), ("BLOCK_SIZE_M", "GROUP_SIZE")),  # values that share a scale, in quantised products
    ],
)
def test_each_name_of_the_family_stands_for_one_parameter(family, own, theirs):
    assert family_names(own, family) == dict(zip(own, theirs, strict=True))
