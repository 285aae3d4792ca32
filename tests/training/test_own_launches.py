"""Launches of the project's own kernels, measured on an H100: what is predicted of them by their compiled code."""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from advisor.compiled.analysis import SOURCE
from advisor.learned.compiled_launch import analysed_alike, launch_analysis
from advisor.system.resources import folder
from advisor.training.published_kernels.launches import Measured, is_layout, read

LONG_US = 25.0


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> list[Measured]:
    """Of each kernel the launches in the middle and at the end of its latencies."""
    own, here = folder("ceilings") / "measurements", tmp_path_factory.mktemp("launches")
    with gzip.open(own / "h100-own-launches.jsonl.gz", "rt", encoding="utf-8") as file:
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
    # What is compared with a launch that no learned model knows is not predicted by it either.
    other = next(each for each in measured if each.kernel == "add_kernel")
    alike = analysed_alike([products[-1].analysis.inspection, other.analysis.inspection], other.gpu)
    assert {each.predicted.source for each in alike if each.predicted is not None} == {SOURCE}
