"""Later picks: what won where earlier picks lost moves up, within its problem and GPU."""

from __future__ import annotations

from itertools import cycle, repeat

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.learned.machine import machine
from advisor.learned.moe import order
from advisor.learned.moe.launch import as_configuration, moe_launch
from advisor.learned.moe.order import PICKS, Wins
from advisor.learned.moe.ranker import _moved_first
from advisor.pipelines import batch
from advisor.pipelines.space import family_space
from tests.learned import samples


def launches(rows, tokens: int = 64):
    """One problem, launched in all these configurations."""
    return moe_launch(samples.problems(tokens=(tokens,)), as_configuration(np.array(rows, dtype=float)), machine(load_gpu("H800"), "bf16"))


@pytest.fixture
def launch():
    """Thirty launches that have little in common."""
    blocks = [(m, n) for m in (16, 64, 256) for n in (16, 256)]
    return launches([[*block, 64, 1, warps, stages] for block in blocks for warps in (4, 8) for stages in (2, 3, 4)][:30])


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
    alike = launches([[16, 64, 64, 64, 4, 3], [16, 64, 64, 128, 4, 3], [16, 64, 64, 1, 4, 3], [16, 64, 64, 128, 8, 3]], tokens=2)
    assert alike.row_tiles[0] < 64
    where = order.configuration_coordinates(alike)
    assert batch.repeats(where).tolist() == [False, True, False, False]
    assert batch.repeats(where[::-1]).tolist() == [False, False, False, True]
    assert alone(wins(alike, [(0, 3)]), [0.5, 1.0, 0.0, -1.0], alike) == [1, 2, 3]
    many = launches([[16, 64, 64, 64, 4, 3], [16, 64, 64, 128, 4, 3]], tokens=4096)
    assert not batch.repeats(order.configuration_coordinates(many)).any()


def test_on_unknown_gpus_what_resembles_a_pick_moves_down(launch):
    alike = launches([[64, 64, 64, 1, 4, 3], [64, 64, 64, 1, 4, 4], [256, 128, 64, 1, 8, 3]])
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
    alike = launches([[64, 64, 64, 1, 4, 3], [64, 64, 64, 1, 4, 4], [256, 128, 64, 1, 8, 3]])
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
