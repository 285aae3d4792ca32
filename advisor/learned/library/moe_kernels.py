"""What was learned of library mixture-of-experts layers: the constants of every series, trees that correct its reference latency, the size
of their errors, and how well they did on models and GPUs left out.

The weights are files of their own, `ceilings/library.npz` and, of AITER's kernels on AMD, `ceilings/aiter.npz` (`advisor train --library`).

The library reference of a mixture-of-experts layer: what the best library kernel takes for it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.learned.calibration import of_group
from advisor.learned.layers.moe_layer import KINDS, MXFP4, Layers, nemotron
from advisor.learned.library import moe_layers, series_model
from advisor.learned.library.moe_layers import (
    FAMILIES,
    FORMATS,
    NAMES,
    STACKS,
    MoeLayers,
    Reference,
    Terms,
    family,
    kernel_class,
    reference,
    terms,
)
from advisor.learned.library.series_model import STACK_NAMES, Predicted, SeriesModel, number
from advisor.learned.machine import chip
from advisor.pipelines import Array
from advisor.pipelines.token_draws import BLOCKS, Loads
from advisor.result.schema import Latency

FILES = {"nvidia": "library.npz", "amd": "aiter.npz"}
"""By the vendor of the GPUs."""

PREFIX = "library_layers"
TASK = "layer"
LABELS = 11
"""How many features, the last, are no quantities: they tell layers, kernels and GPUs apart."""

LEAST_MODELS = 3
"""Models that a kernel was measured with, from which it is offered for others: of fewer its constants are those models'."""


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
        if self.stack == "aiter":
            return "AITER's fused MoE, as AMD tuned it"
        return f"{FAMILIES[family(self.kernel)][1]} ({STACK_NAMES[self.stack]} {self.version})"


def features(layers: MoeLayers, need: Terms, reference_us: Reference, kernel: Array, series: Sequence[LayerSeries]) -> Array:
    """What the trees see of layers but for the GPU's identity, [n, f].

    Args:
        layers: What is computed.
        need: Of the GPU that they run on.
        reference_us: The reference latency.
        kernel: Place of the series' kernel among all, [n].
        series: Of each layer, [n].
    """
    log, us, loads = np.log, reference_us.us, layers.loads
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
        "products": reference_us.products / us,
        "memory": reference_us.memory / us,
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
        "family": np.array([family(item.kernel) for item in series]),
        "kernel": kernel,
        "stack": np.array([STACKS.index(item.stack) for item in series]),
        "version": np.array([number(item.version) for item in series]),
    }
    return np.stack([np.broadcast_to(np.asarray(column, dtype=np.float32), us.shape) for column in columns.values()], axis=1)


def identity(gpu: GpuSpec) -> Array:
    """Figures that tell measured GPUs apart, the last columns that the trees see."""
    return np.array(list(chip(gpu, "bf16").identity.values()), dtype=np.float32)


@dataclass(frozen=True, kw_only=True)
class LibraryLayers(SeriesModel):
    """Everything learned about library layers: `constants` are of `moe_layers.CONSTANTS`, `measured` the number of models of each series,
    by its place, on each GPU, with a gate and without."""

    series: tuple[LayerSeries, ...]
    measured: Mapping[str, Mapping[int, tuple[int, int]]]

    @cached_property
    def kernels(self) -> Mapping[tuple[Any, ...], int]:
        """Places of kernels, by `LayerSeries.place`."""
        return {place: i for i, place in enumerate(sorted({item.place for item in self.series}))}

    def answers_for(self, gpu: GpuSpec) -> bool:
        """Whether the GPU was measured, or one that answers for it.

        Left out, B200, B300 and GB200 are predicted about 5 % wrong, H100 and H200 12 %; A100 and RTX PRO 6000 S, for which none answers,
        35 and 21 %, worse than by the crude baseline.
        """
        return bool(self.relatives(gpu))

    def says_of(self, form: str) -> bool:
        """Whether layers of a format are predicted better than by the crude baseline on models left out; others are not answered."""
        return self.beats_baseline("models", f"format {form}")

    def _measured_near(self, gpu: GpuSpec) -> Mapping[int, tuple[int, int]]:
        return self.measured[self.relatives(gpu)[0]]

    def answering(self, kernel: str, stack: str, version: str, form: str, gpu: GpuSpec) -> int:
        """The place of the series that answers for a kernel by the publisher's name or by a part of it; empty texts: whichever is newest.

        The measured one, or the nearest to it that was: of the format, of the kind of kernel, of the GPU's instructions.
        """
        instructions = kernel_class(gpu)
        here = self._measured_near(gpu)

        def nearness(i: int) -> tuple[Any, ...]:
            candidate = self.series[i]
            return (
                candidate.form == form,
                not kernel or family(candidate.kernel) == family(kernel),
                candidate.instructions == instructions,
                i in here,
                not stack or candidate.stack == stack,
                candidate.kernel == kernel,
                candidate.version == version,
                sum(here.get(i, (0, 0))) >= LEAST_MODELS,
                candidate.newness,
            )

        return max(range(len(self.series)), key=nearness)

    def candidates(self, form: str, gpu: GpuSpec, least: int = LEAST_MODELS, *, gated: bool = True) -> list[int]:
        """Places of the series of a format measured on a GPU, or on its nearest relative, with `least` models; each kernel's newest. Layers
        with a gate ask for models with one: on an H100 kernels measured of Nemotron alone take five times as long."""
        if not self.says_of(form):
            return []
        here = {i: with_gate if gated else with_gate + without for i, (with_gate, without) in self._measured_near(gpu).items()}
        enough = sorted((i for i, models in here.items() if models >= least), key=lambda i: self.series[i].newness)
        newest = {(self.series[i].stack, family(self.series[i].kernel)): i for i in enough if self.series[i].form == form}
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
        reference_us = reference(layers, need, self.constants[which])
        x = self.features(layers, need, reference_us, which)
        identities = series_model.equally([identity(load_gpu(name)) for name in self.relatives(gpu)])
        tasks = {of_group(TASK, form.name): layers.form == place for place, form in enumerate(FORMATS)}
        centre, down, up = self.corrected(x, identities, tasks, gpu)
        us = reference_us.us * np.exp(centre)
        if cold is not None and cold.any():
            from_dram = replace(need, missed=np.where(cold, 1.0, need.missed))
            us = us * reference(layers, from_dram, self.constants[which]).us / reference_us.us
        return Predicted(us=us, low_us=us * np.exp(down), high_us=us * np.exp(up), seen=gpu.name in self.measured)

    def features(self, layers: MoeLayers, need: Terms, reference_us: Reference, which: NDArray[np.int64]) -> Array:
        """`features` of layers of these series."""
        kernel = np.array([self.kernels[item.place] for item in self.series])
        return features(layers, need, reference_us, kernel[which], [self.series[i] for i in which.tolist()])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """As named arrays, to be stored."""
        about = {
            "series": [list(item) for item in self.series],
            "measured": {name: {str(i): list(models) for i, models in models_of.items()} for name, models_of in self.measured.items()},
        }
        return self.stored(PREFIX, about)


def load(stored: Mapping[str, NDArray[Any]]) -> LibraryLayers:
    """The reverse of `LibraryLayers.arrays`."""
    about, parts = series_model.restored(stored, PREFIX)
    return LibraryLayers(
        series=tuple(LayerSeries(*item) for item in about["series"]),
        measured={name: {int(i): tuple(models) for i, models in models_of.items()} for name, models_of in about["measured"].items()},
        **parts,
    )


def load_shipped(gpu: GpuSpec) -> LibraryLayers | None:
    """What the advisor ships of GPUs of this vendor; None where there is nothing."""
    return series_model.shipped(FILES[gpu.vendor], load) if gpu.vendor in FILES else None


GPT_OSS_HIDDEN = 2880
"""H of gpt-oss, of which mxfp4 weights were measured, by most kernels of it alone: these answer for its layers."""


def library_of_layers(
    layers: Layers, loads: Loads, gpu: GpuSpec, stack: str, cold: bool, form: str = "", triton_us: Sequence[float] = ()
) -> list[Latency | None]:
    """What the fastest library kernel takes for each layer, measured or not on the GPU: of its own stack where one was measured there that
    is faster than Triton's kernels, else of any. None where no library was measured with the format.

    FlashInfer CUTLASS as vLLM 0.24 runs it in fp8 with a scale per tensor on Hopper takes four to eight times as long as Triton's kernels
    or as CUTLASS in TensorRT-LLM, of every model measured: it is no reference there.

    Args:
        layers: As the stack launches them with its Triton kernels.
        loads: Of their experts.
        gpu: Where.
        stack: vllm or sglang.
        cold: Whether the bound is that of layers of which nothing is in the L2 when they begin.
        form: Of `moe_layers.NAMES`, where they are not stored as the kind of `layers` says.
        triton_us: What Triton's kernels take for each; empty: its own stack's library is asked for, however slow.
    """
    model = load_shipped(gpu)
    if not form and int(layers.kind[0]) >= len(KINDS):
        return [None] * len(layers)
    form = form or KINDS[int(layers.kind[0])]
    if model is None or (layers.ranks > 1).any() or form not in NAMES or not model.answers_for(gpu):
        return [None] * len(layers)
    of_measured = KINDS[MXFP4] == form and bool((layers.hidden == GPT_OSS_HIDDEN).all())
    gated = not bool(nemotron(layers.hidden, layers.topk).all())
    places = model.candidates(form, gpu, 1 if of_measured else LEAST_MODELS, gated=gated)
    candidates = [(model.series[i].stack != stack, _latencies(model, i, layers, loads, form, gpu, cold)) for i in places]
    if not candidates:
        return [None] * len(layers)
    most = triton_us or [np.inf] * len(layers)
    return [
        min((other or its[i].us >= us, its[i].us, n, its[i]) for n, (other, its) in enumerate(candidates))[-1] for i, us in enumerate(most)
    ]


def bound_of_layers(layers: Layers, loads: Loads, form: str, gpu: GpuSpec) -> tuple[Array, NDArray[np.str_]]:
    """Lower bounds in microseconds of layers stored in a format of `moe_layers.NAMES`, [n], with nothing in the L2 when they begin, and the
    pipeline of each."""
    return moe_layers.bound(_stored_as(layers, loads, form, layers.ungated), gpu, cold=True)


def _stored_as(layers: Layers, loads: Loads, form: str, ungated: NDArray[np.bool_]) -> MoeLayers:
    return MoeLayers(
        tokens=layers.tokens,
        experts=layers.experts,
        topk=layers.topk,
        hidden=layers.hidden,
        inner=layers.inner,
        ungated=ungated,
        form=np.full(len(layers), NAMES.index(form)),
        loads=loads,
        alpha=np.maximum(layers.routing, 0.0),
    )


def _latencies(model: LibraryLayers, place: int, layers: Layers, loads: Loads, form: str, gpu: GpuSpec, cold: bool) -> list[Latency]:
    series, ones = model.series[place], np.ones(len(layers))
    version = ones * series_model.number(series.version)
    kernel, whose = (np.full(len(layers), text) for text in (series.kernel, series.stack))
    moe = _stored_as(layers, loads, form, moe_layers.ungated(layers.hidden, layers.topk, kernel, whose, version))
    prediction = model.predict(moe, np.full(len(layers), place), gpu)
    least, _ = moe_layers.bound(moe, gpu, cold=cold)  # as that of the layer beside it
    source = series.words if prediction.seen else f"{series.words}; never measured on {gpu.name}"
    return [
        Latency(us=max(us, low_us), origin="predicted", source=source, low_us=max(low, low_us), high_us=max(high, low_us), coverage=0.8)
        for us, low, high, low_us in zip(
            *(item.tolist() for item in (prediction.us, prediction.low_us, prediction.high_us, least)), strict=True
        )
    ]
