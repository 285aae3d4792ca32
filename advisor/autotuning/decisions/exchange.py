"""Taking the cache elsewhere: a JSON file to ship in a container; and bringing in such a file, or what other tuners left.

Triton's `KERNEL.autotune.json` (`triton.autotune(…, cache_results=True)`) has every configuration's timings for one key; it lies in a
folder named by a hash, and says nothing of the GPU. triton-dejavu's `cache.json` has the best configuration for each key, as text; the GPU
stands in its path (`…/gpu_NVIDIA_H100/KERNEL…/cache.json`). Both know a kernel by its name only.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from advisor.autotuning.decisions.cache import BY_NAME, FILE_NAME, IMPORTED, Cache, ProblemKey, Row, copy_of
from advisor.autotuning.keys import CONFIG_OPTIONS, identity, parameters
from advisor.gpus.hardware import gpu_model
from advisor.rows.cells import LATENCY_LIMIT, is_latency
from advisor.system.errors import InputError, NothingMatchedError, NotOursError, UsageError
from advisor.system.reading import parse_json, read_bytes
from advisor.system.settings import read_settings

MAX_FILE_BYTES = 200_000_000


FORMAT = "triton-advisor tuning cache"
VERSION = 1
SIMULATED = "simulated"

_SQLITE = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One problem with everything known of it. `decided`: list, configuration, how, time; newest first."""

    key: ProblemKey
    rows: tuple[Row, ...]
    decided: tuple[tuple[str, str, str, float], ...]
    simulated: bool = False  # nothing was run for its latencies

    @property
    def best(self) -> str | None:
        """The configuration decided last, else the fastest measured."""
        if self.decided:
            return self.decided[0][1]
        measured = [row for row in self.rows if row.us is not None]
        return min(measured, key=lambda row: (row.us or 0.0, row.config)).config if measured else None

    @property
    def best_us(self) -> float | None:
        """Its latency, where it was measured."""
        return next((row.us for row in self.rows if row.config == self.best), None)


def entries(cache: Cache, kernel: str | None = None, gpu: str | None = None) -> Iterator[Entry]:
    """The problems of the cache, most recently used first."""
    for key in cache.problems():
        if (kernel is None or key.kernel == kernel) and (gpu is None or key.gpu == gpu_model(gpu)):
            rows = sorted(cache.rows(key.id).values(), key=lambda row: (row.us is None, row.us or 0.0, row.config))
            yield Entry(key=key, rows=tuple(rows), decided=tuple(cache.decisions(key.id)))


def to_json(listed: Iterable[Entry]) -> str:
    """An export."""
    problems = [
        {**asdict(entry.key), "timings": [row._asdict() for row in entry.rows], "decisions": [list(decision) for decision in entry.decided]}
        for entry in listed
    ]
    return json.dumps({"format": FORMAT, "version": VERSION, "problems": problems}, indent=1) + "\n"


def import_path(cache: Cache, path: Path, gpu: str | None = None) -> int:
    """Brings in one export, or one file of another tuner, and says how many problems it has. What is measured already
    stays as it is.

    Args:
        cache: Where to.
        path: The file.
        gpu: Where another tuner's file was measured, if its path does not say.

    Raises:
        InputError: It cannot be read.
        NotOursError: It is something else.
        UsageError: Nothing says on which GPU it was measured.
    """
    document = _document(path)
    if not isinstance(document, Mapping) or document.get("format") != FORMAT:
        document = {"version": VERSION, "problems": problems_of(path, document, gpu)}
    if _simulated(document):
        raise InputError(
            f"{path}: its latencies are simulated, and would be taken for this machine's kernels'",
            None,
            None,
            "`advisor advise` reads it as it is",
        )
    return _import_export(cache, path, document)


def _document(path: Path) -> Any:
    return parse_json(read_bytes(path, str(path), "a JSON file", MAX_FILE_BYTES), str(path))


def _simulated(document: Any) -> bool:
    """Whether an export says that nothing was run for its latencies, by the name and in the word that rows have for it."""
    return isinstance(document, Mapping) and document.get("origin") == SIMULATED


def _import_export(cache: Cache, path: Path, document: Mapping[str, Any]) -> int:
    if document.get("version") != VERSION:
        raise InputError(f"{path}: written by another version", document.get("version"), f"version {VERSION}")
    try:
        if not isinstance(document["problems"], list):
            raise TypeError("its problems are no list")
        for problem in document["problems"]:
            text = {name: problem[name] for name in ("kernel", "source", "triton", "gpu", "key", "family", "problem")}
            odd = {name: value for name, value in text.items() if not isinstance(value, str)}
            if any(value is not None or name not in ("family", "problem") for name, value in odd.items()):
                raise ValueError(f"a problem's names must be text: {odd}")
            key = ProblemKey(**text)
            rows = [_row(timing) for timing in problem["timings"]]
            decided = [(str(decision[0]), str(decision[1]), str(decision[2])) for decision in problem["decisions"]]
            for _, config, _ in decided:
                parameters(config)  # raises where it is no configuration
            cache.add_problem(key)
            cache.record_all(key.id, rows, replace_existing=False)
            for name, config, how in decided:
                cache.decide(key.id, name, config, how)
    except (KeyError, TypeError, ValueError, IndexError, OverflowError) as error:  # the last: an integer beyond what a float holds
        raise InputError(f"{path}: a damaged export", f"{type(error).__name__}: {error}") from None
    return len(document["problems"])


def cache_file(text: str) -> tuple[Path, str | None] | None:
    """The file (a cache or an export of one) and the kernel that `PATH[::KERNEL]` names; None: it is no tuning cache.

    PATH is the SQLite file, the folder it lies in, an export, or the word `cache`: the one that the environment names.

    Raises:
        NothingMatchedError: `cache`, and there is none.
    """
    name, _, kernel = text.partition("::")
    path = Path(name)
    try:
        if name == "cache" and not path.exists():
            path = read_settings().cache_dir / FILE_NAME
            if not path.exists():
                raise NothingMatchedError(
                    f"{path.parent}: there is no tuning cache",
                    None,
                    None,
                    "run a kernel with @advisor.autotune first, or name the cache's file",
                )
        if path.is_dir() and (path / FILE_NAME).is_file():
            path = path / FILE_NAME
        if not path.is_file():
            return None
        with path.open("rb") as stream:
            head = stream.read(256)
    except (OSError, ValueError):
        return None
    ours = head.startswith(_SQLITE) or path.name == FILE_NAME or (path.suffix == ".json" and FORMAT.encode() in head)
    return (path, kernel or None) if ours else None


def read_cache_file(path: Path) -> list[Entry]:
    """The problems in a cache's file or an export, most recently used first; nothing is written.

    Raises:
        InputError: It is damaged.
    """
    simulated = False
    if path.suffix == ".json":
        cache, document = Cache(None), _document(path)
        _import_export(cache, path, document)
        simulated = _simulated(document)
    else:
        cache = copy_of(path)
    try:
        problems = [replace(entry, simulated=simulated) for entry in entries(cache)]
        for row in (row for entry in problems for row in entry.rows):
            _checked(row)
        return problems
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: damaged", f"{error}", None, "`advisor cache prune` removes problems from a cache") from None
    finally:
        cache.close()


def _row(values: Mapping[str, Any]) -> Row:
    numbers = {name: None if values[name] is None else float(values[name]) for name in ("us", "low_us", "high_us", "predicted_us")}
    parameters(str(values["config"]))  # raises where it is no configuration
    if not isinstance(values["state"], str):
        raise ValueError(f"a timing's state is no text: {values['state']!r}")
    row = Row(config=str(values["config"]), state=values["state"], reason=str(values["reason"]), at=float(values["at"]), **numbers)
    if not math.isfinite(row.at):
        raise ValueError(f"a timing was taken at {row.at}")
    return _checked(row)


ROUNDING = 1e-9
"""Share by which a latency may lie beyond its interval: of equal samples their mean is one of neither end in the last digit."""


def _checked(row: Row) -> Row:
    """The row, if its times are such as a clock can show.

    Raises:
        ValueError: They are not.
    """
    for name in ("us", "low_us", "high_us"):
        value = getattr(row, name)
        if value is not None and not is_latency(value):
            raise ValueError(f"a latency, {name}, of {value!r}; expected {LATENCY_LIMIT}")
    if row.us is None and row.state == "measured":
        raise ValueError("a measured configuration without a latency")
    low, high = row.low_us or row.us, row.high_us or row.us
    if row.us is not None and low is not None and high is not None and not low * (1 - ROUNDING) <= row.us <= high * (1 + ROUNDING):
        raise ValueError(f"a latency of {row.us!r} outside of its own interval, {row.low_us!r} to {row.high_us!r}")
    return row


__all__ = [
    "Entry",
    "cache_file",
    "entries",
    "import_path",
    "read_cache_file",
    "to_json",
]

FILES = (".autotune.json", "cache.json")
"""How the names of their files end."""
_GPU = re.compile(r"[/\\]gpu_([^/\\]+)[/\\]")


def problems_of(path: Path, document: Any, gpu: str | None) -> list[dict[str, Any]]:
    """The problems of such a file, as an export has them.

    Args:
        path: Of the file: Triton's names the kernel, triton-dejavu's the GPU.
        document: Its content.
        gpu: Where it was measured; None: as its path says.

    Raises:
        NotOursError: It is of neither tuner.
        InputError: It is damaged.
        UsageError: Nothing says on which GPU it was measured.
    """
    gpus = _GPU.search(str(path.absolute()))
    where = gpu or (gpus[1] if gpus else None)
    try:
        if isinstance(document, Mapping) and "configs_timings" in document:
            kernel = path.name.removesuffix(".json").removesuffix(".autotune")
            rows = [_row_of_config(SimpleNamespace(**config), timing) for config, timing in document["configs_timings"]]
            keys = {str(_tuples(document["key"])): rows}
        elif isinstance(document, Mapping) and isinstance(document.get("cache"), Mapping) and "signature" in document:
            kernel = re.split("[.:]", document["signature"].rstrip(")"))[-1]
            timings = document.get("timings") or {}
            keys = {key: [_row_of_config(_configuration(text), timings.get(key))] for key, text in document["cache"].items()}
        else:
            raise NotOursError(
                f"{path}: not a tuning cache",
                None,
                "an export of `advisor cache export`, Triton's *.autotune.json or triton-dejavu's cache.json",
            )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{path}: damaged", f"{type(error).__name__}: {error}") from None
    if where is None:
        raise UsageError(f"{path}: does not say on which GPU it was measured", None, None, "say which with --gpu NAME")
    about = {"kernel": kernel, "source": BY_NAME, "triton": "", "gpu": gpu_model(where), "family": None, "problem": None}
    return [
        {**about, "key": key, "timings": [row._asdict() for row in rows], "decisions": [("", row.config, IMPORTED) for row in _best(rows)]}
        for key, rows in keys.items()
    ]


def _best(rows: list[Row]) -> list[Row]:
    """The fastest of one key, or the only one, if any ran."""
    return sorted((row for row in rows if row.state != "crash"), key=lambda row: row.us or 0.0)[:1]


def _row_of_config(config: SimpleNamespace, timing: Any) -> Row:
    """A configuration with its times in milliseconds: the median, or that and two quantiles; None: not known; infinite: it failed."""
    values = timing.get("values") if isinstance(timing, Mapping) else timing
    listed = values if isinstance(values, list) else [values]
    us, low, high = [*(1e3 * float(value) for value in listed[:3] if value is not None), None, None, None][:3]
    row = Row(identity(config), "not-measured", reason="imported from another tuner's cache")
    if us is None:
        return row
    return row._replace(state="measured", us=us, low_us=low, high_us=high) if math.isfinite(us) else row._replace(state="crash")


def _configuration(text: str) -> SimpleNamespace:
    """A configuration that triton-dejavu wrote: "BLOCK: 128, num_warps: 4, maxnreg: None"."""
    kwargs, options = dict[str, Any](), dict[str, Any]()
    for name, _, value in (part.partition(": ") for part in text.split(", ")):
        if name not in ("pre_hook", "enable_persistent", "enable_warp_specialization"):
            (options if name in CONFIG_OPTIONS else kwargs)[name] = _value(value)
    return SimpleNamespace(kwargs=kwargs, **options)


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
