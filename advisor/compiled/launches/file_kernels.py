"""What of the options of a launch is for which kernel, where all kernels of a file are looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from advisor.compiled.launches.launch_options import LaunchOptions
from advisor.python_source.source import SourceFile
from advisor.system.errors import UsageError


def options_by_kernel(source: SourceFile, kernels: Sequence[str], asked: LaunchOptions) -> dict[str, LaunchOptions]:
    """The options that each of several kernels is given: those of its own arguments, and those that any kernel has.

    Raises:
        UsageError: No kernel has an argument of a name that is given, or something is given that means another thing for each.
    """
    one_by_one = {
        "--signature": asked.signature,
        "--grid": asked.grid,
        "--toml": asked.toml,
        "--op": asked.op,
        "--sizes": asked.sizes,
        "--dtype": asked.dtype,
        "--routing": asked.routing,
    }
    if given := [option for option, value in one_by_one.items() if value]:
        raise UsageError(
            f"{', '.join(given)} is for one kernel of a file",
            None,
            f"{source.path}::KERNEL",
            "name the kernel after ::, one of " + ", ".join(kernels),
        )
    names = {kernel: {p.name for p in source.kernel(kernel).parameters} for kernel in kernels}
    known = set().union(*names.values())
    for option, values in (("--constexpr", asked.constexprs), ("--arg", asked.arguments), ("--content", asked.contents)):
        if unknown := [name for name in values if name not in known]:
            raise UsageError(
                f"no kernel of {source.path.name} has an argument of that name (for {option})",
                ", ".join(unknown),
                "one of " + ", ".join(sorted(known)),
            )
    return {
        kernel: replace(
            asked, constexprs=_of(asked.constexprs, own), arguments=_of(asked.arguments, own), contents=_of(asked.contents, own)
        )
        for kernel, own in names.items()
    }


def _of(values: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}
