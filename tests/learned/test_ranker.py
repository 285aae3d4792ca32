"""The order of configurations: which forests count where."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.learned.forest import Forest
from advisor.learned.machine import machine
from advisor.learned.moe.launch import as_configuration, as_rows, fits, moe_launch
from advisor.learned.moe.order import PICKS, configuration_coordinates
from advisor.learned.moe.ranker import AGREED, AGREED_UNSEEN, FORESTS, NEVER_WON, ONE_BUFFER_FIRST, _in_turn, _odds
from advisor.learned.moe.ranking_features import EXACT
from advisor.pipelines.batch import repeats
from advisor.pipelines.space import family_space
from tests.learned import samples
from tests.learned.samples import FIELDS


def scores(weights, gpu: str, **forests: Forest) -> np.ndarray:
    ranker = dataclasses.replace(weights.moe.ranker, known=samples.CONFIGURATIONS, **forests)  # few won: too few for a closer look
    problem = samples.problems(tokens=(64,))
    space = as_configuration(samples.CONFIGURATIONS)
    return ranker.rankings(weights.moe.core, [[problem]], space, machine(load_gpu(gpu), "bf16"))[0].scores


@pytest.mark.parametrize(
    ("gpu", "counts"),
    [
        ("H800", {"quick", "close", "first", "first_afar"}),
        ("A40", {"quick", "close", "first_afar", "first_unseen"}),
    ],
)
def test_forests_that_count_on_gpus_with_and_without_sweeps(weights, gpu, counts):
    as_they_are = scores(weights, gpu)
    changed = set()
    for name in FORESTS:
        forest = getattr(weights.moe.ranker, name)
        other = dataclasses.replace(forest, leaf=-3 * forest.leaf[::-1])
        if not np.array_equal(scores(weights, gpu, **{name: other}), as_they_are):
            changed.add(name)
    # All that won fit on the shortlist here: the first look only says which do.
    assert changed | {"quick"} == counts


@pytest.mark.parametrize("swept", [True, False])
def test_what_never_won_is_tried_before_the_last_of_what_did_only_on_gpus_never_swept(swept):
    moe, gpu = load_predictor().weights.moe, machine(load_gpu("L40"), "bf16")
    space, problem, ranker = family_space("fused_moe"), samples.problems(tokens=(8,)), moe.ranker
    if not swept:
        ranker = dataclasses.replace(ranker, wins=dataclasses.replace(ranker.wins, machines=ranker.wins.machines + 5.0))
    rows = as_rows(space)
    won = (rows[:, None] == ranker.known[None]).all(axis=2).any(axis=1)
    order = np.argsort(ranker.rankings(moe.core, [[problem]], space, gpu)[0].scores, kind="stable")
    assert won[order[:PICKS]].all()
    new, later = np.split(order[PICKS:], [NEVER_WON])
    assert won[new].all() if swept else not won[new].any()
    assert won[later[:60]].all()
    where = configuration_coordinates(moe_launch(problem, as_configuration(rows[order[:PICKS]]), gpu))
    assert not repeats(where).any(), "no launch comes twice among the first"


def test_two_opinions_pick_in_turn_after_the_first_ones(monkeypatch):
    one, other = np.array([5, 6, 7, 8, 9, 1]), np.array([7, 8, 2, 9, 3])
    monkeypatch.setattr("advisor.learned.moe.ranker.AGREED", 3)
    assert _in_turn(one, one).tolist() == one.tolist()
    assert _in_turn(one, other).tolist() == [5, 6, 7, 8, 9, 2, 1, 3]  # 5 6 7, then 8 of the other, 9, 2, 1, 3
    monkeypatch.setattr("advisor.learned.moe.ranker.AGREED", 1)
    assert _in_turn(one, other).tolist() == [5, 7, 6, 8, 9, 2, 1, 3]


def test_the_trees_alone_have_their_say_on_gpus_never_swept(monkeypatch):
    monkeypatch.setattr("advisor.learned.moe.ranker.SHARE_OF_PHYSICS", 20.0)  # the physics outvotes the trees
    moe, gpu, problem = load_predictor().weights.moe, machine(load_gpu("A40"), "bf16"), samples.problems(tokens=(8,))
    unseen = dataclasses.replace(moe.ranker, wins=dataclasses.replace(moe.ranker.wins, machines=moe.ranker.wins.machines + 5.0))
    known = as_configuration(unseen.known[fits(gpu, as_configuration(unseen.known))])

    def odds(ranker) -> tuple[np.ndarray, np.ndarray]:
        """With the physics, and by the trees alone."""
        (look,) = ranker._looks(moe.core.physics, [problem], ranker._space(known, gpu), gpu)
        ranker._look_closely([([look], ranker._promising([look]))])
        by_trees = _odds(look, ranker._promising([look]))
        return by_trees + look.added, by_trees

    joint, trees = odds(unseen)
    order = np.argsort(unseen.rankings(moe.core, [[problem]], known, gpu)[0].scores, kind="stable").tolist()
    tried = unseen._space(known, gpu).candidates
    assert order[0] == tried[joint.argmax()] != tried[trees.argmax()]
    assert order.index(tried[trees.argmax()]) == AGREED_UNSEEN
    same, alone = odds(moe.ranker)
    assert (same == alone).all()


def test_predicted_latencies_have_their_say_on_gpus_with_sweeps(monkeypatch):
    moe, gpu = load_predictor().weights.moe, machine(load_gpu("A100"), "bf16")
    known = as_configuration(moe.ranker.known[fits(gpu, as_configuration(moe.ranker.known))])
    heard = 0
    for problem in (samples.problems(tokens=(tokens,)) for tokens in (4, 8, 16, 32, 64, 256)):
        fastest = moe.core.estimate(moe_launch(problem, known, gpu), EXACT).log_us.argmin()

        def place(share: float, problem=problem, fastest=fastest) -> int:
            monkeypatch.setattr("advisor.learned.moe.ranker.SHARE_OF_LATENCY", share)
            return np.argsort(moe.ranker.rankings(moe.core, [[problem]], known, gpu)[0].scores, kind="stable").tolist().index(fastest)

        if (without := place(0.0)) >= AGREED:
            outvoted = place(1e6)  # the latencies outvote the trees
            assert AGREED <= outvoted < without
            heard += outvoted == AGREED
    assert heard


def test_more_stages_than_sweeps_tried_come_behind_what_they_did():
    moe, problem = load_predictor().weights.moe, samples.problems(tokens=(8,))
    ranker, gpu = moe.ranker, machine(load_gpu("RTX 4090"), "bf16")
    known = ranker.known[fits(gpu, as_configuration(ranker.known))]
    stages = known[:, FIELDS.index("num_stages")]
    order = np.argsort(ranker.rankings(moe.core, [[problem]], as_configuration(known), gpu)[0].scores, kind="stable")
    assert (stages == 5).any()
    assert (np.sort(np.flatnonzero(stages[order] == 5)) >= (stages < 5).sum()).all()


@pytest.mark.parametrize(
    ("gpu", "tokens", "swept", "heard"),
    [
        ("L40", 8, False, True),
        ("A100", 2, False, True),
        ("L40", 8, True, False),  # its own sweeps say so
        ("L40", 2048, False, False),  # 256 rows per expert
        ("A40", 8, False, False),  # 33 times the L2
    ],
)
def test_one_buffer_has_its_say_for_sets_that_outgrow_the_l2_on_gpus_never_swept(monkeypatch, gpu, tokens, swept, heard):
    moe, machine_, problem = load_predictor().weights.moe, machine(load_gpu(gpu), "bf16"), samples.problems(tokens=(tokens,))
    ranker = moe.ranker
    if not swept:
        ranker = dataclasses.replace(ranker, wins=dataclasses.replace(ranker.wins, machines=ranker.wins.machines + 5.0))
    rows = ranker.known[fits(machine_, as_configuration(ranker.known))]

    def order() -> np.ndarray:
        return np.argsort(ranker.rankings(moe.core, [[problem]], as_configuration(rows), machine_)[0].scores, kind="stable")

    now = order()
    monkeypatch.setattr("advisor.learned.moe.ranker.OUTGROWN", (np.inf, np.inf))
    without = order()
    stages = FIELDS.index("num_stages")
    if heard:
        if gpu == "A100":  # its L2 has two partitions
            assert now[0] == without[0] and (rows[now[1:3], stages] == 2).all()
        else:
            assert (rows[now[: 2 * ONE_BUFFER_FIRST], stages] == 2).all()
        assert (rows[now[:20], stages] == 2).sum() > (rows[without[:20], stages] == 2).sum()
    else:
        assert (now == without).all()


@pytest.mark.parametrize("swept", [True, False])
def test_problems_that_share_a_configuration_weigh_as_much_as_the_time_they_take(swept):
    moe, gpu = load_predictor().weights.moe, machine(load_gpu("L40"), "bf16")
    ranker = moe.ranker
    if not swept:
        ranker = dataclasses.replace(ranker, wins=dataclasses.replace(ranker.wins, machines=ranker.wins.machines + 5.0))
    short, long = samples.problems(tokens=(1,)), samples.problems(tokens=(4096,))
    space = family_space("fused_moe")

    def order(*problems) -> list[int]:
        return np.argsort(ranker.rankings(moe.core, [problems], space, gpu)[0].scores, kind="stable").tolist()

    assert order(long, long) == order(long), "two of a kind are as one"
    assert order(short)[0] != order(long)[0]
    assert order(short, long)[:3] == order(long)[:3], "a launch a hundred times as long decides"
    assert order(short, long) == order(long, short)


@pytest.mark.parametrize("gpu", ["L40", "A40"])
def test_what_groups_share_changes_no_order(gpu):
    """Asked together, every group is ranked as it is alone, and every problem's first is the first of its own order."""
    moe, on = load_predictor().weights.moe, machine(load_gpu(gpu), "bf16")
    one, other, third = (samples.problems(tokens=(tokens,)) for tokens in (1, 64, 4096))
    space, groups = family_space("fused_moe"), [[one, other], [third], [other, third]]
    for group, ranking in zip(groups, moe.ranker.rankings(moe.core, groups, space, on), strict=True):
        np.testing.assert_allclose(ranking.scores, moe.ranker.rankings(moe.core, [group], space, on)[0].scores, rtol=1e-9)
        alone = [moe.ranker.rankings(moe.core, [[problem]], space, on)[0].scores for problem in group]
        assert ranking.first == tuple(int(scores.argmin()) for scores in alone)
