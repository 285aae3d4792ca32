"""Runs batches, in order as far as they are compiled: one worker on the GPU, others compiling what comes next, and a watch on all of them.

A launch that faults, hangs or crashes costs its worker; the failure is written down, a new worker measures the rest of the batch,
and the run goes on.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
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


@dataclass(slots=True)
class _Task:
    """One launch to compile ahead."""

    launch: Launch
    done: bool = False
    failure: Failure | None = None


@dataclass(slots=True, eq=False)
class _Pending:
    """A batch, and what is being compiled for it."""

    batch: Batch
    tasks: list[_Task]

    @property
    def ready(self) -> bool:
        return all(task.done for task in self.tasks)


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
        self._compilers: dict[WorkerProcess, tuple[_Task, float] | None] = {}
        self._queue: deque[_Task] = deque()
        self._known: dict[str, _Task] = {}
        self.description = self._describe()

    def __enter__(self) -> Scheduler:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends all workers."""
        if self._worker is not None:
            self._worker.kill()
            self._worker = None
        for worker in self._compilers:
            worker.kill()
        self._compilers.clear()

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
            self._watch(running, deadline)
            if running is not None and not running.indices:
                yield self._finish(running)
                running = None

    def _fill(self, source: Iterator[Batch], pending: deque[_Pending], deadline: float | None) -> bool:
        """Draws batches until two wait and enough launches compile ahead, or the time is up; True where there are no more."""
        compilers = self.compile_workers if self.description.target else 0
        while len(pending) < 2 or sum(not task.done for each in pending for task in each.tasks) < LOOKAHEAD_PER_WORKER * compilers:
            if len(pending) >= 64 or (deadline is not None and self.clock() >= deadline):
                return False
            batch = next(source, None)
            if batch is None:
                return True
            tasks = [self._task(launch) for launch in batch.launches] if compilers else []
            pending.append(_Pending(batch=batch, tasks=tasks))
        return False

    def _task(self, launch: Launch) -> _Task:
        key = f"{launch.kernel.file}\x1f{launch.key()}"
        if key not in self._known:
            self._known[key] = task = _Task(launch)
            self._queue.append(task)
        return self._known[key]

    def _start(self, pending: _Pending) -> _Running:
        batch = pending.batch
        outcomes = {i: Outcome(failure=task.failure) for i, task in enumerate(pending.tasks) if task.failure is not None}
        for task in pending.tasks:
            self._known.pop(f"{task.launch.kernel.file}\x1f{task.launch.key()}", None)
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

    def _watch(self, running: _Running | None, deadline: float | None) -> None:
        """Waits until something happens or is overdue, and deals with it."""
        self._feed_compilers()
        connections: dict[Any, WorkerProcess] = {w.connection: w for w, busy in self._compilers.items() if busy is not None}
        deadlines = [busy[1] for busy in self._compilers.values() if busy is not None]
        if running is not None and self._worker is not None:
            connections[self._worker.connection] = self._worker
            deadlines.append(self._worker_deadline)
        if deadline is not None:
            deadlines.append(deadline)
        timeout = max(0.0, min(deadlines) - self.clock()) if deadlines else 0.0
        for connection in wait(list(connections), timeout):
            worker = connections[connection]
            if worker is self._worker and running is not None:
                self._on_gpu_message(running, worker.receive())
            else:
                self._on_compiled(worker, worker.receive())
        now = self.clock()
        for worker, busy in list(self._compilers.items()):
            if busy is not None and now >= busy[1]:
                busy[0].failure = Failure(kind="hang", message=self.limits.exceeded("compile"), stage="compile")
                self._end_compiler(worker)
        if running is not None and running.indices and now >= self._worker_deadline:
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

    def _feed_compilers(self) -> None:
        """Gives every idle compiling worker something to do, and starts workers up to the limit."""
        while self._queue:
            idle = next((worker for worker, busy in self._compilers.items() if busy is None), None)
            if idle is None:
                if len(self._compilers) >= self.compile_workers:
                    return
                idle = WorkerProcess()
            task = self._queue.popleft()
            idle.send(
                {
                    "do": "compile",
                    "target": self.description.target,
                    "kernel": asdict(task.launch.kernel),
                    "problem": asdict(task.launch.problem),
                    "configuration": asdict(task.launch.configuration),
                }
            )
            self._compilers[idle] = (task, self.clock() + self.limits.compile_s)

    def _on_compiled(self, worker: WorkerProcess, message: dict[str, Any] | None) -> None:
        busy = self._compilers[worker]
        assert busy is not None
        task = busy[0]
        if message is None:  # the compiler took its process with it: it would take the GPU's worker too
            task.failure = worker.death("compile")
            self._end_compiler(worker)
            return
        failure = message["failure"]
        # Only what is surely the compiler's verdict counts; anything else (a kernel file whose `arguments` is off, say) is
        # left to the launch itself.
        if failure is not None and failure["kind"] == "compile-error":
            task.failure = Failure(kind="compile-error", message=failure["message"], stage="compile")
        task.done = True
        self._compilers[worker] = None

    def _end_compiler(self, worker: WorkerProcess) -> None:
        busy = self._compilers.pop(worker)
        if busy is not None:
            busy[0].done = True
        worker.kill()
