"""Compiled resources of both versions of a kernel, where triton is at hand: built from parsed source, never from the file itself.

Both versions are compiled with the same signature, configuration and types, and with what is passed where either is launched.
What the source does not say of a launch (types of arguments, flags) is guessed the same way for both, so a difference is the source's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from advisor.comparison.described import described_arguments
from advisor.comparison.launched_configuration import sizes_by_argument
from advisor.comparison_schema import Failure, ResourceRow, Resources
from advisor.configs.jit_function import MISSING
from advisor.errors import AdvisorError
from advisor.hardware import GpuSpec
from advisor.pipelines import occupancy
from advisor.schema import LAUNCH_OPTIONS, Configuration, Problem

if TYPE_CHECKING:
    from advisor.comparison.kernels import KernelVersion
    from advisor.compiled.pool import Pool

LARGEST_COMPILATIONS = 24
"""Per comparison: each takes a second or two."""
CERTAIN = frozenset({"absent"})
"""Kinds of `CompileError` that are the kernel's own, whatever it is given."""
CERTAIN_AS_DESCRIBED = CERTAIN | {"failed"}
"""The same where the file itself says with what the kernel is launched: elsewhere guessed types and constants may be the cause, or a
configuration that an autotuner passes over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of compiling one version.

    Attributes:
        resources: Of what was compiled.
        refused: Why nothing was.
        described: Whether the kernel's file gives every argument of the launch, so that nothing was guessed.
        launched: Constants and options that are passed where the kernel is launched, as far as they are known.
    """

    resources: Resources | None = None
    refused: AdvisorError | None = None
    described: bool = False
    launched: Mapping[str, Any] = field(default_factory=dict)


@dataclass(kw_only=True)
class Compiling:
    """Whether to compile, and how many compilations are left."""

    wanted: bool = True
    left: int = LARGEST_COMPILATIONS


def resource_rows(
    name: str, old: KernelVersion | None, new: KernelVersion | None, best: Mapping[str, Configuration], gpus: Sequence[GpuSpec],
    compiling: Compiling, element: str, problem: Problem | None = None,
) -> tuple[tuple[ResourceRow, ...], list[str], tuple[Failure, ...]]:  # fmt: skip
    """One row per compile target and configuration among the GPUs, why there are none where there are none, and what is certain to
    fail of what did not before.

    `best` has the configuration that each GPU would run with, by its name.
    """
    if not compiling.wanted:
        return (), [], ()
    if (old is None or new is None) and not best and _first(new or old) is None:
        return (), [], ()  # on one side only, and with nothing to say what it is launched with: no figure would mean anything
    try:
        from advisor.compiled.compile import version
        from advisor.compiled.pool import Pool

        version()
    except (ImportError, AdvisorError) as error:
        return (), [f"Not compiled: {error}"], ()
    alike: dict[tuple[Any, ...], list[GpuSpec]] = {}
    launched = {gpu.name: best.get(gpu.name) or _first(new or old) for gpu in gpus}
    for gpu in gpus:
        alike.setdefault((gpu.triton_target, repr(launched[gpu.name])), []).append(gpu)
    rows: list[ResourceRow] = []
    notes: list[str] = []
    failures: list[Failure] = []
    with Pool(1) as workers:  # one process for both sides and all GPUs
        for group in alike.values():
            configuration = launched[group[0].name]
            needed = (old is not None) + (new is not None)
            if compiling.left < needed:
                notes.append(f"Not compiled for every GPU: the {LARGEST_COMPILATIONS} compilations of one comparison are used up.")
                break
            compiling.left -= needed
            base, head = (
                _compile(side, configuration, group[0], element, problem, workers) if side is not None else Attempt()
                for side in (old, new)
            )
            reason = "; ".join(f"{word}: {each.refused}" for word, each in (("base", base), ("head", head)) if each.refused)
            if base.resources is None and head.resources is None:
                notes.append(f"Not compiled for {group[0].name}: {reason}")
                continue
            devices = ", ".join(gpu.name for gpu in group)
            certain = CERTAIN_AS_DESCRIBED if base.described and head.described else CERTAIN
            if base.resources is not None and getattr(head.refused, "kind", "") in certain:
                failures.append(Failure(condition="failed", what=f"on {devices}", reason=str(head.refused)))
            label = configuration.label() if configuration is not None else _launched_with(base.launched, head.launched)
            rows.append(ResourceRow(kernel=name, gpu=devices, label=label, base=base.resources, head=head.resources, reason=reason))
    return tuple(rows), notes, tuple(failures)


def _launched_with(base: Mapping[str, Any], head: Mapping[str, Any]) -> str:
    """What is known of the constants and options of a kernel that lists no configurations."""
    texts = []
    for name in dict.fromkeys([*base, *head]):
        values = dict.fromkeys(str(side.get(name, "guessed")) for side in (base, head))
        texts.append(f"{name}={' → '.join(values)}")
    return " ".join(texts) or "guessed constants"


def _first(version: KernelVersion | None) -> Configuration | None:
    return version.configurations[0] if version is not None and version.configurations else None


def _compile(
    version: KernelVersion, configuration: Configuration | None, gpu: GpuSpec, element: str, problem: Problem | None, workers: Pool
) -> Attempt:
    from advisor.compiled.assembly import read_facts
    from advisor.compiled.described import described_launch
    from advisor.compiled.kernel import Target
    from advisor.compiled.launch import compile_launch
    from advisor.compiled.target import make_launch

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
            launch = make_launch(version.source, version.function.name, constexprs=constants, options=options, element=element,
                                 arguments=sizes_by_argument(version.function, problem), num_sms=gpu.num_sms,
                                 elsewhere=elsewhere)  # fmt: skip
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
    try:
        compiled, _, _ = compile_launch(launch, Target.of(gpu), workers)
    except AdvisorError as error:
        return Attempt(refused=error, described=whole, launched=launched)
    mix: dict[str, int] = {}
    try:
        mix = {str(kind): int(count) for kind, count in read_facts(compiled).mix.items()}
    except (AdvisorError, KeyError, ValueError):
        mix = {}  # the machine code is not one that can be read yet (AMD)
    held = compiled.resources
    return Attempt(
        resources=Resources(
            origin="compiled", registers_per_thread=held.registers, spill_bytes=held.spill_bytes,
            shared_memory_bytes=held.shared_memory_bytes, resident_ctas_per_sm=_resident(held, gpu), instruction_mix=mix,
        ),
        described=whole, launched=launched,
    )  # fmt: skip


def _resident(held: Any, gpu: GpuSpec) -> int | None:
    """Resident CTAs per SM of what was compiled; None where the registers are not known."""
    if not held.registers:
        return None
    amounts = (held.registers, held.shared_memory_bytes, held.num_warps)
    registers, shared, warps = (np.array([float(amount)]) for amount in amounts)
    asked = occupancy.Resources(registers=registers, shared_memory_bytes=shared, num_warps=warps)
    return int(occupancy.resident_ctas(gpu, asked)[0][0])
