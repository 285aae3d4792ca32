"""Our own kernel files as modules: their code is run here, to compare with what is read from their text."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

FOLDER = Path(__file__).parents[2] / "triton_kernels"


def load(name: str) -> ModuleType:
    """The file `name` of `triton_kernels`, executed once."""
    key = f"bundled_{name}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, FOLDER / f"{name}.py")
        assert spec is not None and spec.loader is not None
        sys.modules[key] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[key])
    return sys.modules[key]
