"""Named routings against counting one by one."""

import numpy as np
import pytest

from advisor.pipelines import token_draws
from advisor.pipelines.token_draws import BALANCED, BLOCKS, RANDOM
from advisor.system.errors import InputError


def loads(tokens, experts, topk, routing, ranks=1):
    columns = (np.array([float(x)]) for x in (tokens, experts, topk, ranks, routing))
    return token_draws.loads(*columns)


@pytest.mark.parametrize(("tokens", "used"), [(4, 29), (16, 82), (32, 112)])
def test_random_routing_uses_fewer_experts_than_round_robin(tokens, used):
    found = loads(tokens, 128, 8, RANDOM)
    assert found.used[0] == pytest.approx(used, abs=0.6)
    assert found.least_used[0] < found.used[0]


@pytest.mark.parametrize(("tokens", "experts", "topk"), [(3, 8, 2), (16, 128, 8), (300, 128, 8), (5000, 64, 6), (7, 2, 2)])
def test_blocks_of_random_routing_are_the_mean_over_real_draws(tokens, experts, topk):
    random = np.random.default_rng(1)
    draws = 400 if tokens < 1000 else 40  # of many tokens each draw is near the mean
    chosen = random.random((draws, tokens, experts)).argpartition(topk - 1, axis=2)[:, :, :topk]
    rows = np.stack([np.bincount(draw.ravel(), minlength=experts) for draw in chosen])
    found = loads(tokens, experts, topk, RANDOM)
    assert found.slots[0] == pytest.approx(tokens * topk)
    assert found.used[0] == pytest.approx((rows > 0).sum(1).mean(), rel=0.02)
    for i, size in enumerate(BLOCKS):
        assert found.blocks[0, i] == pytest.approx(np.ceil(rows / size).sum(1).mean(), rel=0.02)


def test_fewer_than_one_draw_in_a_hundred_uses_fewer_experts_than_the_bound_counts():
    random = np.random.default_rng(2)
    chosen = random.random((2000, 16, 128)).argpartition(7, axis=2)[:, :, :8]
    used = np.array([np.unique(draw).size for draw in chosen])
    assert np.mean(used < loads(16, 128, 8, RANDOM).least_used[0]) <= 0.01


def test_round_robin_is_exact():
    found = loads(100, 128, 8, BALANCED)
    rows = np.bincount(((np.arange(100)[:, None] + np.arange(8) * 16) % 128).ravel(), minlength=128)
    assert found.hottest[0] == rows.max()
    assert found.blocks[0].tolist() == [np.ceil(rows / size).sum() for size in BLOCKS]


def test_power_law_gives_every_slot_and_no_expert_more_than_one_of_a_token():
    for tokens, alpha in ((1, 1.2), (16, 1.01), (512, 1.2), (8192, 1.2)):
        rows = token_draws.rows_of(tokens, 128, 8, alpha)
        assert (rows.sum(axis=1) == tokens * 8).all()
        assert rows.max() <= tokens
    assert loads(8192, 128, 8, 1.2).hottest[0] / 8192 == pytest.approx(0.91, abs=0.03)  # as its publisher states


def test_expert_parallel_ranks_share_the_slots():
    assert loads(4096, 256, 8, RANDOM, ranks=8).slots[0] == pytest.approx(4096)
    assert loads(4096, 256, 8, 1.2, ranks=8).slots[0] > 4096  # the fullest of the ranks


def test_groups_have_the_same_slots_and_experts():
    for routing in (RANDOM, 1.2):
        for tokens in (4, 64, 2048):
            rows, count = token_draws.groups(tokens, 128, 8, routing)
            assert (rows * count).sum() == pytest.approx(tokens * 8, rel=0.01)
            assert count[rows > 0].sum() == pytest.approx(loads(tokens, 128, 8, routing).used[0], rel=0.01)


def test_names():
    assert [token_draws.exponent(name) for name in ("", "random", "balanced", "power_law:1.2", "power_law_1.01")] == [-1, -1, 0, 1.2, 1.01]
    with pytest.raises(InputError, match="power_law:A"):
        token_draws.exponent("skewed")


def test_experts_that_every_token_passes_are_not_drawn():
    """Two shared beside six of 64: at eight tokens 42 of 66 would be used if all were drawn, a sixth more weights."""
    routed = loads(8, 64, 6, RANDOM)
    both = routed.with_shared(np.full(1, 8.0), np.full(1, 2.0))
    assert both.used == routed.used + 2 and both.least_used == routed.least_used + 2
    assert both.slots == 8 * 8 and both.hottest == 8 and (both.blocks == routed.blocks + 2).all()
    assert loads(8, 66, 8, RANDOM).used > 1.14 * both.used
