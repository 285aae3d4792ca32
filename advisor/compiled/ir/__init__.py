"""Triton's IR, read, and the values of many programs at once."""
