"""Fitting what is learned of the published operators, and judging it on whole models, pairs of batch and length, and GPUs left out, beside
a crude baseline.

Measured operators in the publisher's layout (`rows.silicon`), by kind, without what cannot be right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.gpus.hardware import list_gpus, load_gpu
from advisor.learned.library.moe_layers import kernel_class
from advisor.learned.library.series_model import number, numbers
from advisor.learned.operators.model import (
    OperatorModel,
    Series,
    answering_for,
    bound,
    features,
    identity,
    labels_of,
    numbers_of_words,
    reference,
    start,
)
from advisor.learned.operators.sparse import Operators, together
from advisor.learned.operators.work import KIND_OF, KINDS, columns_of, further_words, model_of, timed_kernel
from advisor.pipelines import Array
from advisor.rows import silicon
from advisor.rows.columns import CONNECTIONS
from advisor.system import grouped
from advisor.training.grow import one_thread
from advisor.training.silicon import series
from advisor.training.silicon.series import TREES, Fit, Learnable, Split, merged

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


TREES_OF_KIND = TREES | {"num_leaves": 96, "learning_rate": 0.12, "min_data_in_leaf": 8}
QUICK = TREES_OF_KIND | {"learning_rate": 0.15}
WHOLE = Fit(rounds=160, options=TREES_OF_KIND, steps=3000, most=45_000, rate=3e-3, batch=512)
CRUDE = replace(WHOLE, rounds=70, options=QUICK, steps=0)
LEAST_OF_KIND, MOST_JUDGED = 300, 5_000
"""Rows of a kind from which it is fitted; rows judged of what is left out."""

FOLDS, PAIR_FOLDS = 4, 5
"""Parts of the models, each left out in turn, and parts of the pairs, of which one is left out."""

LEAST_ROWS, MOST_OF_SERIES, FIRMNESS = 40, 240, 0.1
"""Rows of a series from which its constants are its own; rows that they are fitted to at most; how firmly one is held where it starts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Rows of a kind on all GPUs: parts, places of their series among all, and what is left out together, [n] each."""

    kind: str
    parts: Sequence[Measured]
    series: tuple[Series, ...]
    which: NDArray[np.int64]
    gpu: NDArray[np.str_]
    us: Array
    model: NDArray[np.int64]
    pair: NDArray[np.int64]

    def __len__(self) -> int:
        return self.us.size


def train(
    folders: Iterable[Path | str],
    exclude_gpus: Sequence[str] = (),
    kinds: Sequence[str] = tuple(KINDS),
    progress: Callable[[str], None] = lambda text: None,
) -> Iterator[OperatorModel]:
    """The models of all kinds that the folders hold, one after another, each with what it held out; a kind that is no better than the
    baseline on pairs left out is not among them.

    Args:
        folders: Of `rows.silicon`.
        exclude_gpus: Names of GPUs to leave out entirely.
        kinds: Of `work.KINDS`, those to fit, in this order.
        progress: Told what is being done.

    Raises:
        MissingDependencyError: Packages of the extra `train` are not installed.
    """
    gpus = [gpu.name for gpu in list_gpus() if gpu.name not in exclude_gpus]
    with one_thread():
        figures = read(folders, gpus, progress)
        for table in (joined(kind, figures[kind]) for kind in kinds if kind in figures):
            if len(table) < LEAST_OF_KIND:
                continue
            model = fit(table, progress)
            if model.is_better:
                yield model
            else:
                progress(f"{table.kind} is left out: no better than the baseline")


SPLITS = {"model": "models", "shape": "pairs", "gpu": "gpus"}
"""Names of `advisor evaluate`'s splits for what is left out here."""


def judge(
    folders: Iterable[Path | str],
    gpus: Sequence[str] | None = None,
    leave_out: Sequence[str] = tuple(SPLITS),
    progress: Callable[[str], None] = lambda text: None,
) -> dict[str, Any]:
    """Figures of models fitted anew by what was left out, each beside the crude baseline's: "DSA decode: pairs left out" and so on.

    Args:
        folders: Of `rows.silicon`.
        gpus: Names of the GPUs to leave out one by one; None: all that have relatives.
        leave_out: Keys of `SPLITS`; others say nothing here.
        progress: Told what is being done.
    """
    out: dict[str, Any] = {}
    for kind, parts in read(folders, None, progress).items():
        table = joined(kind, parts)
        progress(f"{kind}: {len(table)} rows")
        wanted = [SPLITS[item] for item in leave_out if item in SPLITS]
        out |= {f"{kind}: {what} left out": figures for what, figures in judged(table, wanted, gpus, progress)["held_out"].items()}
    return out


def joined(kind: str, parts: Sequence[Measured]) -> Table:
    """The rows of all GPUs, at most `WHOLE.most` drawn at random."""
    total = sum(len(part) for part in parts)
    if total > WHOLE.most:
        rng = np.random.default_rng(0)
        parts = [part.take(np.sort(rng.permutation(len(part))[: round(len(part) * WHOLE.most / total)])) for part in parts]
    series = tuple(sorted({item for part in parts for item in part.series}))
    place = {item: i for i, item in enumerate(series)}
    return Table(
        kind=kind,
        parts=parts,
        series=series,
        which=np.concatenate([np.array([place[item] for item in part.series], dtype=np.int64)[part.which] for part in parts]),
        gpu=np.concatenate([np.full(len(part), part.gpu) for part in parts]),
        us=np.concatenate([part.latency_us for part in parts]),
        model=np.concatenate([part.model for part in parts]),
        pair=np.concatenate([part.pair for part in parts]),
    )


def fit(table: Table, progress: Callable[[str], None]) -> OperatorModel:
    """The model of a kind."""
    progress(f"{table.kind}: {len(table)} rows of {len(table.series)} series")
    parts = judged(table, tuple(SPLITS.values()), None, progress)
    measured = {name: np.unique(table.which[table.gpu == name]).tolist() for name in np.unique(table.gpu).tolist()}
    fitted = series.fit(learnable(table), WHOLE)
    return OperatorModel(kind=table.kind, series=table.series, models=np.unique(table.model), measured=measured, **fitted, **parts)


def judged(
    table: Table, wanted: Sequence[str], gpus: Sequence[str] | None, progress: Callable[[str], None] = lambda text: None
) -> dict[str, Any]:
    """What to expect (`series.expected`) of models, pairs and GPUs left out. One in five pairs is left out once, of fits as large as the
    one that serves: intervals come from these."""
    learnable_rows = learnable(table)
    errors = {what: series.left_out(learnable_rows, splits(table, what, gpus), WHOLE, CRUDE, MOST_JUDGED, progress) for what in wanted}
    return series.expected(errors, "pairs", learnable_rows)


def learnable(table: Table) -> Learnable:
    """The rows of a kind as `series` fits and judges them."""
    operators = np.array([item.operator for item in table.series])[table.which]
    return Learnable(
        task=table.kind,
        which=table.which,
        gpu=table.gpu,
        groups={"": operators, "GPU": table.gpu},
        alike=operators,
        apart={"models": table.model, "pairs": table.pair},
        labels=labels_of(table.kind),
        crude=crude(table),
        constants=lambda of: fit_constants(table, of),
        described=lambda constants: described(table, constants),
    )


def fit_constants(table: Table, of: NDArray[np.bool_]) -> Array:
    """Logarithms of the constants of every series, [series, constants], from rows `of` [n]; where there are few, of its nearest ones."""
    terms = _terms(table)

    def us_of(index: NDArray[np.intp]) -> Callable[[Array], Array]:
        chosen: Any = {name: tuple(item[index] for item in stage) for name, stage in terms.items()}
        return lambda logarithms: reference(chosen, logarithms)[0]

    return series.fit_constants(
        table.series,
        table.which,
        of,
        start(len(terms)),
        us_of,
        table.us,
        kin=KIN,
        least=LEAST_ROWS,
        most=MOST_OF_SERIES,
        firmness=FIRMNESS,
        steps=12,
    )


KIN: tuple[Callable[[Series], tuple[Any, ...]], ...] = (
    lambda item: (item.operator, item.kernel, item.words),
    lambda item: (item.operator,),
)
"""What series of one kind share: operator, kernel and words, or the operator alone."""


def _terms(table: Table) -> dict[str, Any]:
    """The stages of all rows."""
    parts = [KINDS[table.kind].stages(part.rows, load_gpu(part.gpu)) for part in table.parts]
    return {name: tuple(np.concatenate(item) for item in zip(*(part[name] for part in parts), strict=True)) for name in parts[0]}


def described(table: Table, constants: Array) -> tuple[Array, Array]:
    """Features [n, f] and log(latency / reference) [n]."""
    stages = _terms(table)
    us, pieces = reference(stages, constants[table.which])
    series_of = [table.series[i] for i in table.which.tolist()]
    x = features(together([part.rows for part in table.parts]), stages, us, pieces, series_of, numbers_of_words(table.series))
    return np.concatenate([x, _identities(table)], axis=1), np.log(table.us / us)


def crude(table: Table) -> tuple[Array, Array]:
    """What the baseline sees: sizes, series and GPU, [n, f], and log(latency / bound), [n]."""
    least = np.concatenate([bound(part.rows, load_gpu(part.gpu))[0] for part in table.parts])
    sizes = [np.log2(np.maximum(size, 0.5)) for size in together([part.rows for part in table.parts]).sizes.values()]
    return np.concatenate([np.stack([*sizes, np.log(least)], axis=1), _identities(table), table.which[:, None]], axis=1), np.log(
        table.us / least
    )


def _identities(table: Table) -> Array:
    """`identity` of each row's GPU, [n, figures]."""
    return np.concatenate([np.tile(identity(load_gpu(part.gpu)), (len(part), 1)) for part in table.parts])


def splits(table: Table, what: str, gpus: Sequence[str] | None) -> Iterator[Split]:
    """What is left out in turn."""
    if what == "gpus":
        names = np.unique(table.gpu).tolist()
        told_by = {name: answering_for(load_gpu(name), [item for item in names if item != name]) for name in names}
        for name in (item for item in names if told_by[item] and (gpus is None or item in gpus)):
            yield Split(name=name, out=table.gpu == name, identities=told_by[name])
        return
    of = table.model if what == "models" else table.pair
    groups = np.random.default_rng(1).permutation(np.unique(of))
    if what == "pairs":
        yield Split(name="pairs", out=np.isin(of, groups[::PAIR_FOLDS]))
    elif groups.size > 1:
        yield from (Split(name=f"models {i + 1} of {FOLDS}", out=np.isin(of, groups[i::FOLDS])) for i in range(FOLDS))
