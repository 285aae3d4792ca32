"""Offline checks of tuned tables: what can be found wrong without running anything.

`advisor audit` adds the predicted regret of each entry to what is found here.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from advisor.gpus.hardware import GpuSpec, match_device_name
from advisor.result.schema import Configuration, Severity
from advisor.system import grouped
from advisor.system.errors import InputError, NothingMatchedError, NotOursError
from advisor.system.reading import files_below, not_permitted
from advisor.tables.launchability import (
    ELEMENT_BYTES,
    MAX_THREADS_PER_CTA,
    ignores_split_k,
    lacks_split_k,
    least_block_k,
    refused_ctas,
    refused_dtype,
    refused_keys,
    refused_parameters,
    shared_memory_bytes,
    swaps_operands,
)
from advisor.tables.names import TableName, device_twins, parse_table_name, unreachable_reasons, vendor_of
from advisor.tables.tables import Table, clamp, inspect_table, is_of_another_kernel, is_own_result

CHECKS: dict[str, str] = {
    "unreadable": "the file cannot be read as a table",
    "bad-entry": "a key or value that no launcher can use",
    "odd-key": "an entry that no launcher can use, under a key that is a number and no token count",
    "not-ours": "the table of another kernel, skipped",
    "unreachable-name": "a file name that no launch asks for",
    "device-alias": "a device name that only some drivers report",
    "duplicate-key": "a key that occurs twice",
    "unknown-gpu": "a GPU without a description",
    "unknown-dtype": "an unknown dtype: there is no prediction",
    "refused-dtype": "operands of a type that no kernel takes on the GPU",
    "does-not-fit": "an entry that needs more shared memory than the GPU has",
    "num-warps": "an entry whose warps no GPU can launch",
    "num-ctas": "a cluster of CTAs that no launch on the GPU has",
    "shallow-dot": "a BLOCK_SIZE_K below what the matrix product compiles with",
    "clamped-block-k": "a BLOCK_SIZE_K that the launcher cuts down",
    "raised-block-k": "a BLOCK_SIZE_K that the loader raises",
    "wrong-scales": "a BLOCK_SIZE_K that spans several quantization blocks",
    "unknown-option": "an option that the launch does not know",
    "split-k": "a SPLIT_K that the launcher ignores, cannot pass on or lacks",
    "hole": "neighbouring keys more than a factor of four apart",
    "starts-late": "a smallest key above 1",
    "stops-early": "a largest key below 4,096",
    "copied": "the same entries under another name",
}
"""Every check, in the order in which the issues of a table are listed, and what it finds."""

REFUSED = ("num-ctas", "unknown-option", "split-k")
"""Checks whose errors say that the launch refuses an entry: nothing of what one CTA holds tells it."""

HOLE_FACTOR = 4
SMALLEST_LAST_KEY = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedFor:
    """The model that a prediction about a fused-MoE table is for; the table's name says neither hidden size nor top-k.

    `model` is None where no known model fits; `assumption` is a sentence where the table does not settle it.
    """

    model: str | None
    hidden_size: int
    top_k: int
    assumption: str | None

    def __str__(self) -> str:
        return self.assumption or f"for {self.model} (H={self.hidden_size}, top-k={self.top_k})"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditIssue:
    """Something found in one table. `key` is the entry's token count as written, None: the table as a whole.

    `predicted_for` goes with predictions about fused-MoE tables.
    """

    path: str
    key: str | None
    check: str
    severity: Severity
    message: str
    predicted_for: PredictedFor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """The outcome of an audit; `tables` are those that could be read (with their sound entries)."""

    files: int
    tables: tuple[Table, ...]
    issues: tuple[AuditIssue, ...]
    counts: dict[str, int] = field(default_factory=dict)


def find_tables(paths: Iterable[str | os.PathLike[str]]) -> tuple[Path, ...]:
    """The JSON files among and below `paths`, sorted, less the advisor's own results; a file named itself counts whatever it is.

    Raises:
        InputError: A path does not exist, or is a folder of far too many files.
        NothingMatchedError: There is no JSON file.
    """
    tables: dict[Path, None] = {}
    for given in paths:
        path = Path(given)
        try:
            is_folder, is_there = path.is_dir(), path.exists()
        except PermissionError:
            raise not_permitted(path) from None
        except (OSError, ValueError):  # too long for a path, or with a null byte
            is_folder = is_there = False
        if is_folder:
            tables.update(dict.fromkeys(item for item in files_below(path, ".json") if not is_own_result(item)))
        elif is_there:
            tables[path] = None
        else:
            raise InputError(f"{os.fspath(given)}: no such file or folder", None, "a table or a folder", "check the path")
    if not tables:
        raise NothingMatchedError("no table found", ", ".join(map(str, paths)), "JSON files", "name a folder that holds tables")
    return tuple(tables)


def audit(paths: Iterable[str | os.PathLike[str]]) -> Audit:
    """Check every table among and below `paths`.

    Args:
        paths: Tables, or folders of them.

    Raises:
        InputError: A path does not exist.
        NothingMatchedError: There is nothing to check.
    """
    files = find_tables(list(paths))
    names = {(str(path.parent), path.name) for path in files}
    tables: list[Table] = []
    issues: list[AuditIssue] = []
    for path in files:
        table, issues_of_table = audit_table(path)
        issues.extend(issues_of_table)
        if table is not None:
            tables.append(table)
            issues.extend(_device_alias(table, names))
    issues.extend(_copies(tables))
    counts: dict[str, int] = dict.fromkeys(CHECKS, 0)
    for issue in issues:
        counts[issue.check] += 1
    counted = {check: count for check, count in counts.items() if count}
    return Audit(files=len(files), tables=tuple(tables), issues=tuple(issues), counts=counted)


def audit_table(path: str | os.PathLike[str]) -> tuple[Table | None, tuple[AuditIssue, ...]]:
    """Check one table by itself; the table is None where nothing of it could be read."""
    where = os.fspath(path)
    try:
        name = parse_table_name(path)
        table, problems = inspect_table(path, name)
    except NotOursError as error:
        return None, (_issue(where, None, "not-ours", "info", _said(error, where)),)
    except InputError as error:
        if is_of_another_kernel(Path(path)):
            return None, (_issue(where, None, "not-ours", "info", "a table of another kernel: neither its name nor any entry is of ours"),)
        return None, (_issue(where, None, "unreadable", "error", _said(error, where)),)
    issues = [_issue(where, problem.key, problem.check, "error", _said(problem.error, where)) for problem in problems]
    issues += [_issue(where, None, "unreachable-name", "warning", reason) for reason in unreachable_reasons(name)]
    if table is not None:
        gpu = match_device_name(name.device_name)
        issues.extend(_name(where, name, gpu))
        issues.extend(_keys(where, table))
        for key, configuration in (*table.entries, *table.others):
            issues.extend(_entry(where, str(key), configuration, name, gpu))
    rank = {check: order for order, check in enumerate(CHECKS)}
    return table, tuple(sorted(issues, key=lambda issue: rank[issue.check]))


def entry_errors(configuration: Configuration, name: TableName, gpu: GpuSpec | None) -> tuple[AuditIssue, ...]:
    """Why an entry of a table cannot be launched on a GPU, or gives wrong results; none where nothing is wrong."""
    return tuple(issue for issue in _entry(name.file_name(), "", configuration, name, gpu) if issue.severity == "error")


def refusal(configuration: Configuration, name: TableName, gpu: GpuSpec | None) -> str:
    """Why the launch of an entry raises an error whatever fits the GPU: options or parameters that it does not know. Empty: it does not."""
    return "; ".join(issue.message for issue in entry_errors(configuration, name, gpu) if issue.check in REFUSED)


def _issue(path: str, key: str | None, check: str, severity: Severity, message: str) -> AuditIssue:
    return AuditIssue(path=path, key=key, check=check, severity=severity, message=message)


def _said(error: InputError, path: str) -> str:
    """The text of an error without the file name that it begins with, which the issue has already."""
    return str(error).removeprefix(f"{Path(path).name}: ")


def _operands(name: TableName) -> str | None:
    """The operands' type; None where the name says one that is not known."""
    try:
        return name.operand_dtype
    except InputError:
        return None


def _name(path: str, name: TableName, gpu: GpuSpec | None) -> Iterator[AuditIssue]:
    """Issues with a table's name: parts that are not known, that no driver reports, or that its GPU cannot do."""
    operands = _operands(name)
    if gpu is None:
        message = f"{name.device_name} is not described in ceilings/: nothing is predicted, and shared memory is not checked"
        yield _issue(path, None, "unknown-gpu", "info", message)
    if operands is None:
        message = f"dtype={name.dtype} is no type the advisor knows: nothing is predicted, and shared memory is not checked"
        yield _issue(path, None, "unknown-dtype", "warning", message)
    if gpu is not None and (refused := refused_dtype(operands, gpu.name, gpu.compute_capability)) is not None:
        message = f"{refused}: Triton does not compile the kernel (vLLM runs Marlin there, which asks for no table)"
        yield _issue(path, None, "refused-dtype", "error", message)


def _entry(path: str, key: str, configuration: Configuration, name: TableName, gpu: GpuSpec | None) -> Iterator[AuditIssue]:
    launched, operands = clamp(configuration, name), _operands(name)
    written_k, launched_k = (int(item.parameters["BLOCK_SIZE_K"]) for item in (configuration, launched))
    if launched_k > written_k:
        message = f"BLOCK_SIZE_K {written_k} is below the quantization block {_block(name)}: SGLang's loader raises it to {launched_k}"
        yield _issue(path, key, "raised-block-k", "warning", f"{message}, so this is not the configuration that was tuned")
    elif launched_k != written_k:
        yield _issue(
            path,
            key,
            "clamped-block-k",
            "warning",
            f"BLOCK_SIZE_K {written_k} exceeds the quantization block {_block(name)}: the launcher cuts it to {launched_k}, "
            "so this is not the configuration that was tuned",
        )
    elif name.block_shape is not None and operands in ("fp8", "int8") and launched_k > name.block_shape[1]:
        yield _issue(
            path,
            key,
            "wrong-scales",
            "error",
            f"BLOCK_SIZE_K {launched_k} spans several quantization blocks {_block(name)}, but the kernel loads one scale "
            "per step: wrong results",
        )
    yield from _warps(path, key, configuration, gpu)
    if (refused := refused_ctas(configuration.num_ctas, gpu.compute_capability if gpu is not None else None)) is not None:
        yield _issue(path, key, "num-ctas", "error", refused)
    least = least_block_k(operands, vendor_of(name.device_name))
    if launched_k < least:
        message = f"BLOCK_SIZE_K {launched_k}: tl.dot takes {least} or more of {operands} operands, so the kernel does not compile"
        yield _issue(path, key, "shallow-dot", "error", message)
    yield from _options(path, key, configuration, name, gpu)
    yield from _split_k(path, key, configuration, name, gpu)
    if gpu is not None and operands is not None:
        needed = _needed_shared_memory(launched, name, operands, gpu)
        if needed > gpu.smem_bytes_per_cta:
            yield _issue(
                path,
                key,
                "does-not-fit",
                "error",
                f"needs {needed / 1024:.0f} KiB of shared memory, but {gpu.name} gives a CTA at most "
                f"{gpu.smem_bytes_per_cta / 1024:.0f} KiB: the launch fails with OutOfResources",
            )


def _needed_shared_memory(configuration: Configuration, name: TableName, operands: str, gpu: GpuSpec) -> int:
    block_m, block_n, block_k = (int(configuration.parameters[f"BLOCK_SIZE_{axis}"]) for axis in "MNK")
    operand = ELEMENT_BYTES[operands]
    swap_ab = configuration.parameters.get("SWAP_AB")
    if swaps_operands(name.kind, operands, gpu.compute_capability, block_m, block_n, swap_ab):
        block_m, block_n = block_n, block_m
    return int(
        shared_memory_bytes(
            block_m,
            block_n,
            block_k,
            configuration.num_stages,
            compute_capability=gpu.compute_capability,
            num_warps=configuration.num_warps,
            a_bytes=operand,
            b_bytes=ELEMENT_BYTES[name.weight_dtype] if name.weight_dtype else operand,
        )
    )


def _warps(path: str, key: str, configuration: Configuration, gpu: GpuSpec | None) -> Iterator[AuditIssue]:
    warps, lanes = configuration.num_warps, gpu.warp_size if gpu is not None else 32
    if warps & (warps - 1):
        yield _issue(path, key, "num-warps", "error", f"num_warps {warps} is no power of two: Triton refuses to compile it")
    elif warps * lanes > MAX_THREADS_PER_CTA:
        yield _issue(
            path,
            key,
            "num-warps",
            "error",
            f"num_warps {warps} is {warps * lanes} threads; a CTA has at most {MAX_THREADS_PER_CTA}",
        )


def _options(path: str, key: str, configuration: Configuration, name: TableName, gpu: GpuSpec | None) -> Iterator[AuditIssue]:
    vendor = vendor_of(name.device_name)
    unknown = [option for option in _refused_keys(configuration, name, gpu) if option != "SPLIT_K"]
    if unknown:
        back_end = {"amd": " and no option of Triton on AMD GPUs", "nvidia": " and no option of Triton on NVIDIA GPUs"}.get(vendor, "")
        names = ", ".join(unknown)
        message = f"{names}: no parameter of the kernel{back_end}, so the launch raises a KeyError"
        yield _issue(path, key, "unknown-option", "error", message)
    if "matrix_instr_nonkdim" not in unknown and "matrix_instr_nonkdim" in refused_parameters(configuration.parameters, vendor):
        size = configuration.parameters["matrix_instr_nonkdim"]
        message = f"matrix_instr_nonkdim {size}: no such matrix instruction (16 and 32 exist), so the kernel does not compile"
        yield _issue(path, key, "unknown-option", "error", message)


def _refused_keys(configuration: Configuration, name: TableName, gpu: GpuSpec | None) -> tuple[str, ...]:
    """Keys of an entry that its launch does not know."""
    capability = gpu.compute_capability if gpu is not None else None
    return refused_keys(configuration.parameters, vendor_of(name.device_name), name, capability)


def _split_k(path: str, key: str, configuration: Configuration, name: TableName, gpu: GpuSpec | None) -> Iterator[AuditIssue]:
    split = configuration.parameters.get("SPLIT_K", 1)
    if lacks_split_k(configuration.parameters, name):
        message = "an entry without SPLIT_K: the kernel of grouped int4 weights asks for it and its launcher sets none, so the launch fails"
        yield _issue(path, key, "split-k", "error", message)
    elif ignores_split_k(name):
        if split != 1:
            message = f"SPLIT_K {split} has no effect: the fused-MoE launcher sets it to 1"
            yield _issue(path, key, "split-k", "warning", message)
    elif "SPLIT_K" in _refused_keys(configuration, name, gpu):
        yield _issue(path, key, "split-k", "error", f"SPLIT_K {split}: the kernel has no such parameter, so the launch fails")


def _keys(path: str, table: Table) -> Iterator[AuditIssue]:
    ordered = sorted(table.keys)
    # Where neighbours are that far apart, a launch half-way between runs with an entry tuned for a third of its tokens.
    gaps = [(low, high) for low, high in itertools.pairwise(ordered) if high > HOLE_FACTOR * low]
    if gaps:
        listed = ", ".join(f"{low} to {high}" for low, high in gaps[:4]) + (", …" if len(gaps) > 4 else "")
        yield _issue(path, str(gaps[0][0]), "hole", "warning", f"no entry from {listed}: launches between take the nearer end's")
    if ordered[0] > 1:
        yield _issue(
            path,
            str(ordered[0]),
            "starts-late",
            "warning",
            f"no key is smaller: decoding with fewer tokens runs with what was tuned for {ordered[0]}",
        )
    if ordered[-1] < SMALLEST_LAST_KEY:
        yield _issue(
            path,
            str(ordered[-1]),
            "stops-early",
            "warning",
            f"no key is larger: prefill of any size runs with what was tuned for {ordered[-1]} tokens",
        )


def _block(name: TableName) -> str:
    assert name.block_shape is not None
    return f"[{name.block_shape[0]}, {name.block_shape[1]}]"


def _device_alias(table: Table, names: set[tuple[str, str]]) -> Iterator[AuditIssue]:
    """The same GPU under another name that has no such table beside it."""
    folder = str(Path(table.path).parent)
    for twin in device_twins(table.name.device_name):
        if (folder, replace(table.name, device_name=twin).file_name()) not in names:
            yield _issue(
                table.path,
                None,
                "device-alias",
                "info",
                f"drivers that report this GPU as {twin} do not find the table; a copy under that name would serve them",
            )


def _copies(tables: list[Table]) -> Iterator[AuditIssue]:
    """Tables with the very same entries under names that differ in more than spelling: copied, not tuned."""
    groups = grouped((tuple(repr(entry) for entry in table.entries), table) for table in tables if len(table.entries) > 1)
    for group in groups.values():
        shapes = {(t.name.E, t.name.N, t.name.K, t.name.device_name, t.name.dtype, t.name.block_shape) for t in group}
        if len(shapes) == 1:
            continue  # the same launch, as two stacks or two Triton versions know it
        first = group[0]
        others = [f"{Path(t.path).parent.name}/{Path(t.path).name}" for t in group[1:]]
        listed = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
        yield _issue(first.path, None, "copied", "info", f"the same entries as {listed}: at most one of them was tuned")
