"""triton-advisor: how fast a Triton kernel can be, how far away it is, why, and what to change."""

from __future__ import annotations

__version__ = "0.1.0"

__all__ = ["__version__"]
