"""Timing launches: on a GPU or on a fake one; replaying recorded latencies; and reading what profilers measured.

Names are loaded on first use: who needs one file of it (`@advisor.autotune` needs what failures are called) loads no other.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.measurement.devices.device import DeviceSpec, find_device, open_device, parse_device
    from advisor.measurement.kernel_file import KernelRef, configurations, find_kernels, read_kernels
    from advisor.measurement.launch import FAILURE_KINDS, Batch, Launch, Outcome
    from advisor.measurement.measured_rows import read_measured
    from advisor.measurement.measuring import Progress, Summary, compare_launches, measure, run_plan
    from advisor.measurement.plan import as_launched, launches_of, read_plan
    from advisor.measurement.recorded import Recording, read_recording
    from advisor.measurement.scheduler import Limits, Scheduler
    from advisor.measurement.statistics import Side, verdict

_HOMES = {
    "FAILURE_KINDS": "launch",
    "Batch": "launch",
    "DeviceSpec": "devices.device",
    "KernelRef": "kernel_file",
    "Launch": "launch",
    "Limits": "scheduler",
    "Outcome": "launch",
    "Progress": "measuring",
    "Recording": "recorded",
    "Scheduler": "scheduler",
    "Side": "statistics",
    "Summary": "measuring",
    "as_launched": "plan",
    "compare_launches": "measuring",
    "configurations": "kernel_file",
    "find_device": "devices.device",
    "find_kernels": "kernel_file",
    "launches_of": "plan",
    "measure": "measuring",
    "open_device": "devices.device",
    "parse_device": "devices.device",
    "read_kernels": "kernel_file",
    "read_measured": "measured_rows",
    "read_plan": "plan",
    "read_recording": "recorded",
    "run_plan": "measuring",
    "verdict": "statistics",
}

__all__ = [
    "FAILURE_KINDS",
    "Batch",
    "DeviceSpec",
    "KernelRef",
    "Launch",
    "Limits",
    "Outcome",
    "Progress",
    "Recording",
    "Scheduler",
    "Side",
    "Summary",
    "as_launched",
    "compare_launches",
    "configurations",
    "find_device",
    "find_kernels",
    "launches_of",
    "measure",
    "open_device",
    "parse_device",
    "read_kernels",
    "read_measured",
    "read_plan",
    "read_recording",
    "run_plan",
    "verdict",
]


def __getattr__(name: str) -> Any:
    """Loads a name when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
