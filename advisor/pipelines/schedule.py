"""The analytical latency of a configuration: waves of CTAs, each limited by a pipeline or by latency.

T = launch + fill + sum over waves of max(pipeline times of the wave, latency of its loop) + drain, and no less than the board's power
allows (below) or than it takes to start the CTAs (`start_us`). The structure follows TileSight (arXiv 2607.22432: prologue, steady
state, epilogue; tail waves with what the active SMs can draw) and WaveTune (linear in the grid per wave). `relax` removes one cause at a
time, which is how the gap is split (see `gap`).

Rates that a board's power limit sustains: FLOP cost energy, and boards with less than their chips can take lower the clock.

No part of any bound: a short burst, or a matrix of zeros, runs at the highest clock all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

import numpy as np

from advisor.gpus.hardware import FP16_ACCUMULATOR, GpuSpec
from advisor.pipelines import memory
from advisor.pipelines.bound import L2_PORT_BYTES_PER_CLOCK, far_l2_us, least_launch_us, throughput_per_us
from advisor.pipelines.columns import Array
from advisor.pipelines.demand import SM_PIPELINES, Demand, Work
from advisor.pipelines.occupancy import LIMITERS, resident_ctas

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


CAUSES = ("padding", "tail-wave", "occupancy", "latency", "traffic", "launch", "power")
"""Causes that can be relaxed, in the order in which the gap is split."""

EFFICIENCY = {"tensor": 0.86, "fma": 0.80, "xu": 0.85, "alu": 0.9, "issue": 0.9, "smem": 0.95, "l2": 0.75}
"""Share of its peak a pipeline sustains in a well-shaped kernel. Fitted by hand on the sweeps of `data/README.md` (A100, A40, H800,
L40; best configurations, 2026-11) to the nearest 0.01 to 0.05; the learned model replaces these where it applies."""

IN_TURN = ("tensor", "fma", "xu", "alu")
"""Pipelines that wait for each other where `Demand.in_turn`: their sum is within a fifth of Triton's attention on an H100 (407 to 487
TFLOP/s of fp16 with heads of 128, facebookexperimental/triton#206) and of FlashAttention 2 on an A100. Were one CTA to fill what another of
its SM waits for, they would be predicted 1.6 times too fast, as by the maximum."""

DRAM_LATENCY_US = 0.65
L2_LATENCY_US = 0.27
"""Load latency from DRAM and from the L2. Source: arXiv 2402.13499, table of memory latencies (H100 PCIe, A100, RTX 4090): L2 about
200 to 270 cycles, DRAM about 470 to 660 cycles, at 1.4 to 1.8 GHz, plus the address arithmetic and the barrier of one trip."""


STARTED_PER_CLOCK = 0.85
"""CTAs that an NVIDIA GPU starts per clock, all SMs together, at the highest clock. Source: scale of github.com/te42kyfo/gpu-benches
(`gpu-small-kernels`) with CTAs of 16 to 64 threads, which start at one rate however many threads they have: A100 0.95, H200 0.84, L40
0.76. Of AMD's GPUs only one of a single die is known (MI210 0.49)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """The placement of CTAs on the GPU: waves, resident CTAs and their limits, columns [n]."""

    resident: Array  # CTAs per SM; 0: cannot launch
    limiter: Array  # index into occupancy.LIMITERS
    waves: Array  # not rounded
    last_wave_fill: Array  # (0, 1]

    @property
    def limiter_name(self) -> str:
        """The resource that limits the resident CTAs of the first row."""
        return LIMITERS[int(self.limiter[0])]


def schedule(demand: Demand, gpu: GpuSpec) -> Schedule:
    """Residency, waves and the fill of the last wave."""
    resident, limiter = resident_ctas(gpu, demand.resources)
    slots = gpu.num_sms * np.maximum(resident, 1)
    waves = demand.ctas / slots
    resident, limiter, waves = np.broadcast_arrays(resident, limiter, waves)
    full = np.floor(waves)
    rest = waves - full
    limiter = np.where((waves < 1) & (resident > 0), LIMITERS.index("grid"), limiter)
    return Schedule(resident=resident, limiter=limiter, waves=waves, last_wave_fill=np.where(rest > 1e-9, rest, 1.0))


def _overlap(times: list[Array]) -> Array:
    """Time of pipelines that overlap, but not perfectly: a soft maximum (8-norm)."""
    longest = np.maximum.reduce(np.broadcast_arrays(*times))
    scale = np.maximum(longest, 1e-12)
    total = np.zeros(longest.shape)
    for time in times:
        total = total + np.square(np.square(np.square(time / scale)))
    return longest * np.sqrt(np.sqrt(np.sqrt(total)))


def _wave_us(demand: Demand, gpu: GpuSpec, ctas: Array, relax: Collection[str]) -> Array:
    """Time of a wave of `ctas` CTAs spread over the SMs."""
    rates = throughput_per_us(gpu, demand.tensor_dtype)
    per_sm = ctas / gpu.num_sms if "tail-wave" in relax else np.ceil(ctas / gpu.num_sms)
    if "tail-wave" in relax:
        per_sm = np.maximum(per_sm, 1e-12)
    useful = {name: demand.useful_share(name) if "padding" in relax else np.ones(1) for name in SM_PIPELINES}
    times: list[Array] = []
    for name in SM_PIPELINES:
        rate = rates[name] / gpu.num_sms * EFFICIENCY[name]
        if rate:
            share = demand.tensor_rate if name == "tensor" else np.ones(1)
            if name == "issue" and demand.rounds is not None:  # a scheduler has warps of its own
                share = np.minimum(per_sm * demand.resources.num_warps / SCHEDULERS, 1.0)
            times.append(per_sm * demand.per_cta[name] * useful[name] / (rate * share))
    l2_bytes = demand.compulsory_bytes if "traffic" in relax else demand.l2_bytes
    times.append(ctas * l2_bytes / demand.ctas / (rates["l2"] * EFFICIENCY["l2"]))
    times.append(ctas * far_l2_us(demand.compulsory_bytes, gpu) / demand.ctas / EFFICIENCY["l2"])
    port = per_sm * demand.cta_load_bytes / (L2_PORT_BYTES_PER_CLOCK * gpu.max_clock_mhz * EFFICIENCY["l2"])
    if "traffic" not in relax:
        times.append(port)
    dram_bytes = np.minimum(demand.dram_bytes, demand.compulsory_bytes) if "traffic" in relax else demand.dram_bytes
    written_share = demand.ctas * demand.cta_store_bytes / np.maximum(demand.compulsory_bytes, 1)
    share = demand.phases.dram_share if demand.phases is not None else np.ones(1)
    times.append(ctas * memory.sustained_us(dram_bytes, written_share, gpu) / (demand.ctas * share))
    if "latency" in relax:
        return _overlap(times)
    cta_us: Array | float = 0.0
    if demand.in_turn and rates["tensor"]:  # the next product waits for what is made of the last one
        cta_us = _in_turn_us(demand, gpu, {name: rates[name] / gpu.num_sms / np.maximum(useful[name], 1e-9) for name in SM_PIPELINES})
        times.append(per_sm * cta_us)
    from_dram = np.clip(demand.dram_bytes / np.maximum(demand.compulsory_bytes, 1), 0, 1)
    latency = L2_LATENCY_US + (DRAM_LATENCY_US - L2_LATENCY_US) * from_dram
    depth = np.maximum(demand.num_stages - 1, 1)
    loop = demand.k_iterations * latency / depth if demand.phases is None else demand.phases.serial_us
    if demand.replicas is not None and rates["tensor"]:
        ahead = np.maximum(latency / depth - cta_us / np.maximum(demand.k_iterations, 1), TRIP_US)
        waits = np.where(demand.num_stages > 1, ahead, 2 * latency)
        loop = cta_us + demand.k_iterations * waits + 3 * latency + CTA_US
    if "occupancy" in relax:  # as many CTAs as warps allow would hide each other's latency
        resident = np.maximum(resident_ctas(gpu, demand.resources)[0], 1)
        loop = loop * resident / np.maximum(np.floor(gpu.max_warps_per_sm / demand.resources.num_warps), resident)
    if demand.phases is not None:  # CTAs that start together load together and compute together
        return np.hypot(_overlap(times), loop)
    return _overlap([*times, loop])


TRIP_US, CTA_US = 0.3, 2.0
"""What a CTA of attention waits in each trip, for its warps, matrix units and reductions, and what it takes before and after its loop
besides three loads that wait for each other. Source: the 620 launches of decoding in `ceilings/measurements/`, which are 14 % off with
them and 19 without; with them those of prefill are too (34 without), and 14 to 20 % with half or twice of either."""

ISSUED = 0.7
"""Share of its issue slots that an SM uses where its instructions wait for each other; counted and measured likewise."""


def _in_turn_us(demand: Demand, gpu: GpuSpec, rates: Mapping[str, Array]) -> Array:
    """Time [n] of one CTA whose matrix units wait for its other pipelines and they for those; `rates` of one SM, per microsecond."""
    if demand.replicas is None:
        tensor, *others = (demand.per_cta[name] / (rates[name] * EFFICIENCY[name]) for name in IN_TURN)
        return np.asarray(tensor / demand.tensor_rate + sum(others))
    tensor, *others = (demand.per_cta[name] * demand.replicas / rates[name] for name in IN_TURN)
    return np.asarray(tensor / demand.tensor_rate + np.maximum(sum(others), demand.per_cta["issue"] / (rates["issue"] * ISSUED)))


SCHEDULERS = 4
"""Of an SM, each of which issues instructions of its own warps alone (NVIDIA GPUs from compute capability 5.0 on)."""

SPILL_COST = 8.0
"""Slow-down per register spilled, relative to the registers there are: every spilled value is stored and loaded in every trip of the
main loop. An estimate, large enough that a configuration which cannot hold its accumulators is not recommended: of the 21,557
configurations within 1 % of the best of the published sweeps (`data/README.md`) none has more than 128 accumulators per thread."""

OPERAND_COST = 2.0
"""The same of probabilities on their way to the next product, once a trip: an estimate."""

ADDRESSES = 24
"""Registers for addresses, masks and the loop itself, which accumulators leave (compiled fused-MoE tiles, Triton 3.9)."""


def spill_factor(demand: Demand, gpu: GpuSpec) -> Array:
    """1 where the accumulators fit the registers, more where the compiler must spill them."""
    accumulators = demand.resources.accumulators
    if accumulators is None:
        return np.ones(1)
    threads = demand.resources.num_warps * gpu.warp_size
    factor = 1 + SPILL_COST * spilled_share(accumulators, threads, gpu.registers_per_sm, gpu.max_registers_per_thread)
    if demand.replicas is None:
        return factor
    return np.maximum(factor, 1 + OPERAND_COST * np.maximum(demand.resources.registers / gpu.max_registers_per_thread - 1, 0))


def spilled_share(accumulators: Array, threads: Array, registers_per_sm: float, most_per_thread: float) -> Array:
    """Registers that a thread lacks for its accumulators, relative to those that it can have; 0 where they fit."""
    available = np.minimum(most_per_thread, np.maximum(np.floor(registers_per_sm / threads), 1))
    return np.maximum((accumulators + ADDRESSES) / available - 1, 0)


def start_us(demand: Demand, gpu: GpuSpec) -> Array:
    """Time [n] in microseconds that the GPU takes to start all CTAs, those too that exit at once; 0 where its rate is not known."""
    if gpu.vendor != "nvidia":
        return np.zeros(1)
    return demand.launched_ctas / (STARTED_PER_CLOCK * gpu.max_clock_mhz)


def latency_us(demand: Demand, gpu: GpuSpec, relax: Collection[str] = ()) -> Array:
    """Predicted latency, [n] in microseconds, with that of the launch that adds up results stored in parts; inf where the configuration
    cannot launch.

    Args:
        demand: Columns [n].
        gpu: The GPU.
        relax: Causes (of `CAUSES`) to leave out, as if they cost nothing.
    """
    plan = schedule(demand, gpu)
    slots = gpu.num_sms * np.maximum(plan.resident, 1)
    slots = np.minimum(slots, np.maximum(demand.ctas, 1))
    full_waves = np.floor(demand.ctas / slots)
    rest = demand.ctas - full_waves * slots
    wave = _wave_us(demand, gpu, slots, relax)
    if "tail-wave" in relax:
        total = demand.ctas / slots * wave
    else:
        tail = np.where(rest > 0.5, _wave_us(demand, gpu, np.maximum(rest, 1), relax), 0.0)
        total = full_waves * wave + tail
        # CTAs do not wait for a wave to end: with many waves the tail overlaps the one before it.
        smooth = demand.ctas / slots * wave
        blend = 1 / (1 + full_waves)
        total = np.where(full_waves >= 1, blend * total + (1 - blend) * np.maximum(smooth, total * 0.5), total)
    start: Array | float
    if "launch" in relax:  # what is left is the launch as the bound has it
        start = least_launch_us(gpu)
    elif demand.phases is not None and demand.phases.start_us is not None:
        start = demand.phases.start_us
    else:  # with the first loads, where they are not counted with the CTA
        start = gpu.launch_latency_us + (DRAM_LATENCY_US + L2_LATENCY_US) * (demand.replicas is None)
    total = total * spill_factor(demand, gpu)
    limits = [] if "power" in relax else [sustained_us(demand, gpu)]
    if "launch" not in relax:
        limits.append(start_us(demand, gpu))
    total = _overlap([total, *limits])
    total = start + total
    if demand.then is not None and demand.parts is not None:
        total = total + np.where(demand.parts > 1, latency_us(demand.then, gpu, relax), 0.0)
    return np.where(plan.resident > 0, total, np.inf)


def gap(demand: Demand, gpu: GpuSpec, bound_us: Array, least_dram_bytes: Array | None = None) -> dict[str, Array]:
    """Split predicted latency minus bound into causes, by relaxing them one after another (so that the parts add up).

    With `least_dram_bytes`, those that the bound counts, all that DRAM moves beyond them is traffic: what is read again, and what the L2
    may have kept and likely has not. Else it would be left to `efficiency`, as if DRAM were slow.

    Returns:
        Per cause of `CAUSES`, and `efficiency` (what remains: pipelines below their peak), the microseconds, [n].
    """
    parts: dict[str, Array] = {}
    relaxed: list[str] = []
    before = latency_us(demand, gpu)
    for cause in CAUSES:
        relaxed.append(cause)
        if cause == "traffic" and least_dram_bytes is not None:
            demand = replace(demand, dram_bytes=np.minimum(demand.dram_bytes, least_dram_bytes))
        after = np.minimum(latency_us(demand, gpu, relaxed), before)
        parts[cause] = np.subtract(before, after, out=np.zeros_like(before), where=np.isfinite(before))
        before = after
    parts["efficiency"] = before - bound_us
    return parts
