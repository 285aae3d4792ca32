"""What to say of a kernel whose grid is not known: without it one program is counted, and that is no launch."""

from __future__ import annotations

from advisor.compiled.launch import Inspection
from advisor.compiled.parameter_guesses import BLOCK_NAMES
from advisor.schema import Action

_ARGUMENT = "argument "
"""Begins the reason why something is not known where it is an argument's value."""


def options_for_sizes(inspection: Inspection) -> tuple[str, ...]:
    """The options that say how large a launch without a grid is, as they are written: `--arg N=…`, `--grid …`.

    Those that the grid of a launch in the file would follow from come first; `--grid` is asked for where there is no such launch.
    """
    launch, guess = inspection.launch, inspection.guess
    values = [reason.removeprefix(_ARGUMENT) for reason in inspection.demand.unknown if reason.startswith(_ARGUMENT)]
    found = [f"--arg {name}=…" for name in sorted(values) if name not in launch.given.multiples]
    # A block follows from the sizes, or is tuned; any other whole number that had to be guessed is a size.
    constants = [p.name for p in launch.source.kernel(launch.kernel).parameters if p.is_constexpr and not BLOCK_NAMES.search(p.name)]
    found += [f"--constexpr {n}=…" for n in constants if n not in launch.given.constexprs and type(guess.constexprs.get(n)) is int]
    return tuple(dict.fromkeys([*launch.asks, *found, *([] if launch.asks else ["--grid …"])]))


def say_sizes(kernels: set[str], ids: tuple[str, ...], options: tuple[str, ...], command: str) -> tuple[Action, ...]:
    """The action that comes first where the launches `ids` have no grid: to say how large they are. None for several kernels at once,
    each of which takes options of its own."""
    if len(kernels) != 1 or not options:
        return ()
    given = " ".join(options)
    return (
        Action(title=f"Say how large the launch is: {given}", saving_us=0.0, origin="predicted", launches=ids,
               detail="The times here are those of one program, and say nothing of the launch, nor of which configuration is best.",
               snippet=f"{command} {given}" if command else None),
    )  # fmt: skip
