"""Times of layers: derivatives, and what must hold of any constants."""

import numpy as np
import pytest

from advisor.gpus.hardware import load_gpu
from advisor.learned.layers import layer_time
from advisor.learned.layers.moe_layer import BF16, FP8, FP8_BLOCK, Layers, launched
from advisor.pipelines.token_draws import RANDOM
from advisor.steps.latency import layer_bound
from advisor.tables.entries import version_number


def layers(tokens, gpu="H100", kind=BF16, sglang=True, version=514, inner=768.0, ranks=1.0, routing=RANDOM):
    tokens = np.asarray(tokens, dtype=float)
    n = tokens.size
    whole = Layers(
        tokens=tokens,
        experts=np.full(n, 128.0),
        topk=np.full(n, 8.0),
        hidden=np.full(n, 2048.0),
        inner=np.full(n, inner),
        ranks=np.full(n, ranks),
        kind=np.full(n, kind),
        sglang=np.full(n, sglang),
        version=np.full(n, float(version)),
        ungated=np.zeros(n, dtype=bool),
        routing=np.full(n, routing),
    )
    return launched(whole, load_gpu(gpu))


@pytest.mark.parametrize(("gpu", "kind"), [("A100", BF16), ("H100", FP8_BLOCK), ("B200", FP8), ("RTX PRO 6000 S", FP8)])
def test_gradient_is_that_of_every_constant_on_its_own(gpu, kind):
    launch, x = layers([1, 77, 1024], gpu, kind), layer_time.start()
    found = layer_time.gradient(launch, x)
    for i in range(0, x.size, 7):
        moved = x.copy()
        moved[i] += 1e-4
        alone = (np.log(layer_time.layer_time(launch, moved).total) - np.log(layer_time.layer_time(launch, x).total)) / 1e-4
        assert found[:, i] == pytest.approx(alone, abs=1e-6)


@pytest.mark.parametrize(
    ("sglang", "version", "kind", "tokens", "tile"),
    [
        (True, 509, BF16, 64, (16, 32, 64)),
        (True, 509, BF16, 4096, (64, 64, 32)),
        (False, 1400, FP8, 4096, (64, 64, 32)),
        (False, 1900, BF16, 4096, (128, 128, 64)),
        (False, 1900, FP8, 16, (16, 64, 128)),
        (False, 1400, FP8_BLOCK, 16, (64, 128, 128)),
        (False, 1900, FP8_BLOCK, 16, (16, 128, 128)),
        (True, 514, FP8, 4096, (128, 256, 128)),
    ],
)
def test_defaults_by_version(sglang, version, kind, tokens, tile):
    configuration = layers([tokens], kind=kind, sglang=sglang, version=version).configuration
    assert tuple(int(configuration[f"BLOCK_SIZE_{axis}"][0]) for axis in "MNK") == tile


def test_versions_are_ordered():
    names = ["0.5.6.post2", "0.5.9", "0.5.10", "0.5.14", "0.14.1.dev1+gd68209402", "0.18.0", "0.24.0", "0.33.0"]
    numbers = [version_number(name) for name in names]
    assert numbers == sorted(numbers) and numbers[0] == 506 and numbers[-1] == 3300
    assert version_number("") == 0


def test_bound_of_random_routing_is_below_that_of_round_robin_and_below_the_time():
    random, balanced = layers([4, 16, 64]), layers([4, 16, 64], routing=0.0)
    cold = np.ones(3, dtype=bool)
    assert (layer_bound(random, cold).us < layer_bound(balanced, cold).us).all()
    assert (layer_bound(random, cold).us <= layer_bound(random, cold).config_us).all()


def test_sglang_keeps_the_tokens_of_one_rank_and_vllm_all():
    assert layers([4096], ranks=8.0, sglang=True).kept[0] == 4096  # as many slots as tokens, of eight experts each
    assert layers([4096], ranks=16.0, sglang=True).kept[0] == 2048
    assert layers([4096], ranks=16.0, sglang=False).kept[0] == 4096


def test_rows_read_one_by_one_cost_w2_more_with_every_element_of_a_thread():
    """Of 84 columns of fp8, whose rows start nowhere; the more elements a thread holds, the more of each the registers cannot."""
    added = {}
    for sglang, version in ((False, 1400), (True, 514)):
        odd, even = (
            layer_time.layer_time(layers([4096], kind=FP8, sglang=sglang, version=version, inner=inner), layer_time.start())
            for inner in (84.0, 96.0)
        )
        assert odd.w13.loop == pytest.approx(even.w13.loop, rel=0.2)
        added[sglang] = float(odd.w2.loop[0] - even.w2.loop[0])
    assert added[True] > 2 * added[False] > 0
