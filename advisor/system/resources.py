"""Finding the folders people add to (ceilings, triton_kernels, reports), in a checkout and in an installed wheel.

The wheel carries them inside the package, under an underscore name, so that no top-level module `triton_kernels` is ever
installed: vLLM probes for that name and would pick up ours.

`OnDemand`: a mapping whose values are made when they are asked for.

`phrase`: a sentence that users read, from `reports/phrases.toml`. Code passes a key and numbers; the file holds the words.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

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


@cache
def phrases() -> dict[str, str | dict[str, str]]:
    """Every phrase by its key, `verdict.unsized`; a phrase that depends on a count is a table with `one` and `many`."""
    text = (folder("reports") / "phrases.toml").read_text(encoding="utf-8")
    return {f"{section}.{name}": value for section, entries in tomllib.loads(text).items() for name, value in entries.items()}


def phrase(key: str, **values: Any) -> str:
    """The phrase of a key with its placeholders filled in; `count` chooses between `one` and `many`.

    Raises:
        KeyError: No phrase has the key, or a placeholder has no value.

    >>> phrase("note.not_measured")
    'No launch was measured: all times are predictions. Add --measured ROWS.csv to compare.'
    """
    template = phrases()[key]
    if isinstance(template, dict):
        template = template["one" if values["count"] == 1 else "many"]
    return template.format(**values)


def glossary() -> dict[str, str]:
    """The meaning of every term that reports use, by the term.

    >>> glossary()["bound"]
    'The shortest time that the peak rates of this GPU allow for this work.'
    """
    return {key.removeprefix("term."): str(value) for key, value in phrases().items() if key.startswith("term.")}
