"""The caches of other tuners: Triton's `*.autotune.json` and triton-dejavu's `cache.json`, read as rows of ours.

Triton's file holds every configuration's timings for one key; its folder is a hash, so that kernel and GPU must be known from
elsewhere. triton-dejavu's holds the best configuration per key, as text; kernel, GPU and Triton version stand in its path
(`…/triton_3.2.0/gpu_NVIDIA_H100/KERNEL…/cache.json`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from advisor.autotuning.decisions.cache import Cache, ProblemKey, Row
from advisor.autotuning.triton_configs import CONFIG_OPTIONS, identity
from advisor.system.errors import InputError, NotOursError
from advisor.system.reading import read_bytes

MAX_FILE_BYTES = 200_000_000
BY_NAME = "by-name"
"""Source of imported problems: their kernel is known by name only."""

_DEJAVU_GPU = re.compile(r"[/\\]gpu_([^/\\]+)[/\\]")
_DEJAVU_TRITON = re.compile(r"[/\\]triton_([^/\\]+)[/\\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTiming:
    """One timing of another tuner; `us` None: it was found best, and its latency is not known."""

    kernel: str
    key: str
    gpu: str | None
    config: str  # identity
    us: float | None
    low_us: float | None = None
    high_us: float | None = None
    failed: bool = False
    best: bool = False


def read_json(path: Path) -> Any:
    """A JSON file.

    Raises:
        InputError: It cannot be read.
    """
    try:
        return json.loads(read_bytes(path, str(path), "a JSON file", MAX_FILE_BYTES))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: cannot be read as JSON", error) from None


def read_foreign(path: Path, document: Any) -> list[ForeignTiming]:
    """The timings of a file of Triton's or triton-dejavu's.

    Raises:
        NotOursError: It is neither.
        InputError: It is, but damaged.
    """
    try:
        if isinstance(document, Mapping) and "configs_timings" in document:
            return list(_triton(path, document))
        if isinstance(document, Mapping) and isinstance(document.get("cache"), Mapping) and "signature" in document:
            return list(_dejavu(path, document))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise InputError(f"{path}: damaged", f"{type(error).__name__}: {error}") from None
    raise NotOursError(
        f"{path}: not a tuning cache", None, "an export of `advisor cache export`, Triton's *.autotune.json, or triton-dejavu's cache.json"
    )


def _triton(path: Path, document: Mapping[str, Any]) -> Iterator[ForeignTiming]:
    kernel = path.name.removesuffix(".json").removesuffix(".autotune")
    key = str(_tuples(document.get("key") or ()))
    found = []
    for config, timing in document["configs_timings"]:
        values = timing if isinstance(timing, list) else [timing] * 3
        median, low, high = (1e3 * float(v) for v in (values + values[-1:] * 2)[:3])
        found.append((_identity(config["kwargs"], config), median, low, high))
    finite = [each for each in found if each[1] == each[1] and each[1] != float("inf")]
    best = min(finite, key=lambda each: each[1])[0] if finite else None
    for name, median, low, high in found:
        ok = (name, median, low, high) in finite
        yield ForeignTiming(
            kernel=kernel,
            key=key,
            gpu=None,
            config=name,
            us=median if ok else None,
            low_us=low if ok else None,
            high_us=high if ok else None,
            failed=not ok,
            best=name == best,
        )


def _dejavu(path: Path, document: Mapping[str, Any]) -> Iterator[ForeignTiming]:
    kernel = str(document["signature"]).rstrip(")").rpartition(":")[2].rpartition(".")[2] or str(document["signature"])
    gpu = match[1] if (match := _DEJAVU_GPU.search(str(path))) else None
    timings = document.get("timings") or {}
    for key, config in document["cache"].items():
        kwargs, options = {}, {}
        for part in str(config).split(", "):
            name, _, text = part.partition(": ")
            value = _value(text)
            if name in CONFIG_OPTIONS or name == "pre_hook":
                options[name] = value
            elif name not in ("enable_persistent", "enable_warp_specialization"):
                kwargs[name] = value
        timing = timings.get(key)
        values = timing.get("values", []) if isinstance(timing, Mapping) else timing if isinstance(timing, list) else [timing]
        microseconds: list[float | None] = [1e3 * float(v) for v in values if isinstance(v, (int, float))]
        microseconds = microseconds or [None]
        yield ForeignTiming(
            kernel=kernel,
            key=str(key),
            gpu=gpu,
            config=_identity(kwargs, options),
            us=microseconds[0],
            low_us=microseconds[1] if len(microseconds) > 1 else None,
            high_us=microseconds[2] if len(microseconds) > 2 else None,
            best=True,
        )


def dejavu_files(storage: Path, kernel: str) -> list[Path]:
    """triton-dejavu's files of a kernel, whatever version wrote them."""
    try:
        return sorted(path for path in storage.rglob("cache.json") if kernel in str(path.relative_to(storage)))
    except OSError:
        return []


def dejavu_triton_version(path: Path) -> str | None:
    """The Triton version in a path of triton-dejavu's."""
    match = _DEJAVU_TRITON.search(str(path))
    return match[1] if match else None


def by_name(kernel: str, gpu: str, key: str) -> ProblemKey:
    """The problem under which timings of a kernel known by name are kept."""
    return ProblemKey(kernel=kernel, source=BY_NAME, triton="", gpu=gpu, key=key)


def rows_of(timings: list[ForeignTiming], origin: str) -> list[Row]:
    """Rows of ours."""
    rows = []
    for timing in timings:
        state = "measured" if timing.us is not None else "crash" if timing.failed else "not-measured"
        rows.append(
            Row(
                config=timing.config,
                state=state,
                us=timing.us,
                low_us=timing.low_us,
                high_us=timing.high_us,
                reason=f"imported from {origin}",
            )
        )
    return rows


def add_by_name(cache: Cache, timings: list[ForeignTiming], gpu: str, origin: str) -> int:
    """Keeps timings of kernels known by name; how many problems they belong to."""
    problems: dict[str, list[ForeignTiming]] = {}
    keys: dict[str, ProblemKey] = {}
    for timing in timings:
        key = by_name(timing.kernel, gpu, timing.key)
        keys[key.id] = key
        problems.setdefault(key.id, []).append(timing)
    for name, members in problems.items():
        cache.add_problem(keys[name])
        cache.record_all(name, rows_of(members, origin))
        for best in (member for member in members if member.best):
            cache.decide(name, "", best.config, "imported")
    return len(problems)


def _identity(kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    values = {"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None, "ir_override": None}
    values |= {name: options[name] for name in CONFIG_OPTIONS if name in options}
    return identity(SimpleNamespace(kwargs=dict(kwargs), pre_hook=None, **values))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value


def _value(text: str) -> Any:
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
