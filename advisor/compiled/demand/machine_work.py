"""What the machine code makes of the work beyond the IR: spills, layout conversions, half-used sectors, narrow accesses.

Each is an amount of the whole launch that the prediction contains, so that a rule can say what the launch would take without it.
How often an instruction executes is taken from its source line; one that the compiler moved out of all loops executes once per CTA.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from advisor.compiled.compiler.kernel import CompiledKernel
from advisor.compiled.demand.assembly import CodeFacts
from advisor.compiled.demand.counts import AccessDemand, KernelDemand
from advisor.gpus.hardware import GpuSpec

WIDEST_ACCESS_BYTES = 16
"""Bytes a thread can move with one instruction. Source: CUDA C++ Programming Guide, device memory accesses."""
SPILLED = "bytes that a thread stores and loads of spilled registers"
"""Key in the metadata of what was judged without compiling: by line, for each execution of it."""
CONVERSION_PASSES = 2
"""A layout conversion stores the tensor to shared memory and loads it again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineWork:
    """Amounts of the whole launch.

    Attributes:
        spill_bytes: Through the L1, stores and loads of spilled registers.
        spill_l2_bytes: Of these, what the L1 cannot hold, at least once in and out.
        spilled_at_once: Bytes that all CTAs in flight have spilled.
        conversion_bytes: Of layout conversions in loops, through shared memory.
        sector_bytes: Of sectors that are fetched and not used, because neighbouring threads are far apart.
        access_instructions: Warp instructions of global loads and stores, each of which every warp issues, whatever few elements it has.
        access_instructions_widest: The same with 16 bytes per thread.
        instructions: Warp instructions that all warps issue, as often as their lines execute.
    """

    spill_bytes: float
    spill_l2_bytes: float
    spilled_at_once: float
    conversion_bytes: float
    sector_bytes: float
    access_instructions: float
    access_instructions_widest: float
    instructions: float


def machine_work(
    compiled: CompiledKernel, demand: KernelDemand, facts: CodeFacts, gpu: GpuSpec, ctas: float, resident: float
) -> MachineWork:
    """The amounts, for `ctas` CTAs that work, `resident` of them on an SM at a time."""
    threads = compiled.num_warps * gpu.warp_size
    spilled = compiled.resources.spill_bytes or 0
    cluster = compiled.num_ctas
    moved = spill_traffic(demand, facts, threads * cluster, ctas / cluster)
    for line, size in compiled.metadata.get(SPILLED, {}).items():
        moved += size * threads * cluster * executions_at(demand, line, ctas / cluster)
    moved = max(moved, 2.0 * spilled * threads * ctas)  # whatever is spilled goes out and comes back once at least
    room = max(gpu.smem_bytes_per_sm - resident * compiled.resources.shared_memory_bytes, 1.0)
    spilled_bytes = resident * threads * spilled
    overflow = max(1 - room / spilled_bytes, 0.0) if spilled_bytes else 0.0
    narrow = widest = 0.0
    for access in demand.accesses:
        if access.kind != "atomic":
            all_warps = access.executions * compiled.num_warps
            lanes = gpu.warp_size * WIDEST_ACCESS_BYTES
            widest += max(access.issued_bytes / lanes, all_warps)
            narrow += max(access.issued_bytes / (gpu.warp_size * width_of(access, facts)), all_warps)
    return MachineWork(
        spill_bytes=moved,
        spill_l2_bytes=max(2.0 * spilled * threads * ctas, overflow * moved),
        spilled_at_once=spilled_bytes * min(ctas / resident, gpu.num_sms),
        conversion_bytes=sum(CONVERSION_PASSES * size * executions_at(demand, line, ctas) for line, _, size in facts.conversions_in_loop),
        sector_bytes=sum(access.unused_bytes for access in demand.accesses),
        access_instructions=narrow,
        access_instructions_widest=widest,
        instructions=compiled.num_warps * _issued(demand, facts, ctas),
    )


def _issued(demand: KernelDemand, facts: CodeFacts, ctas: float) -> float:
    """Instructions of one warp of each CTA, all together: a loop's as often as most of its lines execute that the kernel's file has."""
    issued = sum(count * min(executions_at(demand, line, ctas), ctas) for line, count in facts.straight_line.items())
    for trip in facts.trips:
        by_executions: dict[float, float] = defaultdict(float)
        for line, count in trip.items():
            if executions := executions_at(demand, line, 0.0):
                by_executions[executions] += count
        issued += sum(trip.values()) * max(by_executions, key=lambda executions: by_executions[executions], default=0.0)
    return issued


def width_of(access: AccessDemand, facts: CodeFacts) -> float:
    """Bytes per thread of an access in the machine code; the widest where that is not known."""
    widths = facts.widths.get((access.kind, access.line or 0), ())
    return float(max(widths)) if widths else float(WIDEST_ACCESS_BYTES)


def spill_traffic(demand: KernelDemand, facts: CodeFacts, threads: int, programs: float) -> float:
    """Bytes that loads and stores of local memory move, the whole launch: `programs` of `threads` each."""
    loops = [range(loop.start, loop.end + 1) for loop in facts.loops if loop.depth == 1]
    most = max((line.executions for line in demand.lines), default=programs)
    total = 0.0
    for item in facts.code:
        if item.kind == "spill":
            executions = (executions_at(demand, item.line, 0.0) or most) if any(item.address in span for span in loops) else programs
            total += (item.width_bytes or 4) * threads * max(executions, programs)
    return total


def executions_at(demand: KernelDemand, line: int | None, otherwise: float) -> float:
    """How often a line's busiest operation executes, over all programs."""
    return max((item.executions for item in demand.lines if item.line == line and item.executions > 0), default=otherwise)


def stages_that_run(compiled: CompiledKernel, facts: CodeFacts) -> int:
    """Depth of the software pipeline in the code: what was asked for, or 1 where nothing is copied asynchronously."""
    pipelined = facts.async_copies > 0 or compiled.target.backend != "cuda" or not (facts.code or compiled.ptx)
    return max(compiled.num_stages, 1) if pipelined else 1
