"""Trying a kernel's tunables where nobody listed any: neighbours of what is launched, compiled and predicted until time is up."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from advisor.advising.choice import NEAR_BEST
from advisor.compiled.analysis import KernelAnalysis
from advisor.compiled.compiler.compile import compile_kernel
from advisor.compiled.compiler.kernel import Target
from advisor.compiled.compiler.pool import Pool
from advisor.compiled.demand.counts import KernelDemand
from advisor.compiled.demand.demand import Counted
from advisor.compiled.guesses.inference import Guess
from advisor.compiled.guesses.usage import usage_of
from advisor.compiled.launch_report import KernelTarget, Unreadable, analyse_targets
from advisor.compiled.launches.configured import (
    grid_that_follows,
    pinned,
    warps_at_most,
    with_configuration,
)
from advisor.compiled.launches.launch import KernelLaunch, inputs_of, own_files, request_for
from advisor.gpus.hardware import GpuSpec
from advisor.learned.compiled_launch import launch_analysis
from advisor.system.errors import AdvisorError
from advisor.system.phrases import phrase

DOUBT = 1.05
"""Configurations predicted within this of each other cannot be told apart. Of 91 launches of vLLM's fused-MoE kernel (GPUs of the
data) for which the analytical model predicted that the best measured configuration beats the default one by this or more, it did in 84; of
those with 2 to 5 %, in 30 of 35."""
LEAST_OF_PRODUCT, MOST_STAGES = 16, 5
"""`tl.dot` takes no smaller blocks; more stages than that hold no more."""
LEAST_S = 4.0
"""What a launch is given at least, while there is time: two configurations take about that."""
SAME_BYTES, SAME_FLOP = 0.01, 0.2
"""Shares by which the distinct bytes and the useful FLOP of two configurations of the same work may differ: partial results of a last
block, and the blocks on the diagonal of a causal product, of which half is masked away."""

OTHER_WORK = "it computes something else"

Values = Mapping[str, int]
"""Of the tunables by name, launch options among them."""
Regrid = Callable[[Values], tuple[int, ...]]
Found = dict[tuple[tuple[str, int], ...], tuple[KernelTarget, KernelAnalysis | Unreadable]]
"""What was found, by `_key`; the launch itself first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What came of trying: the launch itself first, each with what was found; why it ended; constants that were left alone."""

    analyses: tuple[tuple[KernelTarget, KernelAnalysis | Unreadable], ...]
    stopped: str
    left_alone: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class Trials:
    """Tries the launches of one report, until `deadline` (of `time.monotonic`).

    Attributes:
        advance: Called with configurations tried, and those that are certain to follow.
        regrid: The grid of the launch with other constants, where a function gives it.
    """

    gpu: GpuSpec
    cache: str
    workers: Pool
    counted: Counted
    deadline: float
    advance: Callable[[int, int], None] = lambda tried, more: None
    regrid: Regrid | None = None
    _slowest: float = 0.0
    _tried: int = 0

    def of(self, target: KernelTarget, analysis: KernelAnalysis, until: float) -> Tried | None:
        """The neighbours of a launch, those of the best of these, and so on; None where it has no tunables, or there is no time.

        Warps and stages first: they leave the IR as it is, in which the work is counted. They have half of the time; then the blocks too.
        """
        until, self._slowest = min(until, self.deadline), 0.0
        base, compiled = pinned(analysis.inspection), analysis.inspection.compiled
        function = base.source.kernel(base.kernel)
        now: dict[str, int] = {}
        if "num_warps" not in function.heuristics:
            now["num_warps"] = compiled.num_warps
        if "num_stages" not in function.heuristics and pipelined(analysis.inspection.demand):
            now["num_stages"] = compiled.num_stages
        analyses: Found = {_key(now): (replace(target, space=target.id, chosen=True), analysis)}
        best, _ = self._climb(now, base, analysis, analyses, (time.monotonic() + until) / 2)
        blocks, left = self._blocks(base, analysis, until)
        analyses = {_key({**dict(key), **blocks}): analyse for key, analyse in analyses.items()}
        _, ended = self._climb({**best, **blocks}, base, analysis, analyses, until)
        if len(analyses) == 1:
            return None
        ended = ended and not any(text.endswith(phrase("search.no_time", name="")) for text in left)
        stopped = phrase("search.ended") if ended else phrase("search.time_up")
        (launched, outcome), *others = (_with_tunables(*pair, frozenset(blocks)) for pair in analyses.values())
        if blocks.keys() & set(analysis.inspection.guess.invented):  # a block of which nothing says what it is: nothing says what runs
            launched, outcome = replace(launched, chosen=False), _without_assumed(outcome, blocks)
        return Tried(analyses=((launched, outcome), *others), stopped=stopped, left_alone=tuple(left))

    def _climb(
        self, best: dict[str, int], base: KernelLaunch, analysis: KernelAnalysis, analyses: Found, until: float
    ) -> tuple[dict[str, int], bool]:
        """Adds neighbours of the best to those `analyses`, as long as one is better; the best, and whether that came to its end."""
        while True:
            best_us = _us(analyses[_key(best)][1])
            queue = [neighbour for neighbour in self._neighbours(best, analysis) if _key(neighbour) not in analyses]
            self.workers.timeout_s = max(until - time.monotonic(), 1.0)
            while queue and self._in_time(until):
                batch, queue = queue[: self.workers.size], queue[self.workers.size :]
                self._take(batch, base, analysis.inspection.demand, analyses, len(queue))
            better = min(analyses, key=lambda values: _us(analyses[values][1]))
            if queue or NEAR_BEST * _us(analyses[better][1]) >= best_us:
                return (dict(better) if _us(analyses[better][1]) < best_us else best), not queue
            best = dict(better)

    def _in_time(self, until: float) -> bool:
        return time.monotonic() + self._slowest < until

    def _take(self, batch: list[dict[str, int]], base: KernelLaunch, demand: KernelDemand, analyses: Found, more: int) -> None:
        """Compile, count and predict some configurations."""
        started = time.monotonic()
        name = next(iter(analyses.values()))[0].id
        targets = [
            KernelTarget(id=f"{name}-config{number}", launch=self._launch(base, values), source="tried", space=name)
            for number, values in enumerate(batch, start=len(analyses))
        ]
        looked = analyse_targets(targets, self.gpu, self.cache, workers=self.workers, counted=self.counted, judge=launch_analysis)
        for values, (tried, outcome) in zip(batch, looked, strict=True):
            if isinstance(outcome, KernelAnalysis) and not same_work(demand, outcome.inspection.demand):
                outcome = Unreadable(id=tried.id, reason=OTHER_WORK)
            analyses[_key(values)] = (tried, outcome)
        self._slowest = max(self._slowest, time.monotonic() - started)
        self._tried += len(batch)
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
        """One step from a configuration in one tunable, and in a block and the warps together."""
        blocks = [name for name in values if name not in ("num_warps", "num_stages")]
        steps = [{name: factor} for name in blocks for factor in (2.0, 0.5)]
        steps += [{name: factor, "num_warps": factor} for name in blocks for factor in (2.0, 0.5)]
        steps += [{"num_warps": factor} for factor in (2.0, 0.5)]
        if stages := values.get("num_stages"):
            steps += [{"num_stages": (stages + more) / stages} for more in (1, 2, -1) if 1 <= stages + more <= MOST_STAGES]
        least = dict.fromkeys(values, 1) | (dict.fromkeys(blocks, LEAST_OF_PRODUCT) if analysis.inspection.demand.total_tensor_flop else {})
        most = {"num_warps": warps_at_most(Target.of(self.gpu))}
        for step in steps:
            if step.keys() <= values.keys():
                other = {**values, **{name: round(values[name] * factor) for name, factor in step.items()}}
                if all(least[name] <= other[name] <= most.get(name, other[name]) for name in step):
                    yield other

    def _blocks(self, base: KernelLaunch, analysis: KernelAnalysis, until: float) -> tuple[dict[str, int], list[str]]:
        """The constants of a launch that are blocks, and sentences on those that look like it and are none.

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
            and value > 1
            and value & (value - 1) == 0
            and usage[parameter.name].extent
            and parameter.name not in function.heuristics
            and (not launch.tunable or parameter.name in launch.tunable)
        ]
        blocks: dict[str, int] = {}
        left = []
        for name in names:
            value = inspection.guess.constexprs[name]
            if not self._in_time(until):
                left.append(phrase("search.no_time", name=name))
            elif self._is_block(base, inspection.guess, inspection.demand, name, value):
                blocks[name] = value
            else:
                left.append(phrase("search.other_work", name=name))
        return blocks, left

    def _is_block(self, base: KernelLaunch, guess: Guess, demand: KernelDemand, name: str, value: int) -> bool:
        """Whether another value of a constant leaves the work as it is: half of it, or twice where that does not compile. A grid that does
        not follow from the constants stays as it is: with fewer blocks of another size it would be another launch."""
        for other in (value // 2, 2 * value):
            then = self._front_end(self._launch(base, {name: other}), guess)
            if then is not None:
                return same_work(demand, then)
        return False

    def _front_end(self, launch: KernelLaunch, guess: Guess) -> KernelDemand | None:
        """The demand of a launch by its IR alone; None: it does not compile so far."""
        started = time.monotonic()
        here = replace(guess, signature=launch.given.types, constexprs=launch.given.constexprs, options=launch.given.options)
        try:
            request = request_for(launch, here, Target.of(self.gpu), sass=False)
            compiled = compile_kernel(replace(request, only="ttir"), self.workers)
            return self.counted.demand(compiled.ttir, launch.grid or (1,), inputs_of(launch, here), own_files(compiled))
        except AdvisorError:
            return None
        finally:
            self._slowest = max(self._slowest, time.monotonic() - started)


def pipelined(demand: KernelDemand) -> bool:
    """Whether `num_stages` can matter: a product in a loop that loads."""
    return bool(demand.loops) and demand.total_tensor_flop > 0 and any(access.in_loop for access in demand.accesses)


def same_work(first: KernelDemand, second: KernelDemand) -> bool:
    """Whether two launches read and write as many distinct bytes, and multiply as much of what holds data."""

    def alike(one: float, other: float, share: float = SAME_BYTES) -> bool:
        return abs(one - other) <= share * max(one, other)

    def useful(demand: KernelDemand) -> float:
        return demand.total_tensor_flop - sum(demand.padding.tensor_flop.values())

    return (
        alike(sum(first.likely_read_footprints.values()), sum(second.likely_read_footprints.values()))
        and alike(sum(first.likely_written_footprints.values()), sum(second.likely_written_footprints.values()))
        and alike(useful(first), useful(second), SAME_FLOP)
    )


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
