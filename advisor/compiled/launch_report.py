"""`LaunchReport`s of kernels nobody described in closed form, for `advisor advise FILE.py::KERNEL` and `advise LAUNCHES.jsonl`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.compiled.analysis import KernelAnalysis, kernel_analysis
from advisor.compiled.compiler.kernel import AMD_OPTIONS, OPTION_NAMES, Target
from advisor.compiled.compiler.pool import Pool, borrowed
from advisor.compiled.demand.costs import input_type
from advisor.compiled.demand.demand import Counted
from advisor.compiled.guesses.inference import UNKNOWN_STAGES
from advisor.compiled.launches.inductor import inductor_launches
from advisor.compiled.launches.launch import Inspection, KernelLaunch, inspect_launch
from advisor.compiled.launches.launch_options import KernelTarget, LaunchOptions, launches, options_by_kernel
from advisor.compiled.launches.records import RecordedKernel, record_target
from advisor.compiled.launches.target import is_kernel_target, open_kernel
from advisor.compiled.source_lines import source_lines
from advisor.gpus.hardware import GpuSpec
from advisor.python_source.source import read_source
from advisor.result.schema import Configuration, Family, Finding, GapPart, Latency, LaunchReport, Problem, nearest_to_peak
from advisor.rows.launches import is_launch_record
from advisor.system.errors import AdvisorError, UsageError

TRIED = "tried"
"""The source of configurations that nobody listed: one that fails is left out without a word."""


@dataclass(frozen=True, kw_only=True)
class Unreadable:
    """A launch that could not be compiled or read, and why, in one line."""

    id: str
    reason: str


def is_compiled_target(text: str) -> bool:
    """Whether a TARGET is a kernel in a file, a file TorchInductor generated, or a launch record."""
    return is_kernel_target(text) or (text.endswith(".py") and Path(text).is_file()) or is_launch_record(text)


def targets_from(text: str, launch_options: LaunchOptions | None = None, gpu: GpuSpec | None = None) -> list[KernelTarget]:
    """The launches a TARGET stands for.

    Args:
        text: FILE.py::KERNEL, a record, or a file of TorchInductor's.
        launch_options: What is said of the launch, for kernels in files.
        gpu: The GPU it is for, where the grid depends on it.

    Raises:
        UsageError, InputError, NothingMatchedError: It is none, or cannot be read.
    """
    launch_options = launch_options or LaunchOptions()
    if is_kernel_target(text):
        return launches(*open_kernel(text), launch_options, gpu)
    if text.endswith(".py") and not is_launch_record(text):
        return _of_file(text, launch_options, gpu)
    if launch_options != LaunchOptions():
        raise UsageError("options of a launch are for a kernel in a file", text, "FILE.py::KERNEL", "leave them out: a record has them all")
    if is_launch_record(text):
        return targets_recorded(record_target(text))
    raise UsageError("not a kernel", text, "FILE.py::KERNEL, a file TorchInductor generated, or a record of `advisor record`")


MOST_TRIED = 300
"""Trials of autotuners that are compiled for all launches of a record together, those of the heaviest first."""


def targets_recorded(recorded: Sequence[RecordedKernel]) -> list[KernelTarget]:
    """Launches of a record as targets, each with what its autotuner tried in its place."""
    targets: list[KernelTarget] = []
    left = MOST_TRIED
    for item in recorded:
        others = [launch for launch in item.tried if launch.given != item.launch.given][:left]
        left -= len(others)
        main = KernelTarget(
            id=item.id, launch=item.launch, source=_recorded(item), count=item.count, measured_us=item.time_us, device=item.device
        )
        targets.append(replace(main, space=item.id, chosen=True) if others else main)
        for number, launch in enumerate(others):
            targets.append(KernelTarget(id=f"{item.id}-config{number}", launch=launch, source="a trial of its autotuner", space=item.id))
    return targets


def _of_file(text: str, launch_options: LaunchOptions, gpu: GpuSpec | None) -> list[KernelTarget]:
    """Every kernel of a file: those that somebody wrote, or those that TorchInductor generated, which take no options but one by one."""
    source = read_source(text)
    kernels = source.launched
    if not kernels or any(function.inductor is not None for function in source.functions.values()):
        targets = [KernelTarget(id=launch.kernel, launch=launch) for launch in inductor_launches(text)]
        if launch_options != LaunchOptions():
            raise UsageError(
                "options of a launch are for one kernel of a file", text, f"{text}::{targets[0].id}", "name the kernel after ::"
            )
        return targets
    source = source.on(*gpu.triton_target[:2]) if gpu is not None else source
    given = options_by_kernel(source, kernels, launch_options)
    return [target for kernel in kernels for target in launches(*source.named(kernel), given[kernel], gpu)]


Judge = Callable[[Inspection, GpuSpec, str], KernelAnalysis]


def _recorded(kernel: RecordedKernel) -> str:
    if kernel.time_us is not None or kernel.at_most_us is None:
        return "recorded"
    return f"recorded; took at most {kernel.at_most_us:.4g} µs, with its launch from Python, for which the GPU waited"


def analyse_targets(
    targets: Sequence[KernelTarget],
    gpu: GpuSpec,
    cache: str = "warm",
    progress: Callable[[int, int], None] | None = None,
    *,
    workers: Pool | None = None,
    counted: Counted | None = None,
    judge: Judge = kernel_analysis,
) -> list[tuple[KernelTarget, KernelAnalysis | Unreadable]]:
    """Compile and count every target for one GPU, as many at a time as the pool has workers; failures are values, the order is kept.

    Args:
        targets: What to look at.
        gpu: GPU to compile for.
        cache: What the L2 holds at launch, cold or warm.
        progress: Called with (done, total) targets, from the calling thread.
        workers: What compiles; None: a pool that ends with this.
        counted: What was counted of others.
        judge: Of an inspected launch on a GPU with a cache state, the analysis.
    """
    analyses: dict[int, KernelAnalysis | Unreadable] = {}
    counted = counted or Counted()
    with borrowed(workers) as pool, ThreadPoolExecutor(max_workers=pool.size) as threads:
        waiting = {threads.submit(_analyse, target, gpu, cache, pool, counted, judge): i for i, target in enumerate(targets)}
        try:
            for done, future in enumerate(as_completed(waiting), start=1):
                analyses[waiting[future]] = future.result()
                if progress is not None:
                    progress(done, len(targets))
        except BaseException:
            for future in waiting:
                future.cancel()
            raise
    return [(target, analyses[i]) for i, target in enumerate(targets)]


def _analyse(target: KernelTarget, gpu: GpuSpec, cache: str, workers: Pool, counted: Counted, judge: Judge) -> KernelAnalysis | Unreadable:
    try:
        return _that_launches(target.launch, gpu, cache, workers, counted, judge)
    except AdvisorError as error:
        if error.exit_code != 2 or type(error).__name__ == "MissingDependencyError":
            raise
        return Unreadable(id=target.id, reason=str(error))


def _that_launches(launch: KernelLaunch, gpu: GpuSpec, cache: str, workers: Pool, counted: Counted, judge: Judge) -> KernelAnalysis:
    """What a launch is found to do; where its blocks or stages are guesses with which it cannot launch, with the most stages that can.

    What nobody said to run is no launch that fails.
    """
    analysis = first = judge(inspect_launch(launch, Target.of(gpu), workers, counted=counted), gpu, cache)
    guess, options = first.inspection.guess, launch.given.options
    guessed = guess.invented or any(UNKNOWN_STAGES in text for text in launch.assumed)
    stages = first.inspection.compiled.num_stages
    while analysis.predicted is None and guessed and "num_stages" not in guess.options and stages > 1:
        stages -= 1
        note = f"num_stages = {stages}, the most with which what is guessed can launch"
        kept = tuple(text for text in launch.assumed if UNKNOWN_STAGES not in text)
        fewer = replace(launch, given=replace(launch.given, options={**options, "num_stages": stages}), assumed=(*kept, note))
        analysis = judge(inspect_launch(fewer, Target.of(gpu), workers, counted=counted), gpu, cache)
    return analysis if analysis.predicted is not None else first


def problem_of(inspection: Inspection, cache: str = "warm") -> Problem:
    """A stand-in for the problem: the nearest family, the kernel's name as operator, its integer arguments and what its grid follows from
    as sizes."""
    demand, launch = inspection.demand, inspection.launch
    if launch.problem is not None:
        return replace(launch.problem, cache="cold" if cache == "cold" else "warm")
    family: Family = "gemm" if demand.total_tensor_flop else "elementwise"
    sizes = {
        n: v
        for n, v in {**launch.around, **launch.given.scalars}.items()
        if isinstance(v, int) and not isinstance(v, bool) and v > 0 and "stride" not in n
    }
    if not sizes or launch.grid is None:  # without a grid one program is counted, whatever the sizes
        sizes = {"programs": max(demand.programs, 1)}
    types = inspection.compiled.signature.values()
    kinds = [t[1:] for t in types if t.startswith(("*fp", "*bf"))] + ["int8" for t in types if t in ("*i8", "*u8")] + ["fp32"]
    dtype = input_type(demand.main_tensor_type or kinds[0])
    dtype = {"fp8e4nv": "fp8", "fp8e5": "fp8"}.get(dtype, dtype)
    return Problem(family=family, op=inspection.compiled.name, sizes=sizes, dtype=dtype, cache="cold" if cache == "cold" else "warm")


def configuration_of(inspection: Inspection) -> Configuration:
    """The tunable part: integer and boolean constants that are not sizes, and the launch options; those of AMD as `triton.Config` has
    them."""
    tunable = inspection.launch.tunable
    folded = {n for n, v in inspection.launch.given.scalars.items() if type(v) is int and v == 1}
    parameters = {
        n: v
        for n, v in inspection.compiled.constexprs.items()
        if isinstance(v, (bool, int, str)) and n not in folded and n not in OPTION_NAMES and (tunable is None or n in tunable)
    }
    parameters |= {n: v for n, v in inspection.launch.given.options.items() if n in AMD_OPTIONS and isinstance(v, int)}
    options = inspection.compiled.options
    return Configuration(
        parameters=parameters,
        num_warps=int(options.get("num_warps") or inspection.compiled.num_warps),
        num_stages=inspection.compiled.num_stages,
        num_ctas=int(options.get("num_ctas") or 1),
        maxnreg=options.get("maxnreg"),
    )


def _source(target: KernelTarget) -> str:
    """Where the configuration comes from, in words."""
    if target.source:
        return target.source
    return "given, or the file's own" if target.launch.grid else "guessed from the source"


def launch_report(
    target: KernelTarget, analysis: KernelAnalysis, findings: tuple[Finding, ...] = (), passed: tuple[str, ...] = ()
) -> LaunchReport:
    """The report of one launch; `findings` and `passed` come from the rules on compiled code."""
    measured = None
    if target.measured_us is not None:
        measured = Latency(us=target.measured_us, origin="measured", source=f"recorded on {target.device or 'an unnamed GPU'}")
    current = measured or analysis.predicted
    gap = analysis.gap_parts
    if measured is not None:
        rest = measured.us - (analysis.predicted.us if analysis.predicted is not None else analysis.bound.us)
        note = f"measured {'slower' if rest >= 0 else 'faster'} than predicted" if analysis.predicted else "it has no prediction"
        gap = (*gap, GapPart(cause="unexplained", us=rest, origin="measured", note=note))
    faults: tuple[str, ...] = ()
    if measured is not None and measured.us < analysis.config_bound.us:
        faults = (
            f"measured {measured.us:.3g} us is below the bound {analysis.config_bound.us:.3g} us: "
            "a fault of the model or of the measurement",
        )
    nearest, share = nearest_to_peak(analysis.pipelines, current.us if current else None)
    return LaunchReport(
        id=target.id,
        kernel=analysis.inspection.compiled.name,
        problem=problem_of(analysis.inspection, analysis.cache),
        configuration=configuration_of(analysis.inspection),
        configuration_source=_source(target),
        pipelines=analysis.pipelines,
        binding_pipeline=analysis.binding_pipeline,
        config_binding_pipeline=analysis.config_binding_pipeline,
        bound=analysis.bound,
        config_bound=analysis.config_bound,
        predicted=analysis.predicted,
        ceiling=None,
        ceiling_configuration=None,
        measured=measured,
        measured_rounds=None,
        occupancy=analysis.occupancy,
        efficiency=analysis.bound.us / current.us if current else None,
        peak_pipeline=nearest,
        share_of_peak=share,
        headroom=None,
        p_speedup_10pct=None,
        gap=gap,
        findings=findings,
        passed_rules=passed,
        recommendation=None,
        faults=faults,
        source_lines=source_lines(analysis),
    )
