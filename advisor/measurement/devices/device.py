"""The devices behind one protocol: a CUDA GPU, or a fake one."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.measurement.devices import probe
from advisor.measurement.devices.probe import no_gpu
from advisor.measurement.kernel_file import KernelRef
from advisor.measurement.launch import Timing
from advisor.result.schema import Configuration, Fingerprint, Problem
from advisor.system.errors import UsageError

KINDS = ("auto", "cuda", "fake")


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
        """The way its times are taken: events, graph or simulated."""

    def time(self, launched: Any, round_number: int, replica: int) -> Timing:
        """One round of one side. `replica` counts equal launches of one batch (the two sides of an A/A)."""

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
        kind: cuda or fake.
        options: Settings of a fake device (`gpu=H200`, `noise=0.01`).
        gpu: What the driver calls the GPU, where it was looked for: it is not looked for again.
    """

    kind: str
    options: dict[str, float | str] = field(default_factory=dict)
    gpu: str | None = None


_MAY_BE_NEGATIVE = ("drift", "seed")


def parse_device(text: str) -> DeviceSpec:
    """`auto`, `cuda` or `fake`, which may be followed by options: `fake,gpu=A100,noise=0.02`.

    Raises:
        UsageError: Neither; an option that the device does not have, or a value that it cannot have; no such GPU is described.
    """
    kind, *settings = text.split(",")
    if kind not in KINDS:
        raise UsageError("no such device", text, "auto, cuda or fake[,OPTION=VALUE…]", "check the spelling")
    known: Mapping[str, float | str] = {}
    if kind == "fake":
        from advisor.measurement.devices import fake

        known = fake.OPTIONS
    options: dict[str, float | str] = {}
    for name, _, value in (setting.partition("=") for setting in settings):
        if name not in known:
            raise UsageError(f"the {kind} device has no option {name}", text, f"one of {', '.join(known) or 'none'}")
        if name == "gpu":
            load_gpu(value)  # a misspelt one is told here, and not by a worker
        options[name] = value if isinstance(known[name], str) else _number(name, value)
    return DeviceSpec(kind=kind, options=options)


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UsageError(f"device option {name}", text, "a number") from None
    if not (math.isfinite(value) and (value >= 0 or name in _MAY_BE_NEGATIVE)):
        raise UsageError(f"device option {name}", text, "a finite number" + ("" if name in _MAY_BE_NEGATIVE else ", 0 or more"))
    return value


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
    """
    if spec.kind == "fake":
        from advisor.measurement.devices.fake import FakeDevice

        return FakeDevice(spec.options)
    from advisor.measurement.devices.cuda import CudaDevice

    device = CudaDevice()
    device.try_launch()
    return device
