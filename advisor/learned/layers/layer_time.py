"""The time of a mixture-of-experts layer from its launches, with some hundred constants that all GPUs share.

Every kernel takes a soft maximum of what its pipelines need: matrix units, the latency of a CTA's loop over its waves, L2, DRAM; the
layer is their sum and a floor of launches. Constants that differ by matrix instruction come as three: of a warp (Ampere, Ada, Blackwell
of workstations), of a warp group (Hopper), with tensor memory (Blackwell of data centres). A GPU never measured is just another point.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.learned.layers.moe_layer import ACTIVATION_BYTES, AS_MEASURED, BF16, FP8, FP8_BLOCK, MXFP4, WEIGHT_BYTES, Launched
from advisor.pipelines.columns import Array
from advisor.pipelines.tile import FULL_HOPPER_FLOP_PER_CLOCK_PER_SM

TILES = (
    (16, 32, 64),
    (64, 64, 32),
    (16, 64, 128),
    (32, 64, 128),
    (32, 128, 64),
    (64, 128, 64),
    (128, 128, 64),
    (64, 128, 128),
    (128, 128, 128),
    (128, 256, 128),
    (16, 128, 128),
    (32, 128, 128),
)
"""Tiles of the stacks' defaults, BLOCK_SIZE_M x N x K: each has a factor of its own to what the formula says of it."""

BY_INSTRUCTION: dict[str, tuple[float, float, float]] = {
    "tile": (0.9, 0.55, 0.7),  # share of the peak that a large tile reaches
    "small": (6.0, 14.0, 20.0),  # how much less a small one does
    "iteration": (350.0, 450.0, 500.0),  # clocks of one step of a CTA's loop, divided by the stages in flight
    "iteration_byte": (0.01, 0.01, 0.01),
    "prologue": (1500.0, 1500.0, 1500.0),  # clocks of a CTA before and after its loop
    "fp8": (1.0, 1.0, 1.0),
    "scaled": (0.7, 0.7, 0.7),
    "deep": (1.0, 1.0, 1.0),  # steps of more than 64 bytes
    "odd": (0.3, 0.3, 0.3),  # clocks of an element, where rows do not start at multiples of 16: read one by one, 32 to a thread
    "odd_fp8": (0.3, 0.3, 0.3),
    "launches": (1.0, 1.0, 1.0),
    "dram": (1.0, 1.0, 1.0),
    "sectors_32": (1.3, 1.3, 1.3),  # DRAM reads weights in pieces of 32 bytes
    "sectors_64": (1.1, 1.1, 1.1),
}
COMMON: dict[str, float] = {
    "dram_share": 0.92,
    "l2_share": 0.7,
    "held_split": 0.7,
    "slope_split": 5.0,
    "held_whole": 1.0,
    "slope_whole": 8.0,
    "cta": 0.15,  # thousand clocks of an SM
    "idle_cta": 0.05,
    "sharpness": 3.0,
    "rows_l2": 0.6,
    "rows_dram": 0.85,
    "operand_dram": 0.7,
    "floor_fp8": 4.0,
    "floor_scaled": 4.0,
    "align_expert": 0.005,
    "align_slot": 0.00003,
    "odd_spill": 1.2,  # how these clocks rise with the elements of a thread, whose addresses take its registers
    "floor_clock": 0.3,
    "alone": 0.35,
    "mxfp4": 1.0,
}
FLOORS = (
    ("sglang", 510),
    ("sglang", 514),
    ("sglang", 99999),
    ("vllm", 1800),
    ("vllm", 1900),
    ("vllm", 2200),
    ("vllm", 2400),
    ("vllm", 999999),
)
"""Stacks and the versions before which one floor of launches counts."""

FLOOR_US, FLOOR_CLOCK_GHZ = 20.0, 1.9
NAMES = (
    *(f"{name}/{i}" for name in BY_INSTRUCTION for i in range(3)),
    *COMMON,
    *(f"floor/{i}" for i in range(len(FLOORS))),
    *(f"tile/{mma}/{kind}/{i}" for mma in range(3) for kind in range(3) for i in range(len(TILES))),
)
_TILE_FACTORS = NAMES.index("tile/0/0/0")
FIRMNESS = np.where(np.arange(len(NAMES)) >= _TILE_FACTORS, 0.12, 0.03)
"""How firmly a constant is held where it starts, as weights of logarithms beside the errors."""

WARP_GROUP = 1
"""Which of the three constants by instruction is that of warp groups."""

PRODUCTS = ("w13", "w2")

KEPT_WHOLE, LARGEST_WHOLE_BYTES = 0.97, 128 * 2**20
"""Of an L2 of one piece, what stays in it from one call to the next. The constants `held_whole` and `slope_whole` are fitted to the largest
alone, an RTX PRO 6000 S (128 MiB): it reads again from 0.7 of its L2 on, and all from 1.0. An L40S (96 MiB, 2,800 layers of few tokens
that nothing is fitted to) reads nothing again of sets up to 0.9 of its own and half of those as large as it: it keeps as many bytes, and
what it does not keep begins as suddenly as on GPUs whose L2 has two parts."""


def start() -> Array:
    """Logarithms of the constants before they are fitted."""
    values = [value for values in BY_INSTRUCTION.values() for value in values]
    values += [*COMMON.values(), *[FLOOR_US] * len(FLOORS), *[1.0] * (len(NAMES) - _TILE_FACTORS)]
    return np.log(np.array(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """Times of one product, [n] in microseconds, and what they come from; `least` is what the matrix units take for its tiles, padding
    and all, at their peak."""

    least: Array
    tensor: Array
    loop: Array
    l2: Array
    dram: Array
    idle: Array
    total: Array
    waves: Array
    full_waves: Array
    ctas: Array
    steps: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerTime:
    """Times of a layer, [n] in microseconds; `fill` is the layer's bytes relative to what the L2 keeps of them."""

    total: Array
    w13: Product
    w2: Product
    activation: Array
    combine: Array
    quantisation: Array
    floor: Array
    align: Array
    fill: Array


def layer_time(launch: Launched, logarithms: Array, cold: NDArray[np.bool_] | bool = False) -> LayerTime:
    """The times of layers, with constants as `start` gives them; where `cold`, with nothing in the L2 of what the layer before, measured
    again and again, left there."""
    c = dict(zip(NAMES, np.exp(logarithms), strict=True))
    mma, gpu, layers = launch.mma, launch.gpu, launch.layers
    of = {name: c[f"{name}/{mma}"] for name in BY_INSTRUCTION}
    block_m, block_n, block_k = (launch.configuration[f"BLOCK_SIZE_{axis}"] for axis in "MNK")
    kind = layers.kind
    activation, weight = ACTIVATION_BYTES[kind], WEIGHT_BYTES[kind]
    fp8, scaled = launch.fp8, AS_MEASURED[kind] == FP8_BLOCK
    clock = gpu.max_clock_mhz
    l2_rate, dram_rate = gpu.l2_bytes_per_s / 1e6, gpu.dram_bytes_per_s * gpu.dram_achievable_fraction / 1e6
    harmonic = block_m * block_n / (block_m + block_n)
    share = of["tile"] / (1 + of["small"] * launch.flop_per_clock / 2048 / harmonic / 8 * activation)
    share = share * np.where(block_k * activation > 64, of["deep"], 1) * np.where(fp8, of["fp8"], 1) * np.where(scaled, of["scaled"], 1)
    share = share * np.where(kind == MXFP4, c["mxfp4"], 1) * _tile_factor(launch, logarithms)
    if mma == WARP_GROUP:  # what keeps tiles below the peak is not cut where the matrix units are (H20)
        uncut = share * np.maximum(FULL_HOPPER_FLOP_PER_CLOCK_PER_SM * 2 / activation / launch.flop_per_clock, 1)
        share = np.minimum(uncut, np.maximum(share, 1))
    slots, width = launch.kept * layers.topk, launch.width
    weights = launch.used * (width + layers.inner) * layers.hidden * weight
    rows = launch.kept * layers.hidden * activation + slots * (width + layers.inner + layers.hidden) * 2
    if launch.split_l2:
        kept, slope = c["held_split"] * gpu.l2_bytes, c["slope_split"]
    elif gpu.l2_bytes < LARGEST_WHOLE_BYTES:
        kept, slope = KEPT_WHOLE * gpu.l2_bytes, c["slope_split"]
    else:
        kept, slope = c["held_whole"] * gpu.l2_bytes, c["slope_whole"]
    fill = (weights + rows) / kept
    with np.errstate(over="ignore"):  # of a set that is next to nothing all is kept
        missed = np.where(cold, 1.0, 1 / (1 + np.maximum(fill, 1e-9) ** -slope))
    stages = np.maximum(launch.configuration["num_stages"] - 1, 1)
    piece = block_k * weight
    sectors = np.where(piece <= 32, of["sectors_32"], np.where(piece <= 64, of["sectors_64"], 1.0))
    elements = (block_m + block_n) * block_k
    one_by_one = (
        np.where(fp8, of["odd_fp8"], of["odd"]) * elements * (elements / launch.configuration["num_warps"] / 1024) ** c["odd_spill"]
    )
    one_by_one = np.where(layers.inner % 16 == 0, 0, one_by_one)

    def product(columns: Array, depth: Array, from_tokens: bool) -> Product:
        tiles, steps = np.ceil(columns / block_n), np.ceil(depth / block_k)
        ctas = launch.blocks * tiles
        in_turn = np.maximum(ctas / gpu.num_sms, 1)
        least = 2 * block_m * block_n * block_k * steps / (launch.flop_per_clock * clock) * in_turn
        tensor = least / share
        waves = ctas / (gpu.num_sms * launch.resident)
        full = np.maximum(np.ceil(waves), 1)
        step = (of["iteration"] + of["iteration_byte"] * launch.stage_bytes) / clock / stages
        loop = (of["prologue"] / clock + steps * step) * 0.5 * (np.maximum(waves, 1) + full)
        loop = loop + (0 if from_tokens else steps * one_by_one / clock * in_turn)
        l2 = ctas * (block_m * activation + block_n * weight) * depth / (l2_rate * c["l2_share"])
        operands = (launch.kept if from_tokens else slots) * depth * activation + slots * columns * 2
        busy = np.minimum(1, np.minimum(ctas / gpu.num_sms, 1) / c["alone"]) ** 0.5
        from_dram = missed * (launch.used * columns * depth * weight * sectors + operands * c["operand_dram"])
        dram = from_dram / (dram_rate * c["dram_share"] * of["dram"] * busy)
        p = c["sharpness"]
        idle = np.maximum(launch.launched_blocks * tiles - ctas, 0) / gpu.num_sms * c["idle_cta"] * 1e3 / clock
        start_us = ctas / gpu.num_sms * c["cta"] * 1e3 / clock
        total = (tensor**p + loop**p + l2**p + dram**p) ** (1 / p) + start_us + idle
        return Product(
            least=least, tensor=tensor, loop=loop, l2=l2, dram=dram, idle=idle, total=total,
            waves=waves, full_waves=full, ctas=ctas, steps=steps,
        )  # fmt: skip

    def elementwise(moved: Array) -> Array:
        beyond = 1 / (1 + np.maximum(moved / (0.5 * gpu.l2_bytes), 1e-9) ** -3.0)
        return moved * ((1 - beyond) / (l2_rate * c["rows_l2"]) + beyond / (dram_rate * c["rows_dram"]))

    w13, w2 = product(width, layers.hidden, True), product(layers.hidden, layers.inner, False)
    activated = elementwise(slots * (width + layers.inner) * 2)
    combined = elementwise(slots * layers.hidden * 2 + launch.kept * layers.hidden * 2)
    quantised = np.where(fp8, elementwise(launch.kept * layers.hidden * 3) + elementwise(slots * layers.inner * 3), 0)
    floor = np.exp(logarithms)[_floor_place(launch)]
    floor = floor + np.where(fp8, c["floor_fp8"], 0) + np.where(scaled, c["floor_scaled"], 0)
    floor = floor * (FLOOR_CLOCK_GHZ * 1e3 / clock) ** c["floor_clock"] * of["launches"]
    align = c["align_expert"] * layers.experts + c["align_slot"] * slots
    return LayerTime(
        total=w13.total + w2.total + activated + combined + quantised + floor + align,
        w13=w13, w2=w2, activation=activated, combine=combined, quantisation=quantised, floor=floor, align=align, fill=fill,
    )  # fmt: skip


def _tile_factor(launch: Launched, logarithms: Array) -> Array:
    """What the tile has over the formula, [n]; 1 for tiles that are no stack's default."""
    place = _tile_place(launch)
    return np.exp(np.where(place < 0, 0.0, logarithms[place]))


def _tile_place(launch: Launched) -> NDArray[np.int64]:
    """Which of the constants is the tile's factor, [n]; -1: none."""
    which = np.full(len(launch.layers), -1)
    sizes = [launch.configuration[f"BLOCK_SIZE_{axis}"] for axis in "MNK"]
    for i, tile in enumerate(TILES):
        which[np.all([size == wanted for size, wanted in zip(sizes, tile, strict=True)], axis=0)] = i
    alike = AS_MEASURED[launch.layers.kind]
    kind = np.select([alike == FP8, alike == FP8_BLOCK], [1, 2], BF16)
    return np.where(which < 0, -1, _TILE_FACTORS + (launch.mma * 3 + kind) * len(TILES) + which)


def _floor_place(launch: Launched) -> NDArray[np.int64]:
    """Which of the constants is the floor, [n]."""
    layers = launch.layers
    before = [(layers.sglang == (stack == "sglang")) & (layers.version < version) for stack, version in FLOORS]
    return NAMES.index("floor/0") + np.select(before, range(len(FLOORS)), 0)


STEP = 1e-4
"""Of a logarithm, in numeric derivatives."""


def gradient(launch: Launched, logarithms: Array) -> Array:
    """Numeric derivatives of the log of `layer_time`, [n, constants].

    A layer depends on one tile factor, one floor and one of the three constants by instruction: such constants are moved together.
    """
    base = np.log(layer_time(launch, logarithms).total)
    n, alone = base.size, len(BY_INSTRUCTION) * 3
    groups = [(np.arange(i, i + 3), np.full(n, i + launch.mma)) for i in range(0, alone, 3)]
    groups += [(np.array([i]), np.full(n, i)) for i in range(alone, alone + len(COMMON))]
    groups += [(np.arange(alone + len(COMMON), _TILE_FACTORS), _floor_place(launch))]
    groups += [(np.arange(_TILE_FACTORS, len(NAMES)), _tile_place(launch))]
    out = np.zeros((n, len(NAMES)))
    for together, column in groups:
        moved = logarithms.copy()
        moved[together] += STEP
        rows = np.flatnonzero(column >= 0)
        out[rows, column[rows]] = ((np.log(layer_time(launch, moved).total) - base) / STEP)[rows]
    return out
