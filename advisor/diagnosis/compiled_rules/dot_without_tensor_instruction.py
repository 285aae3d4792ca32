"""A dot does not run on the tensor pipeline."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from advisor.compiled.demand.costs import cost, tensor_type
from advisor.compiled.demand.machine_work import executions_at
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.pipelines.demand import Demand
from advisor.result.schema import Finding


class DotWithoutTensorInstruction:
    """A dot does not run on the tensor pipeline."""

    id = "dot-without-tensor-instruction"
    title = "A dot does not run on the tensor pipeline"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        for operation, depth in context.operations:
            if operation.name != "tt.dot" or context.facts.matrix_instruction is not None:
                continue
            left = next((t for t in operation.types if t.shape), None)
            if left is None or tensor_type(operation, left) is not None:
                continue
            return report(
                self,
                context,
                "warning",
                f"A dot of {left.element} operands runs on the fma pipeline",
                evidence=f"operands {left.element}, precision {operation.attribute('inputPrecision') or 'ieee'}, no matrix "
                f"instruction in the code{', in a loop' if depth else ''}",
                remedy='set input_precision="tf32" (or "tf32x3"), or convert the operands to bf16 or fp16',
                saving_us=context.saving(lambda asked: _on_tensor_pipeline(asked, context), changes_type=True),
                line=operation.location.line if operation.location else None,
                file=operation.location.file if operation.location else None,
            )
        return None


FLOP_PER_FMA = 1.5
"""As the analysis counts instructions: fused ones do two, others one."""


def _on_tensor_pipeline(asked: Demand, context: CompiledContext) -> Demand:
    """The demand with the dots' FLOP in TF32, where the GPU has it."""
    assert context.gpu is not None
    if "tf32" not in context.gpu.tensor_flop_per_clock_per_sm:
        return asked
    flop = 0.0
    for operation, _ in context.operations:
        if operation.name == "tt.dot":
            often = executions_at(context.demand, operation.location.line if operation.location else None, 0.0)
            flop += cost(operation).fma * often
    flop = min(flop / float(asked.ctas[0]), float(asked.per_cta["fma"][0]))
    spared = np.minimum(flop / FLOP_PER_FMA / context.compiled.target.warp_size, asked.per_cta["issue"])
    per_cta = {
        **asked.per_cta,
        "fma": asked.per_cta["fma"] - flop,
        "tensor": asked.per_cta["tensor"] + flop,
        "issue": asked.per_cta["issue"] - spared,
    }
    return replace(asked, per_cta=per_cta, tensor_dtype="tf32")


RULE = DotWithoutTensorInstruction()
