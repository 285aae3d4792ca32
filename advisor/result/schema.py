"""The values everything passes around, and the versioned result that every surface renders.

All quantities carry their unit in their name: `_us`, `_bytes`, `_flop`, `_bytes_per_s`. GB is decimal. Everything here is
frozen, slotted and keyword-only; collections are tuples and (read-only by convention) dicts, so that a result can be
written as JSON and read back without loss (`advisor.result.result_json`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from advisor.result.problem import (  # noqa: F401 - this module is the face of both
    FAMILIES,
    LAUNCH_OPTIONS,
    PIPELINE_UNITS,
    PIPELINES,
    Cache,
    Configuration,
    Family,
    Latency,
    Origin,
    PipelineTime,
    Problem,
    contradicts,
    microseconds,
    nearest_to_peak,
    result_dtype,
)
from advisor.system.resources import phrase

SCHEMA_VERSION = "1.7"
"""1.1: the library reference of a launch. 1.2: its share of a pipeline's peak. 1.3: why what runs is kept, what
recommendations of a kind won, and the library reference of a layer. 1.4: the verdict's notes and its share of a pipeline's peak.
1.5: what an action's saving is a share of, where that is whole layers. 1.6: what a search that was cut off left of a space.
1.7: the SMs of the GPU beside the CTAs of a launch."""

Severity = Literal["error", "warning", "advice", "info"]


# The gap between two latencies is split into these causes, in this order (bound -> ceiling -> predicted -> measured).
UNCERTAIN = "uncertain"
"""Cause of the first step above the bound of a kernel whose work hangs on data that are not given: what it likely does besides."""
INSTRUCTIONS = "instructions"
"""Cause of a step above the bound of compiled code: what its pipelines need at their peak for work that the bound leaves out."""
GAP_CAUSES: tuple[str, ...] = ("padding", "tail-wave", "occupancy", "latency", "traffic", "launch", "power", "efficiency", "unexplained")


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Resident CTAs and what limits them; waves and the tail."""

    ctas: int
    resident_ctas_per_sm: int  # 0: the configuration cannot launch
    limiter: str  # registers | shared-memory | tensor-memory | warps | slots | grid | none
    waves: float  # CTAs / (SMs x resident CTAs), not rounded
    last_wave_fill: float  # 0..1
    registers_per_thread: int
    registers_origin: Literal["compiled", "estimated"]
    shared_memory_bytes: int
    spill_bytes: int | None  # None: not known without compiling
    k_iterations: int
    in_flight_bytes: float | None = None  # per SM, that DRAM is asked for at a time; None: not known
    needed_bytes: float | None = None  # per SM, in flight at a time to keep DRAM busy: its rate times its latency
    sms: int | None = None  # of the GPU; None: of a result before 1.7

    @property
    def ctas_per_sm(self) -> str:
        """`5, limited by registers`; where the grid is too small to fill them, `5 would fit, but the grid has 300 CTAs for 132 SMs`."""
        if self.limiter != "grid":
            return phrase("occupancy.limited", resident=self.resident_ctas_per_sm, limiter=self.limiter)
        return phrase("occupancy.grid", resident=self.resident_ctas_per_sm, ctas=f"{self.ctas:,}", sms=self.sms or "all")


@dataclass(frozen=True, slots=True, kw_only=True)
class GapPart:
    """One step of the waterfall bound -> ceiling -> predicted -> measured.

    `us` may be negative only for `unexplained` (the model predicted more than was measured).
    """

    cause: str
    us: float
    origin: Origin
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One cause that a rule found. `saving_us` is what curing it alone would save (savings do not add up); None: unknown.

    `net_saving_us`: where the remedy is another configuration, what it saves over all launches that run with it, losses included;
    None where the remedy is something else.
    """

    rule: str  # id, e.g. "tail-wave"
    severity: Severity
    title: str  # one line, no trailing period
    evidence: str  # the numbers that made the rule fire
    remedy: str
    saving_us: float | None = None
    net_saving_us: float | None = None
    saving_origin: Origin = "predicted"
    scope: str = "launch"  # launch | table | entry M=64 | entries 1, 64 | kernel
    source_file: str | None = None
    source_line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """A configuration to change to, and what is expected of it."""

    configuration: Configuration
    latency: Latency  # predicted or measured, of the recommended configuration
    speedup: float  # current / recommended, > 1 is faster
    p_speedup_10pct: float | None  # probability that at least 10 % can be won
    reason: str
    triton_config: str  # paste-ready `triton.Config({...}, num_warps=..., num_stages=...)`
    table_entry: dict[str, int | bool | str] | None = None  # paste-ready table entry, where the target is a table
    demand: dict[str, float] = field(default_factory=dict)  # of the configuration, by pipeline; empty where it is not known
    record: str = ""  # what choices of this kind won where they were measured; empty where none were, or where this one was measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round of a measurement: samples in microseconds, and the clock they ran at."""

    samples_us: tuple[float, ...]
    sm_clock_mhz: float | None = None
    discarded: str | None = None  # reason, where the round does not count


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRounds:
    """The raw material of a measured latency."""

    rounds: tuple[Round, ...]
    noise_floor: float | None = None  # relative, from A/A rounds
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLine:
    """Work that one line of the author's source asks of each pipeline, over the whole launch.

    `demand` is in the units of PIPELINE_UNITS, `time_us` what that takes at full throughput, spread over the whole GPU.
    `exposed_us`: load latency that is predicted to be waited for here.
    """

    file: str
    line: int
    demand: dict[str, float]
    time_us: dict[str, float]
    exposed_us: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceText:
    """A piece of the author's source as it was read: of a kernel, or of a helper it calls."""

    kernel: str  # LaunchReport.kernel whose lines stand in it
    file: str
    first_line: int
    lines: tuple[str, ...]


MOSTLY, MANY_TRIPS = 0.5, 16
"""Share of a launch's time from which on something is most of it; and trips of a loop, from which on waiting in these may be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchReport:
    """All that is known of one launch."""

    id: str  # stable within a result, e.g. "w13-M64"
    kernel: str  # e.g. "fused_moe"
    problem: Problem
    configuration: Configuration | None  # None: cannot be known
    configuration_source: str  # "table entry 64", "vLLM default", "kernel's own space", ...
    pipelines: tuple[PipelineTime, ...]
    binding_pipeline: str  # of the bound
    config_binding_pipeline: str  # of this configuration
    bound: Latency
    config_bound: Latency
    predicted: Latency | None
    ceiling: Latency | None
    ceiling_configuration: Configuration | None  # first of the learned order; predicted by itself it may lie above the ceiling
    measured: Latency | None
    measured_rounds: MeasuredRounds | None
    occupancy: Occupancy | None
    efficiency: float | None  # bound / latency (measured where there is one, else predicted), not clipped
    headroom: float | None  # latency / tunable ceiling - 1
    p_speedup_10pct: float | None
    gap: tuple[GapPart, ...]
    findings: tuple[Finding, ...]
    passed_rules: tuple[str, ...]
    recommendation: Recommendation | None
    faults: tuple[str, ...] = ()  # e.g. "measured 3.1 us is below the bound 4.0 us: model or measurement fault"
    source_lines: tuple[SourceLine, ...] = ()  # of kernels whose compiled code was read
    library: Latency | None = None  # what the best library kernel takes for the same problem, where one was measured
    peak_pipeline: str | None = None  # the one that the launch drives nearest to its peak
    share_of_peak: float | None = None  # of its throughput, on the average over the latency now; measured above 1: a fault
    kept: str | None = None  # why no configuration is recommended although one is predicted faster
    unsearched: str = ""  # of a space that was searched only in part: how much of it, and how to go on
    decision: str | None = None  # launches of one decision change together (w13 and w2 of a layer, of one entry or two); None: alone

    @property
    def contradicted(self) -> bool:
        """Whether its measurement contradicts its prediction."""
        return contradicts(self.measured, self.predicted)

    @property
    def passing_us(self) -> float:
        """Microseconds that DRAM needs at its peak for what the problem reads and what it writes, each byte once; 0: not known."""
        return sum(1e6 * part.passing / part.throughput_per_s for part in self.pipelines if part.throughput_per_s)

    @property
    def trips_in_turn(self) -> int | None:
        """How many trips of a loop follow each other where all programs of a compiled launch run at once, and mostly wait; else None."""
        now, of = self.measured or self.predicted, self.occupancy
        waits_us = sum(part.us for part in self.gap if part.cause in ("latency", "occupancy"))
        if now is None or of is None or of.in_flight_bytes is None or of.waves > 1 or waits_us < MOSTLY * now.us:
            return None
        return of.k_iterations if of.k_iterations >= MANY_TRIPS else None

    @property
    def best(self) -> Configuration | None:
        """The configuration to run it with: the recommended one, else its own; None where neither is known."""
        return self.recommendation.configuration if self.recommendation is not None else self.configuration

    @property
    def assumed_us(self) -> float:
        """Microseconds by which the bound would be larger if all that is assumed of the launch were certain."""
        return sum(part.us for part in self.gap if part.cause == UNCERTAIN)

    def before(self, then: Latency | None) -> Latency | None:
        """The latency that a saving is reckoned from: measured, else predicted; where those contradict each other, as `then` is."""
        if self.contradicted and (then is None or then.origin == "predicted"):
            return self.predicted
        return self.measured or self.predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerReport:
    """A whole mixture-of-experts layer as a stack launches it: align, w13, activation, w2, combine, and quantisation where there is one."""

    id: str  # as "layer-M64"
    tokens: int
    stack: str  # whose launches they are, with the version: "vLLM 0.24"
    routing: str  # random, balanced, or given
    launches: tuple[str, ...]  # LaunchReport ids of its products
    bound: Latency  # of a random routing: what 99 % of draws stay above
    predicted: Latency  # mean over draws, with the configuration of today
    ceiling: Latency  # with the best of its products' configurations
    recommended: Latency | None  # with what is recommended for its products; None: nothing is
    measured: Latency | None
    parts: dict[str, float]  # microseconds of the prediction, by kernel
    library: Latency | None = None  # what the best library kernel takes for the whole layer; its source names kernel, stack and version

    @property
    def now(self) -> Latency:
        """Measured where it was, else predicted."""
        return self.measured or self.predicted


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcedFigure:
    """One figure of the GPU, with its unit in the name, and where it comes from."""

    name: str
    value: float | int | str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The origin of the figures. `mode` "offline": nothing was run on a GPU; with `gpu_uuid` "fake" latencies are simulated."""

    mode: Literal["offline", "gpu"]
    gpu: str
    gpu_uuid: str | None = None
    driver: str | None = None
    cuda: str | None = None
    torch: str | None = None
    triton: str | None = None
    python: str | None = None
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    mig: bool | None = None
    power_cap_w: float | None = None

    @property
    def simulated(self) -> bool:
        """Whether what is called measured came from a fake device."""
        return self.gpu_uuid == "fake"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One of at most three things to do, ordered by time saved over the launches it touches."""

    title: str
    detail: str
    saving_us: float
    origin: Origin
    launches: tuple[str, ...]  # LaunchReport ids
    rule: str | None = None
    snippet: str | None = None  # paste-ready
    layers_us: float | None = None  # time of the whole layers (or linears) that saving_us is of; None: it is of the launches


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRow:
    """What a launch runs with before and after a table is taken, and what that is predicted (or was measured) to take."""

    launch: str  # LaunchReport id
    tokens: int
    before: Configuration | None
    before_us: float | None  # None: it cannot launch
    after: Configuration | None
    after_us: float | None
    low_us: float | None = None  # of after_us
    high_us: float | None = None
    changed: bool = False
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """A paste-ready artefact: a whole table, a list of triton.Config."""

    name: str  # file name or title
    kind: Literal["table", "triton-configs"]
    content: str
    rows: tuple[ExportRow, ...] = ()  # of a table: every launch, losses included


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTrial:
    """One trial of a search."""

    number: int
    configuration: Configuration
    state: str  # complete | pruned | failed: <class> | skipped
    latency_us: float | None = None
    predicted_us: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchReport:
    """The record of a search over the configurations of one launch."""

    launch: str  # LaunchReport id
    sampler: str
    stopped_because: str
    trials: tuple[SearchTrial, ...]
    failures: dict[str, int] = field(default_factory=dict)
    study_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedTiming:
    """One configuration of a problem that `@advisor.autotune` tuned: its latency, or why it was left out."""

    configuration: Configuration
    state: str  # measured | compile | fit | time | output | crash
    us: float | None = None
    low_us: float | None = None  # 20 % quantile
    high_us: float | None = None  # 80 % quantile
    predicted_us: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedProblem:
    """One tuning key of one kernel, as the tuning cache has it: what was chosen, and every configuration that was looked at."""

    kernel: str
    key: str
    triton: str  # version, and settings that change what is compiled
    decided: str  # measured | simulated | exhaustive | imported | undecided
    configuration: Configuration | None  # the one that runs; None: nothing works
    latency_us: float | None
    timings: tuple[TunedTiming, ...]  # fastest first, what was left out last
    launch: str | None = None  # LaunchReport id, where the model knows the problem
    note: str = ""  # why there is no LaunchReport, or what else to know
    prediction_error: float | None = None  # median of |predicted / measured - 1|
    origin: Origin = "measured"  # of its latencies; simulated: nothing was run for them


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The headline and the numbers in it, for the result as a whole."""

    sentence: str  # what limits the launches, and what tuning wins
    current_us: float  # summed over launches: measured where known, else predicted
    ceiling_us: float  # summed over the same launches; 0 where one of them has none that is known
    bound_us: float
    percent_of_ceiling: float  # 100 x ceiling / current, where both are known of a launch; 0: of none
    binding_pipeline: str  # of the bounds that most of their sum is of
    origin: Origin
    unknowns: tuple[str, ...]  # what is assumed or unknown, each a sentence
    notes: tuple[str, ...] = ()  # what else to know of these figures, each a sentence: launches left out, contradictions
    peak_pipeline: str | None = None  # the one that all launches together drive nearest to its peak
    share_of_peak: float | None = None  # of its throughput, on the average over current_us


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The outcome of `advise` and `tune` for one target on one GPU: everything a surface may show.

    >>> import advisor
    >>> result = advisor.advise("fused_moe", model="Mixtral-8x7B", gpu="H100", tokens=64)
    >>> len(repr(result).splitlines())
    5
    """

    tool_version: str
    command: str
    target: str
    fingerprint: Fingerprint
    gpu: str
    gpu_figures: tuple[SourcedFigure, ...]
    model: str | None  # model name, where known
    verdict: Verdict
    actions: tuple[Action, ...]
    launches: tuple[LaunchReport, ...]
    table_findings: tuple[Finding, ...]
    exports: tuple[Export, ...]
    searches: tuple[SearchReport, ...] = ()
    warnings: tuple[str, ...] = ()
    sources: tuple[SourceText, ...] = ()
    layers: tuple[LayerReport, ...] = ()  # of whose products the launches are
    tuned: tuple[TunedProblem, ...] = ()
    schema_version: str = SCHEMA_VERSION

    def __repr__(self) -> str:
        """Five lines: the subject, the headline, the times, the first action, and where the rest is."""
        verdict, count, first = self.verdict, len(self.launches), next(iter(self.actions), None)
        assumed = sum(launch.assumed_us for launch in self.launches)
        bound = (verdict.bound_us + assumed, " with assumed work") if assumed > verdict.bound_us else (verdict.bound_us, "")
        times = ((verdict.origin, verdict.current_us, ""), ("ceiling", verdict.ceiling_us, ""), ("bound", *bound))
        saves = f" (saves {microseconds(first.saving_us)} µs)" if first is not None and first.saving_us > 0 else ""
        lines = (
            f"Result: {self.target} on {self.gpu}, {count} launch{'' if count == 1 else 'es'}",
            verdict.sentence,
            ", ".join(f"{name} {microseconds(us)} µs{words}" for name, us, words in times if us > 0) or "no time known",
            f"do first: {first.title}{saves}" if first is not None else "do first: nothing is worth changing",
            "more: .best, .saving_us, .to_triton_config(), .launches, .actions, .to_frame()",
        )
        return "\n  ".join(" ".join(line.split()) for line in lines)

    @property
    def efficiency(self) -> float:
        """The bound over the latency of all launches together, in (0, 1]; 0 where no latency is known."""
        return self.verdict.bound_us / self.verdict.current_us if self.verdict.current_us > 0 else 0.0

    @property
    def best(self) -> Configuration | None:
        """The configuration to run the first launch with: the recommended one, else its own; None where neither is known.

        >>> import advisor
        >>> result = advisor.advise("fused_moe", model="Mixtral-8x7B", gpu="H100", tokens=64)
        >>> sorted(result.best.parameters)
        ['BLOCK_SIZE_K', 'BLOCK_SIZE_M', 'BLOCK_SIZE_N', 'GROUP_SIZE_M']
        """
        return self.launches[0].best if self.launches else None

    @property
    def saving_us(self) -> float:
        """Microseconds that the recommended configurations save over all launches, losses included; 0 where none is recommended.

        >>> import advisor
        >>> result = advisor.advise("fused_moe", model="Mixtral-8x7B", gpu="H100", tokens=64)
        >>> 0 <= result.saving_us < result.verdict.current_us
        True
        """
        known = [launch for launch in self.launches if launch.configuration is not None]
        changes = [(launch.before(advice.latency), advice.speedup) for launch in known if (advice := launch.recommendation) is not None]
        return sum(before.us * (1 - 1 / speedup) for before, speedup in changes if before is not None and speedup > 0)

    def to_triton_config(self, launch: str | None = None) -> Any:
        """The best configuration of a launch as a `triton.Config`, for `@triton.autotune(configs=[...])`.

        Args:
            launch: Id of the launch; None: the first.

        Raises:
            ValueError: No launch has the id, or no configuration is known.

        >>> import advisor
        >>> result = advisor.advise("fused_moe", model="Mixtral-8x7B", gpu="H100", tokens=64)
        >>> result.to_triton_config().num_warps in (4, 8)
        True
        """
        chosen = [item.best for item in self.launches if launch in (None, item.id)]
        if launch is not None and not chosen:
            raise ValueError(f"launch must be one of {', '.join(item.id for item in self.launches)} (got {launch!r})")
        if not chosen or chosen[0] is None:
            raise ValueError("no configuration of this launch is known")
        return chosen[0].to_triton()

    def to_frame(self) -> Any:
        """A pandas data frame with a row for each launch: its sizes and latencies in microseconds."""
        import pandas

        return pandas.DataFrame(
            {
                "launch": launch.id,
                "kernel": launch.kernel,
                **launch.problem.sizes,
                "current_us": now.us if (now := launch.measured or launch.predicted) else None,
                "ceiling_us": launch.ceiling.us if launch.ceiling else None,
                "bound_us": launch.bound.us,
                "speedup": launch.recommendation.speedup if launch.recommendation else 1.0,
            }
            for launch in self.launches
        )
