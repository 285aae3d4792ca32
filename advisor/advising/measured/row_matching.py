"""Measured latencies from a ROWS file, matched to the launches of a target."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from advisor.advising.choice import Measured
from advisor.advising.layers import layer_id, layer_launches
from advisor.advising.targets import CONFIGURATION_UNKNOWN, PlannedLaunch, Target
from advisor.gpus.hardware import match_device_name
from advisor.measurement.measured_rows import read_rounds
from advisor.measurement.row_source import RowSource, read_configuration
from advisor.measurement.statistics import CONFIDENCE, median_interval
from advisor.pipelines.from_rows import LAYER
from advisor.result.schema import Configuration, Latency, MeasuredRounds, Problem, result_dtype
from advisor.rows.cells import failed
from advisor.rows.columns import CONFIG_DEFAULTS
from advisor.rows.rows import DTYPES, FAMILY_PARAMETERS, Rows, parse_rows, read_rows
from advisor.rows.types_and_origin import simulated_rows
from advisor.system import grouped
from advisor.system.errors import InputError, NothingMatchedError, agree, part, several
from advisor.system.resources import phrase
from advisor.tables.names import row_dtypes
from advisor.tables.routing import Routing

Row = tuple[int, Configuration | None]
"""Number of a row, from 0, and its configuration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFile:
    """Rows with latencies.

    Attributes:
        label: The file's name.
        rows: What it holds.
        latency: Microseconds, [rows]; NaN where there is none.
        simulated: Which latencies are simulated, [rows].
        failed: Which rows have none because their launch failed, [rows].
    """

    label: str
    rows: Rows
    latency: np.ndarray
    simulated: np.ndarray
    failed: np.ndarray

    @property
    def word(self) -> str:
        """The origin of its latencies, in a word."""
        return "simulated" if len(self.simulated) and self.simulated.all() else "measured"

    def chosen(self, which: np.ndarray) -> list[Row]:
        """The rows of a mask, with their configurations."""
        return [(row, read_configuration(self.source(row))) for row in np.flatnonzero(which).tolist()]

    def source(self, row: int) -> RowSource:
        """A row as its cells, from 0."""
        return RowSource(self.label, row + 1, {name: self.rows.text[name][row] for name in self.rows.header})

    def median(self, chosen: Sequence[int]) -> Latency:
        """The median latency of the chosen rows, with the least and the greatest where there are several."""
        values = self.latency[chosen]
        several = values.size > 1
        return Latency(
            us=float(np.median(values)),
            origin="simulated" if self.simulated[chosen].any() else "measured",
            source=f"{self.label}, {values.size} rows" if several else self.label,
            low_us=float(values.min()) if several else None,
            high_us=float(values.max()) if several else None,
            coverage=1.0 if several else None,
        )

    def with_rounds(self, chosen: Sequence[int]) -> Measured:
        """The median of the chosen rows, with their rounds; of one row it is what `advisor compare` says of the same rounds."""
        latency, sources = self.median(chosen), [self.source(row) for row in chosen]
        rounds = tuple(round_ for source in sources for round_ in read_rounds(source))
        if not rounds:
            return Measured(latency=latency)
        if len(sources) == 1 and (interval := median_interval(rounds)) is not None:
            latency = replace(latency, us=interval[0], low_us=interval[1], high_us=interval[2], coverage=CONFIDENCE)
        floors = [floor for source in sources if (floor := source.number("noise_floor")) is not None]
        return Measured(latency=latency, rounds=MeasuredRounds(rounds=rounds, noise_floor=max(floors, default=None), source=latency.source))


def read_file(path: str | os.PathLike[str], text: str | None) -> MeasuredFile:
    """A file of rows; `text` is what it holds, where that was read before.

    Raises:
        InputError: It cannot be read, or has no latency_us.
    """
    label = Path(path).name
    rows = read_rows(path) if text is None else parse_rows(text, label, os.fspath(path))
    latency = rows.columns.get("latency_us")
    if latency is None:
        raise InputError(f"{label}: no column latency_us", ", ".join(rows.header), "measured latencies", "add it")
    wrong = np.array([failed(cell) for cell in rows.text.get("status", [""] * len(rows))], dtype=bool)
    return MeasuredFile(label=label, rows=rows, latency=latency, simulated=simulated_rows(rows), failed=wrong)


def coverage(label: str, measured: int, launches: int) -> str:
    """The number of a target's launches that a file has latencies of."""
    return f"{label}: {part(measured, launches, 'launch')} {agree(measured, 'has', 'have')} a measurement"


def holds_simulated(path: str | os.PathLike[str]) -> bool:
    """Whether a file of rows has any that say they were simulated.

    Raises:
        InputError: It cannot be read.
    """
    return bool(simulated_rows(read_rows(path)).any())


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """A target with the measurements of its launches.

    Where nobody says which configuration a launch of `target` runs with, it is the one that was measured; `target.unknowns` has a
    sentence on that. `unmatched` is one on what was left over, None where nothing was.
    """

    target: Target
    measured: Mapping[str, Measured]  # by launch id
    unmatched: str | None


def match(target: Target, path: str | os.PathLike[str], text: str | None = None) -> Matched:
    """Latencies of a target's launches from a file of rows.

    A row belongs to a launch when GPU, operator and all sizes agree, what else of the problem the file has columns for (types, routing,
    cache state, blocks of scales), and the configuration too where the row names one. Several rows of one launch give their median,
    with least and greatest as the interval; one row has the interval of its rounds, where the file has them. Rows of other
    configurations of the problem stand beside it (`Measured.others`), and rows whose launch failed have no latency. What rows say was
    simulated is called that, and what is a median with such among it.

    Args:
        target: Whose launches they are.
        path: The file.
        text: What it holds, where that was read before: a pipe can be read once.

    Raises:
        InputError: The file cannot be read, or has no latency_us.
        NothingMatchedError: No row belongs to any launch.
    """
    file = read_file(path, text)
    here = _on_gpu(file.rows, target)
    shares = grouped((launch.decision_id, launch) for launch in target.launches)
    groups = [_match_group(file, group, here, target) for group in shares.values()]
    launches = {launch.id: launch for group in groups for launch in group.launches}
    measured = {name: its for group in groups for name, its in group.measured.items()}
    of_layers = _of_layers(file, target, here)
    measured |= {name: file.with_rounds(np.flatnonzero(rows).tolist()) for name, rows in of_layers.items()}
    used, lost, others = (np.logical_or.reduce([getattr(group, name) for group in groups]) for name in ("used", "lost", "others"))
    used = np.logical_or.reduce([used, *of_layers.values()])
    others &= ~used
    if not measured:
        raise _nothing(file, target, lost, others)
    unknowns = list(target.unknowns)
    if all(launch.configuration is not None for launch in launches.values()):
        unknowns = [text for text in unknowns if text != CONFIGURATION_UNKNOWN]
    if chosen_from := max(group.chosen_from for group in groups):
        which = f"the fastest of those {file.word} there (up to {chosen_from})" if chosen_from > 1 else f"the one {file.word} there"
        unknowns.append(phrase("note.measured_configuration", file=file.label, which=which))
    if presumed := sum(group.presumed for group in groups):
        unknowns.append(
            f"{file.label} does not say which configuration was {file.word}: {part(presumed, len(launches), 'launch')} "
            f"{agree(presumed, 'is', 'are')} taken to have run as shown."
        )
    target = replace(target, launches=tuple(launches[launch.id] for launch in target.launches), unknowns=tuple(unknowns))
    measured_launches = len(measured.keys() & launches.keys())
    missing, spare, failures = len(launches) - measured_launches, int((~used & ~lost & ~others).sum()), int(lost.sum())
    left = f"{coverage(file.label, measured_launches, len(launches))}; {several(spare, 'row')} {agree(spare, 'belongs', 'belong')} to none"
    if aside := int(others.sum()):
        left += f"; {several(aside, 'row')} {agree(aside, 'is', 'are')} of other configurations where what runs was not {file.word}"
    left += f"; {failures} failed and {agree(failures, 'has', 'have')} no latency" if failures else ""
    return Matched(target=target, measured=measured, unmatched=left if missing or spare or failures or aside else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """Launches that share one configuration, matched.

    `used` and `lost` [rows] are those of their problems that were measured or failed, `others` those of problems that were measured with
    other configurations only, so that nothing is known of what runs; `chosen_from` is the number of configurations of which one was taken
    for what runs, 0 where that was known, `presumed` the number of launches whose rows name no configuration and are taken to have run
    with theirs.
    """

    launches: Sequence[PlannedLaunch]
    measured: Mapping[str, Measured]
    used: np.ndarray
    lost: np.ndarray
    others: np.ndarray
    chosen_from: int
    presumed: int


def _match_group(file: MeasuredFile, group: Sequence[PlannedLaunch], here: np.ndarray, target: Target) -> _Group:
    """Match launches that share one configuration with the rows `here` [rows] of their GPU."""
    usable = here & np.isfinite(file.latency) & (file.latency > 0)
    same = {launch.id: _same_problem(file.rows, launch, target, here) for launch in group}
    by_launch = {launch.id: file.chosen(usable & same[launch.id]) for launch in group}
    mine = {launch.id: _own(by_launch[launch.id], launch) for launch in group}
    chosen_from = 0
    if not any(mine.values()) and target.table is None and (tried := _fastest(by_launch, file.latency)) is not None:
        configuration, chosen_from = tried
        source = f"the fastest of {chosen_from} {file.word} in {file.label}" if chosen_from > 1 else f"as {file.word} in {file.label}"
        group = [replace(launch, configuration=configuration, source=source) for launch in group]
        mine = {launch.id: [row for row, its in by_launch[launch.id] if its == configuration] for launch in group}
    measured: dict[str, Measured] = {}
    unspecified = {row for rows in by_launch.values() for row, its in rows if its is None}
    presumed = sum(launch.configuration is not None and not unspecified.isdisjoint(mine[launch.id]) for launch in group)
    used, others = (np.zeros(len(file.rows), dtype=bool) for _ in range(2))
    for launch in group:
        (used if mine[launch.id] else others)[[row for row, _ in by_launch[launch.id]]] = True
        if mine[launch.id]:
            measured[launch.id] = replace(file.with_rounds(mine[launch.id]), others=_others(file, by_launch[launch.id], launch))
    lost = here & file.failed & np.logical_or.reduce(list(same.values()))
    return _Group(launches=group, measured=measured, used=used, lost=lost, others=others, chosen_from=chosen_from, presumed=presumed)


def _of_layers(file: MeasuredFile, target: Target, here: np.ndarray) -> dict[str, np.ndarray]:
    """Rows [rows] with a latency of whole layers, by the ids of those that have some."""
    usable, by_layer = here & np.isfinite(file.latency) & (file.latency > 0), {}
    for tokens, launches in layer_launches(target).items():
        rows = usable & _of_problem(file.rows, replace(launches[0].problem, op=LAYER), "", target)
        if rows.any():
            by_layer[layer_id(tokens)] = rows
    return by_layer


def _nothing(file: MeasuredFile, target: Target, lost: np.ndarray, others: np.ndarray) -> NothingMatchedError:
    """The error for a file without a latency of any launch; `lost` [rows]: launches of the target that failed, `others` [rows]: of its
    problems with other configurations."""
    if lost.any():
        kinds = sorted({file.rows.text["status"][row].strip() for row in np.flatnonzero(lost).tolist()})
        return NothingMatchedError(
            f"{file.label}: of {target.title} on {target.gpu.name} it has only launches that failed",
            ", ".join(kinds),
            "rows whose status is ok or empty",
            "measure a configuration whose output is right",
        )
    if count := int(others.sum()):
        return NothingMatchedError(
            f"{file.label}: no row has the configuration that a launch of {target.title} runs with",
            f"{several(count, 'row')} of its problems with other configurations",
            "what runs beside them",
            "measure that too",
        )
    none = f"{file.label}: none of {several(len(file.rows), 'row')} belongs to {target.title} on {target.gpu.name}"
    return NothingMatchedError(
        none, None, "rows with the same GPU, sizes, types, cache state and configuration", "check the columns, and --cache and --dtype"
    )


def _own(matching: Sequence[Row], launch: PlannedLaunch) -> list[int]:
    """The rows of the launch's problem that ran with its configuration; rows that name none count as that."""
    return [row for row, its in matching if its is None or (launch.configuration is not None and _same(its, launch))]


def _same(configuration: Configuration, launch: PlannedLaunch) -> bool:
    """Whether two configurations agree in all that both name, or that stands for a known value where it is not named."""
    assert launch.configuration is not None
    unnamed, optional = _unnamed(launch), _optional(launch)
    sides = [{**unnamed, **item.parameters} for item in (configuration, launch.configuration)]
    options = [(item.num_warps, item.num_stages, item.num_ctas, item.maxnreg) for item in (configuration, launch.configuration)]
    common = sides[0].keys() & sides[1].keys()
    return (
        options[0] == options[1]
        and all(sides[0][name] == sides[1][name] for name in common)
        and not any(name in side for side in sides for name in optional - common)
    )


def _unnamed(launch: PlannedLaunch) -> dict[str, int]:
    """The values of parameters that a row does not name."""
    further = FAMILY_PARAMETERS.get(launch.problem.family, {})
    return {**CONFIG_DEFAULTS, **{name: value for name, value in further.items() if value is not None}}


def _optional(launch: PlannedLaunch) -> frozenset[str]:
    """Parameters without which a kernel is another kernel: one that has no BLOCK_SIZE takes its rows whole."""
    return frozenset(name for name, value in FAMILY_PARAMETERS.get(launch.problem.family, {}).items() if value is None)


def _others(file: MeasuredFile, matching: Sequence[Row], launch: PlannedLaunch) -> tuple[tuple[Configuration, Latency], ...]:
    """Other configurations measured for the launch's problem; none where its own configuration is not known."""
    if launch.configuration is None:
        return ()
    today = launch.configuration.parameters
    unnamed = {name: value for name, value in {**today, **_unnamed(launch)}.items() if name in today and name not in _optional(launch)}
    rows: dict[str, list[int]] = defaultdict(list)
    known: dict[str, Configuration] = {}
    for row, its in matching:
        if its is not None and not _same(its, launch):
            whole = replace(its, parameters={**unnamed, **its.parameters})
            known.setdefault(repr(whole), whole)
            rows[repr(whole)].append(row)
    return tuple((its, file.median(rows[key])) for key, its in known.items())


def _fastest(by_launch: Mapping[str, Sequence[Row]], latency: np.ndarray) -> tuple[Configuration, int] | None:
    """Of the configurations that all launches of a group were measured with, the one whose medians sum to least, and how many there
    were; launches of which nothing was measured have no say. None: there is no such configuration."""
    sides: list[dict[str, list[float]]] = []
    known: dict[str, Configuration] = {}
    for rows in by_launch.values():
        times: dict[str, list[float]] = defaultdict(list)
        for row, configuration in rows:
            if configuration is not None:
                known.setdefault(repr(configuration), configuration)
                times[repr(configuration)].append(float(latency[row]))
        if times:
            sides.append(times)
    common = [key for key in known if all(key in times for times in sides)]
    return (known[min(common, key=lambda key: sum(median(times[key]) for times in sides))], len(common)) if common else None


def _on_gpu(rows: Rows, target: Target) -> np.ndarray:
    if "gpu" not in rows.header:
        return np.ones(len(rows), dtype=bool)
    names = np.asarray(rows.text["gpu"], dtype=object)
    same = {name for name in set(rows.text["gpu"]) if (gpu_name := match_device_name(name)) and gpu_name.name == target.gpu.name}
    return np.isin(names, list(same | {target.gpu.name}))


def _same_problem(rows: Rows, launch: PlannedLaunch, target: Target, here: np.ndarray) -> np.ndarray:
    """Rows of the launch's problem, by what the file has columns for.

    Of a table's float32 they may stand under either of its types (`row_dtypes`): where both are `here` [rows], the launch's own counts,
    since exact products and those of tf32 are different launches.
    """
    dtypes = (launch.problem.dtype,) if target.table is None else row_dtypes(launch.problem.dtype)
    candidates = [_of_problem(rows, replace(launch.problem, dtype=dtype), launch.kernel, target) for dtype in dtypes]
    return next((same for same in candidates if (same & here).any()), candidates[0])


def _of_problem(rows: Rows, problem: Problem, kernel: str, target: Target) -> np.ndarray:
    """Rows of a problem, as they say it."""
    same = (rows.family == problem.family) & (rows.op == problem.op)
    for name, value in problem.sizes.items():
        same &= rows.columns[name] == value if name in rows.columns else False
    if "dtype" in rows.header:
        same &= rows.dtype == problem.dtype
    result = result_dtype(problem.dtype)  # of a launch that does not say
    same &= _cells(rows, "weight_dtype", lambda cell: (_dtype(cell) or problem.dtype) == (problem.weight_dtype or problem.dtype))
    same &= _cells(rows, "output_dtype", lambda cell: (_dtype(cell) or result) == (problem.output_dtype or result))
    same &= _cells(rows, "cache", lambda cell: (cell or "warm") == problem.cache)
    same &= _cells(rows, "routing", lambda cell: not cell or _is_routing(cell, problem))
    if target.table is not None:  # which kernel serves a table is the stack's word, and rows may call it otherwise
        return same & _cells(rows, "block_shape", lambda cell: _says(cell, problem.block_shape or ()))
    # A bundled kernel scales fp8 by blocks without its target saying so; another kernel of its family is not it.
    return same & _cells(rows, "kernel", lambda cell: cell in ("", kernel.lower()))


def _cells(rows: Rows, name: str, agrees: Callable[[str], bool]) -> np.ndarray:
    """Where the cells of a column agree; everywhere, where there is no such column."""
    cells = rows.text.get(name)
    if cells is None:
        return np.ones(len(rows), dtype=bool)
    known = {cell for cell in set(cells) if agrees(cell.strip().lower())}
    return np.array([cell in known for cell in cells], dtype=bool)


def _dtype(cell: str) -> str:
    return DTYPES.get(cell.removeprefix("torch."), cell)


def _is_routing(cell: str, problem: Problem) -> bool:
    """Whether a cell says the routing of a problem; one that is no routing is of none."""
    try:
        return Routing.read(cell) == Routing(distribution=problem.distribution, slots=problem.routing)
    except InputError:
        return False


def _says(cell: str, numbers: Sequence[int]) -> bool:
    """Whether `128 128` or `[128, 128]` is these numbers."""
    return [digits.lstrip("0") or "0" for digits in re.findall(r"[0-9]+", cell)] == [str(number) for number in numbers]
