"""What one execution of an operation asks of each pipeline.

FLOP as everybody counts them: an addition or multiplication 1, a fused multiply-add 2, a dot 2 M N K. Special functions count
one operation of the xu pipeline each, and what their expansion takes of fma where that is more than a scaling.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

from advisor.compiled.ir.arithmetic import INTEGER, Divisor
from advisor.compiled.ir.ir import Operation, Type
from advisor.gpus.hardware import FP16_ACCUMULATOR

ELEMENT_BITS = {
    "f64": 64,
    "f32": 32,
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "i64": 64,
    "i32": 32,
    "i16": 16,
    "i8": 8,
    "i1": 8,
    "i4": 4,
    "i128": 128,
}


def element_bytes(element: str) -> float:
    """Bytes of an element as it lies in memory."""
    if element in ELEMENT_BITS:
        return ELEMENT_BITS[element] / 8
    if element.startswith(("f8", "i8")):
        return 1.0
    if element.startswith("!tt.ptr"):
        return 8.0
    match = re.match(r"[iu]?i(\d+)", element)
    return int(match.group(1)) / 8 if match else 4.0


TENSOR_TYPES = {"f16": "fp16", "bf16": "bf16", "i8": "int8", "f64": "fp64"}

_FMA = {
    "arith.addf": 1,
    "arith.subf": 1,
    "arith.mulf": 1,
    "math.fma": 2,
    "arith.negf": 0,
    "math.absf": 0,
}
"""FLOP per element. Signs and magnitudes are none: floating-point instructions take each operand negated or as its magnitude."""

_EXTREMES = {"arith.maximumf": 1, "arith.minimumf": 1, "arith.maxnumf": 1, "arith.minnumf": 1, "tt.clampf": 2}
"""Operations per element that run where integers do, at their rate (FMNMX; CUDA C++ Programming Guide, arithmetic instructions: compare,
minimum, maximum)."""

_XU: dict[str, tuple[int, int]] = {
    # operation: (xu operations, FLOP on fma besides)
    "math.exp": (1, 1),
    "math.exp2": (1, 0),
    "math.log": (1, 1),
    "math.log2": (1, 0),
    "math.log1p": (1, 4),
    "math.expm1": (1, 4),
    "math.sqrt": (1, 0),
    "math.rsqrt": (1, 0),
    "math.sin": (1, 2),
    "math.cos": (1, 2),
    "math.tanh": (1, 0),
    "math.erf": (1, 36),
    "math.powf": (2, 2),
    "arith.divf": (1, 2),
    "tt.precise_sqrt": (1, 6),
    "tt.precise_divf": (1, 8),
    "arith.remf": (1, 4),
}

_FP64 = {
    "exp": 31,
    "exp2": 30,
    "log": 47,
    "log2": 50,
    "log1p": 60,
    "expm1": 35,
    "sqrt": 16,
    "rsqrt": 10,
    "sin": 27,
    "cos": 27,
    "tanh": 61,
    "erf": 78,
    "pow": 110,
    "div": 18,
    "rem": 18,
}
"""FLOP of special functions of doubles per element, which no special function unit computes: polynomials and iterations on the fp64
pipeline, as Triton 3.9's machine code for sm_90 has them (of those with a slow path, and of pow and log1p, what ordinary values take)."""

_EXTERN_XU: dict[str, tuple[int, int]] = {
    "tanh": (2, 4),
    "exp": (1, 1),
    "exp2": (1, 0),
    "log": (1, 1),
    "log2": (1, 0),
    "log1p": (1, 6),
    "expm1": (1, 6),
    "rsqrt": (1, 0),
    "sqrt": (1, 0),
    "erf": (1, 36),  # two polynomials, whose coefficients are selected: 24 instructions of sm_90 at 1.5 FLOP
    "erfc": (1, 36),
    "sin": (1, 8),
    "cos": (1, 8),
    "pow": (2, 20),
    "powi": (0, 8),
    "rcp": (1, 0),
    "div": (1, 2),
    "sigmoid": (2, 2),
    "lgamma": (2, 20),
    "fast_expf": (1, 1),
    "fast_dividef": (1, 1),
    "fast_logf": (1, 1),
    "fma": (0, 2),
    "abs": (0, 1),
    "floor": (0, 1),
    "ceil": (0, 1),
    "rint": (0, 1),
    "round": (0, 1),
    "llrint": (0, 1),
}

_DIVISION_ALU = {
    # bits: integer operations per element of a division by a power of two, another constant, a value that lanes share, and any other:
    # a shift or a mask; a multiplication that keeps the high half, and its correction; the same, more of it; the reciprocal besides.
    # The least that Triton 3.9's machine code for sm_90 has (a signed dividend takes up to 3 more for a power of two).
    32: (1, 4, 6, 18),
    64: (2, 12, 24, 60),
}

_FREE = frozenset(
    {
        "arith.constant",
        "tt.splat",
        "tt.broadcast",
        "tt.expand_dims",
        "tt.reshape",
        "tt.make_range",
        "tt.get_program_id",
        "tt.get_num_programs",
        "scf.yield",
        "scf.condition",
        "tt.return",
        "cf.br",
        "cf.cond_br",
        "scf.for",
        "scf.if",
        "scf.while",
        "tt.unsplat",
        "tt.trans",
        "tt.split",
        "tt.join",
        "tt.cat",
        "tt.reduce.return",
        "tt.scan.return",
        "tt.make_tensor_descriptor",
        "tt.reduce",
        "tt.scan",
        "tt.dot",
        "tt.dot_scaled",
        "ub.poison",
        "tt.assert",
        "tt.print",
        "llvm.intr.assume",
        "gpu.barrier",
    }
)
MEMORY = frozenset(
    {
        "tt.load",
        "tt.store",
        "tt.descriptor_load",
        "tt.descriptor_store",
        "tt.atomic_rmw",
        "tt.atomic_cas",
        "tt.descriptor_gather",
        "tt.descriptor_scatter",
        "tt.descriptor_reduce",
    }
)


SCALAR_COSTS = ("fma", "packed", "xu", "alu", "fp64", "smem")
"""What a `Cost` has besides the FLOP of the tensor pipeline."""


@dataclass(slots=True)
class Cost:
    """Demand of one execution by one program. `packed`: FLOP of `fma` in types of 16 bits, of which one instruction can do two."""

    tensor_flop: dict[str, float] = field(default_factory=dict)
    fma: float = 0.0
    packed: float = 0.0
    xu: float = 0.0
    alu: float = 0.0
    fp64: float = 0.0
    smem: float = 0.0

    @property
    def instructions(self) -> float:
        """Of single threads, all but those of matrix units and of memory: of FLOP 1.5 each, for some are fused."""
        return (self.fma + self.fp64) / 1.5 + self.xu + self.alu

    def add(self, other: Cost) -> None:
        """Add another cost."""
        for kind, flop in other.tensor_flop.items():
            self.tensor_flop[kind] = self.tensor_flop.get(kind, 0.0) + flop
        for name in SCALAR_COSTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))

    def times(self, count: float) -> Cost:
        """That of so many executions."""
        flop = {kind: amount * count for kind, amount in self.tensor_flop.items()}
        return Cost(flop, *(getattr(self, name) * count for name in SCALAR_COSTS))


def tensor_type(operation: Operation, left: Type) -> str | None:
    """Type a dot runs in on the tensor pipeline; None: on the fma pipeline."""
    element = left.element
    if element in TENSOR_TYPES:
        return TENSOR_TYPES[element]
    if element.startswith("f8"):
        return "fp8"
    if element == "f32":
        precision = operation.attribute("inputPrecision") or "ieee"
        return {"tf32": "tf32", "tf32x3": "tf32", "bf16x3": "bf16", "bf16x6": "bf16"}.get(precision)
    return None


PRODUCTS = {"tf32x3": 3, "bf16x3": 3, "bf16x6": 6}
"""Tensor products that emulate one of fp32; their FLOP go by this name in `Cost.tensor_flop`."""


def input_type(kind: str) -> str:
    """What the matrix units take of a kind of `Cost.tensor_flop`: `tf32` of `tf32x3`, `fp16` of one that is summed in fp16."""
    return kind.partition("x")[0] if kind in PRODUCTS else kind.partition(FP16_ACCUMULATOR)[0]


def cost(operation: Operation, divisors: Mapping[int, Divisor] | None = None) -> Cost:
    """What one execution asks of the pipelines of an SM; memory traffic is counted apart.

    Args:
        operation: Of the TTIR.
        divisors: What divisions divide by, by the `id` of the operation; of one that is not in it every lane has its own.
    """
    name = operation.name
    result = operation.result or (operation.types[0] if operation.types else None)
    elements = float(result.elements) if result is not None else 1.0
    if name in ("tt.dot", "tt.dot_scaled"):
        return _dot(operation)
    if name in ("tt.reduce", "tt.scan"):
        return _reduction(operation, divisors)
    if name in _FREE or name in MEMORY:
        return Cost(alu=elements if name in ("tt.atomic_rmw", "tt.atomic_cas") else 0.0)
    divisor = (divisors or {}).get(id(operation))
    if name in _EXTREMES:
        count = _EXTREMES[name] * elements
        return Cost(fp64=count) if result is not None and result.element == "f64" else Cost(alu=count)
    if name in _FMA:
        flop, kind = _FMA[name] * elements, result.element if result is not None else ""
        return Cost(fp64=flop) if kind == "f64" else Cost(fma=flop, packed=flop if kind in ("f16", "bf16") else 0.0)
    if name in _XU:
        if result is not None and result.element == "f64":
            return Cost(fp64=_fp64_flop(name.rpartition(".")[2]) * elements)
        xu, fma = _XU[name]
        return Cost(xu=xu * _reciprocals(divisor, elements), fma=fma * elements)
    if name == "tt.extern_elementwise":
        symbol = (operation.attribute("symbol") or "").replace("__nv_", "").replace("__ocml_", "")
        base = re.sub(r"(_f32|_f64|_f16)$", "", symbol)
        if result is not None and result.element == "f64":
            return Cost(fp64=_fp64_flop(base) * elements)
        xu, fma = _EXTERN_XU.get(base) or _EXTERN_XU.get(base.rstrip("f")) or (1, 8)
        return Cost(xu=xu * elements, fma=fma * elements)
    wide = result is not None and result.element == "i64"
    if name in INTEGER:
        return _division(divisor, elements, wide)
    if name == "tt.elementwise_inline_asm":
        times = elements / int(operation.attribute("packed_element") or 1)
        instructions, special = inline_instructions(operation.text)
        return Cost(xu=times * special, alu=times * max(instructions - special, 0 if special else 1))
    return Cost(alu=elements * (2 if wide else 1)) if name.startswith(("arith.", "math.", "tt.")) else Cost()


def _fp64_flop(function: str) -> float:
    """FLOP of a function of doubles, by its name in MLIR's dialects or in libdevice; of what has no iteration, one."""
    base = function.removeprefix("precise_")
    return _FP64.get({"powf": "pow", "divf": "div", "remf": "rem"}.get(base, base), 1.0)


_LOGIC = frozenset({"arith.andi", "arith.ori", "arith.xori"})
_SUMS = frozenset({"arith.addi", "arith.subi"})


def absorbed(operations: Sequence[Operation]) -> frozenset[int]:
    """The `id`s of integer operations of a block that take no instruction of their own on NVIDIA's and AMD's GPUs.

    One instruction takes three inputs of logic (LOP3, v_xor3) or of a sum (IADD3, v_add3), and one gives both halves of a product
    (IMAD.WIDE): Triton leaves these apart, the assemblers put them together where nothing else asks for the inner result.
    """
    uses = Counter(name for operation in operations for node in operation.walk() for name in node.operands)
    made = {operation.results[0]: operation for operation in operations if operation.results and operation.name in _LOGIC | _SUMS}
    high = {frozenset(operation.operands) for operation in operations if operation.name == "tt.mulhiui"}
    skipped: set[int] = set()
    for operation in operations:
        if operation.name == "arith.muli" and frozenset(operation.operands) in high:
            skipped.add(id(operation))
        kinds = next((kinds for kinds in (_LOGIC, _SUMS) if operation.name in kinds), None)
        if kinds is None or operation.result is None or operation.result.element == "i64":
            continue
        inner = (made[name] for name in operation.operands if name in made and uses[name] == 1)
        taken = next((item for item in inner if item.name in kinds and not _absorbs(item, made, skipped)), None)
        if taken is not None:
            skipped.add(id(taken))
    return frozenset(skipped)


def _absorbs(operation: Operation, made: Mapping[str, Operation], skipped: Set[int]) -> bool:
    """Whether an operation has three inputs already."""
    return any(id(made[name]) in skipped for name in operation.operands if name in made)


def _inside(operation: Operation, divisors: Mapping[int, Divisor] | None, count: float) -> Cost:
    """That of so many executions of what stands in an operation."""
    total = Cost()
    for region in operation.regions:
        for block in region:
            for inner in block.operations:
                total.add(cost(inner, divisors).times(count))
    return total


def _reciprocals(divisor: Divisor | None, elements: float) -> float:
    """Reciprocals that a division takes: one per lane, unless lanes share what they are divided by; none of a constant."""
    if divisor is None:
        return elements
    return 0.0 if divisor.constant is not None else float(divisor.distinct)


def _division(divisor: Divisor | None, elements: float, wide: bool) -> Cost:
    """An integer division or remainder: there is no integer divider."""
    power, other, shared, per_lane = _DIVISION_ALU[64 if wide else 32]
    reciprocals = _reciprocals(divisor, elements)
    if divisor is not None and divisor.constant is not None:
        value = abs(int(divisor.constant))
        return Cost(alu=elements * (power if value & (value - 1) == 0 else other))
    return Cost(xu=reciprocals, alu=(elements - reciprocals) * shared + reciprocals * per_lane)


_COMMENT = re.compile(r"//.*|/\*[\s\S]*?\*/")


_SPECIAL = re.compile(r"(@!?%?\w+ )?((tanh|ex2|lg2|sin|cos|sqrt|rsqrt|rcp|div)\.(approx|full)\b|v_(exp|log|rcp|rsq|sqrt|sin|cos)_)")
"""Instructions of PTX and of AMD's assembly that one special function does."""


def inline_instructions(text: str) -> tuple[int, int]:
    """Instructions of inline assembly, which one execution does for all elements packed together, and how many are special functions;
    declarations (`.reg`) are none.

    PTX ends each with a semicolon, AMD's assembly a line.
    """
    quoted = re.match(r'\s*"([^"]*)"', text)
    code = re.sub(r"\\0[9AaDd]", lambda instructions: " " if instructions.group()[2] == "9" else "\n", quoted.group(1) if quoted else "")
    code = _COMMENT.sub("", code)
    statements = code.split(";") if ";" in code else code.splitlines()
    instructions = [plain for statement in statements if (plain := statement.strip(" \n\t{}")) and not plain.startswith(".")]
    return len(instructions), sum(1 for instruction in instructions if _SPECIAL.match(instruction))


def right_operand(operation: Operation) -> int:
    """The place of the right operand of a product, among the operands and their types: of a scaled one, the left one's scales may stand
    before it (`tt.dot_scaled %a scale %s, %b`)."""
    return 2 if operation.name == "tt.dot_scaled" and " scale " in operation.text.partition(",")[0] else 1


def _dot(operation: Operation) -> Cost:
    tensors = [t for t in operation.types if t.shape]
    place = right_operand(operation)
    if len(tensors) <= place:
        return Cost()
    left, right = tensors[0], tensors[place]
    staged = left.elements * element_bytes(left.element) + right.elements * element_bytes(right.element)
    result = operation.result or tensors[-1]
    if operation.name == "tt.dot_scaled":
        kind = _scaled_type(operation)
        # Two values of four bits share a byte, mostly neighbours along the depth; `lhs_k_pack = false`: along the rows.
        packed = "lhs = e2m1" in operation.text and operation.attribute("lhs_k_pack") != "false"
        flop = 2.0 * result.elements * left.shape[-1] * (2 if packed else 1)
        return Cost(tensor_flop={kind: flop}, smem=2 * staged)
    flop = 2.0 * result.elements * left.shape[-1]
    kind_or_none = tensor_type(operation, left)
    if kind_or_none is None:
        return Cost(fp64=flop, smem=2 * staged) if left.element == "f64" else Cost(fma=flop, smem=2 * staged)
    if result.element == "f16":
        kind_or_none += FP16_ACCUMULATOR
    emulation = operation.attribute("inputPrecision") or ""
    if left.element == "f32" and emulation in PRODUCTS:
        return Cost(tensor_flop={emulation: flop * PRODUCTS[emulation]}, smem=2 * staged)
    return Cost(tensor_flop={kind_or_none: flop}, smem=2 * staged)


def staged_shares(operation: Operation) -> tuple[float, float]:
    """Of the shared memory traffic of a product the shares of its left and its right operand."""
    tensors = [t for t in operation.types if t.shape]
    place = right_operand(operation)
    if len(tensors) <= place:
        return 0.0, 0.0
    left, right = (tensor.elements * element_bytes(tensor.element) for tensor in (tensors[0], tensors[place]))
    return left / (left + right), right / (left + right)


def _scaled_type(operation: Operation) -> str:
    """The wider of the two operands' types: the narrower one is widened to it on the way, or mixed in at its rate."""
    operands = re.findall(r"\b[lr]hs = (\w+)", operation.text)
    if operands and all(name == "e2m1" for name in operands):
        return "fp4"
    return "bf16" if any(name in ("bf16", "fp16") for name in operands) else "fp8"


def _reduction(operation: Operation, divisors: Mapping[int, Divisor] | None) -> Cost:
    tensors = [t for t in operation.types if t.shape]
    if not tensors:
        return Cost()
    operands = max(len(operation.operands), 1)
    before = tensors[0].elements
    outs = operation.result_types[0].elements if operation.result_types else 1
    combined = float(before - (outs if operation.name == "tt.reduce" else 0))
    combine = _inside(operation, divisors, combined)
    return Cost(fma=combine.fma, packed=combine.packed, xu=combine.xu, alu=combine.alu, fp64=combine.fp64, smem=2.0 * 4 * 32 * operands)
