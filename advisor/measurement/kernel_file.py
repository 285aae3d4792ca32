"""Kernel files: any Python file with a `KERNELS` literal (triton_kernels/README.md), ours or a user's, found and loaded alike.

Listing a kernel only parses its file. Running one imports it, which runs its top level: that happens in workers and where a
space must be filtered by the file's own `valid`.
"""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any

from advisor.gpus.gpu_description import FMA_DTYPES, TENSOR_DTYPES
from advisor.gpus.hardware import GpuSpec
from advisor.pipelines.batch import SIZES
from advisor.python_source.described import kernel_problem, problem_dtype
from advisor.python_source.source import read_source
from advisor.result.schema import FAMILIES, Configuration, Problem
from advisor.system.errors import InputError, NothingMatchedError, UsageError
from advisor.system.resources import folder

MAX_FILE_BYTES = 8_000_000
_REQUIRED = ("family", "ops")
_FUNCTIONS = ("make_inputs", "prepare", "reference")
_REMEDY = "see triton_kernels/README.md for the convention"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRef:
    """A kernel: the file it is in and the name of its function."""

    file: str
    function: str

    @property
    def label(self) -> str:
        """`fused_moe.py::fused_moe_kernel`."""
        return f"{Path(self.file).name}::{self.function}"

    @property
    def target(self) -> str:
        """Its name on a command line: `gemm::gemm_kernel` where it is bundled, else `path/to/file.py::KERNEL`."""
        path = Path(self.file)
        return f"{path.stem if path in bundled_files() else path}::{self.function}"


def read_kernels(file: str | Path) -> dict[str, dict[str, Any]]:
    """The `KERNELS` literal of a file, without importing it.

    Raises:
        InputError: The file cannot be read, or has no such literal, or an entry lacks what every entry needs.
    """
    path = Path(file)
    try:
        stamp = path.stat()
        if stamp.st_size > MAX_FILE_BYTES:
            raise InputError(f"{path.name}: too large for a kernel file", f"{stamp.st_size} bytes", f"at most {MAX_FILE_BYTES}")
        return _read_kernels(str(path.resolve()), stamp.st_mtime_ns, stamp.st_size)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path.name}: cannot be read ({reason})", str(file), "a Python file with a KERNELS literal", _REMEDY) from None


@lru_cache(maxsize=64)
def _read_kernels(file: str, _changed: int, _size: int) -> dict[str, dict[str, Any]]:
    path = Path(file)
    source = read_source(path)
    if "KERNELS" not in source.assignments:
        raise InputError(f"{path.name}: has no KERNELS literal", None, "KERNELS = {…}", _REMEDY)
    if not (kernels := source.kernels_literal):
        what = "a dictionary of kernel name to entry, with plain values only"
        raise InputError(f"{path.name}: KERNELS is not a literal, or is empty", None, what, _REMEDY)
    for name, entry in kernels.items():
        missing = [key for key in _REQUIRED if not isinstance(entry, dict) or key not in entry]
        if missing:
            raise InputError(f"{path.name}: KERNELS[{name!r}] lacks {', '.join(missing)}", None, None, _REMEDY)
        if entry["family"] not in FAMILIES:
            raise InputError(f"{path.name}: KERNELS[{name!r}]: family", entry["family"], f"one of {', '.join(FAMILIES)}", _REMEDY)
    return kernels


def kernel_entry(kernel: KernelRef) -> dict[str, Any]:
    """The kernel's entry of `KERNELS`.

    Raises:
        InputError: The file has no such kernel.
    """
    kernels = read_kernels(kernel.file)
    if kernel.function not in kernels:
        raise InputError(f"{Path(kernel.file).name}: no such kernel", kernel.function, f"one of {', '.join(kernels)}", _REMEDY)
    return kernels[kernel.function]


def block_shape_of(entry: Mapping[str, Any], dtype: str) -> tuple[int, int] | None:
    """The quantization block (n, k) that a kernel's operands of a type have scales for; None: they have no scales in blocks.

    Raises:
        InputError: The entry's `block_shape` is no dictionary, or holds something other than two positive integers for the type.
    """
    blocks = entry.get("block_shape") or {}
    if not isinstance(blocks, Mapping):
        raise InputError("KERNELS: block_shape", blocks, 'a dictionary of dtype to [n, k], as {"fp8": [128, 128]}', _REMEDY)
    block = blocks.get(dtype)
    if block is None:
        return None
    if not isinstance(block, (list, tuple)) or len(block) != 2 or not all(type(size) is int and size > 0 for size in block):
        raise InputError(f"KERNELS: block_shape of {dtype}", block, "[n, k], two positive integers", _REMEDY)
    return block[0], block[1]


_DTYPES = tuple(dict.fromkeys((*TENSOR_DTYPES, *FMA_DTYPES)))
DEFAULT_TOLERANCE = (1e-2, 1e-3)


def tolerance_of(entry: Mapping[str, Any], dtype: str, sizes: Mapping[str, Any]) -> tuple[float, float]:
    """(relative, absolute): what a kernel's file allows its output to differ from the reference, for a type and a problem's sizes.

    Raises:
        InputError: `tolerance` or `tolerance_beyond` is not what triton_kernels/README.md says.
    """
    _check_tolerances(entry)
    beyond = (entry.get("tolerance_beyond") or {}).get(dtype, {})
    limits = {name: value for name, value in beyond.items() if name != "tolerance"}
    relative, absolute = (entry.get("tolerance") or {}).get(dtype, DEFAULT_TOLERANCE)
    if limits and all(sizes.get(name, 0) > value for name, value in limits.items()):
        relative, absolute = beyond["tolerance"]
    return float(relative), float(absolute)


def _check_tolerances(entry: Mapping[str, Any]) -> None:
    tolerance, beyond = entry.get("tolerance") or {}, entry.get("tolerance_beyond") or {}
    for name, table in (("tolerance", tolerance), ("tolerance_beyond", beyond)):
        if not isinstance(table, Mapping):
            raise InputError(f"KERNELS: {name}", table, 'a dictionary by dtype, as {"bf16": …}', _REMEDY)
        if unknown := [str(dtype) for dtype in table if dtype not in _DTYPES]:
            raise InputError(f"KERNELS: {name} of a type that is none", ", ".join(unknown), f"among {', '.join(_DTYPES)}", _REMEDY)
    for dtype, pair in tolerance.items():
        _check_tolerance(f"tolerance of {dtype}", pair)
    for dtype, bounds in beyond.items():
        limits = {name: value for name, value in bounds.items() if name != "tolerance"} if isinstance(bounds, Mapping) else {}
        if not limits or not all(_is_number(value) for value in limits.values()):
            raise InputError(f"KERNELS: tolerance_beyond of {dtype}", bounds, '{SIZE: number, "tolerance": [relative, absolute]}', _REMEDY)
        _check_tolerance(f"tolerance_beyond of {dtype}: tolerance", bounds.get("tolerance"))


def _check_tolerance(what: str, pair: Any) -> None:
    if not isinstance(pair, (list, tuple)) or len(pair) != 2 or not all(_is_number(value) and value >= 0 for value in pair):
        raise InputError(f"KERNELS: {what}", pair, "[relative, absolute], two numbers of at least 0", _REMEDY)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def bundled_files() -> tuple[Path, ...]:
    """The kernel files of `triton_kernels/`."""
    return tuple(path for path in sorted(folder("triton_kernels").glob("*.py")) if path.name != "__init__.py")


def find_kernels(target: str, relative_to: Path | None = None) -> tuple[KernelRef, ...]:
    """The kernels a target names: `FILE.py::KERNEL`, `FILE.py` (all of its kernels), a bundled file (`gemm`) or kernel.

    Raises:
        InputError, UsageError: There is no such file or kernel.
    """
    name, _, function = target.partition("::")
    if name.endswith(".py"):
        path = Path(name) if relative_to is None else relative_to / name
        if name in {file.name for file in bundled_files()} and not path.exists():
            bundled = name.removesuffix(".py") + (f"::{function}" if function else "")
            raise UsageError(f"{name}: no such file", target, f"{bundled}, the bundled kernel, or a path", "check the path")
        kernels = read_kernels(path)
        chosen = (function,) if function else tuple(kernels)
        refs = tuple(KernelRef(file=str(path.resolve()), function=kernel_name) for kernel_name in chosen)
        for ref in refs:
            kernel_entry(ref)
        return refs
    known: list[str] = []
    for path in bundled_files():
        kernels = read_kernels(path)
        known += [path.stem, *kernels]
        if name == path.stem and (not function or function in kernels):
            return tuple(KernelRef(file=str(path), function=kernel) for kernel in ((function,) if function else kernels))
        if name in kernels and not function:
            return (KernelRef(file=str(path), function=name),)
    raise UsageError("no such kernel", target, f"FILE.py::KERNEL, or one of {', '.join(dict.fromkeys(known))}", "check the spelling")


def kernels_made_for(kernels: Sequence[KernelRef], op: str | None, dtype: str | None) -> tuple[tuple[KernelRef, ...], tuple[str, ...]]:
    """Those of a target's kernels that do the operator on operands of the type, and what to say of those that take other types.

    Raises:
        NothingMatchedError: None of them does the operator.
        UsageError: Every kernel that does the operator takes other types.
    """
    made, refused = [], []
    known = dict.fromkeys(operator for kernel in kernels for operator in kernel_entry(kernel)["ops"])
    if op is not None and op not in known:
        raise NothingMatchedError(
            f"{', '.join(kernel.label for kernel in kernels)}: no such operator", op, f"one of {', '.join(known)}", "check --op"
        )
    for kernel in kernels:
        entry = kernel_entry(kernel)
        if op is not None and op not in entry["ops"]:
            continue
        try:
            problem_dtype(entry, kernel.label, dtype)
            made.append(kernel)
        except UsageError as error:
            refused.append(error)
    if refused and not made:
        raise refused[0]
    return tuple(made), tuple(f"left out: {error}" for error in refused)


_modules: dict[tuple[str, int], ModuleType] = {}


def load_module(file: str | Path) -> ModuleType:
    """Imports a kernel file under a name of its own (once per version of the file). Runs its top level.

    Raises:
        InputError: Importing it fails.
    """
    path = Path(file).resolve()
    key = (str(path), path.stat().st_mtime_ns if path.exists() else 0)
    if key not in _modules:
        # A stable name: Triton's disk cache must not depend on the process that compiled.
        name = f"advisor_kernel_file_{path.stem}_{hashlib.sha256(str(key).encode()).hexdigest()[:12]}"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise InputError(f"{path.name}: cannot be imported", str(path), "a Python file", _REMEDY)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            del sys.modules[name]
            raise InputError(f"{path.name}: importing it failed ({type(error).__name__}: {error})", None, None, _REMEDY) from error
        _modules[key] = module
    return _modules[key]


def function_of(kernel: KernelRef, role: str) -> Any:
    """The function of the file that plays `role` (`make_inputs`, `prepare`, `reference`, `valid`, …); None where it names none.

    Raises:
        InputError: The entry names a function the file does not have.
    """
    name = kernel_entry(kernel).get(role)
    if name is None:
        return None
    module = load_module(kernel.file)
    if not callable(getattr(module, str(name), None)):
        raise InputError(f"{kernel.label}: {role} names no function of the file", name, "a function", _REMEDY)
    return getattr(module, str(name))


def check_runnable(kernel: KernelRef) -> None:
    """Raises InputError where the entry lacks what measuring needs, or says it wrongly."""
    entry = kernel_entry(kernel)
    _check_tolerances(entry)
    missing = [role for role in _FUNCTIONS if role not in entry]
    if missing:
        raise InputError(f"{kernel.label}: cannot be measured without {', '.join(missing)}", None, None, _REMEDY)


def check_sizes(kernel: KernelRef, op: str, sizes: Mapping[str, int]) -> None:
    """Sizes that a user gave must be the operator's, all of them.

    Raises:
        UsageError: A size is missing, is not one of the kernel's, or is below 1 (`causal`: below 0).
    """
    entry = kernel_entry(kernel)
    described = entry["ops"].get(op) if isinstance(entry["ops"], dict) else None
    named = described.get("sizes") if isinstance(described, dict) else None
    needed = tuple(named or SIZES.get((entry["family"], op), ("B", "H")))
    known = dict.fromkeys([*needed, *(entry.get("example") or {})])
    limit = f"{', '.join(needed)} for {op}"
    remedy = f"--sizes {','.join(f'{name}=…' for name in needed)}"
    if missing := [name for name in needed if name not in sizes and name != "causal"]:
        raise UsageError(f"{kernel.label}: a size is missing", f"no {', '.join(missing)}", limit, f"give every size: {remedy}")
    if unknown := [name for name in sizes if name not in known]:
        raise UsageError(f"{kernel.label}: has no such size", ", ".join(unknown), limit, f"give {remedy}")
    for name, value in sizes.items():
        if value < (0 if name == "causal" else 1):
            raise UsageError(f"{kernel.label}: size {name} is too small", value, "at least 1", "correct --sizes")
    if sizes.get("topk", 0) > sizes.get("E", sys.maxsize):
        raise UsageError(
            f"{kernel.label}: a token cannot take more experts than there are",
            f"topk={sizes['topk']}",
            f"at most E = {sizes['E']}",
            "correct --sizes",
        )


def configurations(kernel: KernelRef, problem: Problem, gpu: GpuSpec | None = None) -> tuple[Configuration, ...]:
    """The kernel's space for a problem, filtered by the file's `valid`; its default first, where it names one."""
    return tuple(each_configuration(kernel, problem, gpu))


def each_configuration(kernel: KernelRef, problem: Problem, gpu: GpuSpec | None = None) -> Iterator[Configuration]:
    """`configurations`, one after the other: the first costs no look at the rest."""
    valid, default = function_of(kernel, "valid"), function_of(kernel, "default")
    flat = kernel_problem(problem, gpu.compute_capability if gpu is not None else None)
    first = None if default is None else dict(default(flat))
    if first is not None:
        yield Configuration.from_flat(first)
    for config, configuration in _space(json.dumps(kernel_entry(kernel).get("space") or {})):
        if config != first and (valid is None or valid(config, flat)):
            yield configuration


@lru_cache(maxsize=64)
def _space(text: str) -> tuple[tuple[dict[str, Any], Configuration], ...]:
    """Every combination of a space's values (given as JSON), flat and as a configuration; campaigns ask for it again and again."""
    space = json.loads(text)
    flat = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    return tuple((config, Configuration.from_flat(config)) for config in flat)
