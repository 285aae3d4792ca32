"""Launches to compile: from a kernel file, a record, Triton's cache or TorchInductor's output."""
