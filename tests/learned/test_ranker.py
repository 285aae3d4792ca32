"""The order of configurations: which forests count where."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from advisor.hardware import load_gpu
from advisor.learned.configurations import as_configuration
from advisor.learned.forest import Forest
from advisor.learned.machine import machine
from advisor.learned.ranker import FORESTS
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
