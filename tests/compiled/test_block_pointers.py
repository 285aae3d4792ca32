"""Kernels with block pointers, which Triton 3.9 has no more: compiled and counted as the same kernel with pointers and masks is."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.guesses.inference import Given, guesses
from advisor.compiled.launches.launch import Inspection, KernelLaunch, inspect_launch
from advisor.python_source.source import parse_source

HEAD = """import triton
import triton.language as tl
@triton.jit
def k(x, y, M, N, stride, BM: tl.constexpr, BN: tl.constexpr):
    rows = tl.program_id(0) * BM
"""
BLOCKS = """    source = tl.make_block_ptr(x, (M, N), (stride, 1), (rows, 0), (BM, BN), (1, 0))
    total = tl.zeros((BM, BN), tl.float32)
    for n in range(0, N, BN):
        total += tl.load(source, boundary_check=(0, 1), padding_option="zero")
        source = tl.advance(source, (0, BN))
    goal = tl.make_block_ptr(y, shape=(M, BN), strides=(BN, 1), offsets=(rows, 0), block_shape=(BM, BN), order=(1, 0))
    tl.store(goal, total.to(goal.dtype.element_ty), boundary_check=(0,))
"""
POINTERS = """    row, column = rows + tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    total = tl.zeros((BM, BN), tl.float32)
    for n in range(0, N, BN):
        total += tl.load(x + row.to(tl.int64) * stride + n + column, (row < M) & (n + column < N), 0.0)
    tl.store(y + row * BN + column, total.to(y.dtype.element_ty), row < M)
"""
HANDED = """@triton.jit
def taken(pointer):
    return tl.load(pointer, boundary_check=0)
"""
TO_A_FUNCTION = """    source = tl.make_block_ptr(x, (N,), (1,), (rows,), (BM,), (0,))
    if N > 100:
        source = tl.advance(source, [BM])
    tl.store(tl.make_block_ptr(y, (N,), (1,), (rows,), (BM,), (0,)), taken(source), boundary_check=0)
"""


def inspected(text: str, pool: Pool, target: Target = Target(backend="cuda", arch=90)) -> Inspection:  # noqa: B008 - frozen
    given = Given(scalars={"M": 1000, "N": 500, "stride": 512}, constexprs={"BM": 32, "BN": 64}, types={"x": "*fp16", "y": "*fp16"})
    source = parse_source(text, Path("k.py"))
    return inspect_launch(KernelLaunch(source=source, kernel="k", given=given, grid=(32,)), target, pool, sass=False)


@pytest.mark.parametrize("target", [Target(backend="cuda", arch=80), Target(backend="hip", arch="gfx942", warp_size=64)])
def test_the_work_is_that_of_pointers_and_masks(pool: Pool, target: Target) -> None:
    blocks, pointers = (inspected(HEAD + body, pool, target) for body in (BLOCKS, POINTERS))
    assert blocks.demand.programs == pointers.demand.programs
    assert [loop.trips for loop in blocks.demand.loops] == [loop.trips for loop in pointers.demand.loops] == [32 * 8]
    assert blocks.demand.requested_load_bytes == pointers.demand.requested_load_bytes
    assert blocks.demand.footprint_bytes == pointers.demand.footprint_bytes


def test_what_does_not_run_as_it_is_written_is_said(pool: Pool) -> None:
    blocks, pointers = (inspected(HEAD + body, pool) for body in (BLOCKS, POINTERS))
    rewritten = [each for each in blocks.assumptions if "Block pointers" in each]
    if "tt.make_tensor_ptr" in blocks.compiled.ttir or not rewritten:  # a Triton that has them
        pytest.skip("this Triton has block pointers")
    assert blocks.compiled.triton_version in rewritten[0]
    assert not any("Block pointers" in each for each in pointers.assumptions)


def test_block_pointers_pass_branches_and_functions(pool: Pool) -> None:
    found = inspected(HEAD + TO_A_FUNCTION + HANDED, pool)
    assert found.demand.programs == 32


@pytest.mark.parametrize("given", ["a, (64, 64)", "base=a, shape=(64, 64)"])
@pytest.mark.parametrize("load", ["tl.load(tile)", "tl.load(pointer=tile)"])
def test_types_are_found_behind_block_pointers(given: str, load: str) -> None:
    text = f"""import triton
import triton.language as tl
@triton.jit
def k(a, c):
    tile = tl.make_block_ptr({given}, strides=(64, 1), offsets=(0, 0), block_shape=(64, 64), order=(1, 0))
    tl.store(c + {load}, 1.0)
"""
    source = parse_source(text, Path("k.py"))
    found = next(guesses(source, source.kernel("k"))).signature
    assert (found["a"], found["c"]) == ("*i64", "*bf16")
