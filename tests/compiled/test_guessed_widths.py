"""What a bound counts of tensors whose types are guesses."""

from __future__ import annotations

import pytest

from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.launches.launch import inspect_launch
from advisor.compiled.launches.target import compile_target, make_launch
from advisor.gpus.hardware import load_gpu
from advisor.python_source.source import parse_source

from .shared_pool import POOL

LOOKUP = """
import triton
import triton.language as tl

@triton.jit
def k(codes, table, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    code = tl.load(codes + at, mask=at < n, other=0){narrow}
    tl.store(out + at, tl.load(table + code), mask=at < n)
"""
N = 2**16


def analysed(narrow: str = "", **types: str) -> KernelAnalysis:
    source = parse_source(LOOKUP.format(narrow=narrow), "k.py")
    given = {"constexprs": {"BLOCK": 128}, "arguments": {"n": N}, "contents": {"codes": 0}}  # where the table is read is no guess
    launch = make_launch(source, "k", types=types, grid=(N // 128,), **given)
    return kernel_analysis(inspect_launch(launch, compile_target("sm_90"), POOL, sass=False), load_gpu("H200"), "cold")


@pytest.mark.parametrize(
    ("narrow", "types", "certain", "likely"),
    [("", {}, 4, 8), ("", {"codes": "*i64"}, 8, 8), ("", {"codes": "*i32"}, 4, 4)],
)
def test_a_bound_counts_an_index_of_a_guessed_type_in_its_narrowest(narrow: str, types: dict[str, str], certain: int, likely: int) -> None:
    got = analysed(narrow, **types)
    demand = got.inspection.demand
    assert demand.read_footprints["codes"] == certain * N and demand.likely_read_footprints["codes"] == likely * N
    assert demand.certain.requested_load_bytes == demand.requested_load_bytes - (likely - certain) * N
    assert (got.bound.us < got.likely_bound.us) == (certain < likely)
