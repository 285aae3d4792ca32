"""`FILE.py::KERNEL`, and the launch that is meant: with what is given of it, and what its file says of the rest."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.compiled.compiler.kernel import OPTION_NAMES, Target
from advisor.compiled.guesses.assumptions import launched
from advisor.compiled.guesses.inference import Given, guesses, unknown_option
from advisor.compiled.guesses.usage import usage_of
from advisor.compiled.launches.inductor import embedded, with_generated
from advisor.compiled.launches.launch import KernelLaunch, Origin
from advisor.compiled.launches.written_values import bytes_of, element_type, known_type, symbol_text, type_name
from advisor.gpus.hardware import GpuSpec, list_gpus
from advisor.python_source.jit_function import MISSING, JitFunction
from advisor.python_source.launch_sites import (
    FoundLaunch,
    LaunchCalls,
    common_launch,
    grid_as_written,
    grid_from_launches,
    named_element,
    names_around_launches,
    needed_for_grid,
    passed_by_launches,
)
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile, read_source
from advisor.system.errors import AdvisorError, NothingMatchedError, UsageError


def is_kernel_target(text: str) -> bool:
    """Whether a TARGET has the form FILE.py::KERNEL."""
    return "::" in text and text.split("::")[0].endswith(".py")


def split_target(text: str) -> tuple[Path, str]:
    """File and kernel of `FILE.py::KERNEL`.

    Raises:
        UsageError: It has another form.
    """
    path, separator, kernel = text.partition("::")
    if not separator or not path or not kernel:
        raise UsageError("not a kernel", text, "FILE.py::KERNEL")
    return Path(path), kernel


def make_launch(
    source: SourceFile,
    kernel: str,
    *,
    types: Mapping[str, str] | None = None,
    constexprs: Mapping[str, Any] | None = None,
    arguments: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    grid: str | Sequence[int] | None = None,
    contents: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    divisible: Sequence[str] | None = None,
    element: str | None = None,
    num_sms: int | None = None,
    elsewhere: LaunchCalls = (),
) -> KernelLaunch:
    """A launch from its parts; names are checked. What is not given is taken from where the file, or others in place of it (`elsewhere`),
    launch the kernel, and said. A number for a pointer is what its tensor holds.

    Raises:
        UsageError: The kernel has no argument of a name that is given, or the grid is none.
    """
    function = source.kernel(kernel)
    names = {*function.names}
    scalars = {name: value for name, value in (arguments or {}).items() if name in names}
    around = {name: value for name, value in (arguments or {}).items() if name not in names}  # of the function around a launch
    if around.keys() <= (names_around_launches(source, kernel) if around else set()):
        arguments = scalars
    given = {"constant": constexprs, "value": arguments, "type": types, "content": contents, "size": sizes, "shape": shapes}
    check_names(kernel, names, given)
    constants = _typed(source, function, constexprs or {})
    usage = usage_of(source, function) if scalars else {}
    numbers = {name: value for name, value in scalars.items() if type(value) in (int, float) and usage[name].pointer}
    contents = {**numbers, **(contents or {})}
    scalars = {name: value for name, value in scalars.items() if name not in numbers}
    launch = KernelLaunch(
        source=source,
        kernel=kernel,
        contents=contents,
        sizes={k: int(v) for k, v in (sizes or {}).items()},
        shapes={k: tuple(int(n) for n in v) for k, v in (shapes or {}).items()},
        around=around,
        divisible=frozenset(divisible) if divisible is not None else None,
        given=Given(
            types=dict(types or {}),
            constexprs=constants,
            options=dict(options or {}),
            scalars=scalars,
            element=element or named_element(source, kernel) or ("fp16" if source.before_bf16 else "bf16"),
            element_given=element is not None,
        ),
        origins={**dict.fromkeys([*(types or {}), *constants, *scalars, *(options or {})], "said"), **({"grid": "said"} if grid else {})},
    )
    known = {**around, **scalars, **constants}
    size = bytes_of(launch.given.element)
    in_file = (
        None if grid is not None else grid_from_launches(source, kernel, known, _defaults(function), OPTION_NAMES, num_sms, size, elsewhere)
    )
    in_file = in_file or common_launch(source, kernel, known, OPTION_NAMES, num_sms, size, elsewhere)
    if in_file is not None:
        line = None if elsewhere else in_file.line
        launch = replace(_as_launched(launch, in_file), line=line, blocks_in_grid=in_file.blocks_in_grid, assigned=in_file.assigned)
    unknown, guessed = _passed_unknown(launch, elsewhere)
    launch = with_generated(replace(launch, assumed=(*launch.assumed, *unknown), origins={**guessed, **launch.origins}))
    if grid is None:
        if in_file is not None and in_file.grid is not None:
            launch = replace(launch, grid=in_file.grid, origins={**launch.origins, "grid": "literal"})
        return launch if launch.grid is not None else _with_grid_note(launch, known, num_sms, size)
    if isinstance(grid, str):
        known = {**next(guesses(source, function, launch.given)).constexprs, **launch.given.scalars, **known}
        return replace(launch, grid=grid_of(grid, known, source), grid_text="" if re.fullmatch(r"[\d,\s]+", grid) else grid)
    return replace(launch, grid=checked_grid(grid, grid))


UNKNOWN_SIZE = 1_024
"""Stands for a number of which nothing is known."""


def without_followers(
    lacking: Mapping[str, Any], constants: Collection[str], made: Callable[[Mapping[str, Any]], Iterable[KernelLaunch]]
) -> dict[str, Any]:
    """Values to ask for, without the constants that launches work out once the others are known.

    Args:
        lacking: By name, with what stands for each; None: a number.
        constants: Those among them that a launch may work out.
        made: The launches with such values, as far as they pass these constants.
    """
    to_give = dict(lacking)
    for name in sorted(to_give.keys() & set(constants)):
        others = {other: UNKNOWN_SIZE if value is None else value for other, value in to_give.items() if other != name}
        with contextlib.suppress(AdvisorError):
            launches = made(others)
            if all(launch.origins.get(name) == "literal" for launch in launches if name in launch.source.kernel(launch.kernel).names):
                del to_give[name]
    return to_give


def _typed(source: SourceFile, function: JitFunction, constants: Mapping[str, Any]) -> dict[str, Any]:
    """Constants that are given, with types of triton's for names of types (`bf16`), where the kernel takes a type and no text."""
    usage = usage_of(source, function) if any(isinstance(value, str) for value in constants.values()) else {}
    return {
        name: (element_type(value) if isinstance(value, str) and not usage[name].takes_text else None) or value
        for name, value in constants.items()
    }


def check_names(kernel: str, names: Collection[str], given: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Check that all that is given, by what it is, belongs to arguments of a kernel.

    Raises:
        UsageError: There is no such argument.
    """
    for what, values in given.items():
        for name in values or {}:
            if name not in names:
                raise UsageError(f"{kernel} has no argument of that name (for a {what})", name, "one of " + ", ".join(sorted(names)))


def _defaults(function: JitFunction) -> dict[str, Any]:
    """What a kernel's file says of its arguments: a grid of guessed sizes would be a guess of the work itself."""
    tuned = function.autotune.configs[0].parameters if function.autotune is not None and function.autotune.configs else {}
    return {**{p.name: p.default for p in function.parameters if p.default is not MISSING}, **tuned}


def _with_grid_note(launch: KernelLaunch, known: Mapping[str, Any], num_sms: int | None, size: int) -> KernelLaunch:
    """The launch with what to give so that its grid follows from one in the file, where there is one."""
    source, function = launch.source, launch.source.kernel(launch.kernel)
    guess = next(guesses(source, function, launch.given))
    known_values = {**launch.given.scalars, **launch.given.constexprs}
    unknown = [
        p.name
        for p in function.parameters
        if guess.signature.get(p.name) in ("i32", "i64", "constexpr")
        and p.name not in known_values
        and (not p.is_constexpr or type(guess.constexprs.get(p.name)) is int)
    ]
    needed = needed_for_grid(source, launch.kernel, known, unknown, _defaults(function), OPTION_NAMES, num_sms, size)
    if needed is None or not needed[1]:
        written = grid_as_written(source, launch.kernel)
        note = f"The launch in line {written[0]} has the grid {written[1]}, which does not follow from arguments." if written else None
        return replace(launch, notes=(*launch.notes, note)) if note else launch
    options = tuple(f"--{'constexpr' if name in function.constants else 'arg'} {name}=…" for name in needed[1])
    note = f"The grid follows from the launch in line {needed[0]} once its sizes are given: {' '.join(options)}."
    return replace(launch, notes=(*launch.notes, note), asks=dict(zip(needed[1], options, strict=True)))


def _as_launched(launch: KernelLaunch, in_file: FoundLaunch) -> KernelLaunch:
    """A launch with what the file's launch of its kernel passes, where nothing else is given."""
    given, function = launch.given, launch.source.kernel(launch.kernel)
    options = {n: v for n, v in in_file.options.items() if n not in function.heuristics}  # they have the last word
    usage = usage_of(launch.source, function)  # a number that is given for a tensor is how many elements it has: `offsets.numel()`
    numbers = {n: v for n, v in in_file.numbers.items() if n not in given.types and (v is None or not usage[n].pointer)}
    constants = function.constants
    not_specialized = constants | function.unaligned  # of which the compiler is not told that they are multiples
    strides = {n: v for n, v in in_file.strides.items() if n not in given.types and not (v is None and n in not_specialized)}
    known = {n: v for n, v in strides.items() if v is not None}
    from_launch = _that_can_be(launch, in_file.constexprs)
    passed = {**from_launch, **{k: v for k, v in options.items() if k not in given.options}, **numbers}
    types = {n: f"*{kind}" for n, t in in_file.types.items() if (kind := known_type(t)) is not None}
    types = {n: t for n, t in types.items() if n not in given.types and n not in {*constants, *given.scalars}}
    if given.element_given:  # another call may pass another type
        types = {n: t for n, t in types.items() if n not in in_file.by_default or not t.startswith(("*fp", "*bf"))}
    texts = [*(f"{k}={symbol_text(v)}" for k, v in passed.items()), *(f"{k}: {t}" for k, t in types.items())]
    if in_file.grid is not None:
        assumed = [f"the grid of the launch in line {in_file.line}, {in_file.text}" + (" with " + " ".join(texts) if texts else "")]
    else:
        assumed = [f"{' '.join(texts)}, as in the launch in line {in_file.line}"] if texts else []
    presumed = {n: v for n, v in in_file.presumed.items() if n not in function.heuristics}
    if presumed:
        flags = " ".join(f"{name}={value}" for name, value in presumed.items())
        assumed.append(f"{flags}, taking for given what the function around the launch in line {in_file.line} requires")
    if strides:
        assumed.append(launched(in_file.line, strides))
    elements = dict.fromkeys(in_file.of_elements - given.constexprs.keys(), element_type(given.element))
    if elements:
        assumed.append(f"{', '.join(sorted(elements))}: the type of elements, which the launch in line {in_file.line} asks a tensor for")
    filled = replace(
        given,
        types={**types, **given.types},
        constexprs={**elements, **from_launch, **presumed, **{n: known[n] for n in constants if n in known}, **given.constexprs},
        options={**options, **given.options},
        scalars={**numbers, **{n: v for n, v in known.items() if n not in constants}, **given.scalars},
        multiples=frozenset(strides) - frozenset(known),
        passed=in_file.passed,
        likely=in_file.likely,
        switched=in_file.switched,
        by_default=in_file.by_default,
    )
    names = {*filled.types, *filled.constexprs, *filled.options, *filled.scalars}
    origins: dict[str, Origin] = {
        **dict.fromkeys(names, "literal"),
        **dict.fromkeys([*elements, *strides, *presumed, *in_file.by_default], "typical"),
        **dict.fromkeys(in_file.switched & names, "guessed"),
    }
    return replace(launch, given=filled, assumed=(*launch.assumed, *assumed), origins={**origins, **launch.origins})


def _passed_unknown(launch: KernelLaunch, elsewhere: LaunchCalls) -> tuple[list[str], dict[str, Origin]]:
    """What the file's launches pass of which nothing is known: what is assumed of options, in words, and the origin of these and of
    constants with a default, which is then a guess."""
    function, given = launch.source.kernel(launch.kernel), launch.given
    configurations = function.autotune.configs if function.autotune is not None else ()
    tuned = {name for config in configurations for name in (*config.parameters, "num_warps", "num_stages")}
    known = {*given.constexprs, *given.scalars, *given.options, *tuned, *function.heuristics}
    passed = passed_by_launches(launch.source, launch.kernel, elsewhere)
    lines = {name: " or ".join(map(str, passed[name])) for name in OPTION_NAMES if name in passed.keys() - known}
    defaults = {parameter.name for parameter in function.parameters if parameter.is_constexpr and parameter.default is not MISSING}
    names = (passed.keys() & defaults) - known | (lines.keys() if function.autotune is None else set())
    return [unknown_option(name, f"a launch (line {line})") for name, line in lines.items()], dict.fromkeys(names, "guessed")


def _that_can_be(launch: KernelLaunch, constants: Mapping[str, Any]) -> dict[str, Any]:
    """Constants of a launch, without None where the kernel needs a number: another call than the one of all defaults is meant.

    `W = weight.shape[1] if weight is not None else None` is None by the default of `weight`, though every call gives weights.
    """
    if None not in constants.values():
        return dict(constants)
    usage = usage_of(launch.source, launch.source.kernel(launch.kernel))
    return {name: value for name, value in constants.items() if value is not None or not usage[name].never_none}


def grid_of(text: str, names: Mapping[str, Any], source: SourceFile) -> tuple[int, ...]:
    """A grid from `1024`, `64,8`, `(64, 8)` or an expression over arguments: `cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)`, or a lambda.

    Raises:
        UsageError: It is none.
    """
    try:
        value = source.evaluator(names).evaluate_text(text)
    except (SyntaxError, ValueError) as error:
        raise UsageError("not a grid", text, "up to three sizes, as in 1024 or cdiv(M, BLOCK_M),8", str(error)) from None
    except NotLiteralError as error:
        known = f" over {', '.join(sorted(names))}" if names else ""
        raise UsageError(
            f"the grid cannot be worked out: {error}",
            text,
            f"numbers, or an expression{known}, as in cdiv(M, BLOCK_M)",
            "give the value of a size that lacks one (--arg NAME=VALUE)",
        ) from None
    return checked_grid(value, text)


def checked_grid(value: Any, shown: Any) -> tuple[int, ...]:
    """A grid from one size or a sequence of them.

    Raises:
        UsageError: It is none.
    """
    sizes = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    good = 1 <= len(sizes) <= 3 and all(isinstance(n, int) and not isinstance(n, bool) and 0 < n < 2**31 for n in sizes)
    if not good:
        worked_out = sizes[0] if len(sizes) == 1 else sizes
        text = str(shown) if str(shown) == str(worked_out) else f"{shown} = {worked_out}"
        whole = any(isinstance(n, float) and n.is_integer() for n in sizes)
        remedy = "a size with a point or an exponent is a float: n=1000000 in place of n=1e6" if whole else None
        raise UsageError("not a grid", text, "one to three positive sizes below 2**31", remedy)
    return sizes


def types_listed(source: SourceFile, kernel: str, kinds: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Types by argument from the `signature` of a TOML file, by name or in order."""
    types = dict(zip(source.kernel(kernel).names, kinds, strict=False)) if isinstance(kinds, Sequence) else dict(kinds)
    return {n: type_name(str(t)) for n, t in types.items()}


def compile_target(text: str) -> Target:
    """`sm_90`, `90`, `9.0`, `gfx942` or `cuda:90`.

    Raises:
        UsageError: It is none of these.
    """
    cleaned = text.strip().lower()
    if re.fullmatch(r"gfx[0-9a-f]{3,5}", cleaned):
        return Target(backend="hip", arch=cleaned, warp_size=64 if cleaned.startswith("gfx9") else 32)
    matched = re.fullmatch(r"(?:sm_?|cuda:?)?(\d{2,3})[af]?", cleaned) or re.fullmatch(r"(\d{1,2}\.\d)", cleaned)
    if not matched:
        raise UsageError("not a compile target", text, "sm_90, sm_100, gfx942 or the like, or a GPU with --gpu")
    return Target(backend="cuda", arch=int(matched.group(1).replace(".", "")))


def gpu_of(target: Target) -> GpuSpec | None:
    """A GPU that runs code for the target: the largest that `ceilings/` describes, or None."""
    capability = str(target.arch) if target.backend == "hip" else f"{int(target.arch) // 10}.{int(target.arch) % 10}"
    fitting = [gpu for gpu in list_gpus() if gpu.compute_capability == capability]
    return max(fitting, key=lambda gpu: (gpu.dram_bytes_per_s * gpu.num_sms, -len(gpu.name), gpu.name), default=None)


def open_kernel(text: str) -> tuple[SourceFile, str]:
    """The parsed file and the kernel's name of `FILE.py::KERNEL`; a file with one kernel needs no name.

    Of several kernels of one name, KERNEL is `kernel:LINE` (`SourceFile.named`).

    Raises:
        UsageError, InputError: No such file or kernel.
        NothingMatchedError: The file has no kernel at all.
    """
    if "::" not in text and text.endswith(".py"):
        source = read_source(text)
        names = source.launched
        if not names:
            gluon = any("gluon" in f"{item.module}.{item.name}" for items in source.module_names.imports.values() for item in items)
            raise NothingMatchedError(
                f"{text}: no Triton kernel in this file",
                "Gluon, which is not supported" if gluon else None,
                "functions decorated with @triton.jit",
            )
        if len(names) != 1:
            raise UsageError(f"{text} has {len(names)} kernels", None, f"{text}::KERNEL", "name one of " + ", ".join(names))
        return source, names[0]
    path, kernel = split_target(text)
    source = read_source(path)
    if not source.definitions:  # a file of TorchInductor's may hold them as strings
        source = next((part for part in embedded(source) if kernel in part.definitions), source)
    return source.named(kernel)
