"""Which configuration is offered of those that cannot be told apart."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.advising.choice import _closest
from advisor.pipelines import configuration_batch
from advisor.result.schema import Configuration

TODAY = Configuration(parameters={"BLOCK": 64}, num_warps=4, num_stages=3)
BEST = Configuration(parameters={"BLOCK": 256}, num_warps=8, num_stages=4)


@pytest.mark.parametrize(("slower", "chosen"), [(1.0049, 0), (1.0051, 1), (1.02, 1)])
def test_closest_takes_todays_within_half_a_percent_of_the_best_and_no_further(slower: float, chosen: int) -> None:
    space = configuration_batch([TODAY, BEST])
    assert _closest(space, np.log(np.array([100.0 * slower, 100.0])), TODAY) == chosen


def test_closest_takes_the_best_where_nothing_runs() -> None:
    assert _closest(configuration_batch([TODAY, BEST]), np.log(np.array([100.1, 100.0])), None) == 1
