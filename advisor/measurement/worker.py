"""A killable worker process: measures batches on a device, or compiles launches ahead.

The worker talks JSON over a pipe of its own (a kernel may print what it likes). It says what it is about to do before it does it,
so that whoever watches knows which launch hangs or crashes, kills the worker, and starts another.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict
from multiprocessing.connection import Connection, Pipe
from typing import IO, Any

from advisor.measurement.batch_run import FatalFailure, run_batch
from advisor.measurement.child_python import python_command
from advisor.measurement.devices.device import Device, DeviceSpec, open_device
from advisor.measurement.failures import Failure, classify
from advisor.measurement.kernel_file import KernelRef
from advisor.measurement.launch import batch_from_json, problem_from_json
from advisor.result.schema import Configuration
from advisor.system.errors import AdvisorError, shorten

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

    def stop(self) -> None:
        """Lets an idle worker end, and makes sure it does."""
        self.send({"do": "stop"})
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=2)
        self.kill()

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
        if request["do"] == "stop":
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
    from advisor.measurement.compile_ahead import compile_launch, use_offline_target

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
