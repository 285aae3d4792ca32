"""Kernels of two versions of a file: what their ceiling is the best of."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from advisor.advise import advise
from advisor.comparison.kernels import kernel_subjects, parse
from advisor.comparison.resources import Compiling
from advisor.comparison.settings import KernelSettings, Settings
from advisor.hardware import load_gpu
from advisor.targets import Request
from advisor.targets.kernels import closed_form_kernel

from .conftest import KERNEL

FILE = Path(__file__).parents[2] / "triton_kernels" / "softmax.py"
WIDE = FILE.read_text(encoding="utf-8")
SLOW = {"BLOCK_SIZE": 256, "ROWS_PER_CTA": 1, "num_warps": 1, "num_stages": 1}


def only(**values: int) -> str:
    """The file with a space of one configuration."""
    text = WIDE
    for name, value in values.items():
        text, count = re.subn(rf'(            "{name}": )\[.*\],', rf"\1[{value}],", text)
        assert count == 1
    return text


def row_of(base, head, predictor, settings=None):
    sources = [parse(text.encode(), "k.py") for text in (base, head)]
    (subject,) = kernel_subjects("k.py", "modified", *sources, settings=settings or Settings(), gpus=[load_gpu("H100")],
                                 predictor=predictor, compiling=Compiling(wanted=False))  # fmt: skip
    (row,) = subject.static
    return row


def edited(text: str) -> str:
    """The same space, and another body."""
    return text.replace("tl.exp2((x - ", "tl.exp2((x * 1.0 - ")


def test_the_ceiling_is_of_the_space_that_the_file_says(predictor):
    row = row_of(only(**SLOW), edited(only(**SLOW)), predictor)
    assert row.ceiling.us == row.head.predicted.us and row.advice is None
    target = closed_form_kernel(FILE, None, Request(gpu="H100"))
    (report,) = advise(target, predictor, command="").launches
    row = row_of(WIDE, edited(WIDE), predictor)
    assert row.ceiling.us == pytest.approx(report.ceiling.us) and row.ceiling.us == row.head.predicted.us


def test_a_space_that_lost_its_best_is_told_to_go_back(predictor):
    row = row_of(WIDE, only(**SLOW), predictor)
    assert row.verdict == "predicted-regressed" and row.ceiling.us == row.base.predicted.us
    assert row.advice.configuration == row.base.configuration


def test_a_space_of_which_nothing_fits_cannot_launch(predictor):
    base = only(**{**SLOW, "BLOCK_SIZE": 1024, "num_warps": 4})
    assert row_of(base, only(**{**SLOW, "BLOCK_SIZE": 256, "num_warps": 64}), predictor).verdict == "cannot-launch"


def test_what_a_list_of_autotune_lacks_is_advised(predictor):
    said = KernelSettings(family="gemm", problems=({"M": 64, "N": 4096, "K": 4096},))
    row = row_of(KERNEL.format(m=128), KERNEL.format(m=16), predictor, Settings(kernels={"k.py": said}))
    assert row.ceiling.us < 0.8 * row.head.predicted.us
    assert row.advice.latency.us < row.base.predicted.us
