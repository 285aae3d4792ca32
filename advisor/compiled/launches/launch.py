"""One launch of a kernel read from source: what was asked, compiled, counted; or judged by the IR alone where compiling takes minutes."""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from advisor.compiled.compiler.compile import check_target, compile_kernel
from advisor.compiled.compiler.kernel import (
    OPTION_NAMES,
    CompiledKernel,
    CompileError,
    CompileRequest,
    IrError,
    Resources,
    Target,
    items_of,
)
from advisor.compiled.compiler.pool import Pool, borrowed
from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.demand.demand import Counted
from advisor.compiled.demand.likely_places import likely_inputs, with_likely_places
from advisor.compiled.demand.machine_work import SPILLED
from advisor.compiled.demand.products import Names
from advisor.compiled.guesses.assumptions import shown_together
from advisor.compiled.guesses.corrections import corrections
from advisor.compiled.guesses.guess_errors import certain_of_guesses, with_guess, with_stored_types
from advisor.compiled.guesses.inference import Given, Guess, guesses
from advisor.compiled.ir.execution import SHAPE, Inputs, not_given, what_holds
from advisor.compiled.ir.ir import Function, Module, parse
from advisor.compiled.ir.slicing import needed_values
from advisor.python_source.bindings import returns_a_value
from advisor.python_source.literal_values import passed_in
from advisor.python_source.rebuild import rebuild
from advisor.python_source.source import SourceFile
from advisor.result.schema import Problem

Origin = Literal["said", "recorded", "literal", "typical", "guessed", "unknown"]
"""Where a value of a launch comes from: a person or advisor.toml says it, a launch was recorded with it, the file writes it (its launch, a
configuration, a default, an annotation), a typical size or a contiguous stride stands for it, it is guessed from its use, or it is not
known at all. What is guessed or unknown decides no verdict (`launches.provenance`)."""
REGISTERS = {"cuda": 255, "hip": 512}
"""Of 32 bits that a thread has at most. Sources: CUDA C++ Programming Guide, compute capabilities; CDNA 3 ISA, registers."""
JUDGED = "judged without compiling"
"""Key in the metadata of what was: the elements of its largest tensor."""
COMPILED_UP_TO = {"cuda": 256, "hip": 512}
"""Elements of 32 bits of one tensor for each thread, up to which a kernel is compiled: Triton 3.9 takes two seconds of processor time for
256 on sm_90, six for 512 and half a minute for 1,024. What it then spills no count of elements tells: a quantisation of rows with 256 for
each thread 64 bytes, a norm's backward pass 8,176."""


def judged(request: CompileRequest, pool: Pool) -> CompiledKernel | None:
    """The IR of a kernel with its registers and spills estimated, where one of its tensors alone has more elements for each thread than
    `COMPILED_UP_TO`; None: it is to be compiled, as are products, whose results may lie elsewhere.

    Raises:
        CompileError: The front end refuses it.
    """
    warps = int(request.options.get("num_warps") or 4)
    backend, threads = request.target.backend, warps * request.target.warp_size
    most, compiled = REGISTERS.get(backend, 255), COMPILED_UP_TO.get(backend, 256) * threads
    sizes = sorted(v for v in request.constexprs.values() if type(v) is int and v > 1 and v & (v - 1) == 0)
    if not sizes or sizes[-1] * (sizes[-2] if len(sizes) > 1 else 1) <= compiled:
        return None
    front = compile_kernel(replace(request, only="ttir", sass=False), pool)
    if "tt.dot" in front.ttir:
        return None
    largest, live, touched = _registers(parse(front.ttir, tuple(front.origins)).kernel)
    if largest[0] <= compiled:
        return None
    without = max(live / threads - most, 0.0)  # registers that are live and not there
    spilled = {line: 4 * item / threads * without / (most + without) for line, item in touched.items()}
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


OTHER_REGISTERS = 24
"""Of a thread, for addresses, masks and counters: kernels of Liger's and fla's that hold little use 16 to 40 (Triton 3.6, sm_90)."""


def estimated_resources(module: Module, num_warps: int, num_stages: int, target: Target) -> Resources:
    """What one CTA would hold of a kernel that is not compiled beyond its TTIR, estimated: live registers, and buffers of what products
    take from loads in loops."""
    threads, most = num_warps * target.warp_size, REGISTERS.get(target.backend, 255)
    live = _registers(module.kernel)[1] / threads + OTHER_REGISTERS
    names, around = Names(module.kernel.blocks), module.loops_around()
    buffers = 0.0
    for op in module.kernel.walk():
        for name, kind in zip(op.operands[:2], op.types[:2], strict=False) if op.name == "tt.dot" else ():
            looped = bool(around[id(op)]) and names.source(name) is not None
            buffers += kind.elements * element_bytes(kind.element) * (max(num_stages, 1) if looped else 0)
    return Resources(
        registers=int(min(live, most)),
        spill_bytes=int(4 * max(live - most, 0.0)),
        shared_memory_bytes=int(buffers),
        num_warps=num_warps,
    )


LARGEST_ATTEMPTS = 18
SMALL_GUESSES = ("small blocks", "integers as sizes")


@dataclass(frozen=True, kw_only=True)
class KernelLaunch:
    """A kernel with everything known of one launch.

    Attributes:
        scalars: Values of numeric arguments and constants.
        contents: What index tensors hold.
        sizes: Elements per pointer argument.
        shapes: Shape per tensor descriptor.
        around: Values of what no argument is called, but the function around the file's launch knows: its grid follows from them.
        same: Pointer arguments that are the same tensor as another one, and which.
        grid: Programs; None: not known, one is counted.
        grid_text: The expression over arguments that it was worked out from; empty: it was given as numbers, or comes from the file.
        divisible: Arguments that are multiples of 16; None: pointers, integers whose value says so, and strides that are taken to be.
        problem: What is computed, where the file says so.
        tunable: Names of the constants that are its configuration; None: all that are not sizes.
        assumed: What was not given and taken from elsewhere.
        notes: What else is not known of it, each a sentence.
        asks: What its grid would follow from, with the file's launch: names, also of the function around it, each with its option.
        origins: Where the values of arguments, constants and options come from, as far as they are known; "grid" that of the grid.
        line: Of the launch in the file that names its configuration; None: none does.
        blocks_in_grid: Numbers in the grid of that launch that change with a block.
        assigned: Lines where names are given what that launch passes, by the argument.
    """

    source: SourceFile
    kernel: str
    given: Given = field(default_factory=Given)
    contents: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    around: Mapping[str, Any] = field(default_factory=dict)
    same: Mapping[str, str] = field(default_factory=dict)
    grid: tuple[int, ...] | None = None
    grid_text: str = ""
    divisible: frozenset[str] | None = None
    problem: Problem | None = None
    tunable: frozenset[str] | None = None
    assumed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    asks: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, Origin] = field(default_factory=dict)
    line: int | None = None
    blocks_in_grid: frozenset[int] = frozenset()
    assigned: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """A launch, compiled and counted."""

    launch: KernelLaunch
    compiled: CompiledKernel
    demand: KernelDemand
    guess: Guess
    attempts: tuple[str, ...]  # why earlier guesses failed
    counted: Counted = field(default_factory=Counted, repr=False)  # of this launch, and of others where they share it
    least: KernelDemand | None = None  # the demand with places that are not known as one program's; None: nothing is assumed of any
    likely: Inputs | None = None  # the arguments with what is assumed of those on which places hang

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What was guessed or assumed, each a sentence."""
        sentences = [f"Assumed {text}." for text in (*self.launch.assumed, *shown_together(self.guess.assumptions))]
        if self.guess.not_specialized and self.launch.divisible is None:
            numbers = ", ".join(self.guess.not_specialized)
            sentences.append(f"Assumed {numbers}: no multiples of 16 (registers may differ where they are).")
        sentences += self.launch.notes
        if self.launch.source.unset:
            sentences.append(f"What the file asks of the environment counts as not set: {', '.join(sorted(self.launch.source.unset))}.")
        if self.compiled.metadata.get("rewritten") == "block pointers":
            sentences.append(
                f"Block pointers are no part of Triton {self.compiled.triton_version}, with which this kernel does not run; "
                "compiled are the pointers and masks that earlier versions make of them."
            )
        if self.launch.grid is None:
            sentences.append("The grid is not given: one program is counted.")
        moved = {a.line for a in self.demand.accesses if a.issued_bytes}  # a lock is taken in the condition of a loop without trips
        never = {loop.line for loop in self.demand.loops if loop.entries and not loop.trips and not loop.reasons} - moved
        if idle := sorted({line for line in (*never, *(a.line for a in self.demand.accesses if not a.issued_bytes)) if line}):
            lines = f"line{'s' if len(idle) > 1 else ''} {', '.join(map(str, idle))}"
            sentences.append(f"Nothing is moved in {lines}, which never run or have all lanes masked off: is a length 0, or too small?")
        sentences += [f"Unknown: {reason} ({assumption})." for reason, assumption in self.demand.unknown.items()]
        places = self.demand.addressed_by
        if places:  # one number for all of it would send every program to the same place
            options = " ".join(f"--contents {name}" for name in places)
            sentences.append(
                f"Addresses depend on {what_holds(places)}: specify `{content_option(places[0], self.demand.offsets)}`, list it under "
                f"[contents] of a TOML file (--toml), or record the launch with `advisor record {options}`. The size of the indexed tensor "
                "goes under [sizes] and [shapes]."
            )
        if absent := [name for name in not_given(self.demand.unknown) if name not in places]:
            options = " ".join(f"--content {name}=VALUE" for name in absent)
            sentences.append(
                f"Work depends on data. Specify them: {options} (a number, a list, range(…), random(N) of numbers below N, permutation(N))."
            )
        if shapeless := sorted(reason.removeprefix(SHAPE) for reason in self.demand.unknown if reason.startswith(SHAPE)):
            shapes = ", ".join(f"{name} = [rows, columns]" for name in shapeless)
            sentences.append(f"How large the tensors of descriptors are can be said under [shapes] of a TOML file (--toml): {shapes}.")
        sentences += [f"{text[0].upper()}{text[1:]}." for text in (*self.demand.approximations, *self._short_contents())]
        if self.demand.scale > 1:
            sentences.append("The grid is large: a sample of its programs was counted.")
        return tuple(sentences)

    def _short_contents(self) -> Iterator[str]:
        """Of contents that are fewer numbers than are read, what stands for the rest."""
        for name, content in self.launch.contents.items():
            loads = [item for item in self.demand.accesses if item.argument == name and item.kind == "load" and item.reach_bytes]
            count = max((round(item.reach_bytes[1] / element_bytes(item.element)) for item in loads if item.reach_bytes), default=0)
            if isinstance(content, (int, float)) and count > 1:
                yield f"all {count:,} numbers that are read of {name} are taken to be {content}"
            elif not isinstance(content, (int, float)) and 0 < (specified := int(np.size(content))) < count:
                rest = "they are repeated" if isinstance(content, np.ndarray) else "the last is taken"
                yield f"{count:,} numbers are read of {name}, of which {specified:,} are specified: {rest} for the rest"


_LENGTHS = re.compile(r"len|count|num_")
"""In the name of a tensor: that it holds how much there is, which is no random number."""


_PLACES = re.compile(r"(block|page)s?_?(table|ind|id|map)|slot_?map|req_to_token", re.IGNORECASE)
"""In the name of a tensor: that it holds where pages or tokens of a cache lie, none of which are two in one place."""


def content_option(name: str, offsets: Collection[str]) -> str:
    """The option that says what a tensor holds, as a shell takes it; the numbers are to be filled in.

    Args:
        name: Of the tensor.
        offsets: Tensors that hold where rows begin, each where the one before ends (`KernelDemand.offsets`).
    """
    if name in offsets:
        return f"--content '{name}=range(0,…,…)'"
    return (
        f"--content {name}=…" if _LENGTHS.search(name) else f"--content '{name}={'permutation' if _PLACES.search(name) else 'random'}(…)'"
    )


def request_for(launch: KernelLaunch, guess: Guess, target: Target, sass: bool = True) -> CompileRequest:
    """What to compile for a launch."""
    divisible = launch.divisible
    if divisible is None:
        known = {
            n
            for n, v in launch.given.scalars.items()
            if isinstance(v, int) and not isinstance(v, bool) and v % 16 == 0 and guess.signature.get(n) in ("i32", "i64", "u32", "u64")
        }
        known |= {n for n, t in guess.signature.items() if t.startswith("*")} | guess.divisible
        divisible = frozenset(known) - launch.source.kernel(launch.kernel).unaligned
    options = {k: v for k, v in guess.options.items() if k in OPTION_NAMES}
    return CompileRequest(
        rebuilt=rebuild(launch.source, launch.kernel, passed_in(guess.constexprs.values())),
        signature=guess.signature,
        constexprs=guess.constexprs,
        divisible=divisible,
        options=options,
        target=target,
        sass=sass,
    )


def compile_launch(
    launch: KernelLaunch, target: Target, pool: Pool | None = None, sass: bool = True
) -> tuple[CompiledKernel, Guess, tuple[str, ...]]:
    """Compile a launch, trying signatures in turn where some of it is guessed.

    Raises:
        CompileError: No guess compiles; the message is the first one's.
        InputError: The source cannot be rebuilt.
        UsageError: The installed Triton compiles nothing for the target.
    """
    launch = replace(launch, source=launch.source.on(target.backend, target.arch))
    function = launch.source.kernel(launch.kernel)
    helper = returns_a_value(function.node)
    first: CompileError | None = None
    last: CompileError | None = None
    late: CompileError | None = None
    failures: list[str] = []
    corrected: dict[str, Any] = {}
    waiting = guesses(launch.source, function, launch.given)
    with borrowed(pool) as workers:
        for _ in range(LARGEST_ATTEMPTS):
            if (guess := next(waiting, None)) is None:
                break
            if late is not None and guess.label not in SMALL_GUESSES:
                continue  # what took too long takes as long with other types
            try:
                request = request_for(launch, guess, target, sass)
                compiled = judged(request, workers) or compile_kernel(request, workers)
                return *_as_stored(launch, compiled, guess, workers, sass), tuple(failures)
            except CompileError as error:
                if error.kind in ("refused", "absent", "unsure", "interfered"):
                    raise
                last = with_guess(error, guess, launch.given)
                first = first or last
                failures.append(f"{guess.label}: {error.got}")
                if error.kind == "timeout":
                    if late is not None:
                        break
                    late = error
                changes = corrections(str(error.got), guess, launch.source, function, launch.given)
                if not changes.items() <= corrected.items():
                    corrected |= changes
                    first, waiting = None, guesses(launch.source, function, launch.given, corrected)
        check_target(target, workers)
    first = late or first or last  # a correction may be the last that is tried
    assert first is not None
    if helper:
        raise CompileError(f"{launch.kernel} returns a value: a helper of kernels, not a kernel", first.got, kind="helper")
    raise first


def _as_stored(launch: KernelLaunch, compiled: CompiledKernel, guess: Guess, workers: Pool, sass: bool) -> tuple[CompiledKernel, Guess]:
    """What was compiled with a guess, compiled again where what it stores contradicts it, and compiles."""
    with contextlib.suppress(CompileError, IrError):
        corrected = with_stored_types(guess, compiled.ttir, launch.given.element) if guess.guessed else guess
        if corrected.signature != guess.signature:
            request = request_for(launch, corrected, compiled.target, sass)
            return judged(request, workers) or compile_kernel(request, workers), corrected
    return compiled, guess


def inspect_launch(
    launch: KernelLaunch, target: Target, pool: Pool | None = None, sass: bool = True, counted: Counted | None = None
) -> Inspection:
    """Compile a launch and count what it asks for; `counted` holds what was counted of others.

    Raises:
        CompileError, InputError, UsageError: See `compile_launch`.
        IrError: The compiler's text cannot be read.
    """
    launch = replace(launch, source=launch.source.on(target.backend, target.arch))
    compiled, guess, failures = compile_launch(launch, target, pool, sass)
    return inspection_of(launch, compiled, guess, failures, counted or Counted())


def inspection_of(
    launch: KernelLaunch,
    compiled: CompiledKernel,
    guess: Guess,
    failures: tuple[str, ...] = (),
    counted: Counted | None = None,
    programs: NDArray[np.int64] | None = None,
) -> Inspection:
    """A compiled launch with what it asks for, and what it likely asks for where addresses hang on what is not known; of some `programs`,
    by their flat indices, without the latter.

    Raises:
        IrError: The compiler's text cannot be read.
    """
    inputs, counted = inputs_of(launch, guess), counted or Counted()

    def count(inputs: Inputs, programs: NDArray[np.int64] | None = None) -> KernelDemand:
        return certain_of_guesses(counted.demand(compiled.ttir, launch.grid or (1,), inputs, own_files(compiled), programs), guess)

    demand = count(inputs, programs)
    inspection = Inspection(launch=launch, compiled=compiled, demand=demand, guess=guess, attempts=failures, counted=counted)
    likely = likely_inputs(demand, inputs, count) if programs is None else None
    if likely is None:
        return inspection
    return replace(inspection, demand=with_likely_places(demand, inputs, likely, count), least=demand, likely=likely)


def inputs_of(launch: KernelLaunch, guess: Guess) -> Inputs:
    """The arguments as the evaluation takes them."""
    given = dict(launch.given.scalars)
    given |= {f"{name}.{i}": item for name, value in given.items() if isinstance(value, tuple) for i, item in enumerate(value)}
    known = {**dict.fromkeys(guess.units, 1), **guess.constexprs, **given}
    scalars = {n: v for n, v in known.items() if isinstance(v, (int, float, bool))}
    kinds = {f"{n}.{i}" if items_of(kind) else n: k for n, kind in guess.signature.items() for i, k in enumerate(items_of(kind) or [kind])}
    arguments = tuple(launch.same.get(name, name) for name, kind in kinds.items() if kind != "constexpr")
    return Inputs(scalars=scalars, contents=launch.contents, sizes=launch.sizes, shapes=launch.shapes, arguments=arguments)


def own_files(compiled: CompiledKernel) -> tuple[str, ...]:
    """Names of the files whose lines are the author's: the generated ones stand for them line by line."""
    return tuple(compiled.origins)


def author_file(compiled: CompiledKernel, path: str | None) -> str | None:
    """The author's file for a file of the IR."""
    if path is None:
        return None
    return compiled.origins.get(Path(path).name, path)
