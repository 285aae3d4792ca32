"""The compiled kernel asks for more than one CTA may have."""

from __future__ import annotations

from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.diagnosis.rule import kibibytes
from advisor.diagnosis.rules.cannot_launch import RULE as OF_CONFIGURATIONS
from advisor.pipelines.occupancy import MAX_THREADS_PER_CTA
from advisor.result.schema import Finding, Severity


class CannotLaunch:
    """Threads, shared memory or registers of one CTA beyond the limit, as the compiler made them."""

    id = OF_CONFIGURATIONS.id
    title = OF_CONFIGURATIONS.title

    def check(self, context: CompiledContext) -> Finding | None:
        """Fires where not one CTA fits on an SM."""
        found = context.analysis
        if found is None or found.predicted is not None:
            return None
        gpu, held = found.gpu, found.asked.resources
        warps, memory = int(held.num_warps[0]), float(held.shared_memory_bytes[0])
        threads = warps * gpu.warp_size
        stages = context.compiled.num_stages
        if threads > MAX_THREADS_PER_CTA:
            title = f"{threads:,} threads in a CTA, {MAX_THREADS_PER_CTA:,} are allowed"
            evidence = f"num_warps={warps} × {gpu.warp_size} threads"
            remedy = f"num_warps={MAX_THREADS_PER_CTA // gpu.warp_size} is the most on {gpu.name}"
        elif memory > gpu.smem_bytes_per_cta:
            title = f"One CTA needs {kibibytes(memory)} of shared memory, {gpu.name} allows {kibibytes(gpu.smem_bytes_per_cta)}"
            evidence = f"{memory:,.0f} bytes for num_stages={stages} against {gpu.smem_bytes_per_cta:,}"
            remedy = "lower num_stages, then halve the blocks, until it fits" if stages > 1 else "halve the blocks until it fits"
        else:
            title = f"Not one CTA fits on an SM: {found.occupancy.limiter}"
            evidence = f"{found.occupancy.registers_per_thread} registers × {threads:,} threads, {memory:,.0f} bytes of shared memory"
            remedy = "halve the blocks or num_warps until it fits"
        # What nobody said to run is no launch that fails.
        severity: Severity = "warning" if context.inspection.guess.invented else "error"
        return report(self, context, severity, title, evidence=evidence, remedy=remedy)


RULE = CannotLaunch()
