"""The order of configurations: what won published sweeps, and for GPUs never swept what the physics says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, cycle, islice, repeat
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from advisor.learned import forest
from advisor.learned.base import Ranking
from advisor.learned.forest import Forest
from advisor.learned.machine import Machine
from advisor.learned.moe import moe_physics, order
from advisor.learned.moe.launch import Launch, as_configuration, as_rows, concatenate, fits, moe_launch
from advisor.learned.moe.moe_physics import SPLIT_L2
from advisor.learned.moe.order import Wins
from advisor.learned.moe.ranking_features import EXACT, matrix, ranking_features, rivals
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
class Space:
    """Configurations to be ranked on a GPU.

    Attributes:
        rows: All of them, [c, 6].
        candidates: Places of those that won a sweep somewhere, or of all that fit where none did, [n].
        never_won: Places of the others that fit, [m].
        known: Where the candidates stand among `Ranker.known`, [n]; None where they are too few to be varied.
        most_stages: The most `num_stages` of a candidate.
    """

    rows: Array
    candidates: NDArray[np.int64]
    never_won: NDArray[np.int64]
    known: NDArray[np.int64] | None
    most_stages: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """A quick look at a problem.

    Attributes:
        launch: Launches of the candidates, [n].
        features: Theirs, [n, features].
        trees: Log-odds by the quick forest, [n].
        added: What physics adds to those.
        others: Launches of configurations that won no sweep, [m].
        others_odds: Their log-odds by physics, [m].
        closer: Log-odds of those candidates that are looked at closely, NaN for the others: filled in by `Ranker._look_closely`.
    """

    launch: Launch
    features: Array
    trees: Array
    added: Array | float
    others: Launch
    others_odds: Array
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

    def rankings(
        self, latencies: Latencies, groups: Sequence[Sequence[ProblemBatch]], configuration: ConfigurationBatch, gpu: Machine
    ) -> list[Ranking]:
        """The order of configurations for every group; scores are inf where the shared memory does not fit.

        Args:
            latencies: What the model predicts them by.
            groups: Problems that share a configuration, a batch of one each. What several groups ask of one problem is computed once.
            configuration: The configurations, [c].
            gpu: The GPU.
        """
        space = self._space(configuration, gpu)
        if not space.candidates.size:
            return [Ranking(scores=np.full(space.rows.shape[0], np.inf), first=(0,) * len(group)) for group in groups]
        problems = list({id(problem): problem for group in groups for problem in group}.values())
        look_of = dict(zip(map(id, problems), self._looks(latencies.physics, problems, space, gpu), strict=True))
        together = [[look_of[id(problem)] for problem in group] for group in groups]
        alone = [[look] for group in together if len(group) > 1 for look in group]
        promising = [self._promising(group) for group in (*together, *alone)]
        self._look_closely(list(zip((*together, *alone), promising, strict=True)))
        odds = [[_odds(look, chosen) for look in group] for group, chosen in zip((*together, *alone), promising, strict=True)]
        first = (
            int(np.argmin(self._scores(latencies, group, by_tree, np.ones(1), space, first_only=True)))
            for group, by_tree in zip(alone, odds[len(together) :], strict=True)
        )
        rankings = []
        for group, by_tree, shares in zip(together, odds, _time_shares(latencies, together, odds), strict=False):
            scores = self._scores(latencies, group, by_tree, shares, space)
            rankings.append(Ranking(scores=scores, first=tuple(islice(first, len(group))) if len(group) > 1 else (int(np.argmin(scores)),)))
        return rankings

    def _space(self, configuration: ConfigurationBatch, gpu: Machine) -> Space:
        rows = as_rows(configuration)
        usable = np.flatnonzero(fits(gpu, configuration))
        most_stages = self.wins.most_stages(self.known, gpu)
        won = _among(rows[usable], self.known) & (rows[usable, order.STAGES] <= most_stages)
        tried = usable[won]
        candidates = tried if tried.size else usable
        return Space(
            rows=rows,
            candidates=candidates,
            never_won=usable[~won] if tried.size else usable[:0],
            known=_places(rows[tried], self.known) if tried.size > order.PICKS else None,
            most_stages=most_stages,
        )

    def _scores(
        self, latencies: Latencies, group: Sequence[Look], odds: Sequence[Array], shares: Array, space: Space, first_only: bool = False
    ) -> Array:
        """Scores of the space for one group, [c], by the trees' log-odds (`_odds`) and each look's share of the time, [p].

        With `first_only` no more than the first place is as it should be.
        """
        opinions = [(by_tree + look.added, by_tree) for look, by_tree in zip(group, odds, strict=True)]
        rank, by_trees = np.average(opinions, axis=0, weights=shares)
        longest = group[int(np.argmax(shares))]  # what is asked of one problem, the longest answers
        if space.known is not None:

            def log_us() -> Array:
                return np.average([latencies.estimate(look.launch, EXACT).log_us for look in group], axis=0, weights=shares)

            rank = _moved_first(rank, self._picks(log_us, rank, by_trees, space.known, longest.launch, first_only))
        scores = np.full(space.rows.shape[0], np.inf)
        scores[space.candidates] = -rank
        if space.never_won.size:
            by_physics = np.average([look.others_odds for look in group], axis=0, weights=shares)
            scores[space.never_won] = -rank.min() + 1 + by_physics.max() - by_physics
            if rank.size > order.PICKS and not first_only and not self.wins.know(longest.launch):
                within = np.flatnonzero(longest.others.stages <= space.most_stages)
                new = space.never_won[within[_first_new(by_physics[within], longest.others.take(within), longest.launch)]]
                last, following = np.sort(-rank)[order.PICKS - 1 : order.PICKS + 1]
                scores[new] = np.linspace(last, following, new.size + 2)[1:-1]
        return scores

    def _picks(
        self, log_us: Callable[[], Array], rank: Array, by_trees: Array, places: NDArray[np.int64], launch: Launch, first_only: bool
    ) -> NDArray[np.int64]:
        """The first places of configurations [n]: of several opinions in turn, after some of the first alone.

        On GPUs of which sweeps are known each opinion picks for itself: what it ranks high is right too often to give way to variety.

        Args:
            log_us: Called for the logs of the latencies predicted, [n].
            rank: Log-odds, [n].
            by_trees: Those of the trees alone, [n].
            places: Where the configurations stand in `known`, [n].
            launch: Their launches, [n].
            first_only: No more than the first is asked for.
        """
        if first_only and (self.wins.know(launch) or launch.capability[0] in SPLIT_L2 or not _outgrown(launch)):
            return np.array([int(np.argmax(rank))])  # the first has the first turn, and nothing before it that it could resemble
        most = 1 if first_only else order.PICKS

        def picks(opinions: Sequence[Array], turns: Iterable[int]) -> NDArray[np.int64]:
            return self.wins.picks(np.stack(opinions), turns, places, launch, self.known.shape[0], most)

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

    def _looks(self, physics: Array, problems: Sequence[ProblemBatch], space: Space, gpu: Machine) -> list[Look]:
        """Quick looks at problems; rivals are the configurations that may win, whichever are asked about: all that won a sweep and fit."""
        fitting = self.known[fits(gpu, as_configuration(self.known))]
        tried, count = slice(0, space.candidates.size), space.candidates.size + space.never_won.size
        rows, contend = _joined(
            np.concatenate([space.rows[space.candidates], space.rows[space.never_won]]), fitting if fitting.size else self.known
        )
        configuration = as_configuration(rows)
        features, launches = [], []
        for problem in problems:
            launch = moe_launch(problem, configuration, gpu)
            predicted_us, stack = moe_physics.terms(launch, physics)
            others = rivals(launch.take(contend), predicted_us[contend], stack[:, contend])
            launches.append(launch.take(slice(count)))
            features.append(matrix(ranking_features(launch.take(tried), predicted_us[tried], stack[:, tried], others)))
        trees = np.split(self.quick(np.concatenate(features)), len(problems))
        known = self.wins.know(launches[0])
        looks = []
        for launch, columns, by_tree in zip(launches, features, trees, strict=True):
            odds = order.log_odds(order.columns(launch), self.order)
            looks.append(
                Look(
                    launch=launch.take(tried),
                    features=columns,
                    trees=by_tree,
                    added=0.0 if known else SHARE_OF_PHYSICS * odds[tried],
                    others=launch.take(slice(tried.stop, None)),
                    others_odds=odds[tried.stop :],
                    closer=np.full(by_tree.shape, np.nan),
                )
            )
        return looks

    def _promising(self, group: Sequence[Look]) -> NDArray[np.int64] | None:
        """Candidates that any problem of a group finds promising: all have a closer look at them, so that their odds can be averaged. None
        where all are as few as need no choice."""
        if len(group[0].launch) <= 8:
            return None
        promising = np.zeros(len(group[0].launch), dtype=bool)
        for opinion in (opinion for look in group for opinion in (look.trees + look.added, look.trees)):
            promising[np.argsort(-opinion, kind="stable")[: self.shortlist]] = True
        return np.flatnonzero(promising)

    def _look_closely(self, groups: Sequence[tuple[Sequence[Look], NDArray[np.int64] | None]]) -> None:
        """Fill in `Look.closer` of the candidates that each group finds promising."""
        wanted: dict[int, tuple[Look, NDArray[np.bool_]]] = {}
        for group, promising in groups:
            for look in group if promising is not None else ():
                wanted.setdefault(id(look), (look, np.zeros(look.trees.size, dtype=bool)))[1][promising] = True
        if not wanted:
            return
        known = self.wins.know(groups[0][0][0].launch)
        # What is hard to tell differs from GPU to GPU: what `first` learned of it misleads where no sweep is known.
        forests = (self.close, self.first_afar, self.first if known else self.first_unseen)
        features = np.concatenate([look.features[rows] for look, rows in wanted.values()])
        odds = np.average([forest(features) for forest in forests], axis=0, weights=(1, 1, 1 if known else UNSEEN_LOOKS))
        ends = np.cumsum([rows.sum() for _, rows in wanted.values()])[:-1]
        for (look, rows), closer in zip(wanted.values(), np.split(odds, ends), strict=True):
            look.closer[rows] = closer

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
        wins=order.from_arrays(stored, f"{prefix}/wins"),
    )


def _odds(look: Look, chosen: NDArray[np.int64] | None) -> Array:
    """Log-odds by the trees, [n]; those that were not looked at closely come behind."""
    if chosen is None:
        return look.trees
    odds = look.trees - 1000.0
    odds[chosen] = look.closer[chosen]
    return odds


def _time_shares(latencies: Latencies, groups: Sequence[Sequence[Look]], odds: Sequence[Sequence[Array]]) -> list[Array]:
    """Share [p] of each problem in the time of its group, each with the likeliest of its configurations; `odds` by the trees, [n] each."""
    likeliest = [
        look.launch.take(np.array([np.argmax(by_tree + look.added)]))
        for group, by_trees in zip(groups, odds, strict=False)
        for look, by_tree in zip(group, by_trees, strict=True)
    ]
    us = np.exp(latencies.estimate(concatenate(likeliest), EXACT).log_us)
    return [of_group / of_group.sum() for of_group in np.split(us, np.cumsum([len(group) for group in groups])[:-1])]


def _first_new(odds: Array, others: Launch, launch: Launch) -> NDArray[np.int64]:
    """Rows of the `NEVER_WON` likeliest of `others` [m] that make no launch of `launch` [n], the likeliest first."""
    by_odds = np.argsort(-odds, kind="stable")[: LOOKED_AT * NEVER_WON]
    where = np.concatenate([order.configuration_coordinates(item) for item in (launch, others.take(by_odds))])
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
        for item in list(lists):
            pick = next((pick for pick in item if pick not in out), None)
            if pick is None:
                lists.remove(item)
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


def _joined(rows: Array, more: Array) -> tuple[Array, NDArray[np.int64]]:
    """`rows` and behind them those of `more` that are not among them, and where each of `more` stands there."""
    joined = np.concatenate([rows, more[~_among(more, rows)]])
    return joined, _places(more, joined)


def _among(rows: Array, known: Array) -> NDArray[np.bool_]:
    """Which rows occur in `known`."""
    keys, wanted = np.sort(known @ _KEY), rows @ _KEY
    return np.asarray(keys[np.minimum(np.searchsorted(keys, wanted), keys.size - 1)] == wanted)


def _places(rows: Array, known: Array) -> NDArray[np.int64]:
    """Places in `known` of rows that do occur in it."""
    keys = known @ _KEY
    by_key = np.argsort(keys, kind="stable")
    return by_key[np.searchsorted(keys[by_key], rows @ _KEY)]
