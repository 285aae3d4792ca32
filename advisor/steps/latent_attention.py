"""Multi-head latent attention (MLA): all heads share one key of `kv_rank + rope` values a token, of which `kv_rank` are the value too.

Decoding multiplies queries that have absorbed the key projection; a prefill takes the keys and values of every head apart.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.learned.library.chip import chip
from advisor.pipelines.bound import LEAST_LAUNCH_US

CONSTANTS: dict[str, tuple[tuple[float, float, float, float], ...]] = {
    "decode": ((22.6, 0.67, 0.12, 0.147), (11.0, 0.85, 0.60, 0.51), (11.6, 0.65, 0.74, 0.14)),
    "prefill": ((10.9, 0.41, 0.058, 0.84), (11.4, 0.29, 0.15, 0.357), (12.6, 0.41, 0.45, 0.431)),
}
"""Microseconds at least, shares of the memory's and the matrix units' rates, and microseconds per doubling of the keys; for GPUs of
mma.sync (Triton's kernel), Hopper (FlashAttention 3) and Blackwell with tensor memory (TRT-LLM). Fitted to SGLang 0.5.14's rows of RTX PRO
6000, H100 and H200, and B200, B300 and GB200 in the tables of ai-dynamo/aiconfigurator (Apache-2.0): 11 to 15 % of the latency off in
decoding (Triton's 28), 13 to 21 in a prefill; vLLM's rows there are host time."""
SPREAD = 0.22
"""Half an 80 % interval of the log, by those errors."""
LEAST_HEADS = 16
"""Queries of fewer heads fill a tile of this many."""
Estimate = tuple[float, float, float, float, str]


def latency(op: str, sizes: Mapping[str, float], gpu: GpuSpec) -> Estimate:
    """Latency, both ends of its interval and bound in microseconds, and what binds.

    Args:
        op: `decode` or `prefill`.
        sizes: B sequences, H heads, M queries and N keys of each, `rank`, `rope`, `nope` and `value` as configurations name them.
        gpu: With 16-bit operands.
    """
    s = sizes
    key, pairs = s["rank"] + s["rope"], s["B"] * s["M"] * (s["N"] - (s["M"] - 1) / 2)
    if op == "decode":
        moved = 2 * s["B"] * (s["N"] * key + s["H"] * (key + s["rank"]))
        flop = 2 * pairs * max(s["H"], LEAST_HEADS) * (key + s["rank"])
    else:
        moved = 4 * s["B"] * s["M"] * s["H"] * (s["nope"] + s["rope"] + s["value"])
        flop = 2 * pairs * s["H"] * (s["nope"] + s["rope"] + s["value"])
    kind = 1 if gpu.architecture == "hopper" else 2 if chip(gpu, "bf16").tensor_memory else 0
    floor, memory_share, tensor_share, doubling = CONSTANTS[op][kind]
    memory, tensor = moved / gpu.dram_bytes_per_s * 1e6, flop / gpu.peak_tensor_flop_per_s("bf16") * 1e6
    us = floor + doubling * np.log2(max(s["N"], 1)) + np.cbrt((memory / memory_share) ** 3 + (tensor / tensor_share) ** 3)
    bound = max(memory if op == "decode" else 0.0, tensor if s["H"] >= LEAST_HEADS else 0.0, LEAST_LAUNCH_US)
    return float(us), float(us * np.exp(-SPREAD)), float(us * np.exp(SPREAD)), bound, "dram" if memory > tensor else "tensor"
