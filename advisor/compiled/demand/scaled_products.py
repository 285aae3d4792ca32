"""What `tl.dot_scaled` becomes: an instruction that scales its blocks, or operands unpacked to a wider type and a plain product.

Triton's pass DecomposeScaledBlocked unpacks where the target has no such instruction: with 3.9.0 e2m1, e4m3 and e5m2 become bf16 (fp16
beside an fp16 operand) on sm_89, sm_90 and gfx942; sm_100, sm_120 and gfx950 keep them.
"""

from __future__ import annotations

import re

from advisor.compiled.compiler.kernel import CompiledKernel
from advisor.compiled.demand.costs import TENSOR_TYPES

_SCALED = re.compile(r"\b(tt\.dot_scaled|ttng\.\w*mma_scaled|\w+\.scaled_(mfma|wmma)\w*)\b")
_PLAIN = re.compile(r"\b(?:tt\.dot|ttng\.warp_group_dot|ttng\.tc_gen5_mma) .*?<(?:\d+x)+(\w+)")


def scales_blocks(compiled: CompiledKernel) -> bool:
    """Whether a product of the kernel runs on an instruction that scales its blocks."""
    return bool(_SCALED.search(compiled.ttgir))


def unpacked_type(compiled: CompiledKernel) -> str | None:
    """The type in which products of scaled blocks run after they were unpacked; None where they were not, or there are none."""
    if "tt.dot_scaled" not in compiled.ttir or not compiled.ttgir or scales_blocks(compiled):
        return None
    types = {TENSOR_TYPES.get(found.group(1)) for line in compiled.ttgir.splitlines() if (found := _PLAIN.search(line))}
    return types.pop() if len(types) == 1 else None
