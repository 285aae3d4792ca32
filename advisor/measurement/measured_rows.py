"""Measured launches as rows of a CSV file, and back.

The columns are those of the published measurements (`advisor.rows.rows`), then what was measured: samples by round
(rounds separated by `;`, samples by blanks), clocks, what was discarded and why, the A/A floor, the bound, and the fingerprint.
`timer` says how: graph or events (`devices.cuda`), or simulated.
Configuration parameters that have no column of their own are in `parameters`, as JSON.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec
from advisor.measurement.launch import FAILURE_KINDS, MESSAGE_LIMIT, Failure, Launch, Outcome
from advisor.measurement.row_source import CONFIGURATION_COLUMNS, OPTION_COLUMNS, PARAMETER_COLUMNS, RowSource, read_configuration
from advisor.measurement.statistics import median_interval, outliers
from advisor.result.schema import Configuration, Fingerprint, Problem, Round
from advisor.rows.cells import LATENCY_LIMIT, failed, is_latency
from advisor.rows.rows import SIZE_COLUMNS, Rows
from advisor.rows.rows import read_rows as read_columns
from advisor.rows.types_and_origin import read_stored_types
from advisor.system.errors import AdvisorError, InputError, UsageError
from advisor.system.writing import unwritable
from advisor.tables.routing import Routing

PROBLEM_COLUMNS = ("gpu", "family", "op", "gemm", "dtype", "weight_dtype", "output_dtype", "block_shape", "cache", "routing", "kernel")
MEASURED_COLUMNS = (
    "latency_us",
    "low_us",
    "high_us",
    "status",
    "reason",
    "rounds",
    "outliers",
    "noise_floor",
    "bound_us",
    "fault",
    "timer",
    "throttle",
    "temperature_c",
    "power_w",
    "samples_us",
    "clocks_mhz",
    "discarded",
    "session",
    "fingerprint",
)
HEADER = (*PROBLEM_COLUMNS, *SIZE_COLUMNS, *PARAMETER_COLUMNS, *OPTION_COLUMNS, "parameters", *MEASURED_COLUMNS)
_PROBLEM_CELLS = (*(name for name in PROBLEM_COLUMNS if name not in ("gpu", "kernel")), *SIZE_COLUMNS)
"""All that says what problem a row is of."""

OK = "ok"
DISCARDED = "discarded"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """One row, read. `latency_us` None: it failed, or the file does not say."""

    gpu: str
    kernel: str
    problem: Problem
    configuration: Configuration | None
    latency_us: float | None
    status: str = OK
    rounds: tuple[Round, ...] = ()
    noise_floor: float | None = None
    session: str | None = None
    fingerprint: Fingerprint | None = None
    failure: Failure | None = None
    cells: Mapping[str, str] = field(default_factory=dict)

    @property
    def lasting(self) -> bool:
        """Whether measuring it again would give the same: it has a latency, or the configuration itself is why it has none."""
        return self.latency_us is not None or (self.failure is not None and self.failure.lasting)

    def key(self) -> str:
        """The row's `row_key`."""
        return row_key(self.gpu, self.kernel, self.problem, self.configuration)


def row_key(gpu: str, kernel: str, problem: Problem, configuration: Configuration | None) -> str:
    """The identity of a row's launch: the same for one launch on one model of GPU, on whatever machine."""
    flat = {} if configuration is None else asdict(configuration)
    return json.dumps([gpu, kernel, asdict(problem), flat], sort_keys=True)


def bound_us(problem: Problem, gpu: GpuSpec | None) -> float | None:
    """The problem's bound in microseconds; None where the GPU or the operator has no model."""
    if gpu is None:
        return None

    try:
        batch = pipelines.problem_batch([problem])
        bound = pipelines.bound(pipelines.work(batch, gpu), gpu, batch.cache)
    except (AdvisorError, KeyError, ZeroDivisionError):
        return None
    value = float(np.ravel(bound.us)[0])
    return value if math.isfinite(value) else None


def row_of(launch: Launch, outcome: Outcome, *, gpu: str, fingerprint: Fingerprint, session: str, bound: float | None) -> dict[str, str]:
    """The cells of one outcome, by column."""
    problem, configuration = launch.problem, launch.configuration
    cells: dict[str, Any] = {
        "gpu": gpu,
        "family": problem.family,
        "op": problem.op,
        "gemm": problem.op if problem.family == "fused_moe" else "",
        "dtype": problem.dtype,
        "weight_dtype": problem.weight_dtype,
        "output_dtype": problem.output_dtype,
        "cache": problem.cache,
        "block_shape": None if problem.block_shape is None else " ".join(map(str, problem.block_shape)),
        "routing": str(routing) if (routing := Routing(distribution=problem.distribution, slots=problem.routing)) != Routing() else None,
        "kernel": launch.kernel.function,
        "num_warps": configuration.num_warps,
        "num_stages": configuration.num_stages,
    }
    parameters = dict(configuration.parameters)
    cells |= {name: parameters.pop(name, None) for name in PARAMETER_COLUMNS}
    if configuration.num_ctas != 1:
        parameters["num_ctas"] = configuration.num_ctas
    if configuration.maxnreg is not None:
        parameters["maxnreg"] = configuration.maxnreg
    cells["parameters"] = json.dumps(parameters, sort_keys=True) if parameters else None
    sizes = dict(problem.sizes)
    cells |= {name: sizes.pop(name, None) for name in SIZE_COLUMNS}
    if sizes:
        raise InputError(f"{launch.kernel.label}: sizes without a column", ", ".join(sizes), f"sizes of {', '.join(SIZE_COLUMNS)}")
    cells |= _measured_cells(outcome, bound)
    known = {name: value for name, value in asdict(fingerprint).items() if value is not None}
    cells |= {"session": session, "fingerprint": json.dumps(known, sort_keys=True)}
    return {name: _text(cells.get(name)) for name in HEADER}


def _measured_cells(outcome: Outcome, bound: float | None) -> dict[str, Any]:
    interval = median_interval(outcome.rounds) if outcome.failure is None else None
    cells: dict[str, Any] = {"bound_us": bound, "timer": outcome.timer}
    if outcome.failure is not None:
        cells |= {"status": outcome.failure.kind, "reason": f"{outcome.failure.stage}: {outcome.failure.message}"[:MESSAGE_LIMIT]}
        return cells
    cells |= {
        "status": OK,
        "rounds": sum(r.discarded is None for r in outcome.rounds),
        "outliers": outliers(outcome.rounds),
        "noise_floor": outcome.noise_floor,
        "throttle": " ".join(outcome.throttle),
        "temperature_c": outcome.temperature_c,
        "power_w": outcome.power_w,
        "samples_us": ";".join(" ".join(f"{s:.6g}" for s in r.samples_us) for r in outcome.rounds),
        "clocks_mhz": ";".join("" if r.sm_clock_mhz is None else f"{r.sm_clock_mhz:g}" for r in outcome.rounds),
        "discarded": json.dumps({i: r.discarded for i, r in enumerate(outcome.rounds) if r.discarded}),
    }
    if cells["discarded"] == "{}":
        cells["discarded"] = None
    if interval is None:
        return cells | {"status": DISCARDED, "reason": "no round counts: the clock was too low in all of them"}
    cells |= {"latency_us": interval[0], "low_us": interval[1], "high_us": interval[2]}
    if bound is not None and interval[0] < bound:
        cells["fault"] = "faster than the bound: model or measurement fault"
    return cells


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    # One line per row is what makes a partial last line recognisable.
    return re.sub(r"[\x00-\x1f\x7f]+", " ", str(value))


def line_of(cells: Mapping[str, str]) -> str:
    """One row as a line of the file, line end included."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerow([cells.get(name, "") for name in HEADER])
    return out.getvalue()


def read_measured(path: str | os.PathLike[str]) -> Iterator[MeasuredRow]:
    """The rows of any ROWS file: what `advisor measure` wrote, or published measurements (sweep summaries too).

    In place of a failure that need not last stands the last row of the same launch.

    Raises:
        InputError: It cannot be read, or a cell is off; names file, row, column, value and remedy.
    """
    # Configuration cells are read here: rows of kernels without the three block sizes are as good as any.
    reader = _Reader(read_columns(path, problems_only=True), os.path.basename(os.fspath(path)))  # noqa: PTH119
    rows = [reader.row(i) for i in range(len(reader.rows))]
    retried = {row.key() for row in rows if row.failure is not None and not row.lasting}
    latest: dict[object, MeasuredRow] = {}  # in the order of the first row of each
    for i, row in enumerate(rows):
        latest[row.key() if retried and row.key() in retried else i] = row
    yield from latest.values()


class _Reader:
    """Reads rows one by one. What the cells of a problem or a configuration say is read where they first occur: sweeps repeat both."""

    def __init__(self, rows: Rows, label: str) -> None:
        self.rows, self.label = rows, label
        self._summary = "default_us" in rows.header and "latency_us" not in rows.header
        self._prefix = "default_" if self._summary else ""
        self._of_problem = [rows.text[name] for name in _PROBLEM_CELLS if name in rows.text]
        configuration = (*(self._prefix + name for name in CONFIGURATION_COLUMNS), "parameters")
        self._of_configuration = [rows.text[name] for name in configuration if name in rows.text]
        self._problems: dict[tuple[str, ...], Problem] = {}
        self._configurations: dict[tuple[str, ...], Configuration | None] = {}

    def row(self, i: int) -> MeasuredRow:
        """A row, from 0.

        Raises:
            InputError: A cell is off.
        """
        source = RowSource(self.label, i + 1, {name: cells[i] for name, cells in self.rows.text.items()})
        key = tuple([cells[i] for cells in self._of_problem])
        if (problem := self._problems.get(key)) is None:
            problem = self._problems[key] = self._problem(source, i)
        status, failure = source.get("status").lower() or OK, _read_failure(source)  # what failed has no speed
        column = "default_us" if self._summary else "latency_us"
        latency = source.number(column) if failure is None else None
        if latency is not None and not is_latency(latency):
            raise source.error(column, LATENCY_LIMIT)
        key = tuple([cells[i] for cells in self._of_configuration])
        if key not in self._configurations:
            self._configurations[key] = read_configuration(source, self._prefix)
        return MeasuredRow(
            gpu=source.get("gpu"),
            kernel=source.get("kernel"),
            problem=problem,
            configuration=self._configurations[key],
            latency_us=latency,
            status=status,
            rounds=read_rounds(source) if failure is None else (),
            noise_floor=source.number("noise_floor"),
            session=source.get("session") or None,
            fingerprint=_read_fingerprint(source),
            failure=failure,
            cells=source.cells,
        )

    def _problem(self, source: RowSource, i: int) -> Problem:
        rows = self.rows
        sizes = {n: int(rows.columns[n][i]) for n in SIZE_COLUMNS if n in rows.columns and source.get(n)}
        if rows.family[i] == "attention":
            sizes.setdefault("H_kv", sizes["H"])
        where = f"{source.label}: row {source.row}"
        routing = Routing.read(source.get("routing") or "balanced", f"{where}: routing", sizes.get("E"))
        stored = read_stored_types(source.cells, where)
        cache = source.get("cache").lower() or "warm"
        if cache not in ("warm", "cold"):
            raise source.error("cache", "warm or cold")
        return Problem(
            family=str(rows.family[i]),  # type: ignore[arg-type]
            op=str(rows.op[i]),
            sizes=sizes,
            dtype=str(rows.dtype[i]),  # type: ignore[arg-type]
            weight_dtype=stored.weight_dtype,
            output_dtype=stored.output_dtype,  # type: ignore[arg-type]
            block_shape=stored.block_shape,
            routing=routing.slots,
            distribution=routing.distribution,
            cache=cache,  # type: ignore[arg-type]
        )


def _read_failure(source: RowSource) -> Failure | None:
    status = source.get("status").lower()
    if not status or not failed(status):
        return None
    if status not in FAILURE_KINDS:
        return Failure(kind="crash", message=f"status {status}: {source.get('reason')}"[:MESSAGE_LIMIT], stage="")
    stage, _, message = source.get("reason").partition(": ")
    return Failure(kind=status, message=message, stage=stage)


def read_rounds(source: RowSource) -> tuple[Round, ...]:
    """The rounds of a row, none where it has no samples.

    Raises:
        InputError: A cell is off.
    """
    if not source.get("samples_us"):
        return ()
    discarded = source.document("discarded")
    groups = source.get("samples_us").split(";")
    clocks = source.get("clocks_mhz").split(";") if source.get("clocks_mhz") else [""] * len(groups)
    if len(clocks) != len(groups):
        raise source.error("clocks_mhz", f"one clock per round ({len(groups)})")
    try:
        rounds = tuple(
            Round(
                samples_us=tuple(float(s) for s in group.split()),
                sm_clock_mhz=float(clock) if clock else None,
                discarded=discarded.get(str(i)),
            )
            for i, (group, clock) in enumerate(zip(groups, clocks, strict=True))
        )
    except ValueError:
        raise source.error("samples_us", "numbers: samples separated by blanks, rounds by semicolons") from None
    if not all(is_latency(sample) for round_ in rounds for sample in round_.samples_us):
        raise source.error("samples_us", f"samples that are each {LATENCY_LIMIT}")
    return rounds


def _read_fingerprint(source: RowSource) -> Fingerprint | None:
    values = source.document("fingerprint")
    if not values:
        return None
    try:
        return Fingerprint(**values)
    except TypeError:
        raise source.error("fingerprint", "the fields of a fingerprint") from None


_HEADER_LINE = ",".join(HEADER) + "\n"


class Journal:
    """An open rows file; a context manager. What is in it survives a kill at any moment, and tells what need not be measured again.

    A row is one line, written by one `write` to a file opened for appending and synced to the disk before the next batch begins. A
    last line without its end is what a killed writer left: it is cut off before anything is appended. One writer at a time.

    A failure that may have been the machine's is measured again when the run goes on; its old row stays in the file, and
    `read_measured` gives the new one in its place.
    """

    def __init__(self, path: str | os.PathLike[str], *, resume: bool = True) -> None:
        """Opens or creates the file, and repairs its end.

        Raises:
            UsageError: It cannot be written, somebody else is writing it, or it has rows and `resume` is False.
            InputError: It is there, but is not a file of measured rows.
        """
        self.path = Path(path)
        self.repaired_bytes = 0
        self.rows: tuple[MeasuredRow, ...] = ()
        if self.path.suffix == ".gz":
            raise UsageError("rows cannot be appended to a compressed file", str(path), "a .csv file", "compress it afterwards")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o644)
        except OSError as error:
            raise unwritable(path, error, "choose another file with -o") from None
        try:
            self._lock()
            self._open(resume)
        except BaseException:
            os.close(self._descriptor)
            raise

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # not a POSIX system
            return
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            remedy = "wait for it, or choose another file with -o"
            raise UsageError(f"{self.path}: another run is writing to it", None, None, remedy) from None
        except OSError:  # a file system that has no locks (some network and shared folders): nobody else is known to write
            return

    def _open(self, resume: bool) -> None:
        size = os.fstat(self._descriptor).st_size
        text = self.path.read_bytes() if size else b""  # size 0: also what is no file
        whole = text.rfind(b"\n") + 1
        if whole == 0 and not _HEADER_LINE.encode().startswith(text):
            raise self._foreign()  # one line that is not ours: not to be cut off
        self.repaired_bytes = size - whole
        if self.repaired_bytes:
            os.ftruncate(self._descriptor, whole)
        if whole == 0:
            self._write(_HEADER_LINE)
            return
        header = next(csv.reader([text[: text.find(b"\n")].decode(errors="replace")]), [])
        if tuple(header) != HEADER:
            raise self._foreign()
        if whole > len(_HEADER_LINE):
            if not resume:
                raise UsageError(f"{self.path}: has rows already", None, None, "choose another file with -o, or let it resume")
            os.fsync(self._descriptor)
            self.rows = tuple(read_measured(self.path))

    def _foreign(self) -> InputError:
        what = f"{self.path}: is not a file that `advisor measure` wrote"
        return InputError(what, "another header", "its own columns", "choose another file with -o")

    def keys(self) -> set[str]:
        """The launches that the file had when it was opened and that need no further try: lasting failures included, others not."""
        return {row.key() for row in self.rows if row.lasting}

    def append(self, rows: Sequence[dict[str, str]]) -> None:
        """Appends rows, and returns when they are on the disk.

        Raises:
            UsageError: They cannot be written; the file then ends with whole rows.
        """
        self._write("".join(line_of(cells) for cells in rows))

    def _write(self, text: str) -> None:
        data = text.encode()
        end = os.fstat(self._descriptor).st_size
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
            os.fsync(self._descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, end)
            raise unwritable(self.path, error, "choose another file with -o") from None

    def close(self) -> None:
        """Closes the file; the lock goes with it."""
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
