"""Finding the folders people add to (ceilings, triton_kernels, reports), in a checkout and in an installed wheel.

The wheel carries them inside the package, under an underscore name, so that no top-level module `triton_kernels` is ever
installed: vLLM probes for that name and would pick up ours.

`OnDemand`: a mapping whose values are made when they are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")


class OnDemand(Mapping[str, Value]):
    """Values by name, each made once, when it is first asked for: what `make` raises is raised then.

    >>> lengths = OnDemand(["one", "three"], len)
    >>> lengths["three"], sorted(lengths), "two" in lengths
    (5, ['one', 'three'], False)
    """

    def __init__(self, names: Iterable[str], make: Callable[[str], Value]) -> None:
        self._names = dict.fromkeys(names)
        self._make = make
        self._made: dict[str, Value] = {}

    def __getitem__(self, name: str) -> Value:
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def make_all(self) -> None:
        """Make every value."""
        for name in self:
            self[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


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
