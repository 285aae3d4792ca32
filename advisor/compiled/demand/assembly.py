"""What stands in the compiled code: instruction mix, per loop too, widths of memory accesses, the matrix instruction."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from advisor.compiled.compiler.kernel import CompiledKernel
from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.ir.ir import parse
from advisor.system import grouped
from advisor.system.errors import InputError

_INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z0-9_]+(?:\.[A-Za-z0-9_]+)*)\s*(.*?);")
_LABEL = re.compile(r"^(\.L_\w+):")
_LINE = re.compile(r'^\s*//## File "([^"]+)", line (\d{1,9})(?: inlined at "([^"]+)", line (\d{1,9}))?')
_TARGET = re.compile(r"`\((\.L_\w+)\)")

CLASSES: tuple[tuple[str, str], ...] = (
    ("tensor", r"^(HMMA|IMMA|HGMMA|QGMMA|IGMMA|BGMMA|DMMA|QMMA|OMMA|UTC\w*MMA|BMMA)$"),
    ("spill", r"^(LDL|STL)$"),
    ("global", r"^(LDG|STG|LD|ST|LDGSTS|UBLKCP|UTMALDG|UTMASTG|UTMAREDG|RED|REDG|ATOM|ATOMG|UBLKRED)$"),
    ("shared", r"^(LDS|STS|LDSM|STSM|ATOMS|LDSMU|LDT|STT|LDTM|STTM)$"),
    ("xu", r"^(MUFU|I2F|F2I|I2FP|FRND)$"),
    ("fma", r"^(FFMA2?|FADD2?|FMUL2?|HFMA2|HADD2|HMUL2|FSWZADD|HFMA2_MMA)$"),
    ("fp64", r"^D(FMA|ADD|MUL|MNMX|SETP)$"),
    ("synchronisation", r"^(BAR|DEPBAR|LDGDEPBAR|SYNCS|WARPSYNC|WARPGROUP|MEMBAR|BSYNC|BSSY|ERRBAR|FENCE|ARRIVES|CCTL|UTCBAR|NANOSLEEP)$"),
    ("control", r"^(BRA|EXIT|CALL|RET|NOP|BRX|JMP|BREAK|KILL|YIELD|ACQBULK|ELECT|BRXU)$"),
    ("shuffle", r"^(SHFL|MATCH|VOTE|VOTEU|REDUX|CREDUX)$"),
    ("conversion", r"^(F2F|F2FP|I2I|PRMT|HSETP2)$"),
)
"""Instruction classes by opcode; everything else is integer arithmetic or moves (`alu`)."""

_PATTERNS = tuple((name, re.compile(pattern)) for name, pattern in CLASSES)
WIDE = re.compile(r"^(IMAD\.WIDE|IADD3\.X|IADD\.64|IADD3\.64|LEA\.HI\.X|IMAD\.X|LEA\.64|UIADD3\.X|UIADD3\.64)")
"""64-bit integer arithmetic: products and carries of address computation."""

ASYNC = ("LDGSTS", "UTMALDG", "UBLKCP")


def classify(opcode: str) -> str:
    """The class of an opcode without its modifiers."""
    return next((name for name, pattern in _PATTERNS if pattern.match(opcode)), "alu")


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One machine instruction, with the author's line."""

    address: int
    opcode: str  # with modifiers
    kind: str
    file: str | None
    line: int | None

    @property
    def width_bytes(self) -> int | None:
        """Bytes per thread of a memory access; None for others."""
        if self.kind not in ("global", "shared", "spill"):
            return None
        widths = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1, "256": 32}
        return next((widths[part] for part in self.opcode.split(".") if part in widths), 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeLoop:
    """A loop of the machine code: the mix of one trip, without the loops inside it."""

    first_line: int | None
    depth: int
    instructions: int
    mix: Mapping[str, int]
    wide_integer: int
    start: int
    end: int
    innermost: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeFacts:
    """Facts of one compiled kernel.

    Attributes:
        instructions: Static count.
        mix: Class -> static count.
        loops: By address.
        matrix_instruction: wgmma, tcgen05, mma, mfma, or None.
        async_copies: Static count of copies from global to shared memory that do not pass registers.
        widths: (load | store, line) -> bytes per thread of each global access there.
        conversions_in_loop: Layout conversions in loops that go through shared memory, as (line, text, bytes of the tensor).
    """

    instructions: int
    mix: Mapping[str, int]
    loops: tuple[CodeLoop, ...]
    matrix_instruction: str | None
    async_copies: int
    widths: Mapping[tuple[str, int], tuple[int, ...]]
    conversions_in_loop: tuple[tuple[int | None, str, float], ...]
    code: tuple[Instruction, ...] = field(repr=False, default=())

    @property
    def straight_line(self) -> Mapping[int | None, int]:
        """Line -> instructions outside of all loops, none of which pads."""
        loops = [range(loop.start, loop.end + 1) for loop in self.loops if loop.depth == 1]
        return Counter(i.line for i in self.code if i.opcode != "NOP" and not any(i.address in loop for loop in loops))

    @property
    def trips(self) -> tuple[Mapping[int | None, float], ...]:
        """Line -> instructions of one trip, of each loop that loads. Trips that ptxas makes one of are told by their loads; the loop of
        those that are left over is left out."""
        by_loads: dict[frozenset[int], tuple[int, Mapping[int | None, float]]] = {}
        for loop in self.loops:
            inner = [range(other.start, other.end + 1) for other in self.loops if other.depth == loop.depth + 1]
            body = [i for i in self.code if loop.start <= i.address <= loop.end and not any(i.address in span for span in inner)]
            loads = Counter(i.line for i in body if i.opcode.startswith("LDG") and i.line and ("load", i.line) in self.widths)
            copies = max((round(count / len(self.widths["load", line])) for line, count in loads.items() if line), default=0)
            lines = frozenset(line for line in loads if line)
            if copies > by_loads.get(lines, (0, {}))[0]:
                by_loads[lines] = copies, {line: n / copies for line, n in Counter(i.line for i in body if i.opcode != "NOP").items()}
        return tuple(trip for _, trip in by_loads.values())

    def unrolled(self, line: int | None, depth: int) -> bool:
        """Whether the machine code has no loop for the one that begins on a line, so deep: fewer stand around what counts its trips."""
        counting = (i for i in self.code if i.line == line)
        return bool(self.code) and depth > max(
            (sum(loop.start <= i.address <= loop.end for loop in self.loops) for i in counting), default=0
        )


def read_facts(compiled: CompiledKernel) -> CodeFacts:
    """Everything the machine code and the TTGIR say."""
    own_files = set(compiled.origins)
    code, labels, targets = instructions(compiled.sass, own_files)
    mix = Counter(i.kind for i in code)
    loops = code_loops(code, labels, targets)
    copies = (compiled.ptx.count(name) for name in ("cp.async.c", "cp.async.bulk"))
    return CodeFacts(
        instructions=len(code),
        mix=dict(mix),
        loops=loops,
        matrix_instruction=matrix_instruction(compiled),
        async_copies=sum(i.opcode.split(".")[0] in ASYNC for i in code) if code else sum(copies),
        widths=access_widths(compiled.ptx, own_files),
        conversions_in_loop=tuple(conversions(compiled)),
        code=code,
    )


def matrix_instruction(compiled: CompiledKernel) -> str | None:
    """Which kind of matrix instruction the kernel uses."""
    texts = {"tcgen05.mma": "tcgen05", "wgmma.mma_async": "wgmma", "mma.sync": "mma"}
    match = _AMD_MATRIX.search(compiled.amdgcn)
    return next((name for text, name in texts.items() if text in compiled.ptx), match[1] if match is not None else None)


def instructions(sass: str, own_files: set[str]) -> tuple[tuple[Instruction, ...], dict[str, int], dict[int, str]]:
    """Instructions, the address of each label, and the label each branch goes to."""
    parsed: list[Instruction] = []
    labels: dict[str, int] = {}
    targets: dict[int, str] = {}
    waiting: list[str] = []
    file: str | None = None
    line: int | None = None
    frames_open = False
    for text in sass.splitlines():
        if match := _LINE.match(text):
            # Inlined code has one line per frame, innermost first: the first frame in the author's files counts.
            if not frames_open or file is None or file.rsplit("/", 1)[-1] not in own_files:
                file, line = match.group(1), int(match.group(2))
                if match.group(3) and file.rsplit("/", 1)[-1] not in own_files:
                    file, line = match.group(3), int(match.group(4))
            frames_open = True
            continue
        if match := _LABEL.match(text):
            waiting.append(match.group(1))
            continue
        match = _INSTRUCTION.match(text)
        if not match:
            continue
        frames_open = False
        address, opcode = int(match.group(1), 16), match.group(2)
        for label in waiting:
            labels[label] = address
        waiting.clear()
        if target := _TARGET.search(match.group(3)):
            targets[address] = target.group(1)
        parsed.append(Instruction(address=address, opcode=opcode, kind=classify(opcode.split(".")[0]), file=file, line=line))
    return tuple(parsed), labels, targets


def code_loops(code: tuple[Instruction, ...], labels: Mapping[str, int], targets: Mapping[int, str]) -> tuple[CodeLoop, ...]:
    """Loops: spans from a label to the last branch that goes back to it."""
    spans: dict[int, int] = {}
    by_address = {i.address: i for i in code}
    for address, label in targets.items():
        start = labels.get(label)
        if start is not None and start < address and by_address[address].opcode.startswith("BRA"):
            spans[start] = max(spans.get(start, 0), address)
    loops = []
    for start, end in sorted(spans.items()):
        inner = [(a, b) for a, b in spans.items() if (a, b) != (start, end) and start <= a and b <= end]
        body = [i for i in code if start <= i.address <= end and not any(a <= i.address <= b for a, b in inner)]
        depth = 1 + sum(a <= start and end <= b and (a, b) != (start, end) for a, b in spans.items())
        lines = [i.line for i in body if i.line is not None]
        loops.append(
            CodeLoop(
                first_line=min(lines) if lines else None,
                depth=depth,
                instructions=len(body),
                start=start,
                end=end,
                mix=dict(Counter(i.kind for i in body)),
                wide_integer=sum(bool(WIDE.match(i.opcode)) for i in body),
                innermost=not inner,
            )
        )
    return tuple(loops)


def conversions(compiled: CompiledKernel) -> list[tuple[int | None, str, float]]:
    """Layout conversions inside loops of the TTGIR, where the data has to change threads."""
    if not compiled.ttgir:
        return []
    try:
        module = parse(compiled.ttgir, tuple(compiled.origins))
    except InputError:
        return []
    loops = module.loops_around()
    converted: list[tuple[int | None, str, float]] = []
    for operation in module.kernel.walk():
        if operation.name == "ttg.convert_layout" and loops.get(id(operation)) and len(operation.types) >= 2:
            before, after = operation.types[0], operation.types[-1]
            if "#ttg.dot_op" in after.text and "#mma" in after.text and "#mma" in before.text:
                continue  # stays in registers
            if before.elements >= 1024:
                line = operation.location.line if operation.location else None
                converted.append((line, f"{before.text} -> {after.text}", before.elements * element_bytes(before.element)))
    return converted


def main_loop(facts: CodeFacts) -> CodeLoop | None:
    """The loop that matters: the one with tensor instructions, else the innermost with most memory accesses."""
    if not facts.loops:
        return None
    return max(
        facts.loops,
        key=lambda loop: (loop.mix.get("tensor", 0) > 0, loop.innermost, loop.mix.get("global", 0), loop.instructions),
    )


_AMD_MATRIX = re.compile(r"^\s*v_(mfma|wmma)_", re.MULTILINE)
_FILE = re.compile(r'^\s*\.file\s+(\d{1,9})\s+"([^"]+)"')
_LOC = re.compile(r"^\s*\.loc\s+(\d{1,9})\s+(\d{1,9})\s+\d+(?:.*\binlined_at\s+(\d{1,9})\s+(\d{1,9}))?")
_PTX_LABEL = re.compile(r"^(\$L__BB\w+):")
_JUMP = re.compile(r"\bbra(?:\.uni)?\s+(\$L__BB\w+)\s*;")
_ACCESS = re.compile(r"\b(ld|st)\.global((?:\.[\w:]+)*)")
_COPY = re.compile(r"\bcp\.async\.c[ag]\.shared\.global\b[^\[]*\[[^\]]*\],\s*\[[^\]]*\],\s*(0x[0-9a-fA-F]{1,9}|\d{1,9})")
_COPIES_LEFT = re.compile(r"\bcp\.async\.wait_group\s+(0x[0-9a-fA-F]{1,9}|\d{1,9})")


def access_widths(ptx: str, own_files: set[str]) -> dict[tuple[str, int], tuple[int, ...]]:
    """(load | store, line) -> bytes per thread of each access there, copies to shared memory among the loads.

    Args:
        ptx: Text of the module.
        own_files: Names of the author's files; accesses of other files count where they were inlined.
    """
    by_line = grouped(((kind, line), width) for _, kind, width, line in _accesses(ptx, own_files))
    return {place: tuple(widths) for place, widths in by_line.items()}


WORD_BYTES = 4
"""What one register holds."""
UNROLLED = 4
"""Trips that ptxas makes one of, of a short loop that counts to what no constant says: of 425 innermost loops without products that load
(363 of 64 kernels, most of them public, 62 written for it; Triton 3.9, sm_80 to 100) of 117, and never another number. What is asked of
a loop below misses six of them, whose loads are wide, and takes no other."""
SHORT = 40
"""Instructions of one trip of such a loop at most, each as many as machine instructions stand for it."""
AT_ONCE = 3
"""Registers that the loads of one trip fill at most where those of all `UNROLLED` begin before the first is waited for: of 57 loops that
have one or two, 51 wait once in four trips, six twice; of 29 written with three (sm_90), as a scalar of 64 bits beside a row has, 19 once,
ten twice; of 28 with four and more, two wait once, and half in each trip or nearly."""
_COSTS = ((re.compile(r"\bdiv\."), 8), (re.compile(r"\b(?:ex2|lg2|rcp|r?sqrt|sin|cos|tanh)\."), 4))
_COUNTS = re.compile(r"\badd\.s(?:32|64)\s+(%\w+), \1, -?\d+;(?s:.*)\bsetp\.\w+\.\w+\s+%\w+,[^;]* \1\b")
_APART = re.compile(r"\b(?:st|atom|red|bar|barrier|shfl|call|cp)\.|\bnounroll\b|\bbra\b(?s:.*)\bbra\b")
"""What loads are not moved across, or keeps ptxas from unrolling."""


def loops_around_loads(ptx: str, own_files: set[str]) -> dict[int, tuple[int, int]]:
    """Line -> how many loops of the machine code its loads stand in, the most of them, and how many trips' loads begin before the first is
    waited for, where no constant says how many trips there are; arguments as of `access_widths`.

    A loop that the compiler unrolled whole is none of them.
    """
    lines = ptx.splitlines()
    labels = {match[1]: place for place, text in enumerate(lines) if (match := _PTX_LABEL.match(text))}
    jumps = ((place, match[1]) for place, text in enumerate(lines) if (match := _JUMP.search(text)))
    ends = {label: place for place, label in jumps if labels.get(label, place) < place}  # the last jump back to each label
    together = {(labels[label], end): _trips_together(lines[labels[label] + 1 : end + 1]) for label, end in ends.items()}
    around: dict[int, tuple[int, int]] = {}
    for place, kind, _, line in _accesses(ptx, own_files):
        if kind == "load":
            loops = [trips for (start, end), trips in together.items() if start < place < end]
            around[line] = max(around.get(line, (0, 1)), (len(loops), loops[0] if len(loops) == 1 else 1))
    return around


def _trips_together(trip: Sequence[str]) -> int:
    """Trips whose loads all begin before the first is waited for, of a loop's PTX."""
    code = [text for text in map(str.strip, trip) if text and not text.startswith((".loc", "//", "{", "}"))]
    length = sum(next((cost for pattern, cost in _COSTS if pattern.search(text)), 1) for text in code)
    loaded = sum(max(access[1] // WORD_BYTES, 1) for text in code if (access := _access(text)) is not None)
    short, whole = length <= SHORT and loaded <= AT_ONCE, "\n".join(code)
    ahead = [int(match[1], 0) for match in _COPIES_LEFT.finditer(whole)]
    if ahead and (groups := whole.count("cp.async.commit_group")):  # a loop with stages: those of later trips are left under way
        return min(ahead) // groups + 1
    return UNROLLED if short and _COUNTS.search(whole) and not _APART.search(whole) else 1


def _accesses(ptx: str, own_files: set[str]) -> Iterator[tuple[int, str, int, int]]:
    """Place in the text, kind, bytes per thread and line of every access of global memory that has a line of the author's."""
    files = {int(m[1]): m[2].rsplit("/", 1)[-1] for text in ptx.splitlines() if (m := _FILE.match(text))}
    current: int | None = None
    resumed_line: int | None = None  # line of the inline assembly that is being read
    inside = started = False
    for place, text in enumerate(ptx.splitlines()):
        if "// begin inline asm" in text or "// end inline asm" in text:
            if inside:  # lines counted up in it hold no longer
                current = resumed_line
            inside, started, resumed_line = "begin" in text, False, current
        elif match := _LOC.match(text):
            current = _own_line(match, files, own_files)
            if not started:  # what comes after its first instruction is the count
                resumed_line = current
        elif text.strip():
            started = inside
            line = resumed_line if inside else current
            if (access := _access(text)) is not None and line is not None:
                yield place, *access, line


def _own_line(match: re.Match[str], files: dict[int, str], own_files: set[str]) -> int | None:
    """The author's line that a `.loc` speaks of; None: it is of another file."""
    places = ((match[1], match[2]), (match[3], match[4]))
    return next((int(line) for file, line in places if file is not None and files.get(int(file)) in own_files), None)


def _access(text: str) -> tuple[str, int] | None:
    """Kind and bytes of the global access that an instruction makes; None: it makes none."""
    if match := _COPY.search(text):
        return "load", int(match[1], 0)
    match = _ACCESS.search(text)
    if match is None:
        return None
    parts = match[2].split(".")
    bits = next((int(width[1]) for part in reversed(parts) if (width := re.fullmatch(r"[busf](\d{1,3})", part))), None)
    words = next((int(part[1:]) for part in parts if re.fullmatch(r"v\d", part)), 1)
    return None if bits is None else ("load" if match[1] == "ld" else "store", words * bits // 8)
