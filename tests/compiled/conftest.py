"""Fixtures shared by the tests of what is compiled."""

from __future__ import annotations

import pytest

from advisor.compiled.compiler.pool import Pool

from .shared_pool import POOL


@pytest.fixture(scope="session")
def pool() -> Pool:
    """The compile process that tests share."""
    pytest.importorskip("triton")
    return POOL
