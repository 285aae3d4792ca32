"""Reading what others measured: rows (CSV), Nsight Compute (CSV), torch's profiler (Chrome trace), Proton (`.hatchet`).

A profiler knows a kernel's name and shape, not the problem it computes: records are matched to launches that the caller names,
and everything without a match is said, with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.configs.rows import Rows, parse_rows
from advisor.errors import InputError
from advisor.hardware import GpuSpec
from advisor.measurement.importers import nsight_compute, proton, torch_profiler
from advisor.measurement.importers.matching import Match, match
from advisor.measurement.importers.record import TEXT_LIMIT_BYTES, KernelRecord, parse_json
from advisor.measurement.launch import Launch
from advisor.measurement.rows import MeasuredRow, measured_rows
from advisor.reading import read_text

FORMATS = ("rows", "nsight-compute", "torch-profiler", "proton")


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What a file held.

    Attributes:
        format: One of `FORMATS`.
        rows: Of a rows file: the rows with a latency.
        records: Of a profile: what it says of each kernel.
        matches: Records that belong to a launch asked for.
        unmatched: Why each other record (or row, or part of the file) was left out.
        missing: Launches asked for without a record.
    """

    format: str
    rows: tuple[MeasuredRow, ...] = ()
    records: tuple[KernelRecord, ...] = ()
    matches: tuple[Match, ...] = ()
    unmatched: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def import_file(path: str | os.PathLike[str], launches: Sequence[Launch] = (), gpu: GpuSpec | None = None) -> Imported:
    """Reads a file of any of the formats; what it is shows in its contents.

    Args:
        path: The file, plain or gzipped.
        launches: What profiles are matched to.
        gpu: Where they ran; needed to match by CTAs.

    Raises:
        InputError: It cannot be read, or is none of the formats.
    """
    label = os.path.basename(os.fspath(path))  # noqa: PTH119
    text = read_text(path, label, "a profile or a CSV file", TEXT_LIMIT_BYTES, unpack=True)
    if text.lstrip()[:1] in ("{", "["):
        document = parse_json(text, label)
        if torch_profiler.is_torch_profiler(document):
            name, (records, notes) = "torch-profiler", torch_profiler.parse(document, label)
        elif proton.is_proton(document):
            name, (records, notes) = "proton", proton.parse(document, label)
        else:
            raise InputError(f"{label}: JSON, but no profile", None, "a Chrome trace of torch's profiler, or Proton's .hatchet")
    elif nsight_compute.is_nsight_compute(text):
        name, (records, notes) = "nsight-compute", nsight_compute.parse(text, label)
    else:
        return _rows(parse_rows(text, label, os.fspath(path), problems_only=True), label)
    matches, unmatched, missing = match(records, launches, gpu)
    return Imported(format=name, records=records, matches=matches, unmatched=(*notes, *unmatched), missing=missing)


def _rows(read: Rows, label: str) -> Imported:
    rows, unmatched = [], []
    for i, row in enumerate(measured_rows(read, label), start=1):
        if row.latency_us is None:
            unmatched.append(f"row {i}: no latency ({row.status})")
        else:
            rows.append(row)
    return Imported(format="rows", rows=tuple(rows), unmatched=tuple(unmatched))


__all__ = ["FORMATS", "Imported", "KernelRecord", "Match", "import_file", "match"]
