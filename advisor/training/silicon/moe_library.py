"""Fitting what is learned of library layers, and judging it on whole models and whole GPUs left out, beside a crude baseline.

Measured layers of library kernels (`rows.silicon`, operator `moe_library`), without what cannot be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import list_gpus, load_gpu
from advisor.learned.layers.moe_layer import nemotron
from advisor.learned.library import moe_layers
from advisor.learned.library.moe_kernels import LABELS, TASK, LayerSeries, LibraryLayers, features, identity
from advisor.learned.library.moe_layers import (
    CONSTANTS,
    FAMILIES,
    FORMATS,
    NAMES,
    SPELLED,
    MoeLayers,
    Reference,
    Terms,
    family,
    rate_of,
    reference,
)
from advisor.learned.library.series_model import equally, number, numbers, relatives
from advisor.learned.machine import chip
from advisor.pipelines import Array, token_draws
from advisor.rows import aiter, silicon
from advisor.training.grow import one_thread
from advisor.training.silicon import series
from advisor.training.silicon.series import TREES, Fit, Learnable, Split, far_from_neighbours

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


TREES_OF_LAYERS = TREES | {"num_leaves": 200, "learning_rate": 0.06, "min_data_in_leaf": 20}
QUICK = TREES_OF_LAYERS | {"learning_rate": 0.14, "num_leaves": 96}
WHOLE = Fit(rounds=400, options=TREES_OF_LAYERS, steps=4000, most=180_000)
OF_FOLD = Fit(rounds=250, options=TREES_OF_LAYERS, steps=4000, most=150_000)
"""Nearly as much as what serves: with a third of the rows and steps, models left out were 6.9 instead of 5.9 % off."""

FEW, LEAST_OF_FEW = 5_000, 20
"""Rows up to which trees answer alone, without a network beside them, and from which a series' constants are then its own: series with
fewer have those of their stack, not of their format."""

CRUDE = replace(OF_FOLD, rounds=120, options=QUICK, steps=0)
MOST_JUDGED = 4_000
"""Rows judged of what is left out."""

FOLDS = 6
LEAST_ROWS, MOST_OF_SERIES = 60, 600
"""Rows of a series from which its constants are its own; rows that they are fitted to at most."""

FIRMNESS = 0.3
"""How firmly a constant is held where it starts."""


def train(
    folders: Iterable[Path | str],
    exclude_gpus: Sequence[str] = (),
    exclude_models: Sequence[tuple[int, int, int, int]] = (),
    progress: Callable[[str], None] = lambda text: None,
) -> LibraryLayers:
    """The model of all layers in the folders, with what it held out.

    Args:
        folders: Of `rows.silicon`, or of `rows.aiter`.
        exclude_gpus: Names of GPUs to leave out entirely.
        exclude_models: Models (E, topk, H, inter) to leave out.
        progress: Told what is being done.

    Raises:
        MissingDependencyError: Packages of the extra `train` are not installed.
    """
    gpus = [gpu.name for gpu in list_gpus() if gpu.name not in exclude_gpus]
    with one_thread():
        rows = read(folders, gpus, exclude_models, progress)
        progress(f"{len(rows)} library layers of {len(rows.series)} series and {np.unique(rows.model).size} models")
        figures = judged(rows, tuple(SPLITS.values()), None, progress)
        fitted = series.fit(learnable(rows), _alone(WHOLE, rows))
    measured = {name: _models_of(rows, rows.gpu == name) for name in np.unique(rows.gpu).tolist()}
    return LibraryLayers(series=rows.series, measured=measured, **fitted, **figures)


SPLITS = {"model": "models", "gpu": "gpus"}
"""Names of `advisor evaluate`'s splits for what is left out here."""


def judge(
    folders: Iterable[Path | str],
    gpus: Sequence[str] | None = None,
    leave_out: Sequence[str] = tuple(SPLITS),
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Figures of models fitted anew by what was left out: "library layers: models left out"; arguments as of `operators.judge`."""
    wanted = [SPLITS[item] for item in leave_out if item in SPLITS]
    rows = read(folders, None, (), progress) if wanted else ()
    if not rows:
        return {}
    return {f"library layers: {what} left out": figures for what, figures in judged(rows, wanted, gpus, progress)["held_out"].items()}


def judged(
    rows: Measured, wanted: Sequence[str], gpus: Sequence[str] | None, progress: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """What to expect (`series.expected`) of models and of GPUs left out, of a sample of the rows."""
    some = rows.take(np.sort(np.random.default_rng(0).permutation(len(rows))[: OF_FOLD.most]))
    learnable_rows = learnable(some)
    return series.expected(
        {
            what: series.left_out(learnable_rows, _splits(some, what, gpus), _alone(OF_FOLD, rows), CRUDE, MOST_JUDGED, progress)
            for what in wanted
        },
        "models",
        learnable_rows,
    )


def _alone(how: Fit, rows: Measured) -> Fit:
    return how if len(rows) > FEW else replace(how, steps=0)


def _splits(rows: Measured, what: str, gpus: Sequence[str] | None) -> Iterator[Split]:
    if what == "models":
        models = np.random.default_rng(1).permutation(np.unique(rows.model))
        yield from (Split(name=f"models {i + 1} of {FOLDS}", out=np.isin(rows.model, models[i::FOLDS])) for i in range(FOLDS))
        return
    names = np.unique(rows.gpu).tolist()
    for name in names if gpus is None else [item for item in names if item in gpus]:
        others = relatives([item for item in names if item != name], load_gpu(name))
        if others:
            yield Split(name=name, out=rows.gpu == name, identities=equally([identity(load_gpu(other)) for other in others]))


def learnable(rows: Measured) -> Learnable:
    """The rows as `series` fits and judges them."""
    form = np.array([item.name for item in FORMATS])[rows.layers.form]
    kinds = np.array([family(item.kernel) for item in rows.series])[rows.which]
    return Learnable(
        task=TASK,
        which=rows.which,
        gpu=rows.gpu,
        groups={"format": form, "GPU": rows.gpu, "kernel": kinds},
        alike=form,
        apart={"models": rows.model},
        labels=LABELS,
        crude=crude(rows),
        constants=lambda of: fit_constants(rows, of),
        described=lambda constants: table(rows, constants),
    )


def _models_of(rows: Measured, of: NDArray[np.bool_]) -> dict[int, tuple[int, int]]:
    """Models measured of each series, by its place, with a gate and without, among rows `of` [n]."""
    distinct = np.unique(np.stack([rows.which, rows.model, nemotron(rows.layers.hidden, rows.layers.topk)], axis=1)[of], axis=0)
    counts = {place: distinct[distinct[:, 0] == place, 2] for place in np.unique(distinct[:, 0]).tolist()}
    return {place: (int((without == 0).sum()), int(without.sum())) for place, without in counts.items()}


def fit_constants(rows: Measured, of: NDArray[np.bool_]) -> Array:
    """Logarithms of the constants of every series, [series, constants], from rows `of` [n]; where there are few, of its nearest ones."""

    def us_of(index: NDArray[np.intp]) -> Callable[[Array], Array]:
        some = rows.take(index)
        return lambda logarithms: reference(some.layers, some.need, np.broadcast_to(logarithms, (len(some), logarithms.size))).us

    begin = np.log(np.array(list(CONSTANTS.values())))
    return series.fit_constants(
        rows.series,
        rows.which,
        of,
        begin,
        us_of,
        rows.latency_us,
        kin=KIN if len(rows) > FEW else (*KIN, lambda item: (item.stack, item.instructions)),
        least=LEAST_ROWS if len(rows) > FEW else LEAST_OF_FEW,
        most=MOST_OF_SERIES,
        firmness=FIRMNESS,
        steps=30,
    )


KIN: tuple[Callable[[LayerSeries], tuple[Any, ...]], ...] = (
    lambda item: (item.kernel, item.form, item.instructions),
    lambda item: (family(item.kernel), item.form, item.instructions),
    lambda item: (item.form, item.instructions),
)
"""What series of one kind share: kernel, family of kernels, format; each with the GPU's instructions."""


def table(rows: Measured, constants: Array) -> tuple[Array, Array]:
    """Features [n, f] and log(latency / reference) [n]."""
    reference = rows.reference(constants)
    places = sorted({item.place for item in rows.series})
    kernel = np.array([places.index(item.place) for item in rows.series])[rows.which]
    x = features(rows.layers, rows.need, reference, kernel, [rows.series[i] for i in rows.which.tolist()])
    names, of = np.unique(rows.gpu, return_inverse=True)
    who = np.stack([identity(load_gpu(name)) for name in names.tolist()])[of]
    return np.concatenate([x, who], axis=1), np.log(rows.latency_us / reference.us)


def crude(rows: Measured) -> tuple[Array, Array]:
    """What the baseline sees, sizes, format, kernel and GPU, [n, f], and log(latency / plain roofline), [n]."""
    layers, need = rows.layers, rows.need
    names, of = np.unique(rows.gpu, return_inverse=True)
    peaks = [
        [f.rate * f.sms * f.clock for f in (chip(load_gpu(name), rate_of(load_gpu(name), form)) for form in FORMATS)]
        for name in names.tolist()
    ]
    roofline = np.maximum(need.flop / np.array(peaks)[of, layers.form], need.weights_dram + need.rows_dram) + 15
    who = np.stack([identity(load_gpu(name)) for name in names.tolist()])[of]
    sizes = [np.log(token) for token in (layers.tokens, layers.experts, layers.topk, layers.hidden, layers.inner, roofline)]
    labels = [layers.form, rows.which, layers.alpha, layers.loads.used / layers.experts]
    return np.concatenate([np.stack([*sizes, *labels], axis=1), who], axis=1), np.log(rows.latency_us / roofline)
