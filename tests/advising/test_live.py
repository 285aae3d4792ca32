"""A live kernel, from a call to its page and back to a configuration; nothing is run, and no tensor exists."""

from __future__ import annotations

import pytest
import torch
import triton
import triton.language as tl

import advisor


@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=1), triton.Config({"BLOCK": 1024}, num_warps=4)], key=["n"])
@triton.jit
def tuned(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=at < n)


N = 1 << 24


def tensors(count=N, dtype=torch.float16):
    return torch.empty(count, device="meta", dtype=dtype), torch.empty(count, device="meta", dtype=dtype)


def test_a_call_says_all_of_its_launch():
    x, y = tensors()
    result = advisor.advise(scale, grid=lambda meta: (triton.cdiv(N, meta["BLOCK"]),), args=(x, y, N), BLOCK=1024, gpu="H100", cache="cold")
    (launch,) = result.launches
    assert launch.kernel == "scale" and launch.occupancy.ctas == N // 1024
    assert launch.bound.us == pytest.approx(2 * N / 3.35e12 * 1e6, rel=0.1)  # what is read, at 3.35 TB/s; what is written fits the L2
    assert 0.3 < result.efficiency <= 1


def test_a_notebook_in_three_cells():
    x, y = tensors()
    result = advisor.advise(tuned, grid=lambda meta: (triton.cdiv(N, meta["BLOCK"]),), args=(x, y, N), gpu="H100")
    page = result._repr_html_()
    assert page.startswith("<iframe srcdoc=") and "Bound by the start of its programs: each does too little." in page
    config = result.best.to_triton()
    assert isinstance(config, triton.Config) and config.kwargs["BLOCK"] == 1024 and config.num_warps == 4


def test_a_block_of_code_is_recorded_and_not_run():
    x, y = tensors(1 << 20)
    with advisor.record() as recording:
        for _ in range(3):
            scale[(1024,)](x, y, 1 << 20, BLOCK=1024, num_warps=8)
    result = recording.advise(gpu="H200")
    (launch,) = result.launches
    assert (result.target, launch.configuration.num_warps, launch.occupancy.ctas) == ("scale", 8, 1024)
    frame = result.to_frame()
    assert list(frame["kernel"]) == ["scale"] and frame["current_us"][0] >= frame["bound_us"][0]
    assert triton.runtime.jit.JITFunction.run.__qualname__ == "JITFunction.run", "and all is as it was"


@pytest.mark.parametrize(("asked", "said"), [({"grid": (1,)}, "gpu is missing"), ({"gpu": "H100"}, "grid is missing")])
def test_what_is_missing_is_asked_for(asked, said):
    with pytest.raises(advisor.AdvisorError, match=said):
        advisor.advise(scale, args=(*tensors(), N), BLOCK=64, **asked)


def test_a_call_that_does_not_fit_is_refused():
    with pytest.raises(advisor.AdvisorError, match="the call cannot be read"):
        advisor.advise(scale, grid=(1,), args=(*tensors(), N, 64, 65), gpu="H100")
