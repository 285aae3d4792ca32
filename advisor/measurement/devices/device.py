"""The devices behind one protocol: a CUDA GPU, a fake one, or a file of recorded latencies."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, Protocol

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.measurement.devices import probe
from advisor.measurement.devices.probe import no_gpu
from advisor.measurement.kernel_file import KernelRef
from advisor.measurement.launch import Sustained, Timing
from advisor.result.schema import Configuration, Fingerprint, Problem
from advisor.system.errors import UsageError

KINDS = ("auto", "cuda", "fake", "recorded")


class Bench(Protocol):
    """One problem of one kernel on a device: inputs made, reference known."""

    def launch(self, configuration: Configuration) -> Any:
        """Compiles and runs the launch once on a poisoned output; returns what `check` and `time` take. Raises on failure."""

    def check(self, launched: Any) -> None:
        """Compares the output of that launch with the reference.

        Raises:
            WrongOutputError: They differ.
        """

    def timer(self, launched: Any) -> str:
        """The way its times are taken: events, graph, simulated or recorded."""

    def time(self, launched: Any, round_number: int, replica: int) -> Timing:
        """One round of one side. `replica` counts equal launches of one batch (the two sides of an A/A)."""

    def sustain(self, launched: Any, seconds: float) -> Sustained | None:
        """The launch over and over for so many seconds; None where that cannot be known."""

    def close(self) -> None:
        """Frees what it holds."""


class Device(Protocol):
    """Something to measure on."""

    @property
    def gpu_name(self) -> str:
        """The GPU: its short name where `ceilings/` describes it, else what the driver calls it."""

    @property
    def gpu(self) -> GpuSpec | None:
        """Its description, where there is one."""

    @property
    def default_clock_mhz(self) -> float | None:
        """The SM clock it runs at when nothing holds it back."""

    def fingerprint(self) -> Fingerprint:
        """The facts of the machine that a latency measured on it depends on."""

    def open(self, kernel: KernelRef, problem: Problem, seed: int) -> Bench:
        """Makes inputs and computes the reference."""

    def measure_ceilings(self) -> dict[str, float]:
        """The device's own ceilings, by the names of `ceilings.FIGURES`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSpec:
    """Which device, as plain values that a worker process can be told.

    Attributes:
        kind: cuda, fake or recorded.
        path: The file of a recorded device.
        options: Settings of a fake or recorded device (`gpu=H200`, `noise=0.01`).
        gpu: What the driver calls the GPU, where it was looked for: it is not looked for again.
    """

    kind: str
    path: str | None = None
    options: dict[str, float | str] = field(default_factory=dict)
    gpu: str | None = None

    @property
    def in_process(self) -> bool:
        """Whether nothing can hang or crash, so that no worker process is needed."""
        return self.kind == "recorded"


_OPTION = re.compile(r"[a-z_]+=[^,=]*")
_MAY_BE_NEGATIVE = ("drift", "seed")


def parse_device(text: str) -> DeviceSpec:
    """`auto`, `cuda`, `fake`, `recorded:FILE`; the latter two may be followed by options: `fake,gpu=A100,noise=0.02`.

    Raises:
        UsageError: Neither; an option that the device does not have, or a value that it cannot have; no such GPU is described.
    """
    parts = text.split(",")
    options: dict[str, float | str] = {}
    while len(parts) > 1 and _OPTION.fullmatch(parts[-1]):  # from the right: a file name may hold commas
        name, _, value = parts.pop().partition("=")
        options[name] = value if name == "gpu" else _number_or_text(value)
    kind, _, path = ",".join(parts).partition(":")
    if kind not in KINDS or bool(path) != (kind == "recorded"):
        raise UsageError("no such device", text, "auto, cuda, fake[,OPTION=VALUE…] or recorded:FILE[,gpu=NAME]", "check the spelling")
    known = known_options(kind)
    for name, setting in options.items():
        if name not in known:
            raise UsageError(f"the {kind} device has no option {name}", text, f"one of {', '.join(known) or 'none'}")
        if name == "gpu":
            if kind == "fake":
                load_gpu(str(setting))  # a misspelt one is told here, and not by a worker
        elif isinstance(setting, str) and name != "faults":
            raise UsageError(f"device option {name}", setting, "a number")
        elif not isinstance(setting, str) and not (math.isfinite(setting) and (setting >= 0 or name in _MAY_BE_NEGATIVE)):
            raise UsageError(f"device option {name}", setting, "a finite number" + ("" if name in _MAY_BE_NEGATIVE else ", 0 or more"))
    return DeviceSpec(kind=kind, path=path or None, options=options)


def _number_or_text(value: str) -> float | str:
    try:
        return float(value)
    except ValueError:
        return value


def known_options(kind: str) -> tuple[str, ...]:
    """The options of a kind of device."""
    if kind == "fake":
        from advisor.measurement.devices.fake import OPTIONS

        return tuple(OPTIONS)
    return ("gpu",) if kind == "recorded" else ()


def find_device(device: str | DeviceSpec = "auto", *, look: bool = True) -> DeviceSpec:
    """The device to use.

    Args:
        device: As `parse_device` takes it; `auto` is the GPU.
        look: See first whether there is a GPU (some seconds, in a process of its own: CUDA stays out of this one). A worker that
            opens the device finds out too.

    Raises:
        NoGpuError: There is no usable GPU; says what is needed.
    """
    spec = parse_device(device) if isinstance(device, str) else device
    if spec.kind not in ("auto", "cuda") or spec.gpu is not None:
        return spec
    name = None
    if look:
        answer = probe.probe_gpu()
        if answer.error is not None:
            raise no_gpu(answer.error)
        name = answer.name
    return DeviceSpec(kind="cuda", options=spec.options, gpu=name)


def open_device(spec: DeviceSpec) -> Device:
    """The device itself. For `cuda`: initialises CUDA in this process.

    Raises:
        NoGpuError: It cannot be used.
        MeasurementError: It cannot launch so much as an empty kernel.
        InputError: A recorded file cannot be read.
    """
    if spec.kind == "fake":
        from advisor.measurement.devices.fake import FakeDevice

        return FakeDevice(spec.options)
    if spec.kind == "recorded":
        from advisor.measurement.recorded import RecordedDevice

        return RecordedDevice.from_file(spec.path or "", gpu=spec.options.get("gpu"))
    from advisor.measurement.devices.cuda import CudaDevice

    device = CudaDevice()
    device.try_launch()
    return device
