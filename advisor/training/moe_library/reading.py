"""Measured layers of library kernels (`rows.silicon`, operator `moe_library`), without what cannot be right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import load_gpu
from advisor.learned.library import moe_layers
from advisor.learned.library.moe_kernels import LayerSeries
from advisor.learned.library.moe_layers import FAMILIES, NAMES, SPELLED, MoeLayers, Reference, Terms
from advisor.learned.library.series_model import number, numbers
from advisor.pipelines import Array, token_draws
from advisor.rows import aiter, silicon
from advisor.training.series import far_from_neighbours

COLLAPSED_FROM = 256
"""Experts above which FlashInfer's CuTe DSL layers were timed with all tokens on topk experts: on a B200 16 tokens of 384 experts take
119 us and of 256 experts of the same size 571; 4,096 take 4,377 and 1,508."""

GROUPED = {"vllm": 2400, "sglang": 514}
"""Versions from which balanced layers of DeepSeek-V3 (7168, 2048, 8, 256) were timed with half of the experts: the grouped top-k that they
came to choose by left the others out."""

LEAST_LATENCY = "min_latency"
"""A kernel of TRT-LLM that reads less than the weights of the experts in use: of 8 experts of 170 MB a B200 took 90 us, with the DRAM at
15 TB/s."""

FAR_FROM_NEIGHBOURS = np.log(2.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Layers, one value of each per row, [n].

    Attributes:
        series: What there is.
        which: Place of each row's series.
        gpu: Name of the GPU.
        layers: What is computed.
        need: Of that GPU.
        latency_us: Measured.
        model: A number for each (H, inter, topk, E).
        configuration: A number for each series, GPU, model, share of N and routing: of its rows only M differs.
    """

    series: tuple[LayerSeries, ...]
    which: NDArray[np.int64]
    gpu: NDArray[np.str_]
    layers: MoeLayers
    need: Terms
    latency_us: Array
    model: NDArray[np.int64]
    configuration: NDArray[np.int64]

    def __len__(self) -> int:
        return self.latency_us.size

    def take(self, rows: NDArray[Any]) -> Self:
        """Rows of these numbers, or where true."""
        taken = {name: getattr(self, name)[rows] for name in ("which", "gpu", "latency_us", "model", "configuration")}
        need = Terms(**{f.name: getattr(self.need, f.name)[rows] for f in fields(Terms)})
        return replace(self, **taken, layers=self.layers.take(rows), need=need)

    def reference(self, constants: Array) -> Reference:
        """Their reference latencies with the constants of every series."""
        return moe_layers.reference(self.layers, self.need, constants[self.which])


def read(
    folders: Iterable[Path | str],
    gpus: Sequence[str] | None = None,
    exclude_models: Sequence[tuple[int, int, int, int]] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> Measured:
    """All layers in the folders, duplicates merged (their median), without those below the bound, of another routing, or far from others.

    Args:
        folders: Of `rows.silicon`, or of `rows.aiter`.
        gpus: Names of the GPUs to read; None: all.
        exclude_models: (E, topk, H, inter) to leave out.
        progress: Told how many rows were left out, and why.
    """
    rows: dict[tuple[Any, ...], list[float]] = {}
    for folder in folders:
        for key, us in _cells(folder, gpus):
            rows.setdefault(key, []).append(us)
    excluded = {(h, n, k, e) for e, k, h, n in exclude_models}
    keys = sorted(key for key in rows if tuple(key[6:10]) not in excluded)
    gpu, stack, version, kernel, form, m, hidden, inter, topk, experts, shares, routing = (
        np.array(item) for item in zip(*keys, strict=True)
    )
    latency = np.array([float(np.median(rows[key])) for key in keys])
    spelled: list[str] = [SPELLED.get(item, item) for item in form.tolist()]
    m, hidden, topk, experts, inner = (np.asarray(expert, dtype=np.float64) for expert in (m, hidden, topk, experts, inter // shares))
    alpha = np.array([token_draws.exponent(item) for item in routing.tolist()])
    versions = np.array([number(item) for item in version.tolist()])
    layers = MoeLayers(
        tokens=m,
        experts=experts,
        topk=topk,
        hidden=hidden,
        inner=inner,
        ungated=moe_layers.ungated(hidden, topk, kernel, stack, versions),
        form=np.array([NAMES.index(item) for item in spelled]),
        loads=token_draws.loads(m, experts, topk, np.ones(m.size), alpha),
        alpha=alpha,
    )
    classes = {name: moe_layers.kernel_class(load_gpu(name)) for name in set(gpu.tolist())}
    named = zip(stack.tolist(), version.tolist(), kernel.tolist(), spelled, gpu.tolist(), strict=True)
    which_of = [LayerSeries(*item[:4], instructions=classes[item[4]]) for item in named]
    series = tuple(sorted(set(which_of)))
    place = {item: i for i, item in enumerate(series)}
    which = np.array([place[item] for item in which_of])
    model = numbers(hidden, inter, topk, experts)
    _, gpu_number = np.unique(gpu, return_inverse=True)
    measured = Measured(
        series=series,
        which=which,
        gpu=gpu,
        layers=layers,
        need=_terms(layers, gpu),
        latency_us=latency,
        model=model,
        configuration=numbers(which, gpu_number, model, shares, (alpha * 100).astype(np.int64)),
    )
    return _plausible(measured, progress)


def _cells(folder: Path | str, gpus: Sequence[str] | None) -> Iterator[tuple[tuple[Any, ...], float]]:
    """What each row of a folder says of its layer, and its microseconds."""
    names = ("kernel_source", "moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size")
    for file in silicon.read(folder, "moe_library", "moe_perf", gpus) if silicon.is_layout(folder) else ():
        c = file.columns
        cells = zip(*(c[name].tolist() for name in (*names, "distribution")), file.latency_us.tolist(), strict=True)
        yield from (((file.gpu, file.stack, file.version, *key), us) for *key, us in cells)
    if gpus is None or aiter.WITH_EXPERTS in gpus:
        for form, sizes, us in aiter.read_experts(folder):
            yield (aiter.WITH_EXPERTS, "aiter", "", "tuned", form, *sizes, 1, "random"), us


def _terms(layers: MoeLayers, gpu: NDArray[np.str_]) -> Terms:
    out: dict[str, Array] = {}
    for name in np.unique(gpu).tolist():
        rows = np.flatnonzero(gpu == name)
        need = moe_layers.terms(layers.take(rows), load_gpu(name))
        for f in fields(Terms):
            values = getattr(need, f.name)
            out.setdefault(f.name, np.zeros((gpu.size, *values.shape[1:])))[rows] = values
    return Terms(**out)


def bounds(rows: Measured) -> Array:
    """Their bounds in microseconds, warm, [n]."""
    out = np.zeros(len(rows))
    for name in np.unique(rows.gpu).tolist():
        of_gpu = np.flatnonzero(rows.gpu == name)
        out[of_gpu], _ = moe_layers.bound(rows.layers.take(of_gpu), load_gpu(name))
    return out


def _plausible(rows: Measured, progress: Callable[[str], None]) -> Measured:
    cute = next(i for i, (part, _) in enumerate(FAMILIES) if part == "cutedsl")
    collapsed = np.array([moe_layers.family(item.kernel) == cute for item in rows.series])[rows.which] & (
        rows.layers.experts > COLLAPSED_FROM
    )
    collapsed |= np.array([LEAST_LATENCY in item.kernel for item in rows.series])[rows.which]
    later = np.array([number(item.version) >= GROUPED.get(item.stack, np.inf) for item in rows.series])[rows.which]
    layers = rows.layers
    deepseek = (layers.hidden == 7168) & (layers.topk == 8) & (layers.experts == 256)
    collapsed |= later & deepseek & (layers.alpha == token_draws.BALANCED)
    faster = rows.latency_us < bounds(rows)
    start = np.log(np.array(list(moe_layers.CONSTANTS.values())))
    us = moe_layers.reference(rows.layers, rows.need, start).us
    by_tokens = np.lexsort((layers.tokens, rows.configuration))
    far = far_from_neighbours(np.log(rows.latency_us / us), by_tokens, rows.configuration, FAR_FROM_NEIGHBOURS)
    for out, why in (
        (collapsed, "of other experts than their routing says"),
        (faster & ~collapsed, "below the bound"),
        (far & ~faster & ~collapsed, "twice off their neighbours"),
    ):
        progress(f"left out {out.sum()} of {len(rows)} library layers: {why}")
    return rows.take(np.flatnonzero(~collapsed & ~faster & ~far))
