"""Calls that lead to a launch through several files of helpers: a layer calls ops/moe.py, which calls kernels/moe.py, which launches."""

from __future__ import annotations

import pytest

from .repository import compared_files

KERNELS = """
import triton
import triton.language as tl

@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)

def invoke(x, block=1024, num_warps=4, tag=None):
    scale[(triton.cdiv(x.numel(), block),)](x, x.numel(), BLOCK=block, num_warps=num_warps)
    return tag
"""
OPS = """
from ..kernels.moe import invoke

def fused(x, num_warps, tag=None):
    return invoke(x.contiguous(), num_warps=num_warps, tag=tag)
"""
LAYER = """
from pkg.ops.moe import fused
from pkg.tools import warps_for

class Layer:
    def forward(self, x):
        return fused(x, num_warps=8, tag="layer")

def tuned(x):
    return fused(x, warps_for(x.numel()), tag="tuned")
"""
TOOLS = "def warps_for(n):\n    return 8 if n > 4096 else 4\n"
SAID = "The kernel is the same; how {file} launches it by {function} changed: {change}."


BASE = {"pkg/kernels/moe.py": KERNELS, "pkg/ops/moe.py": OPS, "pkg/layer.py": LAYER, "pkg/tools.py": TOOLS}


def edited(base, old, new, path="pkg/layer.py"):
    assert base[path].count(old) == 1
    return {path: base[path].replace(old, new)}


HEAD, _, INVOKE = KERNELS.partition("def invoke")
INNER = "from ..kernels.moe import invoke as run\n\ndef invoke(x, num_warps, tag):\n    return run(x, num_warps=num_warps, tag=tag)\n"


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"pkg/ops/moe.py": "import pkg.kernels.moe as kernels\n" + OPS.partition("invoke\n")[2].replace("invoke", "kernels.invoke")},
        {"pkg/ops/moe.py": OPS.replace("num_warps=num_warps, tag=tag", "64, num_warps")},
        {"pkg/ops/moe.py": OPS.replace("fused", "_run") + "\ndef fused(x, num_warps, tag):\n    warps = num_warps\n    _run(x, warps)\n"},
        {
            "pkg/kernels/moe.py": HEAD,
            "pkg/ops/moe.py": OPS.replace("kernels.moe", "kernels.invoking"),
            "pkg/kernels/invoking.py": "import triton\nfrom .moe import scale\n\ndef invoke" + INVOKE,
        },
        {"pkg/ops/moe.py": OPS.replace("..kernels.moe", ".inner"), "pkg/ops/inner.py": INNER},
        {"pkg/ops/moe.py": OPS.replace("..kernels.moe", "..kernels"), "pkg/kernels/__init__.py": "from .moe import *\n"},
        {"pkg/ops/moe.py": OPS + "\ndef other(x, num_warps):\n    from pkg.layer import tuned\n    return tuned(x)\n"},
    ],
    ids=["by name", "module", "by place", "in the file too", "kernel in a third", "helper in a third", "star", "circle"],
)
def test_what_helpers_of_several_files_hand_on_is_a_change_of_the_kernel(repository, predictor, more):
    base = BASE | more
    (subject,) = compared_files(repository, predictor, base, edited(base, "num_warps=8", "num_warps=4")).subjects
    assert subject.title == "pkg/kernels/moe.py::scale"
    change = "num_warps=warps_for(x.numel()) or 8 → num_warps=warps_for(x.numel()) or 4"
    assert subject.notes[0] == SAID.format(file="pkg/layer.py", function="fused", change=change)


def test_what_is_handed_on_without_a_name_is_a_change_of_the_kernel(repository, predictor):
    options = OPS.replace("num_warps, tag=None", "**options").replace("num_warps=num_warps, tag=tag", "**options")
    base = BASE | {"pkg/ops/moe.py": options, "pkg/layer.py": LAYER.replace("warps_for(x.numel())", "num_warps=4")}
    (subject,) = compared_files(repository, predictor, base, edited(base, "num_warps=8", "num_warps=2")).subjects
    change = "options={'num_warps': 4, 'tag': 'tuned'} or {'num_warps': 8, 'tag': 'layer'} → "
    assert change in subject.notes[0] and subject.notes[0].endswith("or {'num_warps': 2, 'tag': 'layer'}.")


def test_what_an_unchanged_file_works_out_by_another_is_a_change_of_the_kernel(repository, predictor):
    (subject,) = compared_files(repository, predictor, BASE, edited(BASE, "4096", "8192", "pkg/tools.py")).subjects
    assert subject.notes[:3] == (
        SAID.format(file="pkg/layer.py", function="fused", change="what num_warps=warps_for(x.numel()) comes from"),
        "What changed behind that: warps_for.",
        "pkg/layer.py is unchanged; what it imports changed with pkg/tools.py.",
    )


@pytest.mark.parametrize(("old", "new"), [('tag="layer"', 'tag="other"'), ("(self, x):", "(self, x):\n        x = x.clone()")])
def test_what_does_not_come_to_the_launch_is_none(repository, predictor, old, new):
    assert not compared_files(repository, predictor, BASE, edited(BASE, old, new)).subjects


def test_only_so_many_files_are_followed(repository, predictor):
    """A bound there must be; what is past it is not told."""
    body = "\n\ndef fused(x, num_warps, tag):\n    run(x, num_warps, tag)\n"
    hands = {f"pkg/h{n}.py": f"from .h{n - 1} import fused as run{body}" for n in range(1, 8)}
    base = BASE | {"pkg/h0.py": "from .ops.moe import fused\n", **hands}
    for n, found in ((3, 1), (7, 0)):
        layer = {"pkg/layer.py": LAYER.replace("pkg.ops.moe", f"pkg.h{n}")}
        head = {"pkg/layer.py": layer["pkg/layer.py"].replace("num_warps=8", "num_warps=4")}
        assert len(compared_files(repository, predictor, base | layer, head).subjects) == found, n


LEFT = BASE | {
    "pkg/ops/moe.py": "from pkg.tools import WARPS\n"
    + OPS.replace("x, num_warps,", "x, num_warps=WARPS,")
    + "\ndef wide(x):\n    return fused(x, 16)\n",
    "pkg/tools.py": f"WARPS = 4\n{TOOLS}",
    "pkg/plain.py": "from pkg.ops.moe import fused\n\ndef run(x):\n    return fused(x)\n",
}


@pytest.mark.parametrize(
    ("path", "old", "new", "change"),
    [
        ("pkg/ops/moe.py", "num_warps=WARPS,", "num_warps=2,", "num_warps=WARPS → num_warps=2"),
        ("pkg/tools.py", "WARPS = 4", "WARPS = 8", "what num_warps=WARPS comes from"),
    ],
)
def test_a_default_that_another_file_relies_on_counts(repository, predictor, path, old, new, change):
    """Where all in the function's own file give the argument."""
    (subject,) = compared_files(repository, predictor, LEFT, edited(LEFT, old, new, path)).subjects
    said = [note for note in subject.notes if "launches it" in note]
    assert said == [SAID.format(file="pkg/plain.py", function="fused", change=change)]


def test_a_default_is_told_once(repository, predictor):
    base = {**LEFT, "pkg/ops/moe.py": LEFT["pkg/ops/moe.py"].partition("def wide")[0]}
    (subject,) = compared_files(repository, predictor, base, edited(base, "num_warps=WARPS", "num_warps=2", "pkg/ops/moe.py")).subjects
    said = [note for note in subject.notes if "launches it" in note]
    assert said == [SAID.format(file="pkg/ops/moe.py", function="invoke", change="what num_warps=num_warps comes from")]


def test_what_is_given_as_the_default_was_is_no_change(repository, predictor):
    base = {
        **LEFT,
        "pkg/plain.py": LEFT["pkg/plain.py"].replace("fused(x)", "fused(x, 4)"),
        "pkg/ops/moe.py": LEFT["pkg/ops/moe.py"].replace("=WARPS", "=4"),
    }
    assert not compared_files(repository, predictor, base, edited(base, "fused(x, 4)", "fused(x)", "pkg/plain.py")).subjects


def test_a_file_that_moved_is_compared_with_what_it_was(repository, predictor):
    moved = LAYER.replace("num_warps=8", "num_warps=16")
    (subject,) = compared_files(repository, predictor, BASE, {"pkg/layer.py": None, "pkg/model/layer.py": moved}).subjects
    change = "num_warps=warps_for(x.numel()) or 8 → num_warps=warps_for(x.numel()) or 16"
    assert subject.notes[0] == SAID.format(file="pkg/model/layer.py", function="fused", change=change)


def test_a_function_that_is_called_something_else_is_given_what_it_was(repository, predictor):
    head = {
        "pkg/layer.py": LAYER.replace("fused", "fused_moe").replace("num_warps=8", "num_warps=16"),
        "pkg/ops/moe.py": OPS.replace("fused", "fused_moe"),
    }
    (subject,) = compared_files(repository, predictor, BASE, head).subjects
    assert subject.notes[0].startswith("The kernel is the same; how pkg/layer.py launches it by fused_moe changed: num_warps=")


@pytest.mark.parametrize("head", [{}, {"pkg/layer.py": LAYER}], ids=["moved", "copied"])
def test_a_file_that_only_moved_changes_no_launch(repository, predictor, head):
    assert not compared_files(repository, predictor, BASE, {"pkg/layer.py": None, "pkg/model/layer.py": LAYER, **head}).subjects
