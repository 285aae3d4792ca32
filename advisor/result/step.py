"""A predicted step of a model: what `advisor model` prints, draws and writes as JSON."""

from __future__ import annotations

from dataclasses import dataclass

STEP_SCHEMA_VERSION = "1.1"
"""1.1: `stack_version`, `bound_us`, `Memory.state_bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOperator:
    """One operator of a step: `count` launches of `us` each, every latency in microseconds.

    `total_us` is all of them, `share` its part of the step (0..1). `ceiling_us` is the tunable ceiling, `library_us` the library
    reference, measured where `library` says, where there is one. `gain` is the part of the step that is won where the operator reaches its
    tunable ceiling (0 where it is not `tunable`), `gain_at_library` where it takes what the best library takes, `gain_at_bound` where it
    reaches the bound: what a better or fused kernel could win at most. `parts` are the kernels of a layer, latencies of one launch.
    `measured_us` is what a trace measured of one; its `total_us` and `share` are measured too, and `gain_at_bound` counts from there.
    """

    name: str
    kind: str
    problem: str
    count: int
    cache: str
    us: float
    low_us: float
    high_us: float
    bound_us: float
    binding: str
    ceiling_us: float
    library_us: float | None
    library: str
    parts: tuple[tuple[str, float], ...]
    tunable: bool
    total_us: float
    share: float
    gain: float
    gain_at_library: float
    gain_at_bound: float
    measured_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """The latency of a step and its 80 % interval, microseconds."""

    us: float
    low_us: float
    high_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes that one GPU has to hold, and has. Of a training step the weights count twice, with their gradients, and activations are those
    that wait for backward."""

    weights_bytes: float
    kv_bytes: float
    gpu_bytes: float
    activations_bytes: float = 0.0
    state_bytes: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether weights, KV cache and states leave the engine room for anything else."""
        return self.weights_bytes + self.kv_bytes + self.state_bytes + self.activations_bytes < self.gpu_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredKind:
    """What a trace measured of all operators of a kind in a step, beside what is predicted and their bounds, microseconds."""

    kind: str
    measured_us: float
    predicted_us: float
    bound_us: float


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """What a step of so many tokens takes on one GPU (of each of the `ranks` that share it), and why."""

    model: str
    gpu: str
    load: str
    split: str
    engine: str
    dtype: str
    step: StepTime
    tokens_per_s: float
    memory: Memory
    operators: tuple[StepOperator, ...]
    command: str
    predictor: str
    advice: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()
    measured_us: float | None = None
    measured: tuple[MeasuredKind, ...] = ()
    tokens: int = 0
    stack_version: str = ""
    bound_us: float = 0.0
