"""The rates and capacities of a GPU that the models of measured library kernels read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.learned.machine import machine
from advisor.pipelines.power import sustained_flop_per_us

FAMILIES = {"gfx942": 94.2, "gfx950": 95.0}
"""AMD's targets as a number beside NVIDIA's compute capabilities."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One GPU for operands of one type. Rates are per microsecond, of the whole GPU; `rate` is FLOP per clock and SM."""

    capability: float
    sms: float
    clock: float
    rate: float
    sustained: float
    dram: float
    l2_rate: float
    l2_bytes: float

    @property
    def warp_groups(self) -> bool:
        """Whether matrix products run on wgmma or tcgen05 instructions."""
        return 9 <= self.capability < 12

    @property
    def tensor_memory(self) -> bool:
        """Whether they run on tcgen05 instructions."""
        return 10 <= self.capability < 12

    @property
    def identity(self) -> dict[str, float]:
        """Figures that tell measured GPUs apart: with the identity of a relative, the trees answer as for that relative."""
        return {"sms": self.sms, "capability": self.capability, "clock": self.clock, "dram": self.dram, "l2": self.l2_bytes}


def chip(gpu: GpuSpec, dtype: str) -> Chip:
    """The figures of `gpu` at its highest clock, where short launches run, for operands of `dtype`."""
    rates = gpu.tensor_flop_per_clock_per_sm
    rate = rates.get(dtype, rates.get("bf16", gpu.fma_flop_per_clock_per_sm["fp32"]))
    name = gpu.compute_capability
    return Chip(
        capability=FAMILIES[name] if name in FAMILIES else float(name) if name.replace(".", "").isdigit() else 0.0,
        sms=float(gpu.num_sms),
        clock=gpu.max_clock_mhz,
        rate=rate,
        sustained=min(sustained_flop_per_us(gpu, dtype if dtype in rates else "bf16"), rate * gpu.num_sms * gpu.max_clock_mhz),
        dram=gpu.dram_bytes_per_s * gpu.dram_achievable_fraction / 1e6,
        l2_rate=machine(gpu, "bf16").l2_rate_bytes,
        l2_bytes=float(gpu.l2_bytes),
    )


def missed_share(bytes_used: np.ndarray, capacity: float, slope: float = 3.0) -> np.ndarray:
    """Share of the accesses that the cache does not serve, [n]: it rises around the cache's size, and does not fall off a cliff."""
    return 1 / (1 + (np.maximum(bytes_used, 1.0) / capacity) ** -slope)
