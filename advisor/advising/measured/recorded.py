"""Times that a profile gives to recorded launches: by kernel name and grid. What is ambiguous stays without, and is said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from advisor.compiled.launch_report import KernelTarget
from advisor.measurement.importers import read_profile
from advisor.measurement.importers.matching import same_name
from advisor.system.errors import InputError


def timed(targets: Sequence[KernelTarget], path: str) -> tuple[list[KernelTarget], list[str]]:
    """The launches with the medians of a profile (Nsight Compute, torch's profiler, Proton), and what it lacks, in words.

    Raises:
        InputError: It is no profile.
    """
    profile = read_profile(path)
    if profile is None:
        takes = "ncu --csv, a Chrome trace of torch's profiler, or Proton's .hatchet"
        raise InputError(f"{path}: no profile", None, takes, "profile it again")
    found, lacking = [], []
    for target in targets:
        grid = _whole(target.launch.grid)
        alike = [each for each in targets if each.launch.kernel == target.launch.kernel and _whole(each.launch.grid) == grid]
        named = [each for each in targets if each.launch.kernel == target.launch.kernel]
        of_it = [each for each in profile.records if same_name(each.name, target.launch.kernel)]
        # Proton says no grid: its time is one launch's only where there is one launch.
        mine = [each for each in of_it if (_whole(each.grid) == grid and len(alike) == 1) or (not each.grid and len(named) == 1)]
        samples = [sample for each in mine for sample in each.samples_us]
        if samples:
            target = replace(target, measured_us=median(samples), device=mine[0].gpu or target.device)
        else:
            why = "several launches fit it" if of_it else "no kernel of that name is in it"
            lacking.append(f"{path}: no time for {target.id} ({why})")
        found.append(target)
    return found, lacking


def _whole(grid: Sequence[int] | None) -> tuple[int, ...]:
    return (*(grid or ()), 1, 1, 1)[:3]
