"""Launches that do not fit their kernel any more."""

from __future__ import annotations

import pytest

from .repository import compared_files

HEAD = "import triton\nimport triton.language as tl\n"
KERNEL = (
    HEAD
    + """
@triton.jit
def scale(x_ptr, n, factor, BLOCK: tl.constexpr, EVEN: tl.constexpr = False):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + at, factor * tl.load(x_ptr + at, mask=at < n), mask=at < n)
"""
)
RUN = """

def run(x, n):
    scale[(triton.cdiv(n, 256),)](x, n, 2.0, BLOCK=256, num_warps=8)
"""
TUNED = "@triton.autotune([triton.Config({'BLOCK': 256}, num_warps=8)], key=['n'])\n@triton.jit"
ELSEWHERE = HEAD + "from scale import scale\n" + RUN


def failing(repository, predictor, base, head):
    found = compared_files(repository, predictor, base, head)
    return [failure.reason for subject in found.subjects for failure in subject.failures], found.gate.failed


@pytest.mark.parametrize(
    ("kernel", "launch", "said"),
    [
        (("n, factor,", "n, factor, offset,"), None, "line 11 passes nothing for offset"),
        ((", EVEN: tl.constexpr = False", ", EVEN: tl.constexpr"), None, "line 11 passes nothing for EVEN"),
        (("n, factor,", "factor,"), None, "line 11 passes BLOCK by place and by name"),
        (None, ("2.0,", "2.0, 256, True, 1,"), "line 11 passes 6 arguments by place, and the kernel takes 5"),
        (("BLOCK: tl", "SIZE: tl"), None, "line 11 passes nothing for SIZE; line 11 passes BLOCK, which the kernel takes no longer"),
        (None, ("num_warps", "num_warp"), "passes num_warp, which is no parameter and no option (did you mean num_warps?)"),
        (None, (", BLOCK=256", ""), "passes nothing for BLOCK"),
    ],
)
def test_a_launch_that_no_longer_fits_gates(repository, predictor, kernel, launch, said):
    text = KERNEL.replace(*kernel) if kernel else KERNEL
    head = text + (RUN.replace(*launch) if launch else RUN)
    reasons, gate = failing(repository, predictor, {"scale.py": KERNEL + RUN}, {"scale.py": head})
    expected = [reason for reason in reasons if said in reason]
    assert expected and gate


def test_that_of_an_unchanged_file_gates_too(repository, predictor):
    base = {"scale.py": KERNEL, "run.py": ELSEWHERE}
    reasons, gate = failing(repository, predictor, base, {"scale.py": KERNEL.replace("n, factor,", "n, factor, offset,")})
    assert len(reasons) == 1 and "run.py, line 7, passes nothing for offset" in reasons[0] and gate


@pytest.mark.parametrize(
    ("kernel", "launch"),
    [
        (("@triton.jit", TUNED), (", BLOCK=256, num_warps=8", "")),
        (("@triton.jit", "@triton.heuristics({'BLOCK': lambda args: 256})\n@triton.jit"), ("BLOCK=256, ", "")),
        (("@triton.jit", "@ours.tuned\n@triton.jit"), ("BLOCK=256, ", "")),
        (("= False", "= False, MORE: tl.constexpr = 0"), None),
        (("n, factor,", "n, factor, offset,"), ("2.0,", "2.0, *rest,")),
        (("n, factor,", "n, factor, offset,"), ("num_warps=8", "**options")),
        (None, ("num_warps=8", "num_warps=8, waves_per_eu=2, debug=True")),
        (("n, factor,", "n, factor, offset,"), ("2.0,", "2.0, offset=0,")),
    ],
)
def test_one_that_fits_or_may_fit_does_not(repository, predictor, kernel, launch):
    text = KERNEL.replace(*kernel) if kernel else KERNEL
    head = text + (RUN.replace(*launch) if launch else RUN)
    if launch and launch[1] == "2.0, offset=0,":  # what follows is passed by name
        head = head.replace("BLOCK: tl.constexpr, EVEN", "BLOCK: tl.constexpr = 64, EVEN")
    assert failing(repository, predictor, {"scale.py": KERNEL + RUN}, {"scale.py": head}) == ([], False)


def test_what_did_not_fit_before_is_no_news(repository, predictor):
    text = KERNEL + RUN.replace(", BLOCK=256", "")
    head = text.replace("2.0", "3.0").replace("factor *", "2 * factor *")
    assert failing(repository, predictor, {"scale.py": text}, {"scale.py": head}) == ([], False)
