"""Options that say how a kernel is launched; `inspect` and `advise` take the same."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from advisor.cli import options
from advisor.result.schema import LAUNCH_OPTIONS

if TYPE_CHECKING:
    from advisor.compiled.launches.launch_options import LaunchOptions


def add_kernel_arguments(parser: argparse.ArgumentParser) -> None:
    """Constants, arguments, types, grid and launch options of a kernel."""
    group = parser.add_argument_group("a kernel in a file")
    group.add_argument("--constexpr", action="append", default=[], metavar="NAME=VALUE", help="a tl.constexpr argument")
    group.add_argument(
        "--arg", action="append", default=[], metavar="NAME=VALUE", help="value of a number, or of a tuple: 'strides=(4096,1)'"
    )
    group.add_argument("--content", action="append", default=[], metavar="NAME=VALUE", help="what an index tensor holds everywhere")
    group.add_argument("--signature", metavar="TYPES", help='"*fp16,*fp16,i32" in order, or "x_ptr=*fp16,n=i32"')
    group.add_argument("--element", metavar="TYPE", help="type behind pointers whose type is not given (fp16)")
    group.add_argument("--grid", metavar="X[,Y[,Z]]", help="programs; an expression over arguments: 'cdiv(M, BLOCK_M),8'")
    for name in LAUNCH_OPTIONS:
        group.add_argument("--" + name.replace("_", "-"), type=options.positive_integer, metavar="N")
    group.add_argument("--op", metavar="NAME", help="operator of a kernel that its file describes (KERNELS)")
    group.add_argument(
        "--toml",
        metavar="FILE",
        help="the same in a file: signature, constexprs, arguments, grid, num_warps, configs, …, and what only a file says: [contents] of "
        "index tensors, [sizes] in elements and [shapes] of tensors (x_ptr = [65536, 4096])",
    )


def launch_options(arguments: argparse.Namespace) -> LaunchOptions:
    """The options of a kernel's launch.

    Raises:
        UsageError, InputError: It is malformed.
    """
    from advisor.compiled.launches import written_values
    from advisor.compiled.launches.launch_options import LaunchOptions
    from advisor.tables.routing import read_routing

    given = {name: getattr(arguments, name) for name in LAUNCH_OPTIONS}
    routing = getattr(arguments, "routing", None)
    return LaunchOptions(
        signature=arguments.signature,
        constexprs=written_values.assignments(arguments.constexpr, "--constexpr"),
        arguments=written_values.numbers(arguments.arg, "--arg"),
        contents=written_values.numbers(arguments.content, "--content"),
        options={k: v for k, v in given.items() if v is not None},
        grid=arguments.grid,
        element=written_values.type_name(arguments.element) if arguments.element else None,
        toml=written_values.read_toml(arguments.toml) if arguments.toml else {},
        sizes=arguments.sizes or {},
        op=arguments.op,
        dtype=arguments.dtype,
        routing=read_routing(routing) if routing else None,
    )


def given_for_a_kernel(arguments: argparse.Namespace) -> tuple[str, ...]:
    """Options given that only a kernel in a file has, as they are written."""
    named = [
        ("constexpr", "--constexpr"),
        ("arg", "--arg"),
        ("content", "--content"),
        ("signature", "--signature"),
        ("element", "--element"),
        ("grid", "--grid"),
        ("op", "--op"),
        ("toml", "--toml"),
    ]
    named += [(name, "--" + name.replace("_", "-")) for name in LAUNCH_OPTIONS]
    return tuple(option for name, option in named if getattr(arguments, name))
