"""What files ask of the machine they run on (`torch.version.hip`, `is_cuda()`, `triton.__version__`), answered for a known target."""

from __future__ import annotations

import re
from typing import Any

from advisor import triton_install
from advisor.configs.literals import NotLiteralError

BACKENDS = {"nvidia": "cuda", "amd": "hip"}
"""Triton's backend of a GPU's vendor."""
VENDORS = {backend: vendor for vendor, backend in BACKENDS.items()}
_ASKED = re.compile(r"_*is_(cuda|nvidia|hip|rocm|amd|xpu|intel|npu|musa)(?:_backend)?", re.IGNORECASE)
_MEANT = {"cuda": "cuda", "nvidia": "cuda", "hip": "hip", "rocm": "hip", "amd": "hip"}
_GENERATIONS = {"hopper": (9,), "blackwell": (10, 12), "sm90": (9,), "sm100": (10,), "sm120": (12,)}
"""Generations of NVIDIA's and first numbers of their compute capabilities, as flash-linear-attention asks (0.6.0, `fla.utils`)."""
_ASKED_GENERATION = re.compile(rf"_*is_(?:nvidia_)?({'|'.join(_GENERATIONS)})", re.IGNORECASE)
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


def asked_target(name: str, backend: str | None, arch: int | str | None) -> bool | None:
    """The answer to `is_hip()`, `IS_NVIDIA`, `IS_NVIDIA_HOPPER` and the like; None: it is another question, or the target is not known.

    Args:
        name: The function or the constant.
        backend: Triton's backend of the target.
        arch: Its architecture: 90, gfx942.
    """
    if backend is None:
        return None
    if found := _ASKED.fullmatch(name):
        return _MEANT.get(found.group(1).lower()) == backend
    if not (found := _ASKED_GENERATION.fullmatch(name)):
        return None
    if backend != "cuda":
        return False
    return None if not isinstance(arch, int) else arch // 10 in _GENERATIONS[found.group(1).lower()]


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


def triton_version() -> str:
    """The version of the triton that compiles.

    Raises:
        NotLiteralError: It is not installed.
    """
    found = triton_install.version()
    if found is None:
        raise NotLiteralError("triton.__version__ is not known: it is not installed")
    return found
