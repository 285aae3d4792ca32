"""What is believed before anything is measured."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.autotuning.decorator import best_config
from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.result.schema import Problem
from advisor.search.prior import (
    KIND,
    RANK,
    Precedent,
    after_precedents,
    place_among_problems,
    precedent,
    prior_of,
    remembered,
    trust_in_order,
)
from advisor.search.search_report import search_reports
from advisor.search.space import SearchSpace
from advisor.search.storage import Task, open_storage
from advisor.search.study import Budget, Decision, Tuner
from tests.search.searches import EXHAUSTIVE, TableBackend, small_prior, small_space, table_of, truth

MODEL = {"E": 128, "topk": 8, "H": 2048, "N": 768}


@pytest.mark.parametrize("tokens", [16, 256, 3072])
@pytest.mark.parametrize("gpu", ["H200", "L40"])
def test_a_search_for_both_gemms_begins_where_best_config_points(gpu, tokens):
    problems = [Problem(family="fused_moe", op=op, sizes={"M": tokens, **MODEL}) for op in ("w13", "w2")]
    space = SearchSpace.of_problem(problems[0], load_gpu(gpu).vendor)
    prior = prior_of(problems, space, load_gpu(gpu), load_predictor())
    assert space.row(int(np.argmin(prior.mean))) == best_config("fused_moe", M=tokens, **MODEL, gpu=gpu)


def test_one_row_of_tiles_is_tried_in_groups_first():
    """GROUP_SIZE_M orders nothing there, and the compiler makes slower code with 1."""
    problem, gpu = Problem(family="gemm", op="gemm", sizes={"M": 16, "N": 4096, "K": 4096}), load_gpu("H100")
    space = SearchSpace.of_problem(problem, gpu.vendor)
    first = int(np.argmin(prior_of([problem], space, gpu, load_predictor()).mean))
    assert space.columns["BLOCK_SIZE_M"][first] >= 16 and space.columns["GROUP_SIZE_M"][first] > 1
    assert space.row(first) == best_config("gemm", **problem.sizes, gpu="H100")


SPACE = small_space()
PRIOR = small_prior(SPACE)
ORDER = np.argsort(PRIOR.mean, kind="stable")
WINNER = int(ORDER[12])


def after(*precedents: Precedent, tried=(), mean=PRIOR.mean):
    return after_precedents(mean, PRIOR.features, (0.0,), precedents, tried)


def won(where: float = 0.5, index: int = WINNER, rank: int = 13) -> Precedent:
    return Precedent(where=(where,), index=index, rank=rank)


def test_what_won_nearby_comes_first_and_what_won_far_away_changes_nothing():
    assert np.array_equal(after(), PRIOR.mean)
    once, moved = after(won()), after(won(), won(where=0.6), won(where=0.7))
    place = [int((each < each[WINNER]).sum()) for each in (once, moved)]
    assert 6 > place[0] > 2 > place[1]
    assert sorted(moved) == sorted(PRIOR.mean)  # the same latencies are expected, of others
    assert np.array_equal(after(won(where=12.0)), PRIOR.mean)


def test_the_nearer_of_two_has_more_to_say():
    other = int(ORDER[13])
    near_first = after(won(where=0.2), won(where=2.5, index=other))
    assert near_first[WINNER] < near_first[other]
    other_first = after(won(where=2.5), won(where=0.2, index=other))
    assert other_first[other] < other_first[WINNER]


def test_a_precedent_that_was_tried_makes_room_for_others():
    far = int(ORDER[30])
    precedents = [won(where=0.1), won(where=0.1), won(where=0.1), won(where=1.5, index=far, rank=31)]
    place = [int(np.flatnonzero(np.argsort(after(*precedents, tried=tried), kind="stable") == far)[0]) for tried in ((), (WINNER,))]
    assert place[1] < place[0]


def test_what_cannot_be_tried_stays_out():
    mean = PRIOR.mean.copy()
    mean[[WINNER, int(ORDER[0])]] = np.inf
    moved = after(won(), mean=mean)
    assert np.isinf(moved[[WINNER, int(ORDER[0])]]).all() and np.isfinite(moved).sum() == np.isfinite(mean).sum()


def test_precedents_of_other_families_are_not_heard():
    assert np.array_equal(after(Precedent(where=(0.0, 0.0), index=WINNER, rank=13)), PRIOR.mean)


def test_the_order_is_trusted_as_it_was_right_before():
    assert trust_in_order([], 2000) == pytest.approx(2.0)
    right, wrong = trust_in_order([1] * 30, 2000), trust_in_order([1, 40, 3, 200, 15, 9] * 5, 2000)
    assert right > 3 > 1.5 > wrong
    assert 0.5 <= trust_in_order([10**6] * 50, 48) <= trust_in_order([1], 1) <= 4
    # An order that is right moves less for a precedent than one that was wrong.
    once_right = after(*[won(where=9.0, rank=1)] * 30, won(where=1.0))
    once_wrong = after(*[won(where=9.0, rank=40)] * 30, won(where=1.0))
    assert once_wrong[WINNER] < once_right[WINNER]


def test_problems_lie_apart_by_their_sizes():
    sizes = {"M": 64, "E": 8, "topk": 2, "H": 4096, "N": 512}
    place = place_among_problems(Problem(family="fused_moe", op="w13", sizes=sizes))
    assert place == pytest.approx((4.0, 9.0, 2.0, 8.0))  # 16 rows per expert; experts and depth count two thirds
    twice = place_among_problems(Problem(family="fused_moe", op="w13", sizes={**sizes, "M": 128}))
    assert np.subtract(twice, place) == pytest.approx([1, 0, 0, 0])
    assert place_among_problems(Problem(family="gemm", op="mm", sizes={"M": 2, "N": 8, "K": 1})) == pytest.approx((0, 1, 3))


def searched(storage: str, name: str, kind: str) -> Tuner:
    decision = Decision(task=Task(id="M16", launches=("w13-M16",)), prior=small_prior(SPACE, wrong=-0.9), kind=kind)
    tuner = Tuner(space=SPACE, decisions=[decision], storage=storage, name=name, stopping=EXHAUSTIVE, budget=Budget(trials=16))
    tuner.run(TableBackend(table_of(SPACE, {"M16": 0.0})))
    return tuner


def measured(tuner: Tuner) -> list[int | None]:
    return [tuner.sampler("M16").index_of(t) for t in tuner.study("M16").get_trials(deepcopy=False)]


def test_a_later_search_starts_with_what_won_an_earlier_one_of_its_kind(tmp_path):
    storage = str(tmp_path / "s.journal")
    first = searched(storage, "first", "gpu; kernel")
    latencies = {index: truth(SPACE)[index] for index in measured(first)}
    best = min(latencies, key=latencies.get)
    other = searched(storage, "other", "gpu; another kernel")
    assert measured(other) == measured(first)
    again = searched(storage, "again", "gpu; kernel")
    assert measured(again).index(best) < measured(first).index(best) / 2
    assert "precedents: 1" in search_reports(again, again.decisions[0], "x")[0].sampler
    assert "precedents" not in search_reports(other, other.decisions[0], "x")[0].sampler
    assert "precedents" not in search_reports(first, first.decisions[0], "x")[0].sampler  # nor now that there are some
    first_again = searched(storage, "first", "gpu; kernel")  # it has ended: nothing is chosen anew
    assert "precedents" not in search_reports(first_again, first_again.decisions[0], "x")[0].sampler
    nameless = searched(storage, "nameless", "")
    assert measured(nameless) == measured(first) == measured(searched(storage, "nameless too", ""))


def test_what_won_is_the_first_in_order_of_what_is_as_good(tmp_path):
    tuner = searched(str(tmp_path / "s.journal"), "first", "k")
    trials = tuner.study("M16").get_trials(deepcopy=False)
    found = precedent(trials, (0.0,), SPACE)
    best = min(t.value for t in trials)
    as_good = [t for t in trials if t.value <= 1.01 * best]
    assert found.rank == min(t.user_attrs[RANK] for t in as_good) and found.index in measured(tuner)
    assert precedent(trials[:1], (0.0,), SPACE) is None  # compared with nothing
    storage = open_storage(str(tmp_path / "s.journal"))
    assert remembered(storage, "k", SPACE, besides=()) == [found]
    assert remembered(storage, "k", SPACE, besides={"first/M16"}) == [] == remembered(storage, "other", SPACE, besides=())
    assert tuner.study("M16").user_attrs[KIND] == "k"
