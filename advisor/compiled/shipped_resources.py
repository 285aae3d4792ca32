"""What the compiler made of fused-MoE configurations, looked up in the table that `resource_table` made."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from advisor.gpus.hardware import GpuSpec
from advisor.system.resources import folder

TABLE = "compiled/fused_moe.csv.gz"
CONFIGURATION = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "num_warps", "num_stages")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledResources:
    """Registers and spilled bytes per thread, shared memory in bytes per CTA, of the bundled bf16 kernel."""

    registers: int
    spill_bytes: int
    shared_memory_bytes: int


def target_of(gpu: GpuSpec) -> str:
    """The table's name of what Triton compiles for: sm_90 for a Hopper GPU."""
    return f"sm_{gpu.compute_capability.replace('.', '')}"


@lru_cache(maxsize=8)
def shipped_resources(target: str) -> Mapping[tuple[int, ...], CompiledResources]:
    """Resources by configuration (values of `CONFIGURATION`); empty for targets the table lacks, or where no table is shipped."""
    try:
        path = folder("ceilings") / TABLE
        with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
            rows = [row for row in csv.DictReader(stream) if row["target"] == target and row["registers"]]
    except FileNotFoundError:
        return {}
    return {tuple(int(row[name]) for name in CONFIGURATION): _resources(row) for row in rows}


def _resources(row: Mapping[str, str]) -> CompiledResources:
    return CompiledResources(**{name: int(row[name]) for name in ("registers", "spill_bytes", "shared_memory_bytes")})
