"""What is measured: launches, and batches of launches that share a problem and are interleaved."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from advisor.measurement.failures import Failure
from advisor.measurement.kernel_file import KernelRef, flat_configuration
from advisor.schema import Configuration, Problem, Round


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """Kernel, problem and configuration; the GPU is the device's."""

    kernel: KernelRef
    problem: Problem
    configuration: Configuration

    def key(self) -> str:
        """What makes two launches the same launch, on whatever machine: the kernel's name, not where its file lies."""
        return json.dumps(
            [self.kernel.function, problem_key(self.problem), flat_configuration(self.configuration)], sort_keys=True
        )


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
class Outcome:
    """What became of one launch: rounds, or a failure.

    `throttle` names the reasons the driver gave for a lowered clock; `timer` is events, graph, simulated or recorded.
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


def problem_to_json(problem: Problem) -> dict[str, Any]:
    """A problem as plain values."""
    return asdict(problem)


def problem_from_json(values: dict[str, Any]) -> Problem:
    """The reverse of `problem_to_json`."""
    values = dict(values)
    for name in ("block_shape", "routing"):
        if values.get(name) is not None:
            values[name] = tuple(values[name])
    return Problem(**values)


def batch_to_json(batch: Batch) -> dict[str, Any]:
    """A batch as plain values, for a worker."""
    return asdict(batch)


def batch_from_json(values: dict[str, Any]) -> Batch:
    """The reverse of `batch_to_json`."""
    launches = tuple(
        Launch(
            kernel=KernelRef(**each["kernel"]),
            problem=problem_from_json(each["problem"]),
            configuration=Configuration(**each["configuration"]),
        )
        for each in values["launches"]
    )
    return Batch(**{**values, "launches": launches})


def outcome_to_json(outcome: Outcome) -> dict[str, Any]:
    """An outcome as plain values."""
    return asdict(outcome)


def outcome_from_json(values: dict[str, Any]) -> Outcome:
    """The reverse of `outcome_to_json`."""
    values = dict(values)
    values["rounds"] = tuple(Round(**{**r, "samples_us": tuple(r["samples_us"])}) for r in values["rounds"])
    values["throttle"] = tuple(values["throttle"])
    if values["failure"] is not None:
        values["failure"] = Failure(**values["failure"])
    return Outcome(**values)
