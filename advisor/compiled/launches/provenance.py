"""Where every value of a launch comes from, and which of the guessed ones decide what the launch does: nothing is to be said of its time
where one does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from advisor.compiled.compiler.kernel import OPTION_NAMES, items_of
from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.guesses.assumptions import INTEGERS
from advisor.compiled.guesses.inference import Guess
from advisor.compiled.guesses.usage import usage_of
from advisor.compiled.guesses.usage_marks import Usage
from advisor.compiled.ir.execution import not_given
from advisor.compiled.launches.launch import KernelLaunch, Origin
from advisor.python_source.jit_function import MISSING
from advisor.python_source.stride_use import STRIDE_NAME

GRID = "grid"
"""Stands for the grid among the names of a launch's values."""
NO_DECISION = frozenset({"guessed", "unknown"})
"""Origins of values that decide nothing."""
TOLD = frozenset({"said", "recorded", "literal"})
"""Origins of values that are known, and in whose place no other is tried."""
_ARGUMENT = "argument "
_COUNTS = ("a branch", "the trips", "a mask", "a block")
"""Begin what `Execution.assume` says of places where an amount of work hangs on something; others tell where an access goes."""


def origins(launch: KernelLaunch, guess: Guess) -> dict[str, Origin]:
    """The origin of every parameter's value (of a pointer: of its type), of the options, and of the grid (`GRID`)."""
    function = launch.source.kernel(launch.kernel)
    usage, origins_ = usage_of(launch.source, function), dict[str, Origin]()
    for parameter in function.parameters:
        name, kind = parameter.name, guess.signature.get(parameter.name, "")
        if name in guess.undecided:
            origins_[name] = "guessed"
        elif name in launch.origins:
            origins_[name] = launch.origins[name]
        elif name in guess.invented:
            origins_[name] = "typical" if name in guess.settled and not usage[name].switch else "guessed"
        elif name in guess.presumed:
            origins_[name] = "typical"
        elif kind.startswith("tensordesc"):
            origins_[name] = "guessed"
        elif kind.startswith("*"):
            origins_[name] = "typical" if name in guess.guessed or not parameter.annotation else "literal"
        elif kind == "constexpr":
            origins_[name] = "typical" if STRIDE_NAME.search(name) and parameter.default is MISSING else "literal"
        else:
            is_known = parameter.default is not MISSING or name in launch.given.scalars
            origins_[name] = "literal" if is_known else "typical" if STRIDE_NAME.search(name) else "unknown"
    options = {name: launch.origins.get(name, "literal") for name in OPTION_NAMES if name in {*guess.options, *launch.origins}}
    return {**origins_, **options, GRID: launch.origins.get(GRID, "unknown" if launch.grid is None else "literal")}


def deciding(launch: KernelLaunch, guess: Guess, demand: KernelDemand) -> tuple[str, ...]:
    """The values that are guessed, or not known, and on which a count, a branch, a flag, a block, an option or the grid hangs, in the
    order of the parameters; options and `GRID` last, and a tensor's name where the trips of a loop hang on what it holds.

    Args:
        launch: What was compiled.
        guess: With what.
        demand: What was counted of it.
    """
    where, code = origins(launch, guess), deciding_code(launch, guess)
    unknown_arguments = {*_arguments(demand.unknown), *not_given({reason for loop in demand.loops for reason in loop.reasons})}
    names = []
    for parameter in launch.source.kernel(launch.kernel).parameters:
        name, kind = parameter.name, guess.signature.get(parameter.name, "")
        if name in code or (name in unknown_arguments and (where[name] in NO_DECISION or kind.startswith("*"))):
            names.append(name)
    return (*names, *(name for name in (*OPTION_NAMES, GRID) if where.get(name) in NO_DECISION))


def deciding_code(launch: KernelLaunch, guess: Guess) -> tuple[str, ...]:
    """The guessed constants, and descriptors of a guessed block, on which it hangs what the compiler makes of a kernel."""
    function = launch.source.kernel(launch.kernel)
    where, usage = origins(launch, guess), usage_of(launch.source, function)
    read = function.reads
    names = [parameter.name for parameter in function.parameters if where[parameter.name] in NO_DECISION and parameter.name in read]
    values = {name: guess.constexprs.get(name) for name in names if not _is_number(guess.signature.get(name, ""))}
    return tuple(name for name, value in values.items() if _decides(usage[name], value))


def _is_number(kind: str) -> bool:
    """Whether a type is of numbers that the kernel is handed: of these the evaluation says which decide (`KernelDemand.unknown`)."""
    return kind in INTEGERS or kind.startswith(("fp", "bf", "i", "u")) or bool(items_of(kind))


def _arguments(unknown: Mapping[str, str]) -> Iterator[str]:
    """The arguments without a value on which an amount of work hangs."""
    for reason, place in unknown.items():
        if reason.startswith(_ARGUMENT) and place.startswith(_COUNTS):
            yield reason.removeprefix(_ARGUMENT).partition(".")[0]


def _decides(use: Usage, value: Any) -> bool:
    """Whether a constant may decide what is done: all do but plain numbers, and strides."""
    works = (use.extent, use.items, use.range_bound, use.integer, use.boolean, use.optional, use.compared, use.switch, use.whole, use.text)
    return any(works) or use.element_type or not (use.number or use.offset or use.beside_floats or isinstance(value, float))


def named(names: Iterable[str]) -> str:
    """`n`, `n and grid`, `a, b and c`."""
    listed = list(names)
    return " and ".join([", ".join(listed[:-1]), listed[-1]] if len(listed) > 1 else listed)
