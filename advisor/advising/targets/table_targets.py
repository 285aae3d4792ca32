"""The launches of a tuned table: of both GEMMs of a fused-MoE layer, or of a block-scaled GEMM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from advisor.advising.targets import GEMM_OF_LAYER, PlannedLaunch, Request, Target, routing_assumed, slots_of_a_rank
from advisor.gpus.hardware import GpuSpec, load_gpu, match_device_name, why_not_described
from advisor.pipelines.space import problem_space
from advisor.result.schema import Problem
from advisor.system.errors import InputError, UsageError
from advisor.system.resources import phrase
from advisor.tables import models
from advisor.tables.names import TableName
from advisor.tables.routing import check_routing, crowded
from advisor.tables.tables import Selection, Table, TableProblem, clamp, down_configuration, inspect_table, select
from advisor.tables.tuned_table import SHARED, entry_of_other, sibling

LAUNCH_LIMIT = 256
"""Token counts of one report; the shipped tables have at most 37 entries."""

SHOWN_KEYS = 8
"""Keys that are wrong, named in a warning; `advisor audit` lists them all."""


def table_gpu(name: TableName, request: Request) -> GpuSpec:
    """The GPU of a table: the one asked for, else the one its name says.

    Raises:
        InputError: The name says none that `ceilings/` describes.
    """
    if request.gpu is not None:
        return load_gpu(request.gpu)
    gpu = match_device_name(name.device_name)
    if gpu is None:
        raise InputError(
            f"{name.file_name()}: " + (why_not_described(name.device_name) or "the GPU in its name is not described in ceilings/"),
            name.device_name,
            "a name that `advisor gpus` lists",
            "say which with --gpu NAME, or describe it in a TOML file",
        )
    return gpu


def table_target(path: str | Path, request: Request) -> Target:
    """A tuned fused-MoE or block-scaled GEMM table; entries that cannot be read are left out, with a warning.

    Raises:
        NotOursError: The table of another kernel.
        InputError, UsageError: None of it can be read, or it does not say enough.
    """
    table, problems = inspect_table(path)
    if table is None:
        raise problems[0].error
    if request.stack is not None and table.name.triton_version is None:  # only SGLang has a folder of each version of Triton
        table = replace(table, name=replace(table.name, stack="sglang" if request.stack == "sglang" else "vllm"))
    if request.sizes is not None:
        raise UsageError("--sizes is for fused_moe and kernels; a table says its own", None, None, "give --tokens")
    if table.name.kind == "gemm" and request.routing is not None:
        raise UsageError("--routing is for experts, and this is a GEMM table", Path(path).name, "a fused-MoE table", "leave it out")
    wanted = request.tokens or table.keys
    if len(wanted) > LAUNCH_LIMIT:
        raise InputError(
            f"{Path(path).name}: too many token counts for one report",
            f"{len(wanted):,}",
            f"at most {LAUNCH_LIMIT}",
            "name those that matter with --tokens",
        )
    target = fused_moe_table(table, request) if table.name.kind == "fused_moe" else gemm_table(table, request)
    return replace(target, warnings=(*_unreadable(table, problems), *target.warnings))


def _unreadable(table: Table, problems: Sequence[TableProblem]) -> tuple[str, ...]:
    """Sentences on entries of a table that no launcher can use, and on keys that it has more than once."""
    keys = [problem.key for problem in problems]
    repeated = [key for key in table.duplicate_keys if keys.count(key) == 1]  # and nothing else is wrong with the last
    lost = [problem for key, problem in {problem.key: problem for problem in problems}.items() if key not in repeated]
    reasons = []
    if repeated:
        reasons.append(phrase("note.repeated_keys", table=table.name.file_name(), keys=_named(repeated)))
    if lost:
        more = "" if len(lost) == 1 else " (`advisor audit` lists the others)"
        reasons.append(
            f"{lost[0].error}{more}; the report goes by the other entries, and so does the table it offers (passed over: "
            f"{_named([problem.key for problem in lost])})"
        )
    return tuple(reasons)


def _named(keys: Sequence[str | None]) -> str:
    return ", ".join(map(repr, keys[:SHOWN_KEYS])) + (f" and {len(keys) - SHOWN_KEYS} more" if len(keys) > SHOWN_KEYS else "")


def _left_out(tokens: int, chosen: Selection) -> str:
    """Why nothing is said of a token count."""
    return f"M = {tokens}: entry {chosen.key} runs there, and cannot be read, so it is left out"


def fused_moe_table(table: Table, request: Request) -> Target:
    """Both GEMMs of a layer (one for a `_down` table) for every token count."""
    name = table.name
    gpu = table_gpu(name, request)
    choice = models.ModelChoice(
        model=request.model,
        hidden_size=request.hidden_size,
        top_k=request.top_k,
        tensor_parallel=request.tensor_parallel,
        expert_parallel=request.expert_parallel,
    )
    resolution = models.resolve(name, choice, assume=request.assume)
    unknowns, warnings = [], []
    if resolution.assumption:
        unknowns.append(resolution.assumption + ".")
    if request.routing is None:
        unknowns.append(routing_assumed(request))
    unknowns += slots_of_a_rank(resolution.expert_parallel or request.expert_parallel)
    ops = ("w2",) if name.down else GEMM_OF_LAYER
    other = sibling(table)
    if other is not None:
        unknowns.append(_two_tables(table, other))
    experts = name.E or 1
    if request.routing is not None:
        check_routing(request.routing, experts, "--routing")
        if (note := crowded(request.routing, min(resolution.top_k, experts))) and (
            resolution.expert_parallel or request.expert_parallel or 1
        ) == 1:
            unknowns.append(note)
    if resolution.top_k > experts:
        unknowns.append(phrase("note.few_experts", top_k=resolution.top_k, experts=experts))
    if not resolution.gated:
        unknowns.append(phrase("note.no_gate"))
    base = Problem(
        family="fused_moe",
        op="w13",
        sizes={"M": 1, "E": experts, "topk": min(resolution.top_k, experts), "H": resolution.H, "N": name.N},
        dtype=request.dtype or name.operand_dtype,
        weight_dtype=name.weight_dtype,
        block_shape=name.block_shape,
        routing=request.routing,
        distribution=request.distribution,
        cache="cold" if request.cache == "cold" else "warm",
    )
    launches: list[PlannedLaunch] = []
    for tokens in request.tokens or tuple(dict(table.entries)):
        chosen = select(table, tokens)
        if chosen.configuration is None:
            warnings.append(_left_out(tokens, chosen))
            continue
        used = clamp(chosen.configuration, name)
        apart = entry_of_other(other, tokens)
        for op in ops:
            launch = PlannedLaunch(
                id=f"{op}-M{tokens}",
                kernel="fused_moe_kernel",
                problem=replace(base, op=op, sizes={**base.sizes, "M": tokens}),
                configuration=used,
                entry=chosen.configuration,
                entry_key=chosen.key,
                tokens=tokens,
                source=f"table entry {chosen.key}",
                decision_id=f"M{tokens}",
                frozen_parameters=(SHARED,) if apart is not None else (),
                row_sort_id=f"M{tokens}" if apart is not None and not name.down else None,
            )
            if apart is not None and other is not None and op == "w2":
                key, entry = apart
                launch = (
                    replace(launch, configuration=down_configuration(clamp(entry, other.name), used))
                    if name.down
                    else replace(
                        launch,
                        configuration=down_configuration(used, clamp(entry, other.name)),
                        entry=entry,
                        entry_key=key,
                        source=f"_down table entry {key}",
                        decision_id=f"w2-M{tokens}",
                        table=other,
                    )
                )
            launches.append(launch)
    _some(launches, table, warnings)
    return Target(
        title=name.file_name(),
        gpu=gpu,
        launches=tuple(launches),
        space=problem_space(base, gpu.vendor, name.stack),
        model=resolution.model,
        table=table,
        stack=name.stack,
        stack_version=request.stack_version,
        assumption=resolution.assumption,
        unknowns=tuple(unknowns),
        warnings=tuple(warnings),
    )


def _two_tables(table: Table, other: Table) -> str:
    """A sentence: w13 and w2 of a layer have a table each."""
    if table.name.down:
        return phrase("note.down_table", block=SHARED, table=other.name.file_name())
    return phrase("note.two_tables", block=SHARED, table=other.name.file_name())


def gemm_table(table: Table, request: Request) -> Target:
    """A block-scaled GEMM table."""
    name = table.name
    gpu = table_gpu(name, request)
    warnings, launches = [], []
    for tokens in request.tokens or tuple(dict(table.entries)):
        chosen = select(table, tokens)
        if chosen.configuration is None:
            warnings.append(_left_out(tokens, chosen))
            continue
        problem = Problem(
            family="gemm",
            op="gemm",
            sizes={"M": tokens, "N": name.N, "K": name.K or 1},
            dtype=request.dtype or name.operand_dtype,
            weight_dtype=name.weight_dtype,
            block_shape=name.block_shape,
            cache="cold" if request.cache == "cold" else "warm",
        )
        launches.append(
            PlannedLaunch(
                id=f"gemm-M{tokens}",
                kernel="w8a8_block_scaled_gemm",
                problem=problem,
                tokens=tokens,
                configuration=clamp(chosen.configuration, name),
                entry=chosen.configuration,
                entry_key=chosen.key,
                source=f"table entry {chosen.key}",
                decision_id=f"M{tokens}",
            )
        )
    _some(launches, table, warnings)
    return Target(
        title=name.file_name(),
        gpu=gpu,
        launches=tuple(launches),
        space=problem_space(launches[0].problem, gpu.vendor, name.stack),
        table=table,
        stack=name.stack,
        stack_version=request.stack_version,
        warnings=tuple(warnings),
    )


def _some(launches: list[PlannedLaunch], table: Table, warnings: list[str]) -> None:
    """Refuse token counts of which none has an entry of this kernel."""
    if not launches:
        raise InputError(
            f"{table.name.file_name()}: no entry covers these token counts",
            "; ".join(warnings),
            "a token count whose nearest entry can be read",
            "name others with --tokens",
        )
