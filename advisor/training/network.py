"""PipeWeave's network, refitted as a baseline (arXiv 2601.14910; `mlp_model.py`, `train_mlp.py`): log1p features, 256-128-64 with
batch norm and dropout, a sigmoid for the efficiency, mean relative error (or a pinball loss), AdamW. Only evaluation uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from advisor.pipelines import Array
from advisor.training.correction_network import torch_on_one_thread

Network = Callable[[Array], Array]
WIDTHS = (256, 128, 64)
EPOCHS = 120
BATCH = 1024
LEAST_EFFICIENCY = 1e-6


def fit_network(counts: Array, efficiency: Array, quantile: float | None = None, epochs: int = EPOCHS, seed: int = 0) -> Network:
    """Fit; the returned function gives efficiencies [n] for counts [n, f].

    Args:
        counts: Features before log1p, [n, f].
        efficiency: Tensor time / latency, in (0, 1].
        quantile: Level of the pinball loss; None for the mean relative error.
        epochs: Passes over the rows; the learning rate falls to nothing along a cosine (the original waits for a plateau).
        seed: Of the weights, the order of rows and the dropout.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    with torch_on_one_thread("PipeWeave's network") as torch:
        return _fit(counts, efficiency, quantile, epochs, seed, torch)


def _fit(counts: Array, efficiency: Array, quantile: float | None, epochs: int, seed: int, torch: Any) -> Network:
    torch.manual_seed(seed)
    layers: list[Any] = []
    width = counts.shape[1]
    for out in WIDTHS:
        layers += [torch.nn.Linear(width, out), torch.nn.ReLU(), torch.nn.BatchNorm1d(out), torch.nn.Dropout(0.1)]
        width = out
    network = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1), torch.nn.Sigmoid())
    x = torch.tensor(np.log1p(counts), dtype=torch.float32)
    y = torch.tensor(efficiency, dtype=torch.float32)[:, None].clamp(LEAST_EFFICIENCY, 1.0)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    draw = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=draw).split(BATCH):
            if rows.numel() < 2:  # batch norm needs two
                continue
            optimizer.zero_grad()
            missed = y[rows] - network(x[rows])
            loss = (missed / y[rows]).abs() if quantile is None else torch.maximum(quantile * missed, (quantile - 1) * missed)
            loss.mean().backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), max_norm=1.0)
            optimizer.step()
        schedule.step()
    network.eval()

    def predict(other: Array) -> Array:
        with torch.no_grad():
            found = network(torch.tensor(np.log1p(other), dtype=torch.float32))[:, 0].numpy()
        return np.asarray(found, dtype=np.float64)

    return predict
