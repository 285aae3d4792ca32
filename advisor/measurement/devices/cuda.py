"""A CUDA GPU through torch. Lives in a worker process: anything here may hang, or take the process with it.

Timing: a launch whose cache is warm and that takes less than `GRAPH_BELOW_US` is captured into two CUDA graphs, one of twice as many
launches as the other: what the longer one takes beyond the shorter is that of its launches, without what a replay costs once.
Everything else is timed by CUDA events around each launch, less what lies between two events around nothing, with the queue filled
behind a spinning kernel first, so that the GPU never waits for Python; a cold cache is made by reading more than twice the L2 before
every launch. Both give what one more launch takes on a busy GPU, its start included, as the bound and the predictions count it.
"""

from __future__ import annotations

import contextlib
import gc
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from advisor.gpus.hardware import match_device_name
from advisor.measurement.devices.ceilings import measure_on_cuda
from advisor.measurement.devices.nvml import Monitor
from advisor.measurement.devices.probe import no_gpu
from advisor.measurement.kernel_file import KernelRef, function_of, kernel_entry, tolerance_of
from advisor.measurement.launch import Timing, WrongOutputError, classify, compare, is_fatal, poison
from advisor.python_source.described import kernel_problem
from advisor.result.schema import Configuration, Fingerprint, Problem
from advisor.system.errors import MeasurementError

GRAPH_BELOW_US = 1000.0
"""A pair of events adds a microsecond or two to what lies between them. From this length on that is too little to matter, so that of
two launches beside the limit the one timed by events is not taken for slower."""
GRAPH_SAMPLE_US = 200.0  # length of the shorter graph
GRAPH_LAUNCHES = (2, 64)
EMPTY_PAIRS = 25  # events around nothing, whose median is taken off
SAMPLE_BUDGET_US = 1_000.0  # of one side in one round, on the GPU
SAMPLES = (2, 5)
FLUSH_FACTOR = 2.1  # of the L2
ENQUEUE_US = 80.0
"""What Python takes to enqueue flush, two events and a launch, generously. Where the machine is slower than that, the GPU is held longer
(`CudaDevice.queued`)."""
LONGER_HOLDS = (1, 4, 16)


_REMEDIES = (
    ("c compiler", "install a C compiler (apt-get install gcc), or name one in CC: Triton builds its launcher with it"),
    ("gcc", "see that the C compiler works, and install Python's headers (apt-get install python3-dev)"),
    ("no space left", "make room on the disk of Triton's cache, or name another folder in TRITON_CACHE_DIR"),
    ("permission denied", "make Triton's cache writable, or name another folder in TRITON_CACHE_DIR"),
    ("read-only file system", "name a folder that can be written to in TRITON_CACHE_DIR"),
    ("active driver", "see that nvidia-smi works, and that nothing else took Triton's driver (pip install --force-reinstall triton)"),
    ("libcuda", "see that nvidia-smi works and that ldconfig lists libcuda.so.1, or name its folder in TRITON_LIBCUDA_PATH"),
    ("out of memory", "see with nvidia-smi which other program holds the GPU's memory"),
)
"""What to do about an empty kernel that does not run, by what its error says in lower case."""


@dataclass(slots=True)
class Launched:
    """A launch that ran and was checked, and how it is timed."""

    run: Callable[[], Any]
    output: Any
    graphs: tuple[Any, ...] = ()
    graph_launches: int = 0  # of the first graph; the second has twice as many
    estimate_us: float = 0.0
    samples: int = 0


class CudaDevice:
    """The first GPU that CUDA_VISIBLE_DEVICES shows."""

    def __init__(self) -> None:
        try:
            import torch
        except ImportError as error:
            raise no_gpu(f"torch cannot be imported ({error})") from None
        if torch.version.cuda is None:
            raise no_gpu(f"torch {torch.__version__} is not built for CUDA")
        if not torch.cuda.is_available():
            raise no_gpu("torch sees no GPU")
        self.torch = torch
        self.properties = torch.cuda.get_device_properties(0)
        uuid = getattr(self.properties, "uuid", None)
        self.uuid = f"GPU-{uuid}" if uuid is not None else None
        self.monitor = Monitor(self.uuid)
        self.facts = self.monitor.facts()
        self.default_clock_mhz = self.facts.default_clock_mhz  # the driver's
        self.gpu = match_device_name(self.properties.name)
        self.gpu_name = self.gpu.name if self.gpu else str(self.properties.name)  # the short one where `ceilings/` describes the GPU
        self.l2_bytes = int(getattr(self.properties, "L2_cache_size", 0)) or (self.gpu.l2_bytes if self.gpu else 64 << 20)
        self._flush_buffer: Any = None
        self._flush_sum: Any = None
        self._empty_pair_us: dict[bool, float] = {}

    def try_launch(self) -> None:
        """Compiles and launches an empty kernel, so that what is wrong with the machine is one error, and no launch's failure.

        Raises:
            MeasurementError: It does not run; says what to see to.
        """
        from advisor.measurement.devices import ceiling_kernels

        try:
            ceiling_kernels.empty_kernel[(1,)]()
            self.torch.cuda.synchronize()
        except Exception as error:
            cause = f"{type(error).__name__}: {error}"
            remedy = next((say for part, say in _REMEDIES if part in cause.lower()), "see with nvidia-smi whether the GPU is well")
            raise MeasurementError("an empty Triton kernel cannot be launched on this machine", cause, "a launch", remedy) from error

    def fingerprint(self) -> Fingerprint:
        """The GPU, its driver, and the software that runs on it."""
        import triton

        reading = self.monitor.read()
        return Fingerprint(
            mode="gpu",
            gpu=self.gpu_name,
            gpu_uuid=self.uuid,
            driver=self.facts.driver,
            cuda=self.torch.version.cuda,
            torch=self.torch.__version__,
            triton=triton.__version__,
            python=platform.python_version(),
            sm_clock_mhz=self.default_clock_mhz,
            memory_clock_mhz=reading.memory_clock_mhz,
            mig=self.facts.mig,
            power_cap_w=self.facts.power_cap_w,
        )

    def open(self, kernel: KernelRef, problem: Problem, seed: int) -> CudaBench:
        """Fresh random inputs, and the reference in fp64."""
        return CudaBench(self, kernel, problem, seed)

    def measure_ceilings(self) -> dict[str, float]:
        """Copy bandwidth, matrix products, an empty launch."""
        return measure_on_cuda(self.time_events)

    def flush_l2(self) -> None:
        """Enqueues the reading of more than twice the L2.

        Not the overwriting: the launch that follows would pay for writing the L2's dirty lines back.
        """
        if self._flush_buffer is None:
            self._flush_buffer = self.torch.zeros(int(FLUSH_FACTOR * self.l2_bytes) // 4, dtype=self.torch.float32, device="cuda")
            self._flush_sum = self.torch.zeros((), dtype=self.torch.float32, device="cuda")
        self.torch.sum(self._flush_buffer, dim=0, out=self._flush_sum)

    def hold_queue(self, duration_us: float) -> None:
        """Enqueues a kernel that spins, so that what is enqueued meanwhile runs without gaps."""
        clock_mhz = max(self.default_clock_mhz or 0.0, self.gpu.max_clock_mhz if self.gpu else 0.0) or 2000.0
        self.torch.cuda._sleep(int(duration_us * clock_mhz))

    def time_events(self, run: Callable[[], Any], samples: int) -> tuple[float, ...]:
        """Durations of `samples` runs in microseconds, each between two events, with what the L2 holds then."""
        return tuple(self.elapsed_us(self.queued([run] * samples, flush=False)))

    def empty_pair_us(self, *, flush: bool) -> float:
        """Microseconds between two events around nothing, after a flush of the L2 or not: what events add to what lies between them."""
        if flush not in self._empty_pair_us:
            times = sorted(self.elapsed_us(self.queued([lambda: None] * EMPTY_PAIRS, flush=flush)))
            self._empty_pair_us[flush] = times[EMPTY_PAIRS // 2]
        return self._empty_pair_us[flush]

    def queued(self, runs: Sequence[Callable[[], Any]], *, flush: bool, first: Callable[[], Any] | None = None) -> list[tuple[Any, Any]]:
        """Events around each run, all enqueued while the GPU was held.

        Where it began before the last one was enqueued it may have waited for Python in between: then once more, held longer.

        Args:
            runs: Each enqueues one.
            flush: Whether each begins with a cold L2.
            first: Enqueues what comes before all of them.
        """
        event = self.torch.cuda.Event
        for longer in LONGER_HOLDS:
            pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in runs]
            self.hold_queue(ENQUEUE_US * len(runs) * longer)
            released = event()
            released.record()
            if first is not None:
                first()
            for run, (start, end) in zip(runs, pairs, strict=True):
                if flush:
                    self.flush_l2()
                start.record()
                run()
                end.record()
            if not released.query():
                break
        return pairs

    def elapsed_us(self, pairs: list[tuple[Any, Any]]) -> list[float]:
        """Microseconds between the events of each pair; waits for the last."""
        self.torch.cuda.synchronize()
        return [1e3 * start.elapsed_time(end) for start, end in pairs]


class CudaBench:
    """One problem of one kernel."""

    def __init__(self, device: CudaDevice, kernel: KernelRef, problem: Problem, seed: int) -> None:
        self.device, self.kernel, self.problem, self.torch = device, kernel, problem, device.torch
        self.entry = kernel_entry(kernel)
        generator = self.torch.Generator(device="cuda").manual_seed(seed)
        self.inputs = function_of(kernel, "make_inputs")(kernel_problem(problem, None), "cuda", generator)
        self.want = _tuple(function_of(kernel, "reference")(self.inputs))
        self.torch.cuda.synchronize()

    def launch(self, configuration: Configuration) -> Launched:
        """Compiles (or finds compiled), runs once on a poisoned output, and waits."""
        flat = configuration.flat()
        space = self.entry.get("space")
        if space:  # options the kernel's launch does not know stay at their defaults
            flat = {name: value for name, value in flat.items() if name in space or name not in ("num_warps", "num_stages")}
        for tensor in _tuple(self.inputs["output"]):
            poison(tensor)
        run = function_of(self.kernel, "prepare")(self.inputs, flat)
        output = run()
        self.torch.cuda.synchronize()
        return Launched(run=run, output=output)

    def check(self, launched: Launched) -> None:
        """Compares with the reference, then decides how the launch is timed."""
        relative, absolute = tolerance_of(self.entry, self.problem.dtype, self.problem.sizes)
        got = _tuple(launched.output)
        if len(got) != len(self.want):
            raise WrongOutputError(f"{self.kernel.label}: number of outputs", len(got), str(len(self.want)))
        for index, (written, wanted) in enumerate(zip(got, self.want, strict=True)):
            compare(written, wanted, float(relative), float(absolute), f"{self.kernel.label} output {index}")
        self._choose_timer(launched)

    def _choose_timer(self, launched: Launched) -> None:
        launched.run()  # what runs once only (lazy allocations, module load) is behind us
        launched.estimate_us = estimate = max(0.5, min(self.device.time_events(launched.run, 3)))
        launched.samples = int(min(max(SAMPLE_BUDGET_US / estimate, SAMPLES[0]), SAMPLES[1]))
        if self.problem.cache == "warm" and estimate < GRAPH_BELOW_US:
            count = int(min(max(GRAPH_SAMPLE_US / estimate, GRAPH_LAUNCHES[0]), GRAPH_LAUNCHES[1]))
            graphs = tuple(self._capture(launched.run, launches) for launches in (count, 2 * count))
            if None not in graphs:
                launched.graphs, launched.graph_launches = graphs, count

    def _capture(self, run: Callable[[], Any], count: int) -> Any:
        """A graph of `count` launches, warmed up; None where something in the launch cannot be captured.

        Not `torch.cuda.graph`, which collects garbage and empties the allocator's cache on every entry.
        """
        cuda = self.torch.cuda
        graph, stream = cuda.CUDAGraph(), cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        try:
            with cuda.stream(stream), _garbage_kept():
                graph.capture_begin()
                try:
                    for _ in range(count):
                        run()
                finally:
                    graph.capture_end()
            cuda.current_stream().wait_stream(stream)
            graph.replay()
            cuda.synchronize()
        except RuntimeError as error:
            if is_fatal(error, classify(error, "check")) and "captur" not in str(error).lower():
                raise
            cuda.synchronize()
            return None
        return graph

    def timer(self, launched: Launched) -> str:
        """Graphs of many launches, or events around each."""
        return "graph" if launched.graphs else "events"

    def time(self, launched: Launched, round_number: int, replica: int) -> Timing:
        """One round of one side; the clock is read while the GPU is busy with it."""
        device, cold = self.device, self.problem.cache == "cold"
        runs = [graph.replay for graph in launched.graphs] or [launched.run]
        # Warm: this very launch ran before, not another side's.
        pairs = device.queued(runs * max(launched.samples, SAMPLES[0]), flush=cold, first=None if cold else runs[0])
        reading = device.monitor.read()
        times = device.elapsed_us(pairs)
        if launched.graphs:
            samples = [(both - first) / launched.graph_launches for first, both in zip(times[::2], times[1::2], strict=True)]
        else:
            samples = [us - device.empty_pair_us(flush=cold) for us in times]
        return Timing(
            samples_us=tuple(round(value, 4) for value in samples if value > 0),  # else something else held the GPU meanwhile
            sm_clock_mhz=reading.sm_clock_mhz,
            throttle=reading.throttle,
            temperature_c=reading.temperature_c,
            power_w=reading.power_w,
        )

    def close(self) -> None:
        """Frees the tensors."""
        self.inputs, self.want = {}, ()
        with contextlib.suppress(Exception):  # on a lost context; what lost it is worth more than this
            self.torch.cuda.empty_cache()


@contextlib.contextmanager
def _garbage_kept() -> Iterator[None]:
    """No garbage is collected within it: a compiled kernel among it would unload its module, which ends a capture (Triton 3.9)."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)
