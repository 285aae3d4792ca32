"""Fitting the networks that stand beside the forests of library kernels and of layers (`learned.network`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned.network import Network
from advisor.pipelines import Array
from advisor.system.errors import MissingDependencyError

WIDTH, DEPTH, BATCH = 128, 3, 2048
RATE, WARM_UP, DECAY = 3e-3, 200, 1e-4
AVERAGED = 0.995
"""Share of what a step keeps of the weights' running mean, which is what serves."""

WIDE = 20.0
"""Features that reach beyond this and are never negative are read as logarithms."""

SMALL_ERROR = 0.05
"""Of the target's spread: errors beyond count by their size, no longer by their square."""


def fit_correction(
    features: Array,
    target: Array,
    labels: int,
    steps: int,
    rate: float = RATE,
    *,
    batch: int = BATCH,
    odds: Array | None = None,
    nothing: float | None = None,
    seed: int = 0,
    width: int = WIDTH,
    depth: int = DEPTH,
) -> Network:
    """A network of `width` units in each of `depth` layers, to the bit the same on one machine.

    Args:
        features: [n, f].
        target: [n].
        labels: How many features, the last, are no quantities: their combinations are told apart.
        steps: Of `batch` rows.
        rate: Of learning, at most: it falls to nothing along a cosine.
        batch: How many rows a step sees.
        odds: How often each row is drawn, relative to the others, [n]; None: all of them in turn.
        nothing: What stands for a feature that a row does not have: it counts for neither its mean nor its spread.
        seed: Of the first weights and of what is drawn.
        width: Units of a layer.
        depth: Layers before the last, which has one value.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    features = features.astype(np.float32)
    wide = (features.min(axis=0) >= 0) & (features.max(axis=0) > WIDE)
    read = np.where(wide, np.log1p(np.maximum(features, 0)), features)
    there: NDArray[np.bool_] | bool = True
    if nothing is not None:
        there = (features != nothing) | (features == nothing).all(axis=0)
    network = Network(
        wide=wide,
        middle=read.mean(axis=0, dtype=np.float64, where=there).astype(np.float32),
        scale=np.maximum(read.std(axis=0, dtype=np.float64, where=there), 1e-6).astype(np.float32),
        known=np.zeros((1, labels), dtype=np.float32),
        layers=(),
    )
    scaled = network.inputs(features)[:, features.shape[1] - labels : features.shape[1]]
    network = replace(network, known=np.unique(scaled, axis=0))
    middle = np.median(target)
    scale = np.abs(target - middle).mean()
    with torch_on_one_thread("a network beside a forest") as torch:
        torch.manual_seed(seed)
        draws = _draws(len(target), min(batch, len(target)), steps, odds, torch.Generator().manual_seed(seed), torch)
        inputs = network.inputs(features)
        widths = (inputs.shape[1], *[width] * depth, 1)
        layers = _layers(inputs, (target - middle) / scale, widths, draws, steps, rate, torch)
    weights, offsets = layers.pop()
    layers.append((weights * scale, offsets * scale + middle))
    return replace(network, layers=tuple((_as_stored(weights), _as_stored(offsets)) for weights, offsets in layers))


def _as_stored(values: Array) -> NDArray[np.float32]:
    return values.astype(np.float16).astype(np.float32)


def _draws(rows: int, batch: int, steps: int, odds: Array | None, draw: Any, torch: Any) -> Iterator[Any]:
    """The numbers of each step's rows."""
    if odds is not None:
        upto = torch.from_numpy(np.cumsum(odds) / odds.sum())
        for _ in range(steps):
            yield torch.searchsorted(upto, torch.rand(batch, generator=draw, dtype=torch.float64)).clamp(max=rows - 1)
        return
    left = torch.zeros(0, dtype=torch.int64)
    for _ in range(steps):
        if left.numel() < batch:
            left = torch.randperm(rows, generator=draw)
        yield left[:batch]
        left = left[batch:]


def _layers(
    inputs: NDArray[np.float32], target: Array, widths: tuple[int, ...], draws: Iterator[Any], steps: int, rate: float, torch: Any
) -> list[tuple[Array, Array]]:
    linear = [torch.nn.Linear(a, b) for a, b in pairwise(widths)]
    between = [item for layer in linear[:-1] for item in (layer, torch.nn.SiLU())]
    network = torch.nn.Sequential(*between, linear[-1])
    parameters = [item for layer in linear for item in (layer.weight, layer.bias)]
    means = [item.detach().clone() for item in parameters]
    x, y = torch.from_numpy(inputs), torch.from_numpy(target.astype(np.float32))
    optimizer = torch.optim.AdamW(parameters, lr=rate, weight_decay=DECAY)
    for step, batch in enumerate(draws):
        optimizer.param_groups[0]["lr"] = rate * min(1.0, (step + 1) / WARM_UP) * (1 + np.cos(np.pi * step / steps)) / 2
        loss = torch.nn.functional.huber_loss(network(x[batch])[:, 0], y[batch], delta=SMALL_ERROR) / SMALL_ERROR
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, max_norm=1.0)
        optimizer.step()
        kept = min(AVERAGED, (step + 1) / (step + 10))
        with torch.no_grad():
            for mean, item in zip(means, parameters, strict=True):
                mean.lerp_(item, 1 - kept)
    arrays = [item.numpy().astype(np.float64) for item in means]
    return [(weights.T.copy(), offsets) for weights, offsets in zip(arrays[::2], arrays[1::2], strict=True)]


@contextmanager
def torch_on_one_thread(what: str) -> Iterator[Any]:
    """The module torch, held to one thread: sums come out the same to the bit, and on small arrays more threads only wait for each other.

    Args:
        what: What needs torch, for the error.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(f"{what} needs torch", remedy="pip install 'triton-advisor[train]'") from None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield torch
    finally:
        torch.set_num_threads(threads)
