"""Compiled resources of both versions of a kernel, where triton is at hand: built from parsed source, never from the file itself.

Both versions are compiled with the same signature, configuration and types, and with what is passed where either is launched; where no
problem says which configurations run, and autotuning tries others now, each with one of its own.
What the source does not say of a launch (types of arguments, flags) is guessed the same way for both, so a difference is the source's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from advisor.comparison.kernels.kernel_rows import sizes_by_argument
from advisor.comparison.kernels.kernel_version import KernelVersion
from advisor.comparison.settings import KernelSettings
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import occupancy
from advisor.python_source.jit_function import MISSING
from advisor.result.comparison_schema import Failure, ResourceRow, Resources
from advisor.result.schema import LAUNCH_OPTIONS, Configuration, Problem
from advisor.system.errors import AdvisorError

if TYPE_CHECKING:
    from advisor.compiled.compiler.kernel import CompiledKernel, Target
    from advisor.compiled.compiler.pool import Pool
    from advisor.compiled.guesses.inference import Guess
    from advisor.compiled.launches.launch import KernelLaunch
from advisor.python_source.described import call_function, kernel_problem
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile

LARGEST_COMPILATIONS = 24
"""Per comparison: each takes a second or two."""
KEPT_COMPILATIONS = 12
"""Of these, for kernels that are still to come, where one kernel runs with more than one configuration on a GPU."""
MOST_CONFIGURATIONS = 3
"""Of a kernel on a GPU: those of the first, the last and the middle one of its problems, where they differ."""
CERTAIN = frozenset({"absent"})
"""Kinds of `CompileError` that are the kernel's own, whatever it is given."""
CERTAIN_AS_DESCRIBED = CERTAIN | {"failed"}
"""The same where the file itself says with what the kernel is launched. Elsewhere guessed types and constants may be the cause, unless the
base compiles with the same ones (`_guessed_alike`)."""
OF_VALUES = ("CompileTimeAssertionFailure", "PTXASError")
"""What says of guessed constants that they are other ones, and of one of several configurations that an autotuner passes over it
(`Autotuner._bench`, Triton 3.9)."""
MOST_SHOWN = 4
"""Guesses that a reason names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """With what a problem is computed on a GPU. `configuration` None: the kernel lists none; `element`: triton's name of the type;
    `former`: what the base is compiled with, where that is another configuration."""

    configuration: Configuration | None
    problem: Problem | None
    element: str
    former: Configuration | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of compiling one version.

    Attributes:
        resources: Of what was compiled.
        refused: Why nothing was.
        described: Whether the kernel's file gives every argument of the launch, so that nothing was guessed.
        launched: Constants and options that are passed where the kernel is launched, as far as they are known.
        launch: What was to be compiled.
        guess: With what it was.
        alike: Of a head that was refused: whether it was with what the base compiles with, too.
    """

    resources: Resources | None = None
    refused: AdvisorError | None = None
    described: bool = False
    launched: Mapping[str, Any] = field(default_factory=dict)
    launch: KernelLaunch | None = None
    guess: Guess | None = None
    alike: bool = False


@dataclass(kw_only=True)
class Compiling:
    """Whether to compile, and how many compilations are left."""

    wanted: bool = True
    left: int = LARGEST_COMPILATIONS


def resource_rows(
    name: str,
    old: KernelVersion | None,
    new: KernelVersion | None,
    best: Mapping[str, Sequence[Run]],
    gpus: Sequence[GpuSpec],
    compiling: Compiling,
    element: str,
    problem: Problem | None = None,
    said: KernelSettings | None = None,
) -> tuple[tuple[ResourceRow, ...], list[str], tuple[Failure, ...]]:
    """One row per compile target and configuration among the GPUs, why there are none where there are none, and what is certain to
    fail of what did not before.

    `best` has what each GPU would run problems with, by its name; `element` and `problem` are what it is compiled for where nothing is
    known of that; `said` is what advisor.toml says of the kernel.
    """
    if not compiling.wanted:
        return (), [], ()
    if (old is None or new is None) and not best and _first(new or old) is None:
        return (), [], ()  # on one side only, and with nothing to say what it is launched with: no figure would mean anything
    try:
        from advisor.compiled.compiler.compile import version
        from advisor.compiled.compiler.kernel import Target
        from advisor.compiled.compiler.pool import Pool

        version()
    except (ImportError, AdvisorError) as error:
        return (), [f"Not compiled: {error}"], ()
    former, configuration = _replaced(old, new)
    unknown = Run(configuration=configuration or _first(new or old), problem=problem, element=element, former=former)
    runs = {gpu.name: _distinct(best.get(gpu.name, ())) or [unknown] for gpu in gpus}
    alike: dict[tuple[Any, ...], tuple[Run, int, list[GpuSpec]]] = {}
    for place in range(MOST_CONFIGURATIONS):  # the first of every GPU first
        for gpu in gpus:
            for run in runs[gpu.name][place : place + 1]:
                alike.setdefault((gpu.triton_target, repr((run.former, run.configuration))), (run, place, []))[2].append(gpu)
    left_out = sum(max(0, len(each) - MOST_CONFIGURATIONS) for each in runs.values())
    rows: list[ResourceRow] = []
    notes: list[str] = []
    refusals: dict[str, list[str]] = {}  # the GPUs for which a head is certainly refused, by why: most errors are every target's
    with Pool(1) as workers:  # one process for both sides and all GPUs
        for run, place, group in alike.values():
            configuration = run.configuration
            needed = (old is not None) + (new is not None)
            if place and compiling.left - needed < KEPT_COMPILATIONS:
                left_out += 1
                continue
            if compiling.left < needed:
                notes.append(f"Not compiled for every GPU: the {LARGEST_COMPILATIONS} compilations of one comparison are used up.")
                break
            compiling.left -= needed
            base, head = (
                _compile(side, given, group[0], run.element, run.problem, said, workers) if side is not None else Attempt()
                for side, given in ((old, run.former or configuration), (new, configuration))
            )
            if base.guess is not None and head.refused is not None and not (base.described and head.described):
                head = _guessed_alike(base, head, group[0], workers)
            reason = "; ".join(f"{word}: {each.refused}" for word, each in (("base", base), ("head", head)) if each.refused)
            if base.resources is None and head.resources is None:
                notes.append(f"Not compiled for {group[0].name}: {reason}")
                continue
            devices = ", ".join(gpu.name for gpu in group)
            certain = CERTAIN_AS_DESCRIBED if base.described and head.described else CERTAIN
            if base.resources is not None and (head.alike or getattr(head.refused, "kind", "") in certain):
                why = str(head.refused).replace(f" for {Target.of(group[0]).name}", "", 1)
                refusals.setdefault(why, []).extend(gpu.name for gpu in group)
            if configuration is not None:
                label = _launched_with(run.former.flat(), configuration.flat()) if run.former is not None else configuration.label()
            else:
                label = _launched_with(base.launched, head.launched)
            label = _with_guesses(label, base.guess, head.guess)
            if run.former is not None and new is not None and len(new.configurations) > 1 and _fits_nowhere(head.resources):
                notes.append(
                    f"Autotuning passes over {configuration.label() if configuration is not None else label} on {devices}: as "
                    "compiled, no CTA fits an SM."
                )
                continue
            rows.append(ResourceRow(kernel=name, gpu=devices, label=label, base=base.resources, head=head.resources, reason=reason))
    if left_out > 0 and rows:
        notes.append("Compiled with some of the configurations that its problems are predicted to run with, not with all.")
    failures = (Failure(condition="failed", what=f"on {', '.join(dict.fromkeys(names))}", reason=why) for why, names in refusals.items())
    return tuple(rows), notes, tuple(failures)


def _distinct(runs: Sequence[Run]) -> list[Run]:
    """Those of different configurations: the first, the last, the middle one, and the others."""
    known: dict[str, Run] = {}
    for run in runs:
        known.setdefault(repr(run.configuration), run)
    found = list(known.values())
    places = dict.fromkeys([0, len(found) - 1, len(found) // 2, *range(len(found))]) if found else ()
    return [found[place] for place in places]


def _launched_with(base: Mapping[str, Any], head: Mapping[str, Any]) -> str:
    """What is known of the constants and options of a kernel that lists no configurations."""
    texts = []
    for name in dict.fromkeys([*base, *head]):
        values = dict.fromkeys(str(side.get(name, "guessed")) for side in (base, head))
        texts.append(f"{name}={' → '.join(values)}")
    return " ".join(texts)


def _with_guesses(label: str, base: Guess | None, head: Guess | None) -> str:
    """A label, and the constants of which nothing says what they are: the registers of a kernel are those of its blocks."""
    from advisor.compiled.guesses.assumptions import shown_value

    known = [each for each in (base, head) if each is not None]
    sides = [{name: shown_value(each.constexprs[name]) for name in each.invented if name in each.constexprs} for each in known]
    names = list(dict.fromkeys(name for side in sides for name in side))
    shown = [f"{name}={' → '.join(dict.fromkeys(side[name] for side in sides if name in side))}" for name in names[:MOST_SHOWN]]
    if len(names) > MOST_SHOWN:
        shown.append(f"{len(names) - MOST_SHOWN} more")
    guessed = f"{' '.join(shown)} (guessed)" if shown else ""
    return ", ".join(filter(None, (label, guessed))) or "no constants"


def _first(version: KernelVersion | None) -> Configuration | None:
    return version.configurations[0] if version is not None and version.configurations else None


def _fits_nowhere(resources: Resources | None) -> bool:
    return resources is not None and resources.resident_ctas_per_sm == 0


def _replaced(old: KernelVersion | None, new: KernelVersion | None) -> tuple[Configuration | None, Configuration | None]:
    """The first of the configurations that autotuning no longer tries, and the first of those it tries in their place: with one that both
    try, two versions that differ in nothing else would be the same."""
    if old is None or new is None or not (old.configurations and new.configurations):
        return None, None
    if old.function.autotune is None or new.function.autotune is None:
        return None, None
    gone, came = (
        next((each for each in one.configurations if each.label() not in known), None)
        for one, known in ((old, set(new.named)), (new, set(old.named)))
    )
    return (gone, came) if gone is not None and came is not None else (None, None)


def _compile(
    version: KernelVersion,
    configuration: Configuration | None,
    gpu: GpuSpec,
    element: str,
    problem: Problem | None,
    said: KernelSettings | None,
    workers: Pool,
) -> Attempt:
    from advisor.compiled.compiler.kernel import Target
    from advisor.compiled.launches.described import described_launch
    from advisor.compiled.launches.launch import compile_launch
    from advisor.compiled.launches.target import make_launch

    constants: dict[str, Any] = {}
    options: dict[str, Any] = {}
    described: Mapping[str, Any] | None = None
    if configuration is not None:
        known = {parameter.name for parameter in version.function.parameters}
        constants = {key: value for key, value in configuration.parameters.items() if key in known}
        options = {key: value for key in LAUNCH_OPTIONS if (value := getattr(configuration, key)) is not None}
        if problem is not None:
            described = described_arguments(version.source, version.entry, problem, configuration, gpu.compute_capability)
    launched: dict[str, Any] = {}
    if described is not None:
        launch = described_launch(version.source, version.function.name, described, {**constants, **options})
    else:
        others = version.launching if all(each.where for each in version.launching) else ()
        elsewhere = [(each.source, *site) for each in others for site in each.calls]
        try:
            launch = make_launch(
                version.source,
                version.function.name,
                constexprs=constants,
                options=options,
                element=element,
                arguments=sizes_by_argument(version.function, problem, said),
                num_sms=gpu.num_sms,
                elsewhere=elsewhere,
            )
        except AdvisorError as error:
            return Attempt(refused=error)
        launched = {**launch.given.constexprs, **launch.given.options}
    precision = version.entry.get("precision")  # the constexpr with `tl.dot`'s input precision (triton_kernels/README.md)
    constants = dict(launch.given.constexprs)
    if isinstance(precision, str) and precision not in constants:
        constants[precision] = "ieee" if element == "fp32" else "tf32"
    launch = replace(launch, given=replace(launch.given, constexprs=constants, element=element))
    given = {*launch.given.types, *launch.given.scalars, *constants}
    whole = described is not None and all(each.name in given or each.default is not MISSING for each in version.function.parameters)
    attempt = Attempt(described=whole, launched=launched, launch=launch)
    try:
        compiled, guess, _ = compile_launch(launch, Target.of(gpu), workers)
    except AdvisorError as error:
        return replace(attempt, refused=error)
    return replace(attempt, resources=_held(compiled, gpu), guess=guess)


def _guessed_alike(base: Attempt, head: Attempt, gpu: GpuSpec, workers: Pool) -> Attempt:
    """The attempt at a head that was refused, once more with what was guessed of a base that compiles.

    Where the two are not inferred to take the same arguments of the same types, what the one was given says nothing of the other.
    Other types and sizes of blocks were tried before (`compile_launch`).
    """
    from advisor.compiled.compiler.compile import compile_kernel
    from advisor.compiled.compiler.errors import CompileError
    from advisor.compiled.compiler.kernel import Target
    from advisor.compiled.launches.launch import request_for

    if base.guess is None or base.launch is None or head.launch is None or getattr(head.refused, "kind", "") != "failed":
        return head
    target = Target.of(gpu)
    launch = replace(head.launch, source=head.launch.source.on(target.backend, target.arch))
    if _inferred(base.launch, target) != _inferred(launch, target):
        return head
    given = launch.given
    guess = replace(base.guess, constexprs={**base.guess.constexprs, **given.constexprs}, options={**base.guess.options, **given.options})
    try:
        return replace(head, resources=_held(compile_kernel(request_for(launch, guess, target), workers), gpu), refused=None, guess=guess)
    except CompileError as error:
        if error.kind != "failed" or any(name in str(error.got) for name in OF_VALUES):
            return head
        remedy = f"the base compiles with the same {_named(guess)}"
        return replace(head, refused=CompileError(error.what, error.got, None, remedy, error.kind), alike=True)
    except AdvisorError:
        return head


def _inferred(launch: KernelLaunch, target: Target) -> dict[str, str]:
    """The types of a launch's arguments, as they are guessed first."""
    from advisor.compiled.guesses.inference import guesses

    source = launch.source.on(target.backend, target.arch)
    return dict(next(guesses(source, source.kernel(launch.kernel), launch.given)).signature)


def _named(guess: Guess) -> str:
    """What was guessed, constants first."""
    from advisor.compiled.guesses.assumptions import shown_value

    known = [f"{name} = {shown_value(guess.constexprs[name])}" for name in guess.invented if name in guess.constexprs]
    known += [f"{name}: {guess.signature[name]}" for name in guess.signature if name in guess.guessed]
    more = f" and {len(known) - MOST_SHOWN} more" if len(known) > MOST_SHOWN else ""
    return f"guesses ({', '.join(known[:MOST_SHOWN])}{more})" if known else "arguments"


def _held(compiled: CompiledKernel, gpu: GpuSpec) -> Resources:
    """What a CTA of a compiled kernel holds."""
    from advisor.compiled.demand.assembly import read_facts

    mix: dict[str, int] = {}
    try:
        mix = {str(kind): int(count) for kind, count in read_facts(compiled).mix.items()}
    except (AdvisorError, KeyError, ValueError):
        mix = {}  # the machine code is not one that can be read yet (AMD)
    held = compiled.resources
    return Resources(
        origin="compiled",
        registers_per_thread=held.registers,
        spill_bytes=held.spill_bytes,
        shared_memory_bytes=held.shared_memory_bytes,
        resident_ctas_per_sm=_resident(held, gpu),
        instruction_mix=mix,
    )


def _resident(held: Any, gpu: GpuSpec) -> int | None:
    """Resident CTAs per SM of what was compiled; None where the registers are not known."""
    if not held.registers:
        return None
    amounts = (held.registers, held.shared_memory_bytes, held.num_warps)
    registers, shared, warps = (np.array([float(amount)]) for amount in amounts)
    asked = occupancy.Resources(registers=registers, shared_memory_bytes=shared, num_warps=warps)
    return int(occupancy.resident_ctas(gpu, asked)[0][0])


def described_arguments(
    source: SourceFile, entry: Mapping[str, Any], problem: Problem, configuration: Configuration, compute_capability: str
) -> dict[str, Any] | None:
    """Every argument of a call but the configuration's: pointers as Triton types, the rest as values; None: not known."""
    flat = kernel_problem(problem, compute_capability)
    options = {"num_warps": configuration.num_warps, "num_stages": configuration.num_stages}
    try:
        found = call_function(source, entry.get("arguments"), flat, {**configuration.parameters, **options})
    except NotLiteralError:
        return None
    return found if isinstance(found, dict) and all(isinstance(name, str) for name in found) else None
