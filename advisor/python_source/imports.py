"""What is imported of a module, and the file that an import leads to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import util
from pathlib import Path, PurePath
from typing import TypeVar

_LIBDEVICE = "triton.language.extra.libdevice"
HANDED_ON = {
    "triton": "triton",
    "tl": "triton.language",
    "libdevice": _LIBDEVICE,
    "tldevice": _LIBDEVICE,
    "tl_extra_shim": _LIBDEVICE,
}
"""Names under which packages hand triton's modules on: `from vllm.triton_utils import tl`, `from flag_gems.utils import tl_extra_shim`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """One imported name: `from module import name as alias`, or `import module as alias` (name None). `level`: leading dots."""

    alias: str
    module: str
    name: str | None
    level: int = 0

    @property
    def is_triton(self) -> bool:
        """Whether it comes from triton itself."""
        return self.level == 0 and (self.module == "triton" or self.module.startswith("triton."))

    @property
    def full(self) -> str:
        """What is imported, from its package down: `numpy`, `math.inf`; with leading dots where it is named from the file on."""
        module = self.alias if self.name is None and self.module.split(".")[0] == self.alias else self.module
        return "." * self.level + ".".join(filter(None, (module, self.name)))


def is_triton_jit(item: Import, rest: str) -> bool:
    """Whether `rest` of what is imported is `triton.jit`; a module may pass it on (`from vllm.triton_utils import triton`)."""
    module = item.alias if item.name is None and item.module.split(".")[0] == item.alias else item.module
    full = ".".join(part for part in (module, item.name, rest) if part)
    if not full.endswith("jit") or "gluon" in full.split("."):
        return False
    return full.endswith("triton.jit") or item.is_triton or (full.endswith(".jit") and "triton" in module) or (item.level > 0 and not rest)


MOST_HANDS = 4
"""Files through which an import is followed."""
MOST_ABOVE = 8
"""Folders above a file in which what it imports is looked for."""
INDUCTOR = "torch._inductor"
"""What generated kernels call is defined there (`triton_helpers`), and in no file near them."""


Folder = TypeVar("Folder", bound=PurePath)


def places(folder: Folder, module: str, level: int) -> Iterator[Folder]:
    """Where a file of a folder may find a module, in order: as for Python, a package before a file of its name; `level`: leading dots."""
    parts = module.split(".") if module else []
    starts = [folder, *list(folder.parents)[:MOST_ABOVE]] if not level else [folder, *folder.parents][level - 1 : level]
    for whole in (start.joinpath(*parts) for start in starts):
        yield whole / "__init__.py"
        yield from ([whole.with_suffix(".py")] if parts else [])


def locate(path: Path, item: Import) -> Path | None:
    """The file of an import beside or above `path`; of what lies in a repository within that: what lies around a stranger's, or where a
    link in it leads, is not his to show."""
    folder = path.absolute().parent
    top = next((parent.resolve() for parent in (folder, *folder.parents) if (parent / ".git").exists()), None)
    nearest = next((place for place in places(folder, item.module, item.level) if place.is_file()), None)
    return nearest if nearest is not None and (top is None or nearest.resolve().is_relative_to(top)) else None


def of_inductor(item: Import) -> Path | None:
    """The file of an import from TorchInductor, where torch is installed; torch is not imported."""
    if item.level or not item.module.startswith(f"{INDUCTOR}."):
        return None
    parts = item.module.split(".")
    with contextlib.suppress(ValueError):  # a module without a place stands in for it
        spec = util.find_spec(parts[0])
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            candidate = Path(folder).joinpath(*parts[1:]).with_suffix(".py")
            if candidate.is_file():
                return candidate
    return None
