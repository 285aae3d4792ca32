"""Reading what profilers measured: Nsight Compute (CSV), torch's profiler (Chrome trace), Proton (`.hatchet`).

A profiler knows a kernel's name and shape, not the problem it computes: records are matched to launches that the caller names,
and everything without a match is said, with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from advisor.gpus.hardware import GpuSpec
from advisor.measurement.importers import profilers
from advisor.measurement.importers.record import TEXT_LIMIT_BYTES, KernelRecord, Match, clean, match, parse_json
from advisor.measurement.launch import Launch
from advisor.system.errors import InputError
from advisor.system.reading import read_text

NSIGHT_COMPUTE = "nsight-compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The kernels of a profile.

    Attributes:
        format: nsight-compute, torch-profiler or proton.
        records: What it says of each kernel.
        matches: Records that belong to a launch asked for.
        unmatched: Why each other record (or part of the file) was left out.
        missing: Launches asked for without a record.
    """

    format: str
    records: tuple[KernelRecord, ...] = ()
    matches: tuple[Match, ...] = ()
    unmatched: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def read_profile(path: str | os.PathLike[str], launches: Sequence[Launch] = (), gpu: GpuSpec | None = None) -> Profile | None:
    """Reads a profile of any of the formats; what it is shows in its contents. None: it is no profile, but rows, or some other text.

    Args:
        path: The file, plain or gzipped.
        launches: What the profile is matched to.
        gpu: Where they ran; needed to match by CTAs.

    Raises:
        InputError: It cannot be read, or is JSON of another kind.
    """
    label = os.path.basename(os.fspath(path))  # noqa: PTH119
    return parse_profile(read_text(path, label, "a profile or a CSV file", TEXT_LIMIT_BYTES, unpack=True), label, launches, gpu)


def parse_profile(text: str, label: str, launches: Sequence[Launch] = (), gpu: GpuSpec | None = None) -> Profile | None:
    """As `read_profile`, from text; `label` is what errors call the file."""
    if text.lstrip()[:1] in ("{", "["):
        document = parse_json(text, label)
        if profilers.is_torch_profiler(document):
            name, (records, notes) = "torch-profiler", profilers.parse_torch_profiler(document, label)
        elif profilers.is_proton(document):
            name, (records, notes) = "proton", profilers.parse_proton(document, label)
        else:
            got = "a list" if isinstance(document, list) else f"the keys {', '.join(map(clean, document)) or '(none)'}"
            raise InputError(
                f"{label}: JSON, but no profile",
                got,
                "rows (CSV), ncu --csv, or a Chrome trace of torch's profiler",
                "give what advisor measure or the profiler wrote",
            )
    elif profilers.is_nsight_compute(text):
        name, (records, notes) = NSIGHT_COMPUTE, profilers.parse_nsight_compute(text, label)
    else:
        return None
    matches, unmatched, missing = match(records, launches, gpu)
    return Profile(format=name, records=records, matches=matches, unmatched=(*notes, *unmatched), missing=missing)


__all__ = ["NSIGHT_COMPUTE", "KernelRecord", "Match", "Profile", "match", "parse_profile", "read_profile"]
