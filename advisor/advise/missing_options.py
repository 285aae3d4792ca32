"""What to say of a kernel before its times mean anything: without a grid one program is counted, and what is guessed may be wrong."""

from __future__ import annotations

import re

from advisor.compiled.launch import Inspection
from advisor.compiled.parameter_guesses import BLOCK_NAMES
from advisor.schema import Action

_ARGUMENT = "argument "
"""Begins the reason why something is not known where it is an argument's value."""

_TUNED = re.compile(r"(^|_)(GROUP(_SIZE)?_?[MN]?|GROUPS|SPLIT_?K|(NUM_)?(SMS?|STAGES|WARPS|XCDS|PROGRAMS|CTAS))($|_)", re.IGNORECASE)
"""Names of constants that are tuned, beside blocks: they change how the work is done, and not what it is."""


def missing_options(inspection: Inspection) -> tuple[str, ...]:
    """The options that say what a launch computes, as they are written, where that is not known: `--arg N=…`, `--grid …`.

    Where it has no grid, those that the grid of a launch in the file would follow from come first; `--grid` is asked for where there is
    no such launch.
    """
    launch, guess = inspection.launch, inspection.guess
    values = [reason.removeprefix(_ARGUMENT) for reason in inspection.demand.unknown if reason.startswith(_ARGUMENT)]
    found = [f"--arg {name}=…" for name in sorted(values) if name not in launch.given.multiples]
    # A block follows from the sizes, or is tuned; any other whole number that had to be guessed is a size, or says what is computed.
    constants = [p.name for p in launch.source.kernel(launch.kernel).parameters
                 if p.is_constexpr and not BLOCK_NAMES.search(p.name) and not _TUNED.search(p.name)]  # fmt: skip
    found += [f"--constexpr {n}=…" for n in constants if n not in launch.given.constexprs and type(guess.constexprs.get(n)) is int]
    if launch.grid is None:
        found = [*launch.asks, *found, *([] if launch.asks else ["--grid …"])]
    return tuple(dict.fromkeys(found))


def say_missing(kernels: set[str], ids: tuple[str, ...], options: tuple[str, ...], command: str, *, sized: bool) -> tuple[Action, ...]:
    """The action that comes first where the launches `ids` have no grid, or (`sized`) were counted with guesses: to say what they are.

    None for several kernels at once, each of which takes options of its own.
    """
    if len(kernels) != 1 or not options:
        return ()
    given = " ".join(options)
    title = "Say how large the launch is"
    detail = "The times here are those of one program, and say nothing of the launch, nor of which configuration is best."
    if sized:
        title, detail = "Say what was guessed", "The work was counted with a guess (see what is not known), and may be quite another."
    return (
        Action(title=f"{title}: {given}", detail=detail, saving_us=0.0, origin="predicted", launches=ids,
               snippet=f"{command} {given}" if command else None),
    )  # fmt: skip
