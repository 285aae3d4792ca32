"""A network in numpy gives what torch gives, goes by the nearest known labels, and stands beside a forest."""

import numpy as np
import pytest

from advisor.learned import network
from advisor.learned.network import Mixed
from advisor.training import grow
from advisor.training.silicon import library_kernels

torch = pytest.importorskip("torch")
pytest.importorskip("lightgbm")
ROWS, LABELS = 801, 2


def measured():
    """Sizes of which the last two say whose kernel it is, and a target that is smooth in the sizes."""
    rng = np.random.default_rng(0)
    labels = np.array([[0.0, 90], [0, 100], [1, 90]])[rng.integers(0, 3, ROWS)]
    sizes = np.stack([rng.normal(size=ROWS), rng.integers(1, 4096, ROWS)], axis=1)
    features = np.concatenate([sizes, labels], axis=1).astype(np.float32)
    return features, np.sin(2 * sizes[:, 0]) + np.log(sizes[:, 1]) / 5 + labels[:, 0]


@pytest.fixture(scope="module")
def fitted():
    features, target = measured()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("WARM_UP", 20), ("BATCH", 256), ("WIDTH", 32), ("AVERAGED", 0.9)):
            patch.setattr(grow, name, value)
        found, again = (grow.fit_correction(features, target, LABELS, steps=200) for _ in range(2))
    assert np.array_equal(again(features), found(features))
    return found, features, target


def test_it_learns(fitted) -> None:
    found, features, target = fitted
    error, spread = np.abs(found(features) - target), np.abs(target - np.median(target))
    assert np.median(error) < np.median(spread) / 8 and error.mean() < spread.mean() / 4


def test_the_layers_are_torchs(fitted) -> None:
    found, features, _ = fitted
    x = torch.from_numpy(found.inputs(features))
    for i, (weights, offsets) in enumerate(found.layers):
        x = torch.nn.functional.linear(x, torch.from_numpy(weights.T.copy()), torch.from_numpy(offsets))
        x = torch.nn.functional.silu(x) if i + 1 < len(found.layers) else x
    assert np.abs(x[:, 0].numpy() - found(features)).max() < 1e-4


def test_labels_never_seen_count_as_the_nearest(fitted) -> None:
    found, features, _ = fitted
    assert found.known.shape == (3, LABELS)
    near = features.copy()
    near[:, 3] = np.where(near[:, 3] == 100, 101, 90)
    columns = slice(features.shape[1], None)
    assert np.array_equal(found.inputs(near)[:, columns], found.inputs(features)[:, columns])
    assert (found.inputs(features)[:, columns].sum(axis=0) > 0).all()


def test_stored_and_read_back_it_is_the_same(fitted) -> None:
    found, features, target = fitted
    forest = library_kernels.grow(features[:, 1:], target, 5)
    mixed = Mixed(forest=forest, network=found, apart=1)
    again = network.from_arrays(mixed.arrays("a"), "a")
    assert np.array_equal(again(features), mixed(features))
    assert np.array_equal(mixed(features), (forest(features[:, 1:]) + found(features)) / 2)
    assert network.from_arrays(forest.arrays("a"), "a")(features[:, 1:]).tolist() == forest(features[:, 1:]).tolist()


def test_beyond_what_was_learned_it_is_held(fitted) -> None:
    found, *_ = fitted
    far, farther = (found(np.array([[size, 9.0, 0, 90]])) for size in (1e6, 1e9))
    assert far == farther
