"""Launch records: what `advisor record` writes, one JSON object per line."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from advisor.python_source.literal_values import Passed, Symbol
from advisor.rows.tritonparse import as_record, is_tritonparse
from advisor.system.errors import InputError
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
