"""Tuned tables of mixture-of-experts layers that lie on this machine: which configuration a stack finds for a layer.

They are read from the folders that `system.settings` names (`$VLLM_TUNED_CONFIG_FOLDER`, `$SGLANG_MOE_CONFIG_DIR`, `$ADVISOR_CORPUS`);
without one, what is known of tables is whether one ran (`layer_model.Ran`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import load_gpu
from advisor.learned.layers.moe_layer import BF16, FP8, FP8_BLOCK, Launched
from advisor.pipelines import Array
from advisor.system.errors import InputError, UnknownGpuError
from advisor.system.settings import read_settings
from advisor.tables.entries import FIELDS
from advisor.tables.names import TableName, is_table_name, parse_table_name
from advisor.tables.tables import read_table

Key: TypeAlias = tuple[bool, str, int, int, int]
"""Whether SGLang's, our name of the GPU, experts held, N, place in `KINDS`."""

TRITON_OF_SGLANG = ((514, "3.6.0"), (0, "3.5.1"))
"""From which version of SGLang on (0.5.14 as 514) which folder of tables is the newest that it looks into."""


class TunedTables:
    """Tables by what they are for and by Triton's version; a file is read when its layer is asked for."""

    def __init__(self, folders: Iterable[Path | str] = ()) -> None:
        self._files: dict[Key, dict[str, tuple[Path, TableName]]] = {}
        for path in sorted(file for folder in folders for file in Path(folder).rglob("E=*.json")):
            if not is_table_name(path):
                continue
            name = parse_table_name(path)
            kind = _kind(name)
            try:
                gpu = load_gpu(name.device_name.replace("_", " ")).name
            except UnknownGpuError:
                continue
            if kind is not None:
                key = (name.stack == "sglang", gpu, int(name.E or 0), name.N, kind)
                self._files.setdefault(key, {})[name.triton_version or ""] = (path, name)
        self._read = lru_cache(maxsize=None)(_entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._files

    def covers(self, launch: Launched) -> NDArray[np.bool_]:
        """Layers that there is a table for, whether or not it ran, [n]."""
        return np.array([key in self._files for key in keys(launch)], dtype=bool)

    def running(self, key: Key, version: float, tokens: Array) -> dict[str, Array] | None:
        """What a version of the stack launches with for numbers of tokens [n], by the names of `FIELDS`: the entry nearest to each.

        None where it finds no table that can be read.
        """
        limit = next(triton for since, triton in TRITON_OF_SGLANG if version >= since) if key[0] else "9"
        allowed = {triton: file for triton, file in self._files.get(key, {}).items() if triton <= limit}
        table = self._read(*allowed[max(allowed)]) if allowed else None
        if table is None:
            return None
        place = np.abs(table[0][:, None] - tokens).argmin(axis=0)
        return {name: table[1][place, i] for i, name in enumerate(FIELDS)}


def _entries(path: Path, name: TableName) -> tuple[Array, Array] | None:
    """Token counts [m] and configurations [m, 6] of a table; None where it cannot be read or is empty."""
    try:
        entries = [(m, c) for m, c in read_table(path, name).entries if c is not None]
    except InputError:
        return None
    rows = [[*(c.parameters[field] for field in FIELDS[:4]), c.num_warps, c.num_stages] for _, c in entries]
    return (np.array([float(m) for m, _ in entries]), np.array(rows, dtype=float)) if rows else None


def _kind(name: TableName) -> int | None:
    if name.kind != "fused_moe" or name.down or name.per_channel_quant:
        return None
    return {(None, None): BF16, ("fp8_w8a8", None): FP8, ("fp8_w8a8", (128, 128)): FP8_BLOCK}.get((name.dtype, name.block_shape))


def keys(launch: Launched) -> list[Key]:
    """What tables for the layers would be filed under, [n]."""
    layers = launch.layers
    columns = (layers.sglang.tolist(), launch.held.tolist(), layers.inner.tolist(), layers.kind.tolist())
    return [(bool(sglang), launch.gpu.name, int(held), int(inner), kind) for sglang, held, inner, kind in zip(*columns, strict=True)]


def here() -> TunedTables:
    """Those in the folders that the environment names; looked for once."""
    return _below(tuple(read_settings().table_folders))


@lru_cache(maxsize=2)
def _below(folders: Sequence[Path]) -> TunedTables:
    return TunedTables(folders)
