"""Recorded launches (`advisor record`) as the problems a changed kernel is compared on: what a program really asked of it.

A record says with which shapes, types and constants a kernel ran; the KERNELS literal of the kernel's file, or `family` and `sizes` in
advisor.toml, say which problem that is. A record is data: nothing of it is run.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from advisor.autotuning.recognise import canonical_problem, problem_of_record
from advisor.comparison.settings import KernelSettings
from advisor.pipelines import problem_batch
from advisor.result.schema import Problem
from advisor.rows.launches import RecordedLaunch, read_launches
from advisor.system.errors import AdvisorError

# What a damaged record can make an expression raise, besides our own errors.
_ODD = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Launches of records, with the file of each kernel as it was called where it was recorded."""

    launches: tuple[tuple[RecordedLaunch, str], ...] = ()
    files: tuple[str, ...] = ()

    def of(self, path: str, name: str) -> list[RecordedLaunch]:
        """The launches of a kernel, the most costly first; trials of autotuners are left out.

        A record names files as they lay on its machine: the kernel's is the one whose path ends like `path`; where none does (an
        installed package, a copy), one of the same file name.
        """
        found = [(launch, file) for launch, file in self.launches if launch.kernel == name and not launch.tuning]
        wanted = PurePosixPath(path).parts
        same = [launch for launch, file in found if PurePosixPath(file).parts[-len(wanted) :] == wanted]
        chosen = same or [launch for launch, file in found if PurePosixPath(file).name == PurePosixPath(path).name]
        return sorted(chosen, key=lambda launch: (-launch.cost_us, -launch.count, launch.id))


def read_recorded(files: Iterable[tuple[str, Path | bytes]]) -> Recorded:
    """The launches of record files, each given as (name, path or content).

    Raises:
        InputError: One cannot be read, or is no record.
    """
    launches: list[tuple[RecordedLaunch, str]] = []
    names = []
    for name, content in files:
        if isinstance(content, bytes):
            with tempfile.TemporaryDirectory(prefix="advisor-compare-") as folder:
                path = Path(folder, PurePosixPath(name).name or "record")
                path.write_bytes(content)
                records = read_launches(path)
        else:
            records = read_launches(content)
        names.append(name)
        launches += [(each, records.sources[each.source][0]) for each in records.launches if each.source and each.source in records.sources]
    return Recorded(launches=tuple(launches), files=tuple(names))


def recorded_problems(
    recorded: Recorded, paths: Sequence[str], names: Sequence[str], entry: Mapping[str, Any], said: KernelSettings
) -> tuple[list[Problem], list[str]]:
    """The problems that a kernel was launched on, each once, the most costly first; and what is to be said of them.

    Of the paths of its file, and of its names, the first that launches were recorded of counts.
    """
    launches = next((found for path in paths for name in names if (found := recorded.of(path, name))), [])
    if not launches:
        return [], []
    described = _described(entry, said, launches[0])
    if described is None:
        return [], [
            f"{len(launches)} recorded launches were not used: neither a KERNELS literal nor `family` and `sizes` in advisor.toml "
            "say which problem a launch is."
        ]
    problems: dict[str, Problem] = {}
    reasons: list[str] = []
    for launch in launches:
        try:
            problem = problem_of_record(described, launch)
            problem_batch([problem])
            problems.setdefault(canonical_problem(problem), problem)
        except (AdvisorError, *_ODD) as error:
            reasons.append(str(error))
    notes = []
    if problems:
        words = "problem" if len(problems) == 1 else "problems"
        notes.append(
            f"Compared on the {len(problems)} {words} of {sum(each.count for each in launches):,} recorded launches "
            f"({', '.join(recorded.files)})."
        )
    if reasons:
        notes.append(f"{len(reasons)} of {len(launches)} recorded launches were not understood: {reasons[0]}")
    return list(problems.values()), notes


def _described(entry: Mapping[str, Any], said: KernelSettings, launch: RecordedLaunch) -> Mapping[str, Any] | None:
    """An entry as of a KERNELS literal: the file's own, unless advisor.toml describes the kernel."""
    if said.family is not None and said.sizes:
        tensors = sorted(launch.tensors, key=lambda each: -len(launch.tensors[each].get("shape", ())))
        op = said.op or said.family
        return {"family": said.family, "ops": {op: {"sizes": dict(said.sizes)}}, "dtype": said.dtype or (tensors[0] if tensors else "")}
    return entry if isinstance(entry.get("ops"), dict) and "family" in entry else None


def merged(named: Sequence[Problem], recorded: Sequence[Problem]) -> list[Problem]:
    """The problems that were named, then those recorded that are not among them."""
    known = {canonical_problem(each) for each in named}
    return [*named, *(each for each in recorded if canonical_problem(each) not in known)]


__all__ = ["Recorded", "merged", "read_recorded", "recorded_problems"]
