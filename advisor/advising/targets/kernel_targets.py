"""The launches of kernels with a closed-form family: the bundled fused MoE without a table, and those whose file describes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from advisor.advising.targets import (
    CONFIGURATION_UNKNOWN,
    GEMM_OF_LAYER,
    STACKS,
    PlannedLaunch,
    Request,
    Target,
    routing_assumed,
    slots_of_a_rank,
)
from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.pipelines import ConfigurationBatch
from advisor.pipelines.columns import column
from advisor.pipelines.space import combinations, problem_space
from advisor.python_source.described import call_function, kernel_problem, problem_dtype, valid_configurations
from advisor.python_source.literals import NotLiteralError
from advisor.python_source.source import SourceFile, read_source
from advisor.result.schema import Configuration, Problem
from advisor.system.errors import UsageError
from advisor.system.resources import phrase
from advisor.tables import entries, models
from advisor.tables.routing import check_routing, crowded
from advisor.tables.tuned_table import SHARED, default_options, usual_tokens


def fused_moe_kernel(request: Request) -> Target:
    """The bundled fused-MoE kernel, launched as vLLM (or the stack asked for) launches it where no table exists.

    SGLang takes a table for each GEMM of a layer, which share BLOCK_SIZE_M; vLLM one entry for both.

    Raises:
        UsageError: Neither a GPU nor a model (or its sizes) is given.
    """
    if request.gpu is None:
        raise UsageError("a bundled kernel needs a GPU", None, None, "add --gpu NAME (`advisor gpus` lists them)")
    gpu, request = load_gpu(request.gpu), _stored_as_named(request)
    stack = request.stack or "vllm"
    sizes = _layer_sizes(request, gpu, stack)
    if request.routing is not None:
        check_routing(request.routing, sizes["E"], "--routing")
    apart = stack == "sglang"
    launches: list[PlannedLaunch] = []
    operands = request.dtype or "bf16"
    layer = Problem(family="fused_moe", op="w13", sizes=sizes, dtype=operands, block_shape=request.block_shape)
    options = default_options(layer, gpu, request.stack_version)
    counts = request.tokens or usual_tokens(stack, sizes["E"], options)
    since = entries.default_since(stack, counts, sizes["E"], **options) if request.stack_version is None else 0
    stated = f" since {entries.version_text(since)}" if since else ""
    source = phrase("note.untuned", stack=f"{STACKS[stack]} {request.stack_version or ''}".strip(), since=stated)
    for tokens in counts:
        for op in GEMM_OF_LAYER:
            problem = Problem(
                family="fused_moe",
                op=op,
                sizes={**sizes, "M": tokens},
                dtype=operands,
                block_shape=request.block_shape,
                routing=request.routing,
                distribution=request.distribution,
                cache="cold" if request.cache == "cold" else "warm",
            )
            used = entries.default_configuration(stack, tokens, sizes["E"], **options)
            launches.append(
                PlannedLaunch(
                    id=f"{op}-M{tokens}",
                    kernel="fused_moe_kernel",
                    problem=problem,
                    configuration=used,
                    tokens=tokens,
                    source=f"_down table: {source}" if apart and op == "w2" else source,
                    decision_id=f"w2-M{tokens}" if apart and op == "w2" else f"M{tokens}",
                    frozen_parameters=(SHARED,) if apart else (),
                    row_sort_id=f"M{tokens}" if apart else None,
                )
            )
    routing: tuple[str, ...] = (routing_assumed(request),)
    if request.routing is not None:
        note = crowded(request.routing, sizes["topk"]) if (request.expert_parallel or 1) == 1 else None
        routing = (note,) if note else ()
    fused = (phrase("note.fused_shared", E=sizes["E"], topk=sizes["topk"]),) if _fused(request, gpu, stack) else ()
    one_scale = (phrase("note.one_scale"),) if operands == "fp8" and request.block_shape is None else ()
    selects = operands == "fp8" and (stack, gpu.vendor) == ("vllm", "nvidia")  # the log of vllm-project/vllm#34249 names seven
    return Target(
        title="fused_moe",
        gpu=gpu,
        launches=tuple(launches),
        space=problem_space(launches[0].problem, gpu.vendor, stack),
        stack=stack,
        stack_version=request.stack_version,
        default_since=since,
        model=models.find_model(request.model).name if request.model else None,
        unknowns=routing + slots_of_a_rank(request.expert_parallel),
        notes=fused + one_scale + ((phrase("note.moe_backend"),) if selects else ()),
        refused=_uneven_blocks(sizes, request),
    )


def _uneven_blocks(sizes: Mapping[str, int], request: Request) -> str:
    """What the stacks say of block-scaled weights whose columns of one rank end within a block: most of their versions raise a ValueError
    as they load them (vllm-project/vllm#25292, #54178, sgl-project/sglang#26107), newer ones pad."""
    split, columns = request.tensor_parallel or 1, sizes["N"]
    if request.block_shape is None or columns % (block := request.block_shape[0]) == 0:
        return ""
    fewer = max((ranks for ranks in (1, 2, 4, 8) if ranks < split and split * columns % (ranks * block) == 0), default=0)
    ways = [f"--tp {fewer}"] * bool(fewer) + [f"--expert-parallel {split}"] * (split > 1 and split * columns % block == 0)
    return phrase("verdict.refused", columns=columns, block=block, ways=" or ".join(ways) or "another --tp")


def _stored_as_named(request: Request) -> Request:
    """The request, with its model's weights stored as the model's name says where no type is given.

    Raises:
        UsageError: They are stored in a form of four bits.
    """
    form, block = models.stored_as(request.model) if request.model is not None and request.dtype is None else ("", None)
    if form and form != "fp8":
        raise UsageError(f"{request.model}: tables are of bf16 and of fp8", form, "bf16 or fp8", "say --dtype, or leave it out of the name")
    return replace(request, dtype="fp8", block_shape=request.block_shape or block) if form else request


def _fused(request: Request, gpu: GpuSpec, stack: str) -> int:
    """Shared experts of the model that the stack runs as routed ones, where no other sizes are given."""
    able = gpu.compute_capability >= "gfx94" if gpu.vendor == "amd" else float(gpu.compute_capability) >= 8.0
    if request.model is None or not able or {"E", "topk"} & set(request.sizes or ()) or request.top_k is not None:
        return 0
    return models.fused_experts(request.model, stack, request.expert_parallel or 1)


def _layer_sizes(request: Request, gpu: GpuSpec, stack: str) -> dict[str, int]:
    """E, topk, H, N of one rank's experts: the model's, with what the stack adds to them, and what is given over them.

    Raises:
        UsageError: A size is missing or contradicts the model, or the model does not split so.
    """
    known: dict[str, int] = {}
    given = {key: value for key, value in (("H", request.hidden_size), ("topk", request.top_k)) if value is not None}
    given |= request.sizes or {}
    if request.model is not None:
        model = models.find_model(request.model)
        _check_shape(model, given, request)
        split, ranks = request.tensor_parallel or 1, request.expert_parallel or 1
        if model.N % split or model.E % ranks:
            raise UsageError(
                f"{model.name} does not split so",
                f"tensor-parallel {split}, expert-parallel {ranks}",
                f"divisors of N = {model.N} and E = {model.E}",
            )
        fused = _fused(request, gpu, stack)
        known = {"E": model.E // ranks + fused, "topk": model.top_k + fused, "H": model.H, "N": model.N // split}
    elif request.tensor_parallel is not None:
        raise UsageError(
            "--tensor-parallel splits a model, and none is named",
            request.tensor_parallel,
            None,
            "add --model NAME, or give the N of one rank with --sizes and leave it out",
        )
    known |= given
    names = ("E", "topk", "H", "N")
    if unknown := [key for key in known if key not in names]:
        raise UsageError("fused_moe has no such size", ", ".join(unknown), "among " + ", ".join(names), "give token counts as --tokens")
    if missing := [name for name in names if name not in known]:
        raise UsageError(
            "fused_moe needs a model or its sizes",
            f"no {', '.join(missing)}",
            None,
            "add --model NAME, e.g. --model Qwen3-30B-A3B, or --sizes E=128,N=768,H=2048,topk=8",
        )
    experts = models.find_model(request.model).E if request.model is not None else known["E"] * (request.expert_parallel or 1)
    if known["topk"] > experts:
        raise UsageError(
            "a token cannot take more experts than there are",
            f"top-k {known['topk']}",
            f"at most {experts}",
            "correct --top-k, or the sizes",
        )
    topk = min(known["topk"], known["E"])  # a rank that holds fewer experts than a token takes: all of them
    return {"M": 1, "E": known["E"], "topk": topk, "H": known["H"], "N": known["N"]}


def _check_shape(model: models.Model, given: Mapping[str, int], request: Request) -> None:
    """Refuse sizes that no rank of a model has: the report would bear its name. Top-k may differ, as for a table."""
    if given.get("H", model.H) != model.H:
        raise UsageError(f"the hidden size contradicts {model.name}", f"H={given['H']}", f"H={model.H}", "leave out one of the two")
    if "E" not in given and "N" not in given:
        return
    tensor, expert = request.tensor_parallel, request.expert_parallel
    E, N = given.get("E", model.E // (expert or 1)), given.get("N", model.N // (tensor or 1))
    splits = models.candidates_of(model, E, N) if E > 0 and N > 0 else ()
    if not any(tensor in (None, split.tensor_parallel) and expert in (None, split.expert_parallel) for split in splits):
        options = [f"--{kind}-parallel {size}" for kind, size in (("tensor", tensor), ("expert", expert)) if size is not None]
        raise UsageError(
            f"no rank of {model.name} has these sizes",
            ", ".join([f"E={E}", f"N={N}", *options]),
            f"E = {model.E} / expert-parallel and N = {model.N} / tensor-parallel, both whole",
            "leave out --model, or the sizes",
        )


def closed_form_kernel(file: Path, kernel: str | None, request: Request) -> Target:
    """A kernel whose file says, in a KERNELS literal, what family and problem its launches are (`triton_kernels/README.md`).

    The file is parsed, never imported. Sizes that `request.sizes` leaves out come from the kernel's example; the configuration is
    the user's to choose, so the report says what the best of the kernel's space would take.

    Raises:
        UsageError: No GPU is given, the file describes no such kernel, or a size is unknown.
    """
    source = read_source(file)
    described = source.kernels_literal
    names = [name for name in described if kernel in (None, name)]
    if not names:
        raise UsageError(f"{file.name} describes no such kernel", kernel, "one of " + (", ".join(described) or "none at all"))
    unused = ("model", "hidden_size", "top_k", "tensor_parallel", "expert_parallel")
    if unfit := [f"--{option.replace('_', '-')}" for option in unused if getattr(request, option) is not None]:
        raise UsageError(f"{', '.join(unfit)} is for fused_moe and its tables", f"{file.stem}::{names[0]}", None, "give --sizes")
    if request.gpu is None:
        raise UsageError("a kernel needs a GPU", None, None, "add --gpu NAME (`advisor gpus` lists them)")
    gpu = load_gpu(request.gpu)
    name = names[0]
    entry = described[name]
    if not gpu.reaches(entry.get("min_capability")):
        raise UsageError(f"{name} does not run on every GPU", gpu.name, f"sm_{entry['min_capability']} or later, as {file.name} says")
    example = {key: int(value) for key, value in (entry.get("example") or {}).items()}
    unknown = [key for key in request.sizes or {} if key not in example]
    if unknown:
        raise UsageError(f"{name} has no such size", ", ".join(unknown), "among " + ", ".join(example))
    sizes = {**example, **(request.sizes or {})}
    if request.tokens and "M" not in sizes:
        raise UsageError(f"{name} has no token count", "--tokens", "--sizes of " + ", ".join(example))
    if request.routing is not None:
        if entry["family"] != "fused_moe":
            raise UsageError("--routing is for experts", name, "a fused-MoE kernel", "leave it out")
        check_routing(request.routing, sizes["E"], "--routing")
    if "H_kv" in sizes and sizes["H"] % sizes["H_kv"]:
        raise UsageError("H_kv does not divide H", sizes["H_kv"], f"a divisor of {sizes['H']}", "correct --sizes")
    problems = [{**sizes, "M": tokens} for tokens in request.tokens] if request.tokens else [sizes]
    dtype = problem_dtype(entry, f"{file.stem}::{name}", request.dtype)
    launches = tuple(
        PlannedLaunch(
            id="-".join([op, *(f"{key}{value}" for key, value in chosen.items() if len(problems) == 1 or key == "M")]),
            kernel=name,
            configuration=None,
            source="not given: the best of the kernel's space is shown",
            decision_id="-".join(map(str, chosen.values())),
            tokens=chosen.get("M"),
            problem=Problem(
                family=entry["family"],
                op=op,
                sizes=chosen,
                dtype=dtype,
                routing=request.routing,
                distribution=request.distribution if entry["family"] == "fused_moe" else None,
                cache="cold" if request.cache == "cold" else "warm",
            ),
        )
        for chosen in problems
        for op in entry["ops"]
    )
    launches = tuple(replace(launch, default_configuration=_untuned(source, entry, launch.problem, gpu)) for launch in launches)
    others = [other for other in described if other != name] if kernel is None else []
    assumed = [f"{key}={size}" for key, size in example.items() if key not in (request.sizes or {}) and not (key == "M" and request.tokens)]
    return Target(
        title=f"{file.name}::{name}",
        gpu=gpu,
        launches=launches,
        space=_space(source, entry, [launch.problem for launch in launches], gpu),
        unknowns=(
            CONFIGURATION_UNKNOWN,
            *([phrase("note.example_sizes", sizes=", ".join(assumed))] if assumed else []),
        ),
        warnings=(f"{file.name} also describes {', '.join(others)}: name one with {file.stem}::KERNEL",) if others else (),
    )


def _untuned(source: SourceFile, entry: Mapping[str, Any], problem: Problem, gpu: GpuSpec) -> Configuration | None:
    """The configuration that the kernel's file gives without tuning; None where it names none that can be followed."""
    try:
        default = call_function(source, entry["default"], kernel_problem(problem, gpu.compute_capability)) if "default" in entry else None
    except NotLiteralError:
        return None
    if not isinstance(default, dict) or not all(type(value) is int for value in default.values()):
        return None
    options = {name: default.pop(name) for name in ("num_warps", "num_stages") if name in default}
    return Configuration(parameters=default, **options)


def _space(source: SourceFile, entry: Mapping[str, Any], problems: Sequence[Problem], gpu: GpuSpec) -> ConfigurationBatch:
    """The kernel's space, less what its own `valid` says makes no sense for the first or the last of the problems.

    `valid` is followed in its syntax tree, never run; where it does more than can be followed, the space is taken whole.
    """
    space = combinations(_numbers(entry["space"]))
    columns = {**space.parameters, "num_warps": space.num_warps, "num_stages": space.num_stages}
    rows = zip(*(np.broadcast_to(column, (len(space),)).astype(int).tolist() for column in columns.values()), strict=True)
    configurations = [dict(zip(columns, row, strict=True)) for row in rows]
    try:
        for problem in dict.fromkeys([0, len(problems) - 1]):
            flat = kernel_problem(problems[problem], gpu.compute_capability)
            configurations = valid_configurations(source, entry.get("valid"), configurations, flat)
    except NotLiteralError:
        return space
    if not configurations:
        return space
    kept = {name: column([configuration[name] for configuration in configurations]) for name in columns}
    return ConfigurationBatch(num_warps=kept.pop("num_warps"), num_stages=kept.pop("num_stages"), parameters=kept)


def _numbers(space: dict[str, list[object]]) -> dict[str, tuple[int, ...]]:
    """The parameters of a space that are numbers; of the others (flags given as text, say) nothing is modelled."""
    return {key: tuple(int(v) for v in values if isinstance(v, (int, bool))) for key, values in space.items() if values}
