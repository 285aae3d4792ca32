"""The origin of a result's figures: the software, and the GPU where one was used."""

from __future__ import annotations

import platform
from importlib import metadata

from advisor.gpus.hardware import GpuSpec
from advisor.result.schema import Fingerprint
from advisor.system import triton_install


def _version(package: str) -> str | None:
    """Version of an installed package, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def offline(gpu: GpuSpec) -> Fingerprint:
    """Nothing was run: the GPU is a description."""
    return Fingerprint(
        mode="offline", gpu=gpu.name, torch=_version("torch"), triton=triton_install.version(), python=platform.python_version()
    )
