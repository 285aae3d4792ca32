"""Measured latencies from a file, a profile or rows, matched to the launches of a target, recorded ones by kernel name and grid."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from advisor.advising.choice import Measured
from advisor.advising.measured.row_matching import Matched, coverage, match, read_file
from advisor.advising.targets import Target
from advisor.compiled.launch_report import KernelTarget
from advisor.compiled.launches.records import recorded_id
from advisor.measurement.importers import NSIGHT_COMPUTE, TEXT_LIMIT_BYTES, KernelRecord, parse_profile, read_profile, same_name
from advisor.measurement.kernel_file import KernelRef
from advisor.measurement.launch import Launch
from advisor.result.schema import Latency, MeasuredRounds, Round
from advisor.system.errors import InputError, NothingMatchedError
from advisor.system.reading import read_text

REASONS_SHOWN = 4


BENCHMARK_MOE = re.compile(r"Batch size: (\d+)\b.*?Kernel time: ([\d.]+) us", re.DOTALL)
"""What vLLM's and SGLang's `benchmark_moe.py` print of a layer."""


def match_file(target: Target, path: str | os.PathLike[str]) -> Matched:
    """Latencies of a target's launches from a profile of Nsight Compute or torch's profiler, from what `benchmark_moe.py` prints (of whole
    layers), or else from rows (`row_matching.match`).

    A kernel of a profile belongs to a launch when name, threads per CTA and CTAs agree, as far as the profiler says them, and with no
    other launch; one of which the profiler says the name alone (Proton's) belongs to none. Several runs give their median, with least
    and greatest as the interval.

    Raises:
        InputError: The file cannot be read.
        NothingMatchedError: None of its kernels or rows belongs to any launch.
    """
    label = Path(path).name
    text = read_text(path, label, "a profile or a CSV file", TEXT_LIMIT_BYTES, unpack=True)  # once: it may be a pipe
    if timed := BENCHMARK_MOE.findall(text):
        text = _rows_of_layers(timed, target)
    planned = {
        launch.id: Launch(kernel=KernelRef(file="", function=launch.kernel), problem=launch.problem, configuration=launch.configuration)
        for launch in target.launches
        if launch.configuration is not None
    }
    profile = parse_profile(text, label, list(planned.values()), target.gpu)
    if profile is None:
        return match(target, path, text)
    if not planned:
        raise NothingMatchedError(
            f"{label}: a profile does not say which configuration ran, and neither does {target.title}",
            None,
            "a tuned table, or rows with the configuration's columns",
            "give --measured ROWS.csv",
        )
    if profile.records and not any(_has_shape(record) for record in profile.records):
        raise NothingMatchedError(
            f"{label}: has neither threads per CTA nor CTAs of its kernels, so their launches are unknown",
            f"a profile of {profile.format}",
            "a profile of Nsight Compute or torch's profiler",
            "profile with ncu --csv --page raw, or give --measured ROWS.csv",
        )
    by_launch: dict[str, list[KernelRecord]] = defaultdict(list)
    shapeless = []
    for item in profile.matches:
        if _has_shape(item.record):
            by_launch[item.launch.key()].append(item.record)
        else:
            shapeless.append(f"{item.record.name}: neither its threads per CTA nor its CTAs are known")
    measured = {name: _measured(by_launch[launch.key()], label) for name, launch in planned.items() if launch.key() in by_launch}
    names = tuple({launch.kernel for launch in target.launches})
    reasons = sorted((*profile.unmatched, *shapeless), key=lambda reason: not reason.startswith(names))  # kernels of other names say least
    summary = "; ".join(reasons[:REASONS_SHOWN]) + (f"; and {len(reasons) - REASONS_SHOWN} more" if len(reasons) > REASONS_SHOWN else "")
    if not measured:
        raise NothingMatchedError(
            f"{label}: none of its kernels belongs to {target.title} on {target.gpu.name} ({summary or 'no kernels'})",
            None,
            "kernels with the name, the threads per CTA and the CTAs of a launch",
            "check --tokens and --gpu, or give --measured ROWS.csv",
        )
    unmatched = None
    if reasons or len(measured) < len(target.launches):
        unmatched = coverage(label, len(measured), len(target.launches))
        unmatched += f"; left out: {summary}" if summary else ""
    if profile.format == NSIGHT_COMPUTE:
        doubt = "Nsight Compute empties the caches and lowers the clock, unless it ran with --cache-control none --clock-control none."
        target = replace(target, unknowns=(*target.unknowns, f"{label}: {doubt}"))
    return Matched(target=target, measured=measured, unmatched=unmatched)


def _has_shape(record: KernelRecord) -> bool:
    return bool(record.grid or record.block)


def _measured(records: list[KernelRecord], label: str) -> Measured:
    samples = [sample for record in records for sample in record.samples_us]
    several, runs = len(samples) > 1, sum(record.count for record in records)
    latency = Latency(
        us=median(samples),
        origin="measured",
        source=f"{label}, {runs} runs" if runs > 1 else label,
        low_us=min(samples) if several else None,
        high_us=max(samples) if several else None,
        coverage=1.0 if several else None,
    )
    return Measured(latency=latency, rounds=MeasuredRounds(rounds=(Round(samples_us=tuple(samples)),), source=label))


def _rows_of_layers(timed: Sequence[tuple[str, str]], target: Target) -> str:
    """Tokens and microseconds of layers as rows: they are of the target's sizes, which the output does not say."""
    sizes = target.launches[0].problem.sizes
    fixed = ",".join(str(sizes.get(name, "")) for name in ("E", "topk", "H", "N"))
    return "\n".join(["gpu,op,M,E,topk,H,N,latency_us", *(f"{target.gpu.name},layer,{m},{fixed},{us}" for m, us in timed)]) + "\n"


def timed(targets: Sequence[KernelTarget], path: str) -> tuple[list[KernelTarget], list[str]]:
    """The launches with the medians of a profile (Nsight Compute, torch's profiler, Proton) or of the rows that `advisor measure` wrote of
    their record, and what it lacks, in words.

    Raises:
        InputError: It is neither.
    """
    profile = read_profile(path)
    if profile is None:
        return _timed_by_rows(targets, path)
    measured, lacking = [], []
    for target in targets:
        grid = _whole(target.launch.grid)
        alike = [item for item in targets if item.launch.kernel == target.launch.kernel and _whole(item.launch.grid) == grid]
        named = [item for item in targets if item.launch.kernel == target.launch.kernel]
        of_it = [record for record in profile.records if same_name(record.name, target.launch.kernel)]
        # Proton says no grid: its time is one launch's only where there is one launch.
        mine = [item for item in of_it if (_whole(item.grid) == grid and len(alike) == 1) or (not item.grid and len(named) == 1)]
        samples = [sample for item in mine for sample in item.samples_us]
        if samples:
            target = replace(target, measured_us=median(samples), device=mine[0].gpu or target.device)
        else:
            why = "several launches fit it" if of_it else "no kernel of that name is in it"
            lacking.append(f"{path}: no time for {target.id} ({why})")
        measured.append(target)
    return measured, lacking


def _timed_by_rows(targets: Sequence[KernelTarget], path: str) -> tuple[list[KernelTarget], list[str]]:
    """As `timed`, of rows: each names the launch of the record that it measured.

    Raises:
        InputError: No row does.
    """
    takes = "ncu --csv, a Chrome trace of torch's profiler, Proton's .hatchet, or the rows of `advisor measure RECORD -o ROWS.csv`"
    try:
        file = read_file(path, None)
    except InputError as error:
        raise InputError(f"{path}: no profile, and no measured rows", str(error), takes, "profile it again") from None
    of_launch: dict[str, list[int]] = defaultdict(list)
    failed: dict[str, str] = {}
    for row, configuration in file.chosen(np.ones(len(file.latency), dtype=bool)):
        name = None if configuration is None else configuration.parameters.get("launch")
        if not isinstance(name, str):
            continue
        key = recorded_id(str(file.rows.text.get("kernel", [""] * (row + 1))[row]), name)
        if file.failed[row] or not np.isfinite(file.latency[row]):
            failed[key] = str(file.rows.text.get("reason", file.rows.text.get("status", [""] * (row + 1)))[row])
        else:
            of_launch[key].append(row)
    if not of_launch and not failed:
        raise InputError(
            f"{path}: its rows name no launch of a record", None, takes, "measure the record: `advisor measure RECORD -o ROWS.csv`"
        )
    measured, lacking = [], []
    for target in targets:
        rows = of_launch.get(target.id)
        if rows:
            device = str(file.rows.text["gpu"][rows[0]]) if "gpu" in file.rows.text else None
            target = replace(target, measured_us=file.median(rows).us, device=device or target.device)
        else:
            lacking.append(f"{path}: no time for {target.id} ({failed.get(target.id) or 'no row is of it'})")
        measured.append(target)
    return measured, lacking


def _whole(grid: Sequence[int] | None) -> tuple[int, ...]:
    return (*(grid or ()), 1, 1, 1)[:3]
