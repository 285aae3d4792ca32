"""Files that import what a change took away end with an ImportError: that gates, where it is certain."""

from __future__ import annotations

import pytest

from advisor.rendering.comparison_markdown import to_comment
from advisor.rendering.comparison_page import to_page
from advisor.rendering.comparison_words import to_text

from .repository import compared_files

KERNEL = """
import triton
import triton.language as tl

LIMIT = 8

@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)

def run(x):
    scale[(9,)](x, 9, BLOCK=64)
"""
BASE = {"pkg/__init__.py": "", "pkg/sub/__init__.py": "", "pkg/sub/ops.py": KERNEL}
RENAMED = KERNEL.replace("scale", "rescale")
MOVED = {"pkg/sub/ops.py": None, "pkg/sub/kernels.py": KERNEL}


def failures(repository, predictor, user, change, path="pkg/model.py", head_user=None):
    base = {**BASE, path: user}
    return compared_files(repository, predictor, base, change | ({path: head_user} if head_user is not None else {}))


@pytest.mark.parametrize("change", [MOVED, {"pkg/sub/ops.py": None}, {"pkg/sub/ops.py": RENAMED}], ids=["moved", "deleted", "renamed"])
@pytest.mark.parametrize(
    ("path", "user"),
    [
        ("pkg/model.py", "from .sub.ops import scale\n"),
        ("pkg/model.py", "from .sub.ops import scale as other\n"),
        ("bench.py", "from pkg.sub.ops import scale\n"),
        ("tests/unit/test_ops.py", "from pkg.sub.ops import (\n    scale,\n)\n"),
    ],
)
def test_an_import_of_what_is_gone_gates(repository, predictor, change, path, user):
    found = failures(repository, predictor, user, change, path)
    reason = "ImportError as soon as it is imported: line 1 imports scale, which pkg/sub/ops.py no longer defines"
    assert found.gate.failed and found.gate.triggered == (f"failed: {path} ({reason})",)
    assert "The file is unchanged; what it imports is gone." in next(each for each in found.subjects if each.path == path).notes
    assert all(reason in surface(found) for surface in (to_text, to_page)) and "ImportError" in to_comment(found)


def test_a_function_that_launches_counts_as_well_and_all_of_a_file_is_told_once(repository, predictor):
    found = failures(repository, predictor, "from .sub.ops import run\nfrom .sub.ops import scale, LIMIT\n", MOVED)
    (told,) = found.gate.triggered
    assert "line 1 imports run, which pkg/sub/ops.py no longer defines, and 2 more" in told


@pytest.mark.parametrize(
    ("user", "change"),
    [
        ("from .sub.ops import LIMIT\n", {"pkg/sub/ops.py": RENAMED}),
        ("from .sub.ops import scale\n", {"pkg/sub/ops.py": KERNEL.replace("LIMIT = 8", "LIMIT = 9")}),
        ("from .sub.ops import scale\n", {**MOVED, "pkg/sub/ops.py": "from .kernels import scale\n"}),
        ("from .sub.ops import scale\n", {**MOVED, "pkg/sub/ops.py": "from .kernels import *\n"}),
        ("from .sub.ops import scale\n", {**MOVED, "pkg/sub/ops.py": "def __getattr__(name):\n    return 1\n"}),
        ("from .sub.ops import scale\n", {"pkg/sub/ops.py": None, "pkg/sub/ops/__init__.py": KERNEL}),
        ("try:\n    from .sub.ops import scale\nexcept ImportError:\n    scale = None\n", MOVED),
        ("def late():\n    from .sub.ops import scale\n", MOVED),
        ("from ops import scale\n", MOVED),
        ("from triton.ops import scale\n", MOVED),
    ],
    ids=["kept", "same", "handed on", "all handed on", "getattr", "package", "try", "late", "elsewhere", "installed"],
)
def test_what_is_there_or_may_be_does_not_gate(repository, predictor, user, change):
    assert not failures(repository, predictor, user, change).gate.failed


def test_a_file_that_follows_does_not_gate(repository, predictor):
    found = failures(repository, predictor, "from .sub.ops import scale\n", MOVED, head_user="from .sub.kernels import scale\n")
    assert not found.gate.failed


@pytest.mark.parametrize(
    ("path", "user", "change"),
    [
        ("pkg/sub/model.py", "from ops import scale\n", {"pkg/sub/ops.py": RENAMED}),  # another ops, unless it is run as a script
        ("bench.py", "from pkg.sub.ops import scale\n", dict.fromkeys(BASE)),  # an installed pkg
    ],
)
def test_an_absolute_import_may_mean_another_file(repository, predictor, path, user, change):
    assert not failures(repository, predictor, user, change, path).gate.failed


def test_what_was_not_there_before_is_nothing_new(repository, predictor):
    assert not failures(repository, predictor, "from .sub.ops import missing\n", {"pkg/sub/ops.py": RENAMED}).gate.failed
