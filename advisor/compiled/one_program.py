"""What one program of a launch does in turn: the loads that it waits for, which of them caches answer, and what it has in flight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor.compiled import phases
from advisor.compiled.demand.assembly import loops_around_loads
from advisor.compiled.demand.counts import AccessDemand
from advisor.compiled.demand.footprints import likely_footprints
from advisor.compiled.ir.execution import Inputs
from advisor.compiled.launches.launch import Inspection, inputs_of, own_files
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import memory as residency
from advisor.pipelines.demand import Demand
from advisor.pipelines.schedule import DRAM_LATENCY_US, L2_LATENCY_US

MOST_SCALARS = 3
"""Scalars that are taken to be loaded one after another; more are addressed by arguments, and come together."""


def of_one_program(inspection: Inspection, gpu: GpuSpec, in_flight: float, cluster: int) -> tuple[phases.Chain, float, float]:
    """What a program in the middle does in turn, with the share of its loads that a cold cache would send to DRAM; and the bytes
    that come from DRAM again, of what all programs read that they read or stored before, and that the L1 keeps: without products, of
    NVIDIA, whose copies for products pass it by.

    Args:
        inspection: The launch.
        gpu: The GPU.
        in_flight: CTAs at work at a time.
        cluster: CTAs of a program.
    """
    demand, resources = inspection.demand, inspection.compiled.resources
    inputs = inspection.likely or inputs_of(inspection.launch, inspection.guess)
    middle = np.array([demand.programs // 2], dtype=np.int64)
    one = inspection.counted.demand(inspection.compiled.ttir, demand.grid, inputs, own_files(inspection.compiled), middle)
    loads = [access for access in one.accesses if access.kind == "load"]
    exchanged = [
        load
        for place, load in enumerate(one.accesses)
        if load.kind == "load" and load.in_loop and load.name in demand.stored_first
        if any(item.kind == "store" and (item.name, item.loop) == (load.name, load.loop) for item in one.accesses[:place])
    ]  # within one trip, during which little else passes the L2
    per_sm = math.ceil(in_flight / gpu.num_sms) / cluster
    room = max(gpu.smem_bytes_per_sm - per_sm * cluster * resources.shared_memory_bytes, 1.0)
    # What all programs share (weights) a cache holds once. An L2 in two partitions holds what is read in both, what is stored in one.
    whole, at_once, loaded = demand.likely_footprint_bytes, in_flight / cluster, one.likely_read_footprints
    in_l1 = sum(min(per_sm * item, max(whole.get(name, 0.0), item)) for name, item in loaded.items())

    def kept_by_l1(held: float) -> float:
        return min(max((0.5 - held / room) / 0.25, 0.0), 1.0)  # all up to a quarter of it, nothing from half of it on

    kept = kept_by_l1(in_l1)
    stored = 0.5 if gpu.compute_capability in residency.SPLIT_L2 else 1.0
    held = sum(
        min(at_once * (read_once + stored * (item - read_once)), max(whole.get(name, 0.0), item))
        for name, item in one.likely_footprint_bytes.items()
        for read_once in (loaded.get(name, 0.0),)
    )
    soon = {
        number: trips
        for number, load in enumerate(loads)
        if load not in exchanged and (trips := _trips_apart(loads[:number], load, inputs))
    }
    asked = {
        name: sum(
            load.requested_bytes for number, load in enumerate(loads) if load.name == name and load not in exchanged and number not in soon
        )
        for name in dict.fromkeys(load.name for load in loads)
    }
    again = {name: max(amount - loaded.get(name, 0.0), 0.0) * demand.programs for name, amount in asked.items()}
    by_l1 = gpu.vendor == "nvidia" and not demand.total_tensor_flop
    near = sum(again.values()) * kept if by_l1 else 0.0
    lost = (1 - kept) * float(residency.second_pass_fraction(np.array([held]), gpu)[0])
    lost_soon = {}
    for number, trips in soon.items():  # as much passes meanwhile as in one trip
        kept_soon = kept_by_l1(in_l1 / trips)
        near += loads[number].requested_bytes * demand.programs * kept_soon if by_l1 else 0.0
        lost_soon[_place(loads[number])] = (1 - kept_soon) * float(residency.second_pass_fraction(np.array([held / trips]), gpu)[0])
    wave = at_once / max(demand.programs, 1)
    shared = {name: min(max(whole.get(name, item) / max(item * demand.programs, 1.0), wave), 1.0) for name, item in loaded.items()}
    # What others at work read meanwhile (weights) is used again sooner.
    sharers = {
        name: min(max(item * demand.programs / max(whole.get(name, item), 1.0), 1.0), max(at_once, 1.0)) for name, item in loaded.items()
    }
    losses = {name: lost / float(count) for name, count in sharers.items()} | dict.fromkeys((load.name for load in exchanged), 0.0)
    stored_lost = sum(count * losses.get(name, lost) for name, count in demand.stored_first.items())
    repeated = sum(amount * losses.get(name, lost) for name, amount in again.items())
    repeated += sum(loads[number].requested_bytes * demand.programs * lost_soon[_place(loads[number])] for number in soon)
    loads = _as_compiled(loads, loops_around_loads(inspection.compiled.ptx, set(own_files(inspection.compiled))))
    first = {**shared, **{name: losses.get(name, lost) for name in demand.stored_first}}
    chain = _chain(loads, inputs, first, losses, lost_soon)
    return replace(chain, reductions=one.reductions), repeated + stored_lost, near


def _place(load: AccessDemand) -> tuple[int | None, str]:
    return load.line, load.operation.text


def _trips_apart(before: Sequence[AccessDemand], load: AccessDemand, inputs: Inputs) -> float:
    """In how many trips of the innermost loop that a load shares with an earlier one of the same bytes both read each byte once, so that a
    trip reads again what it read, as a loop over rows may read each twice; or in how many of its loop it reads the same; 0: neither."""

    def bytes_of(*accesses: AccessDemand) -> float:
        return sum(likely_footprints(accesses, inputs, 1).values())

    if load.around and load.executions > 1 and bytes_of(load) * load.executions < 1.01 * load.requested_bytes:
        return load.executions
    once = [item for item in (*before, load) if item.name == load.name and item.around and bytes_of(item) > 0.99 * item.requested_bytes]
    for earlier in once if load in once else ():
        common = [one for one, other in zip(load.around, earlier.around, strict=False) if one[0] == other[0]]
        inside = [trips for _, trips in load.around[len(common) :]]
        if earlier is not load and common and all(inside) and bytes_of(earlier, load) < 1.01 * bytes_of(earlier):
            trips = load.executions / math.prod(map(int, filter(None, inside)))
            return trips if trips > 1 else 0.0
    return 0.0


def _as_compiled(loads: Sequence[AccessDemand], loops: Mapping[int, tuple[int, int]]) -> list[AccessDemand]:
    """The loads with those of unrolled loops as one, of all trips, or of some, together: the compiler lets them all begin before it waits
    for the first.

    Args:
        loads: Of one program, as the IR has them.
        loops: By line, how many loops its loads stand in as compiled, and trips that are waited for together (`loops_around_loads`).
    """
    compiled = []
    for load in loads:
        left, _ = loops.get(load.line or 0, (len(load.around), 1))
        trips = [trips for _, trips in load.around[left:]]
        if trips and all(trips):
            inner = load.around[left - 1][0] if left else None
            load = replace(load, executions=load.executions / math.prod(map(int, filter(None, trips))), loop=inner)
        compiled.append(replace(load, executions=max(load.executions / trips_together(load, loops), min(load.executions, 1.0))))
    return compiled


def trips_together(load: AccessDemand, loops: Mapping[int, tuple[int, int]]) -> int:
    """Trips of a load's loop that are waited for together; `loops` as of `loops_around_loads`."""
    left, together = loops.get(load.line or 0, (0, 1))
    return together if any(trips is None for _, trips in load.around[:left][-1:]) else 1


def in_flight_bytes(chain: phases.Chain, demand: Demand, gpu: GpuSpec, resident: int) -> float | None:
    """Bytes that the CTAs of an SM have asked DRAM for at a time; None where nothing is waited for: of products, which are staged."""
    if demand.phases is None or not chain.in_flight_bytes:
        return None
    return chain.in_flight_bytes * min(resident, math.ceil(float(demand.launched_ctas[0]) / gpu.num_sms))


def _chain(
    loads: Sequence[AccessDemand],
    inputs: Inputs,
    shared: Mapping[str, float],
    losses: Mapping[str, float],
    soon: Mapping[tuple[int | None, str], float],
) -> phases.Chain:
    """The loads of one program that wait for each other: one for all outside of loops, one for each trip that loads, one for each scalar.

    Args:
        loads: In the order of the program.
        inputs: The arguments.
        shared: Of each argument, the share of what the programs at work at a time first read that no program before them has read: 1
            where none shares anything, the inverse of the waves of what all read (weights), which the L2 has from the first wave on, and
            of what some read (positions, of all heads) the bytes over what is asked for.
            Of what a program stored before it reads it, as `losses`.
        losses: Of each argument, the share of what a program reads again that has left the caches.
        soon: The same of loads that read again within a trip of a loop, by line and operation.
    """
    turns: dict[int | None, list[tuple[AccessDemand, float]]] = {}  # tiles by the loop they stand in
    scalars: list[tuple[AccessDemand, float]] = []
    for number, access in enumerate(loads):
        before, until = ([item for item in loads[:end] if item.name == access.name] for end in (number, number + 1))
        new = sum(likely_footprints(until, inputs, 1).values()) - sum(likely_footprints(before, inputs, 1).values())
        first = min(new / access.requested_bytes, 1.0) if access.requested_bytes else 1.0
        far = first * shared.get(access.name, 1.0) + (1 - first) * soon.get(_place(access), losses.get(access.name, 0.0))
        if access.lanes > 1:
            turns.setdefault(access.loop, []).append((access, far))
        elif not access.in_loop:
            scalars.append((access, far))
    rounds, far_rounds, most, in_flight = 0.0, 0.0, 0.0, 0.0
    waits: dict[tuple[int | None, str], float] = {}
    for group in (*turns.values(), *([item] for item in scalars[:MOST_SCALARS])):
        count = max(access.executions if access.in_loop else 1.0 for access, _ in group)
        farthest = max(far for _, far in group)
        rounds, far_rounds = rounds + count, far_rounds + count * farthest
        lengths = [far + (1 - far) * L2_LATENCY_US / DRAM_LATENCY_US for _, far in group]
        for (access, _), length in zip(group, lengths, strict=True):
            waits[access.line, access.operation.text] = count * max(lengths) * length / sum(lengths)
        if count * farthest > most and (group[0][0].lanes > 1 or not most):
            most, in_flight = count * farthest, sum(access.requested_bytes * far for access, far in group) / count
    from_dram = far_rounds / rounds if rounds else 1.0
    return phases.Chain(rounds=max(rounds, 1.0), reductions=0.0, from_dram=from_dram, in_flight_bytes=in_flight, waits=waits)
