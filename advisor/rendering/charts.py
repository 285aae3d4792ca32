"""The data of the page's charts, before anything is drawn: series of points that `svg` draws.

Only scaling and selection: every latency, demand and throughput is the result's own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from advisor.rendering import figures
from advisor.rendering.views import Group
from advisor.result.schema import LaunchReport, PipelineTime, SearchReport

Kind = Literal["line", "band", "points"]
Dash = Literal["solid", "dash", "dot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One curve, band or cloud; `colour` names a `--c-…` property of the page's style sheet."""

    name: str
    kind: Kind
    colour: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()  # lower edge of a band
    dash: Dash = "solid"  # lines of one chart differ in it as well as in colour
    hollow: bool = False
    symbol: str = "circle"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A chart with titled axes, and the same figures as a table."""

    id: str
    title: str
    summary: str  # what a reader who cannot see it should know
    x_title: str
    y_title: str
    series: tuple[Series, ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    x_log: bool = True
    y_log: bool = True
    x_ticks: tuple[float, ...] = ()
    x_whole: bool = False  # counts: no ticks between whole numbers
    x_names: tuple[str, ...] = ()  # of 0, 1, 2 … where the axis has names instead of numbers
    places: tuple[tuple[float, float | None] | None, ...] = ()  # of each row, for its tooltip; without y it is that of all at its x


def latency_over_sizes(part: Group, number: int) -> Chart | None:
    """Measured, predicted with its band, ceiling and bound over the size that differs; None where none does."""
    size = part.size
    if size is None:
        return None
    launches = sorted(part.launches, key=lambda launch: launch.problem.sizes[size])
    xs = {launch.id: float(launch.problem.sizes[size]) for launch in launches}
    predicted = [(launch, launch.predicted) for launch in launches if launch.predicted]
    banded = [(launch, value) for launch, value in predicted if value.low_us and value.high_us]
    series = []
    if banded:
        coverage = banded[0][1].coverage
        words = f" ({figures.percent(coverage)} interval)" if coverage is not None else ""
        series.append(
            Series(
                name=f"predicted interval{words}",
                kind="band",
                colour="predicted",
                x=tuple(xs[launch.id] for launch, _ in banded),
                y=tuple(value.high_us or value.us for _, value in banded),
                low=tuple(value.low_us or value.us for _, value in banded),
            )
        )
    curves: tuple[tuple[str, str, Dash, Kind], ...] = (
        ("bound", "bound", "dot", "line"),
        ("ceiling", "ceiling", "dash", "line"),
        ("predicted", "predicted", "solid", "line"),
        ("measured", "measured", "solid", "line"),
    )
    called = "/".join(sorted({launch.measured.origin for launch in launches if launch.measured})) or "measured"
    for name, colour, dash, kind in curves:
        points = [(launch, getattr(launch, name)) for launch in launches if getattr(launch, name) is not None]
        if points:
            series.append(
                Series(
                    name="tunable ceiling" if name == "ceiling" else called if name == "measured" else name,
                    kind=kind,
                    colour=colour,
                    dash=dash,
                    x=tuple(xs[launch.id] for launch, _ in points),
                    y=tuple(latency.us for _, latency in points),
                )
            )
    rows = tuple(
        (
            str(launch.problem.sizes[size]),
            _us(launch.measured.us if launch.measured else None),
            _us(launch.predicted.us if launch.predicted else None),
            figures.interval_words(launch.predicted).replace(" µs", "") or "-" if launch.predicted else "-",
            _us(launch.ceiling.us if launch.ceiling else None),
            _us(launch.bound.us),
        )
        for launch in launches
    )
    return Chart(
        id=f"latency-{number}",
        title=part.name,
        summary=f"Latency of {part.name} in microseconds over {size}, both logarithmic: {', '.join(item.name for item in series)}",
        x_title=f"{figures.clean(size)} ({_size_words(size, launches[0])})",
        y_title="latency (µs)",
        series=tuple(series),
        columns=(size, f"{called} µs", "predicted µs", "predicted interval µs", "tunable ceiling µs", "bound µs"),
        rows=rows,
        x_ticks=tuple(sorted(set(xs.values()))),
        places=tuple((xs[launch.id], None) for launch in launches),
    )


def _size_words(size: str, launch: LaunchReport) -> str:
    words = {"fused_moe": {"M": "tokens"}, "gemm": {"M": "rows"}, "attention": {"M": "queries", "N": "keys"}}
    words |= {"normalization": {"B": "rows", "H": "row length"}, "elementwise": {"B": "rows", "H": "row length"}}
    return words.get(launch.problem.family, {}).get(size, "size")


def _us(us: float | None) -> str:
    return "-" if us is None else figures.microseconds(us)


def rooflines(groups: list[Group]) -> list[Chart]:
    """One roofline per operand type and compute pipeline: roofs, and each launch now and as recommended."""
    kinds: dict[tuple[str, str], list[tuple[Group, LaunchReport]]] = {}
    for part in groups:
        for launch in part.launches:
            compute = _compute_pipeline(launch)
            if compute is not None and _memory_pipelines(launch):
                kinds.setdefault((launch.problem.dtype, compute.pipeline), []).append((part, launch))
    charts = (_roofline(kind, members, number) for number, (kind, members) in enumerate(kinds.items(), 1))
    return [chart for chart in charts if chart is not None]


def _compute_pipeline(launch: LaunchReport) -> PipelineTime | None:
    """The pipeline that does the floating-point work: the one with most of it."""
    candidates = [part for part in launch.pipelines if part.unit == "flop" and part.problem_demand > 0]
    return max(candidates, key=lambda part: part.problem_time_us, default=None)


def _memory_pipelines(launch: LaunchReport) -> dict[str, PipelineTime]:
    parts = {part.pipeline: part for part in launch.pipelines}
    return {
        name: parts[name]
        for name in figures.MEMORY_PIPELINES
        if name in parts and parts[name].demand > 0 and parts[name].throughput_per_s > 0
    }


_MEMORY_DASHES: dict[str, Dash] = {"dram": "solid", "l2": "dash", "smem": "dot"}
_LEVELS = {"dram": ("DRAM", "circle"), "l2": ("L2", "square"), "smem": ("shared memory", "diamond")}


def _roofline(kind: tuple[str, str], members: list[tuple[Group, LaunchReport]], number: int) -> Chart | None:
    dtype, pipeline = kind
    first = _compute_pipeline(members[0][1])
    assert first is not None  # the caller kept only launches that have one
    peak = first.throughput_per_s
    roofs: dict[str, float] = {}
    now: dict[str, list[tuple[float, float]]] = {}
    then: list[tuple[float, float]] = []
    rows, places = [], list[tuple[float, float | None]]()
    for part, launch in members:
        compute, memory = _compute_pipeline(launch), _memory_pipelines(launch)
        assert compute is not None
        for name, level in memory.items():
            roofs.setdefault(name, level.throughput_per_s)
        slowest = max(memory, key=lambda name: memory[name].time_us)  # the level whose roof is the lowest here
        intensity = compute.problem_demand / memory[slowest].demand
        label = f"{part.name} {part.label(launch)}"
        latency = figures.current(launch)
        done = compute.problem_demand / (latency.us * 1e-6)
        now.setdefault(slowest, []).append((intensity, done))
        places.append((intensity, done))
        advice = launch.recommendation
        better = compute.problem_demand / (advice.latency.us * 1e-6) if advice else None
        moved = {name: advice.demand[name] for name in memory if advice.demand.get(name, 0.0) > 0} if advice else {}
        # As uneven over the SMs as now: only the bytes of the recommended configuration are known.
        its_level = max(moved, key=lambda name: moved[name] * memory[name].time_us / memory[name].demand, default=None)
        then_at = compute.problem_demand / moved[its_level] if its_level is not None else None
        if better is not None and then_at is not None:
            then.append((then_at, better))
        per_level = tuple(f"{compute.problem_demand / memory[name].demand:.3g}" if name in memory else "-" for name in _LEVELS)
        recommended = figures.quantity(better, "FLOP/s") if better is not None else "-"
        at = f"{then_at:.3g} {_LEVELS[its_level][0]}" if its_level is not None else "unknown" if advice else "-"
        rows.append((label, *per_level, _LEVELS[slowest][0], figures.quantity(done, "FLOP/s"), recommended, at))
    if peak <= 0 or not roofs:
        return None
    points = [point[0] for group in (*now.values(), then) for point in group]
    corner = max(peak / rate for rate in roofs.values())
    left, right = min([*points, peak / max(roofs.values())]) / 3, max([*points, corner]) * 4
    rate_of = dtype if pipeline == "tensor" else "fp32"  # whatever the operands are, the vector units add and multiply fp32
    roof_name = f"{pipeline} peak {rate_of}: {figures.quantity(peak, 'FLOP/s')}"
    series = [Series(name=roof_name, kind="line", colour="bound", x=(min(left, right), right), y=(peak, peak))]
    for name, rate in roofs.items():
        meets = peak / rate
        series.append(
            Series(
                name=f"{_LEVELS[name][0]}: {figures.quantity(rate, 'B/s')}",
                kind="line",
                colour=f"roof-{name}",
                dash=_MEMORY_DASHES[name],
                x=(left, meets),
                y=(left * rate, peak),
            )
        )
    if then:
        series.append(_cloud("recommended", "recommended", then, "triangle", hollow=True))
    for name, cloud in now.items():
        words, symbol = _LEVELS[name]
        series.append(_cloud(f"now, against the {words} roof", "measured", cloud, symbol))
    return Chart(
        id=f"roofline-{number}",
        title=f"{dtype}, {pipeline} pipeline",
        summary=f"Roofline, both axes logarithmic: useful FLOP/s over FLOP per byte, for {len(members)} launches, "
        f"under the roofs {', '.join(item.name for item in series if item.kind == 'line')}",
        x_title="useful FLOP per byte (slowest memory level)",
        y_title="useful FLOP/s",
        series=tuple(series),
        columns=("launch", "FLOP/B DRAM", "FLOP/B L2", "FLOP/B smem", "slowest level", "now", "recommended", "recommended FLOP/B"),
        rows=tuple(rows),
        places=tuple(places),
    )


def _cloud(name: str, colour: str, points: list[tuple[float, float]], symbol: str, hollow: bool = False) -> Series:
    return Series(
        name=name,
        kind="points",
        colour=colour,
        x=tuple(point[0] for point in points),
        y=tuple(point[1] for point in points),
        symbol=symbol,
        hollow=hollow,
    )


def best_so_far(search: SearchReport, number: int) -> Chart | None:
    """The latency of each trial, and the best up to it; None where no trial has a latency."""
    done = [(trial.number, trial.latency_us) for trial in search.trials if trial.latency_us is not None]
    if not done:
        return None
    steps: list[tuple[float, float]] = []  # flat from one trial to the next: nothing is known between them
    best = math.inf
    for index, us in done:
        if best < math.inf:
            steps.append((float(index), best))
        best = min(best, us)
        steps.append((float(index), best))
    xs = tuple(float(index) for index, _ in done)
    return Chart(
        id=f"search-{number}",
        title=f"Best so far: {figures.clean(search.launch)}",
        summary=f"Best latency so far over {len(search.trials)} trials, ending at {figures.microseconds(best)} µs",
        x_title="trial",
        y_title="latency (µs)",
        series=(
            Series(name="trial", kind="points", colour="predicted", x=xs, y=tuple(us for _, us in done)),
            Series(
                name="best so far",
                kind="line",
                colour="ceiling",
                x=tuple(x for x, _ in steps),
                y=tuple(y for _, y in steps),
            ),
        ),
        columns=("trial", "state", "configuration", "latency µs", "predicted µs"),
        rows=tuple(
            (
                str(trial.number),
                trial.state,
                trial.configuration.label(),
                _us(trial.latency_us),
                _us(trial.predicted_us),
            )
            for trial in search.trials
        ),
        x_log=False,
        y_log=False,
        x_whole=True,
        places=tuple(None if trial.latency_us is None else (float(trial.number), trial.latency_us) for trial in search.trials),
    )


def slices(search: SearchReport, number: int) -> list[Chart]:
    """The latencies of the trials over the values of each parameter that they differ in: Optuna's slice plot."""
    done = [(trial.number, trial.configuration.flat(), trial.latency_us) for trial in search.trials if trial.latency_us is not None]
    charts: list[Chart] = []
    for name in done[0][1] if done else ():
        values = [flat.get(name) for _, flat, _ in done]
        names = [str(value) for value in sorted(set(values), key=_in_order)]
        if len(names) > 1:
            points = [(float(names.index(str(value))), us) for value, (_, _, us) in zip(values, done, strict=True)]
            xs, ys = zip(*points, strict=True)
            chart = Chart(
                id=f"search-{number}-{len(charts) + 1}",
                title=figures.clean(name),
                summary=f"Latency in microseconds over {figures.clean(name)}",
                x_title=figures.clean(name),
                y_title="latency (µs)",
                series=(Series(name="trial", kind="points", colour="predicted", x=xs, y=ys),),
                columns=(figures.clean(name), "latency µs", "trial"),
                rows=tuple((figures.clean(value), f"{us:.4g}", str(trial)) for value, (trial, _, us) in zip(values, done, strict=True)),
                x_log=False,
                y_log=False,
                x_names=tuple(map(figures.clean, names)),
                places=tuple(points),
            )
            charts.append(chart)
    return charts


def _in_order(value: object) -> tuple[float, str]:
    return (float(value), "") if isinstance(value, (int, float)) else (math.inf, str(value))
