"""The model card: complete, and written from figures alone."""

from __future__ import annotations

import json
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

from advisor.learned import weights as store
from advisor.learned.layers import layer_model
from advisor.training import evaluate, model_card


@pytest.fixture
def written(weights, tmp_path):
    store.save(weights, tmp_path / "w.npz")
    evaluate.write_card(tmp_path / "w.npz", tmp_path / "CARD.md")
    return (tmp_path / "CARD.md").read_text()


def test_says_what_it_was_trained_on_and_how_well_it_does(written, weights):
    assert weights.digest() in written
    for name in weights.about["gpus"]:
        assert name in written
    headings = ("## Trained on", "## How well it does", "Models left out", "GPUs left out", "## Where not to trust it", "ATTEMPTS.md")
    for heading in headings:
        assert heading in written
    assert "nan" not in written.lower()


def test_tables_are_whole(written):
    lines = written.split("\n")
    for above, line in pairwise(lines):
        if above.startswith("|") and line.startswith("|"):
            assert above.count("|") == line.count("|")


def test_figures_of_a_split_are_shown(world, predictor, weights, tmp_path):
    from advisor.training import data, judging

    store.save(weights, tmp_path / "w.npz")
    figures = judging.figures(judging.collect(data.read([world]), predictor))
    evaluate.write_card(tmp_path / "w.npz", tmp_path / "CARD.md", {"A split": figures})
    text = (tmp_path / "CARD.md").read_text()
    assert "### A split" in text
    assert "within 1 % of the best" in text


def test_in_sample_is_said(world, weights):
    assert evaluate.evaluate([world], weights)["in_sample"] is True


def test_layers_and_library_kernels_fill_their_section_of_a_card(written, tmp_path):
    """And leave the rest of it; what has no figures takes no place."""
    held = {"layer bf16": {"H100": {"rows": 1200, "left out": 4.25, "bound": 61.5}}, "two stacks": "correlation 0.9"}
    arrays = {"moe_layer/constants": np.zeros(1), "moe_layer/held_out": np.array(json.dumps(held))}
    given = store.Weights(moe=None, direct={}, silicon=arrays)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(layer_model, "load", lambda stored: SimpleNamespace(held_out=json.loads(str(stored["moe_layer/held_out"]))))
        once = model_card.with_section(written, given)
        assert model_card.with_section(once, given) == once
    assert "| layer bf16 | H100 | 1,200 | 4.2 | 61.5 |" in once
    assert "- two stacks: correlation 0.9" in once
    assert once.startswith(written.partition("## Where not to trust it")[0])
    assert model_card.section(store.Weights(moe=None, direct={})) == ""
