"""Ranking configurations of a kernel of whatever origin by its code: the compiler's front end, some tens of milliseconds for each tile.

What is a product or attention by its IR is ranked as one of its family, and what is neither by the demand that its IR has. Nothing is
compiled to machine code. Every configuration is looked at, up to `MOST_TILES` of them that differ in more than warps and stages.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from advisor.autotuning import internals
from advisor.autotuning.ranking import GROUPS, Ranking, Recognised, given_order, predictor, rank
from advisor.gpus.hardware import gpu_model
from advisor.result.schema import Configuration
from advisor.system import grouped
from advisor.system.errors import AdvisorError

MOST_TILES = 128
"""Configurations that differ in more than warps and stages and are translated, 20 ms each, where their tiles do not follow from names."""
SAMPLED = 6
"""Of a longer list so many are translated, and where parameters then stand for the sides of tiles, the others are taken at their word."""
OTHER_ROWS = (16, 64, 256, 1024, 4096)
"""Rows of a product at which others than the call's are likely to be asked for: from decoding to prefill."""
LEADING = 6
"""Configurations that lead at each."""
KEPT = 1024
"""Modules that a process keeps, some tens of kilobytes each: another key of a kernel has the same ones."""

_modules: OrderedDict[str, Any] = OrderedDict()
_lock = threading.Lock()


@dataclass(kw_only=True)
class Code:
    """The configurations of a call as the compiler is given them; `sources` by place, None where binding failed."""

    call: Any
    sources: list[internals.Source | None]
    failed: dict[int, str] = field(default_factory=dict)

    def module(self, place: int) -> Any:
        """The parsed TTIR of a configuration; None where the front end refuses it."""
        from advisor.compiled.ir.ir import parse

        source = self.sources[place]
        if source is None:
            return None
        with _lock:
            if source.key in _modules:
                _modules.move_to_end(source.key)
                return _modules[source.key]
        try:
            text = source.make_ttir()
            parsed: Any = (parse(text), text)
        except Exception as error:  # the compiler has many ways to say no
            parsed = f"{type(error).__name__}: {error}"
        with _lock:
            _modules[source.key] = parsed
            while len(_modules) > KEPT:
                _modules.popitem(last=False)
        return parsed

    def tiles(self) -> dict[str, list[int]]:
        """Places by what the front end makes of them: those of one list have one TTIR."""
        places = grouped((source.key, place) for place, source in enumerate(self.sources) if source is not None)
        return places

    def values(self, place: int) -> dict[str, Any]:
        """The launch's arguments by name, the configuration's among them."""
        source = self.sources[place]
        constants = source.constants if source is not None else {}
        return {**self.call.named, **constants, **self.call.configs[place].all_kwargs()}

    def grid(self, place: int) -> tuple[int, ...]:
        """The grid of a configuration."""
        grid, values = self.call.kwargs.get("grid"), self.values(place)
        launched: Sequence[Any] = grid(dict(values)) if callable(grid) else grid
        return tuple(int(extent) for extent in (*launched, 1, 1, 1)[:3])

    def inputs(self, place: int) -> Any:
        """The arguments as the evaluation of the IR takes them."""
        from advisor.compiled.ir.execution import Inputs

        values = self.values(place)
        constants = self.sources[place].constants if self.sources[place] is not None else {}  # type: ignore[union-attr]
        scalars = {name: value for name, value in values.items() if isinstance(value, (bool, int, float))}
        sizes = {name: int(value.numel()) for name, value in values.items() if hasattr(value, "numel")}
        arguments = tuple(name for name in self.call.named if name not in constants)
        return Inputs(scalars=scalars, sizes=sizes, arguments=arguments)


def load() -> None:
    """Imports what ranking needs, and reads the weights: a second that a first call otherwise waits for. Never raises."""
    with contextlib.suppress(Exception):
        from advisor.compiled import families  # noqa: F401
        from advisor.compiled.compiler import frontend  # noqa: F401
        from advisor.compiled.demand import demand  # noqa: F401
        from advisor.gpus import hardware  # noqa: F401
        from advisor.search import surrogate  # noqa: F401

        predictor()


def code_of(tuner: Any, call: Any) -> Code:
    """The configurations of a call as the compiler is given them."""
    sources = internals.sources_of(tuner.fn, call.launches(range(len(call.configs))))
    failed = {place: f"{type(source).__name__}: {source}" for place, source in enumerate(sources) if isinstance(source, Exception)}
    return Code(call=call, sources=[None if isinstance(source, Exception) else source for source in sources], failed=failed)


def rank_by_code(
    tuner: Any, call: Any, device: internals.Device, why_not_known: str, least: int = 0, unlearned: int = 0, foresee: bool = False
) -> Ranking:
    """Ranks by what the front end makes of each configuration. Never raises: without it the given order stands, and says why.

    Args:
        tuner: Of the kernel.
        call: Of the kernel.
        device: The GPU.
        why_not_known: Why its problem does not rank it.
        least: Up to so many configurations are measured anyway, and not looked at.
        unlearned: The same of those that no learned model knows.
        foresee: Whether to say what leads at other sizes.
    """
    count = len(call.configs)
    if count <= least:
        return given_order(count, why_not_known)
    if internals.is_interpreted() or internals.active_driver() is None:
        return given_order(count, f"{why_not_known}; nothing is compiled here")
    from advisor.gpus.hardware import match_device_name

    gpu = match_device_name(device.name)
    if gpu is None:
        return given_order(count, f"{why_not_known}; ceilings/ describes no GPU {device.name}")
    try:
        code = code_of(tuner, call)
        if not any(code.sources):
            return given_order(count, f"{why_not_known}; its code cannot be read ({next(iter(code.failed.values()), 'no source')})")
        of_family, why = _as_family(code, gpu, device, foresee)
        if of_family is not None or count <= unlearned:
            return of_family or given_order(count, f"{why_not_known}; {why}")
        return _by_demand(code, gpu, f"{why_not_known}; {why}")
    except Exception as error:  # compiling and reading code have many ways to go wrong; none is a reason for the kernel not to run
        return given_order(count, f"{why_not_known}; its code cannot be read ({type(error).__name__}: {error})")


# ------------------------------------------------------------------------------------------------------------- as one of a family


def _as_family(code: Code, gpu: Any, device: internals.Device, foresee: bool) -> tuple[Ranking | None, str]:
    """The ranking as the family's kernels are ranked, or None and why not."""
    from advisor.compiled.demand.demand import read_demand
    from advisor.compiled.families import NoFamilyError, family_launch

    tiles = code.tiles()
    places = [group[0] for group in tiles.values()]
    grids = {place: code.grid(place) for place in range(len(code.sources)) if code.sources[place] is not None}
    # Sizes are read off the launch of fewest programs, which is counted the fastest.
    shapes = {name: tuple(value.shape) for name, value in code.call.named.items() if hasattr(value, "shape")}
    why = "its code cannot be read"
    for place in sorted(places, key=lambda candidate: (np.prod(grids[candidate], dtype=float), candidate))[:3]:
        module = code.module(place)
        if isinstance(module, str):
            why = f"its code cannot be read ({module})"
            continue
        try:
            launch = family_launch(module[0], read_demand(module[0], grids[place], code.inputs(place)), shapes)
            break
        except (NoFamilyError, AdvisorError) as error:
            why = str(error)
            if isinstance(error, NoFamilyError):
                return None, why
    else:
        return None, why
    problem = launch.problem
    tile_at = _tiles_by_place(code, problem.family)
    if tile_at is None:
        return None, f"its parameters do not tell the tiles of more than {MOST_TILES} configurations"
    configurations: list[Configuration | None] = []
    for place, config in enumerate(code.call.configs):
        tile = tile_at.get(place)
        if tile is not None and problem.family == "gemm":
            tile = {**tile, "GROUP_SIZE_M": _group(config), "SPLIT_K": _splits(grids[place], tile, problem.sizes)}
        options = config.all_kwargs()
        named = {name: options[name] for name in ("num_warps", "num_stages", "num_ctas", "maxnreg") if options.get(name) is not None}
        # What the front end refuses is tried last.
        configurations.append(None if tile is None else Configuration.from_flat({**tile, **named}))
    if all(configuration is None or configuration.parameters.get("SPLIT_K") == 1 for configuration in configurations):
        configurations = [configuration and without_split(configuration) for configuration in configurations]
    recognised = Recognised(problem=problem, how="its code")
    ranked = rank(code.call.identities, recognised, "", device.name, configurations=configurations)
    if not ranked.modelled:
        return None, ranked.why_given
    if problem.family != "gemm" or not foresee:
        return ranked, ""
    others = (replace(recognised, problem=replace(problem, sizes={**problem.sizes, "M": rows})) for rows in OTHER_ROWS)
    leading = [rank(code.call.identities, other, "", device.name, configurations=configurations).order[:LEADING] for other in others]
    return replace(ranked, elsewhere=tuple(dict.fromkeys(itertools.chain(*zip(*leading, strict=True))))), ""


def _tiles_by_place(code: Code, family: str) -> dict[int, dict[str, int]] | None:
    """The tile of every configuration by the family's names; None where there are too many to look at each, and no names to go by."""
    from advisor.compiled.families import NoFamilyError, tile_of

    tiles = code.tiles()
    groups = [*tiles.values()]
    sampled = groups if len(groups) <= SAMPLED else groups[:: -(-len(groups) // SAMPLED)]
    tile_at: dict[int, dict[str, int]] = {}

    def look(group: list[int]) -> None:
        module = code.module(group[0])
        if isinstance(module, str):
            return
        try:
            kind, tile = tile_of(module[0])
        except NoFamilyError:
            return
        if kind == family:
            tile_at.update(dict.fromkeys(group, tile))

    for group in sampled:
        look(group)
    if len(sampled) == len(groups):
        return tile_at
    stands = _stands_for({place: tile_at[place] for group in sampled if (place := group[0]) in tile_at}, code.call.configs)
    if stands is None:
        if len(groups) > MOST_TILES:
            return None
        for group in groups:
            look(group)
        return tile_at
    for place, config in enumerate(code.call.configs):
        if code.sources[place] is not None:
            tile_at.setdefault(place, {side: config.kwargs[name] for side, name in stands.items()})
    return tile_at


def _stands_for(seen: Mapping[int, Mapping[str, int]], configs: Sequence[Any]) -> dict[str, str] | None:
    """The parameter that each side of the tiles is, in all configurations that were looked at; None where that is not clear of one."""
    if not seen:
        return None
    parameter_of: dict[str, str] = {}
    for side in next(iter(seen.values())):
        parameters = configs[next(iter(seen))].kwargs
        names = [name for name in parameters if all(configs[place].kwargs.get(name) == tile[side] for place, tile in seen.items())]
        if len(names) != 1:
            return None
        parameter_of[side] = names[0]
    return parameter_of


def _group(config: Any) -> int:
    """How many tiles of rows are visited together: what the only parameter says whose name tells it, 1 where none does."""
    named = [value for name, value in config.kwargs.items() if GROUPS.search(name) and isinstance(value, int) and value > 0]
    return int(named[0]) if len(named) == 1 else 1


def without_split(configuration: Configuration) -> Configuration:
    """The configuration of a kernel that never divides its depth."""
    return replace(configuration, parameters={name: value for name, value in configuration.parameters.items() if name != "SPLIT_K"})


def _splits(grid: tuple[int, ...], tile: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    """Among how many programs the depth of a tile of the result is divided, as the grid says; 1 where it says nothing."""
    tiles = -(-sizes["M"] // tile["BLOCK_SIZE_M"]) * -(-sizes["N"] // tile["BLOCK_SIZE_N"])
    splits, remainder = divmod(int(np.prod(grid)), tiles)
    return splits if not remainder and splits > 1 else 1


# ----------------------------------------------------------------------------------------------------------- by what the code demands


def _by_demand(code: Code, gpu: Any, why: str) -> Ranking:
    """By the analytical model, on the demand of the TTIR; registers, spills and buffers are estimated."""
    count, predicted, trouble = len(code.sources), dict[int, float](), ""
    groups = [*code.tiles().values()]
    for group in groups[:MOST_TILES]:
        module = code.module(group[0])
        if isinstance(module, str):
            trouble = module
            continue
        for place in group:
            try:
                predicted[place] = _predicted_us(code, place, module, gpu)
            except Exception as error:
                trouble = f"{type(error).__name__}: {error}"
    finite = {place: us for place, us in predicted.items() if us == us and us != float("inf")}
    if not finite:
        return given_order(count, f"{why}; its code cannot be read ({trouble or 'it does not fit the GPU'})")
    order = sorted(finite, key=lambda place: (finite[place], place))
    unpredicted = [place for place in range(count) if place not in finite]
    left = sum(map(len, groups[MOST_TILES:]))
    not_looked = f"; {left} of {count} configurations not evaluated, the last of the list" if left else ""
    return Ranking(
        order=(*order, *unpredicted),
        by=f"analytical model, demand read from the compiled code ({gpu_model(gpu.name)}, front end only{not_looked}; {why})",
        modelled=True,
        predicted_us=finite,
        unfit=frozenset(place for place in predicted if place not in finite),
        scores=tuple(finite.get(place, float("inf")) for place in range(count)),
        learned=False,
        by_code=True,
    )


def _predicted_us(code: Code, place: int, module: tuple[Any, str], gpu: Any) -> float:
    """Latency of one configuration, microseconds; infinite where it cannot be launched."""
    from advisor.compiled.analysis import kernel_analysis
    from advisor.compiled.compiler.kernel import CompiledKernel, Target
    from advisor.compiled.demand.demand import Counted
    from advisor.compiled.guesses.inference import Given, Guess
    from advisor.compiled.launches.launch import Inspection, KernelLaunch, estimated_resources
    from advisor.python_source.source import parse_source

    options, inputs, grid = code.call.configs[place].all_kwargs(), code.inputs(place), code.grid(place)
    target = Target.of(gpu)
    launch = KernelLaunch(
        source=parse_source("", "compiled.py"),  # compiled already: nothing of it is read
        kernel="kernel",
        given=Given(scalars=dict(inputs.scalars)),
        grid=grid,
        sizes=inputs.sizes,
    )
    guess = Guess(signature=dict.fromkeys(inputs.arguments, "i32"), constexprs=dict(inputs.scalars), options=options)
    resources = estimated_resources(module[0], int(options.get("num_warps") or 4), int(options.get("num_stages") or 1), target)
    compiled = CompiledKernel(
        name="kernel",
        target=target,
        triton_version=internals.triton_version(),
        ttir=module[1],
        ttgir="",
        ptx="",
        amdgcn="",
        metadata=SimpleNamespace(num_ctas=int(options.get("num_ctas") or 1)).__dict__,
        options=options,
        resources=resources,
    )
    counted = code.__dict__.setdefault("counted", Counted())
    demand = counted.demand(module[1], grid, inputs)
    inspection = Inspection(launch=launch, compiled=compiled, demand=demand, guess=guess, attempts=(), counted=counted)
    prediction = kernel_analysis(inspection, gpu)
    return prediction.predicted.us if prediction.predicted is not None else float("inf")
