"""Launches of kernels whose file describes them (`KERNELS`, triton_kernels/README.md): arguments, configuration and grid from sizes.

The file is parsed, never run: its functions are followed by `advisor.python_source.described`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.compiled.compiler.kernel import OPTION_NAMES
from advisor.compiled.guesses.inference import Given
from advisor.compiled.guesses.parameter_guesses import type_of
from advisor.compiled.launches.launch import KernelLaunch
from advisor.compiled.launches.target import check_names
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import analyse, problem_batch
from advisor.pipelines import batch as routings
from advisor.pipelines.space import combinations
from advisor.python_source.described import call_function, expression, kernel_problem, problem_dtype, product_type
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile
from advisor.result.schema import FAMILIES, Problem
from advisor.system.errors import AdvisorError, UsageError

LARGEST_SPACE = 50_000
"""Combinations of a space that are ranked by the closed form."""
NOMINATED = 8
"""Configurations of a space that are compiled for the tunable ceiling: each best of its tile."""
LARGEST_ROUTING = 10_000_000
"""Token slots of which the alignment by experts is worked out in full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Described:
    """What the user says of a described kernel's launch; what is left out comes from the file.

    Attributes:
        sizes: Of the problem.
        op: Operator; None: the first whose description fits.
        dtype: Type of the problem; None: the first the kernel is made for.
        arguments: Values of arguments, over what the file gives them.
        constexprs: The same for constants; names of the configuration among them.
        options: num_warps, num_stages, ...
        routing: Token slots per expert; None: uniform.
        num_sms: Of the GPU; None: a grid that depends on it is not known.
        compute_capability: Of the GPU, `9.0` or `gfx942`; None: what depends on it is as on another GPU.
    """

    sizes: Mapping[str, int]
    op: str | None = None
    dtype: str | None = None
    arguments: Mapping[str, Any]
    constexprs: Mapping[str, Any]
    options: Mapping[str, Any]
    routing: Sequence[int] | None = None
    num_sms: int | None = None
    compute_capability: str | None = None


def description(source: SourceFile, kernel: str) -> Mapping[str, Any] | None:
    """The kernel's entry, where it says enough to make launches from sizes."""
    entry = source.kernels_literal.get(kernel)
    if not isinstance(entry, dict) or not isinstance(entry.get("ops"), dict) or entry.get("family") not in FAMILIES:
        return None
    return entry if entry["ops"] and source.plain_functions.get(str(entry.get("arguments"))) else None


def operators(source: SourceFile, kernel: str) -> tuple[str, ...]:
    """Operators of a described kernel; none where it is not described."""
    entry = description(source, kernel)
    return tuple(map(str, entry["ops"])) if entry else ()


def launch_from_description(source: SourceFile, kernel: str, wanted: Described) -> KernelLaunch:
    """The launch for a problem.

    Raises:
        UsageError: An unknown size, operator or constant, or the file's description cannot be followed.
    """
    entry = description(source, kernel)
    if entry is None:
        raise UsageError(f"{source.path.name} does not describe {kernel}", None, "a KERNELS literal", "see triton_kernels/README.md")
    op = wanted.op or next(iter(entry["ops"]))
    if op not in entry["ops"]:
        raise UsageError(f"{kernel} has no such operator", op, "one of " + ", ".join(entry["ops"]))
    try:
        return _launch(source, kernel, entry, op, wanted)
    except NotLiteralError as error:
        raise UsageError(
            f"what {source.path.name} says of {kernel} cannot be followed",
            str(error),
            None,
            "give --signature, --constexpr, --arg and --grid",
        ) from None


def _launch(source: SourceFile, kernel: str, entry: Mapping[str, Any], op: str, description: Described) -> KernelLaunch:
    names = source.kernel(kernel).names
    check_names(kernel, names, {"constant": description.constexprs, "value": description.arguments})
    sizes, assumed = _sizes(source, kernel, entry, op, description)
    dtype = problem_dtype(entry, kernel, description.dtype)
    problem = kernel_problem(_problem(entry, op, sizes, dtype, description.routing), description.compute_capability)
    space = entry.get("space") or {}
    chosen = {k: v for k, v in {**description.constexprs, **description.options}.items() if k in space}
    configuration = {**chosen}
    if set(space) - set(chosen):
        untuned, whence = _untuned(source, kernel, entry, problem, chosen)
        configuration = {**untuned, **chosen}
        rest = {k: v for k, v in configuration.items() if k not in chosen}
        assumed.append(f"{whence}: " + " ".join(f"{k}={v}" for k, v in rest.items()))
    arguments = {
        **_plain_dict(call_function(source, entry.get("arguments"), dict(problem), dict(configuration))),
        **description.arguments,
        **{k: v for k, v in description.constexprs.items() if k not in space},
    }
    values = {**sizes, **configuration, **{k: v for k, v in arguments.items() if isinstance(v, (int, float, bool))}}
    if description.num_sms is not None:
        values["NUM_SMS"] = description.num_sms
    contents: dict[str, Any] = {}
    if isinstance(entry.get("routing"), dict):
        contents = aligned_routing(entry["routing"], problem, configuration, arguments, description.routing)
        if description.routing is None:
            assumed.append("balanced routing of tokens to experts")
    launch = described_launch(
        source,
        kernel,
        arguments,
        {**configuration, **description.options},
        _grid(source, entry, values),
        contents=contents,
        shapes={str(k): _whole(source, str(v), values) for k, v in (entry.get("shapes") or {}).items()},
    )
    of = _problem(entry, op, sizes, product_type(entry, dtype, arguments), description.routing)
    return replace(launch, assumed=tuple(assumed), tunable=frozenset(map(str, space)), problem=of)


def described_launch(
    source: SourceFile,
    kernel: str,
    arguments: Mapping[str, Any],
    configuration: Mapping[str, Any],
    grid: Sequence[int] | None = None,
    contents: Mapping[str, Any] | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
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
        one = type(value) is int and value == 1 and parameter.name not in function.unfolded
        if parameter.is_constexpr or value is None or one:
            types[parameter.name], constants[parameter.name] = "constexpr", value
        elif isinstance(value, str):
            types[parameter.name] = value
        else:
            types[parameter.name], scalars[parameter.name] = type_of(value), value
    return KernelLaunch(
        source=source,
        kernel=kernel,
        grid=tuple(grid) if grid is not None else None,
        contents=dict(contents or {}),
        shapes=dict(shapes or {}),
        given=Given(types=types, constexprs=constants, options=options, scalars=scalars),
    )


def _untuned(
    source: SourceFile, kernel: str, entry: Mapping[str, Any], problem: Mapping[str, Any], chosen: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """A configuration to inspect where nobody chose one, and whence it is: the file's default, or else the first valid of its space."""
    if entry.get("default") is not None:
        untuned = _plain_dict(call_function(source, entry["default"], dict(problem)))
        lists = {str(name): values for name, values in entry["space"].items() if isinstance(values, (list, tuple))}
        beyond = [f"{name}={untuned[name]}" for name, values in lists.items() if name in untuned and untuned[name] not in values]
        outside = f" (it is outside the file's space, by {', '.join(beyond)}, and counts as one of it)" if beyond else ""
        return untuned, f"the configuration that the file gives untuned{outside}"
    space = {str(k): [chosen[k]] if k in chosen else list(values) for k, values in entry["space"].items()}
    for row in itertools.islice(itertools.product(*space.values()), LARGEST_SPACE):
        configuration = dict(zip(space, row, strict=True))
        if entry.get("valid") is None or call_function(source, entry["valid"], dict(configuration), dict(problem)):
            return configuration, "the first valid configuration of the space, as KERNELS names no `default`"
    raise UsageError(
        f"KERNELS[{kernel!r}] names no `default`, and no configuration of its space is valid",
        None,
        "a function problem -> configuration as `default`",
        "add one, or give every --constexpr of the space",
    )


def nominated(source: SourceFile, kernel: str, wanted: Described, gpu: GpuSpec) -> list[dict[str, Any]]:
    """The configurations of the file's own space that the closed form of the kernel's family ranks first, each with another tile.

    None where the family's model cannot read the space: then nothing is known of what tuning could win.
    """
    entry = description(source, kernel)
    if entry is None or not isinstance(entry.get("space"), dict):
        return []
    space = {str(name): list(values) for name, values in entry["space"].items()}
    if not space or math.prod(len(values) for values in space.values()) > LARGEST_SPACE:
        return []
    op = wanted.op or next(iter(entry["ops"]))
    sizes, _ = _sizes(source, kernel, entry, op, wanted)
    problem = _problem(entry, op, sizes, problem_dtype(entry, kernel, wanted.dtype), wanted.routing)
    problem_values = kernel_problem(problem, gpu.compute_capability)
    rows = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    numbers = {name: tuple(float(v) for v in values) for name, values in space.items() if all(isinstance(v, (int, bool)) for v in values)}
    if len(numbers) != len(space):
        return []
    try:
        batch = combinations(numbers)  # type: ignore[arg-type]
        launch = problem_batch([problem])
        latency = np.broadcast_to(analyse(launch, batch, gpu).latency_us, (len(rows),))
    except (AdvisorError, KeyError):
        return []
    nominated_launches: dict[tuple[Any, ...], dict[str, Any]] = {}
    for i in np.argsort(latency, kind="stable"):
        tile = tuple(v for name, v in rows[i].items() if name not in ("GROUP_SIZE_M", "num_stages"))
        if len(nominated_launches) == NOMINATED or not np.isfinite(latency[i]):
            break
        if tile not in nominated_launches and _is_valid(source, entry, rows[i], problem_values):
            nominated_launches[tile] = rows[i]
    return list(nominated_launches.values())


def _is_valid(source: SourceFile, entry: Mapping[str, Any], configuration: dict[str, Any], problem: dict[str, Any]) -> bool:
    """Whether the file's `valid` takes a configuration; one that cannot be followed is left to the compiler."""
    try:
        return bool(call_function(source, entry.get("valid"), dict(configuration), dict(problem)))
    except NotLiteralError:
        return True


def _sizes(source: SourceFile, kernel: str, entry: Mapping[str, Any], op: str, description: Described) -> tuple[dict[str, int], list[str]]:
    """The problem's sizes: those given, those that arguments given by name stand for, and else those of the example."""
    example = {str(k): int(v) for k, v in (entry.get("example") or {}).items()}
    if unknown := [name for name in description.sizes if name not in example]:
        raise UsageError(f"{kernel} has no such size", ", ".join(unknown), "among " + ", ".join(example))
    all_sizes = dict(description.sizes)
    known = {**description.arguments, **description.constexprs}
    for size, text in (entry["ops"][op].get("sizes") or {}).items():
        try:
            value = expression(source, str(text), known)
        except NotLiteralError:
            continue  # it needs arguments that were not given, or the shape of a tensor
        if size not in all_sizes and isinstance(value, int):
            all_sizes[size] = int(value)
    rest = {k: v for k, v in example.items() if k not in all_sizes}
    assumed = ["sizes " + " ".join(f"{k}={v}" for k, v in rest.items()) + ", the file's example"] if rest else []
    sizes = {k: int(all_sizes.get(k, v)) for k, v in example.items()}
    if any(v < (0 if k == "causal" else 1) for k, v in sizes.items()):
        raise UsageError(f"sizes of {kernel} must be positive", " ".join(f"{k}={v}" for k, v in sizes.items()))
    return sizes, assumed


def _plain_dict(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(name, str) for name in value):
        raise NotLiteralError("a function of the description returns no dictionary")
    return value


def _grid(source: SourceFile, entry: Mapping[str, Any], values: Mapping[str, Any]) -> tuple[int, ...] | None:
    """None: the description has none, or it depends on a GPU that is not named."""
    text = entry.get("grid")
    if not isinstance(text, str) or ("NUM_SMS" in text and "NUM_SMS" not in values):
        return None
    return _whole(source, text, values)


def _whole(source: SourceFile, text: str, values: Mapping[str, Any]) -> tuple[int, ...]:
    value = expression(source, f"({text},)", values)
    if not 1 <= len(value) <= 5 or not all(isinstance(n, int) and not isinstance(n, bool) and 0 < n < 2**62 for n in value):
        raise NotLiteralError(f"{text!r} gives {value!r}, not positive sizes")
    return tuple(value)


def _problem(entry: Mapping[str, Any], op: str, sizes: Mapping[str, int], dtype: str, routing: Sequence[int] | None) -> Problem:
    return Problem(family=entry["family"], op=op, sizes=dict(sizes), dtype=dtype, routing=tuple(routing) if routing else None)


def aligned_routing(
    names: Mapping[str, Any],
    problem: Mapping[str, Any],
    configuration: Mapping[str, Any],
    arguments: Mapping[str, Any],
    routing: Sequence[int] | None,
) -> dict[str, Any]:
    """What `moe_align_block_size` makes of a routing: slots by expert, padded to blocks with the number of slots, and their owners."""
    slots, block = int(problem["M"]) * int(problem["topk"]), int(configuration["BLOCK_SIZE_M"])
    length = int(arguments.get("EM") or 0)
    if max(slots, length) > LARGEST_ROUTING:
        return {}
    loads = np.fromiter(_loads(int(problem["E"]), slots, routing), np.int64)
    padded = -(-loads // block) * block
    ends = np.cumsum(padded)
    used = int(ends[-1]) if ends.size else 0
    length = max(length, used)
    sorted_slots = np.full(length, slots, np.int64)
    first = np.concatenate([[0], np.cumsum(loads)[:-1]]).astype(np.int64)
    where = np.repeat(ends - padded, loads) + (np.arange(int(loads.sum())) - np.repeat(first, loads))
    # Consecutive slots belong to one token's experts: slot numbers are dealt round to the experts, as tokens choose them.
    order = np.argsort(np.concatenate([np.arange(n) * max(len(loads), 1) + e for e, n in enumerate(loads)]) if slots else [], kind="stable")
    numbers = np.empty(slots, np.int64)
    numbers[order] = np.arange(slots)
    sorted_slots[where] = numbers
    owners = np.repeat(np.arange(len(loads)), padded // block)
    owners = np.concatenate([owners, np.full(max(length // block - len(owners), 0), max(len(loads) - 1, 0))])
    return {str(names["slots"]): sorted_slots, str(names["experts"]): owners, str(names["length"]): used}


def _loads(experts: int, slots: int, routing: Sequence[int] | None) -> Iterator[int]:
    """Token slots of each expert: a histogram scaled to the launch, or all alike."""
    if routing is None:
        low, more = divmod(slots, experts)
        yield from (low + (e < more) for e in range(experts))
        return
    rows, counts = routings.histogram(routing, slots)
    given = [int(r) for r, n in zip(rows, counts, strict=True) for _ in range(int(n))]
    yield from given + [0] * (experts - len(given))
