"""A configuration as one flat dictionary, and back."""

from __future__ import annotations

import pytest

from advisor.result.schema import LAUNCH_OPTIONS, Configuration, PipelineTime, nearest_to_peak

PLAIN = Configuration(parameters={"BLOCK": 64, "EVEN": True}, num_warps=8, num_stages=2)
RARE = Configuration(parameters={}, num_ctas=2, maxnreg=128)


@pytest.mark.parametrize("all_options", [False, True])
@pytest.mark.parametrize("configuration", [PLAIN, RARE])
def test_what_is_flat_becomes_the_same_configuration_again(configuration, all_options):
    flat = configuration.flat(all_options=all_options)
    assert Configuration.from_flat(flat) == configuration
    assert not all_options or tuple(flat)[-4:] == LAUNCH_OPTIONS


def test_rare_options_are_named_where_they_are_not_the_default():
    assert PLAIN.flat() == {"BLOCK": 64, "EVEN": True, "num_warps": 8, "num_stages": 2}
    assert RARE.label() == "num_warps=4 num_stages=3 num_ctas=2 maxnreg=128"


def test_what_is_left_out_or_none_has_its_default():
    assert Configuration.from_flat({"num_warps": None, "maxnreg": None, "BLOCK": 1}) == Configuration(parameters={"BLOCK": 1})
    with pytest.raises(ValueError, match="invalid literal"):
        Configuration.from_flat({"num_warps": "many"})


@pytest.mark.parametrize(
    ("demands", "nearest"),
    [
        ({"l2": 110.0, "tensor": 60.0}, ("l2", 1.0)),  # the L1 served the rest
        ({"l2": 110.0, "tensor": 120.0}, ("tensor", 1.2)),  # a fault
        ({"issue": 150.0, "dram": 80.0}, ("issue", 1.0)),
        ({"dram": 80.0, "l2": 50.0}, ("dram", 0.8)),
        ({}, (None, None)),
    ],
)
def test_nearest_to_peak_is_above_one_only_where_a_demand_is_certain(demands, nearest):
    times = [
        PipelineTime(
            pipeline=name,
            unit="",
            demand=demand,
            problem_demand=demand,
            busiest_sm_demand=None,
            throughput_per_s=1e6,
            time_us=demand,
            problem_time_us=demand,
        )
        for name, demand in demands.items()
    ]
    assert nearest_to_peak(times, 100.0) == pytest.approx(nearest)
