"""`FILE.py::KERNEL` with signature, constants, arguments and grid, from the command line or a small TOML file."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.compiled.inductor import embedded, with_generated
from advisor.compiled.inference import Given, guesses, unknown_option
from advisor.compiled.kernel import OPTION_NAMES, Target
from advisor.compiled.launch import KernelLaunch
from advisor.compiled.strides import launched
from advisor.compiled.usage import Reader
from advisor.configs.jit_function import MISSING, JitFunction
from advisor.configs.launch_site import FoundLaunch
from advisor.configs.launch_sites import grid_from_launches, needed_for_grid, only_launch, options_passed
from advisor.configs.literal_values import Symbol
from advisor.configs.literals import Evaluator, NotLiteralError
from advisor.configs.source import SourceFile, read_source
from advisor.errors import InputError, NothingMatchedError, UsageError
from advisor.hardware import GpuSpec, list_gpus
from advisor.reading import read_text

MAX_TOML_BYTES = 4_000_000
_TYPE = re.compile(r"\*?(i1|[iu](8|16|32|64)|fp(16|32|64)|bf16|fp8e4nv|fp8e5|fp8e4b15|fp8e4b8|fp8e5b16|constexpr)|tensordesc<.+>")
_NEXT_ASSIGNMENT = re.compile(r",(?=\s*[^\W\d]\w*\s*=(?!=))")
"""The comma before the next NAME=; others are of a value, such as (1, 2)."""
TYPE_NAMES = {
    "f16": "fp16", "float16": "fp16", "half": "fp16", "f32": "fp32", "float32": "fp32", "float": "fp32", "float64": "fp64",
    "f64": "fp64", "bfloat16": "bf16", "int32": "i32", "int64": "i64", "int8": "i8", "int16": "i16", "uint8": "u8", "bool": "i1",
    "fp8": "fp8e4nv", "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "int": "i32", "uint32": "u32", "uint64": "u64",
    "int1": "i1", "u1": "i1",
}  # fmt: skip
TOML_KEYS = (
    "signature", "constexprs", "arguments", "contents", "sizes", "shapes", "grid", "divisible", "problem", "dtype", "configs", *OPTION_NAMES
)  # fmt: skip


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


def type_name(text: str) -> str:
    """A Triton type from what people write: `*fp16`, `ptr:float16`, `int32`.

    Raises:
        UsageError: It is none.
    """
    text = text.strip().strip("'\"")
    text = re.sub(r":\d+$", "", text)
    pointer = text.startswith("*")
    name = text.lstrip("*").removeprefix("torch.").removeprefix("tl.")
    name = ("*" if pointer else "") + TYPE_NAMES.get(name, name)
    if not _TYPE.fullmatch(name):
        raise UsageError("not a type of Triton", text, "such as *fp16, *bf16, i32, i64, fp32, constexpr")
    return name


def literal(text: str) -> Any:
    """A value from the command line: a number, true/false, none, a type (`tl.float32`), or else the text."""
    import ast

    lowered = text.strip().lower()
    if lowered in ("true", "false", "none"):
        return {"true": True, "false": False, "none": None}[lowered]
    try:
        return Evaluator({}, frozenset({"tl", "triton"})).evaluate(ast.parse(text.strip(), mode="eval").body)
    except (NotLiteralError, SyntaxError, ValueError, RecursionError, MemoryError):
        return text


def assignments(items: Sequence[str], option: str) -> dict[str, Any]:
    """`NAME=VALUE` options, each also as a comma-separated list.

    Raises:
        UsageError: One has no `=`.
    """
    found: dict[str, Any] = {}
    for item in (part for each in items for part in _NEXT_ASSIGNMENT.split(each)):
        name, separator, value = item.partition("=")
        if not separator or not name.strip().isidentifier():
            raise UsageError(f"{option} takes NAME=VALUE", item)
        found[name.strip()] = literal(value)
    return found


def numbers(items: Sequence[str], option: str) -> dict[str, Any]:
    """`NAME=NUMBER` options; also `true`, `none`, `inf` and `nan`.

    Raises:
        UsageError: One has no `=`, or no number behind it.
    """
    found = assignments(items, option)
    for name, value in found.items():
        with contextlib.suppress(ValueError):
            found[name] = float(value) if isinstance(value, str) else value
        if found[name] is not None and not isinstance(found[name], (bool, int, float)):
            raise UsageError(f"{option} takes NAME=NUMBER", f"{name}={value}", None, "a tl.constexpr is given with --constexpr")
    return found


def signature(text: str, source: SourceFile, kernel: str) -> dict[str, str]:
    """Types by argument from `*fp16,*fp16,i32` (in order) or `x_ptr=*fp16,n=i32`.

    Raises:
        UsageError: Too many types, an unknown argument, or an unknown type.
    """
    names = [p.name for p in source.kernel(kernel).parameters]
    parts = [p.strip() for p in re.split(r",(?![^<\[]*[>\]])", text) if p.strip()]
    if any("=" in p for p in parts):
        found = {}
        for part in parts:
            name, _, kind = part.partition("=")
            if name.strip() not in names:
                raise UsageError(f"{kernel} has no argument of that name", name.strip(), "one of " + ", ".join(names))
            found[name.strip()] = type_name(kind)
        return found
    if len(parts) > len(names):
        raise UsageError(f"{kernel} has fewer arguments than the signature has types", len(parts), f"at most {len(names)}")
    return {name: type_name(kind) for name, kind in zip(names, parts, strict=False)}


def read_toml(path: str | Path) -> dict[str, Any]:
    """A launch description.

    Raises:
        InputError: It cannot be read, or has an unknown key.
    """
    try:
        import tomllib as toml
    except ModuleNotFoundError:  # Python 3.10
        import tomli as toml  # type: ignore[no-redef]
    try:
        data = toml.loads(read_text(path, str(path), "a TOML file", MAX_TOML_BYTES, encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read", str(error), "a TOML file") from None
    for key in data:
        if key not in TOML_KEYS:
            raise InputError(f"{path}: unknown key", key, "one of " + ", ".join(TOML_KEYS))
    return data


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
) -> KernelLaunch:
    """A launch from its parts; names are checked. What is not given is taken from where the file launches the kernel, and said.

    Raises:
        UsageError: The kernel has no argument of a name that is given, or the grid is none.
    """
    function = source.kernel(kernel)
    given = {"constant": constexprs, "value": arguments, "type": types, "content": contents, "size": sizes, "shape": shapes}
    _check_names(kernel, {p.name for p in function.parameters}, given)
    scalars = dict(arguments or {})
    constants = dict(constexprs or {})
    launch = KernelLaunch(
        source=source, kernel=kernel, contents=dict(contents or {}), sizes={k: int(v) for k, v in (sizes or {}).items()},
        shapes={k: tuple(int(n) for n in v) for k, v in (shapes or {}).items()},
        divisible=frozenset(divisible) if divisible is not None else None,
        given=Given(types=dict(types or {}), constexprs=constants, options=dict(options or {}), scalars=scalars,
                    element=element or "fp16", element_given=element is not None),
    )  # fmt: skip
    known = {**scalars, **constants}
    size = _size_of(launch.given.element)
    found = None if grid is not None else grid_from_launches(source, kernel, known, _defaults(function), OPTION_NAMES, num_sms, size)
    found = found or only_launch(source, kernel, known, OPTION_NAMES, num_sms, size)
    if found is not None:
        launch = _as_launched(launch, found)
    launch = with_generated(replace(launch, assumed=(*launch.assumed, *_unknown_options(launch))))
    if grid is None:
        launch = replace(launch, grid=found.grid or launch.grid) if found is not None else launch
        return launch if launch.grid is not None else _with_grid_note(launch, known, num_sms, size)
    if isinstance(grid, str):
        known = {**next(guesses(source, function, launch.given)).constexprs, **launch.given.scalars, **known}
        return replace(launch, grid=grid_of(grid, known, source))
    return replace(launch, grid=checked_grid(grid, grid))


def _check_names(kernel: str, names: Collection[str], given: Mapping[str, Mapping[str, Any] | None]) -> None:
    """Check that all that is given, by what it is, belongs to arguments of a kernel.

    Raises:
        UsageError: There is no such argument.
    """
    for what, values in given.items():
        for name in values or {}:
            if name not in names:
                raise UsageError(f"{kernel} has no argument of that name (for a {what})", name, "one of " + ", ".join(sorted(names)))


def _size_of(element: str) -> int:
    """Bytes of an element, by its name: fp16, fp8e4nv."""
    bits = re.search(r"\d+", element)
    return max(int(bits.group()) // 8, 1) if bits else 1


def _defaults(function: JitFunction) -> dict[str, Any]:
    """What a kernel's file says of its arguments: a grid of guessed sizes would be a guess of the work itself."""
    tuned = function.autotune.configs[0].parameters if function.autotune is not None and function.autotune.configs else {}
    return {**{p.name: p.default for p in function.parameters if p.default is not MISSING}, **tuned}


def _with_grid_note(launch: KernelLaunch, known: Mapping[str, Any], num_sms: int | None, size: int) -> KernelLaunch:
    """The launch with what to give so that its grid follows from one in the file, where there is one."""
    source, function = launch.source, launch.source.kernel(launch.kernel)
    guess = next(guesses(source, function, launch.given))
    told = {**launch.given.scalars, **launch.given.constexprs}
    unknown = [p.name for p in function.parameters if guess.signature.get(p.name) in ("i32", "i64", "constexpr") and p.name not in told
               and (not p.is_constexpr or type(guess.constexprs.get(p.name)) is int)]  # fmt: skip
    needed = needed_for_grid(source, launch.kernel, known, unknown, _defaults(function), OPTION_NAMES, num_sms, size)
    if needed is None or not needed[1]:
        return launch
    constants = {p.name for p in function.parameters if p.is_constexpr}
    options = tuple(f"--{'constexpr' if name in constants else 'arg'} {name}=…" for name in needed[1])
    note = f"The grid follows from the launch in line {needed[0]} once its sizes are given: {' '.join(options)}."
    return replace(launch, notes=(*launch.notes, note), asks=options)


def _as_launched(launch: KernelLaunch, found: FoundLaunch) -> KernelLaunch:
    """A launch with what the file's launch of its kernel passes, where nothing else is given."""
    given, function = launch.given, launch.source.kernel(launch.kernel)
    options = {n: v for n, v in found.options.items() if n not in function.heuristics}  # they have the last word
    numbers = {n: v for n, v in found.numbers.items() if n not in given.types}
    constants = {p.name for p in function.parameters if p.is_constexpr}
    untold = constants | function.unaligned  # of which the compiler is not told that they are multiples
    strides = {n: v for n, v in found.strides.items() if n not in given.types and not (v is None and n in untold)}
    known = {n: v for n, v in strides.items() if v is not None}
    from_launch = _that_can_be(launch, found.constexprs)
    passed = {**from_launch, **{k: v for k, v in options.items() if k not in given.options}, **numbers}
    types = {n: f"*{type_name(t)}" for n, t in found.types.items() if _TYPE.fullmatch(TYPE_NAMES.get(t, t))}
    types = {n: t for n, t in types.items() if n not in given.types and n not in {*constants, *given.scalars}}
    texts = [*(f"{k}={symbol_text(v)}" for k, v in passed.items()), *(f"{k}: {t}" for k, t in types.items())]
    if found.grid is not None:
        assumed = [f"the grid of the launch in line {found.line}, {found.text}" + (" with " + " ".join(texts) if texts else "")]
    else:
        assumed = [f"{' '.join(texts)}, as in the launch in line {found.line}"] if texts else []
    presumed = {n: v for n, v in found.presumed.items() if n not in function.heuristics}
    if presumed:
        flags = " ".join(f"{name}={value}" for name, value in presumed.items())
        assumed.append(f"{flags}, taking for given what the function around the launch in line {found.line} requires")
    if described := {n: [*block] for n, block in found.blocks.items() if n not in given.types}:
        blocks = " ".join(f"{name}={block}" for name, block in described.items())
        assumed.append(f"the blocks {blocks} of descriptors, and their shapes, as made for the launch in line {found.line}")
    if strides:
        assumed.append(launched(found.line, strides))
    filled = replace(
        given, types={**types, **given.types},
        constexprs={**from_launch, **presumed, **{n: known[n] for n in constants if n in known}, **given.constexprs},
        options={**options, **given.options},
        scalars={**numbers, **{n: v for n, v in known.items() if n not in constants}, **given.scalars},
        multiples=frozenset(strides) - frozenset(known), passed=found.passed, blocks=found.blocks,
    )  # fmt: skip
    shapes = {**found.shapes, **launch.shapes}
    return replace(launch, given=filled, shapes=shapes, assumed=(*launch.assumed, *assumed))


def _that_can_be(launch: KernelLaunch, constants: Mapping[str, Any]) -> dict[str, Any]:
    """Constants of a launch, without None where the kernel needs a number: another call than the one of all defaults is meant.

    `W = weight.shape[1] if weight is not None else None` is None by the default of `weight`, though every call gives weights.
    """
    if None not in constants.values():
        return dict(constants)
    usage = Reader(launch.source).usage(launch.source.kernel(launch.kernel))
    return {name: value for name, value in constants.items() if value is not None or not usage[name].never_none}


def _unknown_options(launch: KernelLaunch) -> list[str]:
    """What is assumed of options that the file's launches pass, where their values are not known."""
    function = launch.source.kernel(launch.kernel)
    known = {*launch.given.options, *function.heuristics}
    if function.autotune is not None and function.autotune.configs:
        known |= {"num_warps", "num_stages"}
    passed = options_passed(launch.source, launch.kernel, OPTION_NAMES)
    return [
        unknown_option(name, f"a launch (line {' or '.join(map(str, lines))})") for name, lines in passed.items() if name not in known
    ]


def grid_of(text: str, names: Mapping[str, Any], source: SourceFile) -> tuple[int, ...]:
    """A grid from `1024`, `64,8` or an expression over arguments: `cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N)`.

    Raises:
        UsageError: It is none.
    """
    import ast

    try:
        tree = ast.parse(f"({text},)", mode="eval").body
        value = source.evaluator(names).evaluate(tree)
    except (SyntaxError, ValueError) as error:
        raise UsageError("not a grid", text, "up to three sizes, as in 1024 or cdiv(M, BLOCK_M),8", str(error)) from None
    except NotLiteralError as error:
        raise UsageError("the grid cannot be worked out", text, None, str(error)) from None
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
        told = str(shown) if str(shown) == str(worked_out) else f"{shown} = {worked_out}"
        raise UsageError("not a grid", told, "one to three positive sizes below 2**31")
    return sizes


def launch_from_toml(
    source: SourceFile, kernel: str, data: Mapping[str, Any], launch: Mapping[str, Any], num_sms: int | None = None
) -> KernelLaunch:
    """A launch from a TOML file's content, with what the command line says on top. `num_sms`: of the GPU, where it is known."""
    kinds = data.get("signature", {})
    names = [p.name for p in source.kernel(kernel).parameters]
    types = dict(zip(names, kinds, strict=False)) if isinstance(kinds, list) else dict(kinds)
    types = {n: type_name(str(t)) for n, t in types.items()} | dict(launch.get("types") or {})
    constants = {k: literal(v) if isinstance(v, str) and v.startswith("tl.") else v for k, v in data.get("constexprs", {}).items()}
    return make_launch(
        source, kernel, types=types, constexprs=constants | dict(launch.get("constexprs") or {}),
        arguments={**data.get("arguments", {}), **(launch.get("arguments") or {})},
        options={k: data[k] for k in OPTION_NAMES if k in data} | dict(launch.get("options") or {}),
        grid=launch.get("grid") or data.get("grid"), contents={**data.get("contents", {}), **(launch.get("contents") or {})},
        sizes=data.get("sizes"), shapes=data.get("shapes"), divisible=data.get("divisible"), element=launch.get("element"),
        num_sms=num_sms,
    )  # fmt: skip


def compile_target(text: str) -> Target:
    """`sm_90`, `90`, `9.0`, `gfx942` or `cuda:90`.

    Raises:
        UsageError: It is none of these.
    """
    cleaned = text.strip().lower()
    if re.fullmatch(r"gfx[0-9a-f]{3,5}", cleaned):
        return Target(backend="hip", arch=cleaned, warp_size=64 if cleaned.startswith("gfx9") else 32)
    found = re.fullmatch(r"(?:sm_?|cuda:?)?(\d{2,3})[af]?", cleaned) or re.fullmatch(r"(\d{1,2}\.\d)", cleaned)
    if not found:
        raise UsageError("not a compile target", text, "sm_90, sm_100, gfx942 or the like, or a GPU with --gpu")
    return Target(backend="cuda", arch=int(found.group(1).replace(".", "")))


def gpu_of(target: Target) -> GpuSpec | None:
    """A GPU that runs code for the target: the largest that `ceilings/` describes, or None."""
    capability = str(target.arch) if target.backend == "hip" else f"{int(target.arch) // 10}.{int(target.arch) % 10}"
    fitting = [gpu for gpu in list_gpus() if gpu.compute_capability == capability]
    return max(fitting, key=lambda gpu: (gpu.dram_bytes_per_s * gpu.num_sms, -len(gpu.name), gpu.name), default=None)


def open_kernel(text: str) -> tuple[SourceFile, str]:
    """The parsed file and the kernel's name of `FILE.py::KERNEL`; a file with one kernel needs no name.

    Of several kernels of one name, KERNEL is `outer.kernel` or `kernel:LINE` (`SourceFile.named`).

    Raises:
        UsageError, InputError: No such file or kernel.
        NothingMatchedError: The file has no kernel at all.
    """
    if "::" not in text and text.endswith(".py"):
        source = read_source(text)
        names = [n for n in source.definitions if n not in source.called] or list(source.definitions)
        if not names:
            gluon = any("gluon" in f"{item.module}.{item.name}" for items in source.imports.values() for item in items)
            raise NothingMatchedError(f"{text}: no Triton kernel in this file", "Gluon, which is not supported" if gluon else None,
                                      "functions decorated with @triton.jit")  # fmt: skip
        if len(names) != 1:
            raise UsageError(f"{text} has {len(names)} kernels", None, f"{text}::KERNEL", "name one of " + ", ".join(names))
        return source, names[0]
    path, kernel = split_target(text)
    source = read_source(path)
    if not source.definitions:  # a file of TorchInductor's may hold them as strings
        source = next((part for part in embedded(source) if kernel in part.definitions), source)
    return source.named(kernel)


def symbol_text(value: Any) -> str:
    """A constant as shown to people."""
    return value.text if isinstance(value, Symbol) else str(value) or repr(value)
