"""What a user says of a kernel's launches, on the command line or in a TOML file, and the launches that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.compiled import target
from advisor.compiled.described import Described, description, launch_from_description, operators
from advisor.compiled.kernel import OPTION_NAMES
from advisor.compiled.launch import KernelLaunch
from advisor.configs.source import SourceFile
from advisor.errors import InputError, UsageError
from advisor.hardware import GpuSpec

MOST_CONFIGURATIONS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """Everything that `advisor inspect` and `advisor advise` take for a kernel; what is left out is found in its file, or guessed.

    Attributes:
        signature: Types, in order or by name.
        element: Type behind pointers whose type is not given.
        grid: Programs, or an expression over arguments.
        toml: Content of a TOML file, under what is given here.
        sizes: Of the problem of a kernel that its file describes.
        op: Its operator.
        dtype: Its type.
        routing: Token slots per expert.
    """

    signature: str | None = None
    constexprs: Mapping[str, Any] = field(default_factory=dict)
    arguments: Mapping[str, Any] = field(default_factory=dict)
    contents: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    grid: str | None = None
    element: str | None = None
    toml: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    op: str | None = None
    dtype: str | None = None
    routing: Sequence[int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedLaunch:
    """A launch with a name for people, and where its configuration comes from (empty: from what was given, or guessed)."""

    id: str
    launch: KernelLaunch
    source: str = ""


def launches(source: SourceFile, kernel: str, asked: LaunchOptions, gpu: GpuSpec | None = None) -> list[NamedLaunch]:
    """All launches that a kernel in a file stands for: its operators, and the configurations it is tuned over.

    Raises:
        UsageError, InputError: Something given does not fit the kernel.
    """
    if asked.op is None and not asked.signature and not asked.toml.get("signature"):
        ops = operators(source, kernel)
        if ops:
            return [each for op in ops for each in _tuned(source, kernel, replace(asked, op=op), gpu, op if len(ops) > 1 else kernel)]
    return list(_tuned(source, kernel, asked, gpu, kernel))


def _tuned(source: SourceFile, kernel: str, asked: LaunchOptions, gpu: GpuSpec | None, name: str) -> Iterator[NamedLaunch]:
    configurations, origin = _configurations(source, kernel, asked)
    if not configurations:
        yield NamedLaunch(id=name, launch=one_launch(source, kernel, asked, gpu))
        return
    seen = set()
    for number, (constants, options) in enumerate(configurations):
        constants, options = {**constants, **asked.constexprs}, {**options, **asked.options}
        key = repr((sorted(constants.items()), sorted(options.items())))
        if key in seen:
            continue  # what is given takes the place of what they differ in
        seen.add(key)
        chosen = replace(asked, constexprs=constants, options=options)
        yield NamedLaunch(id=f"{name}-config{number}", launch=one_launch(source, kernel, chosen, gpu), source=f"{origin} {number}")


def _configurations(source: SourceFile, kernel: str, asked: LaunchOptions) -> tuple[list[tuple[dict[str, Any], dict[str, Any]]], str]:
    """(constants, options) of each configuration to look at, and where they come from."""
    function = source.kernel(kernel)
    listed = asked.toml.get("configs")
    if listed is not None:
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed) or len(listed) > MOST_CONFIGURATIONS:
            raise InputError("configs is not a list of tables", None, f"at most {MOST_CONFIGURATIONS}, as in [[configs]] BLOCK = 64")
        return [_divided(each) for each in listed], "configs entry"
    if function.autotune is None:
        return [], ""
    found = []
    for config in function.autotune.configs[:MOST_CONFIGURATIONS]:
        constants = {k: v for k, v in config.parameters.items() if function.parameter(k) is not None}
        options = {"num_warps": config.num_warps, "num_stages": config.num_stages}
        found.append((constants, {**options, **_rare(config.num_ctas, config.maxnreg)}))
    return found, "@triton.autotune configuration"


def _rare(num_ctas: int, maxnreg: int | None) -> dict[str, int]:
    return {k: v for k, v in (("num_ctas", num_ctas if num_ctas != 1 else None), ("maxnreg", maxnreg)) if v}


def _divided(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    return {k: v for k, v in values.items() if k not in OPTION_NAMES}, {k: v for k, v in values.items() if k in OPTION_NAMES}


def one_launch(source: SourceFile, kernel: str, asked: LaunchOptions, gpu: GpuSpec | None = None) -> KernelLaunch:
    """The one launch that the options describe.

    Raises:
        UsageError, InputError: Something given does not fit the kernel.
    """
    types = target.signature(asked.signature, source, kernel) if asked.signature else {}
    described = description(source, kernel) is not None and not types and not asked.toml.get("signature")
    if described:
        return _described(source, kernel, asked, gpu)
    for what, value in (("--sizes", asked.sizes or None), ("--op", asked.op), ("--dtype", asked.dtype)):
        if value is not None:
            raise UsageError(f"{what} is for kernels that their file describes", kernel, "a KERNELS literal (triton_kernels/README.md)",
                             "give --arg, --constexpr and --element")  # fmt: skip
    given = {
        "types": types, "constexprs": asked.constexprs, "arguments": asked.arguments, "contents": asked.contents,
        "options": asked.options, "grid": asked.grid, "element": asked.element,
    }  # fmt: skip
    return target.launch_from_toml(source, kernel, asked.toml, given)


def _described(source: SourceFile, kernel: str, asked: LaunchOptions, gpu: GpuSpec | None) -> KernelLaunch:
    toml = asked.toml
    launch = launch_from_description(source, kernel, Described(
        sizes={**{k: int(v) for k, v in toml.get("problem", {}).items()}, **asked.sizes}, op=asked.op,
        dtype=asked.dtype or toml.get("dtype"),
        arguments={**toml.get("arguments", {}), **asked.arguments}, constexprs={**toml.get("constexprs", {}), **asked.constexprs},
        options={**{k: toml[k] for k in OPTION_NAMES if k in toml}, **asked.options}, routing=asked.routing,
        num_sms=gpu.num_sms if gpu is not None else None,
    ))  # fmt: skip
    contents = {**toml.get("contents", {}), **asked.contents}
    if contents:
        launch = replace(launch, contents={**launch.contents, **contents})
    grid = asked.grid or toml.get("grid")
    if grid is None:
        return launch
    names = {**(launch.problem.sizes if launch.problem else {}), **launch.given.constexprs, **launch.given.scalars}
    return replace(launch, grid=target.grid_of(grid, names, source) if isinstance(grid, str) else target.checked_grid(grid, grid))
