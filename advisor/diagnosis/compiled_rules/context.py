"""The context of a rule on compiled code: the kernel, its counts and its prediction."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from advisor.compiled.analysis import KernelAnalysis
from advisor.compiled.compiler.kernel import CompiledKernel
from advisor.compiled.demand.assembly import CodeFacts, CodeLoop, main_loop
from advisor.compiled.demand.counts import AccessDemand, KernelDemand
from advisor.compiled.demand.machine_work import MachineWork, machine_work
from advisor.compiled.ir.arithmetic import Divisor, divisors
from advisor.compiled.ir.ir import Module, Operation, parse
from advisor.compiled.ir.slicing import for_parts, needed_values
from advisor.compiled.launches.launch import Inspection, author_file, own_files
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines.demand import Demand
from advisor.pipelines.memory import second_pass_fraction
from advisor.pipelines.schedule import latency_us

BYTES_A_THREAD = 64
"""Loaded and stored, that a program has when it is given more work: sixteen registers of values."""
LEAST_SAVING_US = 0.01
"""No latency is known to less; a smaller saving is none."""


@dataclass(frozen=True, kw_only=True)
class CompiledContext:
    """One inspected kernel. `gpu` where one is named or fits the target, `analysis` what is predicted on it."""

    inspection: Inspection
    facts: CodeFacts
    gpu: GpuSpec | None = None
    analysis: KernelAnalysis | None = None

    @property
    def compiled(self) -> CompiledKernel:
        """The compiled kernel."""
        return self.inspection.compiled

    @property
    def demand(self) -> KernelDemand:
        """The demand counted in the kernel."""
        return self.inspection.demand

    @property
    def accesses(self) -> tuple[AccessDemand, ...]:
        """The accesses, with rows taken for contiguous where their strides are not given."""
        return self.demand.likely_accesses or self.demand.accesses

    @cached_property
    def module(self) -> Module:
        """The TTIR."""
        return parse(self.compiled.ttir, own_files(self.compiled))

    @cached_property
    def divisors(self) -> dict[int, Divisor]:
        """The divisors of the module's divisions."""
        return divisors(self.module)

    @cached_property
    def operations(self) -> tuple[tuple[Operation, int], ...]:
        """Operations of the TTIR with the number of loops around each."""
        around = self.module.loops_around()
        return tuple((op, len(around.get(id(op), ()))) for op in self.module.kernel.walk())

    @cached_property
    def index_operations(self) -> tuple[Operation, ...]:
        """The operations that addresses, masks and control flow come from, but for the addition that every address takes."""
        needed = needed_values(self.module.kernel)
        return tuple(op for op, _ in self.operations if op.name != "tt.addptr" and needed.intersection(op.results) and not op.regions)

    @cached_property
    def loop(self) -> CodeLoop | None:
        """The loop of the machine code that matters."""
        return main_loop(self.facts)

    @cached_property
    def loops_by_ones(self) -> frozenset[int]:
        """The loops that count by ones, as accesses name theirs: no block of the launch makes their trips fewer."""
        operations = list(self.inspection.counted.module(self.compiled.ttir, own_files(self.compiled)).kernel.walk())
        ones = {op.results[0] for op in operations if op.name == "arith.constant" and op.text.strip() == "1"}
        return frozenset(id(op) for op in operations if op.name == "scf.for" and for_parts(op)[3] in ones)

    @property
    def predicts_savings(self) -> bool:
        """Whether it can be said what a change would save: where `saving` gives None all the same, it would save nothing."""
        analysis = self.analysis
        known = self.inspection.launch.grid is not None and not any(loop.reasons for loop in self.demand.loops)
        return known and analysis is not None and analysis.predicted is not None

    def saving(self, change: Callable[[Demand], Demand], *, changes_type: bool = False) -> float | None:
        """Microseconds that the launch is predicted to save where its demand changes so; at most what lies above its bound.

        The model of counted work says which share that is, also of a latency that the learned model predicts.
        Where the change is to another type of operands (`changes_type`), that bound is none of it.
        None where that cannot be said: the grid or the trips of a loop are not known, or the launch is not predicted to run.
        """
        analysis = self.analysis
        if not self.predicts_savings or analysis is None or analysis.predicted is None:
            return None
        before, after = (float(np.atleast_1d(latency_us(demand, analysis.gpu))[0]) for demand in (analysis.demand, change(analysis.demand)))
        saved = analysis.predicted.us * (1 - after / before)
        if not changes_type:
            saved = min(saved, analysis.predicted.us - analysis.bound.us)
        return saved if math.isfinite(saved) and saved >= LEAST_SAVING_US else None

    def without(
        self,
        *,
        l2_bytes: float = 0.0,
        dram_bytes: float = 0.0,
        load_bytes: float = 0.0,
        waits: float = 0.0,
        changes_type: bool = False,
        **amounts: float,
    ) -> float | None:
        """The saving without some work: amounts of the launch by pipeline (smem, alu, xu, fma, issue), of loads, of the L2 and of DRAM, and
        this share of what a CTA waits for; `changes_type` as in `saving`."""

        def less(demand: Demand) -> Demand:
            ctas = demand.ctas
            per_cta = {name: np.maximum(value - amounts.get(name, 0.0) / ctas, 0.0) for name, value in demand.per_cta.items()}
            return replace(
                demand,
                per_cta=per_cta,
                l2_bytes=np.maximum(demand.l2_bytes - l2_bytes, 0.0),
                dram_bytes=np.maximum(demand.dram_bytes - dram_bytes, 0.0),
                cta_load_bytes=np.maximum(demand.cta_load_bytes - load_bytes / ctas, 0.0),
                phases=demand.phases and replace(demand.phases, serial_us=demand.phases.serial_us * (1 - waits)),
            )

        return self.saving(less, changes_type=changes_type)

    def without_spills(self) -> float | None:
        """The saving without what spilled registers move: through the L1, the L2, and DRAM where it holds them no longer."""
        work, analysis = self.work, self.analysis
        if work is None or analysis is None:
            return None
        missed = work.spill_l2_bytes * float(second_pass_fraction(np.array([work.spilled_at_once]), analysis.gpu)[0])
        return self.without(smem=work.spill_bytes, l2_bytes=work.spill_l2_bytes, dram_bytes=missed)

    @property
    def work(self) -> MachineWork | None:
        """The work of the machine code beyond the IR; None without a GPU."""
        analysis = self.analysis
        if analysis is None:
            return None
        ctas, resident = float(analysis.demand.ctas[0]), max(analysis.occupancy.resident_ctas_per_sm, 1)
        return machine_work(self.compiled, self.demand, self.facts, analysis.gpu, ctas, resident)

    @property
    def capability(self) -> int | None:
        """Compute capability x 10; None on AMD."""
        return int(self.compiled.target.arch) if self.compiled.target.backend == "cuda" else None

    def place(self, file: str | None, line: int | None) -> tuple[str, str | None, int | None]:
        """Scope of a finding, and the file and line of the author's source."""
        return "kernel", author_file(self.compiled, file) or str(self.inspection.launch.source.path), line
