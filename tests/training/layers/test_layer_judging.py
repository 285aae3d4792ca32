"""Judging layers that were left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.cli import main
from advisor.learned.layers import layer_time
from advisor.training.silicon import layer_tables, layer_training
from tests.training.layers.test_layer_training import measured


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
