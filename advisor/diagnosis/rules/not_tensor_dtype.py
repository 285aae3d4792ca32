"""The product runs without the matrix pipeline."""

from __future__ import annotations

from dataclasses import replace

from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found, microseconds, severity_of
from advisor.result.schema import Finding


class NotTensorDtype:
    """fp32 operands on the fma pipeline."""

    id = "not-tensor-dtype"
    title = "The product does not run on the matrix pipeline"
    needs: tuple[Need, ...] = ("configuration", "runs", "dot")
    changes_type = True

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where a type of the matrix pipeline saves time."""
        if context.asked.tensor_dtype is not None:
            return None
        dtype = next((d for d in ("tf32", "bf16", "fp16") if context.gpu.supports(d)), None)
        if dtype is None:
            return None
        other = replace(context.problem, dtype=dtype)
        after = max(context.what_if(problem=other), context.bound_of(other))
        saving = max(context.now_us - after, 0.0)  # not down to the bound of the problem as it is: that is of another type
        if not context.matters(saving):
            return None
        slow, name = context.problem.dtype, context.gpu.name
        if context.gpu.vendor == "amd" and slow == "fp32":  # v_mfma_f32_*_f32 (CDNA 3 and 4 ISA)
            title = "fp32 runs at the rate of the fma pipeline"
            why = f"the fp32 matrix instructions of {name} are as fast as its vector units"
        else:
            title, why = f"{slow} runs on the fma pipeline", f"{name} has no matrix instruction for {slow}"
        return found(
            self,
            context,
            severity_of(context, saving),
            title,
            evidence=f"{why}; {dtype} would take {microseconds(after)}",
            remedy=f'input_precision="{dtype}" in tl.dot (numerics change)' if dtype == "tf32" else f"{dtype} operands",
            saving_us=saving,
        )


RULE = NotTensorDtype()
