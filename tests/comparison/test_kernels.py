"""Kernels of two versions of a file: what their ceiling is the best of."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from advisor.advising import advise_target
from advisor.advising.targets import Request
from advisor.advising.targets.kernel_targets import closed_form_kernel
from advisor.comparison.kernels import resources
from advisor.comparison.kernels.attempts import Attempt, Compiling
from advisor.comparison.kernels.importers import parse
from advisor.comparison.kernels.kernels import kernel_subjects
from advisor.comparison.settings import KernelSettings, Settings
from advisor.gpus.hardware import load_gpu

from .conftest import KERNEL

FILE = Path(__file__).parents[2] / "triton_kernels" / "softmax.py"
WIDE = FILE.read_text(encoding="utf-8")
GOOD = KERNEL.format(m=128)
MATMUL = KernelSettings(family="gemm", problems=({"M": 64, "N": 128, "K": 128},))
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
    (subject,) = kernel_subjects(
        "k.py",
        "modified",
        *sources,
        settings=settings or Settings(),
        gpus=[load_gpu("H100")],
        predictor=predictor,
        compiling=Compiling(wanted=False),
    )
    (row,) = subject.static
    return row


def edited(text: str) -> str:
    """The same space, and another body."""
    return text.replace("tl.exp2((x - ", "tl.exp2((x * 1.0 - ")


def test_the_ceiling_is_of_the_space_that_the_file_says(predictor):
    row = row_of(only(**SLOW), edited(only(**SLOW)), predictor)
    assert row.ceiling.us == row.head.predicted.us and row.advice is None
    target = closed_form_kernel(FILE, None, Request(gpu="H100"))
    (report,) = advise_target(target, predictor, command="").launches
    row = row_of(WIDE, edited(WIDE), predictor)
    assert row.ceiling.us == pytest.approx(report.ceiling.us) and row.ceiling.us == row.head.predicted.us


def test_a_space_that_lost_its_best_is_told_to_go_back(predictor, monkeypatch):
    monkeypatch.setattr(type(predictor), "p_gain", lambda *anything: 1.0)
    row = row_of(WIDE, only(**SLOW), predictor)
    assert row.verdict == "predicted-regressed" and row.change > 0.05 and row.ceiling.us == row.base.predicted.us
    assert row.advice.configuration == row.base.configuration


def test_a_space_of_which_nothing_fits_cannot_launch(predictor):
    base = only(**{**SLOW, "BLOCK_SIZE": 1024, "num_warps": 4})
    assert row_of(base, only(**{**SLOW, "BLOCK_SIZE": 256, "num_warps": 64}), predictor).verdict == "cannot-launch"


def test_what_a_list_of_autotune_lacks_is_advised(predictor):
    said = KernelSettings(family="gemm", problems=({"M": 64, "N": 4096, "K": 4096},))
    row = row_of(KERNEL.format(m=128), KERNEL.format(m=16), predictor, Settings(kernels={"k.py": said}))
    assert row.ceiling.us < 0.8 * row.head.predicted.us
    assert row.advice.latency.us < row.base.predicted.us


NAMES = {"BM": "BLOCK_SIZE_M", "BN": "BLOCK_SIZE_N", "BK": "BLOCK_SIZE_K"}


def renamed(text):
    """The kernel with names of its own for its blocks, and none for a grouping of its programs."""
    for own, name in NAMES.items():
        text = text.replace(name, own)
    return text.replace(', "GROUP_SIZE_M": 8', "").replace(",\n           GROUP_SIZE_M: tl.constexpr", "")


def test_a_kernel_with_names_of_its_own_is_advised_and_compiled_in_these(predictor):
    said = KernelSettings(family="gemm", configuration=NAMES, problems=({"M": 64, "N": 4096, "K": 4096},))
    sources = [parse(renamed(KERNEL.format(m=m)).encode(), "k.py") for m in (128, 16)]
    (subject,) = kernel_subjects(
        "k.py",
        "modified",
        *sources,
        settings=Settings(kernels={"k.py": said}),
        gpus=[load_gpu("H100")],
        predictor=predictor,
        compiling=Compiling(),
    )
    (row,) = subject.static
    assert [set(side.configuration.parameters) for side in (row.base, row.head, row.advice)] == [set(NAMES)] * 3
    assert row.advice.triton_config.startswith('triton.Config({"BM": ') and "GROUP_SIZE_M" not in row.advice.triton_config
    assert {each.label for each in subject.resources} == {"BM=16 BN=128 BK=64 num_warps=8 num_stages=3"}


USUAL = {"BLOCK_SIZE_": "BLOCK_", "GROUP_SIZE_M": "GROUP_M"}


def with_names(text, names):
    for name, own in names.items():
        text = text.replace(name, own)
    return text


def test_the_names_that_most_kernels_use_need_no_description(predictor):
    """BLOCK_M is what the model calls BLOCK_SIZE_M; unread, every configuration would be predicted with the same tile."""
    said = Settings(kernels={"k.py": KernelSettings(family="gemm", problems=({"M": 64, "N": 4096, "K": 4096},))})
    theirs = row_of(KERNEL.format(m=128), KERNEL.format(m=16), predictor, said)
    row = row_of(*(with_names(KERNEL.format(m=m), USUAL) for m in (128, 16)), predictor, said)
    assert row.base.predicted.us == theirs.base.predicted.us != row.head.predicted.us == theirs.head.predicted.us
    assert row.head.configuration.parameters == {"BLOCK_M": 16, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8}
    assert set(row.advice.configuration.parameters) == set(row.head.configuration.parameters)


def test_names_that_say_nothing_are_no_prediction(predictor):
    said = KernelSettings(family="gemm", problems=({"M": 64, "N": 4096, "K": 4096},))
    sources = [parse(with_names(KERNEL.format(m=m), {"BLOCK_SIZE_": "TILE_"}).encode(), "k.py") for m in (128, 16)]
    (subject,) = kernel_subjects(
        "k.py",
        "modified",
        *sources,
        settings=Settings(kernels={"k.py": said}),
        gpus=[load_gpu("H100")],
        predictor=predictor,
        compiling=Compiling(wanted=False),
    )
    (note,) = subject.notes
    assert not subject.static and "do not name BLOCK_SIZE_M, BLOCK_SIZE_N, BLOCK_SIZE_K; got TILE_M" in note
    assert 'configuration = {TILE_M = "BLOCK_SIZE_M", …}' in note


def test_the_remedy_suggests_a_name_that_is_not_read(predictor):
    said = KernelSettings(family="gemm", problems=({"M": 64, "N": 4096, "K": 4096},))
    texts = [with_names(KERNEL.format(m=m), {"BLOCK_SIZE_M": "TILE", "GROUP_SIZE_M": "GROUP_M"}) for m in (128, 16)]
    texts = [re.sub(r'("TILE": \d+), (.*?)"GROUP_M": 8', r'"GROUP_M": 8, \2\1', text) for text in texts]
    sources = [parse(text.encode(), "k.py") for text in texts]
    (subject,) = kernel_subjects(
        "k.py",
        "modified",
        *sources,
        settings=Settings(kernels={"k.py": said}),
        gpus=[load_gpu("H100")],
        predictor=predictor,
        compiling=Compiling(wanted=False),
    )
    assert "got GROUP_M" in subject.notes[0] and 'configuration = {TILE = "BLOCK_SIZE_M", …}' in subject.notes[0]


UNNAMED = """
import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config(CONFIGURATION, num_warps=4)], key=["n"])
@triton.jit
def k(x, n, BLOCK_SIZE: tl.constexpr = 1, BLOCK_N: tl.constexpr = 1, NUM_KV_SPLITS: tl.constexpr = 1):
    tl.store(x + tl.program_id(0), n)
"""


@pytest.mark.parametrize(
    ("family", "op", "sizes", "configuration"),
    [
        ("fused_moe", "activation", {"M": 1024, "E": 64, "topk": 8, "H": 2048, "N": 1024}, {"BLOCK_SIZE": 512}),
        ("fused_moe", "combine", {"M": 1024, "E": 64, "topk": 8, "H": 2048, "N": 1024}, {"BLOCK_SIZE": 512}),
        ("attention", "decode", {"B": 8, "H": 32, "H_kv": 8, "M": 1, "N": 4096, "D": 128}, {"BLOCK_N": 64, "NUM_KV_SPLITS": 8}),
    ],
)
def test_what_is_not_tiled_or_has_a_default_need_not_be_named(predictor, family, op, sizes, configuration):
    said = Settings(kernels={"k.py": KernelSettings(family=family, op=op, problems=(sizes,))})
    text = UNNAMED.replace("CONFIGURATION", str(configuration))
    row = row_of(text, text.replace(", n)", ", n + 1)"), predictor, said)
    assert row.head.predicted.us > 0 and row.head.configuration.parameters == configuration


def test_a_kernel_is_compiled_with_the_type_of_its_problem(predictor, monkeypatch):
    asked = []
    monkeypatch.setattr(resources, "_compile", lambda old, new, run, *_: asked.append(run.element) or (Attempt(), Attempt(), []))
    for dtype in (None, "fp8"):
        said = replace(MATMUL, problems=({**MATMUL.problems[0], **({"dtype": dtype} if dtype else {})},))
        sources = [parse(KERNEL.format(m=m).encode(), "k.py") for m in (128, 16)]
        kernel_subjects(
            "k.py",
            "modified",
            *sources,
            settings=Settings(kernels={"k.py": said}),
            gpus=[load_gpu("H100")],
            predictor=predictor,
            compiling=Compiling(),
        )
    assert asked == ["bf16", "fp8e4nv"]


def test_the_type_of_a_problem_that_cannot_be_predicted_counts(predictor, monkeypatch):
    asked = []
    monkeypatch.setattr(resources, "_compile", lambda old, new, run, *_: asked.append(run.element) or (Attempt(), Attempt(), []))
    said = KernelSettings(problems=({"M": 64, "N": 128, "K": 128, "dtype": "fp8"},))  # of no family
    sources = [parse(KERNEL.format(m=m).encode(), "k.py") for m in (128, 16)]
    (subject,) = kernel_subjects(
        "k.py",
        "modified",
        *sources,
        settings=Settings(kernels={"k.py": said}),
        gpus=[load_gpu("H100")],
        predictor=predictor,
        compiling=Compiling(),
    )
    assert not subject.static and asked == ["fp8e4nv"]


@pytest.mark.parametrize(("factor", "told"), [(" * 2", True), ("", False)])
def test_a_body_that_changed_beside_the_configurations_is_said_to_be_unread(predictor, factor, told):
    """Of the same figures nobody should conclude that the new body takes as long."""
    base = KERNEL.format(m=128)
    head = KERNEL.format(m=16).replace("tl.load(a + tl.arange(0, BLOCK_SIZE_M))", f"tl.load(a + tl.arange(0, BLOCK_SIZE_M)){factor}")
    settings = Settings(kernels={"k.py": KernelSettings(family="gemm", problems=({"M": 64, "N": 4096, "K": 4096},))})
    sources = [parse(text.encode(), "k.py") for text in (base, head)]
    (subject,) = kernel_subjects(
        "k.py", "modified", *sources, settings=settings, gpus=[load_gpu("H200")], predictor=predictor, compiling=Compiling(wanted=False)
    )
    assert any(row.changed for row in subject.static)
    assert any(note.startswith("The model does not read a kernel's body") for note in subject.notes) is told
