"""Launches of the project's own kernels, measured on an H100, and on an H200 of which nothing was fitted: what is predicted of them by
their compiled code."""

from __future__ import annotations

import gzip
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.compiled.analysis import SOURCE
from advisor.compiled.demand.assembly import read_facts
from advisor.diagnosis.compiled_rules.context import CompiledContext
from advisor.learned.compiled_launch import analysed_alike, launch_analysis
from advisor.system.resources import folder
from advisor.training.published_kernels import Measured, is_layout, read

LONG_US = 25.0


@pytest.fixture(scope="module", params=["h100-own-launches.jsonl.gz", "held_out/h200-own-launches.jsonl.gz"])
def measured(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Measured]:
    """Of each kernel the launches in the middle and at the end of its latencies."""
    own, here = folder("ceilings") / "measurements", tmp_path_factory.mktemp("launches")
    with gzip.open(own / request.param, "rt", encoding="utf-8") as file:
        rows = sorted(map(json.loads, file), key=lambda row: row["measured_us"])
    kernels = {row["kernel"]: [other for other in rows if other["kernel"] == row["kernel"]] for row in rows}
    chosen = [launches[place] for launches in kernels.values() for place in {len(launches) // 2, len(launches) - 1}]
    with gzip.open(here / "own-launches.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps(row) + "\n" for row in chosen)
    shutil.copy(own / "own_kernels.py", here)
    assert is_layout(here) and not is_layout(Path(__file__).parent)
    return read([here])


def test_predictions_of_launches_are_near_what_was_measured(measured: list[Measured]) -> None:
    found = [launch_analysis(each.analysis.inspection, each.gpu, "warm") for each in measured]
    errors = {True: [], False: [], None: []}
    for each, analysis in zip(measured, found, strict=True):
        assert analysis.predicted is not None and analysis.bound.us <= each.us
        # Products are launches of their own kind.
        kind = None if analysis.demand.phases is None else each.us >= LONG_US
        errors[kind].append(abs(analysis.predicted.us / each.us - 1))
        assert sum(part.us for part in analysis.gap_parts) == pytest.approx(analysis.predicted.us - analysis.bound.us)
    assert min(map(len, errors.values())) >= 5
    assert np.mean(errors[True]) < 0.12 and np.mean(errors[False]) < 0.20 and np.median(errors[None]) < 0.35, errors


def test_a_product_of_whatever_name_is_predicted_as_one(measured: list[Measured]) -> None:
    products = [each for each in measured if each.kernel == "matmul_kernel"]
    assert products
    learned = [launch_analysis(each.analysis.inspection, each.gpu, "warm").predicted for each in products]
    assert all(each is not None for each in learned)
    assert any("gemm of M" in each.source and each.low_us is not None for each in learned if each is not None)
    # Attention that looks at all keys can share them among programs; with enough of these already, more only cost.
    attention = (each for each in measured if each.kernel == "flash_forward_kernel")
    causal, whole = (launch_analysis(each.analysis.inspection, each.gpu, "warm").split_us for each in attention)
    assert not causal and [*whole] == [2, 4, 8, 16, 32, 64] and whole[64] > 2 * whole[2]
    # What is compared with a launch that no learned model knows is not predicted by it either.
    other = next(each for each in measured if each.kernel == "add_kernel")
    alike, _ = analysed_alike([products[-1].analysis.inspection, other.analysis.inspection], other.gpu)
    assert {each.predicted.source for each in alike if each.predicted is not None} == {SOURCE}


def test_a_change_of_nothing_saves_nothing_of_a_learned_latency(measured: list[Measured]) -> None:
    """Savings are shares of what is predicted, whoever predicts it: the model of counted work is not what the learned one says."""
    products = [(each, launch_analysis(each.analysis.inspection, each.gpu, "warm")) for each in measured if "matmul" in each.kernel]
    learned = [(each, found) for each, found in products if found.predicted is not None and found.predicted.source != SOURCE]
    assert learned
    for each, analysis in learned:
        inspection = each.analysis.inspection
        context = CompiledContext(inspection=inspection, facts=read_facts(inspection.compiled), gpu=each.gpu, analysis=analysis)
        assert context.saving(lambda asked: asked) is None
        half = context.saving(lambda asked: replace(asked, ctas=asked.ctas / 2, launched_ctas=asked.launched_ctas / 2))
        assert analysis.predicted is not None and (half is None or half <= analysis.predicted.us - analysis.bound.us)
