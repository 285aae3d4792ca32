"""Kernels that go by another name than before in their file: a new name hides no change."""

from __future__ import annotations

import ast

import pytest

from advisor.comparison import Options, compare_files
from advisor.comparison.kernels.kernel_digest import renamed

from .conftest import KERNEL
from .test_moves import BAD, GOOD, OTHER, PATH, SETTINGS, compared

BODY = "\n    ".join(["row = tl.program_id(0)", *(f"x{i} = tl.load(x + {i})" for i in range(8)), "tl.store(y + row, x0 + x7)"])
ANOTHER = "\n    ".join(f"tl.atomic_add(y + {i}, {i})" for i in range(10))


def function(name, body=BODY, parameters="x, y"):
    (node,) = ast.parse(f"def {name}({parameters}):\n    {body}\n").body
    return node


def called(kernel, name):
    return kernel.replace("def matmul", f"def {name}")


def test_a_kernel_of_another_name_is_compared_with_what_it_was(repository, predictor):
    found = compared(repository, predictor, {PATH: GOOD}, {PATH: called(BAD, "matmul_ogs")})
    assert found.gate.failed and found.gate.triggered[0].startswith("predicted-regressed: ")
    (subject,) = found.subjects
    assert subject.title == f"{PATH}::matmul_ogs" and subject.change == "modified" and subject.notes[0] == "It was called matmul."
    assert {row.compared_with for row in subject.static} == {"base"}


def test_what_is_said_of_the_new_name_goes_before_what_is_said_of_the_old(repository, predictor):
    of_new = f'[kernels."{PATH}::matmul_ogs"]\nfamily = "gemm"\nproblems = [{{M = 32, N = 128, K = 128}}]\n'
    found = compared(repository, predictor, {PATH: GOOD}, {PATH: called(BAD, "matmul_ogs")}, SETTINGS + of_new)
    assert {problem.sizes["M"] for row in found.subjects[0].static for problem in row.problems} == {32}


@pytest.mark.parametrize(("scale", "changes"), [("2", False), ("n", True)])
def test_a_kernel_that_moves_into_a_function_is_no_change(repository, predictor, scale, changes):
    """It is the same unless it takes a name of that function."""
    kernel = f"@triton.jit\ndef kernel(x):\n    n = {scale}\n    tl.store(x, n)\n" if not changes else ""
    kernel = kernel or "@triton.jit\ndef kernel(x):\n    tl.store(x, n)\n"
    head = "import triton\nimport triton.language as tl\n\n\nn = tl.constexpr(2)\n\n\n"
    around = "def run(x, n):\n"
    inner = around + "".join(f"    {line}\n" for line in kernel.splitlines()) + "    kernel[(1,)](x)\n"
    found = compared(repository, predictor, {"k.py": head + kernel + around + "    kernel[(1,)](x)\n"}, {"k.py": head + inner})
    assert bool(found.subjects) is changes


def test_a_constant_of_another_name_in_a_list_is_no_other_list(repository, predictor):
    kernel = """import triton
import triton.language as tl

@triton.autotune(configs=[triton.Config({"BM": m}, num_warps=w) for m in (64, 128) for w in (4, 8)], key=[])
@triton.jit
def double(x, BM: tl.constexpr):
    at = tl.program_id(0) * BM + tl.arange(0, BM)
    tl.store(x + at, tl.load(x + at) * 2)

def run(x):
    double[lambda meta: (triton.cdiv(x.numel(), meta["BM"]),)](x)
"""
    other = kernel.replace("BM", "BLOCK").replace("* 2)", "* 3)")
    (subject,) = compared(repository, predictor, {PATH: kernel}, {PATH: other}).subjects
    assert "Its configurations are the same, with BM called BLOCK." in subject.notes
    assert subject.configurations == (4, 4) and not (subject.configurations_added or subject.configurations_removed)
    both = kernel.replace("BM: tl.constexpr", "BM: tl.constexpr, BN: tl.constexpr").replace(
        'cdiv(x.numel(), meta["BM"]),)](x)', "cdiv(x.numel(), 64),)](x, BN=32)"
    )
    turned = both.replace('{"BM": m}', '{"BN": m}').replace("BN=32", "BM=32")
    assert not any(
        "the same, with" in note for item in compared(repository, predictor, {PATH: both}, {PATH: turned}).subjects for note in item.notes
    )
    (subject,) = compared(repository, predictor, {PATH: kernel}, {PATH: other.replace("(64, 128)", "(64, 256)")}).subjects
    assert len(subject.configurations_added) == len(subject.configurations_removed) == 4


def test_a_new_name_alone_is_no_change(repository, predictor):
    assert compared(repository, predictor, {PATH: GOOD}, {PATH: called(GOOD, "matmul_ogs")}).subjects == ()


@pytest.mark.parametrize("changed", ["", "x + 1"])
def test_an_argument_of_another_name_alone_is_no_change(repository, predictor, changed):
    head = "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
    text = head + "def kernel(s, n):\n    x = tl.load(s + n)\n    tl.store(s, x)\n\n\ndef run(s, n):\n    kernel[(n,)](s=s, n=n)\n"
    other = text.replace("kernel(s,", "kernel(counts,").replace("load(s", "load(counts").replace("run(s,", "run(counts,")
    other = other.replace("store(s, x", f"store(counts, {changed or 'x'}").replace("s=s", "counts=counts")
    found = compared(repository, predictor, {"k.py": text}, {"k.py": other})
    assert found.renamed == (() if changed else ("k.py::kernel (s → counts)",))
    assert [subject.notes[0] for subject in found.subjects] == (["The kernel takes counts in place of s."] if changed else [])


def test_what_became_a_helper_was_not_renamed(repository, predictor):
    caller = called(BAD, "outer").replace("    tl.store(", "    matmul(a, b, c, M, N, K, 1, 1, 1, 1)\n    tl.store(")
    found = compared(repository, predictor, {PATH: GOOD}, {PATH: GOOD + caller})
    assert {(each.title, each.change) for each in found.subjects} == {(f"{PATH}::outer", "added"), (f"{PATH}::matmul", "removed")}


def test_both_versions_are_compiled_under_their_own_names(tmp_path, predictor):
    for name, text in (("old.py", KERNEL.format(m=128)), ("new.py", called(KERNEL.format(m=64), "matmul_ogs"))):
        (tmp_path / name).write_text(text)
    found = compare_files(tmp_path / "old.py", tmp_path / "new.py", Options(gpus=("H100",)), predictor)
    (row,) = found.subjects[0].resources
    assert row.base is not None and row.head is not None and not row.reason


@pytest.mark.parametrize(
    ("lost", "gained", "pairs"),
    [
        ({"a": BODY}, {"b": BODY}, {"b": "a"}),
        ({"a": BODY}, {"b": BODY.replace("x7)", "x6)")}, {"b": "a"}),  # nearly
        ({"a": BODY}, {"b": ANOTHER}, {}),
        ({"a": BODY, "c": ANOTHER}, {"b": ANOTHER, "d": BODY}, {"b": "c", "d": "a"}),
        ({"a": BODY}, {"b": BODY, "c": BODY}, {}),  # which of them is not clear
        ({"a": BODY}, {"b": BODY.replace("x7)", "x6)"), "c": BODY}, {"c": "a"}),  # the more alike
        ({"a": BODY}, {"b": f'"""What it does."""\n    {BODY}'}, {"b": "a"}),
        ({"loss_kernel": BODY}, {"losses_kernel": "\n    ".join([*BODY.split("\n    ")[:4], "y = 1"])}, {"losses_kernel": "loss_kernel"}),
        ({"loss_kernel": BODY}, {"losses_kernel": ANOTHER}, {}),
    ],
)
def test_kernels_are_paired_by_their_bodies(lost, gained, pairs):
    trees = [{name: function(name, body) for name, body in side.items()} for side in (lost, gained)]
    assert renamed(*trees) == pairs


def test_another_kernel_that_came_is_new(repository, predictor):
    other = OTHER.replace("tl.store(c", "tl.atomic_add(b").replace("(a, b, c, M, N, K,", "(a, b, rows, columns, alpha, beta, scale,")
    found = compared(repository, predictor, {PATH: GOOD}, {PATH: other})
    assert {each.change for each in found.subjects} == {"added", "removed"}


def test_kernels_that_hand_their_names_on_are_those_that_they_were(repository, predictor):
    """The one that had `fill` is called `fill_all` now, for another one has that name."""
    text = """import triton
import triton.language as tl

@triton.jit
def fill(x, n, B: tl.constexpr):
    at = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + at, 1.0, mask=at < n)

@triton.jit
def fill_rows(x, n, blocks, B: tl.constexpr):
    for i in range(blocks):
        at = (tl.program_id(0) * blocks + i) * B + tl.arange(0, B)
        tl.store(x + at, 2.0, mask=at < n)

def run(x, n):
    fill[(n,)](x, n, B=64)
    fill_rows[(n,)](x, n, 4, B=64)
"""
    head = text.replace("fill(", "fill_all(").replace("fill[", "fill_all[").replace("fill_rows", "fill")
    found = compared(repository, predictor, {"k.py": text}, {"k.py": head})
    assert not found.subjects and found.renamed == ("k.py::fill → k.py::fill_all", "k.py::fill_rows → k.py::fill")
    (subject,) = compared(repository, predictor, {"k.py": text}, {"k.py": head.replace("2.0", "3.0")}).subjects
    assert subject.title == "k.py::fill" and subject.notes[0] == "It was called fill_rows."
