"""Where a warm L2 makes a bound what nobody gets by bytes over bandwidth, the report says so; and elsewhere not."""

from __future__ import annotations

import pytest

from advisor.advising import advise_target
from advisor.advising.targets import Request
from advisor.advising.targets.resolve import resolve_target
from advisor.learned import load_predictor

SAID = "Assumes a warm L2"


@pytest.mark.parametrize(
    ("tokens", "cache", "words"),
    [
        ((1,), "warm", "2 of 2 launches"),
        ((1, 1024), "warm", "2 of 4 launches"),
        ((1024,), "warm", None),
        ((1,), "cold", None),
    ],
)
def test_small_launches_find_their_operands_in_the_l2(tokens, cache, words):
    """One token asks for 8 experts, 50 MB of w13; 1,024 for all 128, more than any L2 holds."""
    target = resolve_target("fused_moe", Request(model="Qwen3-30B-A3B", gpu="H200", tokens=tokens, cache=cache))
    result = advise_target(target, load_predictor(), command="")
    said = [text for text in result.verdict.unknowns if SAID in text]
    assert len(said) == (words is not None) and all(str(words) in text for text in said)
    if words is not None and len(tokens) == 1:
        cold = advise_target(
            resolve_target("fused_moe", Request(model="Qwen3-30B-A3B", gpu="H200", tokens=tokens, cache="cold")),
            load_predictor(),
            command="",
        )
        assert all(then.bound.us > 1.2 * now.bound.us for now, then in zip(result.launches, cold.launches, strict=True)), "what it advises"
