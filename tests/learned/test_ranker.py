"""The order of configurations: which forests count where."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from advisor.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.learned.configurations import as_configuration, as_rows
from advisor.learned.forest import Forest
from advisor.learned.launch import moe_launch
from advisor.learned.machine import machine
from advisor.learned.ranker import FORESTS, NEVER_WON
from advisor.learned.variety import PICKS, configuration_coordinates
from advisor.pipelines.same_launch import repeats
from advisor.pipelines.space import family_space
from tests.learned import samples


def scores(weights, gpu: str, **forests: Forest) -> np.ndarray:
    ranker = dataclasses.replace(weights.moe.ranker, known=samples.CONFIGURATIONS, **forests)  # few won: too few for a closer look
    problem = samples.problems(tokens=(64,))
    return ranker.scores(weights.moe.core.physics, problem, as_configuration(samples.CONFIGURATIONS), machine(load_gpu(gpu), "bf16"))


@pytest.mark.parametrize(("gpu", "counts"), [
    ("H800", {"quick", "close", "first", "first_afar"}),
    ("A40", {"quick", "close", "first_afar", "first_unseen"}),
])  # fmt: skip
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
    order = np.argsort(ranker.scores(moe.core.physics, problem, space, gpu), kind="stable")
    assert won[order[:PICKS]].all()
    new = order[PICKS : PICKS + NEVER_WON]
    assert (not won[new].any()) if not swept else won[new].all()
    assert won[order[PICKS + NEVER_WON :][:60]].all()
    where = configuration_coordinates(moe_launch(problem, as_configuration(rows[order[: PICKS + NEVER_WON]]), gpu))
    first = where[: PICKS if swept else PICKS + NEVER_WON]
    assert not repeats(first).any(), "no launch comes twice among the first"
