"""Trying a kernel's tunables where nobody listed any: neighbours of what is launched, compiled and predicted, so many in all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from advisor.advising.choice import NEAR_BEST
from advisor.compiled.analysis import KernelAnalysis
from advisor.compiled.compiler.compile import compile_kernel
from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.demand.demand import Counted
from advisor.compiled.guesses.guess_errors import certain_of_guesses
from advisor.compiled.guesses.usage import usage_of
from advisor.compiled.launch_report import TRIED, KernelTarget, Unreadable, analyse_targets
from advisor.compiled.launches.configured import (
    grid_that_follows,
    pinned,
    warps_at_most,
    with_configuration,
)
from advisor.compiled.launches.launch import Inspection, KernelLaunch, inputs_of, own_files, request_for
from advisor.gpus.hardware import GpuSpec
from advisor.learned.compiled_launch import launch_analysis
from advisor.system.errors import AdvisorError
from advisor.system.resources import phrase

DOUBT = 1.05
"""Configurations predicted within this of each other cannot be told apart. Of 91 launches of vLLM's fused-MoE kernel (GPUs of the
data) for which the analytical model predicted that the best measured configuration beats the default one by this or more, it did in 84; of
those with 2 to 5 %, in 30 of 35."""
SURE = 1.3
"""Predicted speedup from which on the best configuration is likely to be 2 % faster (0.8), where the analytical model answers. Held against
configurations drawn of the same problem on an H100 it was in 77 to 88 of a hundred that it holds 1.3 to 1.5 apart, in 94 and more above,
in 53 to 75 below: `python tests/bench/pairs_of_configurations.py`."""
A_THREAD = 8
"""Elements for each thread, of which 16 bits each fill one access of 16 bytes, the widest there is."""
LEAST_OF_PRODUCT, MOST_STAGES = 16, 5
"""`tl.dot` takes no smaller blocks; more stages than that hold no more."""
MOST_TRIED, LEAST_TRIED, TOGETHER, SPREAD = 24, 4, 4, 8
"""Configurations of all launches of a report, or of one list; of one launch at least, while any are left; of one step; and of a longer list
first, spread over it. Counts, so that every machine
tries the same: a kernel's own tunables come to their end after 8 to 20."""
LARGEST = 2**20
"""Elements of a tensor of Triton's at most."""
SECONDS_EACH = 5
"""What a configuration takes on a slow machine, as the time limit that is suggested for the rest of a search counts it."""
SAME_BYTES, SAME_FLOP = 0.01, 0.2
"""Shares by which the distinct bytes and the useful FLOP of two configurations of the same work may differ: partial results of a last
block, and the blocks on the diagonal of a causal product, of which half is masked away."""

OTHER_WORK = "it computes something else"
NO_END = "was not compiled"
"""In the reason of what the time limit of a compilation ended."""

Values = Mapping[str, int]
"""Of the tunables by name, launch options among them."""
Regrid = Callable[[Values], tuple[int, ...]]
Found = dict[tuple[tuple[str, int], ...], tuple[KernelTarget, KernelAnalysis | Unreadable]]
"""What was found, by `_key`; the launch itself first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of trying.

    Attributes:
        analyses: The launch itself first, each with what was found.
        stopped: Why it ended.
        left_alone: Sentences on constants that were not varied.
        unsearched: A sentence on what was not evaluated; empty where the search came to its end.
    """

    analyses: tuple[tuple[KernelTarget, KernelAnalysis | Unreadable], ...]
    stopped: str
    left_alone: tuple[str, ...]
    unsearched: str = ""


@dataclass(slots=True, kw_only=True)
class Trials:
    """Tries the launches of one report.

    Attributes:
        deadline: On `time.monotonic`, where the user limits the time; else infinite.
        left: Configurations that may be tried yet; infinite where the user limits the time instead.
        advance: Called with configurations tried, and those that are certain to follow.
        regrid: The grid of the launch with other constants, where a function gives it.
    """

    gpu: GpuSpec
    cache: str
    workers: Pool
    counted: Counted
    left: float
    deadline: float = math.inf
    advance: Callable[[int, int], None] = lambda tried, more: None
    regrid: Regrid | None = None
    _slowest: float = 0.0
    _tried: int = 0
    _most: float = math.inf
    _widest: dict[str, int] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether nothing more is tried of any launch."""
        return self.left <= 0 or time.monotonic() >= self.deadline

    def of(self, target: KernelTarget, analysis: KernelAnalysis, launches: int = 1) -> Tried | None:
        """The neighbours of a launch, those of the best of these, and so on; None where it has no tunables.

        Blocks first: they decide how much is in flight, and what each program does. A neighbour that is better is gone on from at once.

        Args:
            target: The launch.
            analysis: What was found of it.
            launches: So many, this one among them, share what is left of configurations or of time.
        """
        now_s = time.monotonic()
        until, self._slowest = now_s + (self.deadline - now_s) / launches, 0.0
        self._most = self._tried + max(self.left / launches, LEAST_TRIED)
        base, compiled = pinned(analysis.inspection), analysis.inspection.compiled
        function = base.source.kernel(base.kernel)
        now: dict[str, int] = {}
        if "num_warps" not in function.heuristics:
            now["num_warps"] = compiled.num_warps
        if "num_stages" not in function.heuristics and pipelined(analysis.inspection.demand):
            now["num_stages"] = compiled.num_stages
        blocks, left, late = self._blocks(base, analysis, until)
        self._widest = {name: self._covering(base, name) for name in blocks}
        if not (now or blocks or late):
            return None
        now |= blocks
        analyses: Found = {_key(now): (replace(target, space=target.id, chosen=True), analysis)}
        waiting = self._climb(now, base, analysis, analyses, until)
        (launched, outcome), *others = (_with_tunables(*pair, frozenset(blocks)) for pair in analyses.values())
        if blocks.keys() & set(analysis.inspection.guess.invented):  # a block of which nothing says what it is: nothing says what runs
            launched, outcome = replace(launched, chosen=False), _without_assumed(outcome, blocks)
        waiting += sum(_timed_out(other) for _, other in others)
        evaluated = 1 + sum(not _timed_out(other) for _, other in others)
        if not (others or waiting or late):
            return None
        which = phrase("search.unvaried", names=", ".join(late)) if late else ""
        unsearched = unsearched_text(evaluated, waiting, which) if waiting or late else ""
        return Tried(
            analyses=((launched, outcome), *others),
            stopped=phrase("search.time_up") if unsearched else phrase("search.ended", least=f"{100 * (NEAR_BEST - 1):.1f} %"),
            left_alone=tuple(left),
            unsearched=unsearched,
        )

    def _climb(self, best: dict[str, int], base: KernelLaunch, analysis: KernelAnalysis, analyses: Found, until: float) -> int:
        """Adds neighbours of the best to those `analyses`, until none is better; how many of the last best's were not evaluated."""
        demand = self._comparable(analysis.inspection)
        while True:
            queue = [neighbour for neighbour in self._neighbours(best, analysis) if _key(neighbour) not in analyses]
            if math.isfinite(until):
                self.workers.timeout_s, self.workers.limit_name = max(until - time.monotonic(), 1.0), "--try-for"
            better = _key(best)
            while queue and better == _key(best) and self._tried < self._most and self._in_time(until):
                batch, queue = queue[:TOGETHER], queue[TOGETHER:]
                self._take(batch, base, demand, analyses, len(queue))
                better = min(analyses, key=lambda values: _us(analyses[values][1]))
                if NEAR_BEST * _us(analyses[better][1]) >= _us(analyses[_key(best)][1]):
                    better = _key(best)
            if better == _key(best):
                return len(queue)
            best = dict(better)

    def _in_time(self, until: float) -> bool:
        return time.monotonic() + self._slowest < until

    def _take(self, batch: list[dict[str, int]], base: KernelLaunch, demand: KernelDemand, analyses: Found, more: int) -> None:
        """Compile, count and predict some configurations."""
        started = time.monotonic()
        name = next(iter(analyses.values()))[0].id
        targets = [
            KernelTarget(id=f"{name}-config{number}", launch=self._launch(base, values), source=TRIED, space=name)
            for number, values in enumerate(batch, start=len(analyses))
        ]
        looked = analyse_targets(targets, self.gpu, self.cache, workers=self.workers, counted=self.counted, judge=launch_analysis)
        for values, (tried, outcome) in zip(batch, looked, strict=True):
            if isinstance(outcome, KernelAnalysis) and not same_work(demand, self._comparable(outcome.inspection)):
                outcome = Unreadable(id=tried.id, reason=OTHER_WORK)
            analyses[_key(values)] = (tried, outcome)
        self._slowest = max(self._slowest, time.monotonic() - started)
        self._tried, self.left = self._tried + len(batch), self.left - len(batch)
        self.advance(self._tried, more)

    def _launch(self, base: KernelLaunch, values: Values) -> KernelLaunch:
        """The launch with other values of its tunables."""
        constants = {n: v for n, v in values.items() if n not in ("num_warps", "num_stages")}
        options = {n: v for n, v in values.items() if n not in constants}
        grid: tuple[int, ...] | None = base.grid
        moved = {n: v for n, v in constants.items() if v != base.given.constexprs[n]}
        if moved and self.regrid is not None:
            grid = self.regrid(values)
        elif moved:
            grid = grid_that_follows(base, constants, self.gpu.num_sms) or base.grid
        return replace(with_configuration(base, constants, options), grid=grid)

    def _neighbours(self, values: dict[str, int], analysis: KernelAnalysis) -> Iterator[dict[str, int]]:
        """One step from a configuration in one tunable, and in a block and the warps together. Before these the step that gives a thread
        `A_THREAD` elements, where it has far fewer or more: on the way there each step may seem to lose."""
        blocks = [name for name in values if name not in ("num_warps", "num_stages")]
        product = analysis.inspection.demand.total_tensor_flop
        steps: list[dict[str, float]] = []
        if len(blocks) == 1 and "num_warps" in values and not product:
            far = A_THREAD * values["num_warps"] * self.gpu.warp_size / values[blocks[0]]
            steps += [{blocks[0]: far}, {blocks[0]: 2 * far, "num_warps": 2.0}] if not 0.25 < far < 4 else []
        steps += [{name: factor} for name in blocks for factor in (2.0, 0.5)]
        steps += [{"num_warps": factor} for factor in (2.0, 0.5)]
        steps += [{name: factor, "num_warps": factor} for name in blocks for factor in (2.0, 0.5)]
        if stages := values.get("num_stages"):
            steps += [{"num_stages": (stages + more) / stages} for more in (1, 2, -1) if 1 <= stages + more <= MOST_STAGES]
        least = dict.fromkeys(values, 1) | (dict.fromkeys(blocks, LEAST_OF_PRODUCT) if product else {})
        most = {"num_warps": warps_at_most(Target.of(self.gpu))}
        seen = {_key(values)}
        for step in steps:
            if step.keys() <= values.keys():
                wanted = {name: round(values[name] * factor) for name, factor in step.items()}
                wanted = {name: min(value, max(self._widest.get(name, value), values[name])) for name, value in wanted.items()}
                other = {**values, **wanted}
                if all(least[name] <= other[name] <= most.get(name, other[name]) for name in step) and _key(other) not in seen:
                    seen.add(_key(other))
                    yield other

    def _blocks(self, base: KernelLaunch, analysis: KernelAnalysis, until: float) -> tuple[dict[str, int], list[str], list[str]]:
        """The constants of a launch that are blocks, sentences on those that look like it and are none, and those there was no time for.

        A constant is a block where half of it (or twice, where that does not compile) leaves the work as it is: the same bytes, the same
        FLOP. The IR tells, before anything depends on the machine.
        """
        inspection = analysis.inspection
        launch = inspection.launch
        function = launch.source.kernel(launch.kernel)
        usage = usage_of(launch.source, function)
        names = [
            parameter.name
            for parameter in function.parameters
            if parameter.is_constexpr
            and type(value := inspection.guess.constexprs.get(parameter.name)) is int
            and value > 0
            and value & (value - 1) == 0
            and usage[parameter.name].extent
            and parameter.name not in function.heuristics
            and (not launch.tunable or parameter.name in launch.tunable)
        ]
        blocks: dict[str, int] = {}
        left, late = [], []
        for name in names:
            value = inspection.guess.constexprs[name]
            is_block = self._is_block(base, inspection, name, value) if self._in_time(until) else None
            if is_block:
                blocks[name] = value
            elif is_block is None and not self._in_time(until):
                late.append(name)
            else:
                left.append(phrase("search.other_work" if is_block is False else "search.no_other", name=name))
        return blocks, left, late

    def _is_block(self, base: KernelLaunch, inspection: Inspection, name: str, value: int) -> bool | None:
        """Whether another value of a constant leaves the work as it is: half of it, or twice where that does not compile; None: neither
        does. A grid that does not follow from the constants stays as it is: with fewer blocks of another size it would be another
        launch."""
        for other in (value // 2, 2 * value) if value > 1 else (2,):
            then = self._front_end(self._launch(base, {name: other}), inspection)
            if then is not None:
                return same_work(self._comparable(inspection), then)
        return None

    def _covering(self, base: KernelLaunch, name: str) -> int:
        """The least power of two for a block that leaves no fewer programs to a larger one, for it covers the whole extent; `LARGEST` where
        the grid does not hang on it."""
        sizes = [2**power for power in range(LARGEST.bit_length())]
        programs = [math.prod(self._launch(base, {name: size}).grid or (1,)) for size in sizes]
        return sizes[programs.index(least)] if (least := min(programs)) < programs[0] else LARGEST

    def _comparable(self, inspection: Inspection) -> KernelDemand:
        """The demand of a launch with the likely values of what is not given: `_front_end` takes the same."""
        if inspection.likely is None:
            return inspection.demand
        grid = inspection.launch.grid or (1,)
        return self.counted.demand(inspection.compiled.ttir, grid, inspection.likely, own_files(inspection.compiled))

    def _front_end(self, launch: KernelLaunch, inspection: Inspection) -> KernelDemand | None:
        """The demand of a launch by its IR alone, with the likely values of the one inspected; None: it does not compile so far."""
        started = time.monotonic()
        here = replace(inspection.guess, signature=launch.given.types, constexprs=launch.given.constexprs, options=launch.given.options)
        try:
            request = request_for(launch, here, Target.of(self.gpu), sass=False)
            compiled = compile_kernel(replace(request, only="ttir"), self.workers)
            inputs = inputs_of(launch, here)
            if (likely := inspection.likely) is not None:
                scalars = {**likely.scalars, **inputs.scalars}
                inputs = replace(inputs, scalars=scalars, contents={**likely.contents, **inputs.contents})
            demand = self.counted.demand(compiled.ttir, launch.grid or (1,), inputs, own_files(compiled))
            return demand if likely is not None else certain_of_guesses(demand, here)  # as the one that it is compared with
        except AdvisorError:
            return None
        finally:
            self._slowest = max(self._slowest, time.monotonic() - started)


def unsearched_text(evaluated: int, waiting: int, which: str = "") -> str:
    """That a search was cut off with some configurations waiting, and what time limit the whole of it takes."""
    seconds = math.ceil(SECONDS_EACH * (evaluated + waiting) / 60) * 60
    return phrase("search.unsearched", count=evaluated, whole=evaluated + waiting, which=which, seconds=seconds)


def pipelined(demand: KernelDemand) -> bool:
    """Whether `num_stages` can matter: a product in a loop that loads."""
    return bool(demand.loops) and demand.total_tensor_flop > 0 and any(access.in_loop for access in demand.accesses)


def same_work(first: KernelDemand, second: KernelDemand) -> bool:
    """Whether two launches read and write as many distinct bytes, and multiply as much of what holds data.

    What either touches of an argument of which neither is known to touch what is no proof of other work; with nothing but such
    arguments there is no proof of the same.
    """

    def alike(one: float, other: float, share: float = SAME_BYTES) -> bool:
        return abs(one - other) <= share * max(one, other)

    def requested(demand: KernelDemand, name: str) -> float:
        return sum(access.requested_bytes for access in demand.accesses if access.name == name)

    def useful(demand: KernelDemand) -> float:
        return demand.total_tensor_flop - sum(demand.padding.tensor_flop.values())

    unknown = first.unlocated & second.unlocated
    named = (first.likely_footprint_bytes.keys() | second.likely_footprint_bytes.keys()) - unknown
    # How many distinct bytes a sample of the programs touches tells little of all where they look rows up; how many are asked for does.
    sampled = not (first.exact and second.exact)
    known = {name for name in named if not (sampled and alike(requested(first, name), requested(second, name)))}

    def passing(footprints: Mapping[str, float]) -> float:
        return sum(size for name, size in footprints.items() if name in known)

    return (
        bool(named)
        and alike(passing(first.likely_read_footprints), passing(second.likely_read_footprints))
        and alike(passing(first.likely_written_footprints), passing(second.likely_written_footprints))
        and alike(useful(first), useful(second), SAME_FLOP)
    )


def _timed_out(analysis: KernelAnalysis | Unreadable) -> bool:
    """Whether a configuration was given up because its compilation took too long."""
    return isinstance(analysis, Unreadable) and NO_END in analysis.reason


def _with_tunables(
    target: KernelTarget, analysis: KernelAnalysis | Unreadable, blocks: frozenset[str]
) -> tuple[KernelTarget, KernelAnalysis | Unreadable]:
    """What was found of a configuration, with the names of the constants that are part of one."""
    target = replace(target, launch=replace(target.launch, tunable=blocks))
    if isinstance(analysis, KernelAnalysis):
        analysis = replace(analysis, inspection=replace(analysis.inspection, launch=replace(analysis.inspection.launch, tunable=blocks)))
    return target, analysis


def _without_assumed(analysis: KernelAnalysis | Unreadable, blocks: Values) -> KernelAnalysis | Unreadable:
    """An analysis without the assumptions of what these constants are."""
    if isinstance(analysis, Unreadable):
        return analysis
    guess = analysis.inspection.guess
    kept = tuple(assumption for assumption in guess.assumptions if assumption.name not in blocks)
    return replace(analysis, inspection=replace(analysis.inspection, guess=replace(guess, assumptions=kept)))


def _key(values: Values) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(values.items()))


def _us(analysis: KernelAnalysis | Unreadable) -> float:
    return analysis.predicted.us if isinstance(analysis, KernelAnalysis) and analysis.predicted is not None else math.inf
