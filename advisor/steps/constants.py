"""The fitted constants of steps: `ceilings/steps.json`, which `advisor train --steps` writes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from advisor.steps.collectives import Curves
from advisor.system.resources import folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Gaps:
    """What lies between the sum of an engine's kernels and its step: `kernel_us` per kernel, `launch_us` that the host takes per launch
    without a CUDA graph, which shows where kernels end sooner, and `busy`, which the kernels' own time is multiplied by.

    `kernel_us` is below 0 where kernels were timed alone: what a launch and its events take is in every such timing, and a queue hides it.
    """

    kernel_us: float
    launch_us: float
    busy: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """Everything about steps that was fitted, and the GPUs whose steps gaps and spread were fitted to.

    `spread` widens the 80 % interval of a step, by its launcher (`step.Priced.launcher`); `served` is half an 80 % interval of the log that
    steps under load add to it, by model, fitted to the other models ("": to all).
    """

    gpus: tuple[str, ...]
    gaps: dict[str, Gaps]
    spread: dict[str, float]
    curves: Curves
    served: dict[str, float]


@cache
def load_constants(path: Path | None = None) -> Constants:
    """The constants shipped, or those of a file."""
    return read_constants(json.loads((path or folder("ceilings") / "steps.json").read_text(encoding="utf-8")))


def read_constants(values: dict[str, Any]) -> Constants:
    """The constants as they are stored."""
    return Constants(
        gpus=tuple(values["gpus"]),
        gaps={engine: Gaps(**each) for engine, each in values["gaps"].items()},
        spread=values["spread"],
        served=values["served"],
        curves=read_curves(values["collectives"]),
    )


def read_curves(stored: dict[str, Any]) -> Curves:
    """Those of collectives."""
    of = {gpu: {op: {int(n): tuple(us) for n, us in by.items()} for op, by in ops.items()} for gpu, ops in stored["curves"].items()}
    return Curves(log2_bytes=tuple(stored["log2_bytes"]), of=of)
