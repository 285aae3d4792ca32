"""Lower bounds on latency: of a problem on a GPU (`bound`), and of one configuration of it (`config_bound`).

bound = launch + max over pipelines of (least demand / highest throughput). Pipelines can overlap perfectly, so the maximum, not
the sum, is certain; the launch cannot be hidden, but counts only what it takes at least (`least_launch_us`). Both use the highest
clock the GPU can run at.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import memory
from advisor.pipelines.columns import Array
from advisor.pipelines.demand import SM_PIPELINES, Demand, Work
from advisor.result.schema import PIPELINES

L2_PORT_BYTES_PER_CLOCK = 64.0
"""Bytes per clock one SM can take from the L2. Source: NVIDIA A100 whitepaper (5,120 B/clk for 80 ports of 64 B) and
arXiv 2402.13499 (Hopper, Ada); AMD CDNA3 ISA: 64 B/clk per CU."""

LEAST_LAUNCH_US = 0.5
"""The most that a bound counts for the launch, in microseconds: what it costs in a stream (`GpuSpec.launch_latency_us`) is no floor.
Back to back in a CUDA graph, as our own timer runs them, whole small kernels take 1.1 to 1.3 us (pytorch/pytorch#161104: 2,000
additions of 1,024 elements in one graph; Hazy Research, "Look Ma, No Bubbles!", H100: 1.3 us, 2.1 in a stream), a launch 0.8 us on a
B200 (MPK, arXiv 2512.22219), and one that does nothing 0.78 us on our H100, 0.50 on our H200, where 4,096 additions took 1.07."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A lower bound, columns [n]: the time of every pipeline, their maximum plus launch, and which pipeline binds."""

    us: Array
    times_us: Mapping[str, Array]
    binding: NDArray[np.intp]  # index into schema.PIPELINES

    def binding_pipeline(self, i: int) -> str:
        """Name of the binding pipeline of row i."""
        return PIPELINES[int(self.binding[i])]


def throughput_per_us(gpu: GpuSpec, tensor_dtype: str | None) -> dict[str, float]:
    """Peak throughput of every pipeline of the whole GPU, in its unit per microsecond, at the highest clock."""
    per_clock = gpu.num_sms * gpu.max_clock_mhz  # SM-clocks per us
    tensor = gpu.tensor_rate(tensor_dtype) if tensor_dtype else 0.0
    return {
        "tensor": tensor * per_clock,
        "fma": gpu.fma_flop_per_clock_per_sm["fp32"] * per_clock,
        "xu": gpu.xu_op_per_clock_per_sm * per_clock,
        "alu": gpu.alu_op_per_clock_per_sm * per_clock,
        "issue": gpu.issue_instruction_per_clock_per_sm * per_clock,
        "smem": gpu.smem_bytes_per_clock_per_sm * per_clock,
        "l2": gpu.l2_bytes_per_s / 1e6,
        "dram": gpu.dram_bytes_per_s * gpu.dram_achievable_fraction / 1e6,
    }


def far_l2_us(bytes_moved: Array, gpu: GpuSpec) -> Array:
    """Time at the rate of the cache behind the L2s (AMD's Infinity Cache) for distinct bytes: all that the L2s do not hold."""
    if gpu.l2_far_bytes_per_s is None or gpu.l2_near_bytes is None:
        return np.zeros_like(bytes_moved)
    return np.maximum(bytes_moved - gpu.l2_near_bytes, 0.0) / (gpu.l2_far_bytes_per_s / 1e6)


def least_launch_us(gpu: GpuSpec) -> float:
    """The launch's part of every bound, in microseconds: never more than `LEAST_LAUNCH_US`."""
    return min(float(gpu.launch_latency_us), LEAST_LAUNCH_US)


def _finish(times: dict[str, Array], gpu: GpuSpec) -> Bound:
    shape = np.broadcast_shapes(*(t.shape for t in times.values()))
    times = {name: np.broadcast_to(t, shape) for name, t in times.items()}
    stacked = np.stack([times[name] for name in PIPELINES if name != "launch"])
    longest = stacked.max(axis=0)
    launch = np.full(shape, least_launch_us(gpu))
    # The launch binds where it outlasts all the work.
    binding = np.where(launch > longest, PIPELINES.index("launch"), stacked.argmax(axis=0))
    return Bound(us=launch + longest, times_us=times | {"launch": launch}, binding=binding)


def least_amounts(work: Work, gpu: GpuSpec, cache_state: str) -> dict[str, Array]:
    """The least demand of every pipeline (columns [n]), with what the L2 spares the DRAM."""
    least = memory.least_dram_bytes(work.compulsory_bytes, work.result_bytes, gpu.l2_bytes, cache_state, work.in_place_bytes)
    return work.amounts() | {"dram": least}


def share_of_least(pipeline: str, least: float, demanded: float) -> float:
    """Of the bound's demand on a pipeline, the share that a configuration asks that asks less, and so the least of any.

    Only of fma: the bound does special functions there where that ends sooner, a configuration may do them on xu.
    """
    return demanded / least if pipeline == "fma" and demanded < least else 1.0


def bound(work: Work, gpu: GpuSpec, cache_state: str) -> Bound:
    """The least time any kernel needs for `work` (columns [n]) on `gpu`."""
    rates = throughput_per_us(gpu, work.tensor_dtype)
    amounts = least_amounts(work, gpu, cache_state)
    times = {n: (a / rates[n] if rates[n] else np.zeros_like(a)) for n, a in amounts.items()}
    times["l2"] = np.maximum(times["l2"], far_l2_us(amounts["l2"], gpu))
    return _finish(times, gpu)


def config_bound(work: Work, demand: Demand, gpu: GpuSpec, cache_state: str) -> Bound:
    """The least time this configuration needs: its padding, and the SM with most CTAs; DRAM as for the problem.

    `tensor` uses the rate of the instruction the configuration can use; `l2` is the larger of all traffic over the L2's bandwidth
    and one SM's loads over its port.
    """
    rates = throughput_per_us(gpu, demand.tensor_dtype)
    busiest = demand.busiest_sm(gpu.num_sms)
    times: dict[str, Array] = {}
    for name in SM_PIPELINES:
        rate = rates[name] / gpu.num_sms
        if name == "tensor":
            times[name] = busiest[name] / (rate * demand.tensor_rate) if rate else np.zeros_like(busiest[name])
        else:
            times[name] = busiest[name] * {"xu": demand.certain_xu, "fma": demand.certain_fma}.get(name, 1.0) / rate
    port = demand.cta_load_bytes * np.ceil(demand.ctas / gpu.num_sms) / (L2_PORT_BYTES_PER_CLOCK * gpu.max_clock_mhz)
    if demand.largest_cta_ratio is not None:
        port = demand.cta_load_bytes * demand.ctas / gpu.num_sms / (L2_PORT_BYTES_PER_CLOCK * gpu.max_clock_mhz)
    # Co-resident CTAs may share a line in the L1, so only distinct bytes are certain to cross the whole L2's bandwidth.
    least = least_amounts(work, gpu, cache_state)
    distinct = least["l2"]
    times["l2"] = np.maximum(np.maximum(distinct / rates["l2"], far_l2_us(distinct, gpu)), np.zeros_like(port))
    times["l2"] = np.maximum(times["l2"], np.where(demand.ctas <= gpu.num_sms, port, 0.0))
    times["dram"] = least["dram"] / rates["dram"] + np.zeros_like(port)
    # alu and issue counts are estimates of what the compiler emits, not certain enough for a bound.
    times["alu"], times["issue"] = np.zeros_like(port), np.zeros_like(port)
    return _finish(times, gpu)
