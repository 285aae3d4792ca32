"""Fitting the constants of `order` to the configurations that won published sweeps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned.moe import order
from advisor.pipelines import Array
from advisor.training.correction_network import torch_on_one_thread

STEPS = 400
PROBLEMS_PER_STEP = 150
RATE = 0.02
HOLD = 0.02
"""Weight of the prior (squared distance from where fitting starts) against the mean negative log likelihood of a problem."""

LEAST_SHARE = 1e-6
"""A problem whose winners the physics thinks hopeless counts no more than one where they have this share of all odds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contest:
    """Known configurations on swept problems.

    Attributes:
        columns: `order.COLUMNS`, [p, c].
        fits: Which configurations the problem's GPU can launch, [p, c].
        won: Which were near-optimal, [p, c].
    """

    columns: Mapping[str, NDArray[np.float32]]
    fits: NDArray[np.bool_]
    won: NDArray[np.bool_]


def contest(launches: Sequence[Mapping[str, Array]], fits: Sequence[NDArray[np.bool_]], won: Sequence[NDArray[np.bool_]]) -> Contest:
    """Columns [c] of each problem, stacked."""
    columns = {name: np.stack([launch[name] for launch in launches]).astype(np.float32) for name in order.COLUMNS}
    return Contest(columns=columns, fits=np.stack(fits), won=np.stack(won))


def fit(of: Contest, seed: int = 0) -> Array:
    """Parameters of `order.log_odds` that give the winners of each problem the largest share of its odds, by Adam.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    with torch_on_one_thread("training") as torch:
        return _fit(of, seed, torch)


def _fit(of: Contest, seed: int, torch: Any) -> Array:
    columns = {name: torch.tensor(values) for name, values in of.columns.items()}
    barred, lost = torch.tensor(~of.fits), torch.tensor(~of.won)
    origin = torch.tensor(order.start(), dtype=torch.float32)
    parameters = origin.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([parameters], lr=RATE)
    rng = np.random.default_rng(seed)
    count = of.won.shape[0]
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = RATE * (1.0 if step < 0.5 * STEPS else 0.5 if step < 0.8 * STEPS else 0.2)
        some = torch.tensor(rng.choice(count, min(PROBLEMS_PER_STEP, count), replace=False))
        odds = order.log_odds({name: c[some] for name, c in columns.items()}, parameters, torch)
        odds = odds.masked_fill(barred[some], -1e9)
        every = torch.logsumexp(odds, 1)
        winners = torch.logsumexp(odds.masked_fill(lost[some], -1e9), 1)
        likelihood = torch.logaddexp(winners, every + float(np.log(LEAST_SHARE))) - every
        loss = -likelihood.mean() + HOLD * ((parameters - origin) ** 2).sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([parameters], 1.0)
        optimizer.step()
    return parameters.detach().numpy().astype(np.float64)
