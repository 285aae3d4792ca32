"""What may be asked of a target, from Python too: the command line checks its options before it makes a `Request`."""

from __future__ import annotations

import numpy as np
import pytest

from advisor.advising.targets import Request
from advisor.system.errors import UsageError


@pytest.mark.parametrize(
    "asked, word",
    [
        ({"cache": "lukewarm"}, "cache"),
        ({"tokens": 64}, "tokens"),
        ({"tokens": "64"}, "tokens"),
        ({"tokens": (0,)}, "tokens"),
        ({"tokens": (1, 64.5)}, "tokens"),
        ({"tokens": (True,)}, "tokens"),
        ({"tokens": (2**31,)}, "tokens"),
        ({"tensor_parallel": 0}, "tensor_parallel"),
        ({"expert_parallel": -1}, "expert_parallel"),
        ({"hidden_size": 2048.0}, "hidden_size"),
        ({"top_k": 0}, "top_k"),
        ({"sizes": {"M": 64, "N": 0, "K": 64}}, "sizes: N"),
        ({"sizes": {"M": "64"}}, "sizes: M"),
    ],
)
def test_what_cannot_be_meant_is_refused(asked, word):
    with pytest.raises(UsageError, match=f"Request.{word}.*; got .*; expected "):
        Request(**asked)


@pytest.mark.parametrize("asked", [{}, {"cache": "cold", "tokens": [1, 64]}, {"tokens": ()}, {"sizes": {"M": 64, "causal": 0}}])
def test_what_can_is_taken(asked):
    Request(**asked)


def test_numbers_of_numpy_are_numbers():
    request = Request(tokens=(np.int64(64),), hidden_size=np.int32(4096), sizes={"M": np.int64(4), "causal": True})
    assert request.tokens == (64,)
