"""Where the file of an import lies: near the file that imports it, or in the installed torch; nothing else is looked for."""

from __future__ import annotations

import contextlib
from importlib import util
from pathlib import Path

from advisor.python_source.imports import Import

MOST_HANDS = 4
"""Files through which an import is followed."""
MOST_ABOVE = 8
"""Folders above a file in which what it imports is looked for."""
INDUCTOR = "torch._inductor"
"""What generated kernels call is defined there (`triton_helpers`), and in no file near them."""


def locate(path: Path, item: Import) -> Path | None:
    """The file of an import beside or above `path`."""
    parts = item.module.split(".") if item.module else []
    folder = path.absolute().parent
    if item.level:
        for _ in range(item.level - 1):
            folder = folder.parent
        starts = [folder]
    else:
        starts = [folder, *list(folder.parents)[:MOST_ABOVE]]
    for start in starts:
        for candidate in (start.joinpath(*parts).with_suffix(".py") if parts else None, start.joinpath(*parts, "__init__.py")):
            if candidate is not None and candidate.is_file():
                return candidate
    return _of_inductor(parts) if not item.level and item.module.startswith(f"{INDUCTOR}.") else None


def _of_inductor(parts: list[str]) -> Path | None:
    """A file of TorchInductor's, where torch is installed; torch is not imported."""
    with contextlib.suppress(ValueError):  # a module without a place stands in for it
        spec = util.find_spec(parts[0])
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            candidate = Path(folder).joinpath(*parts[1:]).with_suffix(".py")
            if candidate.is_file():
                return candidate
    return None
