"""A dot does not run on the tensor pipeline."""

from __future__ import annotations

from advisor.compiled.costs import tensor_type
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.schema import Finding


class DotWithoutTensorInstruction:
    """A dot does not run on the tensor pipeline."""

    id = "dot-without-tensor-instruction"
    title = "A dot does not run on the tensor pipeline"
    explanation = """\
## What it means
`tl.dot` of fp32 operands with `input_precision="ieee"` (or of fp64 where there is no matrix unit for it) becomes ordinary FMA:
a small part of the throughput.

## How it is computed
`tt.dot` in the IR whose operand type has no matrix instruction, and the machine code has none.

## What to do
Allow TF32 (`input_precision="tf32"`), three products of it (`"tf32x3"`) where precision matters, or feed bf16 or fp16.

## Source
Triton language reference, `tl.dot`.
"""

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        for operation, depth in context.operations:
            if operation.name != "tt.dot" or context.facts.matrix_instruction is not None:
                continue
            left = next((t for t in operation.types if t.shape), None)
            if left is None or tensor_type(operation, left) is not None:
                continue
            return report(
                self, context, "warning", f"A dot of {left.element} operands runs on the fma pipeline",
                evidence=f"operands {left.element}, precision {operation.attribute('inputPrecision') or 'ieee'}, no matrix "
                f"instruction in the code{', in a loop' if depth else ''}",
                remedy='set input_precision="tf32" (or "tf32x3"), or convert the operands to bf16 or fp16',
                line=operation.location.line if operation.location else None,
                file=operation.location.file if operation.location else None,
            )  # fmt: skip
        return None


RULE = DotWithoutTensorInstruction()
