"""Fitting on one thread: with more of them sums come out otherwise, and weights not alike to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from advisor.system.errors import MissingDependencyError


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it, BLAS and OpenMP use one thread.

    Raises:
        MissingDependencyError: Packages of the extra `train` are not installed.
    """
    try:
        import threadpoolctl  # scikit-learn brings it
        from scipy import linalg  # noqa: F401  its BLAS has to be there to be limited
    except ImportError:
        raise MissingDependencyError("training needs scikit-learn", remedy="pip install 'triton-advisor[train]'") from None
    with threadpoolctl.threadpool_limits(1):
        yield
