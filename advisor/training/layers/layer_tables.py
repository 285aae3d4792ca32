"""Which tuned tables ran in place of the stacks' defaults while layers were measured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import load_gpu
from advisor.pipelines import Array
from advisor.steps.layer_model import Habit
from advisor.steps.layer_time import layer_time
from advisor.steps.moe_layer import BF16, FP8, FP8_BLOCK, Launched
from advisor.system.errors import InputError, UnknownGpuError
from advisor.tables.defaults import FIELDS
from advisor.tables.names import TableName, is_table_name, parse_table_name
from advisor.tables.tables import read_table

Key: TypeAlias = tuple[bool, str, int, int, int]
"""Whether SGLang's, our name of the GPU, experts held, N, place in `KINDS`."""

TRITON_OF_SGLANG = ((514, "3.6.0"), (0, "3.5.1"))
"""From which version of SGLang on (0.5.14 as 514) which folder of tables is the newest that it looks into."""

LEAST_GAIN = 0.02
"""Log error by which a table has to explain the rows better than the default, for it to be believed to have run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Layers of one GPU as they were launched, [n] each; `model` is (H, inter, topk, E) as one number."""

    launch: Launched
    latency_us: Array
    model: NDArray[np.int64]

    def take(self, rows: NDArray[Any]) -> Measured:
        """Some of them."""
        launch = self.launch
        loads = replace(launch.loads, **{name: getattr(launch.loads, name)[rows] for name in launch.loads.__slots__})
        some = replace(
            launch,
            layers=launch.layers.take(rows),
            loads=loads,
            kept=launch.kept[rows],
            configuration={name: values[rows] for name, values in launch.configuration.items()},
        )
        return Measured(launch=some, latency_us=self.latency_us[rows], model=self.model[rows])


@dataclass(frozen=True, slots=True)
class Tuned:
    """Tables by what they are for and by Triton's version: tokens [m] and configurations [m, 6]."""

    tables: dict[Key, dict[str, tuple[Array, Array]]]

    def covers(self, launch: Launched) -> NDArray[np.bool_]:
        """Layers that there is a table for, whether or not it ran."""
        return np.array([key in self.tables for key in _keys(launch)], dtype=bool)

    def newest(self, key: Key, version: float) -> tuple[Array, Array] | None:
        """The table that a version of the stack finds."""
        limit = next(triton for since, triton in TRITON_OF_SGLANG if version >= since) if key[0] else "9"
        allowed = {triton: table for triton, table in self.tables.get(key, {}).items() if triton <= limit}
        return allowed[max(allowed)] if allowed else None


def read_tuned(folders: Iterable[Path | str]) -> Tuned:
    """Tables of fused-MoE kernels below the folders, for GPUs that are known; unreadable ones are passed over."""
    tables: dict[Key, dict[str, tuple[Array, Array]]] = {}
    for path in sorted(file for folder in folders for file in Path(folder).rglob("E=*.json")):
        if not is_table_name(path):
            continue
        name = parse_table_name(path)
        kind = _kind(name)
        try:
            gpu = load_gpu(name.device_name.replace("_", " ")).name
            entries = read_table(path, name).entries if kind is not None else ()
        except (UnknownGpuError, InputError):
            continue
        if kind is None or not entries:
            continue
        rows = [[*(c.parameters[field] for field in FIELDS[:4]), c.num_warps, c.num_stages] for _, c in entries if c is not None]
        tokens = np.array([float(m) for m, c in entries if c is not None])
        key = (name.stack == "sglang", gpu, int(name.E or 0), name.N, kind)
        tables.setdefault(key, {})[name.triton_version or ""] = (tokens, np.array(rows, dtype=float))
    return Tuned(tables)


def _kind(name: TableName) -> int | None:
    if name.kind != "fused_moe" or name.down or name.per_channel_quant:
        return None
    return {(None, None): BF16, ("fp8_w8a8", None): FP8, ("fp8_w8a8", (128, 128)): FP8_BLOCK}.get((name.dtype, name.block_shape))


def _keys(launch: Launched) -> list[Key]:
    layers = launch.layers
    columns = (layers.sglang.tolist(), launch.held.tolist(), layers.inner.tolist(), layers.kind.tolist())
    return [(sglang, launch.gpu.name, int(held), int(inner), kind) for sglang, held, inner, kind in zip(*columns, strict=True)]


def choose_launches(parts: Sequence[Measured], tuned: Tuned, constants: Array) -> tuple[list[Measured], list[Habit]]:
    """The rows with the configuration that ran: of every table that there is, it or the default, whichever explains the rows better; and
    what ran, with tables of layers that were not measured, which are believed to run in every version."""
    out, ran, measured = [], {}, set()
    for part in parts:
        layers = part.launch.layers
        configuration = {name: values.copy() for name, values in part.launch.configuration.items()}
        groups: dict[tuple[Key, float], list[int]] = {}
        for row, (key, version) in enumerate(zip(_keys(part.launch), layers.version.tolist(), strict=True)):
            if key in tuned.tables:
                groups.setdefault((key, version), []).append(row)
        for (key, version), members in groups.items():
            measured.add(key)
            table = tuned.newest(key, version)
            if table is None:
                continue
            rows = np.array(members)
            some = part.take(rows)
            theirs = replace(some.launch, configuration=nearest(table, some.launch.kept))
            default, other = (
                np.median(np.abs(np.log(layer_time(launch, constants).total / some.latency_us))) for launch in (some.launch, theirs)
            )
            if other + LEAST_GAIN < default:
                for name in FIELDS:
                    configuration[name][rows] = theirs.configuration[name]
                ran.setdefault(key, []).append((version, table))
        out.append(replace(part, launch=replace(part.launch, configuration=configuration)))
    habits = [Habit.of(key, version, version, *table) for key, found in ran.items() for version, table in found]
    for key in sorted(tuned.tables.keys() - measured):
        table = tuned.newest(key, 99999)
        if table is not None:
            habits.append(Habit.of(key, 0, 99999, *table))
    return out, habits


def nearest(table: tuple[Array, Array], tokens: Array) -> dict[str, Array]:
    """Configurations of a table for numbers of tokens [n]: the entry nearest to each, by the names of `FIELDS`."""
    keys, rows = table
    place = np.abs(keys[:, None] - tokens).argmin(axis=0)
    return {name: rows[place, i] for i, name in enumerate(FIELDS)}
