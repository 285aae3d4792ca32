"""Measured operators in the publisher's layout (`rows.silicon`), by kind, without what cannot be right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import load_gpu
from advisor.learned.library.moe_layers import kernel_class
from advisor.learned.library.series_model import number, numbers
from advisor.learned.operators.launches import Operators, together
from advisor.learned.operators.model import Series, bound
from advisor.learned.operators.work import KIND_OF, KINDS, columns_of, further_words, model_of, timed_kernel
from advisor.pipelines import Array
from advisor.rows import silicon
from advisor.rows.columns import CONNECTIONS
from advisor.system import grouped
from advisor.training.series import merged

FOLDERS = {
    "linear_attention": ("gdn_perf", "mamba2_perf"),
    "kda": ("kda_perf",),
    "sparse_attention": (
        "dsa_context_module_perf",
        "dsa_generation_module_perf",
        "dsv4_csa_context_module_perf",
        "dsv4_csa_generation_module_perf",
        "dsv4_hca_context_module_perf",
        "dsv4_hca_generation_module_perf",
        "dsv4_hca_attn_module_perf",
        "dsv4_paged_mqa_logits_module_perf",
        "dsv4_csa_topk_calib_perf",
        "glm5_dsa_attn_module_perf",
        "glm5_mqa_logits_module_perf",
        "glm5_topk_module_perf",
    ),
    "msa": ("msa_context_module_perf", "msa_generation_module_perf"),
    "encoder_attention": ("encoder_attention_perf",),
    "mla_bmm": ("mla_bmm_perf",),
    "mhc": ("mhc_module_perf",),
}
"""Files of each of the publisher's folders."""

MOST_OF_FILE = 9_000
"""Rows of one operator in one file that are read, drawn at random where there are more: the largest has 85,000."""

PAIR = ("batch_size", "isl", "seq_len", "step", "num_tokens")
"""Sizes that make a pair of batch and length."""

COMPILING = {("MSA prefill", "msa_fmha_sm100")}
"""Kernels that were compiled while they were timed: 8,192 tokens take TRT-LLM's 49 ms on a B200, 16,384 take 9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Launches of one kind on one GPU; `which`: places of their series among `series`; `model` and `pair`: a number for each model (or
    layout of heads), and for each pair of batch and length, [n]."""

    gpu: str
    rows: Operators
    series: tuple[Series, ...]
    which: NDArray[np.int64]
    latency_us: Array
    model: NDArray[np.int64]
    pair: NDArray[np.int64]

    def __len__(self) -> int:
        return self.latency_us.size

    def take(self, rows: NDArray[np.int64]) -> Measured:
        """Some of them."""
        columns = {name: getattr(self, name)[rows] for name in ("which", "latency_us", "model", "pair")}
        return replace(self, rows=self.rows.take(rows), **columns)


def read(
    folders: Iterable[Path | str], gpus: Sequence[str] | None = None, progress: Callable[[str], None] = lambda text: None
) -> dict[str, list[Measured]]:
    """All launches in the folders by kind, one item for each GPU; duplicates merged (their median), without those below the bound.

    Args:
        folders: Of `rows.silicon`.
        gpus: Names of the GPUs to read; None: all.
        progress: Told how many rows were left out, and why.
    """
    chosen_files: dict[tuple[str, str], list[tuple[silicon.SiliconFile, NDArray[np.bool_]]]] = {}
    for folder in folders:
        for operator, names in FOLDERS.items():
            for file in (item for name in names for item in silicon.read(folder, operator, name, gpus)):
                operators = file.columns["op_name"].astype(str)
                if "hc_mult" in file.columns:
                    operators = np.array([CONNECTIONS.get(item, item) for item in operators.tolist()])
                file.columns["op_name"] = operators
                for kind in dict.fromkeys(KIND_OF[item] for item in operators.tolist() if item in KIND_OF):
                    chosen_files.setdefault((kind, file.gpu), []).append((file, np.isin(operators, KINDS[kind].operators)))
    out = grouped((kind, _measured(kind, gpu, files, progress)) for (kind, gpu), files in sorted(chosen_files.items()))
    return out


def _measured(
    kind: str, gpu: str, files: Sequence[tuple[silicon.SiliconFile, NDArray[np.bool_]]], progress: Callable[[str], None]
) -> Measured:
    parts, series_of, latencies = [], [], []
    instructions = kernel_class(load_gpu(gpu))
    for file, mine in files:
        at = np.flatnonzero(mine)
        cells = {name: values[at] for name, values in file.columns.items()}
        kernels = zip(cells["kernel_source"].astype(str).tolist(), cells["op_name"].tolist(), strict=True)
        cells["kernel_source"] = np.array([timed_kernel(*item, file.stack, number(file.version)) for item in kernels])
        part = columns_of(kind, cells, at.size)
        part, us = _merged(part, file.latency_us[at])
        if len(part) > MOST_OF_FILE:
            chosen = np.sort(np.random.default_rng(0).permutation(len(part))[:MOST_OF_FILE])
            part, us = part.take(chosen), us[chosen]
        parts.append(part)
        latencies.append(us)
        words = list(zip(*(part.labels[name].tolist() for name in further_words(kind)), strict=True)) or [()] * len(part)
        named = zip(part.labels["op_name"].tolist(), part.labels["kernel_source"].tolist(), words, strict=True)
        series_of += [Series(op, file.stack, file.version, kernel, item, instructions) for op, kernel, item in named]
    rows, us = together(parts), np.concatenate(latencies)
    least, _ = bound(rows, load_gpu(gpu))
    compiling = np.array([(kind, label) in COMPILING for label in rows.labels["kernel_source"].tolist()])
    if compiling.any():
        progress(f"left out {compiling.sum()} of {us.size} launches of {kind} on {gpu}: compiled while they were timed")
    if (us < least).any():
        progress(f"left out {(us < least).sum()} of {us.size} launches of {kind} on {gpu}: below the bound")
    kept = (us >= least) & ~compiling
    rows, us = rows.take(kept), us[kept]
    series_of = [item for item, keep in zip(series_of, kept.tolist(), strict=True) if keep]
    series = tuple(sorted(set(series_of)))
    place = {item: i for i, item in enumerate(series)}
    return Measured(
        gpu=gpu,
        rows=rows,
        series=series,
        which=np.array([place[item] for item in series_of]),
        latency_us=us,
        model=model_of(rows),
        pair=numbers(*(rows.sizes[name] for name in PAIR if name in rows.sizes), unit=64),
    )


def _merged(rows: Operators, us: Array) -> tuple[Operators, Array]:
    """Each launch once, with the median of its latencies."""
    words = [np.unique(values, return_inverse=True)[1].astype(np.float64) for values in rows.labels.values()]
    first, middle = merged(np.stack([*rows.sizes.values(), *words], axis=1), us)
    return (rows, us) if first.size == us.size else (rows.take(first), middle)
