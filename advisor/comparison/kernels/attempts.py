"""Both versions of a kernel, compiled with the same: for which launch, with what guesses, and what came of it."""

from __future__ import annotations

import math
import re
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from advisor.comparison.kernels.kernel_digest import own_tree
from advisor.comparison.kernels.kernel_version import KernelVersion
from advisor.comparison.kernels.one_launch import POINTERS, both_launches, closest, with_guess
from advisor.comparison.settings import KernelSettings
from advisor.compiled.compiler.kernel import CompiledKernel, Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.assembly import read_facts
from advisor.compiled.demand.demand import Counted
from advisor.compiled.guesses.assumptions import shown_value
from advisor.compiled.guesses.guess_errors import OF_ANY_TYPE, WHATEVER_IS_PASSED
from advisor.compiled.guesses.inference import Guess, guesses
from advisor.compiled.launches.described import described_launch
from advisor.compiled.launches.launch import JUDGED, KernelLaunch, compile_launch
from advisor.compiled.launches.provenance import GRID, NO_DECISION, TOLD, origins
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import occupancy
from advisor.python_source.described import call_function, kernel_problem
from advisor.python_source.jit_function import MISSING
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile
from advisor.result.comparison_schema import Resources
from advisor.result.schema import LAUNCH_OPTIONS, Configuration, Problem
from advisor.rows.launches import RecordedLaunch
from advisor.system.errors import AdvisorError
from advisor.system.resources import phrase
from advisor.system.settings import read_settings

MOST_SHOWN = 4
"""Guesses that a reason names."""
LARGEST_COMPILATIONS = 40
"""Per comparison: each takes a second or two."""
MOST_GIVEN_UP = 3
"""Compilations of one comparison that are waited for in vain."""
SPENT = "the time that a comparison takes for that, which --compile-limit sets, is used up"
LONGEST_S = 60.0
"""Of one compilation: most end within two, and one that is cut off on one machine and not on another gives two comments of one change."""


def limits_s() -> tuple[float, float]:
    """Seconds that one compilation may take, and all of a comparison together, of which there is no limit but what `--compile-limit` says:
    what is compiled is limited by number, so that two runs give one comment."""
    settings = read_settings()
    return settings.compile_limits_s if settings.compile_limit else (LONGEST_S, math.inf)


@dataclass(kw_only=True)
class Compiling:
    """Whether to compile, how many compilations are left, and until when (`time.monotonic`); and what was counted of all that was compiled:
    one IR is often that of several GPUs. A context manager: within it all kernels share the processes that compile."""

    wanted: bool = True
    left: int = LARGEST_COMPILATIONS
    until: float = field(default_factory=lambda: time.monotonic() + limits_s()[1])
    shared: Pool | None = field(default=None, repr=False)
    counted: Counted = field(default_factory=Counted, repr=False)

    def __enter__(self) -> Compiling:
        self.shared = Pool(2, limits_s()[0], self.until - time.monotonic())
        return self

    def __exit__(self, *_: object) -> None:
        if self.shared is not None:
            self.shared.close()

    def spent(self, needed: int) -> str:
        """What of the budget is used up, in words; "": there is enough left."""
        if self.shared is not None and self.shared.given_up >= MOST_GIVEN_UP:
            return f"Triton was given up {self.shared.given_up} times already (--compile-limit)"
        return f"the {LARGEST_COMPILATIONS} compilations of one comparison are used up" if self.left < needed else self.late()

    def late(self) -> str:
        """That the time of a comparison is used up, in words; "": it is not."""
        return SPENT if time.monotonic() > self.until else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """With what a problem is computed on a GPU. `configuration` None: the kernel lists none; `element`: triton's name of the type, if
    known; `former`: what the base is compiled with, where that is another configuration."""

    configuration: Configuration | None
    problem: Problem | None
    element: str | None
    former: Configuration | None = None
    recorded: RecordedLaunch | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of compiling one version.

    Attributes:
        resources: Of what was compiled.
        refused: Why nothing was.
        described: Whether the kernel's file gives every argument of the launch, so that nothing was guessed.
        launch: What was to be compiled.
        guess: With what it was.
        compiled: What came of it.
        sizes: Values of the launch that are typical ones, for nothing says what they are.
        grid_names: Names of the launcher that its grid hangs on, and of which nothing is known.
        grid_text: The grid, as it is written where it does not follow from what is known.
    """

    resources: Resources | None = None
    refused: AdvisorError | None = None
    described: bool = False
    launch: KernelLaunch | None = None
    guess: Guess | None = None
    compiled: CompiledKernel | None = None
    sizes: Mapping[str, int] = field(default_factory=dict)
    grid_names: tuple[str, ...] = ()
    grid_text: str = ""

    @property
    def kind(self) -> str:
        """Of the error, where there is one."""
        return getattr(self.refused, "kind", "")

    @property
    def launched(self) -> dict[str, Any]:
        """Constants and options with which it was compiled, without what was guessed."""
        if self.launch is None or self.described:
            return {}
        given, invented = self.launch.given, self.guessed.keys()
        constants = dict(self.guess.constexprs) if self.guess is not None else dict(given.constexprs)
        names = self.launch.source.kernel(self.launch.kernel).constants
        values = {name: value for name, value in constants.items() if name in names and name not in invented and "stride" not in name}
        options = self.guess.options if self.guess is not None else given.options
        return {**values, **{name: value for name, value in options.items() if (name, value) != ("num_ctas", 1)}}

    @property
    def invented(self) -> dict[str, Any]:
        """What it was compiled with, or was to be, and is guessed: constants, and types of tensors."""
        if self.launch is None or self.described:
            return {}
        launch = self.launch
        guess = self.guess or next(guesses(launch.source, launch.source.kernel(launch.kernel), launch.given))
        whence = origins(launch, guess)
        constants = {name: value for name, value in guess.constexprs.items() if whence.get(name) in NO_DECISION}
        tensors = {name: kind for name, kind in guess.signature.items() if kind.startswith(POINTERS) and whence[name] not in TOLD}
        return {**constants, **tensors}

    @property
    def guessed(self) -> dict[str, str]:
        """The same as shown to people."""
        tensors = {name for name, value in self.invented.items() if isinstance(value, str) and value.startswith(POINTERS)}
        return {name: f": {value}" if name in tensors else f" = {shown_value(value)}" for name, value in self.invented.items()}

    @property
    def certain(self) -> bool:
        """Whether it is refused whatever it is launched with; one that Triton was out of time for, or that guesses may be the cause of, is
        not."""
        text = str(getattr(self.refused, "got", ""))
        if self.launch is None or self.kind != "failed":
            return self.kind in CERTAIN
        causes = [value for value in self.guessed.values() if "*" not in value or not OF_ANY_TYPE.search(text)]
        return bool(WHATEVER_IS_PASSED.search(text)) or self._never_bound(text) or not causes

    def _never_bound(self, text: str) -> bool:
        """Whether the compiler misses a name that the kernel's file binds nowhere: one that it does may be bound with other constants."""
        matched = _NOT_DEFINED.search(text)
        return matched is not None and self.launch is not None and matched[1] not in self.launch.source.stored


CERTAIN = frozenset({"absent", "interfered", "refused"})
"""Kinds of `CompileError` that are the kernel's own, whatever it is given."""
_NOT_DEFINED = re.compile(r"NameError\(['\"](\w+) is not defined")
_OF_TARGET = re.compile(r"not supported on \.target")
"""In what ptxas says of an instruction that the GPU lacks."""


USUAL_WARPS = 4
"""Of a launch that says none (Triton 3.9)."""


def alike_configurations(old: KernelVersion | None, new: KernelVersion | None) -> tuple[Configuration | None, Configuration | None]:
    """What the base is compiled with where that is another configuration, and what the head is.

    One that both may be launched with, if there is any, so that what differs is the kernel: of a list the middle one of as many warps, for
    small blocks show little. Where the kernels are the same: the first that autotuning tries now and did not, and that of the base which
    differs in the least from it, of several one that it tries no longer. In lists those come first that have nearly as many warps as
    Triton takes by itself: with 1 or 32 many kernels spill, take the compiler minutes, and are not chosen.
    """
    sides = [
        sorted(version.configurations if version is not None else (), key=lambda item: abs(math.log2(item.num_warps / USUAL_WARPS)))
        for version in (old, new)
    ]
    if old is None or new is None or not all(sides):
        return None, next((item for side in reversed(sides) for item in side), None)
    labels = [{item.label() for item in side} for side in sides]
    gone = next((item for item in sides[0] if item.label() not in labels[1]), None)
    came = next((item for item in sides[1] if item.label() not in labels[0]), None)
    both = next((item for item in sides[1] if item.label() in labels[0]), None)
    tuned = old.function.autotune is not None and new.function.autotune is not None
    if gone is not None and came is not None and (both is None or (tuned and same_body(old, new))):
        return min(sides[0], key=lambda item: (_apart_from(item, came), item.label() in labels[1])), came
    alike = [item for item in sides[1] if both is not None and item.label() in labels[0] and item.num_warps == both.num_warps]
    return None, alike[len(alike) // 2] if alike else sides[1][0]


def _apart_from(configuration: Configuration, other: Configuration) -> int:
    """In how many constants and options two configurations differ; what one alone has counts."""
    one, two = configuration.flat(), other.flat()
    return sum(one.get(name) != two.get(name) for name in one.keys() | two.keys())


def same_body(old: KernelVersion, new: KernelVersion) -> bool:
    """Whether two kernels do the same, whatever arguments they take that they do not use."""
    return own_tree(old.function.node, used=True) == own_tree(new.function.node, used=True)


def compiled_pair(
    old: KernelVersion | None,
    new: KernelVersion | None,
    run: Run,
    gpu: GpuSpec,
    settings: KernelSettings,
    workers: Pool,
    flags: Mapping[str, Any],
) -> tuple[Attempt, Attempt]:
    """Both versions, compiled with the same: what is guessed of the head counts for the base, and where that fails, the reverse."""
    versions = (old, new)
    try:
        configurations = _configurations(versions, run, gpu, settings, flags)
        launches = _launches(versions, configurations, run, gpu, settings, flags)
    except AdvisorError as error:
        undecided = [version is not None and version.function.name in version.source.undecided for version in versions]
        base, head = (
            Attempt(refused=error) if version is not None and (is_blamed or not any(undecided)) else Attempt()
            for version, is_blamed in zip(versions, undecided, strict=True)
        )
        return base, head
    if old is None or new is None:
        only = [_attempt(launch, gpu, workers) if launch.launch is not None else launch for launch in launches]
        return only[0], only[1]
    first = _attempt(launches[1], gpu, workers)
    if first.kind == "timeout":  # the other takes Triton as long
        return launches[0], first
    second = _attempt(_guessed_as(launches[0], first, old), gpu, workers)
    if second.refused is None or first.guess is None or second.kind == "timeout":
        base, head = second, first
    else:  # what was guessed of the head is not what the base takes
        base = _attempt(launches[0], gpu, workers)
        again = _attempt(_guessed_as(launches[1], base, new), gpu, workers)
        head = again if again.refused is None else first
    if base.guess is None or head.refused is None or head.kind != "failed" or (base.described and head.described):
        return _of_code_where_one_grid_is_known(base, head, gpu)
    again = _attempt(_guessed_as(launches[1], base, new), gpu, workers)
    says_more = head.certain or _OF_TARGET.search(str(getattr(head.refused, "got", ""))) is not None
    return base, again if again.refused is None or not says_more else head


def _of_code_where_one_grid_is_known(base: Attempt, head: Attempt, gpu: GpuSpec) -> tuple[Attempt, Attempt]:
    """Both versions, with as many CTAs on an SM as their code allows where the grid of one alone is known: else a grid would be compared
    with code."""
    sides = (base, head)
    if any(side.compiled is None for side in sides) or len({_known_grid(side) is None for side in sides}) == 1:
        return sides
    held = [replace(side, resources=_held(side.compiled, gpu, None)) for side in sides if side.compiled is not None]
    return held[0], held[1]


def _known_grid(attempt: Attempt) -> tuple[int, ...] | None:
    """The grid of an attempt's launch where something says it: a typical one may be any."""
    launch = attempt.launch
    return launch.grid if launch is not None and launch.origins.get(GRID) in TOLD else None


def flags_of_one(old: KernelVersion, new: KernelVersion, base: Attempt, head: Attempt) -> dict[str, bool]:
    """The flags that one version alone takes, and that nothing says, each the other way than it was compiled with."""
    flags: dict[str, bool] = {}
    for side, version in ((base, new), (head, old)):
        assert side.launch is not None and side.guess is not None
        whence = origins(side.launch, side.guess)
        alone = {
            name: value
            for name, value in side.guess.constexprs.items()
            if isinstance(value, bool) and version.function.parameter(name) is None
        }
        flags |= {name: not value for name, value in sorted(alone.items()) if whence[name] not in TOLD}
    return flags


def with_other_flags(chosen: Mapping[str, bool], new: KernelVersion, other: tuple[Attempt, Attempt]) -> list[str]:
    """What the version that alone takes some flags holds with them the other way than both were compared with."""
    of_head = [new.function.parameter(name) is not None for name in chosen]
    words, side, beside = (("head", "base"), other[1], other[0]) if of_head[0] else (("base", "head"), *other)
    if side.resources is None or not side.resources.registers_per_thread or len(set(of_head)) > 1:
        return []
    flags = " ".join(f"{name}={not value}" for name, value in chosen.items())
    held, others = (
        f"{item.registers_per_thread}{f' and spills {item.spill_bytes:,} bytes' if item.spill_bytes else ''}"
        if item is not None and item.registers_per_thread
        else ""
        for item in (side.resources, beside.resources)
    )
    without = f"; the {words[1]} has {others}" if others else ""
    return [phrase("answer.other_flags", flags=flags, side=words[0], other=words[1], held=held, without=without)]


def _configurations(
    versions: Sequence[KernelVersion | None], run: Run, gpu: GpuSpec, settings: KernelSettings, flags: Mapping[str, Any]
) -> tuple[Configuration | None, Configuration | None]:
    """What either side is compiled with: where only one of them is tuned, of its configurations the nearest to the other's launch."""
    listed = [bool(version is not None and version.configurations) for version in versions]
    if run.problem is not None or None in versions or listed[0] == listed[1]:
        return run.former or run.configuration, run.configuration
    alone = tuple(None if has else version for has, version in zip(listed, versions, strict=True))
    launch = next(
        item.launch
        for item in both_launches(alone, (None, None), gpu, run.element, None, settings, run.recorded, flags)
        if item is not None
    )
    configurations = [
        closest(version.configurations, launch, gpu) if version is not None and has else None
        for has, version in zip(listed, versions, strict=True)
    ]
    return configurations[0], configurations[1]


def _guessed_as(launch: Attempt, other: Attempt, version: KernelVersion) -> Attempt:
    if launch.launch is None or other.launch is None or other.guess is None or launch.described:
        return launch
    return replace(launch, launch=with_guess(launch.launch, other.launch, other.guess, version.function))


def _launches(
    versions: Sequence[KernelVersion | None],
    configurations: Sequence[Configuration | None],
    run: Run,
    gpu: GpuSpec,
    settings: KernelSettings,
    flags: Mapping[str, Any],
) -> list[Attempt]:
    """What is to be compiled of either side: what its file describes, or else the one launch of both."""
    attempts: list[Attempt | None] = []
    for version, configuration in zip(versions, configurations, strict=True):
        described: Mapping[str, Any] | None = None
        if version is not None and configuration is not None and run.problem is not None:
            described = described_arguments(version.source, version.entry, run.problem, configuration, gpu.compute_capability)
        if version is None or described is None or configuration is None:
            attempts.append(Attempt() if version is None else None)
            continue
        known = {*version.function.names, *LAUNCH_OPTIONS}
        values = {key: value for key, value in configuration.flat().items() if key in known}
        launch = described_launch(version.source, version.function.name, {**described, **flags}, values)
        given = {*launch.given.types, *launch.given.scalars, *launch.given.constexprs}
        whole = all(argument.name in given or argument.default is not MISSING for argument in version.function.parameters)
        attempts.append(Attempt(described=whole, launch=launch))
    if None in attempts:
        sized = both_launches(versions, configurations, gpu, run.element, run.problem, settings, run.recorded, flags)
        for side, entry in enumerate(sized):
            if attempts[side] is None and entry is not None:
                attempts[side] = Attempt(launch=entry.launch, sizes=entry.sizes, grid_names=entry.grid_names, grid_text=entry.grid_text)
    return [_with_precision(entry or Attempt(), version, run.element) for entry, version in zip(attempts, versions, strict=True)]


def _with_precision(attempt: Attempt, version: KernelVersion | None, element: str | None) -> Attempt:
    """With the constant that has `tl.dot`'s input precision (triton_kernels/README.md)."""
    if attempt.launch is None or version is None:
        return attempt
    precision, given = version.entry.get("precision"), attempt.launch.given
    constants = dict(given.constexprs)
    if isinstance(precision, str) and precision not in constants:
        constants[precision] = "ieee" if element == "fp32" else "tf32"
    return replace(attempt, launch=replace(attempt.launch, given=replace(given, constexprs=constants, element=element or given.element)))


def _attempt(attempt: Attempt, gpu: GpuSpec, workers: Pool) -> Attempt:
    assert attempt.launch is not None
    try:
        compiled, guess, _ = compile_launch(attempt.launch, Target.of(gpu), workers)
    except AdvisorError as error:
        return replace(attempt, refused=error)
    return replace(attempt, resources=_held(compiled, gpu, _known_grid(attempt)), guess=guess, compiled=compiled, refused=None)


MATRIX = "tensor"
"""The class of instructions that are counted by shape: one may do sixteen times as much as another."""


def _held(compiled: CompiledKernel, gpu: GpuSpec, grid: Sequence[int] | None) -> Resources:
    """What a CTA of a compiled kernel holds, and how many an SM runs at a time, of those that the grid has for it."""
    mix: dict[str, int] = {}
    try:
        code = read_facts(compiled).code
        mix = dict(Counter(f"{i.kind} ({'.'.join(i.opcode.split('.')[:2])})" if i.kind == MATRIX else i.kind for i in code))
    except (AdvisorError, KeyError, ValueError):
        mix = {}  # the machine code is not one that can be read yet (AMD)
    held = compiled.resources
    allowed = resident = _resident(held, gpu)
    if resident and grid is not None:
        resident = min(resident, max(math.ceil(math.prod(grid) * compiled.num_ctas / gpu.num_sms), 1))
    estimated = JUDGED in compiled.metadata  # of what spills, and lies in shared memory, less is known than a comparison may say
    return Resources(
        origin="estimated" if estimated else "compiled",
        registers_per_thread=held.registers,
        spill_bytes=None if estimated else held.spill_bytes,
        shared_memory_bytes=None if estimated else held.shared_memory_bytes,
        resident_ctas_per_sm=resident,
        resident_warps_per_sm=None if resident is None else resident * held.num_warps,
        limiter="grid" if resident != allowed else None,
        instruction_mix=mix,
    )


def _resident(held: Any, gpu: GpuSpec) -> int | None:
    """Resident CTAs per SM of what was compiled; None where the registers are not known."""
    if not held.registers:
        return None
    amounts = (held.registers, held.shared_memory_bytes, held.num_warps)
    registers, shared, warps = (np.array([float(amount)]) for amount in amounts)
    resources = occupancy.Resources(registers=registers, shared_memory_bytes=shared, num_warps=warps)
    return int(occupancy.resident_ctas(gpu, resources)[0][0])


def described_arguments(
    source: SourceFile, entry: Mapping[str, Any], problem: Problem, configuration: Configuration, compute_capability: str
) -> dict[str, Any] | None:
    """Every argument of a call but the configuration's: pointers as Triton types, the rest as values; None: not known."""
    flat = kernel_problem(problem, compute_capability)
    options = {"num_warps": configuration.num_warps, "num_stages": configuration.num_stages}
    try:
        arguments = call_function(source, entry.get("arguments"), flat, {**configuration.parameters, **options})
    except NotLiteralError:
        return None
    return arguments if isinstance(arguments, dict) and all(isinstance(name, str) for name in arguments) else None
