"""What the learned model is judged against, fitted on the same rows in the same run.

- the bound alone (needs no fitting);
- a linear model: ridge regression of log latency on the logarithms of the pipelines' times;
- PipeWeave's features and network (arXiv 2601.14910, `train_mlp.py`: eleven counts, log1p, 256-128-64 with batch norm and dropout,
  sigmoid, relative error, AdamW), refitted here. Its target is the efficiency of the tensor pipeline.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from advisor.errors import MissingDependencyError
from advisor.learned.launch import Launch
from advisor.pipelines import Array

Fitted = Callable[[Launch], Array]
RIDGE = 1e-3


def linear(launch: Launch, latency_us: Array) -> Fitted:
    """Ridge regression; the returned function predicts microseconds."""
    x = _logarithms(launch)
    mean, spread = x.mean(axis=0), x.std(axis=0) + 1e-9
    z = np.column_stack([(x - mean) / spread, np.ones(len(launch))])
    weights = np.linalg.solve(z.T @ z + RIDGE * len(launch) * np.eye(z.shape[1]), z.T @ np.log(latency_us))

    def predict(other: Launch) -> Array:
        scaled = (_logarithms(other) - mean) / spread
        return np.exp(np.column_stack([scaled, np.ones(len(other))]) @ weights)

    return predict


def _logarithms(launch: Launch) -> Array:
    times = (launch.dram_us, launch.warm_dram_us + 1e-3, launch.l2_us, launch.tensor_sm_us, launch.smem_sm_us, launch.full_waves)
    return np.log(np.stack(times, axis=1))


def pipeweave(launch: Launch, latency_us: Array, epochs: int = 60, seed: int = 0) -> Fitted:
    """PipeWeave's network; the returned function predicts microseconds."""
    try:
        import torch
    except ImportError:
        raise MissingDependencyError("PipeWeave's network needs torch", remedy="pip install 'triton-advisor[train]'") from None
    torch.manual_seed(seed)
    layers: list[torch.nn.Module] = []
    width = 11
    for out in (256, 128, 64):
        layers += [torch.nn.Linear(width, out), torch.nn.ReLU(), torch.nn.BatchNorm1d(out), torch.nn.Dropout(0.1)]
        width = out
    network = torch.nn.Sequential(*layers, torch.nn.Linear(width, 1), torch.nn.Sigmoid())
    x = torch.tensor(_counts(launch), dtype=torch.float32)
    y = torch.tensor(launch.padded_tensor_us / latency_us, dtype=torch.float32)[:, None].clamp(1e-6, 1.0)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=1e-4)
    draw = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(launch), generator=draw).split(1024):
            if rows.numel() < 2:  # batch norm needs two
                continue
            optimizer.zero_grad()
            loss = ((network(x[rows]) - y[rows]) / y[rows]).abs().mean()
            loss.backward()
            optimizer.step()
    network.eval()

    def predict(other: Launch) -> Array:
        with torch.no_grad():
            efficiency = network(torch.tensor(_counts(other), dtype=torch.float32))[:, 0].numpy().astype(np.float64)
        return other.padded_tensor_us / np.maximum(efficiency, 1e-9)

    return predict


def _counts(launch: Launch) -> Array:
    """PipeWeave's eleven features: operations, cycles and bytes of the GPU and of the busiest SM, log1p."""
    clock = launch.clock_mhz
    bytes_of_cta = 2 * (launch.block_m + launch.block_n) * launch.k_iterations * launch.block_k
    all_bytes, sm_bytes = launch.ctas * bytes_of_cta, launch.per_sm * bytes_of_cta
    columns = (
        launch.padded_tensor_us * launch.peak_flop, launch.padded_tensor_us * clock,
        launch.tensor_sm_us * launch.peak_flop / launch.sms, launch.tensor_sm_us * clock,
        all_bytes / 1024, all_bytes / launch.pin_rate * clock, all_bytes / launch.l2_rate * clock,
        sm_bytes / 1024, sm_bytes / (launch.pin_rate / launch.sms) * clock, sm_bytes / 128,
        sm_bytes / (launch.l2_rate / launch.sms) * clock,
    )  # fmt: skip
    return np.log1p(np.stack(columns, axis=1))
