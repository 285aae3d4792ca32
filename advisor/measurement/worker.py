"""A killable worker process: measures batches on a device, or compiles launches ahead.

The worker talks JSON over a pipe of its own (a kernel may print what it likes). It says what it is about to do before it does it,
so that whoever watches knows which launch hangs or crashes, kills the worker, and starts another.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any

from advisor.compiled.compiler.worker import answer_for
from advisor.compiled.recorder.hook import TORCH_NAMES
from advisor.measurement.batch_run import FatalFailure, run_batch
from advisor.measurement.devices.device import Device, DeviceSpec, open_device
from advisor.measurement.devices.probe import python_command
from advisor.measurement.kernel_file import KernelRef, function_of, load_module
from advisor.measurement.launch import Failure, batch_from_json, classify, problem_from_json
from advisor.python_source.described import kernel_problem
from advisor.result.schema import Configuration, Problem
from advisor.system.errors import AdvisorError, shorten

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


_START = "from advisor.measurement.worker import main; main(int(sys.argv[1]))"
STDERR_TAIL_BYTES = 2000


class WorkerProcess:
    """The parent's handle on one worker."""

    def __init__(self) -> None:
        ours, theirs = Pipe(duplex=True)
        self.connection: Connection = ours
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        try:
            self.process = subprocess.Popen(
                python_command(_START, str(theirs.fileno())),
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                pass_fds=(theirs.fileno(),),
                close_fds=True,
            )
        finally:
            theirs.close()

    def send(self, message: dict[str, Any]) -> None:
        """Sends a request; a worker that is gone shows when its answer is waited for."""
        with contextlib.suppress(OSError):
            self.connection.send_bytes(json.dumps(message).encode())

    def receive(self) -> dict[str, Any] | None:
        """The next message; None: the worker is gone."""
        try:
            return json.loads(self.connection.recv_bytes(maxlength=1 << 28))
        except (EOFError, OSError, ValueError):
            return None

    def kill(self) -> None:
        """Ends it, whatever it is doing."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        self.connection.close()
        self._stderr.close()

    def death(self, stage: str) -> Failure:
        """Why a worker that is gone is gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=10)
        code = self.process.returncode
        if code is not None and code < 0:
            with contextlib.suppress(ValueError):
                how = f"the worker was killed by {signal.Signals(-code).name}"
                return Failure(kind="crash", message=how + self._last_words(), stage=stage)
        return Failure(kind="crash", message=f"the worker ended with status {code}{self._last_words()}", stage=stage)

    def _last_words(self) -> str:
        try:
            size = self._stderr.seek(0, os.SEEK_END)
            self._stderr.seek(max(0, size - STDERR_TAIL_BYTES))
            lines = [line for line in self._stderr.read().decode(errors="replace").splitlines() if line.strip()]
        except (OSError, ValueError):
            return ""
        return f": {shorten(lines[-1], 160)}" if lines else ""


def main(descriptor: int) -> None:
    """The worker's side: serves requests until the pipe closes."""
    _die_with_parent()
    connection = Connection(descriptor)
    device: Device | None = None

    def say(message: dict[str, Any]) -> None:
        connection.send_bytes(json.dumps(message).encode())

    while True:
        try:
            request = json.loads(connection.recv_bytes())
        except (EOFError, OSError):
            return
        if request["do"] == "compile":
            say(_compile(request))
            continue
        try:
            if device is None:
                say({"is": "stage", "stage": "open", "launch": None})
                device = open_device(DeviceSpec(**request["device"]))
            if request["do"] == "describe":
                say(_describe(device))
            elif request["do"] == "ceilings":
                say({"is": "ceilings", "figures": device.measure_ceilings()})
            else:
                batch = batch_from_json(request["batch"])
                report = lambda stage, launch: say({"is": "stage", "stage": stage, "launch": launch})  # noqa: E731
                say({"is": "done", "outcomes": [asdict(outcome) for outcome in run_batch(device, batch, report)]})
        except FatalFailure as error:
            say({"is": "fatal", "launch": error.index, "failure": asdict(error.failure)})
            return
        except BrokenPipeError:
            return
        except Exception as error:
            message = str(error) if isinstance(error, AdvisorError) else f"{type(error).__name__}: {error}"
            say({"is": "error", "message": shorten(message, 600), "exit_code": getattr(error, "exit_code", 3)})


def _describe(device: Device) -> dict[str, Any]:
    gpu = device.gpu
    return {
        "is": "described",
        "gpu": device.gpu_name,
        "fingerprint": asdict(device.fingerprint()),
        "target": list(gpu.triton_target) if gpu is not None else None,
    }


def _compile(request: dict[str, Any]) -> dict[str, Any]:

    try:
        use_offline_target(*request["target"])
        problem = problem_from_json(request["problem"])
        compiled = compile_launch(KernelRef(**request["kernel"]), problem, Configuration(**request["configuration"]))
        return {"is": "compiled", "compiled": compiled, "failure": None}
    except Exception as error:
        return {"is": "compiled", "compiled": False, "failure": asdict(classify(error, "compile-ahead"))}


def _die_with_parent() -> None:
    """Asks Linux to end this process when its parent is killed: a hung kernel must not outlive a killed run."""
    if sys.platform != "linux":
        return
    import ctypes

    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
