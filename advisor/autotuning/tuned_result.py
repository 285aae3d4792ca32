"""The `Result` of a tuning cache: what ran in production, why the rest was left out, and how far it is from the ceiling.

A problem whose family the model knows, on a GPU that `ceilings/` describes, becomes a launch of the result, diagnosed as any other: the
configuration that runs, beside what was tried and what was not. Measured latencies come from the cache. What was measured faster than what
runs is the ceiling and the advice; else the model says. Of the others there are the timings, and the reason why no more can be said.

What a cache holds may be damaged, or another program's: it is read as anything from a file.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from advisor import __version__
from advisor.advising import advise_target
from advisor.advising.choice import Measured
from advisor.advising.exports import triton_config
from advisor.advising.launch_facts import gpu_figures
from advisor.advising.targets import PlannedLaunch, Target
from advisor.advising.verdict import verdict
from advisor.autotuning.decisions.cache import WITH_HOOKS
from advisor.autotuning.decisions.exchange import Entry
from advisor.autotuning.keys import parameters as flat_parameters
from advisor.autotuning.ranking import named_for
from advisor.diagnosis import actions
from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Predictor
from advisor.pipelines import ConfigurationBatch, configuration_batch, problem_batch
from advisor.pipelines.space import SPACES, sound_depths
from advisor.result.schema import (
    FAMILIES,
    Configuration,
    Export,
    Fingerprint,
    Latency,
    LaunchReport,
    Origin,
    Problem,
    Result,
    TunedProblem,
    TunedTiming,
    Verdict,
)
from advisor.rows.columns import family_names, missing_parameters, needed_parameters
from advisor.system import grouped
from advisor.system.errors import AdvisorError, NothingMatchedError
from advisor.tables.names import SIZE_LIMIT

ODD = (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError)
"""What a damaged or foreign row can make the parsing raise, besides our own errors."""


def tuned_problem(entry: Entry) -> TunedProblem:
    """The entry as the result has it, before any model looks at it."""
    best, decided = entry.best, entry.decided[0][2] if entry.decided else "undecided"
    origin: Origin = "simulated" if entry.simulated else "measured"
    chosen = next((row for row in entry.rows if row.config == best), None)
    return TunedProblem(
        kernel=entry.key.kernel,
        key=entry.key.key,
        triton=entry.key.triton,
        decided=origin if decided == "measured" else decided,
        configuration=_configuration(best) if best is not None else None,
        latency_us=chosen.us if chosen else None,
        timings=tuple(
            TunedTiming(
                configuration=_configuration(row.config),
                state=row.state,
                us=row.us,
                low_us=row.low_us,
                high_us=row.high_us,
                predicted_us=finite(row.predicted_us),
                reason=row.reason,
            )
            for row in entry.rows
        ),
        origin=origin,
    )


def _configuration(identity: str) -> Configuration:
    """A configuration under the kernel's own names; an identity that is no JSON object is shown as it stands."""
    try:
        parsed = Configuration.from_flat(flat_parameters(identity))
    except ODD:
        return Configuration(parameters={"configuration": identity})
    plain = {name: value if isinstance(value, (bool, int, str)) else str(value) for name, value in parsed.parameters.items()}
    return replace(parsed, parameters=plain)


def finite(value: float | None) -> float | None:
    """A figure; None where it is none."""
    return value if value is not None and math.isfinite(value) else None


def recognised_problem(entry: Entry) -> Problem:
    """The recognised problem, checked as anything read from a file.

    Raises:
        UsageError, KeyError, TypeError, ValueError: It is none.
    """
    text = json.loads(entry.key.problem or "null")
    sizes = {str(name): _size(str(name), value) for name, value in text["sizes"].items()}
    if entry.key.family not in FAMILIES:
        raise ValueError(f"no family {entry.key.family}")
    block = text.get("block_shape")
    problem = Problem(
        family=entry.key.family,  # type: ignore[arg-type]
        op=str(text["op"]),
        sizes=sizes,
        dtype=str(text["dtype"]),  # type: ignore[arg-type]
        weight_dtype=text.get("weight_dtype"),
        output_dtype=text.get("output_dtype"),
        block_shape=(int(block[0]), int(block[1])) if block else None,
    )
    problem_batch([problem])  # raises where the model knows no such operator or type
    return problem


def _size(name: str, value: Any) -> int:
    """A size of a problem, if a tensor can have it.

    Raises:
        ValueError: None can.
    """
    least = 0 if name == "causal" else 1
    if not isinstance(value, (int, float)) or value != value or not least <= value < SIZE_LIMIT or value != int(value):
        raise ValueError(f"size {name} of {value!r}; expected an integer from {least} to {SIZE_LIMIT - 1}")
    return int(value)


def diagnosed(
    entry: Entry, tuned: TunedProblem, gpu: GpuSpec, predictor: Predictor, cache: str | None, taken: set[str]
) -> tuple[LaunchReport, TunedProblem]:
    """The launch that runs, diagnosed, and the problem with what is predicted of every configuration now.

    Args:
        entry: Of the cache.
        tuned: What it says, with a configuration that runs.
        gpu: It was tuned on.
        predictor: Where predictions come from.
        cache: What the L2 held when the launches were timed; None: nothing.
        taken: Ids of other launches of the result; this one's is added.
    """
    configuration = tuned.configuration
    assert configuration is not None
    problem = replace(recognised_problem(entry), cache="warm" if cache == "warm" else "cold")
    family = problem.family
    current = named_for(configuration, family)
    tuned = _predicted(tuned, problem, gpu, predictor)
    known = [(named_for(timing.configuration, family), timing) for timing in tuned.timings]
    name = _name(entry, problem, taken)
    source = f"chosen by @advisor.autotune ({tuned.decided})"
    launch = PlannedLaunch(id=name, kernel=entry.key.kernel, problem=problem, configuration=current, source=source, decision_id=name)
    target = Target(title=name, gpu=gpu, launches=(launch,), space=_untried(problem, [named for named, _ in known], current))
    latencies = [(named, _latency(timing, tuned.origin)) for named, timing in known if timing.us is not None]
    now = next((latency for named, latency in latencies if named == current), None)
    others = tuple(other for other in latencies if other[0] != current)
    measured = {} if now is None else {name: Measured(latency=now, others=others)}
    report = advise_target(target, predictor, command="", measured=measured).launches[0]
    return _own_names(report, configuration, family), replace(tuned, launch=name)


def predictable(named: Configuration, family: str) -> bool:
    """Whether a configuration gives the model the sizes that it needs."""
    sizes = [named.parameters.get(name) for name in needed_parameters(family)]
    return all(isinstance(size, int) and size >= 1 for size in sizes) and named.num_warps >= 1 and named.num_stages >= 0


def _latency(timing: TunedTiming, origin: Origin) -> Latency:
    """A timing of the cache; its interval holds the middle 60 % of the runs. One of no width is none: the runs are not known apart."""
    assert timing.us is not None
    both = timing.low_us is not None and timing.high_us is not None and timing.low_us < timing.high_us
    return Latency(
        us=timing.us,
        origin=origin,
        source="tuning cache",
        low_us=timing.low_us if both else None,
        high_us=timing.high_us if both else None,
        coverage=0.6 if both else None,
    )


def _predicted(tuned: TunedProblem, problem: Problem, gpu: GpuSpec, predictor: Predictor) -> TunedProblem:
    """Every configuration with what is predicted of it now; what was predicted when it was tuned stays where that fails.

    Configurations are predicted together only with those that name the same parameters; one without a block size that the model
    needs, or with one that is no size, has no prediction.
    """
    named = [named_for(timing.configuration, problem.family) for timing in tuned.timings]
    alike = grouped(
        (frozenset(configuration.parameters), place)
        for place, configuration in enumerate(named)
        if predictable(configuration, problem.family)
    )
    now: list[float | None] = [None] * len(named)
    for places in alike.values():
        try:
            predicted_us = predictor.predict(problem_batch([problem]), configuration_batch([named[place] for place in places]), gpu).us
            for place, us in zip(places, np.broadcast_to(predicted_us, (len(places),)), strict=True):
                now[place] = finite(float(us))
        except (AdvisorError, *ODD):
            for place in places:
                now[place] = tuned.timings[place].predicted_us
    timings = [replace(timing, predicted_us=us) for timing, us in zip(tuned.timings, now, strict=True)]
    errors = [abs(t.predicted_us / t.us - 1) for t in timings if t.us and t.predicted_us is not None]
    return replace(tuned, timings=tuple(timings), prediction_error=statistics.median(errors) if errors else None)


def _name(entry: Entry, problem: Problem, taken: set[str]) -> str:
    """A launch's id: kernel, operator and sizes; numbered where that is not enough (strides or flags in the key)."""
    base = "-".join([entry.key.kernel, problem.op, *(f"{size}{value}" for size, value in problem.sizes.items())])
    numbered = itertools.chain([base], (f"{base}-{number}" for number in itertools.count(2)))
    name = next(name for name in numbered if name not in taken)
    taken.add(name)
    return name


def _untried(problem: Problem, known: Iterable[Configuration], current: Configuration) -> ConfigurationBatch:
    """The family's space in the parameters that the kernel names, less what was measured or left out; the current one is in it.

    A parameter that the family's space does not name (SPLIT_K, a flag) takes the values that were tried.
    """
    family_space = SPACES[problem.family]
    tried = [configuration for configuration in known if set(configuration.parameters) == set(current.parameters)]
    values: dict[str, tuple[int, ...]] = {}
    for name, now in current.parameters.items():
        if not isinstance(now, str):
            values[name] = family_space.get(name) or tuple(
                sorted({int(configuration.parameters[name]) for configuration in [*tried, current]})
            )
    values |= {name: family_space[name] for name in ("num_warps", "num_stages")}
    done = {tuple(int(configuration.flat()[name]) for name in values) for configuration in tried}
    points = [point for point in itertools.product(*values.values()) if point not in done]
    points.append(tuple(int(current.flat()[name]) for name in values))
    space = configuration_batch([Configuration.from_flat(dict(zip(values, point, strict=True))) for point in points])
    sound = np.append(sound_depths(space, problem)[:-1], True)
    return space.take(np.flatnonzero(sound))


def _own_names(report: LaunchReport, configuration: Configuration, family: str) -> LaunchReport:
    """The report with the kernel's own parameter names, so that what is advised can be pasted."""
    renamed = {target: name for name, target in family_names(configuration.parameters, family).items()}

    def back(changed: Configuration) -> Configuration:
        return replace(changed, parameters={renamed.get(name, name): value for name, value in changed.parameters.items()})

    advice = report.recommendation
    if advice is not None:
        changed = back(advice.configuration)
        reason = advice.reason
        if advice.latency.origin == "predicted":
            reason = "best predicted of what was not tried: add it to configs="
        advice = replace(advice, configuration=changed, triton_config=triton_config(changed), reason=reason)
    return replace(
        report,
        configuration=configuration,
        recommendation=advice,
        ceiling_configuration=back(report.ceiling_configuration) if report.ceiling_configuration is not None else None,
    )


LAUNCH_LIMIT = 256
"""Problems diagnosed, the most recently used first; all are listed."""


def advise_tuned(
    entries: Sequence[Entry],
    gpu_name: str,
    gpu: GpuSpec | None,
    predictor: Predictor,
    *,
    title: str,
    command: str,
    cache: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Result:
    """A report on everything that was tuned on one GPU.

    Args:
        entries: Problems of that GPU, most recently used first.
        gpu_name: As the cache names it.
        gpu: Its description; None where `ceilings/` has none.
        predictor: Where predictions come from.
        title: What the report is on.
        command: The command line that repeats it.
        cache: What the L2 held when the launches were timed. None: nothing, for Triton's benchmark empties it.
        progress: Called with (done, total) problems.

    Raises:
        NothingMatchedError: There are no problems.
    """
    if not entries:
        raise NothingMatchedError(f"{title}: nothing was tuned on {gpu_name}", None, None, "`advisor cache ls` shows what there is")
    tuned: list[TunedProblem] = []
    launches: list[LaunchReport] = []
    seen: set[tuple[str, str]] = set()
    taken: set[str] = set()
    for number, entry in enumerate(entries, start=1):
        problem = tuned_problem(entry)
        current = (entry.key.kernel, entry.key.key) not in seen
        seen.add((entry.key.kernel, entry.key.key))
        try:
            why = _why_not(entry, problem, gpu, gpu_name, current, len(launches))
            if why is None and gpu is not None:
                report, problem = diagnosed(entry, problem, gpu, predictor, cache, taken)
                launches.append(report)
            else:
                problem = replace(problem, note=why or "")
        except (AdvisorError, *ODD) as error:
            problem = replace(problem, note=f"the model does not take it ({type(error).__name__}: {error})")
        tuned.append(problem)
        if progress:
            progress(number, len(entries))
    unknowns = _unknowns(tuned, launches)
    versions = sorted({entry.key.triton for entry in entries if entry.key.triton})
    return Result(
        tool_version=__version__,
        command=command,
        target=title,
        fingerprint=Fingerprint(mode="offline", gpu=gpu_name, triton=", ".join(versions) or None),
        gpu=gpu_name,
        gpu_figures=gpu_figures(gpu) if gpu is not None else (),
        model=None,
        verdict=verdict(tuple(launches), unknowns) if launches else _measured_only(tuned, unknowns),
        actions=actions(launches),
        launches=tuple(launches),
        table_findings=(),
        exports=_exports(launches),
        tuned=tuple(tuned),
    )


def _why_not(entry: Entry, problem: TunedProblem, gpu: GpuSpec | None, gpu_name: str, current: bool, done: int) -> str | None:
    """Why a problem gets no diagnosis; None: it gets one."""
    if entry.key.family is None or entry.key.problem is None:
        return (
            "no bound and no ceiling: its family was unknown when it was tuned (set problem= of the decorator, or KERNELS; "
            "then `advisor cache prune --kernel` and tune again)"
        )
    if gpu is None:
        return f"ceilings/ describes no GPU {gpu_name}: no bound and no ceiling"
    if WITH_HOOKS in entry.key.source:
        return "no headroom: its latencies include hooks (reset_to_zero=, restore_value=, pre_hook=, post_hook=)"
    if problem.configuration is None:
        return "no configuration works" if problem.timings else "nothing was measured"
    if not current:
        return "tuned anew since, after the kernel's source or Triton changed: not counted"
    if done >= LAUNCH_LIMIT:
        return f"one report diagnoses {LAUNCH_LIMIT} problems: look at this kernel alone (TARGET::KERNEL)"
    named = named_for(problem.configuration, entry.key.family)
    if missing := missing_parameters(named, entry.key.family):
        return f"its configurations do not name {', '.join(missing)}, which the model of {entry.key.family} needs"
    return None if predictable(named, entry.key.family) else "the configuration that runs has block sizes that are no sizes"


def _unknowns(tuned: Sequence[TunedProblem], launches: Sequence[LaunchReport]) -> tuple[str, ...]:
    notes = Counter(problem.note for problem in tuned if problem.note)
    out = [f"{count} of {len(tuned)} tuned problems: {note}." for note, count in notes.items()]
    if launches:
        cold = sum(report.problem.cache == "cold" for report in launches)
        if cold:
            out.append(
                "What the L2 held while a configuration was timed is not recorded; it is taken to have been emptied, as by Triton's "
                "own benchmark (--cache warm: it was not)."
            )
        if any(report.problem.family == "fused_moe" for report in launches):
            out.append("Routing is not recorded and taken as uniform; a skewed routing pads more.")
    return tuple(out)


def _measured_only(tuned: Sequence[TunedProblem], unknowns: tuple[str, ...]) -> Verdict:
    """The verdict where no problem is known to the model: what was tuned, and how fast it runs."""
    measured = [problem.latency_us for problem in tuned if problem.latency_us is not None]
    working = sum(problem.configuration is not None for problem in tuned)
    words = "problem" if len(tuned) == 1 else "problems"
    return Verdict(
        sentence=f"{len(tuned)} tuned {words}, {working} with a configuration that runs; of none is a bound or a ceiling known.",
        current_us=sum(measured),
        ceiling_us=0.0,
        bound_us=0.0,
        percent_of_ceiling=0.0,
        binding_pipeline="-",
        origin="simulated" if any(problem.origin == "simulated" for problem in tuned) else "measured",
        unknowns=unknowns,
    )


def _exports(launches: Sequence[LaunchReport]) -> tuple[Export, ...]:
    """The configurations to add to `configs=`."""
    unique: Mapping[str, None] = dict.fromkeys(
        report.recommendation.triton_config
        for report in launches
        if report.recommendation is not None and report.recommendation.latency.origin == "predicted"
    )
    if not unique:
        return ()
    return (
        Export(name="to add to configs=", kind="triton-configs", content="[\n" + "".join(f"    {config},\n" for config in unique) + "]\n"),
    )


__all__ = ["advise_tuned"]
