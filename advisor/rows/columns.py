"""Columns of ROWS under the names that others give them, parameters of kernels likewise, and the columns of configurations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import numpy as np

from advisor.result.schema import Configuration
from advisor.rows.cells import integers
from advisor.system.errors import InputError
from advisor.tables.entries import BLOCK_COLUMNS, BLOCK_SIZE_LIMIT, GROUP_SIZE_LIMIT, NUM_STAGES_LIMIT, NUM_WARPS_LIMIT

_SHORT_BLOCKS = {name.replace("_SIZE", ""): name for name in BLOCK_COLUMNS}
"""Names that kernels have for the blocks of products: BLOCK_M for BLOCK_SIZE_M."""


def check_letters(label: str, header: Sequence[str], read: Collection[str]) -> None:
    """Check that no column is one of those that are `read` but for capitals and small letters, where that one is not there.

    Raises:
        InputError: Names file, column and its name.
    """
    missing = {name.lower(): name for name in sorted(read) if name not in header}
    for name in header:
        if (meant := missing.get(name.lower())) is not None:
            raise InputError(
                f"{label}: column {name}",
                name,
                f"{meant}, in capitals and small letters as here",
                "rename it: under another name it would pass through unread",
            )


def check_block_names(label: str, cells: Mapping[str, Sequence[str]], tiled: np.ndarray) -> None:
    """Check that rows of `tiled` [n] operators do not name their blocks as kernels do, BLOCK_M, in columns that only attention has.

    Raises:
        InputError: Names file, row, column and its name.
    """
    for name, column in cells.items():
        meant = _SHORT_BLOCKS.get(name.upper())
        if meant is None or meant in cells:
            continue
        for row in np.flatnonzero(tiled).tolist():
            if column[row].strip():
                raise InputError(
                    f"{label}: row {row + 1}: column {name}",
                    name,
                    f"{meant} for gemm and fused_moe",
                    "rename it: under another name it would pass through unread",
                )


Cells = Sequence[str]

SAME: dict[str, tuple[str, ...]] = {
    "gpu": ("device",),
    "M": ("m",),
    "N": ("n",),
    "K": ("k",),
    "B": ("batch_size",),
    "H": ("num_heads",),
    "H_kv": ("num_key_value_heads",),
    "D": ("head_dim",),
    "dtype": ("gemm_dtype", "attn_dtype"),
    "weight_dtype": ("kv_cache_dtype", "kv_dtype"),
    "window": ("window_size",),
    "stack": ("framework",),
    "stack_version": ("version",),
    "implementation": ("kernel_source",),
}
"""Our column, and theirs with the same cells."""

MARKS = frozenset({"gemm_dtype", "attn_dtype", "kv_cache_dtype", "kernel_source", "moe_dtype"})
"""Columns by which rows of theirs are known."""

OF_LAYERS = {
    "M": "num_tokens",
    "H": "hidden_size",
    "E": "num_experts",
    "dtype": "moe_dtype",
    "routing": "distribution",
    "ep": "moe_ep_size",
}
"""The same of mixture-of-experts layers; their N is `inter_size` / `moe_tp_size`."""

PUBLISHED_OPERATORS = frozenset(
    {
        *("gdn", "kda", "mamba2", "encoder_attention", "mla_gen_pre", "mla_gen_post", "msa_context_module", "msa_generation_module"),
        *(f"dsa_{phase}_module{rest}" for phase in ("context", "generation") for rest in ("", "_skip_indexer")),
        *(f"dsv4_{form}_{phase}_module" for form in ("csa", "hca") for phase in ("context", "generation")),
        *("dsv4_hca_attn_module", "dsv4_flash_hca_attn_module", "dsv4_paged_mqa_logits_module", "dsv4_csa_topk_calib"),
        *("glm5_dsa_attn_module", "glm5_mqa_logits_module", "glm5_topk_module"),
    }
)
"""Their names (`op_name`) of operators that are read by their own columns alone (`steps.batches_of_rows`)."""

CONNECTIONS = {"pre": "mhc_pre", "post": "mhc_post"}
"""And of hyper-connections, known by their column `hc_mult`."""

BLOCKED = "fp8_block"
BLOCK_SHAPE = "128 128"


def translated(raw: Mapping[str, Cells], count: int) -> dict[str, Cells]:
    """The columns that their names give, beside those in `raw`, which count where they are there.

    `fp8_block` is fp8 with scales per 128 x 128; a context attention is a causal prefill of `isl` tokens, a generation attention a decode
    with `step` tokens before; `latency` is in milliseconds.
    """
    out: dict[str, Cells] = {}
    for ours, theirs in SAME.items() if MARKS & raw.keys() else ():
        present = next((name for name in theirs if name in raw), None)
        if ours not in raw and present is not None:
            out[ours] = [_number(cell) for cell in raw[present]] if ours in ("H_kv", "window") else raw[present]
    if "num_key_value_heads" in raw and "H_kv" in out and "num_heads" in raw:  # 0: as many as query heads
        out["H_kv"] = [cell or heads for cell, heads in zip(out["H_kv"], raw["num_heads"], strict=True)]
    if "moe_dtype" in raw:
        out |= {ours: raw[theirs] for ours, theirs in OF_LAYERS.items() if theirs in raw and ours not in raw}
        out |= {} if "op" in raw else {"op": ["layer"] * count}
        if "inter_size" in raw and "N" not in raw:
            shares = raw.get("moe_tp_size", ["1"] * count)
            out["N"] = [_number(str(float(whole) // float(share or 1))) for whole, share in zip(raw["inter_size"], shares, strict=True)]
    if "op_name" in raw and "op" not in raw:
        named = [CONNECTIONS.get(cell, cell) if "hc_mult" in raw else cell for cell in (item.strip() for item in raw["op_name"])]
        if all(name in PUBLISHED_OPERATORS or name in CONNECTIONS.values() for name in named):
            out["op"] = named
    have = {**raw, **out}
    if "stack" in out:
        out["stack"] = [cell.lower() for cell in out["stack"]]
    if "isl" in raw and "num_heads" in raw and "op" not in have:
        decodes = [cell.strip() not in ("", "0") for cell in raw["step"]] if "step" in raw else [False] * count
        if "op_name" in raw:
            decodes = [cell.startswith("generation") for cell in raw["op_name"]]
        out["op"] = ["decode" if decode else "prefill" for decode in decodes]
        past = raw["step"] if "step" in raw else ["0"] * count
        out["M"] = ["1" if decode else cell for decode, cell in zip(decodes, raw["isl"], strict=True)]
        out["N"] = [str(int(float(b)) + int(float(a))) for a, b in zip(raw["isl"], past, strict=True)]
        out["causal"] = ["1"] * count
    if "latency" in raw and "latency_us" not in raw and MARKS & raw.keys():
        out["latency_us"] = [f"{float(cell) * 1e3!r}" if cell.strip() and float(cell) else "" for cell in raw["latency"]]
    blocked = [cell.strip() == BLOCKED for cell in have.get("dtype", ())]
    if any(blocked):
        given = raw.get("block_shape", [""] * count)
        out["block_shape"] = [BLOCK_SHAPE if item and not cell.strip() else cell for item, cell in zip(blocked, given, strict=True)]
    if {"stack", "implementation"} & {*raw, *out}:
        out |= _of_serving_stacks({**raw, **out}, count)
    return out


def _of_serving_stacks(raw: Mapping[str, Cells], count: int) -> dict[str, Cells]:
    """What a serving stack's attention has that rows may leave out: it is causal, and a decode has one query."""
    out: dict[str, Cells] = {}
    if "B" in raw and "D" in raw and "H" in raw:
        if "causal" not in raw:
            out["causal"] = ["1"] * count
        if "M" not in raw and "N" in raw and "op" in raw:
            out["M"] = ["1" if op.strip() == "decode" else cell for op, cell in zip(raw["op"], raw["N"], strict=True)]
        if "N" not in raw and "M" in raw:
            out["N"] = raw["M"]
    return out


def _number(cell: str) -> str:
    """A count; empty where it is 0, negative or not a number."""
    try:
        value = float(cell)
    except ValueError:
        return ""
    return str(int(value)) if value > 0 else ""


_ALIASES: dict[str, dict[str, str]] = {
    family: {
        "BLOCK_M": "BLOCK_SIZE_M",
        "BLOCK_N": "BLOCK_SIZE_N",
        "BLOCK_K": "BLOCK_SIZE_K",
        "BM": "BLOCK_SIZE_M",
        "BN": "BLOCK_SIZE_N",
        "BK": "BLOCK_SIZE_K",
        "GROUP_M": "GROUP_SIZE_M",
    }
    for family in ("gemm", "fused_moe")
} | {
    "attention": {"BLOCK_SIZE_M": "BLOCK_M", "BLOCK_SIZE_N": "BLOCK_N", "BLOCK_Q": "BLOCK_M", "BLOCK_KV": "BLOCK_N"},
}
_NEEDED: dict[str, tuple[str, ...]] = {
    "gemm": ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"),
    "fused_moe": ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K"),
    "attention": ("BLOCK_M", "BLOCK_N"),
}


def family_names(names: Iterable[str], family: str) -> dict[str, str]:
    """Kernel parameter -> the family's name of it (its own where there is none); no two map to the same name."""
    listed = list(names)
    aliases: Mapping[str, str] = _ALIASES.get(family, {})
    stands: dict[str, str] = {}
    for alias, target in aliases.items():  # the usual names first; a kernel that has the family's own name means that
        if alias in listed and target not in listed:
            stands.setdefault(target, alias)
    chosen = {alias: target for target, alias in stands.items()}
    return {name: chosen.get(name, name) for name in listed}


def needed_parameters(family: str) -> tuple[str, ...]:
    """The parameters that the model of the family cannot do without, by the family's names."""
    return _NEEDED.get(family, ())


def missing_parameters(configuration: Configuration, family: str) -> list[str]:
    """The needed parameters that a configuration does not name."""
    return [name for name in needed_parameters(family) if name not in configuration.parameters]


CONFIG_COLUMNS = (*BLOCK_COLUMNS, "GROUP_SIZE_M", "num_warps", "num_stages")
CONFIG_DEFAULTS = {"GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 3}
"""What a row gets for a configuration field it leaves out although it names its blocks: Triton's defaults, no grouping."""

OF_DEFAULTS = "default_"
"""How the columns of a summary's default configurations begin."""

_LIMITS = {
    **dict.fromkeys(BLOCK_COLUMNS, BLOCK_SIZE_LIMIT),
    "GROUP_SIZE_M": GROUP_SIZE_LIMIT,
    "num_warps": NUM_WARPS_LIMIT,
    "num_stages": NUM_STAGES_LIMIT,
}


def configuration_columns(label: str, cells: Mapping[str, Sequence[str]], prefix: str = "") -> dict[str, np.ndarray]:
    """The columns that are there, by their names without `prefix`: int64, 0 where the cell is empty.

    No stages at all are one: neither keeps loads of coming trips in flight. Of public sweeps of one kernel both take the same time (0.03 to
    0.09 % apart in the median of 5,505 pairs). Warps that are no power of two are read: such a row cannot launch.

    Raises:
        InputError: Names file, row, column, value, limit and remedy.
    """
    given = {name: cells[prefix + name] for name in CONFIG_COLUMNS if prefix + name in cells}
    if "num_stages" in given:
        given["num_stages"] = ["1" if cell.strip() == "0" else cell for cell in given["num_stages"]]
    return {name: integers(label, prefix + name, column, _LIMITS[name], power=name in BLOCK_COLUMNS) for name, column in given.items()}


def complete_configurations(label: str, columns: dict[str, np.ndarray], tiled: np.ndarray, prefix: str = "") -> np.ndarray:
    """Which rows [n] name a configuration; what they leave out is filled in place with the defaults.

    Rows of `tiled` [n] operators must name all three block sizes; other kernels have parameters of their own (column `parameters`).

    Raises:
        InputError: A block size is missing.
    """
    present = [name for name in CONFIG_COLUMNS if name in columns]
    if not present:
        return np.zeros(tiled.size, dtype=bool)
    given = np.any([columns[name] > 0 for name in present], axis=0)
    for name in BLOCK_COLUMNS:
        missing = tiled & (given if name not in columns else given & (columns[name] == 0))
        if missing.any():
            row = int(np.argmax(missing))
            raise InputError(
                f"{label}: row {row + 1}: {prefix}{name} is missing",
                "an empty cell",
                f"{', '.join(prefix + block for block in BLOCK_COLUMNS)}, or no configuration at all",
                "fill it, or empty all configuration cells to mean what the serving stack would launch",
            )
    for name, default in CONFIG_DEFAULTS.items():
        column = columns.get(name, np.zeros(tiled.size, dtype=np.int64))
        columns[name] = np.where(given & (column == 0), default, column)
    return given
