"""The features of a GPU: a few rates and capacities, never its name.

The rates and capacities of a GPU that the models of measured library kernels read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines.memory import READ_SHARE, sustained_bytes_per_us
from advisor.pipelines.schedule import sustained_flop_per_us
from advisor.pipelines.tile import compute_pipeline, product_count

A100_WHITE_PAPER_BYTES_PER_CLOCK = 5120.0
A100_L2_BYTES_PER_CLOCK = 4809.0
"""L2 bandwidth of compute capability 8.0. The A100 white paper says 5,120 B/clk; 4,809 is what brings the served launches of the
A100 onto the curve of the other GPUs (6.78 TB/s at 1410 MHz; the published table's 3.2 TB/s would be exceeded by 1.4
times). Other GPUs of 8.0 have the same share of what their file says."""

MOST_L2_BYTES_PER_CLOCK_PER_SM = {8.9: 17.8, 12.0: 17.0}
"""What the GPUs that launches were measured on have at the boost clock, by compute capability. The files of their relatives (RTX 4090,
RTX 5090, the RTX PRO 6000 of workstations) give the rate at the highest clock, which the bound needs and this model did not learn with."""

FMA_PRODUCT_SHARE = {8.6: 0.72, 8.9: 0.72, 9.0: 0.92, 12.0: 0.72}
"""Of what the vector units give to products on other GPUs, relative to their peak, by compute capability. Where an SM has as many lanes as
its schedulers issue instructions for, every load from shared memory takes the slot of an FMA. Source: torch.mm in fp32 on boards that power
does not hold down (`tests/training/published_products.csv`): RTX 4090 0.65 of the peak at the boost clock, RTX 5090 0.64, RTX 3090 0.69,
H100 0.84, H20 0.87; but A100 0.98, V100 0.96, B200 0.94."""

TENSOR_MEMORY = (10.0, 10.3)
"""Compute capabilities whose matrix products run on other instructions (tcgen05) than those of any GPU that was measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One GPU as the learned model sees it. Rates are per microsecond, of the whole GPU.

    `clock_mhz` is the boost clock of the datasheet, not the highest one: predictions are of what usually happens. `sustained_flop` is what
    the board's power allows, infinite where that is unknown. `dram_bytes` is what the pins leave for data, `streamed_dram_bytes` the same
    where nothing is known of what DRAM sustains, and less on GPUs that were measured to sustain less than usual.
    """

    compute_capability: float
    num_sms: float
    clock_mhz: float
    flop_per_clock_per_sm: float
    peak_flop: float
    sustained_flop: float
    dram_bytes: float
    streamed_dram_bytes: float
    pin_bytes: float
    l2_rate_bytes: float
    l2_capacity_bytes: float
    smem_bytes_per_sm: float
    smem_bytes_per_cta: float
    smem_bytes_per_clock: float
    max_warps_per_sm: float
    has_warp_group: bool


def machine(gpu: GpuSpec, dtype: str) -> Machine:
    """The figures of `gpu` for operands of `dtype`, in plain products, as the launches learned from have them; fp32 runs on the fma
    pipeline where no tensor pipeline takes it."""
    clock = gpu.boost_clock_mhz or gpu.max_clock_mhz
    tensor = compute_pipeline(gpu, dtype)
    capability = _capability(gpu)
    rate = gpu.fma_flop_per_clock_per_sm["fp32"] * FMA_PRODUCT_SHARE.get(capability, 1.0)
    if tensor:
        rate = gpu.tensor_flop_per_clock_per_sm[tensor] * gpu.plain_dot_share(tensor) / product_count(gpu, dtype)
    l2_rate = gpu.l2_bytes_per_s / 1e6
    if capability == 8.0:
        l2_rate = A100_L2_BYTES_PER_CLOCK * clock * (gpu.l2_bytes_per_s / (A100_WHITE_PAPER_BYTES_PER_CLOCK * clock * 1e6))
    l2_rate = min(l2_rate, MOST_L2_BYTES_PER_CLOCK_PER_SM.get(capability, np.inf) * gpu.num_sms * clock)
    warp_group = gpu.vendor == "nvidia" and (capability == 9.0 or 10.0 <= capability < 12.0)
    return Machine(
        compute_capability=capability,
        num_sms=float(gpu.num_sms),
        clock_mhz=clock,
        flop_per_clock_per_sm=rate,
        peak_flop=rate * gpu.num_sms * clock,
        sustained_flop=sustained_flop_per_us(gpu, tensor) / product_count(gpu, dtype),
        dram_bytes=gpu.dram_bytes_per_s * gpu.dram_achievable_fraction / 1e6,
        streamed_dram_bytes=sustained_bytes_per_us(gpu) / READ_SHARE,
        pin_bytes=gpu.dram_bytes_per_s / 1e6,
        l2_rate_bytes=l2_rate,
        l2_capacity_bytes=float(gpu.l2_bytes),
        smem_bytes_per_sm=float(gpu.smem_bytes_per_sm),
        smem_bytes_per_cta=float(gpu.smem_bytes_per_cta),
        smem_bytes_per_clock=gpu.smem_bytes_per_clock_per_sm,
        max_warps_per_sm=float(gpu.max_warps_per_sm),
        has_warp_group=warp_group,
    )


def _capability(gpu: GpuSpec) -> float:
    """Compute capability as a number; 0 for GPUs of other vendors."""
    try:
        return float(gpu.compute_capability)
    except ValueError:
        return 0.0


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
