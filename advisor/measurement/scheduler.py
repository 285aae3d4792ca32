"""Runs batches, in order as far as they are compiled: one worker on the GPU, others compiling what comes next, and a watch on all of them.

A launch that faults, hangs or crashes costs its worker; the failure is written down, a new worker measures the rest of the batch,
and the run goes on.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from multiprocessing.connection import wait
from typing import Any

from advisor.measurement.batch_run import run_batch
from advisor.measurement.devices.device import DeviceSpec, open_device
from advisor.measurement.launch import MAX_SUSTAINED_S, Batch, Failure, Launch, Outcome, outcome_from_json
from advisor.measurement.worker import WorkerProcess
from advisor.result.schema import Fingerprint
from advisor.system.errors import MeasurementError, NoGpuError

MAX_COMPILE_WORKERS = 16
LOOKAHEAD_PER_WORKER = 4  # launches compiling or compiled ahead, per compiling worker
MAX_LOST_WORKERS = 3  # without a launch to blame, before the run gives up on a batch

_STAGES = {
    "open": "starting up the GPU",
    "inputs": "making the inputs",
    "compile": "compiling a launch",
    "launch": "the first run",
    "check": "checking the output",
    "rounds": "one side of a round",
    "sustained": "keeping one launch up",
}
_BY_TIMEOUT = ("launch", "check", "rounds")
"""Stages whose limit `advisor measure --timeout` sets: those that run kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits, in seconds, on each step of one launch, after which its worker is killed."""

    open_s: float = 180.0  # start of CUDA
    inputs_s: float = 120.0  # inputs and reference of a batch
    compile_s: float = 120.0
    launch_s: float = 60.0  # the first run, compiling included where it was not done ahead
    check_s: float = 60.0
    rounds_s: float = 30.0  # one side of one round
    sustained_s: float = 30.0 + MAX_SUSTAINED_S

    def of(self, stage: str) -> float:
        """The limit of a stage."""
        return float(getattr(self, f"{stage}_s"))

    def exceeded(self, stage: str) -> str:
        """The failure of a launch that took longer than the limit of a stage, with the option that raises that."""
        raised = "`advisor measure --timeout TIME`" if stage in _BY_TIMEOUT else f"limits=Limits({stage}_s=…), in Python only,"
        return f"nothing within {self.of(stage):g} s, the limit for {_STAGES[stage]}: given up, and without a latency; {raised} raises it"

    @classmethod
    def uniform(cls, seconds: float) -> Limits:
        """The same limit for what runs kernels; opening, inputs and compiling keep theirs."""
        return cls(**{f"{stage}_s": seconds for stage in _BY_TIMEOUT})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceDescription:
    """A device's description of itself; `target` is Triton's, None where `ceilings/` does not describe the GPU."""

    gpu: str
    fingerprint: Fingerprint
    target: tuple[Any, ...] | None


@dataclass(slots=True, eq=False)
class _Pending:
    """A batch, and what is being compiled for it."""

    batch: Batch
    compiled: list[Future[Failure | None]]

    @property
    def ready(self) -> bool:
        return all(each.done() for each in self.compiled)


@dataclass(slots=True)
class _Running:
    """The batch on the GPU: which of its launches are still in, and what became of the others."""

    batch: Batch
    indices: list[int]
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    stage: str = "open"
    launch: int | None = None
    lost_workers: int = 0


class Scheduler:
    """Measures batches on one device. Use as a context manager: workers end with it."""

    def __init__(
        self,
        device: DeviceSpec,
        *,
        limits: Limits | None = None,
        compile_workers: int | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.spec, self.limits, self.clock = device, limits or Limits(), clock
        self._device = open_device(device) if device.in_process else None
        wanted = max(1, min((os.cpu_count() or 2) - 2, MAX_COMPILE_WORKERS)) if compile_workers is None else compile_workers
        self.compile_workers = wanted if device.kind == "cuda" else 0
        self._worker: WorkerProcess | None = None
        self._worker_deadline = 0.0
        self._pool = ThreadPoolExecutor(max(1, self.compile_workers), thread_name_prefix="advisor-compile")
        self._of_thread = threading.local()  # its compiling worker
        self._compilers: set[WorkerProcess] = set()
        self._known: dict[str, Future[Failure | None]] = {}
        self.description = self._describe()

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all workers."""
        self._drop_worker()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.limits = replace(self.limits, compile_s=0.0)  # for a thread that is just starting its worker
        for worker in [*self._compilers]:
            worker.process.kill()  # its thread closes the rest
        self._pool.shutdown()

    def _describe(self) -> DeviceDescription:
        if self._device is not None:
            return DeviceDescription(gpu=self._device.gpu_name, fingerprint=self._device.fingerprint(), target=None)
        answer = self._ask("describe", self.limits.open_s)
        target = tuple(answer["target"]) if answer["target"] else None
        return DeviceDescription(gpu=answer["gpu"], fingerprint=Fingerprint(**answer["fingerprint"]), target=target)

    def measure_ceilings(self, timeout_s: float = 120.0) -> dict[str, float]:
        """The device's own ceilings (`ceilings.FIGURES`).

        Raises:
            MeasurementError: It does not answer, or fails.
        """
        if self._device is not None:
            return self._device.measure_ceilings()
        return dict(self._ask("ceilings", timeout_s)["figures"])

    def _ask(self, what: str, timeout_s: float) -> dict[str, Any]:
        """One question to the worker that is not a batch."""
        worker = self._gpu_worker()
        worker.send({"do": what, "device": self.spec.to_json()})
        deadline = self.clock() + timeout_s
        while True:
            if not wait([worker.connection], max(0.0, deadline - self.clock())):
                self._drop_worker()
                raise MeasurementError(
                    f"the device did not answer ({what})",
                    f"nothing within {timeout_s:g} s",
                    "an answer by then, a limit that no option raises",
                    "see with nvidia-smi whether another program holds the GPU, then run it again",
                )
            answer = worker.receive()
            if answer is None:
                failure = worker.death(what)
                self._drop_worker()
                raise MeasurementError(f"the device's worker died ({what})", failure.message)
            if answer["is"] == "error":
                self._drop_worker()
                error = NoGpuError if answer["exit_code"] == NoGpuError.exit_code else MeasurementError
                raise error(answer["message"])
            if answer["is"] != "stage":
                return answer

    def run(self, batches: Iterable[Batch], *, deadline: float | None = None) -> Iterator[tuple[Batch, list[Outcome]]]:
        """Measures the batches; yields each with one outcome per launch.

        In order, but that one whose launches are compiled overtakes those whose are not.

        Args:
            batches: Drawn as they are needed.
            deadline: On `clock`; what is not finished then is left, without an outcome.
        """
        if self._device is not None:
            for batch in batches:
                if deadline is not None and self.clock() >= deadline:
                    return
                yield batch, run_batch(self._device, batch)
            return
        source, pending, running = iter(batches), deque[_Pending](), None
        exhausted = False
        while True:
            exhausted = exhausted or self._fill(source, pending, deadline)
            first = next((each for each in pending if each.ready), None)  # one slow compiler does not keep the GPU waiting
            if running is None and first is not None:
                pending.remove(first)
                running = self._start(first)
                if not running.indices:
                    yield self._finish(running)
                    running = None
                    continue
            if running is None and not pending and exhausted:
                return
            if deadline is not None and self.clock() >= deadline:
                self._drop_worker() if running is not None else None
                return
            self._watch(running, pending, deadline)
            if running is not None and not running.indices:
                yield self._finish(running)
                running = None

    def _fill(self, source: Iterator[Batch], pending: deque[_Pending], deadline: float | None) -> bool:
        """Draws batches until two wait and enough launches compile ahead, or the time is up; True where there are no more."""
        compilers = self.compile_workers if self.description.target else 0
        while len(pending) < 2 or sum(not task.done() for each in pending for task in each.compiled) < LOOKAHEAD_PER_WORKER * compilers:
            if len(pending) >= 64 or (deadline is not None and self.clock() >= deadline):
                return False
            batch = next(source, None)
            if batch is None:
                return True
            pending.append(_Pending(batch=batch, compiled=[self._task(launch) for launch in batch.launches] if compilers else []))
        return False

    def _task(self, launch: Launch) -> Future[Failure | None]:
        key = f"{launch.kernel.file}\x1f{launch.key()}"
        if key not in self._known:
            self._known[key] = self._pool.submit(self._compile, launch)
        return self._known[key]

    def _start(self, pending: _Pending) -> _Running:
        batch = pending.batch
        outcomes = {i: Outcome(failure=failure) for i, each in enumerate(pending.compiled) if (failure := each.result()) is not None}
        for launch in batch.launches:
            self._known.pop(f"{launch.kernel.file}\x1f{launch.key()}", None)
        running = _Running(batch=batch, indices=[i for i in range(len(batch.launches)) if i not in outcomes], outcomes=outcomes)
        self._send(running)
        return running

    def _send(self, running: _Running) -> None:
        """Gives the launches that are still in to a worker."""
        if not running.indices:
            return
        batch = replace(running.batch, launches=tuple(running.batch.launches[i] for i in running.indices))
        running.stage, running.launch = "open", None
        self._gpu_worker().send({"do": "measure", "device": self.spec.to_json(), "batch": asdict(batch)})
        self._worker_deadline = self.clock() + self.limits.open_s

    def _finish(self, running: _Running) -> tuple[Batch, list[Outcome]]:
        return running.batch, [running.outcomes[i] for i in range(len(running.batch.launches))]

    def _gpu_worker(self) -> WorkerProcess:
        if self._worker is None:
            self._worker = WorkerProcess()
        return self._worker

    def _drop_worker(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _watch(self, running: _Running | None, pending: Iterable[_Pending], deadline: float | None) -> None:
        """Waits until something happens or is overdue, and deals with it."""
        if running is None or self._worker is None:
            left = None if deadline is None else max(0.0, deadline - self.clock())
            futures.wait([task for each in pending for task in each.compiled if not task.done()], left, futures.FIRST_COMPLETED)
            return
        until = self._worker_deadline if deadline is None else min(self._worker_deadline, deadline)
        if wait([self._worker.connection], max(0.0, until - self.clock())):
            self._on_gpu_message(running, self._worker.receive())
        if running.indices and self.clock() >= self._worker_deadline:
            failure = Failure(kind="hang", message=self.limits.exceeded(running.stage), stage=running.stage)
            self._blame(running, failure, running.launch)

    def _on_gpu_message(self, running: _Running, message: dict[str, Any] | None) -> None:
        if message is None:
            worker = self._worker
            assert worker is not None
            self._blame(running, worker.death(running.stage), running.launch)
        elif message["is"] == "stage":
            running.stage, running.launch = message["stage"], message["launch"]
            self._worker_deadline = self.clock() + self.limits.of(running.stage)
        elif message["is"] == "done":
            for index, outcome in zip(running.indices, message["outcomes"], strict=True):
                running.outcomes[index] = outcome_from_json(outcome)
            running.indices = []
        elif message["is"] == "fatal":
            self._blame(running, Failure(**message["failure"]), message["launch"])
        else:
            self._drop_worker()
            error = NoGpuError if message.get("exit_code") == NoGpuError.exit_code else MeasurementError
            raise error(message.get("message", "the worker failed"))

    def _blame(self, running: _Running, failure: Failure, launch: int | None) -> None:
        """The worker is lost: takes the launch it was at out of the batch, and gives the others to a new worker.

        Where no launch was to blame (inputs, start of CUDA) the whole batch is tried again, a few times.
        """
        self._drop_worker()
        if launch is not None:
            running.outcomes[running.indices.pop(launch)] = Outcome(failure=failure)
        else:
            running.lost_workers += 1
            if running.stage == "inputs" or running.lost_workers >= MAX_LOST_WORKERS:
                running.outcomes.update({index: Outcome(failure=failure) for index in running.indices})
                running.indices = []
        self._send(running)

    def _compile(self, launch: Launch) -> Failure | None:
        """Compiles a launch in a worker of this thread's; why it failed.

        Only what is surely the compiler's verdict counts; anything else (a kernel file whose `arguments` is off, say) is left to the
        launch itself. A compiler that takes its process with it would take the GPU's worker too.
        """
        worker = getattr(self._of_thread, "worker", None)
        if worker is None:
            worker = self._of_thread.worker = WorkerProcess()
            self._compilers.add(worker)
        worker.send(
            {
                "do": "compile",
                "target": self.description.target,
                "kernel": asdict(launch.kernel),
                "problem": asdict(launch.problem),
                "configuration": asdict(launch.configuration),
            }
        )
        answers = worker.connection.poll(self.limits.compile_s)
        message = worker.receive() if answers else None
        if message is None:
            failure = worker.death("compile") if answers else Failure(kind="hang", message=self.limits.exceeded("compile"), stage="compile")
            self._compilers.discard(worker)
            self._of_thread.worker = None
            worker.kill()
            return failure
        failed = message["failure"]
        lasts = failed is not None and failed["kind"] == "compile-error"
        return Failure(kind="compile-error", message=failed["message"], stage="compile") if lasts else None
