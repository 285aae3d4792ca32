"""What a TARGET is: which launches it stands for, on which GPU, and which of them share a configuration.

Here: tuned tables and bundled kernels with a closed-form family. Kernels read from source and launch records come from
`compiled`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from advisor.configs import defaults, models
from advisor.configs.described import call_function
from advisor.configs.down_tables import SHARED, entry_of_other, sibling
from advisor.configs.launchability import refused_dtype
from advisor.configs.literals import NotLiteralError
from advisor.configs.names import TableName, is_table_name
from advisor.configs.routing import check_routing, crowded
from advisor.configs.source import SourceFile, read_source
from advisor.configs.tables import (
    Selection,
    Table,
    TableProblem,
    clamp,
    down_configuration,
    inspect_table,
    is_own_result,
    select,
)
from advisor.errors import InputError, UsageError
from advisor.folders import files_below, not_permitted
from advisor.hardware import GpuSpec, load_gpu, match_device_name
from advisor.measurement.kernel_file import flat_problem
from advisor.pipelines import ConfigurationBatch
from advisor.pipelines.batch import column
from advisor.pipelines.space import combinations, problem_space
from advisor.resources import folder
from advisor.schema import Configuration, Problem

LAUNCH_LIMIT = 256
"""Token counts of one report; the shipped tables have at most 37 entries."""

SHOWN_KEYS = 8
"""Keys that cannot be read, named in a warning; `advisor audit` lists them all."""

STANDARD_TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
"""The token counts vLLM's and SGLang's tuners use: what a table has entries for."""

GEMM_OF_LAYER = ("w13", "w2")


CONFIGURATION_UNKNOWN = "Which configuration is launched is not known: the report shows what the best one would take."


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the user asked besides the target."""

    gpu: str | None = None
    model: str | None = None
    hidden_size: int | None = None
    top_k: int | None = None
    tensor_parallel: int | None = None
    expert_parallel: int | None = None
    tokens: tuple[int, ...] | None = None
    dtype: str | None = None
    routing: tuple[int, ...] | None = None
    cache: str = "warm"
    sizes: Mapping[str, int] | None = None  # of a kernel that is no table's: M, N, K, ...; of fused_moe: E, topk, H, N
    assume: bool = False  # batch use: take the commonest model where a table fits several, and say so


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedLaunch:
    """One launch to report on.

    `share` names the decision the configuration belongs to: launches with the same `share` run with one configuration (w13 and
    w2 of one table entry), so a recommendation must suit them together. `table` is the one its entry stands in, where that is not the
    target's, and `fixed` names the parameters that another launch's entry decides or needs too: they change for all launches of one
    `sort` together, and not at all where that is None.
    """

    id: str
    kernel: str
    problem: Problem
    configuration: Configuration | None
    source: str
    share: str
    tokens: int | None = None
    entry: Configuration | None = None  # as written, before clamping
    entry_key: int | None = None
    table: Table | None = None
    fixed: tuple[str, ...] = ()
    sort: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target, resolved."""

    title: str
    gpu: GpuSpec
    launches: tuple[PlannedLaunch, ...]
    space: ConfigurationBatch  # what the kernel may be launched with
    model: str | None = None
    table: Table | None = None
    stack: str | None = None
    assumption: str | None = None  # what had to be assumed of the model, as a sentence
    unknowns: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for launch in self.launches:
            dtype, gpu = launch.problem.dtype, self.gpu
            if (refused := refused_dtype(dtype, gpu.name, gpu.compute_capability)) is not None:
                raise UsageError(f"{self.title}: {refused}", dtype, "operands the GPU takes, such as bf16",
                                 "give --dtype bf16, or another --gpu; serving stacks unpack fp8 weights there (Marlin)")  # fmt: skip


def table_gpu(name: TableName, request: Request) -> GpuSpec:
    """The GPU of a table: the one asked for, else the one its name says.

    Raises:
        InputError: The name says none that `ceilings/` describes.
    """
    if request.gpu is not None:
        return load_gpu(request.gpu)
    gpu = match_device_name(name.device_name)
    if gpu is None:
        raise InputError(f"{name.file_name()}: the GPU in its name is not described in ceilings/", name.device_name,
                         "a name that `advisor gpus` lists", "say which with --gpu NAME, or describe it in a TOML file")  # fmt: skip
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
    if request.sizes is not None:
        raise UsageError("--sizes is for fused_moe and kernels; a table says its own", None, None, "give --tokens")
    if table.name.kind == "gemm" and request.routing is not None:
        raise UsageError("--routing is for experts, and this is a GEMM table", Path(path).name, "a fused-MoE table", "leave it out")
    wanted = request.tokens or table.keys
    if len(wanted) > LAUNCH_LIMIT:
        raise InputError(f"{Path(path).name}: too many token counts for one report", f"{len(wanted):,}", f"at most {LAUNCH_LIMIT}",
                         "name those that matter with --tokens")  # fmt: skip
    target = fused_moe_table(table, request) if table.name.kind == "fused_moe" else gemm_table(table, request)
    return replace(target, warnings=(*_unreadable(problems), *target.warnings))


def _unreadable(problems: Sequence[TableProblem]) -> tuple[str, ...]:
    """What a table says that no launcher can use, in a sentence."""
    if not problems:
        return ()
    keys = [repr(problem.key) for problem in problems]
    named = ", ".join(keys[:SHOWN_KEYS]) + (f" and {len(keys) - SHOWN_KEYS} more" if len(keys) > SHOWN_KEYS else "")
    more = "" if len(problems) == 1 else " (`advisor audit` lists the others)"
    return (f"{problems[0].error}{more}; the report goes by the other entries, and so does the table it offers (passed over: {named})",)


def _left_out(tokens: int, chosen: Selection) -> str:
    """Why nothing is said of a token count."""
    why = "is null; another kernel runs there" if chosen.readable else "runs there, and cannot be read"
    return f"M = {tokens}: entry {chosen.key} {why}, so it is left out"


def fused_moe_table(table: Table, request: Request) -> Target:
    """Both GEMMs of a layer (one for a `_down` table) for every token count."""
    name = table.name
    gpu = table_gpu(name, request)
    settle = models.assume if request.assume else models.resolve
    found = settle(
        name, model=request.model, hidden_size=request.hidden_size, top_k=request.top_k,
        tensor_parallel=request.tensor_parallel, expert_parallel=request.expert_parallel,
    )  # fmt: skip
    unknowns, warnings = [], []
    if found.assumption:
        unknowns.append(found.assumption + ".")
    if request.routing is None:
        unknowns.append("Routing is taken as uniform; a skewed routing pads more (give --routing).")
    unknowns += _slots_of_a_rank(found.expert_parallel or request.expert_parallel)
    ops = ("w2",) if name.down else GEMM_OF_LAYER
    other = sibling(table)
    if other is not None:
        unknowns.append(_two_tables(table, other))
    experts = name.E or 1
    if request.routing is not None:
        check_routing(request.routing, experts, "--routing")
        if (said := crowded(request.routing, min(found.top_k, experts))) and (found.expert_parallel or request.expert_parallel or 1) == 1:
            unknowns.append(said)
    if found.top_k > experts:
        unknowns.append(f"A token takes {found.top_k} experts and this rank holds {experts}: every token is taken to need all of them.")
    if not found.gated:
        unknowns.append("The model's experts have no gate: w13 is half as wide as this report counts it.")
    base = Problem(
        family="fused_moe", op="w13",
        sizes={"M": 1, "E": experts, "topk": min(found.top_k, experts), "H": found.H, "N": name.N},
        dtype=request.dtype or name.operand_dtype, weight_dtype=name.weight_dtype, block_shape=name.block_shape,
        routing=request.routing, cache="cold" if request.cache == "cold" else "warm",
    )  # fmt: skip
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
                id=f"{op}-M{tokens}", kernel="fused_moe_kernel",
                problem=replace(base, op=op, sizes={**base.sizes, "M": tokens}),
                configuration=used, entry=chosen.configuration, entry_key=chosen.key, tokens=tokens,
                source=f"table entry {chosen.key}", share=f"M{tokens}", fixed=(SHARED,) if apart is not None else (),
                sort=f"M{tokens}" if apart is not None and not name.down else None,
            )  # fmt: skip
            if apart is not None and other is not None and op == "w2":
                key, entry = apart
                launch = (
                    replace(launch, configuration=down_configuration(clamp(entry, other.name), used))
                    if name.down
                    else replace(launch, configuration=down_configuration(used, clamp(entry, other.name)), entry=entry, entry_key=key,
                                 source=f"_down table entry {key}", share=f"w2-M{tokens}", table=other)
                )  # fmt: skip
            launches.append(launch)
    _some(launches, table, warnings)
    return Target(
        title=name.file_name(), gpu=gpu, launches=tuple(launches), space=problem_space(base, gpu.vendor, name.stack), model=found.model,
        table=table, stack=name.stack, assumption=found.assumption, unknowns=tuple(unknowns), warnings=tuple(warnings),
    )  # fmt: skip


def _two_tables(table: Table, other: Table) -> str:
    """That w13 and w2 of a layer have a table each."""
    if table.name.down:
        return f"These entries run with the {SHARED} of w13's, in {other.name.file_name()}: what is recommended keeps it."
    return (f"w2 runs with the entries of {other.name.file_name()} beside this table, and with the {SHARED} of w13's: where that changes, "
            "change both.")  # fmt: skip


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
            family="gemm", op="gemm", sizes={"M": tokens, "N": name.N, "K": name.K or 1},
            dtype=request.dtype or name.operand_dtype, weight_dtype=name.weight_dtype, block_shape=name.block_shape,
            cache="cold" if request.cache == "cold" else "warm",
        )  # fmt: skip
        launches.append(
            PlannedLaunch(
                id=f"gemm-M{tokens}", kernel="w8a8_block_scaled_gemm", problem=problem, tokens=tokens,
                configuration=clamp(chosen.configuration, name), entry=chosen.configuration, entry_key=chosen.key,
                source=f"table entry {chosen.key}", share=f"M{tokens}",
            )
        )  # fmt: skip
    _some(launches, table, warnings)
    return Target(
        title=name.file_name(), gpu=gpu, launches=tuple(launches), space=problem_space(launches[0].problem, gpu.vendor, name.stack),
        table=table, stack=name.stack, warnings=tuple(warnings),
    )  # fmt: skip


def _some(launches: list[PlannedLaunch], table: Table, warnings: list[str]) -> None:
    """Refuse token counts of which none has an entry of this kernel."""
    if not launches:
        raise InputError(f"{table.name.file_name()}: no entry covers what was asked for", "; ".join(warnings),
                         "a token count whose nearest entry is not null and can be read", "name others with --tokens")  # fmt: skip


def fused_moe_kernel(request: Request) -> Target:
    """The bundled fused-MoE kernel, launched as vLLM launches it where no table exists.

    Raises:
        UsageError: Neither a GPU nor a model (or its sizes) is given.
    """
    if request.gpu is None:
        raise UsageError("a bundled kernel needs a GPU", None, None, "add --gpu NAME (`advisor gpus` lists them)")
    gpu = load_gpu(request.gpu)
    sizes = _layer_sizes(request)
    if request.routing is not None:
        check_routing(request.routing, sizes["E"], "--routing")
    launches: list[PlannedLaunch] = []
    for tokens in request.tokens or STANDARD_TOKENS:
        used = defaults.default_configuration("vllm", tokens, sizes["E"], dtype=request.dtype, amd=gpu.vendor == "amd")
        for op in GEMM_OF_LAYER:
            problem = Problem(
                family="fused_moe", op=op, sizes={**sizes, "M": tokens}, dtype=request.dtype or "bf16",
                routing=request.routing, cache="cold" if request.cache == "cold" else "warm",
            )  # fmt: skip
            launches.append(
                PlannedLaunch(
                    id=f"{op}-M{tokens}", kernel="fused_moe_kernel", problem=problem, configuration=used, tokens=tokens,
                    source="vLLM's default, as without a table", share=f"M{tokens}",
                )
            )  # fmt: skip
    routing: tuple[str, ...] = ("Routing is taken as uniform; a skewed routing pads more (give --routing).",)
    if request.routing is not None:
        said = crowded(request.routing, sizes["topk"]) if (request.expert_parallel or 1) == 1 else None
        routing = (said,) if said else ()
    return Target(
        title="fused_moe", gpu=gpu, launches=tuple(launches), space=problem_space(launches[0].problem, gpu.vendor, "vllm"), stack="vllm",
        model=models.find_model(request.model).name if request.model else None,
        unknowns=routing + _slots_of_a_rank(request.expert_parallel),
    )  # fmt: skip


def _slots_of_a_rank(ranks: int | None) -> tuple[str, ...]:
    if ranks in (None, 1):
        return ()
    return (f"A token's top-k are all taken to lie on this rank, as where vLLM tunes for expert parallelism. With uniform routing over "
            f"{ranks} ranks about 1/{ranks} of them do: then t tokens are like M = t / {ranks} here.",)  # fmt: skip


def _layer_sizes(request: Request) -> dict[str, int]:
    """E, topk, H, N of one rank's experts: the model's, and what is given over them.

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
            raise UsageError(f"{model.name} does not split so", f"tensor-parallel {split}, expert-parallel {ranks}",
                             f"divisors of N = {model.N} and E = {model.E}")  # fmt: skip
        known = {"E": model.E // ranks, "topk": model.top_k, "H": model.H, "N": model.N // split}
    elif request.tensor_parallel is not None:
        raise UsageError("--tensor-parallel splits a model, and none is named", request.tensor_parallel, None,
                         "add --model NAME, or give the N of one rank with --sizes and leave it out")  # fmt: skip
    known |= given
    names = ("E", "topk", "H", "N")
    if unknown := [key for key in known if key not in names]:
        raise UsageError("fused_moe has no such size", ", ".join(unknown), "among " + ", ".join(names), "give token counts as --tokens")
    if missing := [name for name in names if name not in known]:
        raise UsageError("fused_moe needs a model or its sizes", f"no {', '.join(missing)}", None,
                         "add --model NAME, e.g. --model Qwen3-30B-A3B, or --sizes E=128,N=768,H=2048,topk=8")  # fmt: skip
    experts = models.find_model(request.model).E if request.model is not None else known["E"] * (request.expert_parallel or 1)
    if known["topk"] > experts:
        raise UsageError("a token cannot take more experts than there are", f"top-k {known['topk']}", f"at most {experts}",
                         "correct --top-k, or the sizes")  # fmt: skip
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
    if not any(tensor in (None, each.tensor_parallel) and expert in (None, each.expert_parallel) for each in splits):
        said = [f"--{kind}-parallel {size}" for kind, size in (("tensor", tensor), ("expert", expert)) if size is not None]
        raise UsageError(f"no rank of {model.name} has these sizes", ", ".join([f"E={E}", f"N={N}", *said]),
                         f"E = {model.E} / expert-parallel and N = {model.N} / tensor-parallel, both whole",
                         "leave out --model, or the sizes")  # fmt: skip


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
    said = ("model", "hidden_size", "top_k", "tensor_parallel", "expert_parallel")
    if unfit := [f"--{option.replace('_', '-')}" for option in said if getattr(request, option) is not None]:
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
    launches = tuple(
        PlannedLaunch(
            id="-".join([op, *(f"{key}{value}" for key, value in chosen.items() if len(problems) == 1 or key == "M")]),
            kernel=name, configuration=None, source="not given: the best of the kernel's space is shown",
            share="-".join(map(str, chosen.values())), tokens=chosen.get("M"),
            problem=Problem(family=entry["family"], op=op, sizes=chosen, dtype=request.dtype or str(entry.get("dtypes", ["bf16"])[0]),
                            routing=request.routing, cache="cold" if request.cache == "cold" else "warm"),
        )
        for chosen in problems
        for op in entry["ops"]
    )  # fmt: skip
    others = [other for other in described if other != name] if kernel is None else []
    assumed = [f"{key}={size}" for key, size in example.items() if key not in (request.sizes or {}) and not (key == "M" and request.tokens)]
    return Target(
        title=f"{file.name}::{name}", gpu=gpu, launches=launches, space=_space(source, entry, [each.problem for each in launches], gpu),
        unknowns=(
            CONFIGURATION_UNKNOWN,
            *([f"Sizes that are not given are those of the file's example: {', '.join(assumed)} (give --sizes)."] if assumed else []),
        ),
        warnings=(f"{file.name} also describes {', '.join(others)}: name one with {file.stem}::KERNEL",) if others else (),
    )  # fmt: skip


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
            flat = flat_problem(problems[problem])
            if gpu.vendor == "nvidia":
                flat["capability"] = int(gpu.compute_capability.replace(".", ""))
            configurations = [each for each in configurations if call_function(source, entry.get("valid"), dict(each), dict(flat))]
    except NotLiteralError:
        return space
    if not configurations:
        return space
    kept = {name: column([each[name] for each in configurations]) for name in columns}
    return ConfigurationBatch(num_warps=kept.pop("num_warps"), num_stages=kept.pop("num_stages"), parameters=kept)


def _numbers(space: dict[str, list[object]]) -> dict[str, tuple[int, ...]]:
    """The parameters of a space that are numbers; of the others (flags given as text, say) nothing is modelled."""
    return {key: tuple(int(v) for v in values if isinstance(v, (int, bool))) for key, values in space.items() if values}


def resolve_target(text: str, request: Request) -> Target:
    """The target a user named.

    Raises:
        UsageError, InputError: It is nothing the advisor knows, or cannot be read.
    """
    path = Path(text)
    if text == "fused_moe" and not _exists(path):
        return fused_moe_kernel(request)
    stem, _, kernel = text.partition("::")
    bundled = folder("triton_kernels") / f"{stem}.py"
    if stem.isidentifier() and _exists(bundled) and not _exists(path):
        return closed_form_kernel(bundled, kernel or None, request)
    if text.endswith(".json"):
        if not _exists(path):
            raise InputError(f"{text}: no such file", None, None, "check the path")
        return table_target(path, request)
    known = ", ".join(sorted(file.stem for file in folder("triton_kernels").glob("*.py")))
    there = _exists(path)
    raise UsageError(
        "not a target: this file is nothing the advisor reads" if there else "not a target: nothing has this name", text,
        "a tuned table (E=…,N=…,device_name=….json), a folder of them, FILE.py::KERNEL, a record of `advisor record`, a cache of Triton "
        f"or of @advisor.autotune, or a bundled kernel ({known})", "it may be damaged" if there else "check the path and the spelling",
    )  # fmt: skip


def _exists(path: Path) -> bool:
    """Whether there is something; what is no path at all (too long, a null byte) is not there.

    Raises:
        InputError: It lies in a folder that may not be read.
    """
    try:
        return path.exists()
    except PermissionError:
        raise not_permitted(path) from None
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """Whether a target is a folder of tables; one that is named like a table is a mistake, and read as the table it claims to be."""
    return _exists(path) and path.is_dir() and not is_table_name(path)


def tables_in(folder: Path) -> list[Path]:
    """Every .json below a folder, symbolic links and the advisor's own results left out, sorted."""
    return [path for path in files_below(folder, ".json") if path.is_file() and not path.is_symlink() and not is_own_result(path)]


__all__ = [
    "PlannedLaunch",
    "Request",
    "Target",
    "is_folder",
    "resolve_target",
    "tables_in",
]
