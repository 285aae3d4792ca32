"""`Order`, the options of a tuning run; the target that it names; which table its winners belong in, and which kernel measures them.

What wins with one kernel says nothing of another, and must not go under its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.advising.exports import layer_table_name, table_name_on
from advisor.advising.targets import PlannedLaunch, Request, Target
from advisor.advising.targets.resolve import resolve_target
from advisor.gpus.hardware import GpuSpec, load_gpu, match_device_name
from advisor.measurement.devices.device import DeviceSpec, find_device
from advisor.measurement.kernel_file import KernelRef, block_shape_of, find_kernels, kernel_entry, kernels_made_for
from advisor.measurement.plan import kernel_problems
from advisor.measurement.replay import read_recording
from advisor.measurement.scheduler import Scheduler
from advisor.result.schema import Configuration, Problem
from advisor.search.prior import Prior
from advisor.search.sampler import MARGIN
from advisor.search.space import SearchSpace
from advisor.system.errors import InputError, NothingMatchedError, UsageError
from advisor.tables.entries import default_configuration
from advisor.tables.names import FLOAT32, TableName, unreachable_reasons
from advisor.tables.tables import down_configuration
from advisor.tables.tuned_table import SHARED

_16_BIT = {"bf16", "fp16"}
"""Types that both stacks look up under one name, without a dtype."""


def table_name(target: Target) -> TableName | None:
    """The name the winners are looked up by: the target's table, else vLLM's for a fused-MoE layer. None: no launch asks for one."""
    if target.table is not None:
        return table_name_on(target.table.name, target.gpu)
    name = layer_table_name(target)
    return None if name is None or unreachable_reasons(name) else name


def check_exported(target: Target) -> None:
    """Refuses to export under a name that no launch asks for.

    Raises:
        UsageError: There would be one.
    """
    name = layer_table_name(target) if target.table is None else None
    if name is not None and (reasons := unreachable_reasons(name)):
        raise UsageError(
            f"{target.title}: there is no table to export to",
            name.file_name(),
            f"a name that vLLM asks for: {reasons[0]}",
            "leave out --export, or tune for operands that have one, such as --dtype bf16",
        )


def check_dtype(name: TableName, dtype: str | None) -> None:
    """Refuses operands that a table is not of.

    Raises:
        UsageError: What wins for those would be written under its name.
    """
    try:
        operand = name.operand_dtype
    except InputError:  # --dtype is there to say it
        return
    if dtype not in (None, operand) and {dtype, operand} not in (_16_BIT, FLOAT32):
        raise UsageError(
            f"{name.file_name()}: --dtype contradicts the table",
            dtype,
            f"{operand}, which its name says",
            "leave out --dtype; a layer has a table for each type: `advisor tune fused_moe --dtype` finds the other's name",
        )


def kernel_of(target: Target) -> KernelRef:
    """The bundled kernel that runs a table's launches.

    Raises:
        UsageError: There is none.
    """
    problem, remedy = target.launches[0].problem, "replay rows with --recorded, or tune your kernel as FILE.py::KERNEL"
    if problem.family != "fused_moe":
        raise UsageError(f"{target.title}: no bundled kernel runs these launches", problem.family, "a fused-MoE table", remedy)
    kernel = _bundled()
    entry = kernel_entry(kernel)
    dtypes = entry["dtypes"]
    runs = problem.dtype in dtypes and problem.weight_dtype is None and problem.block_shape == block_shape_of(entry, problem.dtype)
    if not (runs and _is_known(target)):
        limit = ", ".join(
            _operands(
                Problem(family="fused_moe", op=problem.op, sizes=problem.sizes, dtype=dtype, block_shape=block_shape_of(entry, dtype))
            )
            for dtype in dtypes
        )
        got = _operands(problem) if _is_known(target) else "operands of an unknown type"
        raise UsageError(f"{target.title}: the bundled kernel is another than its launches'", got, f"one of {limit}", remedy)
    return kernel


def with_kernels_scales(target: Target) -> Target:
    """A layer without a table as the bundled kernel runs it: where that has operands with scales in blocks, so has the problem."""
    entry = kernel_entry(_bundled())
    block = block_shape_of(entry, target.launches[0].problem.dtype)
    if block is None:
        return target
    launches = tuple(
        replace(
            launch,
            problem=replace(launch.problem, block_shape=block),
            configuration=default_configuration(
                "vllm",
                launch.tokens or 1,
                launch.problem.sizes["E"],
                dtype=launch.problem.dtype,
                block_shape=block,
                amd=target.gpu.vendor == "amd",
            ),
        )
        for launch in target.launches
    )
    note = f"{_operands(launches[0].problem)}: so the bundled kernel has its operands, and so the table is named"
    return replace(target, launches=launches, warnings=(*target.warnings, note))


def _bundled() -> KernelRef:
    return find_kernels("fused_moe::fused_moe_kernel")[0]


def _is_known(target: Target) -> bool:
    """Whether the name of the target's table says a type that is known."""
    try:
        return target.table is None or bool(target.table.name.operand_dtype)
    except InputError:
        return False


def _operands(problem: Problem) -> str:
    """The operands of a problem, in words."""
    if problem.weight_dtype is not None:
        return f"{problem.dtype} with {problem.weight_dtype} weights"
    if problem.block_shape is not None:
        return f"{problem.dtype} with scales in blocks of {problem.block_shape[0]} x {problem.block_shape[1]}"
    return problem.dtype + (" with a scale per tensor or channel" if problem.dtype in ("fp8", "int8") else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The options of a tuning run; plain values, so that they can be sent to worker processes.

    Attributes:
        target: A tuned table, `fused_moe`, a bundled kernel or `FILE.py::KERNEL`.
        request: GPU, model, tokens and the like.
        recorded: Rows to replay; None: measure on `device`.
        device: As `advisor measure --device`; or the device itself, found.
        op: Only launches of this operator.
        sizes: Problems of a kernel.
        trials, time_limit_s, margin: See `advisor.search`.
        storage: A path or URL.
        study: Name of the study; None: from the target and the GPU.
        export: Folder for the table.
        weights: Of the predictor.
    """

    target: str
    request: Request
    storage: str
    recorded: str | None = None
    device: str | DeviceSpec = "auto"
    op: str | None = None
    sizes: tuple[Mapping[str, int], ...] = ()
    trials: int | None = None
    time_limit_s: float | None = None
    margin: float = MARGIN
    study: str | None = None
    export: str | None = None
    weights: str | None = None


def target_of(order: Order) -> tuple[Target, KernelRef | None]:
    """The target of an order, for its GPU, and its kernel where it names one.

    Raises:
        UsageError: It names none, or more than one can be tuned at a time.
    """
    text = order.target
    if text == "fused_moe" or text.endswith(".json"):
        if len(order.sizes) > 1:
            times = f"{len(order.sizes)} times --sizes"
            raise UsageError("a table is of one layer", times, "at most once", "tune one layer after the other")
        request = replace(order.request, sizes=order.sizes[0] if order.sizes else None)
        if text == "fused_moe" and request.gpu is None:
            request = replace(request, gpu=_gpu(order).name)
        settled = request.model or request.sizes or (request.hidden_size and request.top_k)
        target = resolve_target(text, replace(request, assume=not settled))
        if target.table is not None:
            check_dtype(target.table.name, request.dtype)
        elif order.recorded is None:
            target = with_kernels_scales(target)
        return target, None
    if Path(text).is_dir():
        raise UsageError("tune one table at a time", f"the folder {text}", "a table in it", "name the table's file")
    kernels = find_kernels(text)
    named = {
        "--model": order.request.model,
        "--hidden-size": order.request.hidden_size,
        "--top-k": order.request.top_k,
        "--tensor-parallel": order.request.tensor_parallel,
        "--expert-parallel": order.request.expert_parallel,
    }
    if refused := [name for name, value in named.items() if value is not None]:
        raise UsageError(f"{', '.join(refused)} is for fused_moe and its tables", text, None, "give --sizes NAME=VALUE,…")
    made, left_out = kernels_made_for(kernels, order.op, order.request.dtype)
    if len(made) != 1:
        known = ", ".join(kernel.target for kernel in made)
        raise UsageError("tune one kernel at a time", text, f"one of {known}", f"name one, as in `advisor tune {made[0].target}`")
    kernel, request = made[0], order.request
    problems = kernel_problems(
        kernel,
        order.sizes,
        tokens=request.tokens,
        op=order.op,
        dtype=request.dtype,
        routing={"routing": request.routing, "distribution": request.distribution},
        cache=request.cache,
    )
    launches: dict[str, PlannedLaunch] = {}  # a problem that is named twice is one
    for problem in problems:
        label = f"{problem.op}-" + "-".join(f"{name}{value}" for name, value in problem.sizes.items())
        launches[label] = PlannedLaunch(
            id=label, kernel=kernel.function, problem=problem, configuration=None, source="kernel's default", decision_id=label
        )
    space = kernel_space(kernel).batch
    return Target(title=kernel.function, gpu=_gpu(order), launches=tuple(launches.values()), space=space, warnings=left_out), kernel


def kernel_space(kernel: KernelRef) -> SearchSpace:
    """All combinations of the `space` of a kernel's file, whose `valid` is not asked."""
    return SearchSpace.from_ranges(kernel_entry(kernel).get("space") or {})


def _gpu(order: Order) -> GpuSpec:
    """The GPU asked for, else the recording's, else the device's."""
    if order.request.gpu is not None:
        return load_gpu(order.request.gpu)
    if order.recorded is not None:
        gpu = match_device_name(read_recording(order.recorded).gpu)
    else:
        device = find_device(order.device)
        if device.gpu is not None:
            gpu = match_device_name(device.gpu)
        else:
            with Scheduler(device, compile_workers=0) as scheduler:
                gpu = match_device_name(scheduler.description.gpu)
    if gpu is None:
        raise UsageError("the GPU is not described in ceilings/", None, "a name that `advisor gpus` lists", "say which with --gpu NAME")
    return gpu


def of_own_table(target: Target, op: str | None) -> tuple[Target, tuple[str, ...]]:
    """The launches that run with the target's own entries, and a sentence on the others: those are tuned by naming their table.

    Args:
        target: What is tuned.
        op: The operator that was asked for; None: all of them.

    Raises:
        NothingMatchedError: There are none.
    """
    others = [launch for launch in target.launches if launch.table is not None]
    if not others or others[0].table is None:
        return target, ()
    name, ops = others[0].table.name.file_name(), "+".join(dict.fromkeys(launch.problem.op for launch in others))
    launches = tuple(launch for launch in target.launches if launch.table is None)
    if not launches:
        raise NothingMatchedError(
            f"{target.title}: no entry of this table runs for this operator",
            op,
            f"an operator other than {ops}, which runs with the entries of {name}",
            f"tune that table: `advisor tune {name}`, by the path beside this one",
        )
    note = f"{ops} runs with the entries of {name}: left out here, and tuned by naming that table"
    if op is None and any(launch.frozen_parameters for launch in launches):
        note += f"; {'+'.join(dict.fromkeys(launch.problem.op for launch in launches))} keeps its {SHARED}, which {ops} runs with as well "
        note += "(without that table beside it, a copy of this one is tuned for both, and over all of them)"
    return replace(target, launches=launches), (note,) if op is None else ()


def with_fixed(configuration: Configuration, launch: PlannedLaunch) -> Configuration:
    """An entry of a `_down` table as w2 is launched with it: in what w13's entry decides, as the launch runs today."""
    if not launch.frozen_parameters or launch.configuration is None:
        return configuration
    return down_configuration(launch.configuration, configuration)


def may_be_tried(space: SearchSpace, launch: PlannedLaunch) -> NDArray[np.bool_]:
    """Which configurations leave what another launch's entry decides or needs too as it is today, [c].

    The other launch is not measured here, so that nothing is known of what another value would do to it; and w2's is overridden.
    """
    today = launch.configuration
    return space.matching({} if today is None else {name: today.parameters[name] for name in launch.frozen_parameters})


def restricted(prior: Prior, allowed: NDArray[np.bool_], why: str) -> Prior:
    """The prior of a decision for which only the `allowed` configurations [c] may be tried."""
    out = int((np.isfinite(prior.mean) & ~allowed).sum())
    return replace(prior, mean=np.where(allowed, prior.mean, np.inf), stopped_by={**prior.stopped_by, why: out}) if out else prior
