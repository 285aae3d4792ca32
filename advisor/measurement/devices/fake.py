"""A fake GPU: the analytical model's latencies with noise, outliers, drift and throttling, and launches that go wrong.

It makes everything around a GPU testable without one. Times are simulated; with `execute`, the kernel file's functions run on
the CPU (plain Python or numpy), so that a file whose kernel faults, hangs, runs out of memory or writes wrong values does so
for real in the worker. All randomness is a function of launch, round and sample, never of what ran before: a resumed run gives
the rows an undisturbed one would (`drift` and `throttle` are functions of the round number). Only `power_limit` makes what is measured
depend on what ran before, as a board's does.
"""

from __future__ import annotations

import hashlib
import math
import os
import random
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from advisor import pipelines
from advisor.gpus.hardware import load_gpu
from advisor.measurement.devices.ceilings import specified_figures
from advisor.measurement.kernel_file import KernelRef, function_of, kernel_entry, tolerance_of
from advisor.measurement.launch import Launch, Timing, WrongOutputError, problem_key
from advisor.python_source.described import kernel_problem
from advisor.result.schema import Configuration, Fingerprint, Problem
from advisor.system.errors import AdvisorError, UsageError

STEP_S = 0.001


@dataclass(slots=True, kw_only=True)
class PowerLimit:
    """A board's power limit: the clock falls with the energy that is drawn above it, and recovers with rest.

    Attributes:
        cap_w: Power that the board may draw for long.
        burst_j: Energy above it that passes before the clock has fallen to what is sustained.
        idle_w: Power at rest; what does not depend on the clock.
        excess_j: Energy above the limit that was drawn and has not been made up for: from 0 (rested) to `burst_j`.
    """

    cap_w: float
    burst_j: float = 20.0
    idle_w: float = 100.0
    excess_j: float = 0.0

    def sustained(self, draw_w: float) -> float:
        """The share of the clock that is held for ever by what draws `draw_w` at the full clock; power goes by the clock's cube."""
        return 1.0 if draw_w <= self.cap_w else ((self.cap_w - self.idle_w) / (draw_w - self.idle_w)) ** (1 / 3)

    def run(self, draw_w: float, seconds: float) -> float:
        """Runs for so long what draws `draw_w` at the full clock; the mean share of the clock meanwhile, at most 1."""
        total, steps = 0.0, max(1, round(seconds / STEP_S))
        for _ in range(steps):
            share = 1 - (1 - self.sustained(draw_w)) * self.excess_j / self.burst_j
            total += share
            self._add(self.idle_w + (draw_w - self.idle_w) * share**3 - self.cap_w, seconds / steps)
        return total / steps

    def rest(self, seconds: float) -> None:
        """Runs nothing for so long."""
        self._add(self.idle_w - self.cap_w, seconds)

    def _add(self, excess_w: float, seconds: float) -> None:
        self.excess_j = min(max(self.excess_j + excess_w * seconds, 0.0), self.burst_j)


OPTIONS: dict[str, float | str] = {
    "gpu": "H200",  # whose description the latencies follow
    "seed": 0.0,
    "noise": 0.01,  # relative standard deviation of a round
    "sample_noise": 0.004,  # of the samples within a round
    "outliers": 0.01,  # share of samples that take 2 to 6 times as long
    "drift": 0.0,  # relative slowdown from the first to the thirtieth round
    "throttle": 0.0,  # share of rounds that run at 60 % of the clock, for heat
    "execute": 0.0,  # 1: run the kernel file's functions on the CPU, and check what they write
    "faults": "",  # share of launches that go wrong by themselves, e.g. 0.02; or kinds:share, e.g. hang+crash:0.1
    "samples": 3.0,  # per round
    "power_limit": 0.0,  # watts, above which the clock falls with the energy that is drawn, and recovers with rest; 0: none
    "round_ms": 30.0,  # for how long a round draws power, where there is a power limit
    "sleep_ms": 0.0,  # real time a round takes, so that a run can be interrupted
}
FAULTS = ("illegal-access", "hang", "out-of-memory", "out-of-resources", "compile-error", "wrong-output", "crash")


REST_S = 0.002
"""Between rounds, where there is a power limit."""


class OutOfResources(Exception):  # noqa: N818
    """Stands for triton's exception of the same name."""


class CompilationError(Exception):
    """Stands for triton's exception of the same name."""


def unit(*parts: object) -> float:
    """A number in [0, 1) that depends on nothing but `parts`."""
    digest = hashlib.blake2b("\x1f".join(map(str, parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def normal(*parts: object) -> float:
    """A standard normal number that depends on nothing but `parts`."""
    return math.sqrt(-2 * math.log(1 - unit(*parts, "u"))) * math.cos(2 * math.pi * unit(*parts, "v"))


class FakeDevice:
    """See the module."""

    def __init__(self, options: Mapping[str, float | str] | None = None) -> None:
        self.options = {**OPTIONS, **(options or {})}
        self.gpu = load_gpu(str(self.options["gpu"]))  # whose description it follows
        self.gpu_name, self.default_clock_mhz = self.gpu.name, self.gpu.boost_clock_mhz or self.gpu.base_clock_mhz
        self.fault_kinds, self.fault_share = _faults(self.options["faults"])
        self._latencies: dict[str, float] = {}
        limit = self.number("power_limit")
        self.board = PowerLimit(cap_w=limit) if limit else None

    def number(self, name: str) -> float:
        """A numeric option."""
        return float(self.options[name])

    def fingerprint(self) -> Fingerprint:
        """Says that it is a fake."""
        return Fingerprint(
            mode="offline", gpu=self.gpu.name, gpu_uuid="fake", driver="fake", cuda="fake", sm_clock_mhz=self.default_clock_mhz
        )

    def open(self, kernel: KernelRef, problem: Problem, seed: int) -> FakeBench:
        """Makes inputs where kernels are executed."""
        return FakeBench(self, kernel, problem, seed)

    def measure_ceilings(self) -> dict[str, float]:
        """The figures of the description, a little lowered."""
        return {name: value * (1.1 if name.endswith("_us") else 0.9) for name, value in specified_figures(self.gpu).items()}

    def latency_us(self, problem: Problem, configuration: Configuration) -> float:
        """The latency without noise: the analytical model's, and a fixed inefficiency of the configuration's own."""
        key = f"{problem_key(problem)}{configuration}"
        if key not in self._latencies:
            inefficiency = 1.0 + 0.08 * abs(normal(self.options["seed"], sorted(configuration.flat().items())))
            self._latencies[key] = self._model(problem, configuration) * inefficiency
        return self._latencies[key]

    def draw_w(self, configuration: Configuration) -> float:
        """Power that a configuration draws at the full clock, where there is a power limit: 0.8 to 1.6 times that."""
        draw = unit("draw", self.options["seed"], sorted(configuration.flat().items()))
        return self.number("power_limit") * (0.8 + 0.8 * draw)

    def _model(self, problem: Problem, configuration: Configuration) -> float:
        try:
            analysis = pipelines.analyse(pipelines.problem_batch([problem]), pipelines.configuration_batch([configuration]), self.gpu)
        except (AdvisorError, KeyError):
            return 10.0 + 90.0 * unit(sorted(kernel_problem(problem, None).items(), key=str))
        latency, least = float(np.ravel(analysis.latency_us)[0]), float(np.ravel(analysis.bound.us)[0])
        if not math.isfinite(latency):
            raise OutOfResources("out of resource: the configuration does not fit an SM")
        return max(latency, 1.02 * least)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeLaunched:
    """A launch that ran: what it wrote (where it was executed), its latency without noise, and the seed of its noise."""

    configuration: Configuration
    output: Any
    level_us: float
    identity: str


class FakeBench:
    """One problem on the fake device."""

    def __init__(self, device: FakeDevice, kernel: KernelRef, problem: Problem, seed: int) -> None:
        self.device, self.kernel, self.problem, self.seed = device, kernel, problem, seed
        self.inputs: dict[str, Any] | None = None
        if device.number("execute"):
            self.inputs = function_of(kernel, "make_inputs")(kernel_problem(problem, None), "cpu", random.Random(seed))
            self.want = function_of(kernel, "reference")(self.inputs)

    def launch(self, configuration: Configuration) -> FakeLaunched:
        """Runs it where kernels are executed, and lets it go wrong where it is its turn."""
        device = self.device
        key = Launch(kernel=self.kernel, problem=self.problem, configuration=configuration).key()
        if unit(device.options["seed"], "fault?", key) < device.fault_share:
            kinds = device.fault_kinds
            _go_wrong(kinds[int(unit(device.options["seed"], "fault", key) * len(kinds))])
        level_us, output = device.latency_us(self.problem, configuration), None  # raises where it does not fit
        if self.inputs is not None:
            for tensor in _tuple(self.inputs["output"]):
                np.asarray(tensor).fill(np.nan)
            output = function_of(self.kernel, "prepare")(self.inputs, configuration.flat())()
        # The kernel's file is part of the noise: two revisions of one kernel are two launches.
        identity = f"{device.options['seed']} {self.seed} {key} {Path(self.kernel.file).name}"
        return FakeLaunched(configuration=configuration, output=output, level_us=level_us, identity=identity)

    def check(self, launched: FakeLaunched) -> None:
        """Compares the output with the reference, where there is one."""
        if self.inputs is None:
            return
        relative, absolute = tolerance_of(kernel_entry(self.kernel), self.problem.dtype, self.problem.sizes)
        for got, want in zip(_tuple(launched.output), _tuple(self.want), strict=True):
            got, want = np.asarray(got, dtype=np.float64), np.asarray(want, dtype=np.float64)
            limit = relative * np.abs(want) + absolute * math.sqrt(float(np.mean(want * want)))
            wrong = ~(np.abs(got - want) <= limit) if got.shape == want.shape else np.array([True])  # NaN is wrong
            if wrong.any():
                share = 100 * float(np.mean(wrong))
                raise WrongOutputError(f"{self.kernel.label}: the output differs from the reference", f"{share:.3g} % of its elements")

    def timer(self, launched: FakeLaunched) -> str:
        """Nothing is timed."""
        return "simulated"

    def time(self, launched: FakeLaunched, round_number: int, replica: int) -> Timing:
        """Samples of one round."""
        device, number = self.device, self.device.number
        if number("sleep_ms"):
            time.sleep(number("sleep_ms") / 1e3)
        if launched.output is not None:  # a kernel that was right once can still go wrong
            function_of(self.kernel, "prepare")(self.inputs, launched.configuration.flat())()
        key = (launched.identity, round_number, replica)
        clock = device.default_clock_mhz
        throttled = unit("throttle", device.options["seed"], round_number) < number("throttle")
        level = launched.level_us * (1 + number("drift") * round_number / 30)
        level *= 1 + number("noise") * normal(*key)
        reasons: tuple[str, ...] = ()
        if throttled:
            clock, level, reasons = 0.6 * clock, level / 0.6, ("sw-thermal",)
        if device.board is not None:
            device.board.rest(REST_S)
            share = device.board.run(device.draw_w(launched.configuration), number("round_ms") / 1e3)
            clock, level, reasons = share * clock, level / share, (*reasons, *(("sw-power-cap",) if share < 0.999 else ()))
        samples = []
        for sample in range(int(number("samples"))):
            value = level * (1 + number("sample_noise") * normal(*key, sample))
            if unit(*key, sample, "outlier") < number("outliers"):
                value *= 2 + 4 * unit(*key, sample, "size")
            samples.append(round(value, 4))
        return Timing(
            samples_us=tuple(samples),
            sm_clock_mhz=round(clock, 1),
            throttle=reasons,
            temperature_c=55.0,
            power_w=400.0,
        )

    def close(self) -> None:
        """Nothing is held."""


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _faults(option: float | str) -> tuple[tuple[str, ...], float]:
    """`0.02`, or `hang+crash:0.1`, as kinds and share."""
    text = str(option)
    if not text:
        return FAULTS, 0.0
    names, _, share = text.rpartition(":")
    kinds = tuple(names.split("+")) if names else FAULTS
    unknown = [kind for kind in kinds if kind not in FAULTS]
    try:
        value = float(share)
    except ValueError:
        value = -1.0
    if unknown or not 0 <= value <= 1:
        raise UsageError("the fake device's faults", text, f"a share, or KIND+KIND:SHARE with kinds of {', '.join(FAULTS)}")
    return kinds, value


def _go_wrong(kind: str) -> None:
    """Does what a kernel of that kind does to its process."""
    if kind == "illegal-access":
        raise RuntimeError("CUDA error: an illegal memory access was encountered")
    if kind == "hang":
        time.sleep(10**6)
    if kind == "out-of-memory":
        raise MemoryError("CUDA out of memory. Tried to allocate 200.00 GiB")
    if kind == "out-of-resources":
        raise OutOfResources("out of resource: shared memory, Required: 300000, Hardware limit: 232448")
    if kind == "compile-error":
        raise CompilationError("at 7:11: unsupported operand")
    if kind == "wrong-output":
        raise WrongOutputError("the output differs from the reference", "12 % of its elements")
    os.kill(os.getpid(), signal.SIGSEGV)
