"""`Work`, the least a problem needs of every pipeline, and `Demand`, what a configuration asks of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines.columns import Array
from advisor.pipelines.occupancy import Resources

SM_PIPELINES = ("tensor", "fma", "xu", "alu", "issue", "smem")
"""Pipelines every SM has one of: the busiest SM decides. l2 and dram are shared by all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The least any kernel must do for a problem, columns [n].

    `fma_flop` is in FLOP of fp32: those of a type that the vector units do faster count for as much less (`fma_gain`).
    `compulsory_bytes` are the distinct bytes read and written once each, `result_bytes` those written, `in_place_bytes` those that are
    read and written at one place. From and to DRAM goes only what the L2 cannot hold (`bound.least_amounts`). Between L2 and SMs each
    direction has its own wires, so only the larger of the two is certain there.
    """

    tensor_flop: Array
    fma_flop: Array
    xu_op: Array
    compulsory_bytes: Array
    result_bytes: Array
    in_place_bytes: Array | float = 0.0
    tensor_dtype: str | None  # None: the family's products run on the fma pipeline (fp32)

    def amounts(self) -> dict[str, Array]:
        """Demand per pipeline, in the units of `schema.PIPELINE_UNITS`."""
        zero = np.zeros_like(self.compulsory_bytes)
        one_way = np.maximum(self.compulsory_bytes - self.result_bytes, self.result_bytes)
        return {
            "tensor": self.tensor_flop,
            "fma": self.fma_flop,
            "xu": self.xu_op,
            "alu": zero,
            "issue": zero,
            "smem": zero,
            "l2": one_way,
            "dram": self.compulsory_bytes,
        }


EMULATED_SPECIAL_FLOP = 6.0
"""FLOP of a special function done on the fma pipeline: three FMA of a cubic polynomial, range reduction left out. Source:
FlashAttention-4 (together.ai/blog/flashattention-4) computes some exponentials so; a bound must grant every kernel that."""


DP4A_PER_LANE = 4.0
"""Products of dp4a, a dot of four bytes each, for one of fp32. Source: CUDA C++ Programming Guide, arithmetic instruction throughput; from
compute capability 6.1 on (P4: 22 TOPS of int8, 5.5 TFLOPS of fp32)."""


def fma_gain(gpu: GpuSpec, dtype: str, *, dot: bool = False) -> float:
    """How many times as many FLOP of `dtype` as of fp32 the vector units do at most: a bound must grant every kernel packed arithmetic.

    Types of a byte can be widened to fp16, int4 to int8. bf16 has instructions where the matrix units take it (compute capability 8.0,
    CDNA 3).

    Args:
        gpu: The GPU.
        dtype: Of the operands.
        dot: Whether products are added up, as dp4a does.
    """
    rates = gpu.fma_flop_per_clock_per_sm
    if dtype in ("int8", "int4") and dot and gpu.compute_capability != "6.0":
        return DP4A_PER_LANE
    if dtype in ("fp16", "fp8", "int8", "int4") or (dtype == "bf16" and gpu.supports("bf16")):
        return max(rates.get("fp16", 0.0) / rates["fp32"], 1.0)
    return 1.0


def least_special(gpu: GpuSpec, special: Array, flop: Array, dtype: str = "fp32") -> tuple[Array, Array]:
    """The split of special functions between xu and fma (which has `flop` of `dtype` to do too) that ends first: fma FLOP, in those of
    fp32, and xu operations."""
    gain = fma_gain(gpu, dtype)
    flop, emulated = flop / gain, EMULATED_SPECIAL_FLOP / gain
    per_xu, per_flop = 1 / gpu.xu_op_per_clock_per_sm, 1 / gpu.fma_flop_per_clock_per_sm["fp32"]
    on_xu = np.clip((flop + special * emulated) * per_flop / (per_xu + emulated * per_flop), 0.0, special)
    return flop + (special - on_xu) * emulated, on_xu


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """What passes one thing after another in a launch without matrix products, columns [n].

    Attributes:
        start_us: From the launch, or the event before it, until the work is under way; None: as of any launch.
        serial_us: What a CTA takes that has all pipelines to itself.
        dram_share: What DRAM sustains, relative to `dram.sustained_us`.
    """

    start_us: Array | None
    serial_us: Array
    dram_share: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """Work that one configuration does for a problem, columns [n]; padding, masked lanes and re-reads included.

    Attributes:
        per_cta: What one full CTA asks of each SM pipeline (`SM_PIPELINES`).
        ctas: CTAs that work (CTAs that exit at once are in `launched_ctas` only).
        cta_load_bytes: Bytes one CTA loads through the L2, on average.
        l2_bytes: All bytes through the L2: operands as often as they are loaded, results once.
        dram_bytes: Bytes likely to come from and go to DRAM, with the re-reads the L2 cannot absorb and without what it still holds (warm).
        compulsory_bytes: Distinct bytes.
        useful_fraction: Problem FLOP / FLOP done, (0, 1]: what padding leaves.
        useful: The same share of single pipelines of an SM, where they differ.
        k_iterations: Trips of the main loop of one CTA.
        tensor_dtype: Type of the tensor pipeline, or None.
        tensor_rate: Share of the peak tensor rate that the instruction of this configuration can reach.
        resources: Registers, shared memory, warps per CTA.
        largest_cta_ratio: Work of the largest CTA over the mean one's, where CTAs are unequal (causal attention).
        certain_xu: Share of the xu demand that no kernel of the configuration can do without.
        certain_fma: Share of the fma demand that is left where a kernel packs its arithmetic (`fma_gain`).
        in_turn: Whether a CTA's tensor pipeline waits for its others in every trip, and they for it (block-scaled products, attention).
        replicas: How many warps do the work of one, where products that follow from each other have all warps along fewer rows than these
            multiply (attention).
        rounds: Loads of a CTA that wait for each other, and
        reductions: reductions over its threads, of launches without matrix products.
        parts: In how many parts the results are stored, where the depth is divided among CTAs.
        then: The launch that adds up those of more than one part, once this one has ended.
        phases: Of compiled code without matrix products.
    """

    per_cta: Mapping[str, Array]
    ctas: Array
    launched_ctas: Array
    cta_load_bytes: Array
    cta_store_bytes: Array
    l2_bytes: Array
    dram_bytes: Array
    compulsory_bytes: Array
    useful_fraction: Array
    k_iterations: Array
    tensor_dtype: str | None
    tensor_rate: Array
    num_stages: Array
    resources: Resources
    largest_cta_ratio: Array | None = None
    in_turn: bool = False
    replicas: Array | None = None
    rounds: Array | None = None
    reductions: Array | None = None
    certain_xu: float = 1.0
    certain_fma: float = 1.0
    parts: Array | None = None
    then: Demand | None = None
    useful: Mapping[str, Array] | None = None
    phases: Phases | None = None

    def useful_share(self, pipeline: str) -> Array:
        """Share [n] of an SM pipeline's demand that is not padding, 0 to 1."""
        return self.useful_fraction if self.useful is None else self.useful.get(pipeline, self.useful_fraction)

    def totals(self) -> dict[str, Array]:
        """Demand of the whole GPU per pipeline."""
        amounts = {name: self.per_cta[name] * self.ctas for name in SM_PIPELINES}
        return amounts | {"l2": self.l2_bytes, "dram": self.dram_bytes}

    def busiest_sm(self, num_sms: int) -> dict[str, Array]:
        """Demand of the SM that gets most: ceil(CTAs / SMs) CTAs, whatever their order (pigeonhole).

        Where CTAs are unequal only the mean load and the largest CTA are certain.
        """
        most = np.ceil(self.ctas / num_sms)
        if self.largest_cta_ratio is not None:
            certain = np.maximum(self.ctas / num_sms, self.largest_cta_ratio)
            most = np.where(self.largest_cta_ratio > 1 + 1e-9, certain, most)
        return {name: self.per_cta[name] * most for name in SM_PIPELINES}
