"""Which triton compiles: that of `$ADVISOR_TRITON_PYTHON`, or of this Python. Nothing of it is imported.

Run as a script by another Python, it prints what is installed there; it needs nothing but the standard library for that.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib import machinery, util
from pathlib import Path
from typing import Any

DISTRIBUTIONS = ("triton", "pytorch-triton", "triton-rocm", "pytorch-triton-rocm")
"""Packages that install a module `triton`."""
OLDEST_PYTHON = (3, 11)
"""The first whose `-P` keeps the working folder off the path that it imports from."""
TIMEOUT_S = 30.0


def named() -> str | None:
    """The Python that `$ADVISOR_TRITON_PYTHON` names; None: none."""
    return os.environ.get("ADVISOR_TRITON_PYTHON") or None


def interpreter() -> str:
    """The Python that has triton, an absolute path where it is found: the one that is named, or this one."""
    specified = named()
    return str(Path(shutil.which(specified) or specified).absolute()) if specified is not None else sys.executable


def version() -> str | None:
    """Version of the triton that compiles; None where there is none, or its Python is too old."""
    return _installed(interpreter()).get("version")


def folder() -> Path | None:
    """The folder of the triton that compiles; None where there is none, or its Python is too old."""
    location = _installed(interpreter()).get("folder")
    return Path(location) if location is not None else None


def too_old() -> str | None:
    """The version of the Python that compiles, where that is older than `OLDEST_PYTHON`; None: it is not, or cannot be asked."""
    return _installed(interpreter()).get("too_old")


def package_version(name: str, places: Iterable[str]) -> str | None:
    """Version of an installed package, by the first of some folders that has it: without `importlib.metadata`, which takes 25 ms."""
    named = re.compile(re.escape(name).replace("\\-", "[-_.]") + r"-[^-]+\.(dist|egg)-info", re.IGNORECASE)
    for place in filter(os.path.isdir, places):
        for folder in filter(named.fullmatch, sorted(os.listdir(place))):  # noqa: PTH208
            for file in ("METADATA", "PKG-INFO"):
                with contextlib.suppress(OSError):
                    lines = (Path(place) / folder / file).read_text(encoding="utf-8", errors="replace").splitlines()
                    return next((line.removeprefix("Version:").strip() for line in lines if line.startswith("Version:")), None)
    return None


@lru_cache(maxsize=4)
def _installed(python: str) -> dict[str, str]:
    if python == sys.executable:
        return _here()
    try:  # isolated, as the compiler is started: no triton of the working folder or of PYTHONPATH
        done = subprocess.run([python, "-I", __file__], capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        facts: Any = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    if not isinstance(facts, dict):
        return {}
    if tuple(facts.pop("python", OLDEST_PYTHON)) < OLDEST_PYTHON:
        return {"too_old": str(facts.get("too_old"))}
    return {name: text for name, text in facts.items() if name != "too_old"}


def _here() -> dict[str, Any]:
    """Version and folder of the triton that this Python would import, as far as it has one.

    What is installed comes first, then the absolute folders of PYTHONPATH. The working folder, and what is relative to it, may be a
    stranger's, and is not looked at.
    """
    folders = [part for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    apart = {Path.cwd(), *(Path(item).absolute() for item in folders)}
    installed = [item for item in sys.path if os.path.isabs(item) and Path(item) not in apart]  # noqa: PTH117
    places = [*installed, *(item for item in folders if os.path.isabs(item))]  # noqa: PTH117
    facts: dict[str, Any] = {}
    if installed_version := next(filter(None, (package_version(name, places) for name in DISTRIBUTIONS)), None):
        facts["version"] = installed_version
    spec = machinery.PathFinder.find_spec("triton", places)
    if spec is None:  # an editable installation has a finder of its own
        with contextlib.suppress(ValueError):  # a module without a place stands in for it
            spec = util.find_spec("triton")  # which does not import it
    if spec is not None and spec.submodule_search_locations:
        place = next(iter(spec.submodule_search_locations))
        if os.path.isabs(place) and Path(place).parent not in (apart - {Path(item) for item in folders}):  # noqa: PTH117
            facts["folder"] = place
    return facts


if __name__ == "__main__":
    print(json.dumps(_here() | {"python": sys.version_info[:2], "too_old": sys.version.split()[0]}))
