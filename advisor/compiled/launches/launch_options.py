"""What a user says of a kernel's launches, on the command line or in a TOML file, and the launches that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from advisor.compiled.compiler.kernel import AMD_OPTIONS, OPTION_NAMES
from advisor.compiled.guesses.usage import usage_of
from advisor.compiled.launches import target, written_values
from advisor.compiled.launches.described import Described, description, launch_from_description, nominated, operators
from advisor.compiled.launches.launch import KernelLaunch
from advisor.gpus.hardware import GpuSpec
from advisor.python_source.jit_function import JitFunction
from advisor.python_source.launch_sites import names_around_launches
from advisor.python_source.literal_values import ConfigLiteral
from advisor.python_source.source import SourceFile
from advisor.system.errors import InputError, UsageError
from advisor.tables.launchability import refused_ctas

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

    def __post_init__(self) -> None:
        for table in (self.arguments, self.contents, self.toml.get("arguments"), self.toml.get("contents")):
            for name, value in table.items() if isinstance(table, Mapping) else ():
                if isinstance(value, int) and not -(2**63) <= value < 2**64:
                    raise UsageError(f"argument {name} is too large", value, "at most 64 bits, as the widest type of Triton", "correct it")


@dataclass(frozen=True, kw_only=True)
class KernelTarget:
    """One launch to report on.

    Attributes:
        count: How often it ran.
        measured_us: Where a record has it, on `device`.
        source: Where its configuration comes from.
        space: What it is one configuration of, among others of the same work.
        chosen: Whether it is the one of its space that runs untuned.
    """

    id: str
    launch: KernelLaunch
    count: int = 1
    measured_us: float | None = None
    device: str | None = None
    source: str = ""
    space: str | None = None
    chosen: bool = False


def launches(source: SourceFile, kernel: str, options: LaunchOptions, gpu: GpuSpec | None = None) -> list[KernelTarget]:
    """All launches that a kernel in a file stands for: its operators, and the configurations it is tuned over.

    Raises:
        UsageError, InputError: Something given does not fit the kernel.
    """
    source = _for(source, gpu)
    if options.op is None and not options.signature and not options.toml.get("signature"):
        ops = operators(source, kernel)
        if ops:
            return [item for op in ops for item in _tuned(source, kernel, replace(options, op=op), gpu, op if len(ops) > 1 else kernel)]
    return list(_tuned(source, kernel, options, gpu, kernel))


def _for(source: SourceFile, gpu: GpuSpec | None) -> SourceFile:
    """The file as it is read for a GPU."""
    return source.on(*gpu.triton_target[:2]) if gpu is not None else source


def _tuned(source: SourceFile, kernel: str, wanted: LaunchOptions, gpu: GpuSpec | None, name: str) -> Iterator[KernelTarget]:
    configurations = _configurations(source, kernel, wanted, gpu)
    if not configurations:
        yield KernelTarget(id=name, launch=one_launch(source, kernel, wanted, gpu))
        return
    tunable = frozenset(n for configuration in configurations for n in configuration.constants)
    seen = set()
    for number, item in enumerate(configurations):
        constants, options = {**item.constants, **wanted.constexprs}, {**item.options, **wanted.options}
        key = repr((sorted(constants.items()), sorted(options.items())))
        if key in seen:
            continue  # what is given takes the place of what they differ in
        seen.add(key)
        launch = one_launch(source, kernel, replace(wanted, constexprs=constants, options=options), gpu)
        launch = launch if launch.tunable is not None else replace(launch, tunable=tunable)
        yield KernelTarget(id=f"{name}-config{number}", launch=launch, source=item.source, space=name, chosen=item.chosen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A configuration to look at: constants and options, where it comes from, and whether it runs untuned."""

    constants: Mapping[str, Any]
    options: Mapping[str, Any]
    source: str
    chosen: bool = False


def _configurations(source: SourceFile, kernel: str, options: LaunchOptions, gpu: GpuSpec | None) -> list[Choice]:
    """The configurations to look at: those given, those of `@triton.autotune`, or the likeliest of the file's own space.

    None of a list where the kernel takes descriptors, which 0.2 % of public kernels do: compiled with the block of another, one would do
    less than the work.
    """
    function = source.kernel(kernel)
    listed = options.toml.get("configs")
    if (listed is not None or function.autotune is not None) and _blocks_follow(source, function):
        return []
    if listed is not None:
        if not isinstance(listed, list) or not all(isinstance(element_, dict) for element_ in listed) or len(listed) > MOST_CONFIGURATIONS:
            raise InputError("configs is not a list of tables", None, f"at most {MOST_CONFIGURATIONS}, as in [[configs]] BLOCK = 64")
        return [_choice(item, f"configs entry {number}") for number, item in enumerate(listed)]
    if function.autotune is not None:
        return _configurations_listed(function, gpu)
    if gpu is None or not _is_described(source, kernel, options):
        return []
    space = (description(source, kernel) or {}).get("space") or {}
    if set(space) & {*options.constexprs, *options.options, *options.toml.get("constexprs", {}), *options.toml}:
        return []  # part of the configuration is given: that one is meant
    rows = nominated(source, kernel, _problem_asked(options, gpu), gpu)
    untuned = Choice(constants={}, options={}, source="the file's untuned configuration", chosen=True)
    return [untuned, *(_choice(row, "the file's space") for row in rows)] if rows else []


def _configurations_listed(function: JitFunction, gpu: GpuSpec | None) -> list[Choice]:
    """Those of the list of `@triton.autotune`; none where there is no list, or it cannot be read."""
    listed = []
    for number, config in enumerate(function.autotune.configs[:MOST_CONFIGURATIONS] if function.autotune is not None else ()):
        constants = {k: v for k, v in config.parameters.items() if function.parameter(k) is not None}
        options = {**_amd_options(config, gpu), **config.options}
        options = {k: v for k, v in options.items() if k not in function.heuristics}  # which have the last word
        listed.append(Choice(constants=constants, options=options, source=f"@triton.autotune configuration {number}"))
    return listed


def _blocks_follow(source: SourceFile, function: JitFunction) -> bool:
    """Whether a kernel takes descriptors, whose blocks the hooks of its configurations set."""
    return any(use.descriptor and not use.pointer for use in usage_of(source, function).values())


def _choice(values: Mapping[str, Any], source: str) -> Choice:
    constants = {k: v for k, v in values.items() if k not in OPTION_NAMES}
    return Choice(constants=constants, options={k: v for k, v in values.items() if k in OPTION_NAMES}, source=source)


def _amd_options(config: ConfigLiteral, gpu: GpuSpec | None) -> dict[str, int]:
    """Options of AMD's compiler among a configuration's parameters; none for a GPU whose compiler does not know them."""
    if gpu is not None and gpu.vendor != "amd":
        return {}
    return {k: v for k, v in config.parameters.items() if k in AMD_OPTIONS and isinstance(v, int)}


def _list_notes(source: SourceFile, kernel: str, options: LaunchOptions, gpu: GpuSpec | None) -> Iterator[str]:
    """What is not known of the list of `@triton.autotune`, each a sentence."""
    function = source.kernel(kernel)
    tuned = function.autotune
    if function.unread:
        yield f"What @{', @'.join(function.unread)} does to a launch of {function.name} is not read: it may set the configuration."
    if tuned is None or "configs" in options.toml:
        return
    if _blocks_follow(source, function):
        yield f"The configurations of {function.name} are not compared: how the blocks of its descriptors follow from them is not read."
        return
    if not tuned.configs:
        why = (tuned.problem or "").removeprefix("the configurations: ")
        yield (
            f"The list of @triton.autotune cannot be read ({why}), so its configurations are unknown: write the values in the "
            "file, or specify `configs` in a --toml file."
        )
    elif tuned.prunes:
        yield "The kernel prunes this list (prune_configs_by); a configuration shown may be one it leaves out."
    elif gpu is not None and len(tuned.configs) > 1:
        refused = dict.fromkeys(refused_ctas(config.num_ctas, gpu.compute_capability) for config in tuned.configs)
        yield from (f"@triton.autotune fails on {gpu.name}, whatever else is in its list; {reason}." for reason in refused if reason)
    if gpu is not None and gpu.vendor != "amd":
        names = dict.fromkeys(k for config in tuned.configs for k in config.parameters if k in AMD_OPTIONS and not function.parameter(k))
        if names:
            yield f"{', '.join(names)}: options of AMD's compiler, which a launch on {gpu.name} would reject; they are left out."


def one_launch(source: SourceFile, kernel: str, wanted: LaunchOptions, gpu: GpuSpec | None = None) -> KernelLaunch:
    """The one launch that the options describe.

    Raises:
        UsageError, InputError: Something given does not fit the kernel.
    """
    source = _for(source, gpu)
    if _is_described(source, kernel, wanted):
        return _described(source, kernel, wanted, gpu)
    types = written_values.signature(wanted.signature, source, kernel) if wanted.signature else {}
    for what, value in (("--sizes", wanted.sizes or None), ("--op", wanted.op), ("--dtype", wanted.dtype)):
        if value is not None:
            raise UsageError(
                f"{what} is for kernels that their file describes",
                kernel,
                "a KERNELS literal (triton_kernels/README.md)",
                "give --arg, --constexpr and --element",
            )
    options = wanted.options
    tuned = source.kernel(kernel).autotune
    if tuned is not None and tuned.configs and "num_warps" not in options and not set(tuned.configs[0].parameters) & set(wanted.constexprs):
        options = {**_amd_options(tuned.configs[0], gpu), **options}  # the first configuration is the one that is guessed
    toml = wanted.toml
    written = toml.get("constexprs", {})
    constants = {k: written_values.literal(v) if isinstance(v, str) and v.startswith("tl.") else v for k, v in written.items()}
    launch = target.make_launch(
        source,
        kernel,
        types=target.types_listed(source, kernel, toml.get("signature", {})) | types,
        constexprs={**constants, **wanted.constexprs},
        arguments={**toml.get("arguments", {}), **wanted.arguments},
        options={**{k: toml[k] for k in OPTION_NAMES if k in toml}, **options},
        grid=wanted.grid or toml.get("grid"),
        contents={**toml.get("contents", {}), **wanted.contents},
        sizes=toml.get("sizes"),
        shapes=toml.get("shapes"),
        divisible=toml.get("divisible"),
        element=wanted.element,
        num_sms=gpu.num_sms if gpu is not None else None,
    )
    return replace(launch, notes=(*_list_notes(source, kernel, wanted, gpu), *launch.notes))


def _is_described(source: SourceFile, kernel: str, options: LaunchOptions) -> bool:
    """Whether the file's own description is used: types that are given take its place."""
    return description(source, kernel) is not None and not options.signature and not options.toml.get("signature")


def _problem_asked(options: LaunchOptions, gpu: GpuSpec | None) -> Described:
    toml = options.toml
    return Described(
        sizes={**{k: int(v) for k, v in toml.get("problem", {}).items()}, **options.sizes},
        op=options.op,
        dtype=options.dtype or toml.get("dtype"),
        arguments={**toml.get("arguments", {}), **options.arguments},
        constexprs={**toml.get("constexprs", {}), **options.constexprs},
        options={**{k: toml[k] for k in OPTION_NAMES if k in toml}, **options.options},
        routing=options.routing,
        num_sms=gpu.num_sms if gpu is not None else None,
        compute_capability=gpu.compute_capability if gpu is not None else None,
    )


def _described(source: SourceFile, kernel: str, options: LaunchOptions, gpu: GpuSpec | None) -> KernelLaunch:
    launch = launch_from_description(source, kernel, _problem_asked(options, gpu))
    least = (description(source, kernel) or {}).get("min_capability")
    if gpu is not None and not gpu.reaches(least):  # it may compile all the same
        launch = replace(launch, assumed=(*launch.assumed, f"that it runs on {gpu.name}, though its file asks for sm_{least} or later"))
    contents = {**options.toml.get("contents", {}), **options.contents}
    if contents:
        launch = replace(launch, contents={**launch.contents, **contents})
    grid = options.grid or options.toml.get("grid")
    if grid is None:
        return launch
    names = {**(launch.problem.sizes if launch.problem else {}), **launch.given.constexprs, **launch.given.scalars}
    return replace(launch, grid=target.grid_of(grid, names, source) if isinstance(grid, str) else target.checked_grid(grid, grid))


def options_by_kernel(source: SourceFile, kernels: Sequence[str], options: LaunchOptions) -> dict[str, LaunchOptions]:
    """The options that each of several kernels is given: those of its own arguments, and those that any kernel has.

    Raises:
        UsageError: No kernel has an argument of a name that is given, or something is given that means another thing for each.
    """
    if len(kernels) == 1:
        return {kernels[0]: options}
    one_by_one = {
        "--signature": options.signature,
        "--grid": options.grid,
        "--toml": options.toml,
        "--op": options.op,
        "--sizes": options.sizes,
        "--dtype": options.dtype,
        "--routing": options.routing,
    }
    if given := [option for option, value in one_by_one.items() if value]:
        raise UsageError(
            f"{', '.join(given)} is for one kernel of a file",
            None,
            f"{source.path}::KERNEL",
            "name the kernel after ::, one of " + ", ".join(kernels),
        )
    names = {kernel: {*source.kernel(kernel).names} for kernel in kernels}
    # An argument may be of the function that launches a kernel, whose grid hangs on it.
    passed = (
        {kernel: of_kernel | names_around_launches(source, kernel) for kernel, of_kernel in names.items()} if options.arguments else names
    )
    taken = {
        "--constexpr": (options.constexprs, names),
        "--arg": (options.arguments, passed),
        "--content": (options.contents, names),
    }
    for option, (values, of_kernels) in taken.items():
        known = set().union(*of_kernels.values())
        if unknown := [name for name in values if name not in known]:
            raise UsageError(
                f"no kernel of {source.path.name} has an argument of that name (for {option})",
                ", ".join(unknown),
                "one of " + ", ".join(sorted(set().union(*names.values()))),
            )
    return {
        kernel: replace(
            options,
            constexprs=_of(options.constexprs, of_kernel),
            arguments=_of(options.arguments, passed[kernel]),
            contents=_of(options.contents, of_kernel),
        )
        for kernel, of_kernel in names.items()
    }


def _of(values: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name in names}
