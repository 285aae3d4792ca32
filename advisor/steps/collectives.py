"""What collectives take within one node: curves of latency over message size, fitted per GPU, library and number of ranks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.system.errors import UsageError

ENGINES = ("vllm", "sglang")
"""Engines with an all-reduce of their own, in a CUDA graph or `-eager`; they hand what is too large for it to NCCL. Others take NCCL."""
SPREAD = {True: 0.08, False: 0.25}
"""Half an 80 % interval of the log latency, of GPUs with curves and of others: `advisor evaluate` prints the errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Latencies in microseconds at `log2_bytes`, by GPU, collective and ranks: `{"H100": {"all_gather/nccl": {8: [...]}}}`."""

    log2_bytes: tuple[float, ...]
    of: Mapping[str, Mapping[str, Mapping[int, tuple[float, ...]]]]

    def latency_us(self, op: str, message_bytes: float, ranks: int, gpu: GpuSpec, library: str) -> tuple[float, bool]:
        """Latency of a collective in microseconds, and whether that GPU was measured.

        The message is what every rank holds before an all-reduce, and all of it together after an all-gather (before a reduce-scatter).
        Of a GPU that was not measured: the curve of the one whose links are nearest, its bytes scaled by the links' rates. Beyond the
        largest size a curve has, latency grows with the bytes; below the smallest it does not change. `send` moves bytes over a link.

        Raises:
            UsageError: Too many ranks, or nothing is known of the links.
        """
        rate = link_rate(gpu)
        if op == "send":
            return self.latency_us("all_gather", 512, 2, gpu, "nccl")[0] + message_bytes / (SEND_SHARE * rate) * 1e6, False
        name = f"{op}/{library}"
        reference = gpu if name in self.of.get(gpu.name, {}) else self._nearest(gpu, name)
        curves = self.of[reference.name][name]
        if ranks > max(curves):
            raise UsageError(f"a collective over {ranks} GPUs", ranks, f"at most {max(curves)}, of one node", "give a smaller --tp")
        curve = curves[min(each for each in curves if each >= ranks)]
        wanted = math.log2(max(message_bytes * link_rate(reference) / rate, 1.0))
        us = 2 ** float(np.interp(wanted, self.log2_bytes, np.log2(curve)))
        return us * 2 ** max(wanted - self.log2_bytes[-1], 0.0), reference is gpu

    def _nearest(self, gpu: GpuSpec, name: str) -> GpuSpec:
        """The measured GPU with the same sort of links, of the same architecture if there is one (its switches do the same), whose rate is
        nearest."""
        known = [load_gpu(each) for each in self.of if name in self.of[each]]

        def distance(each: GpuSpec) -> tuple[bool, bool, float]:
            sort = (each.fabric_bytes_per_s is None) != (gpu.fabric_bytes_per_s is None)
            return sort, each.architecture != gpu.architecture, abs(math.log(link_rate(each) / link_rate(gpu)))

        return min(known, key=distance)


SEND_SHARE = 0.8
"""Of a link's rate, what a copy between two GPUs gets: 390 of 450 GB/s on H100 (nvbandwidth's published runs), less on PCIe."""


def link_rate(gpu: GpuSpec) -> float:
    """Bytes per second one way between GPUs.

    Raises:
        UsageError: The GPU's description does not say.
    """
    rate = gpu.fabric_bytes_per_s or gpu.pcie_bytes_per_s
    if rate is None:
        raise UsageError(
            f"{gpu.name}: nothing is known of the links between GPUs",
            None,
            "fabric_bytes_per_s or pcie_bytes_per_s in its TOML file",
            "--tp 1",
        )
    return rate
