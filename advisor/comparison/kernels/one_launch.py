"""The one launch at which two versions of a kernel are judged.

What is known of it on one side counts for both, blocks that the launcher computes are worked out from the problem, and where nothing says
how large that is, a typical large one is taken (`typical_sizes`) and said.
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from advisor.comparison.kernels.beside import is_literal
from advisor.comparison.kernels.changed_launches import changed_launches
from advisor.comparison.kernels.kernel_digest import arguments_renamed
from advisor.comparison.kernels.kernel_rows import DEFAULT_STAGES, sizes_by_argument
from advisor.comparison.kernels.kernel_version import KernelVersion, Launching
from advisor.comparison.kernels.launch_digest import launch_digest
from advisor.comparison.settings import KernelSettings
from advisor.compiled.compiler.kernel import OPTION_NAMES
from advisor.compiled.guesses.assumptions import INTEGERS
from advisor.compiled.guesses.inference import Guess, guesses
from advisor.compiled.guesses.usage import usage_of
from advisor.compiled.guesses.usage_marks import Usage
from advisor.compiled.launches.launch import KernelLaunch, Origin
from advisor.compiled.launches.provenance import GRID, NO_DECISION, origins
from advisor.compiled.launches.target import grid_of, make_launch
from advisor.compiled.launches.written_values import type_name
from advisor.gpus.hardware import GpuSpec
from advisor.python_source.bindings import texts_in
from advisor.python_source.jit_function import MISSING, JitFunction
from advisor.python_source.kernel_forms import asserted
from advisor.python_source.launch_site import LaunchSite
from advisor.python_source.launch_sites import (
    PROBE,
    grid_as_written,
    handed_on,
    is_handed,
    launch_sites,
    names_around_launches,
    passed_by_launches,
    passed_elements,
    plain_values,
    split_grid,
)
from advisor.python_source.stride_use import STRIDE_NAME
from advisor.result.schema import Configuration, Problem
from advisor.rows.launches import RecordedLaunch
from advisor.system.errors import AdvisorError

VOCABULARY = re.compile(r"cross_?entropy|vocab|logits?|logprob|ce_loss", re.IGNORECASE)
"""What a kernel is called whose rows are as long as a vocabulary."""
ROW = re.compile(
    r"(n_?|num_?)?(cols?|columns?)|n|(?-i:V|[HI]_dim)|row_(size|len\w*)|hidden(_(size|dim))?|(model_|d_|input_|feat(ure)?_)?dim|d_model|features?",
    re.IGNORECASE,
)
OF_VOCABULARY = 128_256
"""Tokens of Llama 3 (its model card)."""

OF_ROWS = {"B": 8_192, "H": 4_096}
"""Rows and their length, where a kernel has no other size: beside lengths and heads' dimensions they are batches and heads."""

BLOCK = re.compile(r"x?block(_?size)?(_x)?", re.IGNORECASE)
"""A kernel's one block, and `OF_BLOCK` its elements, as tutorials and libraries launch kernels along one dimension."""
OF_BLOCK = 1_024

OF_TENSOR = 2**24
"""Elements of a large tensor."""

_SIZES = tuple(
    (re.compile(pattern, re.IGNORECASE), size)
    for pattern, size in (
        (r"\w*vocab\w*", OF_VOCABULARY),
        (r"(n_?|num_?|total_?)?(elements?|elems?|numel|size)|numel|xnumel", OF_TENSOR),
        (r"(n_?|num_?|total_?)?(rows?|tokens?)|m|x?_?rows", 8_192),
        (r"(?-i:[BZ])|(n_?|num_?)?batch(es|_size)?|batchsize", 4),
        (r"(?-i:[TSL])|sq|sk|n_ctx\w*|(max_?)?(seq|ctx|context)_?(len)?\w*|\w*seq_?lens?\w*|length", 4_096),
        (r"h_?kv|(n_?|num_?)?(kv_?heads?|heads?_?kv)", 8),
        (r"(?-i:H_?[QVOqvo]?)|(n_?|num_?)?(q_?|query_?)?heads?(_?q)?|heads?_num|nh", 32),
        (r"(?-i:[KVD])|d[kqv]|d_?head|head_?(dim|size)\w*|hd|dim_?[kqv]|d_?state|dstate|(rotary|rope)_?dim", 128),
    )
)


def typical_size(name: str, kernel: str, others: Collection[str]) -> int | None:
    """What a size of a kernel may be; None: the name says nothing of it.

    Args:
        name: Of a parameter.
        kernel: The kernel's name.
        others: Its other parameters: N and K of one kernel, and M, are those of a product, but beside V those of attention.
    """
    if VOCABULARY.search(kernel) and ROW.fullmatch(name) and not any("vocab" in other.lower() for other in others):
        return OF_VOCABULARY  # else the vocabulary has a name of its own
    if name.upper() in ("M", "N", "K") and "V" not in others and {"N", "K"} <= {other.upper() for other in others}:
        return 4_096
    if name in OF_ROWS and others and not any(_size_of_name(other) for other in others if other not in OF_ROWS):
        return OF_ROWS[name]
    return _size_of_name(name) or (4_096 if ROW.fullmatch(name) else None)


def _size_of_name(name: str) -> int | None:
    return next((size for pattern, size in _SIZES if pattern.fullmatch(name)), None)


MOST_ROUNDS = 3
"""Of asking which names of the launcher a grid hangs on: one may follow from others."""
ELEMENT_BYTES = 2
"""Of tensors of which nothing is said."""
LEAST_SIZE, MOST_DOUBLED = 1_024, 6
"""No typical size is made smaller for a launcher that refuses it, and none is doubled more often."""
POINTERS = ("*", "tensordesc")
"""Begin the types of arguments that are tensors."""
WARPS_OF_A_ROW = ((32_768, 32), (8_192, 16), (0, 8))
"""Warps for a block that is at least so long, where a launch passes some and how many is not known (`calculate_settings` of Unsloth and
Liger-Kernel)."""
MULTIPROCESSORS = ("sm_count", "num_sms", "num_sm", "n_sms", "sms", "sm_num")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """One side's launch.

    Attributes:
        launch: What is known of it.
        sizes: The values that nothing says, and that are typical ones.
        grid_names: Arguments and names of the launcher that its grid hangs on, and of which nothing is known.
        grid_text: The grid, as it is written where it does not follow from what is known.
    """

    launch: KernelLaunch
    sizes: Mapping[str, int]
    grid_names: tuple[str, ...] = ()
    grid_text: str = ""


def both_launches(
    versions: Sequence[KernelVersion | None],
    configurations: Sequence[Configuration | None],
    gpu: GpuSpec,
    element: str | None,
    problem: Problem | None,
    settings: KernelSettings,
    recorded: RecordedLaunch | None = None,
    flags: Mapping[str, Any] | None = None,
) -> list[Sized | None]:
    """The launch of either side; None: there is no such side.

    Args:
        versions: Base and head.
        configurations: Of either, where its file lists some.
        gpu: What it runs on.
        element: Triton's name of the type of its tensors, where it is known.
        problem: What is computed, where the kernel's family is known.
        settings: What advisor.toml says of the kernel.
        recorded: A launch of it that was recorded.
        flags: Constants of both that take the place of what is known.

    Raises:
        AdvisorError: What is given does not fit the kernel.
    """
    of_record = _recorded_sizes(recorded) if recorded is not None else {}
    given = {**of_record, **settings.args, **(flags or {})}
    whence: dict[str, Origin] = {
        **dict.fromkeys(of_record, "recorded"),
        **dict.fromkeys(settings.args, "said"),
        **dict.fromkeys((flags or {}).keys() - settings.args.keys(), "guessed"),
    }

    old, new = versions
    relaunched = changed_launches(old, new) if old is not None and new is not None else ()
    retyped = [item for launch in relaunched for item in launch.types]
    for_sides = [settings, settings]
    for item in retyped:
        for_sides = [replace(its, types=item.types_for(side, its.types)) for side, its in enumerate(for_sides)]

    def made() -> list[KernelLaunch | None]:
        return [
            _made(version, configuration, {**given, **sizes_by_argument(version.function, problem, settings)}, whence, its, gpu, element)
            if version
            else None
            for version, configuration, its in zip(versions, configurations, for_sides, strict=True)
        ]

    both = made()
    sizes: dict[str, int] = {}
    for blocks in (False, True):  # those of blocks last: a launcher computes most of them from other sizes
        pointers: set[str] = set()
        fresh: dict[str, int] = {}
        for version, launch in zip(versions, both, strict=True):
            if version is not None and launch is not None:
                signature = next(guesses(launch.source, launch.source.kernel(launch.kernel), launch.given)).signature
                pointers |= {name for name, kind in signature.items() if kind.startswith("*")}
                fresh |= {name: size for name, size in _unknown_sizes(version, launch, blocks) if name not in given}
        if fresh := {name: size for name, size in fresh.items() if name not in pointers}:
            sizes, given = {**sizes, **fresh}, {**given, **fresh}
            whence |= dict.fromkeys(fresh, "typical")
            both = made()
    for _ in range(MOST_ROUNDS):  # names of the launcher that its grid hangs on
        wanted = {name for launch in both if launch is not None and launch.grid is None for name in launch.asks}
        wanted -= {*given, *(parameter.name for version in versions if version is not None for parameter in version.function.parameters)}
        kernel = next(item.function.name for item in versions if item is not None)
        around = {name: size for name in sorted(wanted) if (size := _size_around(name, kernel, gpu)) is not None}
        if not around:
            break
        sizes, given = {**sizes, **around}, {**given, **around}
        whence |= dict.fromkeys(around, "typical")
        both = made()
    unknown = [_unknown_blocks(launch) for launch in both]
    tiles = {name: value for name, value in unknown[-1].items() if name in unknown[0]}
    # A block that launches work out from others (`BLOCK_N=BLOCK_M // 2`) follows from guesses of these: guessed itself, it would be none.
    there = [version for version in versions if version is not None]
    worked_out = {name for name in tiles if all(name in {*following(version, tiles.keys() - {name})} for version in there)}
    if worked_out and (behind := {name: value for name, value in tiles.items() if name not in worked_out}):
        former = given, whence, both
        given, whence = {**given, **behind}, {**whence, **dict.fromkeys(behind, "guessed")}
        both = [launch and replace(launch, origins={**launch.origins, **dict.fromkeys(worked_out, "guessed")}) for launch in made()]
        if any(name in _unknown_blocks(launch) for launch in both for name in worked_out):
            given, whence, both = former
    for side, version in (*enumerate(versions), (0, old)):  # the first once more: what is known of the second by its siblings is its, too
        launch, other = both[side], both[1 - side]
        if version is not None and launch is not None:
            both[side] = _with_siblings(
                version, _shared(version, launch, other, bool(relaunched), {item.name for item in retyped}), given, gpu
            )
    if relaunched and both[0] is not None and both[1] is not None:
        constants = both[1].given.constexprs
        alike = {name: value for name, value in both[0].given.constexprs.items() if name in _in_any_order(versions) and name in constants}
        both[1] = replace(both[1], given=replace(both[1].given, constexprs={**constants, **alike}))
    whole = ",".join(map(str, recorded.grid)) if recorded is not None and recorded.grid else ""
    grid: tuple[str, Origin] = (settings.grid, "said") if settings.grid else (whole, "recorded")
    return [
        _sized(version, launch, sizes, grid, given, gpu) if version and launch else None
        for version, launch in zip(versions, both, strict=True)
    ]


def following(version: KernelVersion, sizes: Set[str]) -> Iterator[str]:
    """The constants that launches of a kernel, or its heuristics, work out from some values."""
    if not sizes:
        return
    yield from (name for name, rule in version.function.heuristics.items() if not sizes.isdisjoint(texts_in(rule)))
    for launching in version.launching:
        digest = launch_digest(version.function, launching, version.function.constants | sizes)
        given = {text for name in sizes for side in (digest.passed, digest.assigned) for text in side.get(name, ())}
        known_as = {re.escape(text) for text in {*sizes, *given} if not is_literal(text)}  # `n_cols=V`: by the launcher's name, too
        behind = re.compile(rf"(?<![\w.])({'|'.join(sorted(known_as))})(?!\w)")
        passed = ((name, texts) for name, texts in digest.assigned.items() if name in version.function.constants)
        yield from (name for name, texts in passed if any(map(behind.search, texts)))


def _in_any_order(versions: Sequence[KernelVersion | None]) -> set[str]:
    """The constants for which several launches pass literals, on both sides the same ones: which launch comes first changes none."""
    sides: list[dict[str, set[str]]] = []
    for version in (version for version in versions if version is not None):
        passed: dict[str, set[str]] = {}
        for launching in version.launching:
            for name, texts in launch_digest(version.function, launching, version.function.constants).passed.items():
                passed.setdefault(name, set()).update(texts)
        sides.append(passed)
    return {name for name, texts in sides[0].items() if len(texts) > 1 and texts == sides[-1].get(name) and all(map(is_literal, texts))}


def _unknown_blocks(launch: KernelLaunch | None) -> dict[str, int]:
    """The numbers among a launch's constants that are not known, each with what is guessed."""
    if launch is None:
        return {}
    guess = next(guesses(launch.source, launch.source.kernel(launch.kernel), launch.given))
    return {name: guess.constexprs[name] for name in guess.invented if type(guess.constexprs.get(name)) is int}


def _size_around(name: str, kernel: str, gpu: GpuSpec) -> int | None:
    """What a name of the function around a launch may be; None: nothing says so."""
    typical = 8_192 if name == "BT" else typical_size(name, kernel, ())  # `BT, V = logits.shape`: a batch's tokens
    return gpu.num_sms if name.lower() in MULTIPROCESSORS else typical


def _recorded_sizes(recorded: RecordedLaunch) -> dict[str, Any]:
    """The numbers that a recorded launch passed: of its constants those that are sizes, for blocks are what a change may change."""
    constants = {name: value for name, value in recorded.constexprs.items() if typical_size(name, recorded.kernel, ()) is not None}
    return {**constants, **recorded.arguments}


def _made(
    version: KernelVersion,
    configuration: Configuration | None,
    values: Mapping[str, Any],
    whence: Mapping[str, Origin],
    settings: KernelSettings,
    gpu: GpuSpec,
    element: str | None,
) -> KernelLaunch:
    """The launch of a version with values, each with where it is from."""
    source = version.source.on(*gpu.triton_target[:2])
    function = version.function
    names, constants, usage = {*function.names}, function.constants, usage_of(source, function)
    around = names_around_launches(source, function.name) if values.keys() - names and not _elsewhere(version) else frozenset()
    tuned = dict(configuration.parameters) if configuration is not None else {}
    configured = {
        name: value for name in OPTION_NAMES if configuration is not None and (value := getattr(configuration, name, None)) is not None
    }
    options = {**{name: values[name] for name in OPTION_NAMES if type(values.get(name)) is int and name not in names}, **configured}
    launch = make_launch(
        source,
        function.name,
        types={name: _of_pointer(type_name(kind), usage[name]) for name, kind in settings.types.items() if name in names},
        constexprs={name: value for name, value in {**values, **tuned}.items() if name in constants},
        arguments={name: value for name, value in values.items() if name in (names - constants) | around},
        options=options,
        contents={name: value for name, value in settings.contents.items() if name in names},
        element=element,
        num_sms=gpu.num_sms,
        elsewhere=[(launching.source.on(*gpu.triton_target[:2]), *site) for launching in _elsewhere(version) for site in launching.calls],
    )
    listed: dict[str, Origin] = dict.fromkeys([*tuned, *configured], "literal")
    origins_ = {**whence, **listed}
    return replace(launch, origins={name: origins_.get(name, launch.origins.get(name, "literal")) for name in (*launch.origins, *options)})


def _of_pointer(kind: str, usage: Usage) -> str:
    """A type that is said of an argument: of a tensor that of its elements, however it is written (`bf16`, `*bf16`)."""
    return f"*{kind}" if usage.pointer and not kind.startswith(POINTERS) and kind != "constexpr" else kind


def _elsewhere(version: KernelVersion) -> Sequence[Launching]:
    """The launches of a version by other files, where its own has none."""
    return version.launching if all(launching.where for launching in version.launching) else ()


def _unknown_sizes(version: KernelVersion, launch: KernelLaunch, blocks: bool) -> Iterator[tuple[str, int]]:
    """Typical sizes of a launch of which nothing is known; `blocks`: of its one block instead."""
    guess = next(guesses(launch.source, launch.source.kernel(launch.kernel), launch.given))
    names = version.function.names
    unknown = {name for name, kind in guess.signature.items() if kind in INTEGERS and name not in launch.given.scalars}
    unknown |= {name for name in guess.invented if type(guess.constexprs.get(name)) is int}
    elements = {name for site in _sites(version) for name in passed_elements(site)}
    handed = {name: getattr(node, "id", "") for site in _sites(version) for name, node in site.passed.items()}  # by which name
    extents = {name for name, use in usage_of(launch.source, launch.source.kernel(launch.kernel)).items() if use.extent}
    settled = asserted(version.function.node)
    for name in (item for item in names if item in unknown):
        if name in settled and not blocks:
            yield name, settled[name]
            continue
        small = type(value := guess.constexprs.get(name)) is int and value < OF_BLOCK
        others = (item for item in names if item != name and (item.startswith("BLOCK") or item in extents))
        if blocks and small and BLOCK.fullmatch(name) and not any(others):
            yield name, OF_BLOCK
        size = (
            None
            if blocks or STRIDE_NAME.search(name)
            else OF_TENSOR
            if name in elements
            else next((its for item in (name, handed.get(name, "")) if (its := typical_size(item, version.function.name, names))), None)
        )
        if size is not None:
            yield name, _launched_with(version, name, size)


def _launched_with(version: KernelVersion, name: str, size: int) -> int:
    """A typical size, or the largest of its fourths, or the least of its doubles, with which a launching function makes the launch; itself
    where none is, or it is refused for something else."""
    sites = [site for site in _sites(version) if not site.refuses({})]
    smaller = itertools.takewhile(lambda item: item >= LEAST_SIZE, (size // 4**power for power in itertools.count()))
    near = [*smaller, size, *(size * 2**power for power in range(1, MOST_DOUBLED))]
    return next((item for item in near if not sites or not all(site.refuses({name: item}) for site in sites)), size)


@lru_cache(maxsize=4)
def _sites(version: KernelVersion) -> list[LaunchSite]:
    """The launches of a version."""
    return [
        LaunchSite(launching.source, version.function, scopes, call, None, None)
        for launching in version.launching
        for scopes, call in launching.calls
    ]


def _passed(version: KernelVersion) -> set[str]:
    """What launches of a version pass, by name."""
    calls = [(launching.source, *site) for launching in version.launching for site in launching.calls]
    return set(passed_by_launches(version.source, version.function.name, calls)) if calls else set()


def _shared(
    version: KernelVersion, launch: KernelLaunch, other: KernelLaunch | None, differs: bool, retyped: Set[str] = frozenset()
) -> KernelLaunch:
    """A launch with what is known of the other side's alone: what this side passes and is not known, or what it does not say itself, and
    where both are launched alike, what is guessed of this one.

    `differs`: whether the two are launched otherwise, so that what this side passes need not be what the other does; `retyped`: of which
    tensors the types are other ones.
    """
    if other is None:
        return launch
    theirs, passed = other.given, _passed(version)
    passed |= {*OPTION_NAMES} if any(site.unread for site in _sites(version)) else set()  # `**config` may hold them
    known_there = {name for name, origin in other.origins.items() if origin not in NO_DECISION and not differs}
    guessed = {name for name, origin in launch.origins.items() if origin == "guessed" and name in known_there}
    sure = {name: value for name, value in launch.given.constexprs.items() if name not in guessed}
    given = replace(launch.given, constexprs=sure)
    defaults = {parameter.name for parameter in version.function.parameters if parameter.default is not MISSING}
    open_ = {*version.function.names} - {*given.constexprs, *given.scalars, *given.types}
    open_ = {name for name in open_ if name in passed or name not in defaults or not version.launching}
    constants = version.function.constants
    values = {name: value for name, value in {**theirs.scalars, **theirs.constexprs}.items() if name in open_}
    tuned = version.function.autotune is not None
    unknown = {name for name in theirs.options if name in passed or tuned or not version.launching}
    options = {name: theirs.options[name] for name in sorted(unknown - version.function.heuristics.keys() - given.options.keys())}
    merged = replace(
        given,
        types={**{name: kind for name, kind in theirs.types.items() if name in open_ - constants - retyped}, **given.types},
        constexprs={**{name: value for name, value in values.items() if name in constants}, **given.constexprs},
        scalars={**{name: value for name, value in values.items() if name not in constants}, **given.scalars},
        options={**options, **given.options},
        multiples=given.multiples | (theirs.multiples & open_),
    )
    # What this side's launch works out in a way that is not followed is not known to be what the other side's is; what it hands on is.
    worked_out = {name for name in passed if not all(name in handed_on(site) for site in _sites(version))}
    whence: dict[str, Origin] = {
        name: "unknown" if name in worked_out and differs else other.origins[name]
        for name in {*(open_ & ({*theirs.types} - retyped | {*values})), *options}
        if name in other.origins
    }
    return replace(launch, given=merged, origins={**launch.origins, **whence})


def _with_siblings(version: KernelVersion, launch: KernelLaunch, values: Mapping[str, Any], gpu: GpuSpec) -> KernelLaunch:
    """A launch with blocks and warps that it is handed from elsewhere (`ctx.BLOCK_SIZE`) as other launches of its file pass them."""
    given, source = launch.given, launch.source
    guess = next(guesses(source, source.kernel(launch.kernel), given))
    passed = _passed(version)
    lacking = {name for name in guess.invented if type(guess.constexprs.get(name)) is int and name in passed}
    options = {name for name in ("num_warps", "num_stages") if name in passed and name not in {*given.options, *guess.options}}
    handed = {name for name in lacking | options if all(is_handed(site, name) for site in _sites(version))}  # else worked out for it alone
    constants: dict[str, Any] = {}
    launched_options: dict[str, Any] = {}
    for other in source.functions if handed else ():
        for site in launch_sites(source, other, gpu.num_sms, ELEMENT_BYTES) if other != launch.kernel else ():
            known = {parameter.name: values[parameter.name] for parameter in site.kernel.parameters if parameter.name in values}
            with contextlib.suppress(AdvisorError):
                passed_constants, launched = map(plain_values, site.constants(known, OPTION_NAMES))
                constants = {
                    **{
                        name: passed_constants[name]
                        for name in sorted(lacking & handed & passed_constants.keys())
                        if type(passed_constants[name]) is int
                    },
                    **constants,
                }
                launched_options = {
                    **{name: launched[name] for name in sorted(options & handed & launched.keys()) if type(launched[name]) is int},
                    **launched_options,
                }
    if "num_warps" in options - launched_options.keys():
        sizes = {name: value for name, value in guess.constexprs.items() if not STRIDE_NAME.search(name)}
        rows = [value for value in sizes.values() if type(value) is int and value >= 2_048]
        launched_options |= {"num_warps": next(warps for least, warps in WARPS_OF_A_ROW if max(rows) >= least)} if rows else {}
    if not constants and not launched_options:
        return launch
    merged = replace(given, constexprs={**constants, **given.constexprs}, options={**launched_options, **given.options})
    return replace(launch, given=merged, origins={**launch.origins, **dict.fromkeys([*constants, *launched_options], "typical")})


def _sized(
    version: KernelVersion,
    launch: KernelLaunch,
    sizes: Mapping[str, int],
    grid: tuple[str, Origin],
    given: Mapping[str, Any],
    gpu: GpuSpec,
) -> Sized:
    """A launch with its grid: the one given, the launch's own, or what that is with typical sizes for names of the launcher."""
    known = {**given, **launch.given.scalars, **launch.given.constexprs}
    constants = next(guesses(launch.source, launch.source.kernel(launch.kernel), launch.given)).constexprs
    names = {*version.function.names}
    around = names_around_launches(launch.source, launch.kernel) if sizes.keys() - names and not _elsewhere(version) else frozenset()
    sizes_used = {name: size for name, size in sizes.items() if name in names | around}
    text, origin = grid
    if text:
        return Sized(
            launch=replace(launch, grid=grid_of(text, known, launch.source), origins={**launch.origins, GRID: origin}), sizes=sizes_used
        )
    lacking: set[str] = set()
    if launch.grid is None:
        written = grid_as_written(launch.source, launch.kernel)
        text = written[1] if written is not None else ""
        with contextlib.suppress(AdvisorError, SyntaxError):
            text, names_in = split_grid(text)
            wanted = names_in - known.keys() - constants.keys()
            others = {name: _size_around(name, version.function.name, gpu) for name in wanted}
            typical = {name: size for name, size in others.items() if size is not None}
            values = {**constants, **known, **typical}
            around_grid = (wanted - typical.keys()) & names_around_launches(launch.source, launch.kernel)
            grid_of(text, {**values, **dict.fromkeys(around_grid, PROBE)}, launch.source)  # `x.numel()` follows from no number
            lacking = around_grid
            launch = replace(launch, grid=grid_of(text, values, launch.source))
            sizes_used |= typical
            launch = replace(launch, origins={**launch.origins, GRID: "typical"})
    elif sizes_used:
        launch = replace(launch, origins={**launch.origins, GRID: "typical"})
    if launch.grid is not None:
        return Sized(launch=launch, sizes=sizes_used)
    return Sized(launch=launch, sizes=sizes_used, grid_names=tuple(sorted(launch.asks or lacking)), grid_text=text)


def with_guess(launch: KernelLaunch, other: KernelLaunch, guess: Guess, function: JitFunction) -> KernelLaunch:
    """A launch of `function` with what was guessed of the other side's: nothing is guessed twice, an argument of another name is the one in
    its place, and a constant of the other side alone is the value of an argument. Numbers are inferred alike; were they given, nothing
    would be taken of which strides are multiples of 16."""
    given, its = launch.given, other.source.kernel(other.kernel)
    called = arguments_renamed(its, function)
    signature, constexprs = ({called.get(name, name): item for name, item in of.items()} for of in (guess.signature, guess.constexprs))
    open_ = {*function.names} - {*given.constexprs, *given.scalars}
    known = {*other.given.types} - called.keys()  # and not this side's: it is of another type
    types = {name: kind for name, kind in signature.items() if name in open_ - known - {*given.types} and kind.startswith(POINTERS)}
    constants = {name: value for name, value in constexprs.items() if name in open_ and name not in types}
    of_other = its.constants - function.constants
    passed = {name: value for name, value in constants.items() if name in of_other and isinstance(value, int | float)}
    constants = {name: value for name, value in constants.items() if name not in passed}
    merged = replace(
        given,
        types={**types, **given.types},
        constexprs={**constants, **given.constexprs},
        scalars={**passed, **given.scalars},
    )
    whence = {called.get(name, name): origin for name, origin in origins(other, guess).items()}
    return replace(launch, given=merged, origins={**launch.origins, **{name: whence[name] for name in (*types, *constants, *passed)}})


def closest(tuned: Sequence[Configuration], launch: KernelLaunch, gpu: GpuSpec) -> Configuration:
    """Of configurations, the first that has most in common with a launch."""
    passed = {"num_warps": 4, "num_stages": DEFAULT_STAGES[gpu.vendor], **launch.given.constexprs, **launch.given.options}
    return max(tuned, key=lambda item: sum(passed.get(name) == value for name, value in item.flat().items()))
