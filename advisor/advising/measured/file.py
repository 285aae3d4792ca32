"""A file of measured rows: its latencies, which of them are simulated, and which launches failed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from advisor.advising.choice import Measured
from advisor.measurement.measured_rows import read_rounds
from advisor.measurement.row_source import RowSource, read_configuration
from advisor.measurement.statistics import CONFIDENCE, median_interval
from advisor.result.schema import Configuration, Latency, MeasuredRounds
from advisor.rows.cells import failed
from advisor.rows.rows import Rows, parse_rows, read_rows
from advisor.rows.types_and_origin import simulated_rows
from advisor.system.errors import InputError, agree, part

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
        if len(sources) == 1 and (found := median_interval(rounds)) is not None:
            latency = replace(latency, us=found[0], low_us=found[1], high_us=found[2], coverage=CONFIDENCE)
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
