"""A configuration as one flat dictionary, and back."""

from __future__ import annotations

import pytest

from advisor.result.schema import LAUNCH_OPTIONS, Configuration

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
