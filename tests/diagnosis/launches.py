"""Launches for the tests of the diagnosis."""

from __future__ import annotations

from typing import Any

from advisor.diagnosis import LaunchContext, context
from advisor.gpus.hardware import load_gpu
from advisor.result.schema import Configuration, Family, Problem


def moe(tokens: int, op: str = "w13", **options: Any) -> Problem:
    """A product of Qwen3-30B-A3B's layer."""
    return Problem(family="fused_moe", op=op, sizes={"M": tokens, "E": 128, "topk": 8, "H": 2048, "N": 768}, **options)


def gemm(m: int, n: int, k: int, **options: Any) -> Problem:
    return Problem(family="gemm", op="gemm", sizes={"M": m, "N": n, "K": k}, **options)


def prefill(tokens: int) -> Problem:
    sizes = {"B": 8, "H": 32, "H_kv": 8, "M": tokens, "N": tokens, "D": 128, "causal": 0}
    return Problem(family="attention", op="prefill", sizes=sizes)


def rows(count: int, length: int, family: Family = "normalization", op: str = "rms_norm") -> Problem:
    return Problem(family=family, op=op, sizes={"B": count, "H": length})


def tile(m: int, n: int, k: int, group: int = 1, warps: int = 4, stages: int = 3, **more: int) -> Configuration:
    parameters: dict[str, int | bool | str] = {
        "BLOCK_SIZE_M": m,
        "BLOCK_SIZE_N": n,
        "BLOCK_SIZE_K": k,
        "GROUP_SIZE_M": group,
        **more,
    }
    return Configuration(parameters=parameters, num_warps=warps, num_stages=stages)


def launch(problem: Problem, configuration: Configuration | None, gpu: str, **options: Any) -> LaunchContext:
    return context(problem, configuration, load_gpu(gpu), **options)
