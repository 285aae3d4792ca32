"""Every test here has a fake driver, a cache of its own and no settings from outside."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    from advisor.autotuning import lookup
    from advisor.autotuning.decisions import cache

    folder = tmp_path / "cache"
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(folder))
    monkeypatch.delenv("ADVISOR_AUTOTUNE", raising=False)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "triton"))
    monkeypatch.setattr(cache, "_caches", {})
    lookup.forget()
    yield folder
    for each in cache._caches.values():
        each.close()
    lookup.forget()


@pytest.fixture(autouse=True)
def fake_driver(request, monkeypatch):
    """A driver that passes for an H200's, but for tests that have a GPU."""
    if request.node.get_closest_marker("gpu"):
        return None
    pytest.importorskip("triton")
    from triton.runtime.driver import driver

    from .fakes import FakeDriver

    fake = FakeDriver()
    monkeypatch.setattr(driver, "_active", fake)
    return fake


def _gemm_latency(launch):
    """Half as fast as the model would have it; narrow tiles do not fit."""
    if launch["BLOCK_SIZE_N"] == 32:
        from triton.runtime.errors import OutOfResources

        raise OutOfResources(300000, 232448, "shared memory")
    return 0.03 + launch["M"] * 1e-4 + launch["num_stages"] * 1e-4


@pytest.fixture
def produced(fresh_cache):
    """A cache with two problems of a gemm, and one of a kernel of no known family."""
    from . import kernels
    from .kernels import GEMM_SPACE, call, call_gemm, tuned

    kernel, _ = tuned(_gemm_latency, kernels.gemm_kernel, GEMM_SPACE, key=["M", "N", "K"])
    call_gemm(kernel, 16, 4096, 4096)
    call_gemm(kernel, 512, 4096, 4096)
    call(tuned({16: 1.0, 32: 2.0, 64: 0.5})[0])
    return fresh_cache
