"""One problem of a kernel on one GPU: what the best configuration of either version is predicted to take, in the kernel's own names."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor.advising import advise_target
from advisor.advising.exports import triton_config
from advisor.advising.targets import PlannedLaunch, Target
from advisor.comparison.kernels.kernel_version import KernelVersion
from advisor.comparison.settings import KernelSettings
from advisor.comparison.static import static_row
from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Predictor
from advisor.pipelines import ConfigurationBatch, configuration_batch, problem_batch
from advisor.pipelines.space import problem_space
from advisor.python_source.described import kernel_problem
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.literals import NotLiteralError
from advisor.rendering.figures import sizes_text, types_text
from advisor.result.comparison_schema import StaticRow
from advisor.result.schema import Configuration, LaunchReport, Problem
from advisor.rows.columns import family_names, missing_parameters
from advisor.rows.rows import CONFIG_COLUMNS, FAMILY_PARAMETERS, is_tiled
from advisor.system.errors import InputError

MOST_ASKED = 500
"""Configurations of which a kernel's `valid` is asked, the best ranked first."""


def kernel_row(
    number: int,
    name: str,
    problem: Problem,
    gpu: GpuSpec,
    old: KernelVersion | None,
    new: KernelVersion | None,
    settings: KernelSettings,
    predictor: Predictor,
) -> StaticRow:
    """The row of a problem.

    Args:
        number: Of the problem.
        name: The kernel's.
        problem: What is computed.
        gpu: On what.
        old: The version of the base, where it has one.
        new: That of the head.
        settings: What advisor.toml says of the kernel.
        predictor: Where predictions come from.

    Raises:
        InputError: Neither version lists configurations, or they do not name what the model has to be told.
    """
    chosen = [_best(version, problem, gpu, settings, predictor) for version in (old, new)]
    label = f"{problem.op} {sizes_text(problem)} {types_text(problem)}"
    if not any(chosen):
        raise InputError(f"{name}: neither version lists configurations that the model of {problem.family} can read")
    sides: list[Sequence[LaunchReport] | None] = [None, None]
    for side, best in enumerate(chosen):
        if best is not None:
            launch = PlannedLaunch(
                id=name, kernel=name, problem=problem, configuration=best.configuration, source=best.source, decision_id=name
            )
            target = Target(title=name, gpu=gpu, launches=(launch,), space=_space_for(best, chosen, problem, gpu))
            sides[side] = advise_target(target, predictor, command="").launches
    row = static_row(f"{gpu.name}-{number}", label, gpu.name, sides[0], sides[1])
    return _in_own_names(row, [_own_names(version, problem.family, settings) for version in (old, new)])


def _in_own_names(row: StaticRow, names: Sequence[Mapping[str, str]]) -> StaticRow:
    """The row with its configurations in the kernel's own names of either version, in which they are shown, compiled and pasted."""
    base, head, advice = row.base, row.head, row.advice
    if base is not None and base.configuration is not None:
        base = replace(base, configuration=_renamed(base.configuration, names[0]))
    if head is not None and head.configuration is not None:
        head = replace(head, configuration=_renamed(head.configuration, names[1]))
    if advice is not None and names[1]:
        configuration = _renamed(advice.configuration, names[1])
        advice = replace(advice, configuration=configuration, triton_config=triton_config(configuration))
    return replace(row, base=base, head=head, advice=advice)


def _family_names(version: KernelVersion, family: str, settings: KernelSettings) -> dict[str, str]:
    """What the family calls the parameters of a version: as advisor.toml says, else by the names that other authors give them."""
    kernel_names = dict.fromkeys(
        [
            *(parameter.name for parameter in version.function.parameters if parameter.is_constexpr),
            *(name for configuration in version.configurations for name in configuration.parameters),
        ]
    )
    named = {name: settings.configuration[name] for name in kernel_names if name in settings.configuration}
    guessed = family_names([*named.values(), *(name for name in kernel_names if name not in named)], family)
    return {**{name: guessed[name] for name in kernel_names if name not in named}, **named}


def _own_names(version: KernelVersion | None, family: str, settings: KernelSettings) -> dict[str, str]:
    names = _family_names(version, family, settings) if version is not None else {}
    return {theirs: by_family for by_family, theirs in names.items() if by_family != theirs}


def _known(family: str, op: str) -> set[str]:
    """The parameters that the model of a family reads, as it calls them."""
    return {*(CONFIG_COLUMNS if is_tiled(family, op) else ()), *FAMILY_PARAMETERS.get(family, {})}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Best:
    """The configuration of a version that is predicted fastest: what a perfect autotuner would pick."""

    configuration: Configuration
    source: str
    fits: bool  # whether the GPU can launch it
    of_space: bool  # whether the version's file says what its whole space is
    takes: frozenset[str]  # the kernel's parameters, as the model calls them


def _best(version: KernelVersion | None, problem: Problem, gpu: GpuSpec, settings: KernelSettings, predictor: Predictor) -> _Best | None:
    if version is None or not version.configurations or not gpu.reaches(version.entry.get("min_capability")):
        return None
    names = _family_names(version, problem.family, settings)
    renamed = [_renamed(configuration, names) for configuration in version.configurations]
    # The parameters of other families and operators have defaults.
    tiled = is_tiled(problem.family, problem.op)
    lacking = next((missing for pair_ in renamed if tiled and (missing := missing_parameters(pair_, problem.family))), None)
    if lacking:
        known = _known(problem.family, problem.op)
        name_of_split = next((name for name in version.configurations[0].parameters if names[name] not in known), "BLOCK")
        got = ", ".join(version.configurations[0].parameters) or "no parameters"
        raise InputError(
            f"the configurations do not name {', '.join(lacking)}",
            got,
            f"what the model of {problem.family} reads",
            f'say in advisor.toml which parameter is which: configuration = {{{name_of_split} = "{lacking[0]}", …}}',
        )
    takes = frozenset(names.get(parameter.name, parameter.name) for parameter in version.function.parameters)
    scores = np.concatenate(list(_scores(renamed, problem, gpu, predictor)))
    best = _first_valid(version, problem, gpu, np.argsort(np.where(np.isfinite(scores), scores, np.inf), kind="stable"))
    source = f"best predicted of its {len(renamed)} configurations" if len(renamed) > 1 else "its only configuration"
    return _Best(
        configuration=renamed[best],
        source=source,
        fits=bool(np.isfinite(scores[best])),
        of_space=version.function.autotune is None,
        takes=takes,
    )


def _space_for(best: _Best, chosen: Sequence[_Best | None], problem: Problem, gpu: GpuSpec) -> ConfigurationBatch:
    """What the tunable ceiling of a version is the best of.

    Of a file that says its kernel's space that very space, as everywhere: the best of either version stand for it, having been ranked
    first. A list of `@triton.autotune` is no space, but what its author thought of: there the family's says what could be added to it,
    less what the kernel has no parameter for (a grouping of its programs, parts of a depth).
    """

    def numbers(configuration: Configuration) -> set[str]:
        return {name for name, value in configuration.parameters.items() if isinstance(value, (int, float))}

    known = [
        item.configuration
        for item in chosen
        if item is not None and item.fits and item.of_space and numbers(item.configuration) == numbers(best.configuration)
    ]
    if best.of_space and known:
        return configuration_batch(known)
    space = problem_space(problem, gpu.vendor)
    lacking = {name: values for name, values in space.parameters.items() if name not in best.takes and (values == 1).any()}
    kept = space.take(np.flatnonzero(np.logical_and.reduce([np.ones(len(space), bool), *(values == 1 for values in lacking.values())])))
    return replace(kept, parameters={name: values for name, values in kept.parameters.items() if name not in lacking})


def _first_valid(version: KernelVersion, problem: Problem, gpu: GpuSpec, order: np.ndarray) -> int:
    """The best ranked configuration that the file's own `valid` lets pass; the best ranked where it cannot be followed.

    `valid` is followed in its syntax tree, never run, with one budget of steps for all it is asked.
    """
    function = version.source.plain_functions.get(str(version.entry.get("valid")))
    if function is None:
        return int(order[0])
    valid, flat = version.source.evaluator(), kernel_problem(problem, gpu.compute_capability)
    try:
        for place in order[:MOST_ASKED]:
            if valid.call(function, (version.configurations[int(place)].flat(), dict(flat))):
                return int(place)
    except NotLiteralError:
        return int(order[0])
    return int(order[0])


def _renamed(configuration: Configuration, names: Mapping[str, str]) -> Configuration:
    if not names:
        return configuration
    return replace(configuration, parameters={names.get(key, key): value for key, value in configuration.parameters.items()})


def _scores(configurations: Sequence[Configuration], problem: Problem, gpu: GpuSpec, predictor: Predictor) -> Iterator[np.ndarray]:
    """Scores in order; configurations of different parameters go in batches of their own."""
    batch = problem_batch([problem])
    for _, group in itertools.groupby(configurations, key=lambda configuration: tuple(configuration.parameters)):
        alike = list(group)
        yield np.broadcast_to(predictor.scores(batch, configuration_batch(alike), gpu), (len(alike),))


DEFAULT_STAGES = {"nvidia": 3, "amd": 2}
"""Of a launch that names none, `num_stages` of `CUDAOptions` and `HIPOptions` (Triton 3.6 and 3.9); `num_warps` is 4 for both."""


def sizes_by_argument(function: JitFunction, problem: Problem | None, settings: KernelSettings | None = None) -> dict[str, int]:
    """Values of a kernel's arguments that follow from a problem: as advisor.toml says, and of a product's kernel those that have the names
    of its sizes.

    Of other families the same letters stand for too much: B is a batch here, and a bias there.
    """
    if problem is None:
        return {}
    named = {argument: size for size, argument in (settings.sizes if settings is not None else {}).items()}
    if problem.family == "gemm":
        named = {**{size: size for size in problem.sizes}, **named}
    return {
        parameter.name: problem.sizes[named[parameter.name]]
        for parameter in function.parameters
        if named.get(parameter.name) in problem.sizes and not parameter.is_constexpr
    }
