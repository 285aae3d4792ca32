"""Caveats of predictions, worded the same by every command that shows some."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from advisor.gpus.hardware import GpuSpec
from advisor.pipelines.tile import compute_pipeline
from advisor.result.schema import LaunchReport, Problem
from advisor.system.errors import part

PRODUCTS = ("gemm", "attention", "w13", "w2")
"""Families and operators that multiply matrices."""


def unmeasured_vendor(gpus: Iterable[GpuSpec]) -> tuple[str, ...]:
    """A sentence where a GPU is of a vendor of which next to nothing was measured; nothing for the others."""
    names = list(dict.fromkeys(gpu.name for gpu in gpus if gpu.vendor == "amd"))
    if not names:
        return ()
    specified = f"the figures of {', '.join(names)} are specified ones"
    return (f"Of AMD's Triton products only fp16 GEMMs of an MI250X were measured: intervals are as wide as those, and {specified}.",)


def exact_products(problems: Iterable[Problem], gpu: GpuSpec) -> tuple[str, ...]:
    """Where the bound of a product is shown that the GPU's matrix units take faster less exactly, a sentence that says so; else nothing."""
    types = {p.dtype for p in problems if p.op in PRODUCTS or p.family in PRODUCTS}
    caveats: list[str] = []
    if "fp32" in types and compute_pipeline(gpu, "tf32") is not None:
        caveats.append(
            "fp32 means exact products here: their bound is that of the vector units, and input_precision tf32 or tf32x3 "
            "(--dtype tf32) can go below it."
        )
    if "fp16" in types and "fp16" in (gpu.fp16_accumulator_flop_per_clock_per_sm or {}):
        caveats.append(f"fp16 means products summed up in fp32 here: on {gpu.name}, out_dtype=tl.float16 can go below their bound.")
    return tuple(caveats)


HELD_SHARE = 0.1
"""From which share of the latency on the power limit is worth a sentence."""


def held_by_power(launches: Sequence[LaunchReport], gpu: GpuSpec) -> tuple[str, ...]:
    """A sentence where the board's power limit, which no configuration gets around, takes much of the latency; else nothing."""
    held = sum(
        piece.us > HELD_SHARE * report.predicted.us
        for report in launches
        for piece in report.gap
        if piece.cause == "power" and report.predicted is not None
    )
    if not held:
        return ()
    where = part(held, len(launches), "launch")
    return (
        f"The board's {gpu.board_power_w:g} W hold the clock down in {where}, whatever the configuration: bounds are those of the "
        "highest clock.",
    )
