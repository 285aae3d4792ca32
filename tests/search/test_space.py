"""Spaces: where they come from, what cannot launch, what the bounds rule out."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned import load_predictor
from advisor.learned.analytical import AnalyticalPredictor
from advisor.pipelines.space import family_space
from advisor.result.schema import Problem
from advisor.search.prior import ANALYTICAL, LEARNED, prior_of
from advisor.search.space import SearchSpace, feasibility
from advisor.system.errors import UsageError
from tests.search.searches import RANGES, small_space

W13 = Problem(family="fused_moe", op="w13", sizes={"M": 64, "E": 128, "topk": 8, "H": 2048, "N": 768})


def test_ranges_are_combined_the_last_fastest():
    space = SearchSpace.from_ranges(RANGES)
    assert len(space) == 48 and space.row(0) | {"num_stages": space.choices("num_stages")[1]} == space.row(1)


def test_rows_of_one_space_must_name_the_same_values():
    with pytest.raises(UsageError, match="same values"):
        SearchSpace.of([small_space().configurations[0], SearchSpace.from_ranges({"B": (1,)}).configurations[0]])
    with pytest.raises(UsageError):
        SearchSpace.from_ranges({"B": range(10**6)})


def test_what_cannot_launch_is_known_and_why():
    space = SearchSpace.from_batch(family_space("fused_moe"))
    found = feasibility(space, W13, load_gpu("A40"))
    assert set(found.stopped_by) == {"shared-memory"}
    assert sum(found.stopped_by.values()) == int((~found.launches).sum()) > 1000
    prior = prior_of([W13], space, load_gpu("A40"), load_predictor())
    assert np.array_equal(np.isinf(prior.mean), ~found.launches)
    assert prior.shares == LEARNED
    assert prior_of([W13], space, load_gpu("A40"), AnalyticalPredictor()).shares == ANALYTICAL


def test_two_launches_that_share_a_configuration_add_up():
    space = SearchSpace.from_batch(family_space("fused_moe"))
    w2 = Problem(family="fused_moe", op="w2", sizes=W13.sizes)
    one, other, both = (prior_of(p, space, load_gpu("H200"), load_predictor()) for p in ([W13], [w2], [W13, w2]))
    assert both.bound_us == pytest.approx(one.bound_us + other.bound_us)
    usable = np.isfinite(both.mean)
    assert both.predicted_us[usable] == pytest.approx((one.predicted_us + other.predicted_us)[usable])
    assert both.ceiling_us[0] == pytest.approx(one.ceiling_us[0] + other.ceiling_us[0])


def test_no_configuration_near_the_best_of_a_published_sweep_is_left_out(data_dir):
    from advisor.rows.rows import read_rows

    near = read_rows(data_dir / "fused_moe_near_optimal.csv.gz")
    space = SearchSpace.from_batch(family_space("fused_moe"))
    index = {tuple(space.row(i)[n] for n in space.names): i for i in range(len(space))}
    rows = list(zip(*(near.columns[n].astype(int).tolist() for n in space.names), strict=True))
    for gpu in sorted(set(near.text["gpu"])):
        launches = feasibility(space, W13, load_gpu(gpu)).launches
        places = {index[row] for name, row in zip(near.text["gpu"], rows, strict=True) if name == gpu and row in index}
        assert places and launches[list(places)].all(), gpu
