"""A campaign: what to sweep, read from a TOML file, as batches in the order in which to measure them, most informative first.

Problems come in a low-discrepancy order over all axes at once (Roberts' R sequence), so that the first n cover every axis evenly.
A problem's configurations come densest near the predicted best, yet reach through the whole space: pick i is the one at quantile
u_i ** 2 of the predicted order, with u the same sequence. Before them come the default and what the shipped predictor ranks
first: what a recommendation wins is then known of every problem that was visited. Deterministic: the order is the same on every machine.

```toml
version = 1
configurations_per_visit = 8      # launches that share a problem's inputs and rounds
recommended = 4                   # of those that the shipped predictor ranks first, how many come right after the default
[[sweep]]
kernel = "fused_moe::fused_moe_kernel"   # bundled, or FILE.py::KERNEL relative to this file
share = 8                                # of the visits, against the other sweeps
op = ["w13", "w2"]                       # every list is an axis
M = [1, 16, 256]
problems = [{E = 128, topk = 8, H = 2048, N = 768}]   # sizes that belong together: one axis
routing = ["uniform", "skewed"]          # fused_moe only
whole = true                             # one problem's whole space before the next problem's first launch
```
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec
from advisor.learned import load_predictor
from advisor.measurement.kernel_file import (
    KernelRef,
    block_shape_of,
    check_runnable,
    check_sizes,
    configurations,
    each_configuration,
    find_kernels,
    kernel_entry,
)
from advisor.measurement.launch import Batch, Launch
from advisor.pipelines import token_draws
from advisor.pipelines.batch import ELEMENT_BYTES, SIZES
from advisor.python_source.described import problem_dtype
from advisor.result.schema import Configuration, Problem
from advisor.system.errors import AdvisorError, InputError, UsageError
from advisor.system.reading import parse_toml, read_bytes
from advisor.tables.entries import default_configuration
from advisor.tables.routing import Routing, check_routing

RECOMMENDED = 4
"""Of the configurations that the predictor ranks first, how many come right after the default."""


GOLDEN = (math.sqrt(5) - 1) / 2
"""The step of Roberts' sequence in one dimension."""


def low_discrepancy(lengths: Sequence[int]) -> list[tuple[int, ...]]:
    """Every cell of a grid with these axis lengths, once, in low-discrepancy order.

    The axis of length n is cut into n equal parts; point i lies at frac(1/2 + i / phi^(d + 1)) on axis d, where phi is the root of
    x^(D + 1) = x + 1 (M. Roberts, "The unreasonable effectiveness of quasirandom sequences", 2018).
    """
    if not lengths or min(lengths) < 1:
        return [()] if not lengths else []
    dimensions, total = len(lengths), math.prod(lengths)
    phi = 2.0
    for _ in range(60):
        phi = (1 + phi) ** (1 / (dimensions + 1))
    steps = np.array([phi ** -(d + 1) for d in range(dimensions)])
    shape = np.array(lengths)
    cells: dict[tuple[int, ...], None] = {}
    # A cell is met after about total * ln(total) points; what is left then follows in its own order.
    points = np.arange(int(4 * total * (math.log(total) + 1)) + 1)
    grid = np.floor(((0.5 + points[:, None] * steps) % 1.0) * shape).astype(int)
    for cell in map(tuple, np.minimum(grid, shape - 1).tolist()):
        cells.setdefault(cell)
        if len(cells) == total:
            break
    for flat in range(total):
        cells.setdefault(tuple(int(i) for i in np.unravel_index(flat, lengths)))
    return list(cells)


@lru_cache(maxsize=4096)
def informative_order(count: int) -> tuple[int, ...]:
    """Ranks 0..count-1 in the order in which to visit them: dense near rank 0, which comes first."""
    if not count:
        return ()
    # Most ranks' quantiles are drawn within a few times their number; the rest follows in its own order.
    u = (0.5 + GOLDEN * np.arange(8 * count)) % 1.0
    order = dict.fromkeys([0, *np.minimum((u * u * count).astype(int), count - 1).tolist()])
    for rank in range(count):
        order.setdefault(rank)
    return tuple(order)


def predicted_latency_us(problem: Problem, configurations: Sequence[Configuration], gpu: GpuSpec | None) -> np.ndarray | None:
    """The analytical model's latencies, [configurations]; inf where one cannot launch; None where there is no model."""
    if gpu is None or not configurations:
        return None

    try:
        analysis = pipelines.analyse(pipelines.problem_batch([problem]), pipelines.configuration_batch(list(configurations)), gpu)
    except (AdvisorError, KeyError):
        return None
    return np.broadcast_to(analysis.latency_us, (len(configurations),)).astype(np.float64)


def visiting_order(
    problem: Problem, configurations: Sequence[Configuration], gpu: GpuSpec | None, *, seed: int = 0, recommended: int = RECOMMENDED
) -> list[Configuration]:
    """The configurations in the order in which to measure them.

    The first one (the default) stays first, then come as many as `recommended` says that the shipped predictor ranks first, then the
    others. Those that the model says cannot launch are left out. Where there is no model, the order is a seeded shuffle.
    """
    if not configurations:
        return []
    predicted = predicted_latency_us(problem, configurations, gpu)
    if gpu is None or predicted is None:
        shuffled = np.random.default_rng(seed).permutation(len(configurations) - 1) + 1
        return [configurations[0], *(configurations[i] for i in shuffled)]
    ascending = np.argsort(predicted, kind="stable")
    ranks = ascending[(ascending != 0) & np.isfinite(predicted[ascending])].tolist()
    first = foremost(problem, [configurations[i] for i in ranks], gpu, recommended)
    order = dict.fromkeys([0, *(ranks[i] for i in first), *(ranks[rank] for rank in informative_order(len(ranks)))])
    return [configurations[i] for i in order]


def foremost(problem: Problem, configurations: Sequence[Configuration], gpu: GpuSpec, count: int) -> list[int]:
    """The places of the configurations that the shipped predictor ranks first, `count` at most."""
    if not configurations or not count:
        return []
    predicted = load_predictor().scores(pipelines.problem_batch([problem]), pipelines.configuration_batch(list(configurations)), gpu)
    scores = np.broadcast_to(predicted, (len(configurations),))
    return [int(i) for i in np.argsort(scores, kind="stable")[:count] if np.isfinite(scores[i])]


MAX_FILE_BYTES = 1_000_000
MAX_PROBLEMS = 1_000_000
MOST_OF_A_COUNT = 100_000
SKEW = 1.0
"""Exponent of the skewed routing (`pipelines.token_draws`). RaMP (arXiv 2604.26039) reports that 8-14 % of the experts are active per layer
in practice: heavy tails, of which this is the usual model."""

_TOP = {"version", "name", "seed", "rounds", "configurations_per_visit", "recommended", "sweep"}
_SWEEP = {"kernel", "share", "op", "dtype", "cache", "routing", "problems", "block_shape", "output_dtype", "configurations", "whole"}
_SIZES = {"M", "N", "K", "E", "topk", "H", "B", "D", "H_kv", "causal"}
_TEXT_AXES = ("op", "dtype", "cache", "routing")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """One kernel over a grid of problems. `axes` in file order; `configurations` 0: the whole space; `whole`: one problem after another."""

    kernel: KernelRef
    share: float
    axes: dict[str, tuple[Any, ...]]
    fixed: dict[str, Any] = field(default_factory=dict)
    configurations: int = 0
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A campaign."""

    path: Path
    sweeps: tuple[Sweep, ...]
    seed: int = 0
    rounds: int = 10
    configurations_per_visit: int = 8
    recommended: int = RECOMMENDED


def as_launched(problem: Problem) -> Problem:
    """A problem whose routing can be launched: of one that is drawn, the token slots of one draw."""
    if problem.distribution is None:
        return problem
    sizes, exponent = problem.sizes, token_draws.exponent(problem.distribution)
    drawn = token_draws.one_draw(sizes["M"], sizes["E"], sizes["topk"], exponent)
    return replace(problem, routing=drawn, distribution=None)


def _routing(name: object, where: str) -> Routing:
    """A routing of a campaign; `skewed` is a power law of `SKEW`."""
    return Routing.read(f"power_law:{SKEW}" if name == "skewed" else str(name), where)


def read_plan(path: str | Path) -> Plan:
    """Reads and checks a campaign.

    Raises:
        InputError: Names file, key, value, limit and remedy.
    """
    file = Path(path)
    data = parse_toml(read_bytes(file, file.name, "a campaign", MAX_FILE_BYTES), file.name, "see tests/gpu/campaign.toml")
    require = partial(_require, file.name)
    _known(data, _TOP, file.name, "")
    require("version", data.get("version"), data.get("version") == 1, "1")
    sweeps = data.get("sweep")
    require("sweep", sweeps, isinstance(sweeps, list) and sweeps, "at least one [[sweep]]")
    parsed = tuple(_sweep(sweep, i, file) for i, sweep in enumerate(sweeps or ()))
    return Plan(
        path=file,
        sweeps=parsed,
        seed=_count(data, "seed", 0, file.name, 0),
        rounds=_count(data, "rounds", 10, file.name, 3),
        configurations_per_visit=_count(data, "configurations_per_visit", 8, file.name, 1),
        recommended=_count(data, "recommended", RECOMMENDED, file.name, 0),
    )


def _require(file: str, key: str, got: object, right: object, limit: str) -> None:
    if not right:
        raise InputError(f"{file}: {key}", got, limit, "see the head of advisor/measurement/plan.py")


def _known(table: Mapping[str, Any], known: set[str], file: str, prefix: str) -> None:
    for key in table:
        if key not in known:
            raise InputError(f"{file}: unknown key {prefix}{key}", None, f"one of {', '.join(sorted(known))}", "rename or remove it")


def _count(table: Mapping[str, Any], key: str, default: int, file: str, low: int) -> int:
    value = table.get(key, default)
    _require(file, key, value, type(value) is int and low <= value <= MOST_OF_A_COUNT, f"an integer from {low} to {MOST_OF_A_COUNT}")
    return int(value)


def _sweep(data: Any, index: int, file: Path) -> Sweep:
    where = f"sweep[{index}]."

    def require(key: str, got: object, right: object, limit: str) -> None:
        _require(file.name, where + key, got, right, limit)

    named = isinstance(data, dict) and isinstance(data.get("kernel"), str)
    require("kernel", data, named, "a kernel: fused_moe::fused_moe_kernel, or FILE.py::KERNEL")
    _known(data, _SWEEP | _SIZES, file.name, where)
    refs = find_kernels(data["kernel"], relative_to=file.resolve().parent)
    require("kernel", data["kernel"], len(refs) == 1, f"one kernel, such as {refs[0].label}")
    check_runnable(refs[0])
    share, whole = data.get("share", 1), data.get("whole", False)
    require("share", share, type(share) in (int, float) and 0 < share <= 1e6, "a positive number")
    require("whole", whole, isinstance(whole, bool), "true or false")
    count = _count(data, "configurations", 0, file.name, 0)
    axes = {}
    for key in (name for name in data if name in {*_TEXT_AXES, *_SIZES, "problems"}):
        axes[key] = tuple(data[key] if isinstance(data[key], list) else [data[key]])
    for key, values in axes.items():
        require(key, data[key], values, "at least one")
        for value in values:
            if key == "problems":
                right = isinstance(value, dict) and value and all(k in _SIZES and type(v) is int and v >= 0 for k, v in value.items())
                require(key, value, right, "a list of {SIZE = integer, …}")
            elif key in _TEXT_AXES:
                require(key, value, isinstance(value, str), "texts")
            else:
                require(key, value, type(value) is int and (value > 0 or key == "causal"), "positive integers")
    fixed = {name: data[name] for name in ("output_dtype", "block_shape") if name in data}
    require("problems", "more than that", math.prod(map(len, axes.values())) <= MAX_PROBLEMS, f"at most {MAX_PROBLEMS}")
    sweep = Sweep(kernel=refs[0], share=float(share), axes=axes, fixed=fixed, configurations=count, whole=whole)
    _check_problems(sweep, require)
    return sweep


def _check_problems(sweep: Sweep, require: Callable[[str, object, object, str], None]) -> None:
    """Every corner of the grid must be a problem; the first that is not is an error now rather than in an hour."""
    entry = kernel_entry(sweep.kernel)
    known = {
        "op": tuple(entry["ops"]),
        "dtype": tuple(entry.get("dtypes", ELEMENT_BYTES)),
        "cache": ("warm", "cold"),
    }
    for value in sweep.axes.get("routing", ()):
        _routing(value, "routing")
    for key, allowed in known.items():
        for value in sweep.axes.get(key, ()):
            require(key, value, value in allowed, f"one of {', '.join(allowed)}")
    require("dtype", "bf16, where none is named", "dtype" in sweep.axes or "bf16" in known["dtype"], f"one of {', '.join(known['dtype'])}")
    for op in sweep.axes.get("op", known["op"][:1]):
        needed = SIZES.get((entry["family"], op), ("B", "H"))
        for row in sweep.axes.get("problems", ({},)):
            missing = [size for size in needed if size not in row and size not in sweep.axes]
            require("problems", f"no {', '.join(missing)}", not missing, f"sizes {', '.join(needed)} for {op}")


def problems_of(sweep: Sweep) -> Iterator[Problem]:
    """The sweep's problems, most informative first."""
    entry = kernel_entry(sweep.kernel)
    seen: set[Any] = set()
    for cell in low_discrepancy([len(values) for values in sweep.axes.values()]):
        chosen = {name: values[i] for (name, values), i in zip(sweep.axes.items(), cell, strict=True)}
        sizes = {**chosen.get("problems", {}), **{name: chosen[name] for name in chosen if name in _SIZES}}
        if sizes.get("topk", 0) > sizes.get("E", sizes.get("topk", 0)):
            continue
        dtype = chosen.get("dtype", "bf16")
        block = sweep.fixed.get("block_shape") or block_shape_of(entry, dtype)
        problem = Problem(
            family=entry["family"],
            op=chosen.get("op", next(iter(entry["ops"]))),
            sizes=sizes,
            dtype=dtype,
            output_dtype=sweep.fixed.get("output_dtype"),
            block_shape=None if block is None else tuple(block),
            distribution=_routing(chosen["routing"], "routing").distribution if "routing" in chosen else None,
            cache=chosen.get("cache", "warm"),
        )
        problem = as_launched(problem)
        key = (problem.op, problem.dtype, problem.cache, tuple(sorted(sizes.items())), problem.routing)
        if key not in seen:
            seen.add(key)
            yield problem


def runs_on(kernel: KernelRef, gpu: GpuSpec | None) -> bool:
    """Whether the kernel's file says it runs on this GPU."""
    return gpu is None or gpu.reaches(kernel_entry(kernel).get("min_capability"))


def dtype_runs_on(dtype: str, gpu: GpuSpec | None) -> bool:
    """Whether the GPU's matrix units take the type (fp32 runs anywhere)."""
    return gpu is None or dtype in ("fp32", "fp64") or gpu.supports(dtype)


def batches_of(plan: Plan, gpu: GpuSpec | None, *, done: frozenset[str] | set[str] = frozenset(), key: Any = None) -> Iterator[Batch]:
    """The plan's launches in order, in batches; those whose `key(launch)` is in `done` left out.

    Visit v of a problem takes its v-th handful of configurations; sweeps alternate by their shares; no problem gets a second visit
    before all of its sweep have had their first.
    """
    sources = [(sweep, _visits(sweep, plan, gpu)) for sweep in plan.sweeps if runs_on(sweep.kernel, gpu)]
    used = [0.0] * len(sources)
    while sources:
        turn = min(range(len(sources)), key=lambda i: ((used[i] + 1) / sources[i][0].share, i))
        launches = next(sources[turn][1], None)
        if launches is None:
            del sources[turn], used[turn]
            continue
        used[turn] += 1
        left = tuple(launch for launch in launches if key is None or key(launch) not in done)
        if left:
            yield Batch(launches=left, rounds=plan.rounds, seed=plan.seed)


def _visits(sweep: Sweep, plan: Plan, gpu: GpuSpec | None) -> Iterator[tuple[Launch, ...]]:
    problems = [p for p in problems_of(sweep) if dtype_runs_on(p.dtype, gpu)]
    chunk = plan.configurations_per_visit

    def order(problem: Problem) -> list[Configuration]:
        space = tuple(campaign_space(sweep.kernel, problem, gpu))
        return visiting_order(problem, space, gpu, seed=plan.seed, recommended=plan.recommended)[: sweep.configurations or None]

    def launches(problem: Problem, chosen: Sequence[Configuration]) -> tuple[Launch, ...]:
        return tuple(Launch(kernel=sweep.kernel, problem=problem, configuration=configuration) for configuration in chosen)

    if sweep.whole:
        for problem in problems:
            every = order(problem)
            yield from (launches(problem, every[begin : begin + chunk]) for begin in range(0, len(every), chunk))
        return
    begin = 0
    while problems:
        remaining = []
        for problem in problems:
            every = order(problem)
            if len(every) > begin + chunk:
                remaining.append(problem)
            if chosen := every[begin : begin + chunk]:
                yield launches(problem, chosen)
        problems, begin = remaining, begin + chunk


def campaign_space(kernel: KernelRef, problem: Problem, gpu: GpuSpec | None) -> Iterator[Configuration]:
    """The kernel's space with what would be launched without any tuning first: vLLM's default for fused MoE, else the kernel's own."""
    first, sizes = None, problem.sizes
    if problem.family == "fused_moe" and problem.op in ("w13", "w2"):
        first = default_configuration("vllm", sizes["M"], sizes["E"], dtype=problem.dtype, block_shape=problem.block_shape)
        yield first
    yield from (configuration for configuration in each_configuration(kernel, problem, gpu) if configuration != first)


def kernel_problems(
    kernel: KernelRef,
    sizes: Sequence[Mapping[str, int]],
    *,
    tokens: Sequence[int] | None,
    op: str | None,
    dtype: str | None,
    routing: Mapping[str, Any],
    cache: str | None = None,
) -> list[Problem]:
    """The problems that options name of a kernel, each of every operator.

    Args:
        kernel: The kernel.
        sizes: Of each problem; none: those of its own example.
        tokens: Each in place of the sizes' M.
        op: One of its operators; None: all.
        dtype: Of the operands; None: the kernel's.
        routing: `routing` and `distribution` of problems whose kernel routes tokens.
        cache: What the L2 holds; None: warm.

    Raises:
        UsageError: A size is missing or not the kernel's; or there are none, and it has no example.
    """
    entry = kernel_entry(kernel)
    named = [dict(size) for size in sizes] or [dict(entry.get("example") or {})]
    if not named[0]:
        raise UsageError(f"{kernel.label}: which problem?", None, "--sizes NAME=VALUE,…", "its KERNELS entry has no example")
    named = [{**size, "M": rows} for size in named for rows in tokens] if tokens else named
    launched = [(operator, size) for size in named for operator in entry["ops"] if op in (None, operator)]
    for operator, size in launched:
        check_sizes(kernel, operator, size)
    dtype = problem_dtype(entry, kernel.label, dtype)
    more: dict[str, Any] = {"block_shape": block_shape_of(entry, dtype), "cache": cache or "warm"}
    if entry["family"] == "fused_moe":
        more |= routing
        for size in named if routing.get("routing") is not None else ():
            check_routing(routing["routing"], size["E"], "--routing")
    return [Problem(family=entry["family"], op=operator, sizes=size, dtype=dtype, **more) for operator, size in launched]


def launches_of(kernel: KernelRef, problems: Sequence[Problem], gpu: GpuSpec | None, count: int | None = 1) -> list[Launch]:
    """`count` launches per problem in visiting order (1: the kernel's default; None: the whole space)."""
    launches = []
    for problem in problems:
        space = configurations(kernel, problem, gpu)
        order = space if count == 1 else visiting_order(problem, space, gpu)
        launches += [Launch(kernel=kernel, problem=problem, configuration=configuration) for configuration in order[:count]]
    return launches
