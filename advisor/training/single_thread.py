"""torch on one thread, for fits of small arrays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from advisor.system.errors import MissingDependencyError


@contextmanager
def torch_on_one_thread(what: str) -> Iterator[Any]:
    """The module torch, held to one thread: sums come out the same to the bit, and on small arrays more threads only wait for each other.

    Args:
        what: What needs torch, for the error.

    Raises:
        MissingDependencyError: torch is not installed.
    """
    try:
        import torch
    except ImportError:
        raise MissingDependencyError(f"{what} needs torch", remedy="pip install 'triton-advisor[train]'") from None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield torch
    finally:
        torch.set_num_threads(threads)
