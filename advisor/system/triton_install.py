"""Which triton compiles: that of `$ADVISOR_TRITON_PYTHON`, or of this Python. Nothing of it is imported.

Run as a script by another Python, it prints what is installed there; it needs nothing but the standard library for that.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from functools import lru_cache
from importlib import metadata, util
from pathlib import Path

DISTRIBUTIONS = ("triton", "pytorch-triton", "triton-rocm", "pytorch-triton-rocm")
"""Packages that install a module `triton`."""
TIMEOUT_S = 30.0


def named() -> str | None:
    """The Python that `$ADVISOR_TRITON_PYTHON` names; None: none."""
    return os.environ.get("ADVISOR_TRITON_PYTHON") or None


def interpreter() -> str:
    """The Python that has triton: the one that is named, or this one."""
    return named() or sys.executable


def version() -> str | None:
    """Version of the triton that compiles; None where there is none."""
    return _installed(interpreter()).get("version")


def folder() -> Path | None:
    """The folder of the triton that compiles; None where there is none."""
    found = _installed(interpreter()).get("folder")
    return Path(found) if found is not None else None


@lru_cache(maxsize=4)
def _installed(python: str) -> dict[str, str]:
    if python == sys.executable:
        return _here()
    environment = {**os.environ, "PYTHONSAFEPATH": "1"}  # as the compiler is started: no triton of the working folder
    try:
        done = subprocess.run([python, __file__], capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment)
        found = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return {}
    return found if isinstance(found, dict) else {}


def _here() -> dict[str, str]:
    """Version and folder of the triton that this Python would import, as far as it has one."""
    found = {}
    for name in DISTRIBUTIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found["version"] = metadata.version(name)
            break
    with contextlib.suppress(ValueError):  # a module without a place stands in for it
        spec = util.find_spec("triton")  # which does not import it
        if spec is not None and spec.submodule_search_locations:
            found["folder"] = next(iter(spec.submodule_search_locations))
    return found


if __name__ == "__main__":
    print(json.dumps(_here()))
