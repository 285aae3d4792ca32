"""Blocks with more elements than the registers of their threads hold, which Triton takes minutes to compile: judged by the IR alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from advisor.compiled.compiler.compile import compile_kernel
from advisor.compiled.compiler.kernel import CompiledKernel, CompileRequest, Resources
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.demand.machine_work import SPILLED
from advisor.compiled.ir.ir import Function, parse
from advisor.compiled.ir.slicing import needed_values

REGISTERS = {"cuda": 255, "hip": 512}
"""Of 32 bits that a thread has at most. Sources: CUDA C++ Programming Guide, compute capabilities; CDNA 3 ISA, registers."""
JUDGED = "judged without compiling"
"""Key in the metadata of what was: the elements of its largest tensor."""


def judged(request: CompileRequest, pool: Pool) -> CompiledKernel | None:
    """The IR of a kernel with its registers and spills estimated, where one of its tensors alone has more elements for each thread than
    that has registers; None: it is to be compiled, as are products, whose results may lie elsewhere.

    Raises:
        CompileError: The front end refuses it.
    """
    warps = int(request.options.get("num_warps") or 4)
    threads, most = warps * request.target.warp_size, REGISTERS.get(request.target.backend, 255)
    sizes = sorted(v for v in request.constexprs.values() if type(v) is int and v > 1 and v & (v - 1) == 0)
    if not sizes or sizes[-1] * (sizes[-2] if len(sizes) > 1 else 1) <= most * threads:
        return None
    front = compile_kernel(replace(request, only="ttir", sass=False), pool)
    if "tt.dot" in front.ttir:
        return None
    largest, live, touched = _registers(parse(front.ttir, tuple(front.origins)).kernel)
    if largest[0] / threads <= most:
        return None
    without = max(live / threads - most, 0.0)  # registers that are live and not there
    spilled = {line: 4 * each / threads * without / (most + without) for line, each in touched.items()}
    resources = Resources(registers=most, spill_bytes=int(4 * without), shared_memory_bytes=0, num_warps=warps)
    return replace(front, resources=resources, metadata={**front.metadata, JUDGED: largest[1], SPILLED: spilled})


def _registers(function: Function) -> tuple[tuple[float, int], float, dict[int | None, float]]:
    """Of the largest tensor of data its registers of 32 bits and its elements, all threads together; the most registers that are live; and
    those that are written and read by line.

    What addresses and masks are made of counts as worked out anew where it is needed. Of what is written and read, as large a share is
    spilled as of what is live: eight kernels of Liger-Kernel's that Triton 3.9 compiles with 256 elements of fp32 for each thread of an
    H100 store and load 0.88 to 1.82 times as much (median 1.08); one that does the same to each element, and lets go of it, nothing.
    """
    operations = [*function.walk()]
    index = needed_values(function)
    last = {name: place for place, op in enumerate(operations) for name in op.operands}
    changes = [0.0] * (len(operations) + 1)
    uses = Counter(name for op in operations for name in op.operands)
    largest, touched = (0.0, 0), Counter[int | None]()
    for place, op in enumerate(operations):
        for name, kind in zip(op.results, op.result_types, strict=False):
            if kind.shape and kind.element != "i1" and name not in index and op.name not in ("arith.constant", "tt.splat"):
                registers = kind.elements * element_bytes(kind.element) / 4
                largest = max(largest, (registers, kind.elements))
                touched[op.location.line if op.location else None] += registers * (1 + uses[name])  # type: ignore[assignment]
                changes[place] += registers
                changes[max(last.get(name, 0), place + 1)] -= registers
    live = most = 0.0
    for change in changes:
        live += change
        most = max(most, live)
    return largest, max(most, largest[0]), dict(touched)
