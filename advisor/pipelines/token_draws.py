"""Which experts the tokens choose, as draws: how many rows each expert gets under a named routing, and what blocks of rows come of it.

`random`: every token draws k of E experts, so that an expert's rows are binomial (in closed form). `balanced`: round
robin. `power_law:a`: shares of the experts drawn from a power law, as `ai-dynamo/aiconfigurator` draws them for its measurements (its
collector's `power_law_logits`). A fixed set of draws stands for all, so that answers repeat to the bit.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from advisor.pipelines.columns import Array
from advisor.tables.routing import BALANCED, RANDOM, Routing

DRAWS = 16
BLOCKS = (8, 16, 32, 64, 128, 256)
"""Sizes of blocks that padding is known for; others are between two of them."""

LOW_SIGMAS = 2.33
"""Standard deviations below the mean that 99 % of normal draws stay above."""

_EXACT, _MOST = 24.0, 80
"""Mean up to which binomial rows are counted one by one, and how many are counted then: more have no weight."""

_QUANTILES = 64
_KEPT: dict[tuple[int, int, int, float, int], tuple[float, ...]] = {}
_KEPT_LIMIT = 200_000


def exponent(text: str, where: str = "routing") -> float:
    """The number that stands for a routing, random where the text is empty (`Routing.exponent`).

    Raises:
        InputError: It is no routing.
    """
    return Routing.read(text.strip() or "random", where).exponent


def one_draw(tokens: int, experts: int, topk: int, routing: float) -> tuple[int, ...]:
    """Token slots of every expert in one draw of a routing, to be launched, the fullest first; none above `tokens`."""
    if routing == RANDOM:
        random = np.random.default_rng(experts * 1000 + topk)
        chosen = np.argpartition(random.random((tokens, experts)), min(topk, experts - 1), axis=1)[:, :topk]
        drawn = np.bincount(chosen.ravel(), minlength=experts)
    else:
        drawn = rows_of(tokens, experts, topk, routing)[0]
    return tuple(sorted(map(int, drawn), reverse=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """Means over draws of one rank's experts, [n] each; of several ranks the fullest.

    Attributes:
        slots: Token slots of the rank.
        used: Experts with any.
        least_used: Fewer than 1 % of draws use fewer experts.
        hottest: Rows of the fullest expert.
        blocks: Blocks of `BLOCKS` rows that hold all, every expert padded to whole ones, [n, len(BLOCKS)].
    """

    slots: Array
    used: Array
    least_used: Array
    hottest: Array
    blocks: Array

    def with_shared(self, tokens: Array, shared: Array) -> Loads:
        """The loads with `shared` experts besides that every one of the `tokens` passes, [n] each, of one rank."""
        return Loads(
            slots=self.slots + shared * tokens,
            used=self.used + shared,
            least_used=self.least_used + shared,
            hottest=np.maximum(self.hottest, np.where(shared > 0, tokens, 0)),
            blocks=self.blocks + shared[:, None] * np.ceil(tokens[:, None] / np.array(BLOCKS)),
        )

    def padded_blocks(self, block_m: Array) -> Array:
        """Blocks of `block_m` rows, [n]: of sizes between two of `BLOCKS` in proportion."""
        at = np.clip(np.log2(np.maximum(block_m, 1)) - 3, 0, len(BLOCKS) - 1)
        low = np.floor(at).astype(np.int64)
        high, share, row = np.minimum(low + 1, len(BLOCKS) - 1), at - low, np.arange(low.size)
        return self.blocks[row, low] ** (1 - share) * self.blocks[row, high] ** share


def loads(tokens: Array, experts: Array, topk: Array, ranks: Array, routing: Array) -> Loads:
    """Loads of the experts of one rank.

    Args:
        tokens: M, [n].
        experts: E of all ranks together, [n].
        topk: Experts per token, [n].
        ranks: Expert-parallel ranks; they divide the experts, [n].
        routing: As `exponent` gives it, [n].
    """
    keys = np.stack([tokens, experts, topk, routing, ranks]).T.astype(np.float64)
    unique, back = np.unique(keys, axis=0, return_inverse=True)
    if len(_KEPT) > _KEPT_LIMIT:
        _KEPT.clear()
    drawn_rows = np.zeros((len(unique), 4 + len(BLOCKS)))
    random = unique[:, 3] == RANDOM
    drawn_rows[random] = _random(*(unique[random, i] for i in (0, 1, 2, 4)))
    drawn_rows[~random] = [_kept(int(m), int(e), int(k), float(a), int(r)) for m, e, k, a, r in unique[~random]] or np.zeros(
        (0, drawn_rows.shape[1])
    )
    columns = drawn_rows[back.reshape(-1)]
    return Loads(slots=columns[:, 0], used=columns[:, 1], least_used=columns[:, 2], hottest=columns[:, 3], blocks=columns[:, 4:])


def of_histogram(slots_per_expert: Sequence[int], slots: float) -> tuple[float, ...]:
    """One row of `Loads` for loads that were given, scaled to `slots` token slots."""
    rows = np.asarray(slots_per_expert, dtype=np.float64)
    return _summary(np.ceil(rows * (slots / rows.sum()) - 1e-9)[None])


@functools.lru_cache(maxsize=4096)  # both launches of a layer, and both sides of a comparison, ask for the same
def least_used(tokens: float, experts: float, topk: float, routing: float) -> float:
    """`Loads.least_used` of one rank that holds all experts."""
    drawn = loads(*(np.array([float(token)]) for token in (tokens, experts, topk, 1, routing)))
    return float(drawn.least_used[0])


@functools.lru_cache(maxsize=4096)
def groups(tokens: float, experts: float, topk: float, routing: float) -> tuple[Array, Array]:
    """Rows [g] and how many experts have them on average over draws [g]: sums over them are means over draws. Not to be written to."""
    if routing == RANDOM:
        p = np.array([topk / experts])
        if tokens * topk / experts <= _EXACT:
            count = experts * _binomial(np.array([float(tokens)]), p)[0]
            likely = (count > 1e-6 * experts) & (np.arange(count.size) > 0)
            return np.arange(count.size, dtype=float)[likely], count[likely]
        mean = tokens * p
        rows = np.maximum(np.round(mean + np.sqrt(mean * (1 - p)) * _normal()), 0)
        return rows, np.full(rows.size, experts / rows.size)
    drawn = rows_of(int(tokens), int(experts), int(topk), routing)
    rows, count = np.unique(drawn[drawn > 0], return_counts=True)
    return rows, count / len(drawn)


def _kept(tokens: int, experts: int, topk: int, routing: float, ranks: int) -> tuple[float, ...]:
    key = (tokens, experts, topk, routing, ranks)
    if key not in _KEPT:
        _KEPT[key] = _summary(rows_of(*key))
    return _KEPT[key]


def _summary(rows: Array) -> tuple[float, ...]:
    used = (rows > 0).sum(axis=1)
    blocks = [float(np.ceil(rows / size).sum(axis=1).mean()) for size in BLOCKS]
    least = max(float(used.mean() - LOW_SIGMAS * used.std()), 1.0) if len(rows) > 1 else float(used.min())
    return float(rows.sum(axis=1).mean()), float(used.mean()), min(least, float(used.min())), float(rows.max(axis=1).mean()), *blocks


def rows_of(tokens: int, experts: int, topk: int, routing: float, ranks: int = 1) -> Array:
    """Rows of each expert of one rank, [draws, experts / ranks], for all but random routings; of several ranks the one with most."""
    if routing == BALANCED:
        return _round_robin(tokens, experts, topk)[None, : experts // ranks]
    rows = _power_law(tokens, experts, topk, routing, np.random.default_rng(experts * 1000 + topk))
    by_rank = rows.reshape(DRAWS, ranks, experts // ranks)
    return by_rank[np.arange(DRAWS), by_rank.sum(axis=2).argmax(axis=1)]


def _random(tokens: Array, experts: Array, topk: Array, ranks: Array) -> Array:
    """As rows of `Loads`: an expert's rows are binomial (M, k/E); exactly so up to `_EXACT` on average, else as normal ones."""
    p, experts_per_rank = topk / experts, experts / ranks
    mean = tokens * p
    deviation = np.sqrt(mean * (1 - p))
    idle = (1 - p) ** tokens
    both = np.maximum((experts - topk) * (experts - topk - 1), 0) / np.maximum(experts * (experts - 1), 1)  # a token takes neither of two
    scatter = experts_per_rank * idle * (1 - idle) + experts_per_rank * (experts_per_rank - 1) * (both**tokens - idle**2)
    out = np.zeros((tokens.size, 4 + len(BLOCKS)))
    out[:, 0], out[:, 1] = mean * experts_per_rank, experts_per_rank * (1 - idle)
    out[:, 2] = np.maximum(out[:, 1] - LOW_SIGMAS * np.sqrt(np.maximum(scatter, 0)), np.minimum(1.0, out[:, 0]))
    out[:, 3] = np.minimum(np.maximum(mean + deviation * np.sqrt(2 * np.log(np.maximum(experts_per_rank, 1))), 1), tokens)
    few, normal = mean <= _EXACT, _normal()
    for chosen, rows, weight in (
        (few, np.broadcast_to(np.arange(_MOST + 1.0), (int(few.sum()), _MOST + 1)), _binomial(tokens[few], p[few])),
        (~few, np.maximum(np.round(mean[~few, None] + deviation[~few, None] * normal), 0), np.array(1 / _QUANTILES)),
    ):
        for i, size in enumerate(BLOCKS):
            out[chosen, 4 + i] = experts_per_rank[chosen] * (np.ceil(rows / size) * weight).sum(axis=1)
    return out


def _normal() -> Array:
    """Quantiles of the normal distribution, [`_QUANTILES`]."""
    return np.sqrt(2) * _inverse_erf(2 * (np.arange(_QUANTILES) + 0.5) / _QUANTILES - 1)


def _binomial(tokens: Array, p: Array) -> Array:
    """P(X = 0 … `_MOST`) of binomial numbers, [n, `_MOST` + 1]."""
    out = np.zeros((tokens.size, _MOST + 1))
    with np.errstate(divide="ignore"):
        out[:, 0] = np.exp(tokens * np.log1p(-np.minimum(p, 1 - 1e-12)))
    for i in range(_MOST):
        out[:, i + 1] = out[:, i] * np.maximum(tokens - i, 0) / (i + 1) * p / np.maximum(1 - p, 1e-12)
    return out / np.maximum(out.sum(axis=1, keepdims=True), 1e-300)


def _inverse_erf(x: Array) -> Array:
    """Within 2e-3 (S. Winitzki, "A handy approximation for the error function and its inverse", 2008)."""
    a, log = 0.147, np.log(1 - x * x)
    part = 2 / (np.pi * a) + log / 2
    return np.sign(x) * np.sqrt(np.sqrt(part * part - log / a) - part)


def _round_robin(tokens: int, experts: int, topk: int) -> Array:
    """Choice j of token t is expert (t + j s) mod E, with s = E / topk rounded up; of fewer tokens than s, (t s / M + j s) rounded down.

    (`balanced_logits` of aiconfigurator's collector. Spread so, no layer of few tokens on several ranks is below its bound; spread from the
    first expert on, 1.9 % were.)
    """
    stride = -(-experts // topk)
    if tokens < stride:
        chosen = (np.arange(tokens)[:, None] * stride // tokens + np.arange(topk) * stride) % experts
        return np.bincount(chosen.ravel(), minlength=experts).astype(np.float64)
    whole, rest = divmod(tokens, experts)
    some = (np.arange(rest)[:, None] + np.arange(topk) * stride) % experts
    return whole * topk + np.bincount(some.ravel(), minlength=experts).astype(np.float64)


def _power_law(tokens: int, experts: int, topk: int, alpha: float, random: np.random.Generator) -> Array:
    """Rows [draws, E]: x = ((b^(1-a) - a^(1-a)) u + a^(1-a))^(1/(1-a)) of each expert, as shares of all slots, at most one per token."""
    slots = tokens * topk
    low, high = (1.0, max(0.8 * tokens, 1.0 + 1e-6)) if slots > experts else (0.01, 2.0)
    uniform = random.random((DRAWS, experts))
    if abs(alpha - 1) < 1e-6:
        drawn = low * (high / low) ** uniform
    else:
        drawn = ((high ** (1 - alpha) - low ** (1 - alpha)) * uniform + low ** (1 - alpha)) ** (1 / (1 - alpha))
    rows = np.minimum(np.round(drawn / drawn.sum(axis=1, keepdims=True) * slots), tokens)
    for _ in range(8):  # what rounding and the limit leave goes to the fullest that have room, or is taken from the least
        missing = slots - rows.sum(axis=1, keepdims=True)
        if not missing.any():
            break
        room = rows < tokens
        order = _rank(np.where(room, -rows, np.inf))
        open_ = np.maximum(room.sum(axis=1, keepdims=True), 1)
        more = np.where(room, missing // open_ + (order < missing % open_), 0)
        fewer = np.where(rows > 0, _rank(np.where(rows > 0, rows, np.inf)) < -missing, False)
        rows = np.where(missing > 0, np.minimum(rows + more, tokens), rows - fewer)
    return rows


def _rank(values: Array) -> NDArray[np.int64]:
    """The place of each value in its row in ascending order."""
    return np.argsort(np.argsort(values, axis=1, kind="stable"), axis=1, kind="stable")
