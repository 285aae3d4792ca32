"""What the tests of measuring share."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from pathlib import Path

import pytest

from advisor.gpus.hardware import match_device_name
from advisor.measurement.kernel_file import KernelRef
from advisor.measurement.launch import Launch
from advisor.measurement.measured_rows import MeasuredRow, bound_us
from advisor.result.schema import Configuration, Problem

KERNELS = Path(__file__).parent / "kernels" / "cpu_kernels.py"


def kernel(function: str) -> KernelRef:
    """A kernel of `kernels/cpu_kernels.py`."""
    return KernelRef(file=str(KERNELS), function=function)


def elementwise(rows: int = 16, columns: int = 32) -> Problem:
    """A small problem of theirs."""
    return Problem(family="elementwise", op="gelu", sizes={"B": rows, "H": columns}, dtype="fp32")


def moe(tokens: int = 64, op: str = "w13", **changes) -> Problem:
    """A fused-MoE problem."""
    sizes = {"M": tokens, "E": 128, "topk": 8, "H": 2048, "N": 768}
    return Problem(family="fused_moe", op=op, sizes=sizes, **changes)


def configuration(block: int = 512, warps: int = 4) -> Configuration:
    """One of `scale_kernel`."""
    return Configuration(parameters={"BLOCK_SIZE": block}, num_warps=warps, num_stages=1)


def launches(problems: int = 3, kernel_name: str = "scale_kernel") -> list[Launch]:
    """Six launches for each of some problems."""
    return [
        Launch(kernel=kernel(kernel_name), problem=elementwise(16 * (i + 1)), configuration=configuration(block, warps))
        for i, block, warps in itertools.product(range(problems), (256, 512, 1024), (2, 4))
    ]


def violations(rows: Iterable[MeasuredRow]) -> list[str]:
    """Rows faster than the bound of their problem, as `ceilings/` has it now (not as it was when they were measured)."""
    found = []
    for row in rows:
        least = bound_us(row.problem, match_device_name(row.gpu))
        if row.latency_us is not None and least is not None and row.latency_us < least:
            found.append(f"{row.gpu} {row.kernel} {row.problem.op} {row.problem.sizes}: {row.latency_us:g} us, bound {least:g} us")
    return found


@pytest.fixture
def one() -> Launch:
    """A single launch."""
    return launches(1)[0]
