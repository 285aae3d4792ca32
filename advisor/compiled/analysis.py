"""From what was compiled and counted to what every surface shows: pipeline times, occupancy, bounds, predicted latency.

The bound of a kernel nobody has described in closed form is that of the work its IR does, but for the padding of matrix products:
another kernel for the same problem could do less. That is said wherever it is shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from advisor.compiled import phases
from advisor.compiled.demand.assembly import CodeFacts, read_facts
from advisor.compiled.demand.costs import PRODUCTS, input_type
from advisor.compiled.demand.counts import CertainDemand, KernelDemand
from advisor.compiled.demand.demand import programs_to_evaluate
from advisor.compiled.demand.footprints import DramFootprint, certain_footprint, likely_footprint, likely_footprints
from advisor.compiled.demand.likely_places import guessed_places, guessed_trips, if_distinct
from advisor.compiled.demand.machine_work import machine_work, stages_that_run
from advisor.compiled.demand.products import scales_blocks, unpacked_type
from advisor.compiled.guesses.guess_errors import certain_of_guesses
from advisor.compiled.launches.launch import Inspection, inputs_of, own_files
from advisor.compiled.one_program import in_flight_bytes, of_one_program
from advisor.compiled.phases import pipeline_times
from advisor.gpus.hardware import FP16_ACCUMULATOR, GpuSpec
from advisor.pipelines import memory as residency
from advisor.pipelines import occupancy as residents
from advisor.pipelines.bound import Bound, bound, config_bound, least_amounts, least_launch_us
from advisor.pipelines.demand import Demand, Work, fma_gain, least_special
from advisor.pipelines.schedule import DRAM_LATENCY_US, gap, latency_us, schedule, start_us
from advisor.pipelines.tile import MMA_SYNC_SHARE, compute_pipeline, product_count
from advisor.result.schema import INSTRUCTIONS, UNCERTAIN, GapPart, Latency, Occupancy, PipelineTime

Amount = TypeVar("Amount", float, np.ndarray)

SOURCE = "analytical model, demand read from the compiled code"
PROBLEM_NOTE = "The work is what this kernel's code does: another kernel for the same problem could do less."


@dataclass(frozen=True, kw_only=True)
class KernelAnalysis:
    """What a `LaunchReport` needs of a compiled kernel on one GPU."""

    gpu: GpuSpec
    cache: str  # what the L2 holds when the launch starts: warm | cold
    inspection: Inspection
    facts: CodeFacts
    work: Work = field(repr=False)
    demand: Demand = field(repr=False)
    chain: phases.Chain
    pipelines: tuple[PipelineTime, ...]
    occupancy: Occupancy
    bound: Latency
    likely_bound: Latency  # were all work certain that is likely
    config_bound: Latency
    predicted: Latency | None  # None: cannot launch
    binding_pipeline: str
    config_binding_pipeline: str
    gap_parts: tuple[GapPart, ...]
    unknowns: tuple[str, ...]
    guessed: frozenset[str]  # why it is not known how far the bound is away: guesses stand for it, in the prediction and in the bound
    doubt_us: tuple[float, float] | None = None  # the least and the most where accesses may go to fewer bytes or to more
    split_us: Mapping[int, float] = field(default_factory=dict)  # what it takes with each loop split over so many programs, where learned


CONSIDERABLE = 1.1
"""Where the bound of the likely work is so many times that of what is certain, it is said."""

FLOP_PER_EXPONENTIAL = 4 * 512
"""From one exponential for as many FLOP of products on, a kernel is taken for one whose products wait for them: attention with heads of up
to 512 has two products of that depth for each. What is applied to results alone is rarer: once for the depth of one product."""


def kernel_analysis(inspection: Inspection, gpu: GpuSpec, cache: str = "warm", facts: CodeFacts | None = None) -> KernelAnalysis:
    """Bounds, schedule, latency and occupancy of one inspected launch on `gpu`."""
    facts = facts or read_facts(inspection.compiled)
    needed = work_of(inspection.demand, gpu)
    demand, chain = _demand(inspection, gpu, facts, cache)
    least, config = bound(needed, gpu, cache), config_bound(needed, _certain(demand, inspection, gpu), gpu, cache)
    likely = likely_work_of(inspection.demand, gpu)
    likely_us = max(float(bound(likely, gpu, cache).us.reshape(-1)[0]), float(least.us.reshape(-1)[0]))
    plan = schedule(demand, gpu)
    us = float(np.atleast_1d(latency_us(demand, gpu))[0])
    bound_us = float(least.us.reshape(-1)[0])
    predicted = _predicted(us, demand, gpu, bound_us) if math.isfinite(us) else None
    times = _pipeline_times(demand, needed, gpu, cache, least, config)
    parts: tuple[GapPart, ...] = ()
    if predicted is not None:
        split = gap(demand, gpu, least.us, least_amounts(likely, gpu, cache)["dram"])
        if likely_us > CONSIDERABLE * bound_us:
            uncertain = np.minimum(likely_us - bound_us, split["efficiency"])
            split = {UNCERTAIN: uncertain, **split, "efficiency": split["efficiency"] - uncertain}
        own_us = max(time.time_us for time in times if time.pipeline not in ("launch", "dram", "l2")) - max(likely_us, bound_us)
        instructions = np.clip(own_us, 0.0, split["efficiency"])
        split = {INSTRUCTIONS: instructions, **split, "efficiency": split["efficiency"] - instructions}
        parts = tuple(GapPart(cause=cause, us=float(np.atleast_1d(amount)[0]), origin="predicted") for cause, amount in split.items())
    resources = inspection.compiled.resources
    return KernelAnalysis(
        gpu=gpu,
        cache=cache,
        inspection=inspection,
        facts=facts,
        work=needed,
        demand=demand,
        chain=chain,
        pipelines=times,
        occupancy=Occupancy(
            ctas=round(float(demand.launched_ctas[0])),
            resident_ctas_per_sm=int(np.atleast_1d(plan.resident)[0]),
            limiter=plan.limiter_name,
            waves=float(np.atleast_1d(plan.waves)[0]),
            last_wave_fill=float(np.atleast_1d(plan.last_wave_fill)[0]),
            registers_per_thread=int(demand.resources.registers[0]),
            shared_memory_bytes=resources.shared_memory_bytes,
            registers_origin="compiled" if resources.registers is not None else "estimated",
            spill_bytes=resources.spill_bytes,
            k_iterations=round(float(demand.k_iterations[0])),
            in_flight_bytes=in_flight_bytes(chain, demand, gpu, int(np.atleast_1d(plan.resident)[0])),
            needed_bytes=residency.sustained_bytes_per_us(gpu) * DRAM_LATENCY_US / gpu.num_sms,
            sms=gpu.num_sms,
        ),
        bound=Latency(us=bound_us, origin="predicted", source=SOURCE),
        likely_bound=Latency(us=likely_us, origin="predicted", source=SOURCE),
        config_bound=Latency(us=max(float(config.us.reshape(-1)[0]), bound_us), origin="predicted", source=SOURCE),
        predicted=predicted,
        binding_pipeline=least.binding_pipeline(0),
        # Not that of the bound, which leaves out what the L2 carries again and what is estimated of the machine code.
        config_binding_pipeline=max(times, key=lambda time: time.time_us).pipeline,
        gap_parts=parts,
        unknowns=inspection.assumptions,
        guessed=_guessed(inspection, gpu, cache),
        doubt_us=_doubt_us(inspection, gpu, facts, cache),
    )


def _predicted(us: float, demand: Demand, gpu: GpuSpec, floor_us: float) -> Latency:
    """The latency; with an interval where launches like it were measured."""
    if demand.phases is None:
        return Latency(us=us, origin="predicted", source=SOURCE)
    low, high = phases.shipped().interval(us, gpu)
    return Latency(us=us, origin="predicted", source=SOURCE, low_us=max(low, min(floor_us, us)), high_us=high, coverage=0.8)


def _doubt_us(inspection: Inspection, gpu: GpuSpec, facts: CodeFacts, cache: str) -> tuple[float, float] | None:
    """The latencies if accesses of which it is not known where they go went to one program's bytes alone, and to other bytes each time;
    None: it is known of all, or there is no grid, and hence no traffic to be in doubt of."""
    if inspection.launch.grid is None or not guessed_places(inspection.demand):
        return None
    most = if_distinct(inspection.demand, inputs_of(inspection.launch, inspection.guess))
    ends = [replace(inspection, demand=demand, likely=None) for demand in (inspection.least or inspection.demand, most)]
    low, high = (float(latency_us(_demand(end, gpu, facts, cache)[0], gpu).reshape(-1)[0]) for end in ends)
    return low, high


def _guessed(inspection: Inspection, gpu: GpuSpec, cache: str) -> frozenset[str]:
    """Of what is not known, that on which it hangs how far the bound is away; where accesses go only if that may add considerable time,
    or where it is not known how often they are made."""
    demand = inspection.least or inspection.demand
    trips, places = guessed_trips(demand), guessed_places(demand)
    if trips or not places:
        return trips | places
    most = if_distinct(demand, inputs_of(inspection.launch, inspection.guess))
    least_us, most_us = (float(bound(likely_work_of(item, gpu), gpu, cache).us.reshape(-1)[0]) for item in (demand, most))
    return places if most_us > CONSIDERABLE * least_us else frozenset()


def _column(value: float) -> np.ndarray:
    return np.array([float(value)])


def _runs_as(gpu: GpuSpec, kind: str) -> str | None:
    """The type in which the matrix units run products of a `KernelDemand`'s type; as that names it where it is summed in fp16 faster."""
    dtype, summed = input_type(kind), FP16_ACCUMULATOR if kind.endswith(FP16_ACCUMULATOR) else ""
    faster = gpu.fp16_accumulator_flop_per_clock_per_sm or {}
    pipeline = compute_pipeline(gpu, dtype)
    if summed and pipeline == "bf16":  # fp8, of which the GPU has none: widened to fp16, which alone is summed in fp16
        pipeline = "fp16" if gpu.supports("fp16") else pipeline
    return pipeline + summed if pipeline in faster and summed else pipeline


FP64_MATRIX_GAIN = {"8.0": 2.0, "9.0": 2.0, "gfx942": 2.0}
"""How many times the vector units' fp64 rate the matrix units have, by compute capability, where they are faster. Sources: the white papers
of A100 (19.5 TFLOPS of 9.7), H100 (67 of 33.5) and CDNA 3 (163.4 of 81.7); B200's and MI355X's datasheets give one figure for both."""


def _on_fma(kind: str, flop: float, gpu: GpuSpec) -> float:
    """FLOP of fp32 that take as long as these products of a type for which the matrix units have no rate of their own."""
    if kind == "fp64":
        return _fp64_as_fp32(gpu, flop) / FP64_MATRIX_GAIN.get(gpu.compute_capability, 1.0)
    return flop / PRODUCTS.get(kind, 1)  # what is emulated with several products is one of fp32


def _emulated_slower(kind: str, gpu: GpuSpec) -> bool:
    """Whether the matrix units take longer to emulate products of fp32 than the vector units take for these themselves."""
    pipeline = _runs_as(gpu, kind)
    if kind not in PRODUCTS or pipeline is None:
        return False
    return PRODUCTS[kind] * product_count(gpu, input_type(kind)) * gpu.fma_flop_per_clock_per_sm["fp32"] > gpu.tensor_rate(pipeline)


def _tensor(main: str | None, flop_by_type: Mapping[str, float], gpu: GpuSpec) -> tuple[str | None, float, float]:
    """The type `main` as the GPU has it, FLOP in that type's rate, and what is left for fma where it has no matrix unit for it."""
    if main is None:
        return None, 0.0, 0.0
    chosen = _runs_as(gpu, main)
    if chosen is None:
        return None, 0.0, sum(_on_fma(kind, flop, gpu) for kind, flop in flop_by_type.items())
    rate = gpu.tensor_rate(chosen)
    total = rest = 0.0
    for kind, flop in flop_by_type.items():
        pipeline = _runs_as(gpu, kind)
        if pipeline is None:
            rest += _on_fma(kind, flop, gpu)
        else:
            total += flop * product_count(gpu, input_type(kind)) * rate / gpu.tensor_rate(pipeline)
    return chosen, total, rest


def _fp64_as_fp32(gpu: GpuSpec, flop: Amount) -> Amount:
    rate = gpu.fma_flop_per_clock_per_sm.get("fp64", 0.0)
    return flop * gpu.fma_flop_per_clock_per_sm["fp32"] / rate if rate else flop


def _unpacked(gpu: GpuSpec, flop: Amount, packed: Amount) -> Amount:
    """FLOP in those of fp32, if all is packed that can be: ptxas does so with what Triton leaves apart (HFMA2 of `fma.rn.f16`)."""
    return flop - packed * (1 - 1 / fma_gain(gpu, "fp16"))


def work_of(demand: KernelDemand, gpu: GpuSpec) -> Work:
    """What any kernel has to do that gives what this one gives, whatever the data are."""
    return _work(demand, demand.certain, certain_footprint(demand), gpu)


def likely_work_of(demand: KernelDemand, gpu: GpuSpec) -> Work:
    """The same if all is so that the prediction takes for likely."""
    return _work(demand, demand, likely_footprint(demand), gpu)


def _work(demand: KernelDemand, counted: KernelDemand | CertainDemand, passing: DramFootprint, gpu: GpuSpec) -> Work:
    padding = counted.padding
    products = {kind: flop - padding.tensor_flop.get(kind, 0.0) for kind, flop in counted.tensor_flop.items()}
    slower = {kind: _on_fma(kind, products.pop(kind), gpu) for kind in tuple(products) if _emulated_slower(kind, gpu)}
    kind, tensor, rest = _tensor(demand.main_tensor_type, products, gpu)
    rest += sum(slower.values())
    # The bound is of any kernel for this work, as it is of an operator's: special functions can be done on the fma pipeline as well.
    flop = _unpacked(gpu, counted.fma_flop, counted.packed_flop) - padding.fma + rest
    flop += _fp64_as_fp32(gpu, counted.fp64_flop - padding.fp64)
    fma, xu = least_special(gpu, _column(counted.xu_op), _column(flop))
    return Work(
        tensor_flop=_column(tensor),
        fma_flop=fma,
        xu_op=xu,
        compulsory_bytes=_column(passing.read + passing.written),
        result_bytes=_column(passing.results),
        in_place_bytes=_column(passing.in_place),
        tensor_dtype=kind,
    )


def _demand(inspection: Inspection, gpu: GpuSpec, facts: CodeFacts, cache: str) -> tuple[Demand, phases.Chain]:
    demand, compiled = inspection.demand, inspection.compiled
    rows, cluster = demand.per_program, compiled.num_ctas
    working, ctas, largest = _ctas(rows, demand.scale, cluster)
    kind, tensor, rest = _tensor(demand.main_tensor_type, demand.tensor_flop, gpu)
    threads = compiled.num_warps * cluster * gpu.warp_size
    copies, tensors = demand.repeated(threads), demand.repeated(threads, least=2)  # scalars are left to the uniform datapath
    fma = demand.fma_flop + tensors.fma + rest + _fp64_as_fp32(gpu, demand.fp64_flop + tensors.fp64)
    instruction_flop = 2 * 64 * 128 * 16 if facts.matrix_instruction in ("wgmma", "tcgen05") else 2 * 16 * 8 * 16
    requested = demand.requested_load_bytes
    stored = demand.requested_store_bytes + demand.atomic_bytes
    warp_group = residents.has_warp_group(gpu) and facts.matrix_instruction == "mma"
    resources = residents.Resources(
        registers=_column(compiled.resources.registers or 32),
        shared_memory_bytes=_column(compiled.resources.shared_memory_bytes),
        num_warps=_column(compiled.resources.num_warps),
    )
    slots = gpu.num_sms * max(float(residents.resident_ctas(gpu, resources)[0][0]), 1.0)
    stored_first = sum(demand.stored_first.values())
    in_place = _column(max(demand.likely_in_place_bytes - stored_first, 0.0))
    compulsory = _column(sum(demand.likely_read_footprints.values()) - stored_first + sum(demand.likely_written_footprints.values()))
    once, loaded = demand.likely_read_footprints, _wave_loads(inspection, slots / cluster, ctas / cluster)
    again = {name: max(amount - once.get(name, 0.0), 0.0) for name, amount in loaded.items()}
    # What is read in many rounds over it (a table of positions, by every head) is read again before much else has passed.
    rounds = [1.0 if demand.total_tensor_flop else max(amount / max(once.get(name, amount), 1.0), 1.0) for name, amount in loaded.items()]
    lost = residency.re_read_fraction((compulsory - in_place) / np.array(rounds or [1.0]), gpu.l2_bytes)
    missed = max(min(requested, sum(loaded.values())) - sum(once.values()), 0.0)
    missed *= float(lost @ np.array([*again.values()] or [0.0])) / max(sum(again.values()), 1.0)
    extra = machine_work(compiled, demand, facts, gpu, ctas, slots / gpu.num_sms)
    chain, repeated, near = of_one_program(inspection, gpu, min(slots, ctas), cluster)
    missed += repeated + extra.spill_l2_bytes * float(residency.second_pass_fraction(_column(extra.spilled_at_once), gpu)[0])
    dram = residency.likely_dram_bytes(compulsory + demand.likely_unused_bytes, gpu, cache, in_place)
    nearest = float(np.clip(dram / np.maximum(compulsory, 1), 0, 1)[0])
    chain = replace(chain, from_dram=nearest * chain.from_dram)
    scattered = sum(a.unused_bytes for a in demand.accesses if a.kind == "load")
    on_lanes = (demand.fma_flop + rest + demand.fp64_flop) / 1.5 + demand.xu_op + demand.alu_op + copies.instructions
    issue = on_lanes / gpu.warp_size + extra.access_instructions + tensor / instruction_flop
    if not tensor:  # as compiled: what is estimated of the IR has no address, no branch and no exchange between threads
        issue = max(issue, extra.instructions) if facts.loops or not facts.code else extra.instructions
    per_cta = {
        "tensor": tensor,
        "fma": fma,
        "xu": demand.xu_op + tensors.xu,
        "alu": demand.alu_op + tensors.alu,
        "issue": issue,
        "smem": demand.smem_bytes + extra.conversion_bytes + extra.spill_bytes,
    }
    rate = MMA_SYNC_SHARE if warp_group else 1.0
    if kind is not None and (unpacked := unpacked_type(compiled)) is not None and gpu.supports(unpacked):
        # Another kernel might use the narrow instruction, so the bound does.
        rate *= min(gpu.tensor_rate(unpacked) / gpu.tensor_rate(kind), 1.0)
    elif kind is not None and not scales_blocks(compiled):
        rate = min(rate, gpu.plain_dot_share(kind))  # another kernel might give all blocks the scale 1
    trips = rows["trips"][working].mean() if working.size else 0.0
    in_turn = 0 < tensor < demand.xu_op * FLOP_PER_EXPONENTIAL
    demanded = Demand(
        per_cta={name: _column(amount / ctas) for name, amount in per_cta.items()},
        ctas=_column(ctas),
        launched_ctas=_column(max(demand.programs, 1) * cluster),
        cta_load_bytes=_column((requested - near + scattered) / ctas),
        cta_store_bytes=_column(stored / ctas),
        l2_bytes=_column(requested - near + stored + extra.sector_bytes + extra.spill_l2_bytes),
        dram_bytes=dram + missed,
        compulsory_bytes=compulsory,
        useful_fraction=_column(_useful_fraction(demand)),
        k_iterations=_column(max(trips, 1.0)),
        tensor_dtype=kind,
        tensor_rate=_column(rate),
        num_stages=_column(stages_that_run(compiled, facts)),
        resources=resources,
        useful=_useful(demand, gpu, per_cta, instruction_flop),
        largest_cta_ratio=largest,
        in_turn=in_turn,
        replicas=_column(1.0) if in_turn else None,  # its trips wait as those of attention do
        phases=None if demand.total_tensor_flop else phases.shipped().phases(chain, gpu, cache),
    )
    return demanded, chain


def _useful_fraction(demand: KernelDemand) -> float:
    done, padding = demand.total_tensor_flop + demand.fma_flop + demand.fp64_flop, demand.padding
    return 1 - (sum(padding.tensor_flop.values()) + padding.fma + padding.fp64) / done if done else 1.0


def _useful(demand: KernelDemand, gpu: GpuSpec, done: Mapping[str, float], instruction_flop: float) -> dict[str, np.ndarray]:
    """What of the demand of each SM pipeline is none of padding: of products, and of what is staged for them."""
    padding = demand.padding
    _, tensor, rest = _tensor(demand.main_tensor_type, padding.tensor_flop, gpu)
    padded = {
        "tensor": tensor,
        "fma": padding.fma + rest + _fp64_as_fp32(gpu, padding.fp64),
        "xu": 0.0,
        "alu": 0.0,
        "smem": padding.smem,
    }
    padded["issue"] = padded["fma"] / 1.5 / gpu.warp_size + tensor / instruction_flop
    return {name: _column(1 - min(padded[name] / amount, 1.0) if amount else 1.0) for name, amount in done.items()}


def _ctas(rows: Mapping[str, np.ndarray], scale: float, cluster: int) -> tuple[np.ndarray, float, np.ndarray | None]:
    """Which of the evaluated programs work, the CTAs of all that do, and the work of the largest over the mean one's."""
    busy = rows["tensor"] + rows["fma"] + rows["load"] + rows["store"] + rows["atomic"] + rows["alu"]
    working = busy > 0.01 * busy.max() if busy.size and busy.max() > 0 else np.ones(busy.shape, bool)
    mean = busy[working].mean() if busy.size else 1.0
    ratio = _column(max(float(busy.max() / mean), 1.0)) if busy.size and mean > 0 else None
    return working, max(float(working.sum()) * scale, 1.0) * cluster, ratio


def _certain(demanded: Demand, inspection: Inspection, gpu: GpuSpec) -> Demand:
    """The demand without what is assumed of data, and what is estimated of the machine code (spills, conversions, sectors)."""
    demand, certain, cluster = inspection.demand, inspection.demand.certain, inspection.compiled.num_ctas
    rows = certain.per_program
    busy = np.any([amounts > 0 for amounts in rows.values()], axis=0)
    ctas = max(float(busy.sum()) * demand.scale, 1.0) * cluster
    _, tensor, rest = _tensor(demand.main_tensor_type, certain.tensor_flop, gpu)
    fma = _unpacked(gpu, certain.fma_flop, certain.packed_flop) + rest + _fp64_as_fp32(gpu, certain.fp64_flop)
    totals = {"tensor": tensor, "fma": fma, "xu": certain.xu_op, "smem": certain.smem_bytes}
    per_program: dict[str, np.ndarray] = {
        "tensor": rows["tensor"],
        "fma": _unpacked(gpu, rows["fma"], rows["packed"]) + _fp64_as_fp32(gpu, rows["fp64"]),
        "xu": rows["xu"],
        "smem": rows["smem"],
    }
    # Of a sum of unlike parts the largest of one part says nothing.
    alike = {"tensor": len(certain.tensor_flop) > 1, "fma": rest > 0}
    ratios = {name: 1.0 if alike.get(name) else _largest(amounts[busy]) for name, amounts in per_program.items()}
    equal = all(np.ptp(amounts[busy]) == 0 for amounts in per_program.values()) if busy.any() else True
    largest = None
    if not equal or (demand.scale > 1 and not busy.all()):
        largest = max(*ratios.values(), 1 + 1e-6)
        # Each pipeline has a largest CTA of its own, and the demand one for all.
        most = max(ctas / gpu.num_sms, largest)
        totals = {name: total * max(ctas / gpu.num_sms, ratios[name]) / most for name, total in totals.items()}
    return replace(
        demanded,
        per_cta={**demanded.per_cta, **{name: _column(total / ctas) for name, total in totals.items()}},
        ctas=_column(ctas),
        cta_load_bytes=_column(_one_programs_loads(inspection) / cluster if ctas <= gpu.num_sms else 0.0),
        largest_cta_ratio=None if largest is None else _column(largest),
    )


def _largest(amounts: np.ndarray) -> float:
    """The largest of some amounts over the mean one; 1 where all are 0."""
    return float(amounts.max() / amounts.mean()) if amounts.any() else 1.0


def _one_programs_loads(inspection: Inspection) -> float:
    """Distinct bytes that one program loads for certain, the one that asks for most: what it loads again, it may find in the L1."""
    demand = inspection.demand
    requested = demand.certain.per_program["requested_load"]
    if not requested.any():
        return 0.0
    most = programs_to_evaluate(demand.grid, len(requested))[0][[int(requested.argmax())]]
    inputs = inputs_of(inspection.launch, inspection.guess)
    one = inspection.counted.demand(inspection.compiled.ttir, demand.grid, inputs, own_files(inspection.compiled), most)
    return certain_footprint(certain_of_guesses(one, inspection.guess)).read


def _wave_loads(inspection: Inspection, slots: float, working: float) -> Mapping[str, float]:
    """Bytes of each argument that all waves of `slots` programs load, each byte once in a wave: one in the middle stands for all."""
    demand = inspection.demand
    waves = working / slots  # not rounded up: what each program reads for itself all of them read once
    if waves <= 1 or not demand.programs:
        return demand.likely_read_footprints
    count = max(int(min(slots, demand.programs)), 1)
    start = (demand.programs // 2) // count * count
    chosen = np.arange(start, min(start + count, demand.programs), dtype=np.int64)
    chosen = chosen[:: max(1, len(chosen) // 512)]
    inputs = inspection.likely or inputs_of(inspection.launch, inspection.guess)
    one = inspection.counted.demand(inspection.compiled.ttir, demand.grid, inputs, own_files(inspection.compiled), chosen)
    reads = likely_footprints(tuple(a for a in one.accesses if a.kind == "load"), inputs, len(chosen))
    return {name: waves * amount for name, amount in reads.items()}


def _pipeline_times(demanded: Demand, needed: Work, gpu: GpuSpec, cache: str, least: Bound, config: Bound) -> tuple[PipelineTime, ...]:
    def time_us(name: str, rate: float, demand: float, busiest: float | None) -> float:
        time = float(np.atleast_1d(config.times_us[name])[0])
        if rate and busiest is not None:
            time = max(time, busiest / (rate / gpu.num_sms))
        return max(time, demand / rate) if rate and name in ("l2", "dram") else time

    launch_us = max(least_launch_us(gpu), float(start_us(demanded, gpu)[0]))
    return pipeline_times(demanded, least_amounts(needed, gpu, cache), needed.compulsory_bytes, least, gpu, launch_us, time_us)
