"""Rates that a board's power limit sustains: FLOP cost energy, and boards with less than their chips can take lower the clock.

No part of any bound: a short burst, or a matrix of zeros, runs at the highest clock all the same.
"""

from __future__ import annotations

import numpy as np

from advisor.gpus.hardware import FP16_ACCUMULATOR, GpuSpec
from advisor.pipelines.columns import Array
from advisor.pipelines.demand import Demand, Work

STATIC_SHARE = 0.25
"""Of the board's power, what goes into leakage, memory and fans, whatever is computed. Assumed; the energies below are reckoned with it."""

PICOJOULES_PER_FLOP: dict[str, tuple[float, float]] = {
    # compute capability: (vector units in fp32, matrix units in 16 bits)
    "6.0": (12.0, 0.0),
    "6.1": (11.8, 0.0),
    "7.0": (12.5, 2.0),
    "7.5": (12.5, 1.24),
    "8.0": (11.0, 0.90),
    "8.6": (9.2, 1.85),
    "8.9": (5.2, 0.97),
    "9.0": (7.2, 0.55),
    "10.0": (7.0, 0.44),
    "10.3": (7.0, 0.44),
    "11.0": (7.0, 0.44),  # Jetson Thor: not measured, as the other tensor cores with a memory of their own
    "12.0": (5.8, 1.10),
    "12.1": (5.8, 1.10),
    "gfx942": (0.0, 0.87),
    "gfx950": (0.0, 0.64),
}
"""Energy of an operation, by compute capability; 0: unknown. It is (1 - `STATIC_SHARE`) x board power / the rate of big torch.mm of random
numbers, on boards that the limit holds down. Source of the rates: github.com/zzc0721/torch-performance-test-data, `database.md` and issues
95, 108, 120, 185 (L4 11.1 and 55 TFLOP/s in fp32 and 16 bits, T4 4.2 and 42, A100-PCIE-40GB 17 and 208, A40 23.3 and 116, RTX A6000 23.9
and 122, L40S 46.9 and 267, H100 PCIe 36.5 and 475, B200 16 bits 1,690, RTX PRO 6000 409) and, for P4 and fp32 on T4, library operators that
NeuSight published. 6.0 and 7.0, and fp32 on 10.x, are what their neighbours suggest: no board of theirs is held down. gfx942: about
650 TFLOP/s in 16 bits on an MI300X (SemiAnalysis, "MI300X vs H100 vs H200": 620 of 1,307; later libraries a little more); gfx950: 1,650 of
2,500 on an MI355X, not verified."""

RELATIVE_ENERGY = {"bf16": 1.0, "fp16": 1.0, "tf32": 2.0, "fp8": 0.5, "int8": 0.5, "fp4": 0.25}
"""Of a FLOP on the matrix units, to one in 16 bits: by the width of the operands, as the same measurements have it for tf32 (L4, A100 and
H100 PCIe: half the rate within 8 %)."""


def sustained_us(demand: Demand, gpu: GpuSpec) -> Array:
    """The time in which the board can supply the energy of the launch, [n] in microseconds; 0 where its power or its energies are unknown.

    Padding counts as free: it multiplies zeros, which switch next to nothing.
    """
    tensor, fma = (demand.per_cta[name] * demand.ctas * demand.useful_fraction for name in ("tensor", "fma"))
    return _us(tensor, fma, demand.tensor_dtype, gpu)


def least_sustained_us(work: Work, gpu: GpuSpec) -> Array:
    """The same of a problem, without what a configuration adds."""
    return _us(work.tensor_flop, work.fma_flop, work.tensor_dtype, gpu)


def _us(tensor_flop: Array, fma_flop: Array, tensor_dtype: str | None, gpu: GpuSpec) -> Array:
    return tensor_flop / sustained_flop_per_us(gpu, tensor_dtype) + fma_flop / sustained_flop_per_us(gpu, None)


def sustained_flop_per_us(gpu: GpuSpec, tensor_dtype: str | None) -> float:
    """FLOP per microsecond that the board's power allows: of the matrix units with inputs of that type, of the vector units in fp32 for
    None; infinite where it is unknown."""
    if gpu.board_power_w is None or gpu.compute_capability not in PICOJOULES_PER_FLOP:
        return np.inf
    fma, tensor = PICOJOULES_PER_FLOP[gpu.compute_capability]
    picojoules = fma if tensor_dtype is None else tensor * RELATIVE_ENERGY[tensor_dtype.partition(FP16_ACCUMULATOR)[0]]
    return gpu.board_power_w * (1 - STATIC_SHARE) / picojoules * 1e6 if picojoules else np.inf
