"""Launches to compile: from a kernel file, a record or TorchInductor's output."""
