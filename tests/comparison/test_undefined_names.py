"""Kernels that name what nothing defines: certain to fail, and gating, whether or not anything is compiled."""

from __future__ import annotations

import pytest

from advisor.comparison.kernels.undefined_names import undefined_names
from advisor.python_source.source import parse_source
from advisor.rendering.comparison_markdown import to_comment
from advisor.rendering.comparison_page import to_page
from advisor.rendering.comparison_sarif import to_sarif
from advisor.rendering.comparison_words import to_text

from .repository import compared_files

HELPERS = """
import triton
import triton.language as tl

SCALE = tl.constexpr(2.0)

@triton.jit
def doubled(x):
    return x * SCALE
"""
KERNEL = """
import triton
import triton.language as tl
from .helpers import doubled

LIMIT: tl.constexpr = 8

@triton.jit
def scale(x_ptr, n, BLOCK: tl.constexpr, EXTRA: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EXTRA:
        offsets += LIMIT
    x = doubled(tl.load(x_ptr + offsets, mask=offsets < n))
    tl.store(x_ptr + offsets, x, mask=offsets < n)
"""
BASE = {"ops/__init__.py": "", "ops/helpers.py": HELPERS, "ops/scale.py": KERNEL}


def compared(repository, predictor, changed, base=BASE):
    return compared_files(repository, predictor, base, changed)


@pytest.mark.parametrize(
    ("path", "old", "new", "told"),
    [
        ("ops/scale.py", "mask=offsets < n)\n", "mask=offset < n)\n", "offset (line 14)"),
        ("ops/scale.py", "from .helpers import doubled", "", "doubled (line 13)"),
        ("ops/scale.py", "(0) * BLOCK +", "(axis) * SIZE +", "axis (line 10), SIZE (line 10)"),
        ("ops/helpers.py", "x * SCALE", "x * SCALES", "SCALES (ops/helpers.py:9)"),
        ("ops/scale.py", "if EXTRA:", "if ENLARGED:", "ENLARGED (line 11)"),
    ],
)
def test_a_name_that_nothing_defines_any_more_gates(repository, predictor, path, old, new, told):
    text = BASE[path]
    assert text.count(old) == 1
    found = compared(repository, predictor, {path: text.replace(old, new)})
    assert found.gate.failed
    assert f"failed: ops/scale.py::scale (NameError as soon as it compiles: nothing defines {told})" in found.gate.sentence
    for surface in (to_text(found), to_comment(found).replace("\\", ""), to_page(found), to_sarif(found)):
        body = surface.replace(found.headline, "").replace(found.gate.sentence, "")  # where the kernel itself is told of
        assert f"NameError as soon as it compiles: nothing defines {told}" in body and "undefined-name" in body


def test_what_was_not_defined_before_does_not_gate(repository, predictor):
    odd = {**BASE, "ops/scale.py": KERNEL.replace("offsets < n)\n", "offset < n)\n")}
    changed = {"ops/scale.py": odd["ops/scale.py"].replace("+= LIMIT", "+= 2 * LIMIT")}
    found = compared(repository, predictor, changed, odd)
    assert found.subjects and not found.gate.failed


@pytest.mark.parametrize(
    "text",
    [
        KERNEL,
        KERNEL.replace("+= LIMIT", "+= OTHER"),  # constants may leave the branch out
        KERNEL.replace("        offsets += LIMIT\n", "        return\n    offsets += OTHER\n"),
        KERNEL.replace("+= LIMIT", "+= 1").replace("* BLOCK +", "* (OTHER if EXTRA else 1) +"),
        KERNEL.replace("    x = doubled", "    for i in tl.static_range(EXTRA):\n        offsets += OTHER\n    x = doubled"),
        KERNEL.replace("LIMIT: tl", "from elsewhere import *\nOTHER: tl").replace("doubled(", "tripled("),
        KERNEL.replace("doubled(", "tripled(") + "\n\ndef setup():\n    global tripled\n    tripled = doubled\n",
        KERNEL.replace("doubled(", "tripled(") + "\n\nglobals()['tripled'] = doubled\n",
        KERNEL.replace("doubled(", "tripled(") + "\n\ntry:\n    from a import tripled\nexcept ImportError:\n    pass\n",
        KERNEL.replace("doubled(", "tripled(") + "\n\nif True:\n    for tripled in (doubled,):\n        pass\n",
        KERNEL.replace("    x = doubled(", "    def tripled(x):\n        return x\n    x = tripled("),
        KERNEL.replace("0, BLOCK)\n", "0, BLOCK)\n    for i in range(min(len((1, 2)), BLOCK)):\n        offsets += i\n"),
    ],
)
def test_what_may_be_defined_is_not_told(text):
    source = parse_source(text, "scale.py")
    assert undefined_names(source, source.kernel("scale")) == []


def test_a_kernel_within_a_function_sees_its_names():
    body = "\n".join(f"    {line}" for line in KERNEL.partition("@triton.jit\n")[2].replace("doubled(", "tripled(").splitlines())
    text = f"import triton\nimport triton.language as tl\n\ndef made(tripled):\n    LIMIT = 8\n    @triton.jit\n{body}\n    return scale\n"
    source = parse_source(text, "scale.py")
    assert undefined_names(source, source.kernel("scale")) == []
    source = parse_source(text.replace("made(tripled)", "made(kernel)"), "scale.py")
    assert [each.name for each in undefined_names(source, source.kernel("scale"))] == ["tripled"]


GONE = "import triton\nimport triton.language as tl\n\n\ndef run(x):\n    scale[(9,)](x, 9, BLOCK=64, EXTRA=False)\n"


def test_a_kernel_that_is_gone_and_still_launched_gates(repository, predictor):
    found = compared_files(repository, predictor, {"ops.py": KERNEL + "\n\n" + GONE}, {"ops.py": GONE})
    reason = "NameError as soon as it is launched: line 6 launches scale, which nothing defines any more"
    assert found.gate.failed and found.gate.triggered == (f"failed: ops.py::scale ({reason})",)
    assert all(reason in surface(found) for surface in (to_text, to_page)) and "line 6 launches scale" in to_comment(found)


@pytest.mark.parametrize(
    "head",
    [
        "from other import scale\n" + GONE,
        "from other import *\n" + GONE,
        GONE.partition("def run")[0],
        GONE.replace("def run(x", "def run(x, scale"),
        "try:\n    from fast import scale\nexcept ImportError:\n    scale = None\n" + GONE,
        GONE.replace("    scale[", "    from other import scale\n    scale["),
        None,
    ],
)
def test_a_kernel_that_is_gone_and_launched_no_more_does_not(repository, predictor, head):
    found = compared_files(repository, predictor, {"ops.py": KERNEL + "\n\n" + GONE}, {"ops.py": head})
    assert not found.gate.failed and [subject.change for subject in found.subjects] == ["removed"]
