"""The jobs of measuring, which killable workers run (`system.jobs`): batches on a device, and launches compiled ahead."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from advisor.compiled.compiler.worker import answer_for
from advisor.compiled.recorder.hook import TORCH_NAMES
from advisor.measurement.devices.device import Device, DeviceSpec, open_device
from advisor.measurement.kernel_file import KernelRef, function_of, load_module
from advisor.measurement.launch import Batch, Failure, Launch, Outcome, classify
from advisor.measurement.rounds import FatalFailure, run_batch
from advisor.python_source.described import kernel_problem
from advisor.result.schema import Configuration, Fingerprint, Problem
from advisor.system.jobs import Say


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDescription:
    """A device's description of itself; `target` is Triton's, None where `ceilings/` does not describe the GPU."""

    gpu: str
    fingerprint: Fingerprint
    target: tuple[Any, ...] | None


_DESCRIPTOR = re.compile(r"tensordesc<(\w+)\[([\d, ]+)\]>")


def _argument(value: Any) -> Any:
    """A stand-in for one argument that a kernel file's `arguments` describes."""
    import torch
    from triton.runtime.jit import MockTensor

    if not isinstance(value, str):
        return value
    if value.startswith("*"):
        return MockTensor(getattr(torch, TORCH_NAMES[value[1:].removeprefix("k")]))
    if found := _DESCRIPTOR.fullmatch(value):
        from triton.tools.tensor_descriptor import TensorDescriptor

        block = [int(size) for size in found[2].split(",")]
        strides = [1]
        for size in reversed(block[1:]):
            strides.insert(0, strides[0] * max(size, 16))
        return TensorDescriptor(MockTensor(getattr(torch, TORCH_NAMES[found[1]])), block, strides, block)
    return value  # a constexpr that is a text


def use_offline_target(backend: str, architecture: int | str, warp_size: int) -> None:
    """Tells Triton, in this process, to compile for this target; no GPU is looked for from here on."""
    from triton.backends.compiler import GPUTarget

    answer_for(GPUTarget(backend, architecture, warp_size))


def _compute_capability() -> str:
    """The capability of the target that Triton compiles for, as `GpuSpec` has it: "9.0", or "gfx942"."""
    from triton.runtime import driver

    target = driver.active.get_current_target()
    return f"{target.arch // 10}.{target.arch % 10}" if target.backend == "cuda" else str(target.arch)


def compile_launch(kernel: KernelRef, problem: Problem, configuration: Configuration) -> bool:
    """Compiles one launch into Triton's disk cache; False where the kernel file does not say its arguments.

    `use_offline_target` comes first. Raises what the compiler raises.
    """
    describe = function_of(kernel, "arguments")
    if describe is None:
        return False
    flat = configuration.flat()
    asked = kernel_problem(problem, _compute_capability())
    values = {name: _argument(value) for name, value in describe(asked, flat).items()}
    getattr(load_module(kernel.file), kernel.function).warmup(grid=(1,), **{**flat, **values})
    return True


_devices: list[Device] = []  # of this process: one, once it was opened


def _opened(say: Say, spec: DeviceSpec) -> Device:
    if not _devices:
        say("stage", "open", None)
        _devices.append(open_device(spec))
    return _devices[0]


def describe(say: Say, spec: DeviceSpec) -> DeviceDescription:
    """A job: the device's description of itself."""
    device = _opened(say, spec)
    target = None if device.gpu is None else device.gpu.triton_target
    return DeviceDescription(gpu=device.gpu_name, fingerprint=device.fingerprint(), target=target)


def measure_ceilings(say: Say, spec: DeviceSpec) -> dict[str, float]:
    """A job: the device's own ceilings (`ceilings.FIGURES`)."""
    return _opened(say, spec).measure_ceilings()


def measure(say: Say, spec: DeviceSpec, batch: Batch) -> list[Outcome] | None:
    """A job: one outcome per launch; None where the process is of no use any more, after ("fatal", launch, failure)."""
    try:
        return run_batch(_opened(say, spec), batch, lambda stage, launch: say("stage", stage, launch))
    except FatalFailure as error:
        say("fatal", error.index, error.failure)
        return None


def compile_ahead(say: Say, target: tuple[Any, ...], launch: Launch) -> Failure | None:
    """A job: compiles a launch; why the compiler refuses it.

    Only what is surely the compiler's verdict counts; anything else (a kernel file whose `arguments` is off, say) is left to the launch.
    """
    try:
        use_offline_target(*target)
        compile_launch(launch.kernel, launch.problem, launch.configuration)
        return None
    except Exception as error:
        failure = classify(error, "compile-ahead")
        return replace(failure, stage="compile") if failure.kind == "compile-error" else None
