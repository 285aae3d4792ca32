"""The model card: complete, and written from figures alone."""

from __future__ import annotations

from itertools import pairwise

import pytest

from advisor.learned import weights as store
from advisor.training import evaluate


@pytest.fixture
def written(weights, tmp_path):
    store.save(weights, tmp_path / "w.npz")
    evaluate.write_card(tmp_path / "w.npz", tmp_path / "CARD.md")
    return (tmp_path / "CARD.md").read_text()


def test_says_what_it_was_trained_on_and_how_well_it_does(written, weights):
    assert weights.digest() in written
    for name in weights.about["gpus"]:
        assert name in written
    headings = ("## Trained on", "## How well it does", "Models left out", "GPUs left out", "## Where not to trust it", "## What was tried")
    for heading in headings:
        assert heading in written
    assert "nan" not in written.lower()


def test_tables_are_whole(written):
    lines = written.split("\n")
    for above, line in pairwise(lines):
        if above.startswith("|") and line.startswith("|"):
            assert above.count("|") == line.count("|")


def test_figures_of_a_split_are_shown(world, predictor, weights, tmp_path):
    from advisor.training import data

    store.save(weights, tmp_path / "w.npz")
    figures = evaluate.judge(data.read([world]), predictor)
    baseline = {"mape_percent": 12.3, "bias_percent": 1.0, "per_gpu": {"A100": {"mape_percent": 12.3}}}
    flags = {"all": {"auc": 0.5, "precision": 0.5, "recall": 0.1}, "per_gpu": {"A100": {"auc": 0.5}}}
    found = {"tasks": {"served": {"linear model": baseline}}, "diagnosis": {"PipeWeave's ceiling": flags}}
    evaluate.write_card(tmp_path / "w.npz", tmp_path / "CARD.md", {"A split": figures | {"baselines": found}})
    text = (tmp_path / "CARD.md").read_text()
    assert "### A split" in text
    assert "12.3 %" in text
    assert "PipeWeave's ceiling" in text
    assert "within 1 % of the best" in text


def test_in_sample_is_said(world, weights):
    assert evaluate.evaluate([world], weights)["in_sample"] is True
