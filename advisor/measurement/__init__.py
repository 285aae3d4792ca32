"""Timing launches: on a GPU, on a fake one, or from a file of recorded latencies; and reading what profilers measured."""

from __future__ import annotations

from advisor.measurement.comparison import compare_launches
from advisor.measurement.device import DeviceSpec, find_device, open_device, parse_device
from advisor.measurement.failures import FAILURE_KINDS, NotRecordedError
from advisor.measurement.kernel_file import KernelRef, configurations, find_kernels, read_kernels
from advisor.measurement.launch import Batch, Launch, Outcome
from advisor.measurement.measuring import Progress, Summary, measure, run_plan
from advisor.measurement.plan import launches_of, read_plan, skewed_routing
from advisor.measurement.recorded import Recording, read_recording
from advisor.measurement.rows import read_measured
from advisor.measurement.scheduler import Limits, Scheduler
from advisor.measurement.statistics import Side, verdict

__all__ = [
    "FAILURE_KINDS",
    "Batch",
    "DeviceSpec",
    "KernelRef",
    "Launch",
    "Limits",
    "NotRecordedError",
    "Outcome",
    "Progress",
    "Recording",
    "Scheduler",
    "Side",
    "Summary",
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
    "skewed_routing",
    "verdict",
]
