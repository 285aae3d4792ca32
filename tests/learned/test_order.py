"""The order beside the trees: its physics, the same in both libraries and fitted to winners; and later picks, where earlier ones lose."""

from __future__ import annotations

import dataclasses
from itertools import cycle, repeat

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.learned.machine import machine
from advisor.learned.moe import order, ranker
from advisor.learned.moe.launch import as_configuration, as_rows, fits, moe_launch
from advisor.learned.moe.order import PICKS, Wins
from advisor.learned.moe.ranker import _moved_first
from advisor.pipelines import batch
from advisor.pipelines.space import family_space
from advisor.training import rank_training
from tests.learned import samples

GPUS = ("A100", "A40", "H800")
TOKENS = (1, 4, 16, 64, 256, 1024, 4096)


def columns(gpu: str, tokens: int, configuration):
    there = machine(load_gpu(gpu), "bf16")
    return order.columns(moe_launch(samples.problems(tokens=(tokens,)), configuration, there)), fits(there, configuration)


@pytest.fixture(scope="module")
def some():
    """A few hundred configurations of the space; 17 divides no number of choices."""
    return as_configuration(as_rows(family_space("fused_moe"))[::17])


def test_numpy_and_torch_agree(some):
    torch = pytest.importorskip("torch")
    parameters = order.start() + np.linspace(-0.2, 0.2, order.start().size)
    for gpu in GPUS:
        found, _ = columns(gpu, 64, some)
        other = order.log_odds({k: torch.tensor(np.array(v)) for k, v in found.items()}, torch.tensor(parameters), torch)
        np.testing.assert_allclose(order.log_odds(found, parameters), other.numpy(), rtol=1e-9)


def test_every_parameter_matters_and_no_value_is_lost(some):
    base, moved = order.start(), np.zeros(order.start().size, dtype=bool)
    for gpu in GPUS:
        for tokens in TOKENS:
            found, _ = columns(gpu, tokens, some)
            before = order.log_odds(found, base)
            assert np.isfinite(before).all()
            for i in range(base.size):
                one = base.copy()
                one[i] += 0.5
                after = order.log_odds(found, one)
                # a shift that all configurations share orders nothing
                moved[i] |= bool(np.ptp(after - before) > 1e-6)
    assert moved.all(), [name for name, m in zip((*order.CONSTANTS, *order.LEANINGS), moved, strict=True) if not m]


@pytest.fixture
def fewer_steps(monkeypatch):
    """Enough to tell what wins in a world of one law."""
    monkeypatch.setattr(rank_training, "STEPS", 120)


def test_fitting_finds_what_wins(some, fewer_steps):
    pytest.importorskip("torch")
    truth = order.start()
    truth[list(order.CONSTANTS).index("start_clocks")] += 1.0
    truth[len(order.CONSTANTS) + order.LEANINGS.index("eight warps")] = -2.0
    found = [columns(gpu, tokens, some) for gpu in GPUS for tokens in TOKENS]
    odds = [np.where(usable, order.log_odds(c, truth), -np.inf) for c, usable in found]
    won = [o >= np.sort(o)[-3] for o in odds]
    contest = rank_training.contest([c for c, _ in found], [u for _, u in found], won)
    fitted = rank_training.fit(contest)

    def share(parameters: np.ndarray) -> float:
        out = []
        for (c, usable), w in zip(found, won, strict=True):
            o = np.where(usable, order.log_odds(c, parameters), -np.inf)
            e = np.exp(o - o.max())
            out.append(e[w].sum() / e.sum())
        return float(np.mean(out))

    assert share(fitted) > 1.3 * share(order.start())
    assert fitted[len(order.CONSTANTS) + order.LEANINGS.index("eight warps")] < -0.3
    assert (rank_training.fit(contest) == fitted).all()


def test_configurations_that_do_not_fit_are_not_fitted_to(some, fewer_steps):
    pytest.importorskip("torch")
    c, usable = columns("A40", 64, some)
    won = np.zeros(usable.size, dtype=bool)
    won[np.flatnonzero(usable)[:2]] = True
    plain = rank_training.fit(rank_training.contest([c], [usable], [won]))
    spoiled = {k: np.where(usable, v, v * 3.0) for k, v in c.items()}
    assert (rank_training.fit(rank_training.contest([spoiled], [usable], [won])) == plain).all()


def test_the_physics_counts_on_gpus_without_sweeps_alone(predictor, monkeypatch):
    moe, space = predictor.weights.moe, family_space("fused_moe")
    swept, other = machine(load_gpu(samples.GPUS[0]), "bf16"), machine(load_gpu("A40"), "bf16")
    before = {gpu: moe.ranker.rankings(moe.core, [[samples.problems(tokens=(64,))]], space, gpu)[0].scores for gpu in (swept, other)}
    monkeypatch.setattr(ranker, "SHARE_OF_PHYSICS", 0.0)
    after = {gpu: moe.ranker.rankings(moe.core, [[samples.problems(tokens=(64,))]], space, gpu)[0].scores for gpu in (swept, other)}
    assert (before[swept] == after[swept]).all()
    assert np.argsort(before[other]).tolist() != np.argsort(after[other]).tolist()


def test_what_is_hard_to_tell_is_learned_for_swept_gpus_alone(predictor, some):
    moe = predictor.weights.moe
    silent = dataclasses.replace(moe.ranker.first, leaf=np.zeros_like(moe.ranker.first.leaf))
    without = dataclasses.replace(moe.ranker, first=silent)
    for gpu, swept in ((samples.GPUS[0], True), ("A40", False)):
        on, odds = machine(load_gpu(gpu), "bf16"), []
        for ranker_ in (moe.ranker, without):
            (look,) = ranker_._looks(moe.core.physics, [samples.problems(tokens=(64,))], ranker_._space(some, on), on)
            ranker_._look_closely([([look], ranker_._promising([look]))])
            odds.append(ranker._odds(look, ranker_._promising([look])))
        heard, unheard = odds
        assert (heard != unheard).any() == swept, gpu


def test_what_never_won_a_sweep_comes_behind_in_the_order_of_the_physics(predictor):
    moe, space = predictor.weights.moe, family_space("fused_moe")
    problem, gpu = samples.problems(tokens=(64,)), machine(load_gpu("A40"), "bf16")
    scores = moe.ranker.rankings(moe.core, [[problem]], space, gpu)[0].scores
    known = ranker._among(as_rows(space), moe.ranker.known)
    usable = np.isfinite(scores)
    rest = np.flatnonzero(usable & ~known)
    assert scores[rest].min() > scores[usable & known].max()
    odds = order.log_odds(order.columns(moe_launch(problem, as_configuration(as_rows(space)[rest]), gpu)), moe.ranker.order)
    np.testing.assert_allclose(scores[rest] - scores[rest].min(), odds.max() - odds, atol=1e-9)


def test_weights_keep_the_order(predictor, tmp_path):
    from advisor.learned import weights as store

    store.save(predictor.weights, tmp_path / "w.npz")
    again = store.load(tmp_path / "w.npz").moe.ranker
    assert (again.order == predictor.weights.moe.ranker.order).all()
    assert dataclasses.asdict(again).keys() == dataclasses.asdict(predictor.weights.moe.ranker).keys()


def one_problem(rows, tokens: int = 64):
    """One problem, launched in all these configurations."""
    return moe_launch(samples.problems(tokens=(tokens,)), as_configuration(np.array(rows, dtype=float)), machine(load_gpu("H800"), "bf16"))


@pytest.fixture
def launch():
    """Thirty launches that have little in common."""
    blocks = [(m, n) for m in (16, 64, 256) for n in (16, 256)]
    return one_problem([[*block, 64, 1, warps, stages] for block in blocks for warps in (4, 8) for stages in (2, 3, 4)][:30])


def wins(launch, pairs: list[tuple[int, int]], machines: np.ndarray | None = None) -> Wins:
    """Problems all equal to the launch's; (problem, configuration) pairs that won."""
    count = max(p for p, _ in pairs) + 1
    where, gpu = order.coordinates(launch)[:1], order.machine_coordinates(launch)[:1]
    return Wins(
        problems=np.repeat(where, count, axis=0).astype(np.float32),
        machines=(np.repeat(gpu, count, axis=0) if machines is None else machines).astype(np.float32),
        problem=np.array([p for p, _ in pairs], dtype=np.uint16),
        configuration=np.array([c for _, c in pairs], dtype=np.uint16),
    )


def alone(found: Wins, odds, launch) -> list[int]:
    """The picks of one opinion; the candidates are all that is known."""
    return found.picks(np.array([odds], dtype=float), repeat(0), np.arange(len(odds)), launch, len(odds)).tolist()


def test_what_wins_where_the_first_pick_loses_moves_up(launch):
    # 0 and 1 always win together; 2 wins the other half of the problems. By odds alone 0, 1, 2.
    found = wins(launch, [(p, c) for p in range(10) for c in (0, 1)] + [(p, 2) for p in range(10, 20)])
    assert alone(found, [1.0, 0.9, 0.8, -3.0], launch.take(np.arange(4)))[:3] == [0, 2, 1]


def test_a_clear_lead_stays(launch):
    found = wins(launch, [(p, c) for p in range(10) for c in (0, 1)] + [(p, 2) for p in range(10, 20)])
    assert alone(found, [5.0, 4.0, -4.0, -5.0], launch.take(np.arange(4)))[:2] == [0, 1]


def test_other_gpus_count_only_where_the_same_was_never_swept(launch):
    mine, others = order.machine_coordinates(launch)[0], order.machine_coordinates(launch)[0] + 1.0
    pairs = [(0, 0), (0, 1), (1, 2)]
    both = wins(launch, pairs, np.stack([mine, others]))
    assert both._likeness(launch)[1] == 0
    away = wins(launch, pairs, np.stack([others, others]))
    assert (away._likeness(launch) > 0).all()


def test_every_pick_is_another_and_the_first_is_the_best(launch):
    rng = np.random.default_rng(3)
    found = wins(launch, [(int(p), int(c)) for p, c in rng.integers(0, 30, (200, 2))])
    odds = rng.standard_normal(30)
    order = alone(found, odds, launch)
    assert len(order) == len(set(order)) == PICKS
    assert order[0] == odds.argmax()


def test_what_makes_the_same_launch_is_picked_once(launch):
    # As many row tiles as active experts, far below 64: groups of 64 and 128 order the CTAs alike, one of 1 does not.
    alike = one_problem([[16, 64, 64, 64, 4, 3], [16, 64, 64, 128, 4, 3], [16, 64, 64, 1, 4, 3], [16, 64, 64, 128, 8, 3]], tokens=2)
    assert alike.row_tiles[0] < 64
    where = order.configuration_coordinates(alike)
    assert batch.repeats(where).tolist() == [False, True, False, False]
    assert batch.repeats(where[::-1]).tolist() == [False, False, False, True]
    assert alone(wins(alike, [(0, 3)]), [0.5, 1.0, 0.0, -1.0], alike) == [1, 2, 3]
    many = one_problem([[16, 64, 64, 64, 4, 3], [16, 64, 64, 128, 4, 3]], tokens=4096)
    assert not batch.repeats(order.configuration_coordinates(many)).any()


def test_on_unknown_gpus_what_resembles_a_pick_moves_down(launch):
    alike = one_problem([[64, 64, 64, 1, 4, 3], [64, 64, 64, 1, 4, 4], [256, 128, 64, 1, 8, 3]])
    here, away = wins(alike, [(0, 0)]), wins(alike, [(0, 0)], order.machine_coordinates(alike)[:1] + 1.0)
    assert alone(here, [1.0, 0.9, 0.8], alike) == [0, 1, 2]
    assert alone(away, [1.0, 0.9, 0.8], alike) == [0, 2, 1]
    assert alone(away, [9.0, 8.0, 0.8], alike) == [0, 1, 2]


def test_opinions_pick_in_turn_what_no_other_picked(launch):
    found = wins(launch, [(0, 3)])
    opinions = np.array([[9.0, 8.0, 7.0, 0.0], [9.0, 0.0, -np.inf, 8.0], [-np.inf, -np.inf, -np.inf, -np.inf]])
    picks = found.picks(opinions, cycle([0, 1, 2]), np.arange(4), launch.take(np.arange(4)), 4)
    assert picks.tolist() == [0, 3, 1, 2]  # the second opinion has no say about 2, and the third about nothing


def test_opinions_see_what_the_others_picked():
    alike = one_problem([[64, 64, 64, 1, 4, 3], [64, 64, 64, 1, 4, 4], [256, 128, 64, 1, 8, 3]])
    away = wins(alike, [(0, 0)], order.machine_coordinates(alike)[:1] + 1.0)
    picks = away.picks(np.array([[1.0, 0.9, 0.8], [0.0, 0.9, 0.8]]), cycle([0, 1]), np.arange(3), alike, 3)
    assert picks.tolist() == [0, 2, 1]  # alone, the second would have begun with 1


@pytest.mark.parametrize(("gpu", "most"), [("A40", 4), ("RTX 4090", 4), ("T4", 4), ("A100", 5), ("B200", 5)])
def test_no_more_stages_come_first_than_sweeps_of_such_gpus_tried(gpu, most):
    ranker, known = load_predictor().weights.moe.ranker, machine(load_gpu(gpu), "bf16")
    assert ranker.wins.most_stages(ranker.known, known) == most


def test_ranking_keeps_its_first_place_with_and_without(predictor, monkeypatch):
    moe = predictor.weights.moe
    space, gpu, problem = family_space("fused_moe"), machine(load_gpu("H800"), "bf16"), samples.problems(tokens=(64,))
    scores = moe.ranker.rankings(moe.core, [[problem]], space, gpu)[0].scores
    monkeypatch.setattr(order, "STRENGTH", 0.0)
    plain = moe.ranker.rankings(moe.core, [[problem]], space, gpu)[0].scores
    assert scores.argmin() == plain.argmin()
    assert np.isinf(scores).tolist() == np.isinf(plain).tolist()


def test_picks_get_the_largest_values_and_the_gaps_stay():
    rank = np.array([5.0, 4.0, 1.0, 0.5, 3.0])
    moved = _moved_first(rank, np.array([0, 2]))
    assert sorted(moved) == sorted(rank)
    assert np.argsort(-moved).tolist() == [0, 2, 1, 4, 3]
