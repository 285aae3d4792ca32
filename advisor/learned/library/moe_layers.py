"""Mixture-of-experts layers of library kernels (CUTLASS, FlashInfer, DeepGEMM, TRT-LLM, Marlin): formats, kernels, bound, and a reference
latency whose constants every series of measurements has of its own.

A layer is its launches' floor, the soft maximum of what its two products need of matrix units (of the tile that suits them best) and of
memory (the weights of the experts in use), the rows of activations, and what each expert and token slot costs. What is timed is one rank
in a CUDA graph, with the same buffers each replay: weights come from the L2 where the layer fits it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import GpuSpec
from advisor.learned.machine import Chip, chip, missed_share
from advisor.pipelines import Array
from advisor.pipelines.bound import LEAST_LAUNCH_US
from advisor.pipelines.token_draws import BLOCKS, Loads


class Format(NamedTuple):
    """How operands are stored: bytes of a weight and of an activation, scales included, and the matrix units' type."""

    name: str
    weight_bytes: float
    activation_bytes: float
    dtype: str


FORMATS = (
    Format("bf16", 2.0, 2.0, "bf16"),
    Format("fp8", 1.0, 1.0, "fp8"),
    Format("fp8_block", 1.0, 1.0, "fp8"),
    Format("nvfp4", 0.5625, 0.5625, "fp4"),  # half a byte, and a byte of scale per 16
    Format("w4a16_mxfp4", 0.53125, 2.0, "bf16"),  # half a byte, and a byte of scale per 32
    Format("w4a8_mxfp4_mxfp8", 0.53125, 1.03125, "fp8"),
    Format("int4_wo", 0.515625, 2.0, "bf16"),  # half a byte, and two bytes of scale per 128
    Format("w4afp8", 0.515625, 1.0, "fp8"),
    Format("mxfp8", 1.03125, 1.03125, "fp8"),
    Format("w4a4_mxfp4", 0.53125, 0.53125, "fp4"),
)
NAMES = tuple(item.name for item in FORMATS)
SPELLED = {
    "bfloat16": "bf16",
    "fp16": "bf16",
    "float16": "bf16",
    "half": "bf16",
    "": "bf16",
    "mxfp4": "w4a16_mxfp4",
    "int4": "int4_wo",
    "int4_w4a16": "int4_wo",
    "awq": "int4_wo",
    "gptq": "int4_wo",
}
"""Other names of these formats in rows."""

FAMILIES = (
    ("marlin", "Marlin"),
    ("deepgemm", "DeepGEMM"),
    ("min_latency", "TRT-LLM, least latency"),
    ("torch_flow", "TRT-LLM CUTLASS"),
    ("cutedsl", "FlashInfer CuTe DSL"),
    ("cutlass", "FlashInfer CUTLASS"),
    ("trtllm", "FlashInfer TRT-LLM"),
    ("", "TRT-LLM"),
)
"""What the publisher's names of kernels (`kernel_source`) hold, the first that fits, and what reports call them."""

STACKS = ("sglang", "vllm", "trtllm", "aiter")
UNGATED_FROM = {"sglang": 514, "vllm": 2400}
"""Versions from which a stack gives models whose activation has no gate a w13 of N columns, not 2 N; TRT-LLM names such kernels."""

TILE_COLUMNS = 128


def family(kernel: str) -> int:
    """The place in `FAMILIES` of a kernel by its name."""
    return next(i for i, (part, _) in enumerate(FAMILIES) if part in kernel.lower())


def kernel_class(gpu: GpuSpec) -> int:
    """Whose matrix instructions a GPU has: 0 of a warp, 1 of a warp group (Hopper), 2 with tensor memory (Blackwell of data centres)."""
    figures = chip(gpu, "bf16")
    return int(figures.warp_groups) + int(figures.tensor_memory)


def ungated(hidden: Array, topk: Array, kernel: NDArray[Any], stack: NDArray[Any], version: Array) -> NDArray[np.bool_]:
    """Layers whose w13 has no gate, by the sizes of the Nemotron models and by who launches them, [n]."""
    models = ((hidden == 2688) & (topk == 6)) | (topk == 22)
    named = np.char.find(kernel.astype(str), "nongated") >= 0
    of_stack = [(stack == name) & (version >= least) for name, least in UNGATED_FROM.items()]
    return named | (models & np.logical_or.reduce(of_stack))


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeLayers:
    """Layers on one rank, one value of each per layer, [n].

    Attributes:
        tokens: M.
        experts: E.
        topk: Experts per token.
        hidden: H.
        inner: N of this rank.
        ungated: Whether w13 is [E, N, H], without a gate.
        form: Place in `FORMATS`.
        loads: Of the experts.
        alpha: Of the routing, as `token_draws.exponent` gives it.
    """

    tokens: Array
    experts: Array
    topk: Array
    hidden: Array
    inner: Array
    ungated: NDArray[np.bool_]
    form: NDArray[np.int64]
    loads: Loads
    alpha: Array

    def __len__(self) -> int:
        return self.tokens.size

    def take(self, rows: NDArray[Any]) -> Self:
        """Some of them."""
        loads = Loads(**{f.name: getattr(self.loads, f.name)[rows] for f in fields(Loads)})
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in fields(self) if f.name != "loads"}, loads=loads)

    @property
    def width(self) -> Array:
        """Columns of w13, [n]."""
        return self.inner * np.where(self.ungated, 1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What layers need of a GPU, in microseconds at its peak, [n]; `tiles` and `chains` by rows of a tile, [n, len(BLOCKS)].

    `tiles` are matrix products in whole waves of tiles of that many rows and `TILE_COLUMNS` columns, `chains` the steps of 128 that a CTA
    takes one after another, in thousand clocks.
    """

    weights_dram: Array
    weights_l2: Array
    missed: Array
    rows_l2: Array
    rows_dram: Array
    tiles: Array
    chains: Array
    power: Array
    weight_bytes: Array
    row_bytes: Array
    flop: Array


def terms(layers: MoeLayers, gpu: GpuSpec) -> Terms:
    """What the layers need."""
    out = {f.name: np.zeros((len(layers), len(BLOCKS)) if f.name in ("tiles", "chains") else len(layers)) for f in fields(Terms)}
    for form in np.unique(layers.form).tolist():
        rows = np.flatnonzero(layers.form == form)
        for name, values in _terms(layers.take(rows), FORMATS[form], chip(gpu, rate_of(gpu, FORMATS[form]))).items():
            out[name][rows] = values
    return Terms(**out)


def rate_of(gpu: GpuSpec, form: Format) -> str:
    """The type whose rate the matrix units reach: bf16 where they lack the format's."""
    return form.dtype if gpu.supports(form.dtype) else "bf16"


def _terms(layers: MoeLayers, form: Format, gpu: Chip) -> dict[str, Array]:
    slots, width, inner, hidden = layers.loads.slots, layers.width, layers.inner, layers.hidden
    weights = layers.loads.used * (width + inner) * hidden * form.weight_bytes
    rows = slots * ((hidden + inner) * form.activation_bytes + (width + hidden) * 2)
    missed = missed_share(weights + slots * (hidden * 2 + width), 0.9 * gpu.l2_bytes)
    passing = missed_share(slots * (width + inner + 2 * hidden) * 2, 0.7 * gpu.l2_bytes)
    tiles, chains = np.zeros((2, len(layers), len(BLOCKS)))
    for i, block in enumerate(BLOCKS):
        for columns, depth in ((width, hidden), (hidden, inner)):
            waves = layers.loads.blocks[:, i] * np.ceil(columns / TILE_COLUMNS) / gpu.sms
            whole = np.ceil(waves - 1e-9)
            in_waves = np.where(waves < 8, np.maximum(whole, 1), waves + 0.5)  # many waves drift apart: the last is half empty on average
            tiles[:, i] += in_waves * 2 * block * TILE_COLUMNS * depth / (gpu.rate * gpu.clock)
            chains[:, i] += np.maximum(whole, 1) * depth / 128 / gpu.clock * 1000
    flop = 2 * slots * hidden * (width + inner)
    return {
        "weights_dram": weights / gpu.dram,
        "weights_l2": weights / gpu.l2_rate,
        "missed": missed,
        "rows_l2": rows / gpu.l2_rate,
        "rows_dram": rows / gpu.dram * passing,
        "tiles": tiles,
        "chains": chains,
        "power": flop / gpu.sustained,
        "weight_bytes": weights,
        "row_bytes": rows,
        "flop": flop,
    }


CONSTANTS: Mapping[str, float] = {
    "floor": 10.0,  # microseconds of launches
    "dram": 1.1,
    "l2": 1.3,
    **dict(zip((f"tile {block}" for block in BLOCKS), (6.0, 4.0, 2.5, 1.7, 1.3, 1.2), strict=True)),
    "small chain": 0.15,  # thousand clocks of a step of a CTA's loop, of tiles of up to 32 rows
    "large chain": 0.2,
    "rows l2": 1.5,
    "rows dram": 1.2,
    "expert": 0.01,  # microseconds
    "slot": 0.0005,
    "sharpness": 3.0,  # of the maximum, above 1
}
"""Constants of a series and where their fit starts; multiples of the terms, where nothing else is said."""

_SMALL = np.array([block <= 32 for block in BLOCKS])


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A reference latency in microseconds, [n], and its parts: matrix products, memory."""

    us: Array
    products: Array
    memory: Array


def reference(layers: MoeLayers, need: Terms, logarithms: Array) -> Reference:
    """The latency of layers with constants of their series, [n, len(CONSTANTS)] or [len(CONSTANTS)], as logarithms."""
    c = dict(zip(CONSTANTS, np.moveaxis(np.exp(logarithms), -1, 0), strict=True))
    factors = np.stack([np.broadcast_to(c[f"tile {block}"], len(layers)) for block in BLOCKS], axis=1)
    small, large = (np.broadcast_to(c[name], len(layers))[:, None] for name in ("small chain", "large chain"))
    products = (factors * need.tiles + np.where(_SMALL, small, large) * need.chains).min(axis=1)
    memory = c["dram"] * need.weights_dram * need.missed + c["l2"] * need.weights_l2
    power = 1 + np.minimum(c["sharpness"], 20.0)
    most = np.maximum(products, memory)
    both = most * ((products / most) ** power + (memory / most) ** power) ** (1 / power)
    rows = c["rows l2"] * need.rows_l2 + c["rows dram"] * need.rows_dram
    us = c["floor"] + both + rows + c["expert"] * layers.experts + c["slot"] * layers.loads.slots
    return Reference(us=us, products=products, memory=memory)


def bound(layers: MoeLayers, gpu: GpuSpec, cold: NDArray[np.bool_] | bool = False) -> tuple[Array, NDArray[np.str_]]:
    """Lower bounds on the latency in microseconds, [n], and the pipeline of each: of a random routing what 99 % of draws stay above.

    Args:
        layers: What is computed.
        gpu: Where.
        cold: Where the weights come from DRAM; else as much of them as the L2 cannot hold.
    """
    weight, rate = (np.array(item)[layers.form] for item in zip(*((f.weight_bytes, _peak(gpu, f)) for f in FORMATS), strict=True))
    slots = layers.loads.slots
    weights = layers.loads.least_used * (layers.width + layers.inner) * layers.hidden * weight
    rows = np.minimum(layers.tokens, slots) * layers.hidden * 2.0
    missed = np.where(cold, weights + rows + np.maximum(rows - gpu.l2_bytes, 0), np.maximum(weights + 2 * rows - gpu.l2_bytes, 0))
    times = np.stack(
        [
            2 * slots * layers.hidden * (layers.width + layers.inner) / rate,
            missed / (gpu.dram_bytes_per_s * gpu.dram_achievable_fraction) * 1e6,
            (weights + 2 * rows) / gpu.l2_bytes_per_s * 1e6,
        ]
    )
    return times.max(axis=0) + LEAST_LAUNCH_US, np.array(("tensor", "dram", "l2"))[times.argmax(axis=0)]


def _peak(gpu: GpuSpec, form: Format) -> float:
    """FLOP per microsecond of the matrix units."""
    rates = gpu.tensor_flop_per_clock_per_sm
    rate = rates.get(form.dtype) or max(rates.get("bf16", 0.0), rates.get("fp16", 0.0)) or gpu.fma_flop_per_clock_per_sm["fp32"]
    return rate * gpu.num_sms * gpu.max_clock_mhz
