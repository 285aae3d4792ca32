"""What files ask of the machine they run on (`torch.version.hip`, `is_cuda()`, `triton.__version__`), answered for a known target."""

from __future__ import annotations

import re
from functools import cache
from importlib import metadata
from typing import Any

from advisor.configs.literals import NotLiteralError

BACKENDS = {"nvidia": "cuda", "amd": "hip"}
"""Triton's backend of a GPU's vendor."""
_ASKED = re.compile(r"_*is_(cuda|nvidia|hip|rocm|amd|xpu|intel|npu|musa)(?:_backend)?", re.IGNORECASE)
_MEANT = {"cuda": "cuda", "nvidia": "cuda", "hip": "hip", "rocm": "hip", "amd": "hip"}
_RELEASE = re.compile(r"(\d+(?:\.\d+)*)(?:\.post\d+)?(?:\+.*)?")


class Present:
    """A value of which only that it is there is known: a version of torch's."""

    def __eq__(self, other: object) -> bool:
        if other is None:
            return False
        raise NotLiteralError("a version of torch is not known")

    __hash__ = object.__hash__


def torch_version(name: str, backend: str | None) -> Any:
    """`torch.version.cuda` or `torch.version.hip`.

    Raises:
        NotLiteralError: The target is not known.
    """
    if backend is None:
        raise NotLiteralError(f"torch.version.{name} is not known without a target")
    return Present() if backend == name else None


def asked_backend(name: str, backend: str | None) -> bool | None:
    """The answer to `is_hip()`, `IS_NVIDIA` and the like; None: it is another question, or the target is not known."""
    found = _ASKED.fullmatch(name)
    return None if found is None or backend is None else _MEANT.get(found.group(1).lower()) == backend


def version(text: Any) -> tuple[int, ...]:
    """`Version(text)` as numbers that compare alike.

    Raises:
        NotLiteralError: It is no plain release; those before a release are ordered by more rules than these.
    """
    found = _RELEASE.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise NotLiteralError(f"{text!r} is not a plain version")
    numbers = [int(part) for part in found.group(1).split(".")]
    while numbers and numbers[-1] == 0:  # 3.0 is 3.0.0
        numbers.pop()
    return tuple(numbers)


@cache
def triton_version() -> str:
    """The version of the triton that compiles.

    Raises:
        NotLiteralError: It is not installed.
    """
    try:
        return metadata.version("triton")
    except metadata.PackageNotFoundError:
        raise NotLiteralError("triton.__version__ is not known: it is not installed") from None
