"""Launches to measure, those of one problem interleaved, and why one has no latency: a typed failure, never `inf` or None."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from advisor.measurement.kernel_file import KernelRef
from advisor.result.schema import Configuration, Problem, Round
from advisor.system.errors import AdvisorError, MeasurementError, shorten

FAILURE_KINDS = (
    "illegal-access",  # the kernel touched memory it may not; the CUDA context is lost
    "hang",  # it did not come back in time, and was killed
    "out-of-memory",  # the tensors do not fit
    "out-of-resources",  # the configuration needs more shared memory, registers or threads than an SM has
    "compile-error",
    "wrong-output",
    "crash",  # the worker died, or raised something else
)
MESSAGE_LIMIT = 300
LASTING_KINDS = ("illegal-access", "hang", "out-of-resources", "compile-error", "wrong-output")
"""Failures that are the configuration's own. The others (a crash, memory that was full) may be the machine's, and may go well
another time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One failure. `stage` says where it happened: inputs, compile, launch, check or rounds."""

    kind: str
    message: str
    stage: str

    def __post_init__(self) -> None:
        if self.kind not in FAILURE_KINDS:
            raise ValueError(f"failure kind must be one of {', '.join(FAILURE_KINDS)} (got {self.kind!r})")

    @property
    def lasting(self) -> bool:
        """Whether the configuration itself is to blame, so that measuring it again gives nothing else: not a compiler on a cold disk."""
        return self.kind in LASTING_KINDS and not (self.kind == "hang" and self.stage in ("open", "inputs", "compile"))

    @property
    def no_memory_for_inputs(self) -> bool:
        """Whether the tensors of the problem themselves do not fit, whatever the configuration."""
        return self.kind == "out-of-memory" and self.stage == "inputs"


class WrongOutputError(MeasurementError):
    """A launch wrote something other than its reference."""


# Texts of CUDA and of Triton's driver, in lower case (CUDA 13 `cudaGetErrorString`; Triton 3.6 and 3.9 `driver.c`).
_TEXTS: tuple[tuple[str, str], ...] = (
    ("illegal memory access", "illegal-access"),
    ("illegal address", "illegal-access"),
    ("misaligned address", "illegal-access"),
    ("unspecified launch failure", "illegal-access"),
    ("invalid address space", "illegal-access"),
    ("illegal instruction", "illegal-access"),
    ("out of memory", "out-of-memory"),
    ("out of resource", "out-of-resources"),
    ("too many resources requested", "out-of-resources"),
    ("launch timed out", "hang"),
    ("cublas_status_alloc_failed", "out-of-memory"),
    # Triton's passes and its back end raise plain RuntimeErrors.
    ("internal triton ptx codegen error", "compile-error"),
    ("passmanager::run failed", "compile-error"),
    ("failed to translate module", "compile-error"),
)
_MACHINE_TEXTS = (
    "failed to find c compiler",
    "no space left on device",
    "disk quota exceeded",
    "permission denied",
    "read-only file system",
    "too many open files",
    "cannot allocate memory",
    "0 active drivers",
    "ecc error",
    "unable to determine the device handle",
)
"""Of the machine, whatever raised it: ptxas says so too where the disk is full."""
_TYPES: dict[str, str] = {
    "OutOfMemoryError": "out-of-memory",  # torch
    "MemoryError": "out-of-memory",
    "OutOfResources": "out-of-resources",  # triton
    "CompilationError": "compile-error",
    "CompileTimeAssertionFailure": "compile-error",
    "MLIRCompilationError": "compile-error",
    "PTXASError": "compile-error",
    "UnsupportedLanguageConstruct": "compile-error",
    "WrongOutputError": "wrong-output",
}
_FATAL_TEXTS = ("cuda error", "triton error [cuda]", "device-side assert")


def classify(error: BaseException, stage: str) -> Failure:
    """The failure that an exception stands for; by name and text, so that neither torch nor triton need be imported."""
    text = str(error).lower()
    kind = next((_TYPES[base.__name__] for base in type(error).__mro__ if base.__name__ in _TYPES), None)
    if isinstance(error, OSError) or (kind != "wrong-output" and any(part in text for part in _MACHINE_TEXTS)):
        kind = "crash"
    elif kind is None:
        kind = next((kind for part, kind in _TEXTS if part in text), "compile-error" if stage == "compile" else "crash")
    message = str(error) if isinstance(error, AdvisorError) else f"{type(error).__name__}: {error}"
    return Failure(kind=kind, message=shorten(message, MESSAGE_LIMIT), stage=stage)


def is_fatal(error: BaseException, failure: Failure) -> bool:
    """Whether nothing can run in this process any more: the CUDA context is lost with an illegal access or an assertion."""
    if failure.kind in ("out-of-memory", "out-of-resources", "compile-error", "wrong-output"):
        return False
    return failure.kind == "illegal-access" or any(part in str(error).lower() for part in _FATAL_TEXTS)


CHECK_ELEMENTS = 1 << 25  # compared at once, so that fp64 copies stay small: half a dozen of a quarter of a GiB each


def poison(tensor: Any) -> None:
    """Fills an output with what no right result holds."""
    import torch

    if tensor.dtype.is_floating_point and tensor.element_size() == 1:
        tensor.view(torch.uint8).fill_(0x7F)  # NaN in e4m3
    elif tensor.dtype.is_floating_point:
        tensor.fill_(math.nan)
    else:
        tensor.fill_(torch.iinfo(tensor.dtype).min)


def compare(got: Any, want: Any, relative: float, absolute: float, what: str) -> None:
    """|got - want| <= relative |want| + absolute rms(want), everywhere; NaN only where the reference has it.

    The rms is that of the element's row (last dimension) or of the whole tensor, whichever is larger: rows of a causal attention that
    see few keys are much larger than the others, and a short row may be near zero by cancellation.

    Raises:
        WrongOutputError: Not so; says how much of it is wrong, and the worst place.
    """
    import torch

    if tuple(got.shape) != tuple(want.shape):
        raise WrongOutputError(f"{what}: shape", tuple(got.shape), str(tuple(want.shape)))
    if got.numel() == 0:
        return
    rms = math.sqrt(sum(float(_finite_square(part).sum()) for part in _parts(want)) / want.numel())
    wrong, worst, first = 0, (0.0, 0, 0.0, 0.0), 0
    for written, wanted in zip(map(torch.Tensor.double, _parts(got)), map(torch.Tensor.double, _parts(want)), strict=True):
        size = rms if wanted.ndim == 1 else _finite_square(wanted).mean(-1, keepdim=True).sqrt_().clamp_(min=rms)
        # Where the reference is infinite the limit is too, and would let anything pass.
        close = wanted.isfinite() & ((written - wanted).abs_() <= relative * wanted.abs() + absolute * size)
        right = close | (written == wanted) | (written.isnan() & wanted.isnan())
        bad = int((~right).sum())
        if bad:
            wrong += bad
            excess = torch.where(right, torch.zeros_like(written), torch.nan_to_num((written - wanted).abs_(), nan=math.inf)).reshape(-1)
            place = int(excess.argmax())
            if float(excess[place]) >= worst[0]:
                worst = (float(excess[place]), first + place, float(written.reshape(-1)[place]), float(wanted.reshape(-1)[place]))
        first += written.numel()
    if wrong:
        raise WrongOutputError(
            f"{what}: {wrong} of {got.numel()} elements differ from the reference",
            f"{worst[2]:.6g} at {worst[1]}",
            f"{worst[3]:.6g} ± {relative:g} relative, {absolute:g} of the rms",
        )


def _parts(tensor: Any) -> Iterator[Any]:
    """The tensor in pieces of some `CHECK_ELEMENTS`: whole rows [r, n] where it has any, else [n]."""
    if tensor.ndim < 2:
        return iter(tensor.reshape(-1).split(CHECK_ELEMENTS))
    return iter(tensor.reshape(-1, tensor.shape[-1]).split(max(1, CHECK_ELEMENTS // tensor.shape[-1])))


def _finite_square(part: Any) -> Any:
    """Squares in fp64, 0 where the value is not finite."""
    import torch

    return torch.nan_to_num(part.double(), nan=0.0, posinf=0.0, neginf=0.0).square_()


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Kernel, problem and configuration; the GPU is the device's."""

    kernel: KernelRef
    problem: Problem
    configuration: Configuration

    def key(self) -> str:
        """The identity of the launch on any machine: it has the kernel's name, not where its file lies."""
        return json.dumps([self.kernel.function, problem_key(self.problem), self.configuration.flat()], sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Launches of one problem, measured in the same rounds.

    Attributes:
        launches: At least one; all of one problem. Several kernels may occur (two revisions of one, say).
        rounds: Rounds that must count.
        max_rounds: Rounds at most, where they are noisy or dropped.
        together: Extend all launches by the same rounds (a comparison), not only those that are noisy.
        seed: Of inputs and of the order within rounds.
        floor: Measure the A/A noise floor, by timing the first launch as two sides.
    """

    launches: tuple[Launch, ...]
    rounds: int = 10
    max_rounds: int = 30
    together: bool = False
    seed: int = 0
    floor: bool = True

    @property
    def problem(self) -> Problem:
        """The problem all launches share."""
        return self.launches[0].problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One side of one round: samples in microseconds, and the state of the GPU while they were taken."""

    samples_us: tuple[float, ...]
    sm_clock_mhz: float | None = None
    throttle: tuple[str, ...] = ()
    temperature_c: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome of one launch: rounds, or a failure.

    `throttle` names the reasons the driver gave for a lowered clock; `timer` is events, graph or simulated (see
    `devices.cuda` for what they time).
    """

    rounds: tuple[Round, ...] = ()
    failure: Failure | None = None
    noise_floor: float | None = None
    timer: str = ""
    throttle: tuple[str, ...] = ()
    temperature_c: float | None = None
    power_w: float | None = None


def problem_key(problem: Problem) -> str:
    """A problem as canonical text."""
    values = {name: value for name, value in asdict(problem).items() if value is not None}
    if problem.routing is not None:  # hundreds of numbers: a digest tells them apart
        values["routing"] = hashlib.sha256(json.dumps(problem.routing).encode()).hexdigest()[:16]
    return json.dumps(values, sort_keys=True)
