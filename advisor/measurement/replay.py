"""Replaying what was recorded: launches as launches that can be measured, and files of rows for searches and reports without a GPU.

A launch is made anew from its record: the kernel rebuilt from its parsed source, its arguments likewise.
Nothing of the recorded program is run: a kernel is rebuilt from its own syntax tree, literals and triton imports
(`advisor.python_source.rebuild`). Its tensors get the recorded shapes, strides, types and alignment, and random values (integers: what the
record holds of them, else zeros). A launch that reads integers of 16 bits or more, or bools, which were not recorded is left out: they may
be indices, bounds or masks, and zeros would make it another launch. Integers of 8 bits count as data. A record has no reference, so what a
replayed launch writes is not checked.

Rows (`read_recording`): with a configuration and `latency_us` (a sweep, near-optimal rows, what `advisor measure` writes), and sweep
summaries (`default_us` with its `default_…` columns).
"""

from __future__ import annotations

import json
import math
import os
import pprint
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.compiled.compiler import frontend, guard
from advisor.compiled.recorder.hook import MAX_CONTENT
from advisor.gpus.hardware import gpu_model
from advisor.measurement.kernel_file import KernelRef
from advisor.measurement.launch import Launch
from advisor.python_source import language
from advisor.python_source.literal_values import Passed, Symbol, passed_in
from advisor.python_source.rebuild import MODULE_PREFIX, rebuild
from advisor.python_source.source import SourceFile, parse_source
from advisor.result.schema import LAUNCH_OPTIONS, Configuration, Problem, result_dtype
from advisor.rows.launches import LaunchRecords, RecordedLaunch, read_launches
from advisor.rows.rows import RECORDED_OPERATOR
from advisor.system.errors import AdvisorError, InputError, NothingMatchedError, UsageError

SHOWN = 5
"""Reasons that are shown where no launch can be measured."""

POSITIONS = "positions.json"
"""The file beside rebuilt modules that says where in the author's file their nodes stand."""

NOT_CHECKED = "outputs of recorded launches are not checked: a record has no reference"

ProblemOf = Callable[[Mapping[str, Any], RecordedLaunch], Problem]
"""What problem a launch is, by the kernel's `KERNELS` entry; raises where it is none that it knows."""

_MAY_DECIDE = re.compile(r"u?int(16|32|64)|bool")
_DESCRIPTOR = re.compile(r"tensordesc<\w+\[([\d, ]+)\]")
_USUAL = {"padding": "zero", "round_f32_to_tf32": False}
"""Of a tensor descriptor, where nothing else is asked for."""
_ODD = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError)
_FILE = '''"""A launch of `{kernel}`, written by `advisor measure` from a record: parsed source, and the arguments of the call."""

import json
from pathlib import Path

KERNELS = {kernels}

LAUNCH = json.loads({launch})


def make_inputs(problem, device, generator):
    from advisor.measurement import replay

    return replay.make_inputs(LAUNCH, device, generator)


def prepare(inputs, config):
    from advisor.measurement import replay

    return replay.prepare(LAUNCH, inputs, Path(__file__).parent)


def reference(inputs):
    return ()
'''


def recorded_launches(path: str | Path, folder: Path, problem_of: ProblemOf) -> tuple[list[Launch], list[str]]:
    """The launches of a record, the most costly first, each with a kernel file of its own below `folder`; and which were left out, and why.

    Trials of autotuners are left out. A launch of a kernel that no KERNELS literal describes stands under an operator of its own
    (`recorded_NAME`), which no model knows; B is then the number of programs, H the elements of its largest tensor.

    Raises:
        InputError: It is no record, or so damaged that no launch is left.
        NothingMatchedError: None of its launches can be rebuilt.
    """
    records = read_launches(path)
    launches, reasons = [], []
    chosen = [launch for launch in records.launches if not launch.tuning]
    for launch in sorted(chosen, key=lambda candidate: (-candidate.cost_us, -candidate.count, candidate.id)):
        try:
            source = _source(records, launch)
            launches.append(_launch(source, launch, folder, problem_of))
        except (AdvisorError, *_ODD) as error:
            reasons.append(f"{launch.kernel}: {error}")
    if not launches and records.damaged:
        raise InputError(
            f"{path}: a damaged record, with no launch left that can be measured",
            "; ".join([*records.problems, *reasons]),
            "a whole file of `advisor record`",
            "record again",
        )
    if not launches:
        causes = list(dict.fromkeys([*reasons, *records.problems])) or ["no launch was recorded"]
        more = f"; and {len(causes) - SHOWN} more reasons" if len(causes) > SHOWN else ""
        raise NothingMatchedError(f"{path}: no launch that can be measured ({'; '.join(causes[:SHOWN])}{more})")
    return launches, [*records.problems, *(f"left out: {reason}" for reason in reasons)]


def _source(records: LaunchRecords, launch: RecordedLaunch) -> SourceFile:
    """The recorded file of a kernel, with the globals and the files beside it that were recorded."""
    if launch.source not in records.sources:
        raise InputError("its source was not recorded", launch.kernel)
    path, text = records.sources[launch.source or ""]
    siblings = {records.sources[name][0]: records.sources[name][1] for name in launch.files if name in records.sources}
    return replace(parse_source(text, path), values=dict(launch.constants), siblings=siblings)


def _launch(source: SourceFile, launch: RecordedLaunch, folder: Path, problem_of: ProblemOf) -> Launch:
    rebuilt = rebuild(source, launch.kernel, passed_in(launch.constexprs.values()))
    entry = source.kernels_literal.get(launch.kernel)
    entry = dict(entry) if isinstance(entry, dict) else {}
    try:
        problem = problem_of(entry, launch)
    except (AdvisorError, *_ODD):
        problem = _stand_in(launch)
    _check_contents(source, launch, rebuilt.modules.values())
    name = re.sub(r"\W", "_", f"{launch.kernel[:80]}_{launch.id[:16]}")
    place = folder / name
    place.mkdir(parents=True)
    for module, text in rebuilt.modules.items():
        (place / Path(module).name).write_text(text, encoding="utf-8", errors="surrogatepass")
    (place / POSITIONS).write_text(json.dumps(rebuilt.positions), encoding="utf-8")
    configuration = _configuration(entry, launch)
    literal: dict[str, dict[str, Any]] = {
        launch.kernel: {
            "family": problem.family,
            "ops": {problem.op: {"sizes": {}}},
            "make_inputs": "make_inputs",
            "prepare": "prepare",
            "reference": "reference",
        }
    }
    recorded = {
        "kernel": launch.kernel,
        "module": rebuilt.entry,
        "signature": dict(launch.signature),
        "arguments": dict(launch.arguments),
        "constexprs": {key: _plain(value) for key, value in launch.constexprs.items()},
        "grid": list(launch.grid),
        "tensors": {key: dict(value) for key, value in launch.tensors.items()},
        "contents": dict(launch.contents),
        "options": dict(launch.options),
    }
    file = place / f"{name}.py"
    text = _FILE.format(kernel=name, kernels=pprint.pformat(literal, width=120), launch=repr(json.dumps(recorded)))
    file.write_text(text, encoding="utf-8", errors="backslashreplace")
    return Launch(kernel=KernelRef(file=str(file), function=launch.kernel), problem=problem, configuration=configuration)


def _check_contents(source: SourceFile, launch: RecordedLaunch, modules: Iterable[str]) -> None:
    """Refuses a launch of which something that may decide what it does was not recorded.

    Raises:
        InputError: It was not.
    """
    wide = [name for name, tensor in launch.tensors.items() if str(tensor.get("dtype")) in ("int64", "uint64")]
    if wide and any("pointer_type" in text for text in modules):
        raise InputError(f"{', '.join(wide)} holds addresses of the recorded program's memory, so that the launch cannot be replayed")
    written = source.kernel(launch.kernel).only_stored
    missing = [
        name
        for name, tensor in launch.tensors.items()
        if _MAY_DECIDE.fullmatch(str(tensor.get("dtype")))
        and all(tensor.get("shape", ()))
        and not isinstance(launch.contents.get(name), list)
        and name not in written
    ]
    if not missing:
        return
    why = f"what {', '.join(missing)} held was not recorded, and addresses, bounds or branches may follow from it"
    if never := _unrecordable(launch, missing):
        raise InputError(f"{why}; it cannot be replayed: {never}")
    raise InputError(why, remedy=f"record again with {' '.join(f'--contents {name}' for name in sorted(missing))}")


def _unrecordable(launch: RecordedLaunch, names: Iterable[str]) -> str:
    """Why what some of the tensors hold cannot be recorded; empty where it can."""
    reasons = []
    for name in sorted(set(names)):
        elements = math.prod(int(size) for size in launch.tensors.get(name, {}).get("shape", ()))
        if elements > MAX_CONTENT:
            reasons.append(f"{name} has {elements:,} elements, and at most {MAX_CONTENT:,} are recorded")
        elif str(launch.signature.get(name)).startswith("tensordesc"):
            reasons.append(f"what the tensor of a descriptor, {name}, holds is not recorded")
    return "; ".join(reasons)


def _stand_in(launch: RecordedLaunch) -> Problem:
    elements = [math.prod(int(size) for size in tensor.get("shape", ())) for tensor in launch.tensors.values()]
    return Problem(
        family="elementwise",
        op=f"{RECORDED_OPERATOR}{launch.kernel}",
        sizes={"B": max(1, math.prod(launch.grid)), "H": min(max([1, *elements]), 2**31 - 1)},
        dtype=_dtype(launch),
    )


def _dtype(launch: RecordedLaunch) -> str:
    names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    return next((names[str(tensor.get("dtype"))] for tensor in launch.tensors.values() if str(tensor.get("dtype")) in names), "fp32")


def _configuration(entry: Mapping[str, Any], launch: RecordedLaunch) -> Configuration:
    """The tuned parameters of the launch (all its integer constants, where nothing says), and the record's name for it."""
    space = entry.get("space")
    tuned = set(space) if isinstance(space, dict) else None
    parameters: dict[str, int | bool | str] = {
        name: value
        for name, value in launch.constexprs.items()
        if isinstance(value, int) and (name in tuned if tuned is not None else True)
    }
    options: dict[str, Any] = {name: value for name, value in launch.options.items() if name in LAUNCH_OPTIONS and value}
    return Configuration(parameters={**parameters, "launch": launch.id}, **options)


def _plain(value: Any) -> Any:
    """A constant as a literal."""
    if isinstance(value, Symbol):
        return {"symbol": value.text}
    if isinstance(value, Passed):
        return {"function": value.alias}
    if isinstance(value, tuple):
        return {"tuple": [_plain(element) for element in value]}
    return value


# ------------------------------------------------------------------------------------------------------- in the worker that measures


def make_inputs(launch: Mapping[str, Any], device: str, generator: Any) -> dict[str, Any]:
    """Tensors as recorded, with values from the generator; no output to be checked."""
    import torch

    seed = generator.initial_seed() if hasattr(generator, "initial_seed") else generator.getrandbits(62)
    random = torch.Generator(device=device).manual_seed(seed)
    contents = launch["contents"]
    tensors = {
        name: _tensor(name, recorded, contents.get(name), str(launch["signature"].get(name, "")), device, random)
        for name, recorded in launch["tensors"].items()
        if "same_as" not in recorded
    }
    tensors |= {name: tensors[recorded["same_as"]] for name, recorded in launch["tensors"].items() if "same_as" in recorded}
    return {"tensors": tensors, "output": ()}


def _tensor(name: str, recorded: Mapping[str, Any], content: Any, kind: str, device: str, generator: Any) -> Any:
    import torch

    dtype = getattr(torch, str(recorded["dtype"]), None)
    if not isinstance(dtype, torch.dtype):
        raise InputError(f"the record's tensor {name}: type", recorded["dtype"], "a type of torch")
    shape, strides = [int(size) for size in recorded["shape"]], [int(stride) for stride in recorded["strides"]]
    block = _DESCRIPTOR.match(kind)
    viewed = _view(recorded) if block is not None else (shape, strides)
    length = max(_extent(shape, strides), _extent(*viewed))
    offset = 0 if recorded.get("aligned", True) else 1  # an address that 16 does not divide compiles to other code
    storage = torch.zeros(length + offset, dtype=dtype, device=device)
    if isinstance(content, list) and not dtype.is_floating_point:
        values = torch.tensor(content, dtype=dtype, device=device)
        storage[offset:].as_strided(shape, strides).copy_(values.reshape(shape))
    elif dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        storage.normal_(generator=generator)
    elif dtype.is_floating_point:
        storage.copy_(torch.randn(length + offset, device=device, generator=generator))
    tensor = storage[offset:].as_strided(shape, strides)
    if block is None:
        return tensor
    from triton.tools.tensor_descriptor import TensorDescriptor

    more = {name: recorded.get(f"descriptor_{name}", usual) for name, usual in _USUAL.items()}
    more = {name: value for name, value in more.items() if value != _USUAL[name]}  # Triton 3.6 has no word for some
    return TensorDescriptor(tensor, *viewed, [int(size) for size in block[1].split(",")], **more)


def _view(recorded: Mapping[str, Any]) -> tuple[list[int], list[int]]:
    """Shape and strides of a descriptor, which need not be its tensor's."""
    return [int(size) for size in recorded["descriptor_shape"]], [int(stride) for stride in recorded["descriptor_strides"]]


def _extent(shape: Sequence[int], strides: Sequence[int]) -> int:
    """Elements from the first to the last of a view."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if all(shape) else 0


def prepare(launch: Mapping[str, Any], inputs: Mapping[str, Any], folder: Path) -> Callable[[], tuple]:
    """The launch, as it was recorded."""
    module = _module(folder, launch["module"], launch["kernel"])
    kernel = getattr(module, launch["kernel"])
    constants = {name: _value(value, module) for name, value in launch["constexprs"].items()}
    arguments = {**launch["arguments"], **constants, **inputs["tensors"]}
    options, grid = dict(launch["options"]), tuple(launch["grid"])
    _set_allocator()

    def run() -> tuple:
        kernel[grid](**arguments, **options)
        return ()

    return run


def _set_allocator() -> None:
    """Memory for kernels that make tensor descriptors of their own."""
    import torch
    import triton

    if torch.cuda.is_available() and hasattr(triton, "set_allocator"):
        triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))


def _value(value: Any, module: Any) -> Any:
    if isinstance(value, Mapping) and "function" in value:
        return getattr(module, str(value["function"]))
    if isinstance(value, Mapping) and "symbol" in value:
        return frontend.decode({"dtype": str(value["symbol"]).rsplit(".", 1)[-1]}, module, guard)
    if isinstance(value, Mapping) and "tuple" in value:
        return tuple(_value(element, module) for element in value["tuple"])
    return value


def _module(folder: Path, module: str, kernel: str) -> Any:
    """The module of a rebuilt kernel. Every launch's have the same names: each is imported from its own folder, and only from there.

    Raises:
        RefusedError: Something in it leads out of triton's language.
    """
    texts = {path.name: path.read_text(encoding="utf-8", errors="surrogatepass") for path in folder.glob(f"{MODULE_PREFIX}*.py")}
    positions = json.loads((folder / POSITIONS).read_text(encoding="utf-8"))
    request = {"modules": texts, "positions": positions, "entry": module, "kernel": kernel}
    return frontend.load(request, language, guard, interpreted=os.environ.get("TRITON_INTERPRET") == "1")


__all__: Sequence[str] = ["NOT_CHECKED", "make_inputs", "prepare", "recorded_launches"]

ConfigurationKey = tuple[tuple[str, object], ...]
ProblemKey = tuple[object, ...]


OPTIONAL_COLUMNS = ("weight_dtype", "output_dtype", "block_shape", "cache")
"""What tells problems apart too, in files that have the column: published rows do not say it."""


def _problem_key(problem: Problem, columns: Collection[str]) -> ProblemKey:
    """The identity of a recorded problem; `columns` are those of `OPTIONAL_COLUMNS` that the file has."""
    optional = {
        "weight_dtype": problem.weight_dtype or problem.dtype,
        "output_dtype": result_dtype(problem.dtype, problem.output_dtype),
        "block_shape": problem.block_shape,
        "cache": problem.cache,
    }
    sizes = tuple(sorted(problem.sizes.items()))
    return (problem.family, problem.op, problem.dtype, sizes, problem.routing, problem.distribution, *(optional[name] for name in columns))


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Latencies of one GPU, in microseconds, by problem and configuration. `columns`: those of `OPTIONAL_COLUMNS` that the file has."""

    gpu: str
    source: str
    columns: tuple[str, ...] = ()
    latencies: Mapping[ProblemKey, Mapping[ConfigurationKey, tuple[float, Configuration]]]
    problems: Mapping[ProblemKey, Problem]

    def latency_us(self, problem: Problem, configuration: Configuration) -> float | None:
        """The recorded latency; None where the file has no such launch."""
        row = self.rows(problem).get(_configuration_key(configuration))
        return None if row is None else row[0]

    def configurations(self, problem: Problem) -> tuple[Configuration, ...]:
        """The recorded configurations of a problem, fastest first."""
        return tuple(configuration for _, configuration in sorted(self.rows(problem).values(), key=lambda entry: entry[0]))

    def rows(self, problem: Problem) -> Mapping[ConfigurationKey, tuple[float, Configuration]]:
        """Latency and configuration of a problem's rows; none where it was not recorded."""
        return self.latencies.get(_problem_key(problem, self.columns), {})

    def __contains__(self, problem: Problem) -> bool:
        return bool(self.rows(problem))

    def __iter__(self) -> Iterator[Problem]:
        return iter(self.problems.values())

    def __len__(self) -> int:
        return sum(map(len, self.latencies.values()))


def _configuration_key(configuration: Configuration) -> ConfigurationKey:
    return tuple(sorted(configuration.flat().items()))


def read_recording(path: str | os.PathLike[str], gpu: str | None = None) -> Recording:
    """Reads a file of rows.

    Args:
        path: CSV, plain or gzipped.
        gpu: Which GPU's rows, where the file has several.

    Raises:
        InputError: It cannot be read, or holds no latency of a known configuration.
        UsageError: It holds several GPUs and none is named.
    """
    from advisor.measurement.measured_rows import read_measured

    source = os.path.basename(os.fspath(path))  # noqa: PTH119 - also for paths with a NUL, which Path refuses
    latencies: dict[ProblemKey, dict[ConfigurationKey, tuple[float, Configuration]]] = {}
    problems: dict[ProblemKey, Problem] = {}
    gpus: dict[str, str] = {}
    columns: tuple[str, ...] = ()
    wanted = gpu_model(gpu) if gpu else None
    before: Problem | None = None
    for row in read_measured(path):
        name = gpu_model(row.gpu)
        gpus.setdefault(name, row.gpu)
        if row.latency_us is None or row.configuration is None or (wanted is not None and name != wanted):
            continue
        if row.problem is not before:  # sweeps have the rows of a problem one after another
            before, columns = row.problem, tuple(name for name in OPTIONAL_COLUMNS if name in row.cells)
            key = _problem_key(row.problem, columns)
            problems.setdefault(key, row.problem)
            of_problem = latencies.setdefault(key, {})
        of_problem[_configuration_key(row.configuration)] = (row.latency_us, row.configuration)
    if wanted is not None and wanted not in gpus:
        expected = f"one of {', '.join(sorted(gpus.values()))}" if gpus else "rows with a configuration and a latency"
        raise UsageError(f"{source}: has no rows of this GPU", gpu, expected)
    if wanted is None and len(gpus) > 1:
        raise UsageError(
            f"{source}: has rows of several GPUs",
            ", ".join(sorted(gpus.values())),
            "one",
            "say which with --gpu NAME",
        )
    if not latencies:
        raise InputError(f"{source}: has no latency of a known configuration", None, "rows with configuration columns and latency_us")
    name = wanted if wanted is not None else next(iter(gpus))
    return Recording(gpu=name, source=source, columns=columns, latencies=latencies, problems=problems)
