"""Launch records: what `advisor record` writes, one JSON object per line; and logs of TritonParse read as such (0.6: NDJSON, an event a
line).

A log's `compilation` events hold a kernel's own source and where it stands; `launch` events hold the grid, every argument and the options.
What the log does not hold is read from the kernel's file where that lies on this machine as it was, and asked for elsewhere.
"""

from __future__ import annotations

import builtins
import hashlib
import json
import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.python_source.jit_function import JitFunction
from advisor.python_source.kernel_forms import free_names
from advisor.python_source.literal_values import Passed, Symbol
from advisor.python_source.source import SourceFile, parse_source
from advisor.system.errors import AdvisorError, InputError
from advisor.system.reading import is_given, open_file, read_bytes

FORMAT = "triton-advisor launches 1"
MAX_BYTES = 1_000_000_000
MAX_LINES = 1_000_000
RECORD = "a file that `advisor record` wrote"
MAX_INTEGER = 2**64
"""No integer that a kernel takes is as large."""
MOST_DIMENSIONS = 64
"""Of a tensor: what torch allows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedLaunch:
    """One distinct launch of a recorded program.

    `count` is how often it ran, `times_us` what some of those took on the recorded GPU, `at_most_us` what others did where the GPU
    had nothing else to do and the launch from Python is in the time, `tuning` whether it was a trial of `@triton.autotune` or
    `@advisor.autotune`.
    """

    id: str
    kernel: str
    line: int
    source: str | None
    signature: Mapping[str, str]
    constexprs: Mapping[str, Any]
    arguments: Mapping[str, Any]
    tensors: Mapping[str, Mapping[str, Any]]
    contents: Mapping[str, Any]
    options: Mapping[str, int]
    grid: tuple[int, ...]
    files: tuple[str, ...] = ()
    constants: Mapping[str, Any] = field(default_factory=dict)
    device: str | None = None
    tuning: bool = False
    count: int = 1
    times_us: tuple[float, ...] = ()
    at_most_us: tuple[float, ...] = ()

    @property
    def cost_us(self) -> float:
        """Microseconds of all its runs, about; 0 where nothing was timed."""
        times = self.times_us or self.at_most_us
        return statistics.median(times) * self.count if times else 0.0


@dataclass(frozen=True, kw_only=True)
class LaunchRecords:
    """A record file. `sources` maps the hash of a file to (path, text); of a damaged one some lines cannot be read."""

    path: Path
    launches: tuple[RecordedLaunch, ...]
    sources: Mapping[str, tuple[str, str]] = field(repr=False)
    versions: Mapping[str, str] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    damaged: bool = False


def is_launch_record(path: str | Path) -> bool:
    """Whether a file begins as a launch record does, or is called like one: what is wrong with it, the reading says."""
    try:
        suffixes = Path(path).suffixes[-2:]
        if (suffixes[-1:] == [".jsonl"] or {".ndjson"} & {*suffixes}) and Path(path).exists():
            return True
        if is_given(path):
            return False
        with open_file(path, str(path), RECORD) as stream:
            return FORMAT.encode() in stream.readline(4096)
    except (InputError, OSError):
        return False


def read_launches(path: str | Path) -> LaunchRecords:
    """Read a record; a last line that was cut off by a crash is left out.

    Raises:
        InputError: It cannot be read, or is none.
    """
    path = Path(path)
    lines = read_bytes(path, str(path), RECORD, MAX_BYTES, unpack=True).decode("utf-8", "replace").splitlines()
    if lines and is_tritonparse(lines[0]):
        lines = list(as_record(lines[:MAX_LINES], json.dumps({"format": FORMAT})))
    if not lines or FORMAT not in lines[0][:4096]:
        raise InputError(f"{path}: is not a launch record", lines[0][:80] if lines else "an empty file", RECORD)
    recorded: dict[str, dict[str, Any]] = {}
    counts: dict[tuple[str, Any], int] = {}
    times: dict[tuple[str, str], list[float]] = {}
    sources: dict[str, tuple[str, str]] = {}
    versions: dict[str, str] = {}
    problems: list[str] = []
    damage: list[str] = []
    for number, line in enumerate(lines[:MAX_LINES], 1):
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            damage.append(f"line {number} is not JSON" + (" (cut off)" if number == len(lines) else ""))
            continue
        if not isinstance(value, dict):
            damage.append(f"line {number} is not an object")
        elif "launch" in value:
            recorded.setdefault(str(value["launch"]), value)
            if "process" in value:  # older records do not say
                counts.setdefault((str(value["launch"]), str(value["process"])), 1)
        elif "source" in value:
            sources[str(value["source"])] = (str(value.get("path", "")), str(value.get("text", "")))
        elif "count_of" in value:
            key = (str(value["count_of"]), str(value.get("process")))
            if type(value.get("count")) is int and 0 <= value["count"] < MAX_INTEGER:
                counts[key] = max(counts.get(key, 0), value["count"])
            else:
                damage.append(f"line {number} has no count")
            for kind in ("times_us", "at_most_us"):
                taken = value.get(kind, [])
                if isinstance(taken, list) and all(type(t) in (int, float) and -MAX_INTEGER < t < MAX_INTEGER for t in taken):
                    times.setdefault((kind, key[0]), []).extend(t for t in taken if t > 0)
                else:
                    damage.append(f"line {number} has no times in {kind}")
        elif "versions" in value and isinstance(value["versions"], dict):
            versions |= {str(k): str(v) for k, v in value["versions"].items()}
        elif "problem" in value:
            problems.append(str(value["problem"]))
    launches = []
    often: dict[str, int] = {}
    for (name, _), count in counts.items():
        often[name] = often.get(name, 0) + count
    paths = {digest: path for digest, (path, _) in sources.items()}
    for name, value in recorded.items():
        try:
            taken = times.get(("times_us", name), []), times.get(("at_most_us", name), [])
            launches.append(recorded_launch(name, value, often.get(name) or 1, *taken, paths))
        except UnrecordedError as error:
            problems.append(f"{value.get('kernel', 'a kernel')}, launch {name}: left out, for {error}")
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
            damage.append(f"launch {name} of {value.get('kernel', 'no kernel')}: {type(error).__name__}: {error}")
    return LaunchRecords(
        path=path, launches=tuple(launches), sources=sources, versions=versions, problems=(*damage, *problems), damaged=bool(damage)
    )


def recorded_launch(
    key: str, value: Mapping[str, Any], count: int, times: list[float], at_most: list[float], paths: Mapping[str, str]
) -> RecordedLaunch:
    """A launch from its JSON form.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: It is none; `UnrecordedError` where a record can tell nothing of a constant.
    """
    _check_tensors(value["tensors"])
    _check_numbers(value["arguments"], value["signature"], value.get("contents") or {})
    for name in ("source", "device"):
        if not isinstance(value.get(name), (str, type(None))):
            raise ValueError(f"a {name} that is no text")
    return RecordedLaunch(
        id=key,
        kernel=str(value["kernel"]),
        line=int(value.get("line", 0)),
        source=value.get("source"),
        signature={str(k): str(v) for k, v in value["signature"].items()},
        constexprs={str(k): constant(v, str(k), paths) for k, v in value["constexprs"].items()},
        arguments=dict(value["arguments"]),
        tensors=dict(value["tensors"]),
        contents=dict(value.get("contents") or {}),
        options={str(k): int(v) for k, v in (value.get("options") or {}).items()},
        grid=tuple(int(n) for n in value["grid"]),
        files=tuple(str(f) for f in value.get("files") or ()),
        constants={str(k): constant(v, str(k), paths) for k, v in (value.get("constants") or {}).items()},
        device=value.get("device"),
        tuning=bool(value.get("tuning")),
        count=count,
        times_us=tuple(times),
        at_most_us=tuple(at_most),
    )


def _check_tensors(tensors: Mapping[str, Any]) -> None:
    """Refuse tensors that are not described as the recorder describes them: sizes and strides are lists of integers.

    Raises:
        ValueError: One is not.
    """
    for name, tensor in tensors.items():
        if not isinstance(tensor, dict):
            raise ValueError("a tensor that is not described")
        for field_ in ("shape", "strides", "descriptor_shape", "descriptor_strides"):
            sizes = tensor.get(field_, [])
            if not isinstance(sizes, list) or not all(type(n) is int and abs(n) < MAX_INTEGER for n in sizes):
                raise ValueError(f"{field_} of {name}: no list of integers")
        shape = tensor.get("shape", [])
        if len(shape) > MOST_DIMENSIONS or abs(math.prod(shape)) >= MAX_INTEGER:
            raise ValueError(f"shape of {name}: larger than any tensor")
        if "same_as" in tensor:
            other = tensors.get(tensor["same_as"]) if isinstance(tensor["same_as"], str) else None
            alike = ("dtype", "shape", "strides")
            if not isinstance(other, dict) or "same_as" in other or any(other.get(key) != tensor.get(key) for key in alike):
                raise ValueError(f"same_as of {name}: no other tensor of the same type, shape and strides")


def _check_numbers(arguments: Mapping[str, Any], types: Mapping[str, Any], contents: Mapping[str, Any]) -> None:
    """Refuse what no integer argument can be, and contents that are no integers: of other tensors none are recorded.

    Raises:
        ValueError: There is one.
    """
    for name, value in arguments.items():
        whole = not str(types.get(name, "")).startswith(("i", "u")) or isinstance(value, int)
        if not whole or (isinstance(value, int) and abs(value) >= MAX_INTEGER):
            raise ValueError(f"argument {name}: no integer of 64 bits")
    for name, values in contents.items():
        if not isinstance(values, list) or not all(isinstance(n, int) and abs(n) < MAX_INTEGER for n in values):
            raise ValueError(f"contents of {name}: no list of integers")


class UnrecordedError(ValueError):
    """A constant of a launch is of a kind that no record holds; the record is whole all the same."""


def constant(value: Any, name: str, paths: Mapping[str, str]) -> Any:
    """A constant from its JSON form.

    Args:
        value: The JSON.
        name: Of the argument.
        paths: Of recorded files, by their hashes.

    Raises:
        UnrecordedError: It is of a kind that is not recorded.
    """
    if isinstance(value, dict):
        if "function" in value and value.get("source") in paths:
            return Passed(name=str(value["function"]), path=paths[value["source"]])
        if "language" in value:
            return Symbol(f"tl.{value['language']}")
        if "dtype" in value:
            return Symbol(
                "tl."
                + {
                    "fp32": "float32",
                    "fp16": "float16",
                    "bf16": "bfloat16",
                    "fp64": "float64",
                    "i32": "int32",
                    "i64": "int64",
                    "i8": "int8",
                }.get(str(value["dtype"]), str(value["dtype"]))
            )
        if "tuple" in value:
            return tuple(constant(v, name, paths) for v in value["tuple"])
        raise UnrecordedError(f"{name} holds a {value.get('unknown', 'function')}, of which a record can tell nothing")
    return value


SHORT = {"float": "fp", "bfloat": "bf", "int": "i", "uint": "u"}
FLOAT8 = {"float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5", "float8_e4m3fnuz": "fp8e4b8", "float8_e5m2fnuz": "fp8e5b16", "bool": "i1"}
OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg", "waves_per_eu", "matrix_instr_nonkdim", "kpack")
TRIALS = {"_bench", "do_bench", "do_bench_cudagraph"}
"""Functions in the stack of a launch that is a trial of an autotuner."""


def is_tritonparse(line: str) -> bool:
    """Whether a file's first line is an event of TritonParse."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(event, dict) and "event_type" in event and "pid" in event


def as_record(lines: Iterable[str], first: str) -> Iterator[str]:
    """The lines of a launch record, `first` first: sources, versions, launches with their counts, and what is missing."""
    yield first
    kernels: dict[str, dict[str, Any]] = {}
    launches: list[dict[str, Any]] = []
    for line in lines:
        try:
            event = json.loads(line)
        except (ValueError, RecursionError):
            yield line  # the reading of the record says so
            continue
        kind = event.get("event_type") if isinstance(event, dict) else None
        payload = event.get("payload") if kind == "compilation" else None
        if isinstance(payload, dict) and isinstance(payload.get("metadata"), dict):
            kernels[str(payload["metadata"].get("hash"))] = payload
        elif kind == "launch":
            launches.append(event)
    if not launches:
        yield _problem(
            "the log holds compilations and no launch, whose grid and arguments a prediction needs: set TRITON_TRACE_LAUNCH=1 "
            "(tritonparse.structured_logging.init(…, enable_trace_launch=True)) and record again"
        )
    counts: dict[str, int] = {}
    written: set[str] = set()
    for event in launches:
        name, metadata = str(event.get("name")), event.get("compilation_metadata") or {}
        compiled = kernels.get(str(metadata.get("hash")), {})
        source = compiled.get("python_source") or {}
        if not source.get("code"):
            yield _problem(f"{name}: its source is not in the log, for it was compiled before; clear Triton's cache and record again")
            continue
        try:
            path, text = str(source.get("file_path", "kernel.py")), _text(source)
            file = parse_source(text, path)
            kernel = file.kernel(name)
            launch = _launch(event, metadata, source, kernel.constants)
            missing = ", ".join(_missing(file, kernel))
        except (KeyError, TypeError, ValueError, AttributeError, AdvisorError) as error:
            yield _problem(f"{name}: a launch is left out ({type(error).__name__}: {error})")
            continue
        if missing:
            yield _problem(f"{name} calls {missing}, and the log holds a kernel without what it calls; run this where {path} is as it was")
            continue
        digest = launch["source"] = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        if digest not in written:
            written.add(digest)
            yield json.dumps({"source": digest, "path": path, "text": text})
            yield json.dumps({"versions": {"triton": str(metadata.get("triton_version", ""))}})
        key = hashlib.sha256(json.dumps(launch, sort_keys=True).encode()).hexdigest()[:16]
        counts[key] = counts.get(key, 0) + 1
        if counts[key] == 1:
            yield json.dumps({"launch": key, **launch})
    for key, count in counts.items():
        yield json.dumps({"count_of": key, "count": count})


def _problem(text: str) -> str:
    return json.dumps({"problem": text})


def _launch(event: Mapping[str, Any], metadata: Mapping[str, Any], source: Mapping[str, Any], constant: Set[str]) -> dict[str, Any]:
    """A launch as `advisor record` writes it, but for its source; `constant`: the parameters that are constants by their annotation.

    Raises:
        ValueError: Its arguments were not written down (a CUDA graph was being captured), or one has a type that Triton has no word for.
    """
    given = event.get("extracted_args") or {}
    if not given or "_note" in given:
        raise ValueError(f"its arguments were not written down: {given.get('_note', 'none is there')}")
    types: dict[str, str] = {}
    constants: dict[str, Any] = {}
    numbers: dict[str, Any] = {}
    tensors: dict[str, Any] = {}
    for name, value in given.items():
        kind = value["type"]
        if kind == "tensor":
            types[name], tensors[name] = "*" + _element(value["dtype"]), _tensor(value)
        elif kind == "TensorDescriptor":
            block = ",".join(str(int(size)) for size in value["block_shape"])
            types[name] = f"tensordesc<{_element(value['base']['dtype'])}[{block}]>"
            tensors[name] = _tensor(value["base"]) | {"descriptor_shape": value["shape"], "descriptor_strides": value["strides"]}
        elif name in constant or kind not in ("int", "float", "bool"):
            types[name], constants[name] = "constexpr", _constant(kind, value)
        elif kind == "int":
            number = numbers[name] = value["value"]
            types[name] = "i32" if -(2**31) <= number < 2**31 else "i64" if number < 2**63 else "u64"
        else:
            types[name], numbers[name] = "fp32" if kind == "float" else "i1", value["value"]
    grid = event["grid"]
    stack = event.get("stack") or ()
    return {
        "kernel": event["name"],
        "line": int(source.get("start_line", 0)),
        "signature": types,
        "constexprs": constants,
        "arguments": numbers,
        "tensors": tensors,
        "options": {name: metadata[name] for name in OPTIONS if isinstance(metadata.get(name), int)},
        "grid": [int(size) for size in (grid if isinstance(grid, list) else [grid])],
        "tuning": any(isinstance(frame, dict) and frame.get("name") in TRIALS for frame in stack),
    }


def _constant(kind: str, value: Mapping[str, Any]) -> Any:
    if kind == "NoneType":
        return None
    if "value" in value:
        return value["value"]
    return {"dtype": value["repr"]} if kind == "dtype" else {"unknown": kind}


def _tensor(value: Mapping[str, Any]) -> dict[str, Any]:
    """Shape, strides, type and alignment of a tensor; an address that is not given is taken as aligned, as torch's are."""
    return {
        "shape": list(value["shape"]),
        "strides": list(value["stride"]),
        "dtype": value["dtype"].removeprefix("torch."),
        "aligned": int(str(value.get("data_ptr", "0")), 0) % 16 == 0,
    }


def _element(dtype: str) -> str:
    """`fp16` of `torch.float16`."""
    name = dtype.removeprefix("torch.")
    word = name.rstrip("0123456789")
    if name not in FLOAT8 and word not in SHORT:
        raise ValueError(f"a tensor of type {name}")
    return FLOAT8.get(name) or SHORT[word] + name[len(word) :]


def _text(source: Mapping[str, Any]) -> str:
    """The kernel's file where it still holds the kernel; else the kernel alone, on its lines."""
    code, path = str(source["code"]), Path(str(source.get("file_path", "")))
    try:
        text = path.read_text(encoding="utf-8")
        if code.strip() in text:
            return text
    except (OSError, ValueError):
        pass
    head = ["import triton", "import triton.language as tl"]
    return "\n".join([*head, *[""] * (int(source.get("start_line", 0)) - 1 - len(head)), code])


def _missing(source: SourceFile, kernel: JitFunction) -> list[str]:
    """Names that a kernel reads and that its file gives nothing."""
    names = free_names(kernel.node).keys() - set(dir(builtins))
    return sorted(name for name in names if not source.module_names.statements(name))
