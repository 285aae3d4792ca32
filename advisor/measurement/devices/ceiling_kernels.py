"""An empty kernel, and what launching it takes. Imports triton at its top: imported only where a GPU is at hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton

GRAPH_LAUNCHES = 200


@triton.jit
def empty_kernel():  # type: ignore[no-untyped-def]
    """Nothing."""


def empty_launch_us(best_us: Callable[[Callable[[], Any]], float]) -> float:
    """Microseconds per empty kernel of a CUDA graph."""
    import torch

    empty_kernel[(1,)]()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(GRAPH_LAUNCHES):
            empty_kernel[(1,)]()
    return best_us(graph.replay) / GRAPH_LAUNCHES
