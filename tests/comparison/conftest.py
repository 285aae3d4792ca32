"""Fixtures of the comparison's tests."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from advisor.comparison.kernels import attempts
from advisor.compiled.launches.launch import compile_launch
from advisor.learned.analytical import AnalyticalPredictor

from .repository import Repository

TABLE = "E=128,N=768,device_name=NVIDIA_H200.json"


def entry(block_m: int = 16, block_n: int = 64, block_k: int = 64, stages: int = 4, warps: int = 4, group: int = 1) -> dict[str, int]:
    """A table entry."""
    return {
        "BLOCK_SIZE_M": block_m,
        "BLOCK_SIZE_N": block_n,
        "BLOCK_SIZE_K": block_k,
        "GROUP_SIZE_M": group,
        "num_warps": warps,
        "num_stages": stages,
    }


def table(**entries: dict[str, int]) -> str:
    """A table's text from `M64=entry(...)`."""
    return json.dumps({name.removeprefix("M"): value for name, value in entries.items()})


KERNEL = """
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({{"BLOCK_SIZE_M": {m}, "BLOCK_SIZE_N": 128, "BLOCK_SIZE_K": 64, "GROUP_SIZE_M": 8}},
                                        num_warps=8, num_stages=3)], key=["M"])
@triton.jit
def matmul(a, b, c, M, N, K, BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr,
           GROUP_SIZE_M: tl.constexpr):
    tl.store(c + tl.arange(0, BLOCK_SIZE_M), tl.load(a + tl.arange(0, BLOCK_SIZE_M)))
"""


@pytest.fixture(autouse=True)
def without_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled kernels are compared by their PTX: to disassemble takes longer than to compile most of them.

    Files whose tests read instructions have a fixture of this name that changes nothing.
    """

    def compiled(*asked: Any) -> Any:
        found, guess, failures = compile_launch(*asked, sass=False)
        return replace(found, sass=""), guess, failures  # also where an earlier compilation left it in the cache

    monkeypatch.setattr(attempts, "compile_launch", compiled)


@pytest.fixture
def predictor() -> AnalyticalPredictor:
    """The model that needs no weights."""
    return AnalyticalPredictor()


@pytest.fixture
def repository(tmp_path) -> Repository:
    """An empty repository."""
    return Repository(tmp_path / "repository")
