"""What was learned of library mixture-of-experts layers: the constants of every series, trees that correct its reference latency, the size
of their errors, and how well they did on models and GPUs left out.

The weights are a file of their own, `ceilings/library.npz` (`advisor train --library`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.learned import bushy_forest, calibration
from advisor.learned.bushy_forest import BushyForest
from advisor.learned.calibration import WIDEST, Calibration
from advisor.learned.library.chip import chip
from advisor.learned.library.moe_layers import FAMILIES, STACKS, MoeLayers, Reference, Terms, family, kernel_class, reference, terms
from advisor.pipelines import Array
from advisor.pipelines.token_draws import BLOCKS
from advisor.system.resources import folder

FILE = "library.npz"
STACK_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM"}
"""Stacks as their authors write them, for reports."""
PREFIX = "library_layers"
TASK = "layer"
ALIKE = 1.4
"""Ratio of the FLOP per clock of two SMs below which one GPU answers for another: not H100 for H20, nor L40S for RTX 4090."""

LEAST_MODELS = 3
"""Models that a kernel was measured with, from which it is offered for others: of fewer its constants are those models'."""


def number(version: str) -> int:
    """`0.5.14` as 514, `1.3.0rc20` as 10300."""
    parts = [int(part) for part in re.findall(r"\d+", version)]
    return sum(part * scale for part, scale in zip((*parts, 0, 0, 0), (10_000, 100, 1), strict=False))


class LayerSeries(NamedTuple):
    """One series of measurements, whatever the GPU: stack, version, the publisher's name of the kernel, format, and `kernel_class`."""

    stack: str
    version: str
    kernel: str
    form: str
    instructions: int

    @property
    def newness(self) -> tuple[int, ...]:
        """Sorts versions of one stack."""
        return tuple(int(part) for part in re.findall(r"\d+", self.version))

    @property
    def place(self) -> tuple[int, str, tuple[int, ...]]:
        """Sorts kernels, so that neighbours run alike."""
        return family(self.kernel), self.kernel, self.newness

    @property
    def words(self) -> str:
        """Its name in reports: `FlashInfer CUTLASS (vLLM 0.24.0)`."""
        return f"{FAMILIES[family(self.kernel)][1]} ({STACK_NAMES[self.stack]} {self.version})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Predicted:
    """Latencies in microseconds, [n] each, an interval that holds four of five, and whether the GPU was measured."""

    us: Array
    low_us: Array
    high_us: Array
    seen: bool


class Corrected(Protocol):
    """A model of series: trees that correct a reference, the size of their errors, and quantiles of these."""

    @property
    def correction(self) -> BushyForest: ...
    @property
    def spread(self) -> BushyForest: ...
    @property
    def calibration(self) -> Calibration: ...


def corrected(model: Corrected, x: Array, identities: Sequence[Array], task: str, seen: bool, gpu: GpuSpec) -> tuple[Array, Array, Array]:
    """The correction of launches (log) and both ends of its 80 % interval beside it (logs), [n] each.

    Args:
        model: Whose trees.
        x: What they see but for the GPU's identity, [n, f].
        identities: Of the GPU, or of those that answer for it: the mean counts.
        task: Name of the errors.
        seen: Whether the GPU was measured.
        gpu: The GPU.
    """
    whole = [np.concatenate([x, np.broadcast_to(each, (len(x), each.size))], axis=1) for each in identities]
    centre, size = (np.add.reduce([trees(each) / len(whole) for each in whole]) for trees in (model.correction, model.spread))
    low, high = (model.calibration.quantile(task, seen, level, gpu.name) for level in (0.1, 0.9))
    return centre, np.clip(low * np.exp(size), -WIDEST, 0), np.clip(high * np.exp(size), 0, WIDEST)


def features(layers: MoeLayers, need: Terms, found: Reference, kernel: Array, series: Sequence[LayerSeries]) -> Array:
    """What the trees see of layers but for the GPU's identity, [n, f].

    Args:
        layers: What is computed.
        need: Of the GPU that they run on.
        found: The reference latency.
        kernel: Place of the series' kernel among all, [n].
        series: Of each layer, [n].
    """
    log, us, loads = np.log, found.us, layers.loads
    n, hidden, width = layers.inner, layers.hidden, layers.width
    columns = {
        "tokens": log(layers.tokens),
        "topk": layers.topk,
        "experts": log(layers.experts),
        "hidden": log(hidden),
        "inner": log(n),
        "width": log(width),
        "used": log(loads.used),
        "share used": loads.used / layers.experts,
        "rows of an expert": log(loads.slots / loads.used),
        "hottest": log(loads.hottest),
        "share hottest": loads.hottest / layers.tokens,
        "slots": log(loads.slots),
        "weights": log(need.weight_bytes),
        "rows": log(need.row_bytes),
        "missed": need.missed,
        "intensity": log(need.flop / (need.weight_bytes + need.row_bytes)),
        "expert": log((width + n) * hidden),
        "alpha": layers.alpha,
        "deep": log(hidden / n),
        "power": log(need.power / us),
        "us": log(us),
        "products": found.products / us,
        "memory": found.memory / us,
        "rows l2": log(need.rows_l2 / us),
        "alignment": np.select([n % 128 == 0, n % 64 == 0, n % 32 == 0, n % 16 == 0], [4.0, 3.0, 2.0, 1.0], 0.0),
    }
    columns |= {f"fill {step} {name}": size / (np.ceil(size / step) * step) for name, size, step in (("n", n, 128), ("h", hidden, 256))}
    columns["fill 256 w"] = width / (np.ceil(width / 256) * 256)
    for i, block in enumerate(BLOCKS):
        columns |= {f"tile {block}": log(need.tiles[:, i] / us), f"fill {block}": loads.slots / (loads.blocks[:, i] * block)}
    for i in (1, 4):
        columns[f"chain {BLOCKS[i]}"] = log(need.chains[:, i] / us)
    columns |= {
        "ungated": layers.ungated,
        "format": layers.form,
        "family": np.array([family(each.kernel) for each in series]),
        "kernel": kernel,
        "stack": np.array([STACKS.index(each.stack) for each in series]),
        "version": np.array([number(each.version) for each in series]),
    }
    return np.stack([np.broadcast_to(np.asarray(each, dtype=np.float32), us.shape) for each in columns.values()], axis=1)


def identity(gpu: GpuSpec) -> Array:
    """Figures that tell measured GPUs apart, the last columns that the trees see."""
    return np.array(list(chip(gpu, "bf16").identity.values()), dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class LibraryLayers:
    """Everything learned about library layers.

    Attributes:
        series: What was measured.
        constants: Logarithms of `moe_layers.CONSTANTS`, of each series, [series, constants].
        correction: log(latency / reference).
        spread: log of the error to expect of that.
        calibration: Quantiles of errors over what is expected.
        measured: By GPU, the models measured of each series by its place.
        held_out: Errors in percent that training saw on models and on GPUs left out, beside the crude baseline's.
    """

    series: tuple[LayerSeries, ...]
    constants: Array
    correction: BushyForest
    spread: BushyForest
    calibration: Calibration
    measured: Mapping[str, Mapping[int, int]]
    held_out: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def kernels(self) -> Mapping[tuple[Any, ...], int]:
        """Places of kernels, by `LayerSeries.place`."""
        return {place: i for i, place in enumerate(sorted({each.place for each in self.series}))}

    def answers_for(self, gpu: GpuSpec) -> bool:
        """Whether the GPU was measured, or one of its target, or of its generation where that has matrix instructions of its own, with SMs
        that multiply about as fast.

        Left out, B200, B300 and GB200 are predicted 5 to 6 % wrong, H100 and H200 12 %; A100 and RTX PRO 6000 S 35 and 21 %, worse than by
        the crude baseline.
        """
        if gpu.vendor != "nvidia":
            return False
        own, instructions = chip(gpu, "bf16"), kernel_class(gpu)
        for name in self.measured:
            other = chip(load_gpu(name), "bf16")
            alike = own.capability == other.capability or instructions == kernel_class(load_gpu(name)) > 0
            if alike and max(own.rate, other.rate) < ALIKE * min(own.rate, other.rate):
                return True
        return False

    def says_of(self, form: str) -> bool:
        """Whether layers of a format are predicted better than by the crude baseline on models left out; others are not answered."""
        figures = self.held_out.get("models", {}).get(f"format {form}")
        return figures is None or figures["mape"] < figures["baseline"]

    def relatives(self, gpu: GpuSpec) -> tuple[str, ...]:
        """The GPUs whose kernels one that was never measured runs: those of its own target; else those of the nearest generation whose SMs
        multiply as fast."""
        own = chip(gpu, "bf16")
        figures = {name: chip(load_gpu(name), "bf16") for name in sorted(self.measured)}
        far = {
            name: (each.capability != own.capability, abs(each.capability - own.capability), abs(np.log2(each.rate / own.rate)))
            for name, each in figures.items()
        }
        return tuple(name for name in figures if far[name] == min(far.values()))

    def answering(self, kernel: str, stack: str, version: str, form: str, gpu: GpuSpec) -> int:
        """The place of the series that answers for a kernel by the publisher's name or by a part of it; empty texts: whichever is newest.

        The measured one, or the nearest to it that was: of the format, of the kind of kernel, of the GPU's instructions.
        """
        instructions = kernel_class(gpu)
        here = self.measured.get(gpu.name) or self.measured[self.relatives(gpu)[0]]

        def nearness(i: int) -> tuple[Any, ...]:
            each = self.series[i]
            return (
                each.form == form,
                not kernel or family(each.kernel) == family(kernel),
                each.instructions == instructions,
                i in here,
                not stack or each.stack == stack,
                each.kernel == kernel,
                each.version == version,
                here.get(i, 0) >= LEAST_MODELS,
                each.newness,
            )

        return max(range(len(self.series)), key=nearness)

    def candidates(self, form: str, gpu: GpuSpec, least: int = LEAST_MODELS) -> list[int]:
        """Places of the series of a format measured on a GPU, or on its nearest relative, with `least` models; each kernel's newest."""
        here = self.measured.get(gpu.name) or self.measured[self.relatives(gpu)[0]]
        found = sorted((i for i, models in here.items() if models >= least), key=lambda i: self.series[i].newness)
        if not self.says_of(form):
            return []
        newest = {(self.series[i].stack, family(self.series[i].kernel)): i for i in found if self.series[i].form == form}
        return sorted(newest.values())

    def predict(self, layers: MoeLayers, which: NDArray[np.int64], gpu: GpuSpec, cold: NDArray[np.bool_] | None = None) -> Predicted:
        """Latencies of layers of one GPU.

        Args:
            layers: What is computed.
            which: Place of the series of each, [n].
            gpu: Where; on one that was never measured the trees answer as for its relatives.
            cold: Where the weights come from DRAM; None: as measured, again and again.
        """
        need = terms(layers, gpu)
        found = reference(layers, need, self.constants[which])
        x = self.features(layers, need, found, which)
        seen = gpu.name in self.measured
        names = (gpu.name,) if seen else self.relatives(gpu)
        centre, down, up = corrected(self, x, [identity(load_gpu(name)) for name in names], TASK, seen, gpu)
        us = found.us * np.exp(centre)
        if cold is not None and cold.any():
            from_dram = replace(need, missed=np.where(cold, 1.0, need.missed))
            us = us * reference(layers, from_dram, self.constants[which]).us / found.us
        return Predicted(us=us, low_us=us * np.exp(down), high_us=us * np.exp(up), seen=seen)

    def features(self, layers: MoeLayers, need: Terms, found: Reference, which: NDArray[np.int64]) -> Array:
        """`features` of layers of these series."""
        kernel = np.array([self.kernels[each.place] for each in self.series])
        return features(layers, need, found, kernel[which], [self.series[i] for i in which.tolist()])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As named arrays, to be stored."""
        about = {
            "series": [list(each) for each in self.series],
            "measured": {name: {str(i): models for i, models in found.items()} for name, found in self.measured.items()},
            "held_out": self.held_out,
        }
        return {
            f"{PREFIX}/about": np.array(json.dumps(about, sort_keys=True)),
            f"{PREFIX}/constants": self.constants.astype(np.float32),
            **self.correction.arrays(f"{PREFIX}/correction"),
            **self.spread.arrays(f"{PREFIX}/spread"),
            **self.calibration.arrays(f"{PREFIX}/calibration"),
        }


def load(stored: Mapping[str, NDArray[Any]]) -> LibraryLayers:
    """The reverse of `LibraryLayers.arrays`."""
    about = json.loads(str(stored[f"{PREFIX}/about"]))
    return LibraryLayers(
        series=tuple(LayerSeries(*each) for each in about["series"]),
        constants=stored[f"{PREFIX}/constants"].astype(np.float64),
        correction=bushy_forest.from_arrays(stored, f"{PREFIX}/correction"),
        spread=bushy_forest.from_arrays(stored, f"{PREFIX}/spread"),
        calibration=calibration.from_arrays(stored, f"{PREFIX}/calibration"),
        measured={name: {int(i): models for i, models in found.items()} for name, found in about["measured"].items()},
        held_out=about["held_out"],
    )


def load_shipped(path: Path | None = None) -> LibraryLayers | None:
    """What the advisor ships, or what a file of `advisor train --library` holds; None where there is none."""
    try:
        place = path or folder("ceilings") / FILE
    except FileNotFoundError:
        return None
    return _loaded(str(place), place.stat().st_mtime_ns) if place.is_file() else None


@lru_cache(maxsize=2)
def _loaded(path: str, changed: int) -> LibraryLayers:
    del changed  # part of the key: a file that changed is read again
    with np.load(path, allow_pickle=False) as archive:
        return load({key: archive[key] for key in archive.files})
