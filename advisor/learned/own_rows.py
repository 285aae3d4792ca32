"""What rows measured on a GPU say of a model's errors there: kriging of log errors (Rasmussen and Williams, "Gaussian Processes for Machine
Learning", 2006, chapters 2 and 5.4.2).

Errors are log(measured / predicted). They are a constant of the GPU, a part that launches share the more the nearer their features are,
and noise. How large the parts are is chosen by how well each row's error is told from the others', and how wide an interval has to be by
what is left of those.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from advisor.learned.calibration import WIDEST
from advisor.pipelines import Array

PREFIX = "own/"
PARTS = ("features", "errors", "size", "noise")
LEAST, MOST = 8, 1000
"""Rows of a kind below which nothing is said, and beyond which only the newest are kept."""

SHIFT = 0.15
"""Standard deviation of the constant: the median error of GPUs left out is 2 to 60 %; a dozen rows settle it whatever is taken here."""

SIZES, NOISES = (0.02, 0.06, 0.12, 0.25, 0.5), (0.02, 0.05)
"""Standard deviations, of which those are chosen that tell rows left out best: of what neighbours share, and of noise."""

REACH = 4.0
"""How many times what neighbours share falls to 1/e over the range of all features."""

RANGE = 3.5
"""Standard deviations that a uniform range spans; features count as far as `FARTHEST` of them from the mean."""

FARTHEST = 3.0
PSEUDO = np.array([-1.64, -1.04, -0.67, -0.39, -0.13, 0.13, 0.39, 0.67, 1.04, 1.64])
"""Scaled errors of ten rows as they should be, counted beside those of few rows."""

ROUNDS = 3
LEVEL, HARDER = 0.8, 2.0
"""The parts are chosen to suit the rows: of n, the interval is to hold this share and `HARDER` / n more."""


@dataclass(frozen=True, kw_only=True)
class OwnRows:
    """Rows of one kind of launch on one GPU.

    Attributes:
        features: [n, f].
        errors: log(measured / predicted), [n].
        size: Standard deviation of what neighbours share.
        noise: Standard deviations of noise, [n]: more where a row is far from what the others say.
    """

    features: Array
    errors: Array
    size: float
    noise: Array

    def __len__(self) -> int:
        return self.errors.size

    def corrected(self, features: Array, us: Array, low: Array, high: Array) -> tuple[Array, Array, Array]:
        """Predictions and both ends of their 80 % intervals as the rows correct them, microseconds, [n]; features may be NaN.

        Where no row is near, an interval is as wide as it was.
        """
        solved = self._solved
        shared = _shared(self._scaled(self.features), self._scaled(features), self.size)
        variance = np.maximum(SHIFT**2 + self.size**2 - (shared * (solved.inverse @ shared)).sum(axis=0), 0.0)
        width = solved.times * np.sqrt(self.noise.min() ** 2 + variance)
        beyond = np.clip((variance / self.size**2 - solved.usual) / max(1 - solved.usual, 1e-3), 0.0, 1.0)
        wide = (np.maximum(width, np.abs(np.log(end / us))) for end in (low, high))
        down, up = (np.minimum(np.sqrt((1 - beyond) * width**2 + beyond * end**2), WIDEST) for end in wide)
        centre = us * np.exp(shared.T @ solved.weights)
        return centre, centre * np.exp(-down), centre * np.exp(up)

    @property
    def left_out(self) -> Array:
        """log(measured / predicted) of every row as the others tell it, [n]."""
        return self._solved.left_out

    @cached_property
    def _units(self) -> tuple[Array, Array]:
        return _units(self.features)

    def _scaled(self, features: Array) -> Array:
        return _scaled(features, *self._units)

    @cached_property
    def _solved(self) -> _Solved:
        x = self._scaled(self.features)
        return _solve(_shared(x, x, self.size), self.errors, self.noise, self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Solved:
    """The system of the rows: `weights` [n], and the inverse [n, n]; errors left out one by one; how many standard deviations hold four of
    five of them; and how much of what neighbours share is not known of nine of ten rows."""

    weights: Array
    inverse: Array
    left_out: Array
    times: float
    usual: float


def of_rows(features: Array, errors: Array) -> OwnRows:
    """Rows with the parts that tell each best from the others. Those far off count less: a busy GPU is no error of the model.

    A feature that is not known, NaN, is taken as its mean.
    """
    features, errors = features[-MOST:], errors[-MOST:]
    known = np.isfinite(features)
    mean = np.where(known, features, 0.0).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    features = np.where(known, features, mean)
    x, best, least = _scaled(features, *_units(features)), None, np.inf
    for size, noise in product(SIZES, NOISES):
        shared, noises = _shared(x, x, size), np.full(errors.size, noise)
        for _ in range(ROUNDS):
            solved = _solve(shared, errors, noises, size)
            noises = noise * np.sqrt(np.maximum(1.0, np.abs(noises**2 * solved.weights) / noise / 2))
        error = float(np.abs(solved.left_out).mean())
        if error < least:
            best, least = OwnRows(features=features, errors=errors, size=size, noise=noises), error
    assert best is not None
    return best


def _units(features: Array) -> tuple[Array, Array]:
    """Mean and standard deviation of features, [f]; the latter infinite where all rows are alike."""
    deviation = features.std(axis=0)
    return features.mean(axis=0), np.where(deviation > 1e-6, deviation, np.inf)


def _scaled(features: Array, mean: Array, deviation: Array) -> Array:
    """Features that tell rows apart, in standard deviations from the mean; the mean itself where one is not known."""
    present = np.isfinite(deviation)
    return np.clip(np.nan_to_num((features[:, present] - mean[present]) / deviation[present], nan=0.0), -FARTHEST, FARTHEST)


def _shared(a: Array, b: Array, size: float) -> Array:
    """Covariances of errors, [a, b]."""
    distance = np.zeros((len(a), len(b)))
    for i in range(a.shape[1]):
        distance += np.abs(a[:, i, None] - b[None, :, i])
    return SHIFT**2 + size**2 * np.exp(-distance * REACH / (RANGE * max(a.shape[1], 1)))


def _solve(shared: Array, errors: Array, noise: Array, size: float) -> _Solved:
    inverse = np.asarray(np.linalg.inv(shared + np.diag(noise**2)), dtype=np.float64)
    precision, weights = np.diag(inverse), inverse @ errors
    left_out = weights / precision
    variance = np.maximum(1 / precision - noise**2, 0.0)
    deviation = np.sqrt(noise.min() ** 2 + variance)
    scaled = np.abs(np.concatenate([left_out / deviation, PSEUDO]))
    return _Solved(
        weights=weights,
        inverse=inverse,
        left_out=left_out,
        times=float(np.quantile(scaled, min(LEVEL + HARDER / errors.size, 1.0))),
        usual=float(np.quantile(np.minimum(variance / size**2, 1.0), 0.9)),
    )


def load_all(stored: Mapping[str, NDArray[Any]]) -> dict[tuple[str, str], OwnRows]:
    """The rows in a file of weights, by GPU and kind."""
    out = {}
    for name in stored:
        if name.startswith(PREFIX) and name.endswith("/errors"):
            whole = name.removesuffix("/errors")
            gpu, kind = whole.removeprefix(PREFIX).split("/", 1)
            features, errors, size, noise = (stored[f"{whole}/{part}"] for part in PARTS)
            out[gpu, kind] = OwnRows(features=features, errors=errors, size=float(size), noise=noise)
    return out


def arrays(rows: Mapping[tuple[str, str], OwnRows]) -> dict[str, NDArray[Any]]:
    """The reverse of `load_all`."""
    named = {f"{PREFIX}{gpu}/{kind}": rows_of_kind for (gpu, kind), rows_of_kind in rows.items()}
    return {f"{name}/{part}": np.asarray(getattr(rows_of_kind, part)) for name, rows_of_kind in named.items() for part in PARTS}
