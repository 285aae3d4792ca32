"""Actions for a kernel that lacks a grid, types or values: one program is counted without a grid, and a guess may be wrong."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.compiled.compiler.kernel import IrError
from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.demand.demand import Counted
from advisor.compiled.demand.likely_places import ARGUMENT, guessed_places
from advisor.compiled.guesses.parameter_guesses import BLOCK_NAMES
from advisor.compiled.guesses.usage import usage_of
from advisor.compiled.ir.execution import not_given, what_holds
from advisor.compiled.launches.launch import Inspection, KernelLaunch, content_option, inputs_of, own_files
from advisor.compiled.launches.target import make_launch, without_followers
from advisor.python_source.stride_use import STRIDE_NAME
from advisor.result.schema import Action
from advisor.system.resources import phrase

_TUNED = re.compile(r"(^|_)(GROUP(_SIZE)?_?[MN]?|GROUPS|SPLIT_?K|(NUM_)?(SMS?|STAGES|WARPS|XCDS|PROGRAMS|CTAS))($|_)", re.IGNORECASE)
"""Names of constants that are tuned, beside blocks: they change how the work is done, and not what it is."""


_OF_A_HEAD = re.compile(r"DMODEL|D?HEAD|HEAD_?DIM|DPE", re.IGNORECASE)
"""In the name of a block: it is as wide as a head of attention, which no launch may choose (`BLOCK_DMODEL`, `BLOCK_HEADDIM`)."""


def is_tuned(name: str) -> bool:
    """Whether a constant is part of a configuration by its name: a block, or a number that is tuned."""
    return bool((BLOCK_NAMES.search(name) and not _OF_A_HEAD.search(name)) or _TUNED.search(name))


PROBE_GRID = (3, 3, 3)
"""Stands for a grid that is not known, to see what else has to be."""
_NAMED = ("--arg", "--constexpr", "--content")
"""Options that say something of an argument by its name."""

_FOR_EXAMPLE = {"--grid …": "action.grid"}
"""The phrase that gives an example of an option."""


def missing_options(inspection: Inspection) -> tuple[str, ...]:
    """The options that say what a launch computes, as they are written, where that is not known: `--arg N=…`, `--grid …`.

    Where it has no grid, those that the grid of a launch in the file would follow from come first; `--grid` is asked for where there is
    no such launch. Strides are not: that of contiguous rows is assumed, and said. Nor are types, unless those that are known differ.
    """
    launch, guess = inspection.launch, inspection.guess
    demand = inspection.demand if launch.grid is not None else _of_several_programs(inspection)
    reasons = {*demand.unknown, *guessed_places(demand)}
    values = {reason.removeprefix(ARGUMENT).partition(".")[0] for reason in reasons if reason.startswith(ARGUMENT)}
    missing = [f"--arg {name}=…" for name in sorted(values - launch.given.multiples) if not STRIDE_NAME.search(name)]
    # A block follows from the sizes, or is tuned; any other whole number that had to be guessed is a size, or says what is computed,
    # but for those whose guess is as good as being told; a type that is stored decides how many bytes are.
    constants = [p.name for p in launch.source.kernel(launch.kernel).parameters if p.is_constexpr and not is_tuned(p.name)]
    specified = {*launch.given.constexprs, *launch.given.scalars, *guess.settled}
    usage = usage_of(launch.source, launch.source.kernel(launch.kernel))
    deciding = [name for name in constants if type(guess.constexprs.get(name)) is int or (usage[name].stored and name in guess.invented)]
    lacking = {name: guess.constexprs.get(name) for name in deciding if name not in specified}
    lacking |= dict.fromkeys([name for name in values if name not in launch.given.multiples] + list(launch.asks))
    kept = without_followers(lacking, constants, lambda others: [_with_values(launch, others)])
    missing += [f"--constexpr {name}=…" for name in kept if name in deciding]
    if launch.grid is None:
        # Tensors that say how often a loop runs, what is done, or where: the next command has an answer that hangs on no guess of these.
        held = not_given(frozenset[str](reasons).union(*(loop.reasons for loop in demand.loops)))
        missing = [
            *launch.asks.values(),
            *missing,
            *([] if launch.asks else ["--grid …"]),
            *(content_option(name, demand.offsets) for name in sorted(held)),
            *_types_option(_doubtful_types(inspection)),
        ]
    return tuple(dict.fromkeys(missing))


def _with_values(launch: KernelLaunch, values: Mapping[str, Any]) -> KernelLaunch:
    """A launch that is given some values beside those that were said of it."""
    constants = launch.source.kernel(launch.kernel).constants
    known = {**launch.around, **launch.given.scalars, **launch.given.constexprs}
    known = {**values, **{name: value for name, value in known.items() if launch.origins.get(name, "said") == "said"}}
    return make_launch(
        launch.source,
        launch.kernel,
        constexprs={name: value for name, value in known.items() if name in constants},
        arguments={name: value for name, value in known.items() if name not in constants},
        element=launch.given.element,
    )


def _of_several_programs(inspection: Inspection) -> KernelDemand:
    """The demand as if the launch had some programs along every axis: what those beyond the first lack is asked for together with the
    grid, and not once that is known."""
    launch, compiled = inspection.launch, inspection.compiled
    try:
        return Counted().demand(compiled.ttir, PROBE_GRID, inputs_of(launch, inspection.guess), own_files(compiled))
    except (IrError, ArithmeticError, ValueError, KeyError, IndexError):
        return inspection.demand


def _doubtful_types(inspection: Inspection) -> list[str]:
    """Tensors that are taken for ones of the usual type, which nothing says, though others are of 8 bits, or of several types."""
    guess, given = inspection.guess, inspection.launch.given
    known = {kind for name, kind in guess.signature.items() if kind.startswith("*") and name not in guess.guessed}
    narrow, floats = any("8" in kind for kind in known), sum(kind.startswith(("*fp", "*bf")) for kind in known)
    usual = [name for name in guess.signature if name in guess.guessed and guess.signature[name] == f"*{given.element}"]
    return usual if (narrow or floats > 1) and not given.element_given else []


def _types_option(names: Sequence[str]) -> list[str]:
    """The option that says of what types tensors are; the types are to be filled in."""
    return [f"--signature '{','.join(f'{name}=*…' for name in names)}'"] if names else []


def options_besides(inspection: Inspection) -> tuple[str, ...]:
    """The options for what was guessed besides: types of elements, of index tensors, block sizes. `advisor inspect` asks for them too."""
    guess, given = inspection.guess, inspection.launch.given
    plain = [name for name in guess.guessed if guess.signature[name] == f"*{given.element}"]
    doubtful = _doubtful_types(inspection)
    besides = [f"--element {given.element}"] if plain and not doubtful and not given.element_given else []
    besides += _types_option(sorted({*doubtful, *guess.guessed} - ({*plain} - {*doubtful})))
    return (*besides, *(f"--constexpr {name}=…" for name in guess.invented if BLOCK_NAMES.search(name) and name not in guess.settled))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """A kernel of which something is not said.

    Attributes:
        kernel: Its name.
        options: Those that are missing, as they are written.
        parameters: Names of its arguments.
    """

    kernel: str
    options: tuple[str, ...]
    parameters: frozenset[str]


def say_missing(
    kernels: Sequence[Lacking], ids: tuple[str, ...], target: str, command: str, *, sized: bool, alone: bool
) -> tuple[Action, ...]:
    """The action that comes first where the launches `ids` have no grid, or (`sized`) were counted with guesses: to say what they are.

    Args:
        kernels: Of those launches.
        ids: Of the launches that are meant.
        target: What the command names.
        command: The command line; "": there is none.
        sized: Whether their grids are known.
        alone: Whether the target is one kernel; else it is a file, and the command is given for each of its kernels.
    """
    kernels = [kernel for kernel in kernels if kernel.options]
    if not kernels:
        return ()
    of = "" if alone else f" of {kernels[0].kernel}" if len(kernels) == 1 else f" of {len(kernels)} kernels"
    options = " ".join(kernels[0].options)
    if len(kernels) > 1:
        title, detail = phrase("action.size_several", of=of), phrase("action.each_command")
    elif sized:
        title, detail = phrase("action.guess", of=of, options=options), phrase("action.guess_detail")
    else:
        title, detail = phrase("action.size", of=of, options=options), phrase("action.size_detail")
    if len(kernels) == 1:
        detail = " ".join([detail, *(phrase(key) for option, key in _FOR_EXAMPLE.items() if option in kernels[0].options)])
    commands = [_command(kernel, target, command, alone) for kernel in kernels] if command else []
    return (Action(title=title, detail=detail, saving_us=0.0, origin="predicted", launches=ids, snippet="\n".join(commands) or None),)


def say_contents(
    deciding: Mapping[str, Mapping[str, frozenset[str]]],
    parameters: Mapping[str, frozenset[str]],
    offsets: Mapping[str, frozenset[str]],
    target: str,
    command: str,
    *,
    recorded: bool,
    alone: bool,
) -> tuple[Action, ...]:
    """The action to give what tensors hold that decides what is done or where, for which guesses stand.

    Args:
        deciding: Why that is not known, by kernel and id of a launch.
        parameters: Names of the arguments of each kernel.
        offsets: Those of them that hold where rows begin.
        target: What the command names.
        command: The command line; "": there is none.
        recorded: Whether the launches are those of a record, which alone says what tensors hold; else the command line may.
        alone: Whether the target is one kernel.
    """
    contents = {kernel: not_given(frozenset[str]().union(*launches.values())) for kernel, launches in deciding.items()}
    contents = {kernel: names for kernel, names in contents.items() if names}
    if not contents:
        return ()
    names = sorted({name for item in contents.values() for name in item})
    of = "" if alone else f" in {next(iter(contents))}" if len(contents) == 1 else f" in {len(contents)} kernels"
    record = f"advisor record {' '.join(f'--contents {name}' for name in names)} -o launches.jsonl -- python …"
    options = {kernel: tuple(content_option(name, offsets[kernel]) for name in its) for kernel, its in contents.items()}
    commands = [
        _command(Lacking(kernel=kernel, options=its, parameters=parameters[kernel]), target, command, alone)
        for kernel, its in options.items()
    ]
    return (
        Action(
            title=phrase("action.contents", what=what_holds(names), of=of),
            detail=phrase("action.contents_record") if recorded else phrase("action.contents_options", command=record),
            saving_us=0.0,
            origin="predicted",
            launches=tuple(launch for kernel, launches in deciding.items() if kernel in contents for launch in launches),
            snippet=record if recorded else "\n".join(commands),
        ),
    )


def _command(lacking: Lacking, target: str, command: str, alone: bool) -> str:
    """The command with the options that are missing; where the target is a file for one of its kernels, without what others were given."""
    words = shlex.split(command)
    if not alone:
        arguments: list[str] = []
        for word in words:
            valued = bool(arguments) and arguments[-1] in _NAMED and "=" in word
            if valued and word.partition("=")[0].strip() not in lacking.parameters:
                arguments.pop()
            else:
                arguments.append(f"{target}::{lacking.kernel}" if word == target else word)
        words = arguments
    return " ".join([*([shlex.join(words)] if words else ()), *lacking.options])
