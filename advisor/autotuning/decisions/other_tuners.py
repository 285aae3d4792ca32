"""What other tuners found, in the form of an export: Triton's own results, and triton-dejavu's.

Triton's `KERNEL.autotune.json` (`triton.autotune(…, cache_results=True)`) has every configuration's timings for one key; it lies in a
folder named by a hash, and says nothing of the GPU. triton-dejavu's `cache.json` has the best configuration for each key, as text; the GPU
stands in its path (`…/gpu_NVIDIA_H100/KERNEL…/cache.json`). Both know a kernel by its name only.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from advisor.autotuning.decisions.cache import BY_NAME, IMPORTED, Row
from advisor.autotuning.triton_configs import CONFIG_OPTIONS, identity
from advisor.gpus.hardware import gpu_model
from advisor.system.errors import InputError, NotOursError, UsageError

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
            rows = [_row(SimpleNamespace(**config), timing) for config, timing in document["configs_timings"]]
            keys = {str(_tuples(document["key"])): rows}
        elif isinstance(document, Mapping) and isinstance(document.get("cache"), Mapping) and "signature" in document:
            kernel = re.split("[.:]", document["signature"].rstrip(")"))[-1]
            timings = document.get("timings") or {}
            keys = {key: [_row(_configuration(text), timings.get(key))] for key, text in document["cache"].items()}
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


def _row(config: SimpleNamespace, timing: Any) -> Row:
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
