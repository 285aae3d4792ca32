"""Every test here has a fake driver, a cache of its own and no settings from outside."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def fresh_cache(tmp_path, monkeypatch):
    """An empty cache folder."""
    from advisor.autotuning import cache, lookup

    folder = tmp_path / "cache"
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(folder))
    monkeypatch.delenv("ADVISOR_AUTOTUNE", raising=False)
    monkeypatch.delenv("TRITON_DEJAVU_STORAGE", raising=False)
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
