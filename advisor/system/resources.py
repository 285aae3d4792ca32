"""Finding the folders people add to (ceilings, triton_kernels, reports), in a checkout and in an installed wheel.

The wheel carries them inside the package, under an underscore name, so that no top-level module `triton_kernels` is ever
installed: vLLM probes for that name and would pick up ours.
"""

from __future__ import annotations

from pathlib import Path

FOLDERS = ("ceilings", "triton_kernels", "reports")

_PACKAGE = Path(__file__).resolve().parent.parent


def folder(name: str) -> Path:
    """The folder `name` of `FOLDERS`.

    Raises:
        ValueError: `name` is not one of `FOLDERS`.
        FileNotFoundError: The installation lacks it.
    """
    if name not in FOLDERS:
        raise ValueError(f"resource folder must be one of {', '.join(FOLDERS)} (got {name!r})")
    for candidate in (_PACKAGE / f"_{name}", _PACKAGE.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"the installation lacks the folder {name!r}; reinstall triton-advisor")
