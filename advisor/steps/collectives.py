"""What collectives take within one node: curves of latency over message size, measured per GPU, library and number of ranks."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.system.errors import UsageError
from advisor.system.resources import folder

ENGINES = ("vllm", "sglang")
"""Engines with an all-reduce of their own, in a CUDA graph or `-eager`; they hand what is too large for it to NCCL. Others take NCCL."""
MEASURED, BY_A_SIBLING, OVER_PCIE = 0.08, 0.25, 0.8
"""Half an 80 % interval of the log latency: of GPUs with curves, of others over NVLink or in pairs, and of more than two over PCIe, where
the host's switches and sockets decide (`advisor evaluate` prints the errors)."""
PCIE_SHARE = {2: 0.6, 4: 0.55, 8: 0.44}
"""Of a PCIe link's rate, what a ring over so many GPUs carries: 35 and 28 of 63 GB/s over 4 and 8 RTX 5090
(github.com/NVIDIA/nccl/issues/1639); a pair gets 0.61 on both GPUs that were measured. Hosts that pass everything through their memory get
a tenth of the link (8 L40S: 2 GB/s)."""
REDUCED_IN_SMALL, GATHERED_IN_SMALL = 1 / 4, 1 / 3
"""Of what a ring carries, what NCCL's protocol for small messages (LL) does of all-reduces, and of others: every other word is a flag."""
LARGE_US, LARGE_STEP_US = 8.4, 5.7
"""What its protocol for large messages (Simple) takes besides, at once and for each step of a ring over PCIe; whichever protocol takes less
runs. All four are constants by which NCCL itself chooses (github.com/NVIDIA/nccl, `src/graph/tuning.cc`)."""

IN_CACHES = 2**21
"""Bytes of the largest message that a host still holds in its caches: four and eight L40S pass 1 MB at 4.5 and 3 GB/s, 8 MB at 3.7 and
1.8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Latencies in microseconds at `log2_bytes`, by GPU, collective and ranks: `{"H100": {"all_gather/nccl": {8: [...]}}}`."""

    log2_bytes: tuple[float, ...]
    of: Mapping[str, Mapping[str, Mapping[int, tuple[float, ...]]]]

    def latency_us(self, op: str, message_bytes: float, ranks: int, gpu: GpuSpec, library: str) -> tuple[float, float]:
        """Latency of a collective in microseconds, and half its 80 % interval in logarithms.

        The message is what every rank holds before an all-reduce, and all of it together after an all-gather (before a reduce-scatter).
        Between two sizes that were measured, latency grows with the bytes, as beyond the largest of a curve; below the smallest it does not
        change. Of a GPU that was not measured: over NVLink the curve of the one whose links are nearest, its bytes scaled by the links'
        rates; over PCIe that one's smallest latency, and a ring at `PCIE_SHARE` of the link, of more than two by the faster of NCCL's
        protocols: large messages at what the host passes, where that is known (small ones stay in its caches). `send` moves bytes over a
        link.

        Raises:
            UsageError: Too many ranks, or nothing is known of the links.
        """
        rate = link_rate(gpu)
        if op == "send":
            return self.latency_us("all_gather", 512, 2, gpu, "nccl")[0] + message_bytes / (SEND_SHARE * rate) * 1e6, BY_A_SIBLING
        name = f"{op}/{library}"
        known = name in self.of.get(gpu.name, {}) and gpu.host_bytes_per_s is None
        reference = gpu if known else self._nearest(gpu, name)
        curves = self.of[reference.name][name]
        if ranks > max(curves):
            raise UsageError(f"a collective over {ranks} GPUs", ranks, f"at most {max(curves)}, of one node", "give a smaller --tp")
        of_ranks = min(item for item in curves if item >= ranks)
        curve = curves[of_ranks]
        if not known and gpu.fabric_bytes_per_s is None:
            steps, share = (2 if op == "all_reduce" else 1) * (ranks - 1), PCIE_SHARE[of_ranks] * rate
            passed, large = (steps / ranks * message_bytes / passing * 1e6 for passing in (share, gpu.host_bytes_per_s or share))
            if of_ranks == 2:
                return curve[0] + large, BY_A_SIBLING
            small = curve[0] + passed / (REDUCED_IN_SMALL if op == "all_reduce" else GATHERED_IN_SMALL)
            if gpu.host_bytes_per_s and message_bytes > IN_CACHES:
                small = math.inf
            return min(small, LARGE_US + steps * LARGE_STEP_US + large), BY_A_SIBLING if gpu.host_bytes_per_s else OVER_PCIE
        wanted = message_bytes * link_rate(reference) / rate
        us = float(np.interp(wanted, np.exp2(self.log2_bytes), curve)) * max(wanted / 2 ** self.log2_bytes[-1], 1.0)
        return us, MEASURED if known else BY_A_SIBLING

    def _nearest(self, gpu: GpuSpec, name: str) -> GpuSpec:
        """The measured GPU with the same sort of links, of the same architecture if there is one (its switches do the same), whose rate is
        nearest."""
        known = [load_gpu(item) for item in self.of if name in self.of[item]]

        def distance(other: GpuSpec) -> tuple[bool, bool, float]:
            sort = (other.fabric_bytes_per_s is None) != (gpu.fabric_bytes_per_s is None)
            return sort, other.architecture != gpu.architecture, abs(math.log(link_rate(other) / link_rate(gpu)))

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """What lies between the sum of an engine's kernels and its step: `kernel_us` per kernel, `launch_us` that the host takes per launch
    without a CUDA graph, which shows where kernels end sooner, and `busy`, which the kernels' own time is multiplied by.

    `kernel_us` is below 0 where kernels were timed alone: what a launch and its events take is in every such timing, and a queue hides it.
    """

    kernel_us: float
    launch_us: float
    busy: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Everything about steps that was fitted, and the GPUs whose steps gaps and spread were fitted to.

    `spread` widens the 80 % interval of a step, by its launcher (`step.Priced.launcher`); `served` is half an 80 % interval of the log that
    steps under load add to it, by model, fitted to the other models ("": to all).
    """

    gpus: tuple[str, ...]
    gaps: dict[str, Gaps]
    spread: dict[str, float]
    curves: Curves
    served: dict[str, float]


@cache
def load_constants() -> Constants:
    """The constants shipped."""
    return read_constants(json.loads((folder("ceilings") / "steps.json").read_text(encoding="utf-8")))


def read_constants(values: dict[str, Any]) -> Constants:
    """The constants as they are stored."""
    return Constants(
        gpus=tuple(values["gpus"]),
        gaps={engine: Gaps(**value) for engine, value in values["gaps"].items()},
        spread=values["spread"],
        served=values["served"],
        curves=read_curves(values["collectives"]),
    )


def read_curves(stored: dict[str, Any]) -> Curves:
    """Those of collectives."""
    of = {gpu: {op: {int(n): tuple(us) for n, us in by.items()} for op, by in ops.items()} for gpu, ops in stored["curves"].items()}
    return Curves(log2_bytes=tuple(stored["log2_bytes"]), of=of)
