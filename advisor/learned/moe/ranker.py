"""The order of configurations: what won published sweeps, and for GPUs never swept what the physics says of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, cycle, repeat
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.learned import forest
from advisor.learned.forest import Forest
from advisor.learned.machine import Machine
from advisor.learned.moe import diversity, moe_physics, order
from advisor.learned.moe.diversity import Wins
from advisor.learned.moe.features import EXACT, matrix
from advisor.learned.moe.launch import Launch, as_configuration, as_rows, fits, moe_launch
from advisor.learned.moe.moe_physics import SPLIT_L2
from advisor.learned.moe.ranking_features import Rivals, ranking_features, rivals
from advisor.pipelines import Array, ConfigurationBatch, ProblemBatch
from advisor.pipelines.batch import repeats

FORESTS = ("quick", "close", "first", "first_afar", "first_unseen")

SHARE_OF_PHYSICS = 0.85
"""How much the log-odds of the physics count beside those of the trees on a GPU of which no sweep is known."""

BOTH, TREES, BOTH_ONE_BUFFER, TREES_ONE_BUFFER = range(4)
"""Opinions on GPUs never swept: trees and physics, the trees alone; and each among configurations with one buffer."""

AGREED, AGREED_UNSEEN = 5, 3
"""Picks after which, should all have lost, a second opinion picks in turn: on GPUs of which sweeps are known, with the latencies predicted;
on others the trees without the physics. Which of them knows a new GPU better differs from GPU to GPU."""

OUTGROWN = (0.9, 3.0)
FEW_ROWS = 32.0
"""Of a set so many times as large as the L2, read for so few rows per expert, two thirds of what the sweeps have as near-optimal has one
buffer (`num_stages=2`: L40 91, A40 94, H800 50, A100 38 %); of smaller ones nothing and of larger ones 14 % (`tests/bench/one_buffer.py`).
Why is not known; a part of such a set outlives the launch. Where no sweep of the GPU is known, hardly anything else says so: there both
opinions pick among those with one buffer as well, and, where the L2 is one piece (as that of A40 and L40), among them alone at first."""

ONE_BUFFER_FIRST = 4
"""How often each of the two opinions does so before the others have their say."""

SHARE_OF_LATENCY = 30.0
"""How much a log of the predicted latency counts beside log-odds: one over the error of known configurations on models left out."""

UNSEEN_LOOKS = 4
"""How many forests `first_unseen` is the mean of, and how much it counts beside the others."""


NEVER_WON = 6
"""How many configurations that won no sweep come after the first `diversity.PICKS` on a GPU of which none is known. What wins on one GPU
alone is not rare: of 216 problems of the L40 left out, 8 are won by such configurations alone."""


LOOKED_AT = 20
"""How many are looked at for each of `NEVER_WON`: enough for every value of GROUP_SIZE_M, and for some that were tried already."""


class Logarithms(Protocol):
    """Log latencies in microseconds, [n]."""

    @property
    def log_us(self) -> Array: ...


class Latencies(Protocol):
    """What latencies are predicted by (`moe.Core`): parameters of `moe_physics.terms`, and estimates of launches [n] by their source."""

    @property
    def physics(self) -> Array: ...

    def estimate(self, launch: Launch, source: float) -> Logarithms: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A quick look at the configurations [n] of a problem: their launches, features and log-odds, and what physics adds to those.

    `closer` has the log-odds of those that were looked at closely too, and NaN for the others: it is filled in as they are asked for.
    """

    launch: Launch
    features: Array
    trees: Array
    added: Array | float
    closer: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranker:
    """Puts configurations in order: a quick look at all of them, a closer one at the most promising.

    Attributes:
        quick: Forest of log-odds, for all that may be tried.
        close: The same, fitted also to configurations that are hard to tell from winners.
        first: Forest of places in the order of a problem (`grow.grow_ranker`), fitted to the same.
        first_afar: The same, fitted without those that are hard to tell.
        first_unseen: The mean of more of those, half of them without the GPU's figures and half without the comparisons among the
            features; it counts on GPUs without sweeps.
        known: Configurations [k, 6] that won a sweep somewhere; others are ranked behind them, but for `NEVER_WON` on unseen GPUs.
        order: Parameters of `order.log_odds`.
        wins: Where the known ones won, for the variety of the first picks.
        shortlist: How many are looked at closely.
        recent: The last quick looks, by what was asked.
    """

    quick: Forest
    close: Forest
    first: Forest
    first_afar: Forest
    first_unseen: Forest
    known: Array
    order: Array
    wins: Wins
    shortlist: int = 160
    recent: deque[tuple[tuple[ProblemBatch, ConfigurationBatch, Machine], Look]] = field(
        default_factory=lambda: deque(maxlen=2), repr=False, compare=False
    )

    def scores(self, latencies: Latencies, problems: Sequence[ProblemBatch], configuration: ConfigurationBatch, gpu: Machine) -> Array:
        """Smaller is better, [c]; inf where the shared memory does not fit.

        Args:
            latencies: What the model predicts them by.
            problems: That share a configuration, a batch of one each.
            configuration: The configurations, [c].
            gpu: The GPU.
        """
        rows = as_rows(configuration)
        score = np.full(rows.shape[0], np.inf)
        usable = np.flatnonzero(fits(gpu, configuration))
        if not usable.size:
            return score
        most_stages = self.wins.most_stages(self.known, gpu)
        tried = usable[_among(rows[usable], self.known) & (rows[usable, diversity.STAGES] <= most_stages)]
        candidates = tried if tried.size else usable
        looks = [self._looked_at(latencies.physics, problem, configuration, rows[candidates], gpu) for problem in problems]
        launches, odds = [look.launch for look in looks], self._closely(looks)
        shares = _time_shares(latencies, launches, [each for each, _ in odds])
        rank, by_trees = np.average(odds, axis=0, weights=shares)
        launch = launches[int(np.argmax(shares))]  # what is asked of one problem, the longest answers
        if tried.size > diversity.PICKS:

            def log_us() -> Array:
                return np.average([latencies.estimate(each, EXACT).log_us for each in launches], axis=0, weights=shares)

            rank = _moved_first(rank, self._picks(log_us, rank, by_trees, _places(rows[tried], self.known), launch))
        score[candidates] = -rank
        if candidates.size < usable.size:
            rest = np.setdiff1d(usable, candidates, assume_unique=True)
            never = [moe_launch(problem, as_configuration(rows[rest]), gpu) for problem in problems]
            by_physics = np.average([order.log_odds(order.columns(each), self.order) for each in never], axis=0, weights=shares)
            score[rest] = -rank.min() + 1 + by_physics.max() - by_physics
            if candidates.size > diversity.PICKS and not self.wins.know(launch):
                others = never[int(np.argmax(shares))]
                within = np.flatnonzero(others.stages <= most_stages)
                new = rest[within[_first_new(by_physics[within], others.take(within), launch)]]
                last, following = np.sort(score[candidates])[diversity.PICKS - 1 : diversity.PICKS + 1]
                score[new] = np.linspace(last, following, new.size + 2)[1:-1]
        return score

    def _picks(
        self, log_us: Callable[[], Array], rank: Array, by_trees: Array, places: NDArray[np.int64], launch: Launch
    ) -> NDArray[np.int64]:
        """The first places of configurations [n]: of several opinions in turn, after some of the first alone.

        On GPUs of which sweeps are known each opinion picks for itself: what it ranks high is right too often to give way to variety.

        Args:
            log_us: Called for the logs of the latencies predicted, [n].
            rank: Log-odds, [n].
            by_trees: Those of the trees alone, [n].
            places: Where the configurations stand in `known`, [n].
            launch: Their launches, [n].
        """

        def picks(opinions: Sequence[Array], turns: Iterable[int]) -> NDArray[np.int64]:
            return self.wins.picks(np.stack(opinions), turns, places, launch, self.known.shape[0])

        if self.wins.know(launch):
            by_latency = rank - SHARE_OF_LATENCY * log_us()
            return _in_turn(*(picks([odds], repeat(0)) for odds in (rank, by_latency)))
        one_buffer = launch.stages <= 2
        if not (_outgrown(launch) and one_buffer.any()):
            return picks([rank, by_trees], chain(AGREED_UNSEEN * [BOTH], cycle([TREES, BOTH])))
        opinions = [rank, by_trees, *(np.where(one_buffer, odds, -np.inf) for odds in (rank, by_trees))]
        if launch.capability[0] in SPLIT_L2:
            return picks(opinions, chain([BOTH], cycle([TREES_ONE_BUFFER, BOTH_ONE_BUFFER, TREES, BOTH])))
        first = ONE_BUFFER_FIRST * [BOTH_ONE_BUFFER, TREES_ONE_BUFFER]
        return picks(opinions, chain(first, cycle([TREES, BOTH, TREES_ONE_BUFFER, TREES, BOTH, BOTH_ONE_BUFFER])))

    def _rivals(self, physics: Array, problem: ProblemBatch, gpu: Machine) -> Rivals:
        """Needs of the configurations that may win; the same for whoever asks about few of them."""
        fitting = self.known[fits(gpu, as_configuration(self.known))]
        launch = moe_launch(problem, as_configuration(fitting if fitting.size else self.known), gpu)
        return rivals(launch, *moe_physics.terms(launch, physics))

    def _looked_at(self, physics: Array, problem: ProblemBatch, configuration: ConfigurationBatch, rows: Array, gpu: Machine) -> Look:
        """The quick look at a problem's candidates `rows`; remembered for the next few: whoever ranks for each of several problems ranks
        for all of them together next."""
        for asked, look in self.recent:
            if asked[0] is problem and asked[1] is configuration and asked[2] == gpu:
                return look
        look = self._look(physics, moe_launch(problem, as_configuration(rows), gpu), self._rivals(physics, problem, gpu))
        self.recent.append(((problem, configuration, gpu), look))
        return look

    def _look(self, physics: Array, launch: Launch, others: Rivals) -> Look:
        features = matrix(ranking_features(launch, *moe_physics.terms(launch, physics), others))
        known = self.wins.know(launch)
        added = 0.0 if known else SHARE_OF_PHYSICS * order.log_odds(order.columns(launch), self.order)
        trees = self.quick(features)
        return Look(launch=launch, features=features, trees=trees, added=added, closer=np.full(trees.shape, np.nan))

    def _closely(self, quick: Sequence[Look]) -> list[tuple[Array, Array]]:
        """Log-odds [n] of each problem's launches: with the physics of the order, and by the trees alone, alike on GPUs with sweeps.

        All problems have a closer look at what any of them finds promising, so that their odds can be averaged.
        """
        known = self.wins.know(quick[0].launch)
        trees, added = [each.trees for each in quick], [each.added for each in quick]
        if len(quick[0].launch) > 8:
            opinions = [opinion for odds, more in zip(trees, added, strict=True) for opinion in (odds + more, odds)]
            chosen = np.unique([np.argsort(-opinion, kind="stable")[: self.shortlist] for opinion in opinions])
            # What is hard to tell differs from GPU to GPU: what `first` learned of it misleads where no sweep is known.
            looks = (self.close, self.first_afar, self.first if known else self.first_unseen)
            weights = (1, 1, 1 if known else UNSEEN_LOOKS)
            for i, each in enumerate(quick):
                new = chosen[np.isnan(each.closer[chosen])]
                each.closer[new] = np.average([forest(each.features[new]) for forest in looks], axis=0, weights=weights)
                trees[i] = trees[i] - 1000.0
                trees[i][chosen] = each.closer[chosen]
        return [(odds + more, odds) for odds, more in zip(trees, added, strict=True)]

    def arrays(self, prefix: str) -> dict[str, NDArray[Any]]:
        """The ranker as named arrays."""
        out = {f"{prefix}/known": self.known, f"{prefix}/order": self.order} | self.wins.arrays(f"{prefix}/wins")
        for name in FORESTS:
            out |= getattr(self, name).arrays(f"{prefix}/{name}")
        return out


def from_arrays(stored: Mapping[str, NDArray[Any]], prefix: str) -> Ranker | None:
    """The reverse of `Ranker.arrays`; None where nothing was stored.

    Raises:
        ValueError: A win is one of a problem or of a configuration that there is not.
    """
    if f"{prefix}/known" not in stored:
        return None
    won, problems = stored[f"{prefix}/wins/configuration"], stored[f"{prefix}/wins/problem"]
    if won.max(initial=0) >= len(stored[f"{prefix}/known"]) or problems.max(initial=0) >= len(stored[f"{prefix}/wins/problems"]):
        raise ValueError(f"{prefix}/wins: what there is not")
    forests: dict[str, Any] = {name: forest.from_arrays(stored, f"{prefix}/{name}") for name in FORESTS}
    return Ranker(
        **forests,
        known=stored[f"{prefix}/known"],
        order=stored[f"{prefix}/order"],
        wins=diversity.from_arrays(stored, f"{prefix}/wins"),
    )


def _time_shares(latencies: Latencies, launches: Sequence[Launch], odds: Sequence[Array]) -> Array:
    """Share [p] of each problem in the time of all, each with the likeliest of its configurations; `odds` are [p, n]."""
    if len(launches) == 1:
        return np.ones(1)
    first = [launch.take(np.array([np.argmax(each)])) for launch, each in zip(launches, odds, strict=True)]
    us = np.exp([float(latencies.estimate(launch, EXACT).log_us[0]) for launch in first])
    return us / us.sum()


def _first_new(odds: Array, others: Launch, launch: Launch) -> NDArray[np.int64]:
    """Rows of the `NEVER_WON` likeliest of `others` [m] that make no launch of `launch` [n], the likeliest first."""
    by_odds = np.argsort(-odds, kind="stable")[: LOOKED_AT * NEVER_WON]
    where = np.concatenate([diversity.configuration_coordinates(each) for each in (launch, others.take(by_odds))])
    return by_odds[~repeats(where)[len(launch) :]][:NEVER_WON]


def _outgrown(launch: Launch) -> bool:
    """Whether one problem's set is one of `OUTGROWN`, read for few rows."""
    fill, rows = launch.compulsory_bytes[0] / launch.l2_capacity[0], launch.slots[0] / launch.experts[0]
    return bool(OUTGROWN[0] <= fill <= OUTGROWN[1] and rows <= FEW_ROWS)


def _in_turn(picks: NDArray[np.int64], others: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first `AGREED` picks, then one of the others and one of the picks in turn; all that either has, none twice."""
    out = dict.fromkeys(picks[:AGREED].tolist())
    lists = [iter(others.tolist()), iter(picks.tolist())]
    while lists:
        for each in list(lists):
            pick = next((pick for pick in each if pick not in out), None)
            if pick is None:
                lists.remove(each)
            else:
                out[pick] = None
    return np.array(list(out))


def _moved_first(rank: Array, picks: NDArray[np.int64]) -> Array:
    """The same values, dealt out anew: the picks get the largest in their order, the others follow in theirs."""
    rest = rank.copy()
    rest[picks] = np.inf
    places = np.concatenate([picks, np.argsort(-rest, kind="stable")[picks.size :]])
    out = np.empty_like(rank)
    out[places] = np.sort(rank)[::-1]
    return out


_KEY = np.array([1, 1e3, 1e6, 1e9, 1e12, 1e14])
"""Makes one number of a configuration: every field is below 1,000, warps and stages below 100."""


def _among(rows: Array, known: Array) -> NDArray[np.bool_]:
    """Which rows occur in `known`."""
    return np.isin(rows @ _KEY, known @ _KEY)


def _places(rows: Array, known: Array) -> NDArray[np.int64]:
    """Places in `known` of rows that do occur in it."""
    keys = known @ _KEY
    by_key = np.argsort(keys, kind="stable")
    return by_key[np.searchsorted(keys[by_key], rows @ _KEY)]
