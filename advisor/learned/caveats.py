"""What to know of predictions before they are believed, said the same by every command that shows some."""

from __future__ import annotations

from collections.abc import Iterable

from advisor.hardware import GpuSpec
from advisor.pipelines.tile import compute_pipeline
from advisor.schema import Problem

PRODUCTS = ("gemm", "attention", "w13", "w2")
"""Families and operators that multiply matrices."""


def unmeasured_vendor(gpus: Iterable[GpuSpec]) -> tuple[str, ...]:
    """A sentence where a GPU is of a vendor that no measurement behind the shipped models is from; nothing for the others."""
    names = list(dict.fromkeys(gpu.name for gpu in gpus if gpu.vendor == "amd"))
    if not names:
        return ()
    specified = f"the figures of {', '.join(names)} are specified ones"
    return (f"No AMD measurement is behind this: the models were fitted to NVIDIA GPUs, and {specified}.",)


def exact_products(problems: Iterable[Problem], gpu: GpuSpec) -> tuple[str, ...]:
    """A sentence where the bound of an fp32 product is shown and the GPU's matrix units could take it in another type; else nothing."""
    products = any(p.dtype == "fp32" and (p.op in PRODUCTS or p.family in PRODUCTS) for p in problems)
    if not products or compute_pipeline(gpu, "tf32") is None:
        return ()
    return ("fp32 means exact products here: their bound is that of the vector units, and input_precision tf32 or tf32x3 (--dtype tf32) "
            "can go below it.",)  # fmt: skip
