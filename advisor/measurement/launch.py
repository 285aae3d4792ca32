"""What is measured: launches, and batches of launches that share a problem and are interleaved."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from advisor.measurement.failures import Failure
from advisor.measurement.kernel_file import KernelRef
from advisor.result.result_json import codec_of
from advisor.result.schema import Configuration, Problem, Round

MAX_SUSTAINED_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Kernel, problem and configuration; the GPU is the device's."""

    kernel: KernelRef
    problem: Problem
    configuration: Configuration

    def key(self) -> str:
        """What makes two launches the same launch, on whatever machine: the kernel's name, not where its file lies."""
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
        sustained_s: After the rounds, keep the GPU busy with each launch for so many seconds; 0: not.
    """

    launches: tuple[Launch, ...]
    rounds: int = 10
    max_rounds: int = 30
    together: bool = False
    seed: int = 0
    floor: bool = True
    sustained_s: float = 0.0

    @property
    def problem(self) -> Problem:
        """The problem all launches share."""
        return self.launches[0].problem


@dataclass(frozen=True, slots=True, kw_only=True)
class Sustained:
    """A launch over and over, until the power limit had its say: microseconds per launch, after how many seconds, at which clock and
    power (medians; None where the GPU does not say)."""

    latency_us: float
    seconds: float
    sm_clock_mhz: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one launch: rounds, or a failure.

    `throttle` names the reasons the driver gave for a lowered clock; `timer` is events, graph, simulated or recorded (see
    `devices.cuda` for what they time); `sustained` is known where the batch asked for it.
    """

    rounds: tuple[Round, ...] = ()
    failure: Failure | None = None
    noise_floor: float | None = None
    timer: str = ""
    throttle: tuple[str, ...] = ()
    temperature_c: float | None = None
    power_w: float | None = None
    sustained: Sustained | None = None


def problem_key(problem: Problem) -> str:
    """A problem as canonical text."""
    values = {name: value for name, value in asdict(problem).items() if value is not None}
    if problem.routing is not None:  # hundreds of numbers: a digest tells them apart
        values["routing"] = hashlib.sha256(json.dumps(problem.routing).encode()).hexdigest()[:16]
    return json.dumps(values, sort_keys=True)


def problem_from_json(values: dict[str, Any]) -> Problem:
    """The reverse of `asdict`, through JSON."""
    return codec_of(Problem).decode(values, "problem")


def batch_from_json(values: dict[str, Any]) -> Batch:
    """The reverse of `asdict`, through JSON."""
    launches = tuple(
        Launch(
            kernel=KernelRef(**each["kernel"]),
            problem=problem_from_json(each["problem"]),
            configuration=Configuration(**each["configuration"]),  # the values of a user's space may be of any type
        )
        for each in values["launches"]
    )
    return Batch(**{**values, "launches": launches})


def outcome_from_json(values: dict[str, Any]) -> Outcome:
    """The reverse of `asdict`, through JSON."""
    return codec_of(Outcome).decode(values, "outcome")
