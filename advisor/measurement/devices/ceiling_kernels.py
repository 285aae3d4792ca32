"""Kernels that reach one ceiling each. Imports triton at its top: imported only where a GPU is at hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import triton
import triton.language as tl

BLOCK = 4096  # fp32 elements a CTA reads per step
CTAS_PER_SM = 4  # of 256 threads and some 40 registers each: all run at once
PASSES = 64
GRAPH_LAUNCHES = 200


@triton.jit
def read_again_kernel(source_ptr, out_ptr, blocks, steps, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Every CTA reads `steps` blocks of the same small buffer, beginning at a place of its own, and sums them."""
    start = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for step in range(steps):
        block = (start * 7 + step) % blocks
        # .cg: past the L1, which would otherwise serve what neighbours just read
        total += tl.load(source_ptr + block * BLOCK + tl.arange(0, BLOCK), cache_modifier=".cg")
    tl.store(out_ptr + start, tl.sum(total))


@triton.jit
def empty_kernel():  # type: ignore[no-untyped-def]
    """Nothing."""


def l2_bytes_per_s(l2_bytes: int, num_sms: int, best_us: Callable[[Callable[[], Any]], float]) -> float:
    """Bytes per second from the L2, with a buffer of a quarter of it."""
    import torch

    blocks = max(1, l2_bytes // 4 // (4 * BLOCK))
    ctas = CTAS_PER_SM * num_sms
    steps = max(1, PASSES * blocks // ctas)
    source = torch.rand(blocks * BLOCK, device="cuda")
    out = torch.empty(ctas, device="cuda")
    duration_us = best_us(lambda: read_again_kernel[(ctas,)](source, out, blocks, steps, BLOCK, num_warps=8))
    return ctas * steps * BLOCK * 4 / duration_us * 1e6


def empty_launch_us(best_us: Callable[[Callable[[], Any]], float]) -> float:
    """Microseconds per empty kernel of a CUDA graph."""
    import torch

    empty_kernel[(1,)]()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH_LAUNCHES):
            empty_kernel[(1,)]()
    return best_us(graph.replay) / GRAPH_LAUNCHES


def empty_event_us(time_events: Callable[[Callable[[], Any], int], Sequence[float]]) -> float:
    """Microseconds between two events around an empty kernel: what timing by events adds at most."""
    samples = sorted(time_events(lambda: empty_kernel[(1,)](), 100))
    return samples[len(samples) // 2]
