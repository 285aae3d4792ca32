"""The caches of other tuners: Triton's `*.autotune.json` and triton-dejavu's `cache.json`, read as rows of ours.

Triton's file holds every configuration's timings for one key; its folder is a hash, so that kernel and GPU must be known from
elsewhere. triton-dejavu's holds the best configuration per key, as text; kernel, GPU and Triton version stand in its path
(`…/triton_3.2.0/gpu_NVIDIA_H100/KERNEL…/cache.json`).
"""

from __future__ import annotations

import json
import math
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTiming:
    """One timing of another tuner, and whether it was found best: then its latency need not be known."""

    kernel: str
    key: str
    gpu: str | None
    row: Row
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
    rows = []
    for config, timing in document["configs_timings"]:
        values = timing if isinstance(timing, list) else [timing] * 3
        us, low, high = (1e3 * float(each) for each in (values + values[-1:] * 2)[:3])
        row = Row(_identity(config["kwargs"], config), "crash", reason="imported from Triton's cache")
        rows.append(row._replace(state="measured", us=us, low_us=low, high_us=high) if math.isfinite(us) else row)
    best = min((row for row in rows if row.us is not None), key=lambda row: row.us or 0.0, default=None)
    for row in rows:
        yield ForeignTiming(kernel=kernel, key=key, gpu=None, row=row, best=row is best)


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
        us, low, high = [*microseconds, None, None, None][:3]
        state = "not-measured" if us is None else "measured"
        row = Row(_identity(kwargs, options), state, us, low, high, reason="imported from triton-dejavu's cache")
        yield ForeignTiming(kernel=kernel, key=str(key), gpu=gpu, row=row, best=True)


def by_name(kernel: str, gpu: str, key: str) -> ProblemKey:
    """The problem under which timings of a kernel known by name are kept."""
    return ProblemKey(kernel=kernel, source=BY_NAME, triton="", gpu=gpu, key=key)


def add_by_name(cache: Cache, timings: list[ForeignTiming], gpu: str) -> int:
    """Keeps timings of kernels known by name; how many problems they belong to."""
    problems: dict[ProblemKey, list[ForeignTiming]] = {}
    for timing in timings:
        problems.setdefault(by_name(timing.kernel, gpu, timing.key), []).append(timing)
    for key, members in problems.items():
        cache.add_problem(key)
        cache.record_all(key.id, [member.row for member in members])
        for best in (member for member in members if member.best):
            cache.decide(key.id, "", best.row.config, "imported")
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
