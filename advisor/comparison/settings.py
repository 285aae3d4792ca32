"""`advisor.toml`: which GPUs matter, what gates, and which problems each kernel is compared on.

gpus = ["H100", "H200", "MI300X"]
fail_on = ["regressed", "failed", "cannot-launch"]
launches = ["benchmarks/launches.jsonl"]        # records of `advisor record`: more problems of the kernels in them

[kernels."kernels/gemm.py::gemm_kernel"]        # or "kernels/gemm.py": every kernel of the file
family = "gemm"                                 # where the file has no KERNELS literal
op = "gemm"
problems = [{M = 64, N = 4096, K = 4096, dtype = "bf16"}, {M = 4096, N = 4096, K = 4096, dtype = "fp8"}]
configuration = {BLOCK_M = "BLOCK_SIZE_M"}      # the kernel's names -> the family's, where they differ
sizes = {M = "m", N = "n", K = "a_ptr.shape[1]"}  # of launches, by the kernel's arguments; dtype = "a_ptr" of recorded ones

[kernels."kernels/own.py::my_kernel"]           # of no family: one launch, as `advisor advise` takes it
args = {n_rows = 8192, n_cols = 4096}
grid = "n_rows"                                 # where it does not follow from how the file launches the kernel
types = {x_ptr = "*fp16"}                       # of tensors, where they are not as guessed (bf16)
contents = {lengths_ptr = 4096}                 # what an index tensor holds: one number for all of it, or a list

[tables."*/E=128,*.json"]                       # a pattern of the whole path, as the shell's; the first that matches counts
model = "Qwen3-30B-A3B"                         # or hidden_size and top_k
tokens = [1, 64, 4096]                          # token counts to compare, in place of the table's own
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Any

from advisor.autotuning.ranking import canonical_problem, problem_of_record
from advisor.comparison.gate import conditions
from advisor.compiled.launches.written_values import known_type
from advisor.gpus.hardware import load_gpu, match_device_name
from advisor.pipelines import problem_batch
from advisor.result.schema import FAMILIES, Problem
from advisor.rows.launches import RecordedLaunch, read_launches
from advisor.system.errors import AdvisorError, InputError, UsageError
from advisor.system.reading import parse_toml, read_bytes
from advisor.tables.models import find_model
from advisor.tables.names import SIZE_LIMIT

FILE_NAME = "advisor.toml"
LARGEST_BYTES = 256 * 1024
MOST_RECORDS = 20
"""Files of launches, each of megabytes, that a change may name."""
TOP = ("gpus", "fail_on", "launches", "kernels", "tables")
KERNEL = ("family", "op", "problems", "configuration", "sizes", "dtype", "args", "grid", "types", "contents")
TABLE = ("model", "hidden_size", "top_k", "tensor_parallel", "expert_parallel", "tokens")
_BLOCK_SHAPE = re.compile(r"block_shape=\[(?!\[\])")  # not where it is written as `[[]` already
PROBLEM_OPTIONS = ("op", "dtype", "weight_dtype", "output_dtype", "cache")


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSettings:
    """What the file says of one kernel.

    `configuration` maps the kernel's parameter names to the family's; `sizes` maps the family's sizes to expressions over the arguments
    of a launch: of recorded ones they say the problem, whose element type is that of the argument `dtype`, and in source what launches pass
    for a problem. `args` are values of arguments and constants ("None" is none), `grid` its programs, `types` Triton's types of its
    arguments and `contents` what tensors hold, of a kernel that is judged at one launch.
    """

    family: str | None = None
    op: str | None = None
    problems: tuple[Mapping[str, Any], ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    dtype: str | None = None
    args: Mapping[str, Any] = field(default_factory=dict)
    grid: str | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    contents: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The file, read; as without one where there is none."""

    gpus: tuple[str, ...] = ()
    fail_on: tuple[str, ...] | None = None
    launches: tuple[str, ...] = ()  # paths inside the tree
    kernels: Mapping[str, KernelSettings] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=dict)  # `--arg`: of every kernel, before what the file says; "*i8" is a type

    def kernel(self, paths: Sequence[str], names: Sequence[str]) -> KernelSettings:
        """What is said of a kernel that lies in the first of `paths`; where it moved, it lay in the last. So with its names.

        What is said of it by name goes before what is said of whole files; of those the one it comes from goes first, since what is said
        of the file it came to was said of the kernels that were there.
        """
        keys = [*(f"{path}::{name}" for path in paths for name in names), *reversed(paths)]
        known = next((self.kernels[key] for key in keys if key in self.kernels), KernelSettings())
        types = {name: kind for name, kind in self.args.items() if isinstance(kind, str) and kind.startswith("*")}
        args = {name: value for name, value in self.args.items() if name not in types}
        return replace(known, args={**known.args, **args}, types={**known.types, **types}) if self.args else known

    def table(self, path: str) -> Mapping[str, Any]:
        """What is said of a table."""
        return next((settings for pattern, settings in self.tables.items() if matches(path, pattern)), {})


def matches(path: str, pattern: str) -> bool:
    """Whether a path is meant by a pattern: the shell's, but for the bracket of `block_shape=[128,128]`, which is in the files' names."""
    return path == pattern or fnmatchcase(path, _BLOCK_SHAPE.sub("block_shape=[[]", pattern))


def read_settings(data: bytes, where: str = FILE_NAME) -> Settings:
    """The settings a file holds.

    Raises:
        InputError: It is not TOML, too large, or a value is off; unknown keys are errors that list the known ones.
    """
    if len(data) > LARGEST_BYTES:
        raise InputError(f"{where}: too large", f"{len(data):,} bytes", f"at most {LARGEST_BYTES:,} bytes")
    document = parse_toml(data, where)
    _known(document, TOP, where)
    gpus = tuple(_texts(document.get("gpus", []), f"{where}: gpus"))
    for name in gpus:
        if "/" in name or name.lower().endswith(".toml") or (match_device_name(name) is None and os.path.isfile(name)):  # noqa: PTH113 (NUL)
            # a pull request must not name files to be read
            raise InputError(f"{where}: gpus", name, "names that `advisor gpus` lists")
        load_gpu(name)
    launches = tuple(_texts(document.get("launches", []), f"{where}: launches"))
    if len(launches) > MOST_RECORDS:
        raise InputError(f"{where}: launches", f"{len(launches):,} files", f"at most {MOST_RECORDS}", "put them together in one file")
    for path in launches:
        if path.startswith(("/", "~")) or ".." in path.replace("\\", "/").split("/"):  # a pull request must not name files elsewhere
            raise InputError(f"{where}: launches", path, "paths inside the repository")
    fail_on = tuple(_texts(document["fail_on"], f"{where}: fail_on")) if "fail_on" in document else None
    _check_conditions(fail_on or (), f"{where}: fail_on")
    kernels = {
        key: _kernel(_table(value, f'{where}: kernels."{key}"'), f'{where}: kernels."{key}"')
        for key, value in _table(document.get("kernels", {}), f"{where}: kernels").items()
    }
    tables = {
        key: _of_table(_table(value, f'{where}: tables."{key}"'), f'{where}: tables."{key}"')
        for key, value in _table(document.get("tables", {}), f"{where}: tables").items()
    }
    return Settings(gpus=gpus, fail_on=fail_on, launches=launches, kernels=kernels, tables=tables)


def settings_file(path: Path) -> Settings:
    """The settings of a file of one's own.

    Raises:
        InputError: It cannot be read, or as `read_settings` says.
    """
    return read_settings(read_bytes(path, str(path), "an advisor.toml", LARGEST_BYTES), path.name)


def _check_conditions(words: Sequence[str], where: str) -> None:
    try:
        conditions(words)
    except UsageError as error:
        raise InputError(f"{where}: {error.what.removeprefix('--fail-on: ')}", error.got, error.limit, error.remedy) from None


def _kernel(values: dict[str, Any], where: str) -> KernelSettings:
    _known(values, KERNEL, where)
    family = values.get("family")
    if family is not None and family not in FAMILIES:
        raise InputError(f"{where}: family", family, "one of " + ", ".join(FAMILIES))
    names = _table(values.get("configuration", {}), f"{where}: configuration")
    sizes = _table(values.get("sizes", {}), f"{where}: sizes")
    problems = values.get("problems", [])
    if not isinstance(problems, list) or not all(isinstance(problem, dict) for problem in problems):
        raise InputError(f"{where}: problems", problems, "a list of {size = integer, dtype = text}")
    arguments = _table(values.get("args", {}), f"{where}: args")
    for name, value in arguments.items():
        if not isinstance(value, bool | int | float | str):
            raise InputError(f"{where}: args: {name}", value, "a number, a text, true or false")
    types = _table(values.get("types", {}), f"{where}: types")
    for name, kind in types.items():
        if known_type(str(kind)) is None:
            raise InputError(f"{where}: types: {name}", kind, "a type of Triton, such as *fp16, *bf16, i32, i64 or fp32")
    contents = _table(values.get("contents", {}), f"{where}: contents")
    for name, value in contents.items():
        if not all(type(item) in (bool, int, float) for item in (value if isinstance(value, list) else [value])):
            raise InputError(f"{where}: contents: {name}", value, "a number, or a list of numbers")
    return KernelSettings(
        family=family,
        op=values.get("op"),
        problems=tuple(problems),
        configuration={str(k): str(v) for k, v in names.items()},
        sizes={str(k): str(v) for k, v in sizes.items()},
        dtype=str(values["dtype"]) if "dtype" in values else None,
        args={name: None if value == "None" else value for name, value in arguments.items()},
        grid=",".join(map(str, grid)) if isinstance(grid := values.get("grid"), list) else str(grid) if grid is not None else None,
        types={name: str(known_type(str(kind))) for name, kind in types.items()},
        contents=contents,
    )


def _of_table(values: dict[str, Any], where: str) -> dict[str, Any]:
    _known(values, TABLE, where)
    if not isinstance(values.get("model", ""), str):
        raise InputError(f"{where}: model", values["model"], "a text")
    if "model" in values:
        try:
            find_model(values["model"])
        except UsageError as error:
            raise InputError(f"{where}: model", values["model"], error.limit, "correct it, or say hidden_size and top_k instead") from None
    for name in ("hidden_size", "top_k", "tensor_parallel", "expert_parallel"):
        if name in values and not _is_size(values[name]):
            raise InputError(f"{where}: {name}", values[name], f"an integer from 1 to {SIZE_LIMIT - 1}")
    if "tokens" not in values:
        return values
    tokens = values["tokens"]
    if not isinstance(tokens, list) or not tokens or not all(map(_is_size, tokens)):
        raise InputError(f"{where}: tokens", tokens, f"a list of integers from 1 to {SIZE_LIMIT - 1}")
    return {**values, "tokens": tuple(sorted(set(tokens)))}


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 < value < SIZE_LIMIT


def problem_of(values: Mapping[str, Any], family: str, op: str, where: str) -> Problem:
    """A problem from a flat table of sizes and types.

    Raises:
        InputError: It is not one of the family.
    """
    options = {name: values[name] for name in PROBLEM_OPTIONS if name in values}
    sizes = {str(name): value for name, value in values.items() if name not in (*PROBLEM_OPTIONS, "block_shape")}
    for name, value in sizes.items():
        if type(value) is not int or not 0 <= value < 2**31:
            raise InputError(f"{where}: {name}", value, "an integer below 2**31, or one of " + ", ".join(PROBLEM_OPTIONS))
    op = str(options.pop("op", op))
    block = values.get("block_shape")
    try:
        problem = Problem(
            family=family,  # type: ignore[arg-type]
            op=op,
            sizes=sizes,
            block_shape=tuple(block) if block else None,  # type: ignore[arg-type]
            **{name: str(value) for name, value in options.items()},  # type: ignore[arg-type]
        )
        problem_batch([problem])
    except AdvisorError as error:
        raise InputError(f"{where}: {error.what}", error.got, error.limit, error.remedy) from None
    except (TypeError, ValueError) as error:
        raise InputError(f"{where}: not a problem of {family}", str(error)) from None
    return problem


def _known(values: dict[str, Any], known: tuple[str, ...], where: str) -> dict[str, Any]:
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise InputError(f"{where}: unknown key", unknown[0], "one of " + ", ".join(known))
    return values


def _table(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(where, value, "a table")
    return value


def _texts(value: Any, where: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(part_value, str) for part_value in value):
        raise InputError(where, value, "a list of texts")
    return value


# What a damaged record can make an expression raise, besides our own errors.
_ODD = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """Launches of records, with the file of each kernel as it was called where it was recorded."""

    launches: tuple[tuple[RecordedLaunch, str], ...] = ()
    files: tuple[str, ...] = ()

    def of(self, path: str, name: str) -> list[RecordedLaunch]:
        """The launches of a kernel, the most costly first; trials of autotuners are left out.

        A record names files as they lay on its machine: the kernel's is the one whose path ends like `path`; where none does (an
        installed package, a copy), one of the same file name.
        """
        recorded = [(launch, file) for launch, file in self.launches if launch.kernel == name and not launch.tuning]
        wanted = PurePosixPath(path).parts
        same = [launch for launch, file in recorded if PurePosixPath(file).parts[-len(wanted) :] == wanted]
        chosen = same or [launch for launch, file in recorded if PurePosixPath(file).name == PurePosixPath(path).name]
        return sorted(chosen, key=lambda launch: (-launch.cost_us, -launch.count, launch.id))


def read_recorded(files: Iterable[tuple[str, Path | bytes]]) -> Recorded:
    """The launches of record files, each given as (name, path or content).

    Raises:
        InputError: One cannot be read, or is no record.
    """
    launches: list[tuple[RecordedLaunch, str]] = []
    names = []
    for name, content in files:
        if isinstance(content, bytes):
            with tempfile.TemporaryDirectory(prefix="advisor-compare-") as folder:
                path = Path(folder, PurePosixPath(name).name or "record")
                path.write_bytes(content)
                records = read_launches(path)
        else:
            records = read_launches(content)
        names.append(name)
        launches += [
            (launch, records.sources[launch.source][0]) for launch in records.launches if launch.source and launch.source in records.sources
        ]
    return Recorded(launches=tuple(launches), files=tuple(names))


def recorded_problems(
    recorded: Recorded, paths: Sequence[str], names: Sequence[str], entry: Mapping[str, Any], settings: KernelSettings
) -> tuple[list[Problem], list[str]]:
    """The problems that a kernel was launched on, each once, the most costly first; and what is to be said of them.

    Of the paths of its file, and of its names, the first that launches were recorded of counts.
    """
    launches = next((launches_of_name for path in paths for name in names if (launches_of_name := recorded.of(path, name))), [])
    if not launches:
        return [], []
    described = _described(entry, settings, launches[0])
    if described is None:
        return [], [
            f"{len(launches)} recorded launches were not used: neither a KERNELS literal nor `family` and `sizes` in advisor.toml "
            "say which problem a launch is."
        ]
    problems: dict[str, Problem] = {}
    reasons: list[str] = []
    for launch in launches:
        try:
            problem = problem_of_record(described, launch)
            problem_batch([problem])
            problems.setdefault(canonical_problem(problem), problem)
        except (AdvisorError, *_ODD) as error:
            reasons.append(str(error))
    notes = []
    if problems:
        words = "problem" if len(problems) == 1 else "problems"
        notes.append(
            f"Compared on the {len(problems)} {words} of {sum(item.count for item in launches):,} recorded launches "
            f"({', '.join(recorded.files)})."
        )
    if reasons:
        notes.append(f"{len(reasons)} of {len(launches)} recorded launches were not understood: {reasons[0]}")
    return list(problems.values()), notes


def _described(entry: Mapping[str, Any], settings: KernelSettings, launch: RecordedLaunch) -> Mapping[str, Any] | None:
    """An entry as of a KERNELS literal: the file's own, unless advisor.toml describes the kernel."""
    if settings.family is not None and settings.sizes:
        tensors = sorted(launch.tensors, key=lambda tensor: -len(launch.tensors[tensor].get("shape", ())))
        op = settings.op or settings.family
        return {
            "family": settings.family,
            "ops": {op: {"sizes": dict(settings.sizes)}},
            "dtype": settings.dtype or (tensors[0] if tensors else ""),
        }
    return entry if isinstance(entry.get("ops"), dict) and "family" in entry else None


def merged(named: Sequence[Problem], recorded: Sequence[Problem]) -> list[Problem]:
    """The problems that were named, then those recorded that are not among them."""
    known = {canonical_problem(item) for item in named}
    return [*named, *(record for record in recorded if canonical_problem(record) not in known)]
