"""The model of layers, fitted to latencies that are known, and stored."""

import numpy as np

from advisor.learned import bushy_forest
from advisor.steps import layer_model, layer_time
from advisor.steps.layer_model import HABIT_TOKENS, Habit, LayerModel
from advisor.training.layers import layer_training
from advisor.training.layers.layer_tables import Measured, nearest
from advisor.training.library_kernels.fitting import grow
from tests.steps.test_layer_time import layers

TOKENS = np.tile([1, 4, 16, 64, 256, 1024, 4096, 16384], 6)


def measured(constants):
    parts = []
    for gpu in ("A100", "H100", "B200"):
        launch = layers(TOKENS, gpu, inner=768.0)
        latency = layer_time.layer_time(launch, constants).total
        parts.append(Measured(launch=launch, latency_us=latency, model=np.zeros(TOKENS.size, dtype=np.int64)))
    return parts


def test_constants_that_made_the_latencies_are_found_again():
    constants = layer_time.start()
    constants[layer_time.NAMES.index("dram_share")] += 0.3
    constants[layer_time.NAMES.index("floor/2")] -= 0.5
    parts = measured(constants)
    fitted = layer_training.fit_time(parts, steps=40)
    for part in parts:
        before = np.abs(np.log(layer_time.layer_time(part.launch, layer_time.start()).total / part.latency_us))
        after = np.abs(np.log(layer_time.layer_time(part.launch, fitted).total / part.latency_us))
        assert after.max() < 0.05 < before.max()


def test_a_stored_model_predicts_the_same():
    parts = measured(layer_time.start())
    x, y = layer_training.table(parts, layer_time.start() * 1.1)
    forest = grow(x, y, 20, layer_training.TREES | {"min_data_in_leaf": 3})
    habit = Habit(True, "H100", 128, 768, 0, 514, 514, np.full((len(HABIT_TOKENS), 6), 128, dtype=np.uint16))
    width = [*np.zeros((4, 5, 4, 2)), -0.1, 0.2]
    model = LayerModel(
        constants=layer_time.start(),
        forest=forest,
        quantiles=width,
        habits=[habit],
        versions={n: [[1, 514]] for n in ("A100", "B200", "H100")},
    )
    other = layer_model.load(model.arrays())
    assert isinstance(other.forest, bushy_forest.BushyForest)
    launch = parts[1].launch
    assert np.array_equal(model.predict(launch).us, other.predict(launch).us)
    ran = other.launched(launch.layers, launch.gpu)
    assert (ran.configuration["BLOCK_SIZE_M"] == 128).all()  # the table that ran, not the default
    older = other.launched(layers([4096], version=509).layers, launch.gpu)
    assert (older.configuration["BLOCK_SIZE_M"] == 64).all()


def test_the_entry_nearest_to_the_tokens_is_taken():
    rows = np.arange(12.0).reshape(2, 6)
    assert nearest((np.array([16.0, 64.0]), rows), np.array([1.0, 39.0, 41.0]))["BLOCK_SIZE_M"].tolist() == [0.0, 0.0, 6.0]


def test_rows_faster_than_any_default_are_found_by_group():
    part = measured(layer_time.start())[1]
    slower = np.where(part.launch.layers.tokens >= 192, 0.4, 0.0)
    assert layer_training._hidden_tables(part, slower).all()
    assert not layer_training._hidden_tables(part, slower * 0.3).any()
