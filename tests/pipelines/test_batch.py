"""Which configurations make one launch, checked against the order in which a grouped kernel visits its tiles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from advisor.pipelines import configuration_batch, problem_batch
from advisor.pipelines.batch import launch_numbers, one_row_ungrouped, repeats
from advisor.result.schema import Configuration, Problem

RANGES = {"BLOCK_SIZE_M": [16, 64], "BLOCK_SIZE_N": [64], "GROUP_SIZE_M": [1, 2, 3, 4, 8, 16, 64], "num_warps": [4, 8]}
COLUMNS = dict(zip(RANGES, zip(*itertools.product(*RANGES.values()), strict=True), strict=True))


def moe(tokens: int) -> Problem:
    return Problem(family="fused_moe", op="w13", sizes={"M": tokens, "E": 8, "topk": 2, "H": 1024, "N": 512})


def gemm(rows: int) -> Problem:
    return Problem(family="gemm", op="gemm", sizes={"M": rows, "N": 512, "K": 1024})


def visited(rows: int, columns: int, group: int) -> list[tuple[int, int]]:
    """Tiles (row, column) in the order of the programs, counted one by one as the kernels do."""
    out = []
    for pid in range(rows * columns):
        first = pid // (group * columns) * group
        size = min(rows - first, group)
        within = pid % (group * columns)
        out.append((first + within % size, within // size))
    return out


@pytest.mark.parametrize("rows", [1, 33, 100, 256, 4096])
def test_configurations_are_one_launch_where_they_visit_the_same_tiles_in_the_same_order(rows):
    numbers = launch_numbers(COLUMNS, [gemm(rows)])
    made = [
        (bm, bn, warps, tuple(visited(-(-rows // bm), 512 // bn, group))) for bm, bn, group, warps in zip(*COLUMNS.values(), strict=True)
    ]
    for i, j in itertools.combinations(range(len(made)), 2):
        assert (numbers[i] == numbers[j]) == (made[i] == made[j])


def test_experts_have_tiles_of_their_own_however_rows_are_routed():
    def same(tokens: int, block: int, one: int, other: int) -> bool:
        columns = {"BLOCK_SIZE_M": [block, block], "GROUP_SIZE_M": [one, other]}
        return len(set(launch_numbers(columns, [moe(tokens)]).tolist())) == 1

    assert same(4, 16, 8, 64) and not same(4, 16, 4, 64), "eight rows fill eight tiles at most"
    # A hundred rows of eight experts fill 13 tiles of 16 rows at most: seven experts with one row, one with 93.
    assert same(50, 16, 16, 64) and not same(50, 16, 8, 64)
    assert not same(4096, 16, 16, 64)


def test_a_configuration_that_problems_share_makes_one_launch_only_where_all_of_them_agree():
    columns = {"BLOCK_SIZE_M": [16, 16], "GROUP_SIZE_M": [16, 64]}
    assert launch_numbers(columns, [moe(4)]).tolist() == [0, 0]
    assert launch_numbers(columns, [moe(4), moe(4096)]).tolist() == [0, 1]


def test_other_families_and_spaces_without_rows_are_left_alone():
    columns = {"BLOCK_SIZE_M": [16, 16], "GROUP_SIZE_M": [16, 64]}
    softmax = Problem(family="normalization", op="softmax", sizes={"B": 8, "H": 64})
    assert launch_numbers(columns, [softmax]).tolist() == [0, 1]
    assert launch_numbers({"GROUP_SIZE_M": [16, 64]}, [gemm(16)]).tolist() == [0, 1]
    assert launch_numbers({"BLOCK_SIZE_M": [16, 16]}, [gemm(16)]).tolist() == [0, 1]


def test_repeats_are_all_but_the_first():
    assert repeats(np.array([3, 1, 3, 3, 1, 2])).tolist() == [False, False, True, True, True, False]
    assert repeats(np.array([[1.0, 2.0], [1.0, 3.0], [1.0, 2.0]])).tolist() == [False, False, True]


def test_one_row_ungrouped_of_a_product_in_one_part():
    problem = problem_batch([gemm(64)])
    tiles = [(64, 1, 1), (64, 8, 1), (32, 1, 1), (64, 1, 2)]
    listed = [
        Configuration(parameters={"BLOCK_SIZE_M": block, "GROUP_SIZE_M": group, "SPLIT_K": parts}, num_warps=4, num_stages=3)
        for block, group, parts in tiles
    ]
    assert one_row_ungrouped(problem, configuration_batch(listed)).tolist() == [True, False, False, False]
