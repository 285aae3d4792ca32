"""The `Result` of a tuning cache: what ran in production, why the rest was left out, and how far it is from the ceiling.

A problem whose family the model knows, on a GPU that `ceilings/` describes, becomes a launch of the result, diagnosed as any other;
of the others there are the timings, and the reason why no more can be said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from advisor import __version__
from advisor.advising.launch_facts import gpu_figures
from advisor.advising.verdict import verdict
from advisor.autotuning.decisions.cache import WITH_HOOKS
from advisor.autotuning.decisions.exchange import Entry
from advisor.autotuning.ranking import named_for
from advisor.autotuning.tuned_launches import ODD, diagnosed, predictable, tuned_problem
from advisor.diagnosis import actions
from advisor.gpus.hardware import GpuSpec
from advisor.learned.base import Predictor
from advisor.result.schema import Export, Fingerprint, LaunchReport, Result, TunedProblem, Verdict
from advisor.rows.columns import missing_parameters
from advisor.system.errors import AdvisorError, NothingMatchedError

LAUNCH_LIMIT = 256
"""Problems diagnosed, the most recently used first; all are listed."""


def advise_tuned(
    found: Sequence[Entry],
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
        found: Problems of that GPU, most recently used first.
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
    if not found:
        raise NothingMatchedError(f"{title}: nothing was tuned on {gpu_name}", None, None, "`advisor cache ls` shows what there is")
    tuned: list[TunedProblem] = []
    launches: list[LaunchReport] = []
    seen: set[tuple[str, str]] = set()
    taken: set[str] = set()
    for number, entry in enumerate(found, start=1):
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
            progress(number, len(found))
    unknowns = _unknowns(tuned, launches)
    versions = sorted({entry.key.triton for entry in found if entry.key.triton})
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
    out = []
    notes: dict[str, int] = {}
    for problem in tuned:
        if problem.note:
            notes[problem.note] = notes.get(problem.note, 0) + 1
    out += [f"{count} of {len(tuned)} tuned problems: {note}." for note, count in notes.items()]
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
    found: Mapping[str, None] = dict.fromkeys(
        report.recommendation.triton_config
        for report in launches
        if report.recommendation is not None and report.recommendation.latency.origin == "predicted"
    )
    if not found:
        return ()
    return (Export(name="to add to configs=", kind="triton-configs", content="[\n" + "".join(f"    {each},\n" for each in found) + "]\n"),)


__all__ = ["advise_tuned"]
