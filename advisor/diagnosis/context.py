"""The context of a rule: one launch, the analytical model's figures of it, and those after a change.

Savings are in the currency of the prediction that is shown. Another configuration is priced by the predictor that made it
(`pricing`). What no predictor prices (another problem) is a latency of the analytical model, multiplied by predicted / analytical latency
of the launch as it is, so that a learned prediction and the model's what-ifs compare. What a cause costs is part of what lies above the
bound, and is scaled as that is: a page says the same of it in the waterfall and in a finding.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from advisor import pipelines
from advisor.diagnosis.neighbours import Change, Changed, Limits, Neighbourhood, change, changed, neighbourhood
from advisor.diagnosis.pricing import Pricing, at, first, now_us, take_row
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines import Analysis, Array, Bound, Demand, Schedule
from advisor.pipelines.bound import throughput_per_us
from advisor.result.schema import Configuration, Origin, Problem

Need = Literal["configuration", "runs", "tiles", "experts", "measured", "entry", "entry_m", "dot"]
"""What a rule needs: a known configuration; a launch that fits the GPU; a tiled product (BLOCK_SIZE_M, N, K); a product over
experts; a measured latency; the entry as the table has it; the token count the entry is for; a matrix product of any family."""

THRESHOLD = 0.02
"""A saving below this share of the latency is not reported. Source: the least noise floor of a measurement, `advisor compare`."""


class Modelled:
    """What the analytical model says of launches [n] with causes left out: computed for all of them when it is asked for one."""

    def __init__(self, analysis: Analysis, gpu: GpuSpec) -> None:
        self.analysis, self.gpu = analysis, gpu
        self._without: dict[tuple[str, ...], Array] = {}

    @cached_property
    def gap(self) -> dict[str, Array]:
        """Microseconds above the bound by cause (`pipelines.gap`), [n] each."""
        bound = self.analysis.bound
        least = bound.times_us["dram"] * throughput_per_us(self.gpu, None)["dram"]
        return pipelines.gap(self.analysis.demand, self.gpu, bound.us, least)

    def without(self, relax: Collection[str]) -> Array:
        """Latencies in microseconds where the causes `relax` cost nothing, [n]."""
        causes = tuple(relax)
        if causes not in self._without:
            self._without[causes] = pipelines.latency_us(self.analysis.demand, self.gpu, causes)
        return self._without[causes]


@dataclass(slots=True)
class _Memory:
    """Values that several rules ask of a launch, kept once computed."""

    neighbours: Neighbourhood | None = None
    divided: dict[str, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchContext:
    """One launch as the rules see it. Make one with `context`.

    Attributes:
        problem: What is computed.
        gpu: On what.
        configuration: As it really runs, after the launcher's clamping; None where it cannot be known.
        entry: As the table has it, before clamping; None where there is no table.
        entry_m: Token count the entry stands under.
        predicted_us: Latency shown for this launch, inf where it cannot launch, None where nothing can be predicted.
        ceiling_us: Least latency over the kernel's space.
        measured_us: Where it was measured.
        measured_origin: Whether it was, or simulated: what every text says of `measured_us`.
        bound: Of the problem, one row.
        config_bound: Of the configuration, one row.
        demand: Of the configuration, one row.
        schedule: Of the configuration, one row.
        analytical_us: Latency of the analytical model, before any scaling; inf where it cannot launch.
        modelled: The same launch among others, at `row`, with causes left out; None where the configuration cannot be known.
        row: Its row.
        pricing: What prices changed configurations, for this launch and those that share its configuration; None: the analytical
            model, scaled, for this launch alone.
        around: The launch under changed configurations, where that is known already.
        recommended: What is predicted with the configuration that is recommended instead, if one is.
        offered: That configuration.
        ranked: The configuration that the order of the space has first, recommended or not; None: there is no such order.
        refused: Why the launch raises an error although the configuration fits; empty where it does not.
        source_file: Where the kernel is, if known.
        source_line: Line of it.
    """

    problem: Problem
    gpu: GpuSpec
    configuration: Configuration | None
    entry: Configuration | None = None
    entry_m: int | None = None
    predicted_us: float | None
    ceiling_us: float | None = None
    measured_us: float | None = None
    measured_origin: Origin = "measured"
    bound: Bound
    config_bound: Bound | None
    demand: Demand | None
    schedule: Schedule | None
    analytical_us: float | None
    modelled: Modelled | None = None
    row: int = 0
    pricing: Pricing | None = None
    around: Changed | None = None
    recommended: Change | None = None
    offered: Configuration | None = None
    ranked: Change | None = None
    refused: str = ""
    source_file: str | None = None
    source_line: int | None = None
    _memory: _Memory = field(default_factory=_Memory, repr=False, compare=False)

    @property
    def bound_us(self) -> float:
        """The bound of the problem."""
        return first(self.bound.us)

    @property
    def M(self) -> int | None:
        """Tokens, rows or queries of the problem, where it has such a size."""
        return self.problem.sizes.get("M")

    @property
    def tiled(self) -> bool:
        """Whether this is a product in tiles of BLOCK_SIZE_M x BLOCK_SIZE_N x BLOCK_SIZE_K."""
        return self.problem.family == "gemm" or (self.problem.family == "fused_moe" and self.problem.op in ("w13", "w2"))

    @property
    def runs(self) -> bool:
        """Whether the launch has a configuration that fits the GPU, and a prediction."""
        resident = self.schedule is not None and first(self.schedule.resident) > 0
        return resident and self.predicted_us is not None and math.isfinite(self.predicted_us)

    def has(self, need: Need) -> bool:
        """Whether this launch has what a rule needs."""
        return {
            "configuration": self.configuration is not None and self.demand is not None,
            "runs": self.runs,
            "tiles": self.tiled and self.configuration is not None,
            "experts": self.problem.family == "fused_moe" and self.tiled,
            "measured": self.measured_us is not None,
            "entry": self.entry is not None and self.configuration is not None,
            "entry_m": self.entry_m is not None and self.M is not None,
            "dot": self.tiled or self.problem.family == "attention",
        }[need]

    @property
    def current_us(self) -> float:
        """The prediction, for rules that need `runs`."""
        if self.predicted_us is None:
            raise ValueError("no prediction: a rule that uses it must need 'runs'")
        return self.predicted_us

    @property
    def now_us(self) -> float:
        """Microseconds of the launch as it is, for rules that need `runs`: the prediction, or a measurement that is faster."""
        return now_us(self.current_us, self.measured_us, self.bound_us)

    @property
    def available_us(self) -> float:
        """Microseconds between the bound and what the launch takes now: nothing saves more."""
        return max(self.now_us - self.bound_us, 0.0)

    @property
    def launch_demand(self) -> Demand:
        """The demand, for rules that need `configuration`."""
        if self.demand is None:
            raise ValueError("no demand: a rule that uses it must need 'configuration'")
        return self.demand

    @property
    def plan(self) -> Schedule:
        """The schedule, for rules that need `configuration`."""
        if self.schedule is None:
            raise ValueError("no schedule: a rule that uses it must need 'configuration'")
        return self.schedule

    @property
    def scale(self) -> float:
        """Predicted / analytical latency."""
        if not self.runs or self.analytical_us is None or not 0 < self.analytical_us < math.inf:
            return 1.0
        return self.current_us / self.analytical_us

    @property
    def divided(self) -> dict[str, float]:
        """Microseconds above the bound by the analytical model, by cause, unscaled; computed once, for most rules ask."""
        if self._memory.divided is None:
            if self.modelled is None:
                raise ValueError("no configuration: a rule that asks for causes must need 'configuration'")
            parts = {cause: at(us, self.row) for cause, us in self.modelled.gap.items()}
            self._memory.divided = {cause: max(us, 0.0) for cause, us in parts.items() if math.isfinite(us)}
        return self._memory.divided

    @property
    def excess(self) -> float:
        """Predicted / analytical latency above the bound: the bound is the same for both, and only what is above it has causes."""
        modelled = math.fsum(self.divided.values())
        return max(self.current_us - self.bound_us, 0.0) / modelled if self.runs and modelled > 0 else 0.0

    def place(self, file: str | None, line: int | None) -> tuple[str, str | None, int | None]:
        """`entry M=64` where a table's entry is meant, else `launch`; and where the kernel is: a rule on closed forms knows no line."""
        return f"entry M={self.entry_m}" if self.entry_m is not None else "launch", file or self.source_file, line or self.source_line

    def parameter(self, name: str, default: int = 1) -> int:
        """A numeric parameter or launch option of the configuration as it runs."""
        return parameter_of(self.configuration, name, default)

    def what_if(self, *, problem: Problem | None = None, **changes: int) -> float:
        """Predicted latency after a change, in microseconds; inf where it could not launch.

        Args:
            problem: Another problem.
            changes: Parameters and launch options to replace: BLOCK_SIZE_M=32, num_warps=8.
        """
        if self.configuration is None:
            raise ValueError("no configuration: a rule that asks what-if must need 'configuration'")
        changed = self.launch_demand
        if changes or problem is not None:
            changed = self._demand(problem or self.problem, change(self.configuration, changes))
        return self.scale * first(pipelines.latency_us(changed, self.gpu))

    def _demand(self, problem: Problem, configuration: Configuration) -> Demand:
        batch = pipelines.configuration_batch([configuration])
        return take_row(pipelines.demand(pipelines.problem_batch([problem]), batch, self.gpu), 0)

    def neighbours(self) -> Neighbourhood:
        """Configurations one or two changes away, with what the model predicts of them; computed once."""
        if self._memory.neighbours is None:
            if self.configuration is None:
                raise ValueError("no configuration: a rule that looks at neighbours must need 'configuration'")
            now = self.now_us if self.runs else math.inf
            fixed = self.pricing.fixed if self.pricing is not None else ()
            self._memory.neighbours = neighbourhood(
                self.problem,
                self.around or changed([(self.problem, self.configuration, fixed)], self.gpu)[0],
                self.gpu,
                scale=self.scale,
                excess=self.excess,
                now_us=now,
                limits=self.limits,
                pricing=self.pricing,
            )
        return self._memory.neighbours

    @property
    def limits(self) -> Limits:
        """The latencies that no change may be promised to undercut: the tunable ceiling, and that of the first-ranked configuration."""
        least = min(self.ceiling_us or 0.0, self.now_us) if self.runs else 0.0
        name = "the first-ranked configuration" if self.recommended is None else "the recommended configuration"
        return Limits(least_us=least, ranked=self.ranked, ranked_name=name)

    def saving(self, after_us: float) -> float:
        """Microseconds saved when the launch takes `after_us`; never negative, never more than lies between the bound and now."""
        return min(max(self.now_us - after_us, 0.0), self.available_us) if math.isfinite(after_us) else 0.0

    def bound_of(self, problem: Problem) -> float:
        """The bound of another problem on this GPU, in microseconds."""
        work = pipelines.work(pipelines.problem_batch([problem]), self.gpu)
        return first(pipelines.bound(work, self.gpu, problem.cache).us)

    def costs(self, *, relax: Collection[str] = (), demand: Mapping[str, Any] | None = None) -> float:
        """Microseconds that a cause costs in the prediction, in the measure of the waterfall (`excess`).

        Args:
            relax: Causes (`pipelines.schedule.CAUSES`) that cost nothing.
            demand: Fields of `Demand` as they were without the cause.
        """
        if demand is None and self.modelled is not None:
            left = at(self.modelled.without(relax), self.row)
        else:
            left = first(pipelines.latency_us(replace(self.launch_demand, **(demand or {})), self.gpu, relax))
        saved = (self.analytical_us or 0.0) - left
        return self.excess * max(saved, 0.0) if math.isfinite(saved) else 0.0

    def matters(self, saving_us: float, better: Change | None = None) -> bool:
        """Whether a saving is worth reporting: to the launch, and, where `better` brings it, to all that run with the configuration."""
        if not (saving_us >= THRESHOLD * self.now_us and saving_us > 0):
            return False
        if better is None:
            return True
        if self.measured_us is not None and better.us >= self.measured_us:  # what runs is faster than what is promised
            return False
        others = self.pricing.sharing if self.pricing is not None else ()
        together = self.now_us + sum(other.now_us for other in others if math.isfinite(other.now_us))
        return saving_us - sum(better.slower_us.values()) >= THRESHOLD * together


def parameter_of(configuration: Configuration | None, name: str, default: int = 1) -> int:
    """A numeric parameter or launch option of a configuration."""
    if configuration is None:
        return default
    if name in ("num_warps", "num_stages", "num_ctas"):
        return int(getattr(configuration, name))
    value = configuration.parameters.get(name, default)
    return int(value) if isinstance(value, (int, float)) else default


def context(
    problem: Problem,
    configuration: Configuration | None,
    gpu: GpuSpec,
    *,
    modelled: Modelled | None = None,
    i: int = 0,
    predicted_us: float | None = None,
    ceiling_us: float | None = None,
    measured_us: float | None = None,
    measured_origin: Origin = "measured",
    entry: Configuration | None = None,
    entry_m: int | None = None,
    pricing: Pricing | None = None,
    around: Changed | None = None,
    recommended: Change | None = None,
    offered: Configuration | None = None,
    ranked: Change | None = None,
    refused: str = "",
    source_file: str | None = None,
    source_line: int | None = None,
) -> LaunchContext:
    """The context of one launch.

    Args:
        problem: What is computed.
        configuration: As it really runs; None where it cannot be known (then only the bound is).
        gpu: On what.
        modelled: Of a batch whose row `i` is this launch; computed where it is None.
        i: Row of `modelled`.
        predicted_us: Latency shown for this launch; the analytical one where it is None.
        ceiling_us: Least latency over the kernel's space.
        measured_us: Where it was measured.
        measured_origin: "simulated" where it was that.
        entry: As the table has it, before clamping.
        entry_m: Token count the entry stands under.
        pricing: What prices changed configurations; the analytical model where it is None.
        around: The launch under changed configurations, where that is known already.
        recommended: What is recommended in place of the configuration: what is then predicted.
        offered: The configuration that is recommended.
        ranked: What the order of the space has first.
        refused: Why the launch raises an error although the configuration fits.
        source_file: Where the kernel is.
        source_line: Line of it.
    """
    batch = pipelines.problem_batch([problem])
    config_bound = demand = schedule = None
    analytical_us = None
    if configuration is None:
        bound = pipelines.bound(pipelines.work(batch, gpu), gpu, problem.cache)
    else:
        if modelled is None:
            modelled, i = Modelled(pipelines.analyse(batch, pipelines.configuration_batch([configuration]), gpu), gpu), 0
        analysis = modelled.analysis
        bound, config_bound = take_row(analysis.bound, i), take_row(analysis.config_bound, i)
        demand, schedule = take_row(analysis.demand, i), take_row(analysis.schedule, i)
        analytical_us = first(take_row(analysis.latency_us, i))
    return LaunchContext(
        problem=problem,
        gpu=gpu,
        configuration=configuration,
        entry=entry,
        entry_m=entry_m,
        predicted_us=analytical_us if predicted_us is None else predicted_us,
        ceiling_us=ceiling_us,
        measured_us=measured_us,
        measured_origin=measured_origin,
        bound=bound,
        config_bound=config_bound,
        demand=demand,
        schedule=schedule,
        analytical_us=analytical_us,
        modelled=modelled,
        row=i,
        pricing=pricing,
        around=around,
        recommended=recommended,
        offered=offered,
        ranked=ranked,
        refused=refused,
        source_file=source_file,
        source_line=source_line,
    )
