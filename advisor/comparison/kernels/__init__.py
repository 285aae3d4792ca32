"""Kernels that a change touches, and what it does to them."""
