"""The physics of the order: the same in both libraries, fitted to winners, and used where no sweep of a GPU is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned.machine import machine
from advisor.learned.moe import order, ranker
from advisor.learned.moe.launch import as_configuration, as_rows, fits, moe_launch
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
