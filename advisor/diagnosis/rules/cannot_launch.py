"""The configuration asks for more than the GPU has."""

from __future__ import annotations

import numpy as np

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found, kibibytes, remedy_of
from advisor.pipelines.occupancy import MAX_THREADS_PER_CTA
from advisor.result.schema import Finding, Severity
from advisor.tables.launchability import least_block_k


class CannotLaunch:
    """Shared memory, registers or threads of one CTA beyond the limit, a kernel that does not compile, or options that it refuses."""

    id = "cannot-launch"
    title = "The configuration cannot launch on this GPU"
    needs: tuple[Need, ...] = ("configuration",)

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where not one CTA fits on an SM."""
        gpu, resources, warps = context.gpu, context.asked.resources, context.parameter("num_warps", 4)
        threads = warps * gpu.warp_size
        severity: Severity = "error"
        memory = first(resources.shared_memory_bytes)
        if threads > MAX_THREADS_PER_CTA:
            title = f"{threads:,} threads in a CTA, {MAX_THREADS_PER_CTA:,} are allowed"
            evidence = f"num_warps={warps} × {gpu.warp_size} threads"
        elif warps & (warps - 1):
            title = f"num_warps={warps} is not a power of two"
            evidence = "asserted by every back end of Triton when it compiles"
        elif resources.compiles is not None and not first(resources.compiles):
            title = f"BLOCK_SIZE_K={context.parameter('BLOCK_SIZE_K', 64)} is too small to compile"
            evidence = f"tl.dot takes {least_block_k(context.problem.dtype, gpu.vendor)} or more of {context.problem.dtype} operands"
        elif memory > gpu.smem_bytes_per_cta:
            title = f"One CTA needs {kibibytes(memory)} of shared memory, {gpu.name} allows {kibibytes(gpu.smem_bytes_per_cta)}"
            stages = context.parameter("num_stages", 3)
            evidence = f"{memory:,.0f} bytes for num_stages={stages} against {gpu.smem_bytes_per_cta:,}"
        elif first(context.plan.resident) < 1:
            title = f"Not one CTA fits on an SM: {context.plan.limiter_name}"
            evidence = (
                f"about {first(resources.registers):.0f} registers × {threads:,} threads (estimated, not compiled) against "
                f"{gpu.registers_per_sm:,} registers per SM"
            )
            if context.plan.limiter_name == "registers":
                severity = "warning"  # an estimate: the compiler may cap the registers, and spill, instead of failing
        elif context.refused:
            remedy = (
                "remove it" if context.recommended is None else f"{remedy_of(context.recommended, context)}, and is launched; or remove it"
            )
            title = f"The launch refuses {context.refused.partition(':')[0]}"
            return found(self, context, severity, title, evidence=context.refused, remedy=remedy)
        else:
            return None
        around = context.neighbours()
        held = around.values["num_warps"].astype(np.int64)
        better = around.best((held * gpu.warp_size <= MAX_THREADS_PER_CTA) & (held & (held - 1) == 0))
        if context.recommended is not None:
            remedy = f"{remedy_of(context.recommended, context)}, and fits"
        elif better is not None:
            remedy = f"{better.text()} fits, and is the fastest such neighbour by prediction"
        else:
            remedy = "halve the blocks or num_stages until it fits, or tune on this GPU"
        return found(self, context, severity, title, evidence=evidence, remedy=remedy)


RULE = CannotLaunch()
