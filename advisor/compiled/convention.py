"""Launches of kernels that describe themselves by the convention of `triton_kernels/README.md`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from advisor.compiled.inference import Given
from advisor.compiled.kernel import OPTION_NAMES
from advisor.compiled.launch import KernelLaunch
from advisor.configs.source import SourceFile


def described_launch(
    source: SourceFile,
    kernel: str,
    arguments: Mapping[str, Any],
    configuration: Mapping[str, Any],
    grid: Sequence[int] | None = None,
    contents: Mapping[str, Any] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> KernelLaunch:
    """A launch from what a file's `arguments(problem, config)` returned, and a configuration of its space.

    Args:
        source: The parsed file.
        kernel: Name of the kernel.
        arguments: Pointers as Triton types, other arguments as values.
        configuration: A value for every key of the space; launch options among them.
        grid: Programs; None: not known.
        contents: What index tensors hold.
        shapes: Shapes of tensor descriptors.
        sizes: Elements of pointers' tensors.
    """
    options = {k: v for k, v in configuration.items() if k in OPTION_NAMES}
    values = {**arguments, **{k: v for k, v in configuration.items() if k not in OPTION_NAMES}}
    types: dict[str, str] = {}
    constants: dict[str, Any] = {}
    scalars: dict[str, Any] = {}
    function = source.kernel(kernel)
    for parameter in function.parameters:
        if parameter.name not in values:
            continue
        value = values[parameter.name]
        one = type(value) is int and value == 1 and parameter.name not in function.unspecialized
        if parameter.is_constexpr or value is None or one:
            types[parameter.name], constants[parameter.name] = "constexpr", value
        elif isinstance(value, str):
            types[parameter.name] = value
        elif isinstance(value, float):
            types[parameter.name], scalars[parameter.name] = "fp32", value
        else:
            types[parameter.name] = "i32" if -(2**31) <= value < 2**31 else "i64"
            scalars[parameter.name] = value
    return KernelLaunch(
        source=source, kernel=kernel, grid=tuple(grid) if grid is not None else None, contents=dict(contents or {}),
        shapes=dict(shapes or {}), sizes=dict(sizes or {}),
        given=Given(types=types, constexprs=constants, options=options, scalars=scalars),
    )  # fmt: skip
