"""An empty kernel. Imports triton at its top: imported only where a GPU is at hand."""

from __future__ import annotations

import triton


@triton.jit
def empty_kernel():  # type: ignore[no-untyped-def]
    """Nothing."""
