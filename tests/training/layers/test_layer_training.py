"""The model of layers, fitted to latencies that are known, stored, and judged on what was left out."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.cli import main
from advisor.learned.forest import BushyForest
from advisor.learned.layers import layer_model, layer_time
from advisor.learned.layers.layer_model import LayerModel, Ran
from advisor.learned.layers.moe_layer import TunedTables
from advisor.learned.network import Mixed
from advisor.training.silicon import layer_tables, layer_training
from advisor.training.silicon.layer_tables import Measured
from tests.learned.test_layer_time import layers

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


@pytest.mark.parametrize(("steps", "kind"), [(0, BushyForest), (5, Mixed)])
def test_a_stored_model_predicts_the_same(tmp_path, steps, kind):
    parts = measured(layer_time.start())
    x, y = layer_training.table(parts, layer_time.start() * 1.1)
    correction = layer_training.corrected(x, y, 20, steps)
    seen = [Ran(True, "H100", 128, 768, 0, 514, True), Ran(True, "H100", 128, 768, 0, 509, False)]
    width = [*np.zeros((4, 5, 4, 2)), -0.1, 0.2]
    model = LayerModel(
        constants=layer_time.start(),
        correction=correction,
        quantiles=width,
        ran=seen,
        versions={n: [[1, 514]] for n in ("A100", "B200", "H100")},
    )
    other = layer_model.load(model.arrays())
    assert isinstance(other.correction, kind)
    launch = parts[1].launch
    assert np.array_equal(model.predict(launch).us, other.predict(launch).us)
    tables = written(tmp_path, {"1": entry(32), "64": entry(128)})
    newer, older = (layers([4096], version=version).layers for version in (514, 509))
    blocks = [other.launched(each, launch.gpu, tables=tables).configuration["BLOCK_SIZE_M"] for each in (newer, older)]
    assert [block.tolist() for block in blocks] == [[128], [64]]  # the table's nearest entry, and the default that was seen to run
    without = other.launched(newer, launch.gpu).configuration["BLOCK_SIZE_M"]
    assert without.tolist() != [64]  # a table ran that is not here: something well tuned stands for it


def entry(block_m):
    names = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")
    return dict(zip(names, (block_m, 64, 64, 1, 4, 3), strict=True))


def written(folder, body):
    place = folder / "configs" / "triton_3_6_0"
    place.mkdir(parents=True)
    (place / "E=128,N=768,device_name=NVIDIA_H100_80GB_HBM3.json").write_text(json.dumps(body))
    return TunedTables([folder])


def test_the_entry_nearest_to_the_tokens_runs(tmp_path):
    tables, key = written(tmp_path, {"16": entry(16), "64": entry(64)}), (True, "H100", 128, 768, 0)
    assert key in tables and (True, "H100", 128, 769, 0) not in tables
    assert tables.running(key, 514, np.array([1.0, 39.0, 41.0]))["BLOCK_SIZE_M"].tolist() == [16, 16, 64]
    assert tables.running(key, 509, np.array([1.0])) is None  # an older version does not look into the folder of a newer Triton


def test_a_table_that_cannot_be_read_is_none(tmp_path):
    tables = written(tmp_path, {})
    assert tables.running((True, "H100", 128, 768, 0), 514, np.array([1.0])) is None


def test_rows_faster_or_slower_than_any_default_are_found_by_group():
    part = measured(layer_time.start())[1]
    slower = np.where(part.launch.layers.tokens >= 192, 0.4, 0.0)
    assert layer_training.hidden_tables(part, slower).all()
    assert layer_training.hidden_tables(part, -slower).all()
    assert not layer_training.hidden_tables(part, slower * 0.3).any()
    assert not layer_training.hidden_tables(part, -slower * 0.6).any()


@pytest.fixture
def part():
    return measured(layer_time.start())[0]


def test_two_defaults_are_set_against_each_other(part):
    """Each layer under both stacks, SGLang's half as slow again, and foreseen as two per cent more than that."""
    number, sglang = np.arange(len(part)) // 2, np.arange(len(part)) % 2 == 1
    twins = part.take(number)
    layers = replace(twins.launch.layers, sglang=sglang, tokens=4096.0 + number)
    latency = np.where(sglang, 1.5 + number / 100, 1.0)
    twins = replace(twins, launch=replace(twins.launch, layers=layers), latency_us=latency)
    figures = layer_tables.of_two_defaults([twins], [np.where(sglang, 0.02, 0.0)])["SGLang's default against vLLM's"]
    assert figures["rows"] == len(part) // 2
    assert figures["bias_percent"] == pytest.approx(2)
    assert "correlation 1.000" in figures["words"]
    assert "which is faster: 100.0 %" in figures["words"]


def test_rows_given_of_a_gpu_bring_the_rest_nearer(part):
    told, off = np.log(part.launch.layers.tokens)[:, None], np.full(len(part), 0.3)
    found = layer_training._given(part, told, off, len(part) // 2)
    assert set(found) == {"layer bf16"}
    assert found["layer bf16"]["mape_percent"] < 3
    assert found["layer bf16"]["rows"] == len(part) - len(part) // 2


def test_errors_of_what_was_left_out_stand_beside_those_of_the_nearest_models(part):
    """Two models alike but for their number, foreseen 10 % too slow: the nearest layers of the other one are the same."""
    both = part.take(np.arange(len(part)))
    both = replace(both, model=np.arange(len(part)) // 8 % 2)
    off, none = [np.full(len(part), np.log(1.1))], [np.zeros(len(part))]
    found = layer_tables.held_out([both], off, none, none)["layer bf16"]["A100"]
    assert found["rows"] == len(part)
    assert found["left out"] == pytest.approx(10)
    assert found["nearest shapes"] < 0.1
    assert found["GPU left out"] == found["physics alone"] == 0
    assert 0 < found["bound"] < 100


@pytest.mark.parametrize("option", [["--card", "card.md"], ["--weights", "w.npz"]])
def test_options_that_measured_operators_do_not_take_are_refused(option: list[str], tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (tmp_path / "E=8,N=14336,device_name=NVIDIA_H200.json").write_text("{}")
    assert main(["evaluate", str(tmp_path), *option]) == 2
    assert "fitted anew" in capsys.readouterr().err
