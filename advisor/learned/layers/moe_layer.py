"""The mixture-of-experts layer of a serving stack: align, w13, activation, w2, combine, and quantisation where there is one.

What is counted is what `ai-dynamo/aiconfigurator` timed: vLLM's `fused_experts` (from 0.24 on with router and top-k), SGLang's
`fused_experts` with softmax and top-k. With expert parallelism vLLM keeps all tokens and skips the rows of other ranks in the products
alone; SGLang keeps the tokens of one rank.

Tuned tables of mixture-of-experts layers that lie on this machine: which configuration a stack finds for a layer.

They are read from the folders that `system.settings` names (`$VLLM_TUNED_CONFIG_FOLDER`, `$SGLANG_MOE_CONFIG_DIR`, `$ADVISOR_CORPUS`);
without one, what is known of tables is whether one ran (`layer_model.Ran`).

Products that scale blocks (fp8 or int8, 128 x 128 weights, 1 x 128 activations), and the quantisation of their activations before them.

No such product of single matrices was measured configuration by configuration; its loop is that of a layer's first product with one expert
that all tokens take, and those were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor import pipelines
from advisor.gpus.hardware import GpuSpec, load_gpu
from advisor.learned.base import Prediction
from advisor.learned.machine import TENSOR_MEMORY
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch, token_draws
from advisor.pipelines.memory import SPLIT_L2
from advisor.system.errors import InputError, UnknownGpuError
from advisor.system.settings import read_settings
from advisor.tables.entries import FIELDS, default_fields
from advisor.tables.names import TableName, is_table_name, parse_table_name
from advisor.tables.tables import read_table

STEP_US, SCALED_US = 0.08, 0.0016
"""What a step of the stacks' kernel takes beyond that of the measured loop, and per accumulator of a thread: its scales are loaded, and
every accumulator is multiplied by both before the next step can begin. Fitted to 13 posted latencies of product and quantisation together
(H100, N = 2112, K = 7168, one CUDA graph; vLLM's pull requests 23280 and 23939, shipped table and default): 5.0 %; fitted to one of the two
alone, 6.4 and 10.6 % on the other."""

QUANTISATION_US = 2.5
"""A launch of the quantisation kernel within a graph, its gap included (same source)."""

L2_SHARE, DRAM_SHARE = 0.4, 0.45
"""Of their rates, what the quantisation of 1 x 128 groups gets: one read of 16 bits, one write of 8, and the scales (same source; torchao's
pull request 3306 posts 1.4 to 1.6 TB/s on an H100)."""

FITS = 0.5
"""Of the L2, what rows may take that come from it."""


def scales_blocks(problem: ProblemBatch) -> bool:
    """Whether it is a single product of 8-bit operands that scales blocks."""
    return problem.family == "gemm" and problem.block_shape is not None and problem.dtype in ("fp8", "int8") and "B" not in problem.sizes


def as_expert(problem: ProblemBatch) -> ProblemBatch:
    """A product that `scales_blocks` as the first one of a layer with one expert; any other as it is."""
    if not scales_blocks(problem):
        return problem
    one, sizes = np.ones(1), problem.sizes
    alike = {"M": sizes["M"], "E": one, "topk": one, "H": sizes["K"], "N": sizes["N"] / 2}
    return replace(problem, family="fused_moe", op="w13", sizes=alike)


def with_steps(prediction: Prediction, problem: ProblemBatch, configuration: ConfigurationBatch, gpu: GpuSpec) -> Prediction:
    """What is predicted `as_expert`, with the dependent steps of its scales."""
    demand = pipelines.demand(problem, configuration, gpu)
    accumulators = configuration.get("BLOCK_SIZE_M", 64) * configuration.get("BLOCK_SIZE_N", 64) / (gpu.warp_size * configuration.num_warps)
    step_us = STEP_US + SCALED_US * accumulators
    more = step_us * demand.k_iterations * np.maximum(pipelines.schedule(demand, gpu).waves, 1.0)
    more = np.where(np.isfinite(prediction.us), more, 0.0)
    return replace(prediction, us=prediction.us + more, low_us=prediction.low_us + more / 2, high_us=prediction.high_us + 2 * more)


def quantisation_us(rows: Array, depth: Array, gpu: GpuSpec) -> Array:
    """Microseconds that quantising `rows` of `depth` 16-bit activations takes, [n]."""
    moved = rows * depth * (2 + 1 + 4 / 128)
    beyond = 1 / (1 + np.maximum(moved / (FITS * gpu.l2_bytes), 1e-9) ** -3.0)
    dram = gpu.dram_bytes_per_s * gpu.dram_achievable_fraction
    return np.asarray(QUANTISATION_US + 1e6 * moved * ((1 - beyond) / (L2_SHARE * gpu.l2_bytes_per_s) + beyond / (DRAM_SHARE * dram)))


BF16, FP8, FP8_BLOCK, MXFP4 = range(4)
KINDS = ("bf16", "fp8", "fp8_block", "w4a16_mxfp4")
"""How operands are stored: fp8 with one scale per tensor, or with scales per 1 x 128 of activations and 128 x 128 of weights; mxfp4
weights with 16-bit activations."""

INT8, INT8_BLOCK, W8A16 = range(4, 7)
AS_MEASURED = np.array([BF16, FP8, FP8_BLOCK, MXFP4, FP8, FP8_BLOCK, BF16])
"""Whose errors and factors count for kinds of which no layer was measured: int8, int8 in blocks, and int8 weights with 16-bit activations
run the same kernels with operands as wide."""

ACTIVATION_BYTES = np.array([2.0, 1.0, 1.0, 2.0, 1.0, 1.0, 2.0])
WEIGHT_BYTES = np.array([2.0, 1.0, 1.0, 0.53125, 1.0, 1.0, 1.0])
"""An mxfp4 weight is half a byte, and a byte of scale per 32."""

UNGATED_FROM = {"sglang": 514, "vllm": 2400}
"""Versions from which a stack gives the Nemotron models, whose activation has no gate, a w13 of N columns, not 2 N."""

BLOCKS_AS_SOURCE = 1900
"""Versions of vLLM from which layers of block-scaled fp8 are taken with the default of its source. Those measured with 0.18 fit the 64 rows
that 0.16 had, although 0.17 has 16; the weights were fitted so."""

REGISTERS_PER_SM, REGISTERS_KEPT, REGISTER_SPILL = 65536, 64, 1.3
"""A thread keeps the accumulators and some 64 registers more, and the compiler a third on top (compiled sm_90 kernels)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Layers of one GPU, one value of each per layer, [n].

    Attributes:
        tokens: M, of all ranks.
        experts: E, of all ranks.
        topk: Experts per token.
        hidden: H.
        inner: N of this rank.
        ranks: Expert-parallel ranks.
        kind: Place in `KINDS`, or one of the kinds behind them.
        sglang: Whether SGLang launches it, else vLLM.
        version: As `tables.entries.version_number` gives it.
        ungated: Whether w13 is [E, N, H], without a gate.
        routing: As `token_draws.exponent` gives it.
    """

    tokens: Array
    experts: Array
    topk: Array
    hidden: Array
    inner: Array
    ranks: Array
    kind: NDArray[np.int64]
    sglang: NDArray[np.bool_]
    version: Array
    ungated: NDArray[np.bool_]
    routing: Array

    def __len__(self) -> int:
        return self.tokens.size

    def take(self, rows: NDArray[Any]) -> Self:
        """Some of them."""
        return type(self)(**{f.name: getattr(self, f.name)[rows] for f in fields(self)})


def layers_of(
    sizes: Mapping[str, Array],
    kind: NDArray[np.int64] | int,
    sglang: NDArray[np.bool_] | bool,
    version: Array | float,
    routing: Array | float,
    *,
    ranks: Array | float = 1.0,
    ungated: NDArray[np.bool_] | None = None,
) -> Layers:
    """Layers of the sizes M, E, topk, H and N, [n] each; what else is said of all of them is taken for each. `ungated`: None asks
    `without_gate`."""
    n = sizes["M"].shape
    sglang, version = np.broadcast_to(np.asarray(sglang), n), np.broadcast_to(np.asarray(version, dtype=np.float64), n)
    return Layers(
        tokens=sizes["M"],
        experts=sizes["E"],
        topk=sizes["topk"],
        hidden=sizes["H"],
        inner=sizes["N"],
        ranks=np.broadcast_to(np.asarray(ranks, dtype=np.float64), n),
        kind=np.broadcast_to(np.asarray(kind), n),
        sglang=sglang,
        version=version,
        ungated=without_gate(sizes["H"], sizes["topk"], sglang, version) if ungated is None else ungated,
        routing=np.broadcast_to(np.asarray(routing, dtype=np.float64), n),
    )


def nemotron(hidden: Array, topk: Array) -> NDArray[np.bool_]:
    """Models without a gate, by their sizes."""
    return ((hidden == 2688) & (topk == 6)) | (topk == 22)


def without_gate(hidden: Array, topk: Array, sglang: NDArray[np.bool_], version: Array) -> NDArray[np.bool_]:
    """Layers whose w13 has no gate: of such models, from the version on that knows them."""
    return nemotron(hidden, topk) & (version >= np.where(sglang, UNGATED_FROM["sglang"], UNGATED_FROM["vllm"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """What a stack launches for layers, [n] each: sizes, loads of the experts, and the configuration of both products.

    Attributes:
        layers: What is computed.
        gpu: Where.
        loads: Of the experts.
        kept: Tokens that the stack keeps.
        configuration: By the names of `FIELDS`.
    """

    layers: Layers
    gpu: GpuSpec
    loads: token_draws.Loads
    kept: Array
    configuration: dict[str, Array]

    @property
    def held(self) -> Array:
        """Experts of the rank."""
        return self.layers.experts / self.layers.ranks

    @property
    def slots(self) -> Array:
        """Token slots of the rank."""
        return np.maximum(self.loads.slots, 1e-3)

    @property
    def used(self) -> Array:
        """Experts of the rank that have any."""
        return np.maximum(self.loads.used, 1e-3)

    @property
    def width(self) -> Array:
        """Columns of w13."""
        return np.where(self.layers.ungated, 1.0, 2.0) * self.layers.inner

    @property
    def mma(self) -> int:
        """Matrix instructions: 0 of a warp, 1 of a warp group (Hopper), 2 with tensor memory (Blackwell of data centres)."""
        return 1 if self.gpu.architecture == "hopper" else 2 if float(self.gpu.compute_capability) in TENSOR_MEMORY else 0

    @property
    def fp8(self) -> NDArray[np.bool_]:
        """Where operands are fp8, or int8 in its place."""
        return np.logical_or.reduce([AS_MEASURED[self.layers.kind] == kind for kind in (FP8, FP8_BLOCK)])

    @property
    def flop_per_clock(self) -> Array:
        """Of the matrix units of an SM."""
        bf16 = self.gpu.tensor_rate("bf16")
        int8 = np.logical_or(self.layers.kind == INT8, self.layers.kind == INT8_BLOCK)
        narrow = np.where(int8, self.gpu.tensor_rate("int8") or 2 * bf16, self.gpu.tensor_rate("fp8") or 2 * bf16)
        return np.where(self.fp8, narrow, bf16)

    @property
    def split_l2(self) -> bool:
        """Whether the L2 is in two parts."""
        return self.gpu.compute_capability in SPLIT_L2

    @property
    def stage_bytes(self) -> Array:
        """Shared memory of one stage of a product's loop."""
        c, activation = self.configuration, ACTIVATION_BYTES[self.layers.kind]
        weight = WEIGHT_BYTES[self.layers.kind]
        return c["BLOCK_SIZE_K"] * (c["BLOCK_SIZE_M"] * activation + c["BLOCK_SIZE_N"] * weight)

    @property
    def resident(self) -> Array:
        """CTAs of a product that an SM holds, about."""
        c = self.configuration
        threads = c["num_warps"] * 32
        registers = np.minimum((c["BLOCK_SIZE_M"] * c["BLOCK_SIZE_N"] / threads + REGISTERS_KEPT) * REGISTER_SPILL, 255) * threads
        by_memory = np.floor(self.gpu.smem_bytes_per_sm / (self.stage_bytes * c["num_stages"] + 1024))
        return np.maximum(np.minimum(by_memory, np.maximum(np.floor(REGISTERS_PER_SM / registers), 1)), 1)

    @property
    def blocks(self) -> Array:
        """Blocks of BLOCK_SIZE_M rows that have any."""
        return np.maximum(self.loads.padded_blocks(self.configuration["BLOCK_SIZE_M"]), 1e-3)

    @property
    def launched_blocks(self) -> Array:
        """Blocks of the grid: every expert may need one more, and at most one slot fills each."""
        block, slots = self.configuration["BLOCK_SIZE_M"], self.kept * self.layers.topk
        return np.ceil(np.minimum(slots + self.layers.experts * (block - 1), slots * block) / block)


def kind_of(dtype: str, weight_dtype: str | None, block_shape: tuple[int, int] | None) -> int | None:
    """How a layer's operands are stored; None where neither such a layer was measured nor one that runs like it."""
    defaults = {
        ("bf16", "bf16", None): BF16,
        ("bf16", "int8", None): W8A16,
        ("fp8", "fp8", None): FP8,
        ("fp8", "fp8", (128, 128)): FP8_BLOCK,
        ("int8", "int8", None): INT8,
        ("int8", "int8", (128, 128)): INT8_BLOCK,
    }
    operands = "bf16" if dtype == "fp16" else dtype
    weights = weight_dtype or operands
    return defaults.get((operands, "bf16" if weights == "fp16" else weights, block_shape))


def launched(
    layers: Layers, gpu: GpuSpec, configuration: dict[str, Array] | None = None, loads: token_draws.Loads | None = None
) -> Launched:
    """Layers with a configuration, or else with the default of their stack and version; `loads` in place of those of their routing."""
    loads = loads or token_draws.loads(layers.tokens, layers.experts, layers.topk, layers.ranks, layers.routing)
    mine = layers.sglang & (layers.ranks > 1)
    kept = np.where(mine, np.clip(np.round(loads.slots), 1, layers.tokens), layers.tokens)
    if configuration is None:
        configuration = default_configuration(layers, kept, gpu)
    return Launched(layers=layers, gpu=gpu, loads=loads, kept=kept, configuration=configuration)


def default_configuration(layers: Layers, kept: Array, gpu: GpuSpec) -> dict[str, Array]:
    """What the stacks launch without a table, by the names of `FIELDS`."""
    held = layers.experts // layers.ranks
    out = {name: np.zeros(len(layers)) for name in FIELDS}
    keys = np.stack([layers.sglang, layers.version, layers.kind]).T
    for sglang, version, kind in np.unique(keys, axis=0):
        rows = (keys == (sglang, version, kind)).all(axis=1)
        blocks = AS_MEASURED[int(kind)] == FP8_BLOCK
        old = blocks and not sglang and 0 < version < BLOCKS_AS_SOURCE
        columns = default_fields(
            "sglang" if sglang or old else "vllm",
            kept[rows],
            held[rows],
            version=int(version),
            dtype="fp8" if AS_MEASURED[int(kind)] in (FP8, FP8_BLOCK) else None,
            block_shape=(128, 128) if blocks else None,
            shared_memory_bytes_per_cta=gpu.smem_bytes_per_cta,
        )
        for name in FIELDS:
            out[name][rows] = columns[name]
    return out


Key: TypeAlias = tuple[bool, str, int, int, int]
"""Whether SGLang's, our name of the GPU, experts held, N, place in `KINDS`."""

TRITON_OF_SGLANG = ((514, "3.6.0"), (0, "3.5.1"))
"""From which version of SGLang on (0.5.14 as 514) which folder of tables is the newest that it looks into."""


class TunedTables:
    """Tables by what they are for and by Triton's version; a file is read when its layer is asked for."""

    def __init__(self, folders: Iterable[Path | str] = ()) -> None:
        self._files: dict[Key, dict[str, tuple[Path, TableName]]] = {}
        for path in sorted(file for folder in folders for file in Path(folder).rglob("E=*.json")):
            if not is_table_name(path):
                continue
            name = parse_table_name(path)
            kind = _kind(name)
            try:
                gpu = load_gpu(name.device_name.replace("_", " ")).name
            except UnknownGpuError:
                continue
            if kind is not None:
                key = (name.stack == "sglang", gpu, int(name.E or 0), name.N, kind)
                self._files.setdefault(key, {})[name.triton_version or ""] = (path, name)
        self._read = lru_cache(maxsize=None)(_entries)

    def __contains__(self, key: Key) -> bool:
        return key in self._files

    def covers(self, launch: Launched) -> NDArray[np.bool_]:
        """Layers that there is a table for, whether or not it ran, [n]."""
        return np.array([key in self._files for key in keys(launch)], dtype=bool)

    def running(self, key: Key, version: float, tokens: Array) -> dict[str, Array] | None:
        """What a version of the stack launches with for numbers of tokens [n], by the names of `FIELDS`: the entry nearest to each.

        None where it finds no table that can be read.
        """
        limit = next(triton for since, triton in TRITON_OF_SGLANG if version >= since) if key[0] else "9"
        allowed = {triton: file for triton, file in self._files.get(key, {}).items() if triton <= limit}
        table = self._read(*allowed[max(allowed)]) if allowed else None
        if table is None:
            return None
        place = np.abs(table[0][:, None] - tokens).argmin(axis=0)
        return {name: table[1][place, i] for i, name in enumerate(FIELDS)}


def _entries(path: Path, name: TableName) -> tuple[Array, Array] | None:
    """Token counts [m] and configurations [m, 6] of a table; None where it cannot be read or is empty."""
    try:
        entries = [(m, c) for m, c in read_table(path, name).entries if c is not None]
    except InputError:
        return None
    rows = [[*(c.parameters[field] for field in FIELDS[:4]), c.num_warps, c.num_stages] for _, c in entries]
    return (np.array([float(m) for m, _ in entries]), np.array(rows, dtype=float)) if rows else None


def _kind(name: TableName) -> int | None:
    if name.kind != "fused_moe" or name.down or name.per_channel_quant:
        return None
    return {(None, None): BF16, ("fp8_w8a8", None): FP8, ("fp8_w8a8", (128, 128)): FP8_BLOCK}.get((name.dtype, name.block_shape))


def keys(launch: Launched) -> list[Key]:
    """What tables for the layers would be filed under, [n]."""
    layers = launch.layers
    columns = (layers.sglang.tolist(), launch.held.tolist(), layers.inner.tolist(), layers.kind.tolist())
    return [(bool(sglang), launch.gpu.name, int(held), int(inner), kind) for sglang, held, inner, kind in zip(*columns, strict=True)]


def here() -> TunedTables:
    """Those in the folders that the environment names; looked for once."""
    return _below(tuple(read_settings().table_folders))


@lru_cache(maxsize=2)
def _below(folders: Sequence[Path]) -> TunedTables:
    return TunedTables(folders)
