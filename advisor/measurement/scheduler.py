"""Runs batches, in order as far as they are compiled: one worker on the GPU, others compiling what comes next, and a watch on all of them.

A launch that faults, hangs or crashes costs its worker; the failure is written down, a new worker measures the rest of the batch,
and the run goes on. What workers do (`measure`, `compile_ahead`, …) are jobs of `system.processes`.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from multiprocessing.connection import wait
from typing import Any, TypeVar

from advisor.compiled.compiler.worker import answer_for
from advisor.compiled.recorder.hook import TORCH_NAMES
from advisor.measurement.devices.device import Device, DeviceSpec, open_device
from advisor.measurement.kernel_file import KernelRef, function_of, load_module
from advisor.measurement.launch import Batch, Failure, Launch, Outcome, classify
from advisor.measurement.rounds import FatalFailure, run_batch
from advisor.python_source.described import kernel_problem
from advisor.result.schema import Configuration, Fingerprint, Problem
from advisor.system.errors import MeasurementError, NoGpuError
from advisor.system.processes import Say, Worker


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
    if descriptor := _DESCRIPTOR.fullmatch(value):
        from triton.tools.tensor_descriptor import TensorDescriptor

        block = [int(size) for size in descriptor[2].split(",")]
        strides = [1]
        for size in reversed(block[1:]):
            strides.insert(0, strides[0] * max(size, 16))
        return TensorDescriptor(MockTensor(getattr(torch, TORCH_NAMES[descriptor[1]])), block, strides, block)
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
    flat_problem = kernel_problem(problem, _compute_capability())
    values = {name: _argument(value) for name, value in describe(flat_problem, flat).items()}
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


T = TypeVar("T")
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


@dataclass(slots=True, eq=False)
class _Pending:
    """A batch, and what is being compiled for it."""

    batch: Batch
    compiled: list[Future[Failure | None]]

    @property
    def ready(self) -> bool:
        return all(task.done() for task in self.compiled)


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
        wanted = max(1, min((os.cpu_count() or 2) - 2, MAX_COMPILE_WORKERS)) if compile_workers is None else compile_workers
        self.compile_workers = wanted if device.kind == "cuda" else 0
        self._worker: Worker | None = None
        self._worker_deadline = 0.0
        self._pool = ThreadPoolExecutor(max(1, self.compile_workers), thread_name_prefix="advisor-compile")
        self._of_thread = threading.local()  # its compiling worker
        self._compilers: set[Worker] = set()
        self._known: dict[str, Future[Failure | None]] = {}
        self.description: DeviceDescription = self.ask(describe, self.limits.open_s)

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

    def ask(self, job: Callable[..., T], timeout_s: float) -> T:
        """What a job of the worker returns that is no batch: `describe`, `measure_ceilings`.

        Raises:
            MeasurementError: It does not answer, or fails.
        """
        worker, what = self._gpu_worker(), job.__name__.replace("_", " ")
        worker.send(job, self.spec)
        deadline = self.clock() + timeout_s
        while wait([worker.connection], max(0.0, deadline - self.clock())):
            answer = worker.receive()
            if answer is None:
                ended = worker.how_it_ended()
                self._drop_worker()
                raise MeasurementError(f"the device's worker died ({what})", ended)
            if answer[0] == "done":
                return answer[1]
            if answer[0] == "error":
                raise self._error(*answer[1:])
        self._drop_worker()
        raise MeasurementError(
            f"the device did not answer ({what})",
            f"nothing within {timeout_s:g} s",
            "an answer by then, a limit that no option raises",
            "see with nvidia-smi whether another program holds the GPU, then run it again",
        )

    def _error(self, message: str, exit_code: int) -> Exception:
        """The error that a worker met; the worker is dropped."""
        self._drop_worker()
        return (NoGpuError if exit_code == NoGpuError.exit_code else MeasurementError)(message)

    def run(self, batches: Iterable[Batch], *, deadline: float | None = None) -> Iterator[tuple[Batch, list[Outcome]]]:
        """Measures the batches; yields each with one outcome per launch.

        In order, but that one whose launches are compiled overtakes those whose are not.

        Args:
            batches: Drawn as they are needed.
            deadline: On `clock`; what is not finished then is left, without an outcome.
        """
        source, pending, running = iter(batches), deque[_Pending](), None
        exhausted = False
        while True:
            exhausted = exhausted or self._fill(source, pending, deadline)
            first = next((waiting for waiting in pending if waiting.ready), None)  # one slow compiler does not keep the GPU waiting
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

    def outcomes(self, batch: Batch, deadline: float | None) -> list[Outcome] | None:
        """One outcome per launch of a batch; None: the deadline (as of `run`) passed first."""
        if deadline is not None and self.clock() >= deadline:  # not worth a worker's start
            return None
        return next((outcomes for _, outcomes in self.run([batch], deadline=deadline)), None)

    def _fill(self, source: Iterator[Batch], pending: deque[_Pending], deadline: float | None) -> bool:
        """Draws batches until two wait and enough launches compile ahead, or the time is up; True where there are no more."""
        compilers = self.compile_workers if self.description.target else 0
        while (
            len(pending) < 2 or sum(not task.done() for waiting in pending for task in waiting.compiled) < LOOKAHEAD_PER_WORKER * compilers
        ):
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
        outcomes = {i: Outcome(failure=failure) for i, task in enumerate(pending.compiled) if (failure := task.result()) is not None}
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
        self._gpu_worker().send(measure, self.spec, batch)
        self._worker_deadline = self.clock() + self.limits.open_s

    def _finish(self, running: _Running) -> tuple[Batch, list[Outcome]]:
        return running.batch, [running.outcomes[i] for i in range(len(running.batch.launches))]

    def _gpu_worker(self) -> Worker:
        if self._worker is None:
            self._worker = Worker()
        return self._worker

    def _drop_worker(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None

    def _watch(self, running: _Running | None, pending: Iterable[_Pending], deadline: float | None) -> None:
        """Waits until something happens or is overdue, and deals with it."""
        if running is None or self._worker is None:
            left = None if deadline is None else max(0.0, deadline - self.clock())
            futures.wait([task for waiting in pending for task in waiting.compiled if not task.done()], left, futures.FIRST_COMPLETED)
            return
        until = self._worker_deadline if deadline is None else min(self._worker_deadline, deadline)
        if wait([self._worker.connection], max(0.0, until - self.clock())):
            self._on_gpu_message(running, self._worker.receive())
        if running.indices and self.clock() >= self._worker_deadline:
            failure = Failure(kind="hang", message=self.limits.exceeded(running.stage), stage=running.stage)
            self._blame(running, failure, running.launch)

    def _on_gpu_message(self, running: _Running, message: tuple[Any, ...] | None) -> None:
        if message is None:
            assert self._worker is not None
            self._blame(running, Failure(kind="crash", message=self._worker.how_it_ended(), stage=running.stage), running.launch)
            return
        kind, *more = message
        if kind == "stage":
            running.stage, running.launch = more
            self._worker_deadline = self.clock() + self.limits.of(running.stage)
        elif kind == "done":
            running.outcomes.update(zip(running.indices, more[0], strict=True))
            running.indices = []
        elif kind == "fatal":
            launch, failure = more
            self._blame(running, failure, launch)
        else:
            raise self._error(*more)

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
        """Compiles a launch in a worker of this thread's, for a compiler may take its process with it; why it failed."""
        worker = getattr(self._of_thread, "worker", None)
        if worker is None:
            worker = self._of_thread.worker = Worker()
            self._compilers.add(worker)
        worker.send(compile_ahead, self.description.target, launch)
        answers = worker.connection.poll(self.limits.compile_s)
        message = worker.receive() if answers else None
        if message is not None:
            return message[1] if message[0] == "done" else None
        if answers:
            failure = Failure(kind="crash", message=worker.how_it_ended(), stage="compile")
        else:
            failure = Failure(kind="hang", message=self.limits.exceeded("compile"), stage="compile")
        self._compilers.discard(worker)
        self._of_thread.worker = None
        worker.kill()
        return failure
