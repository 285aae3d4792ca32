"""Comparing with golden files: `UPDATE_GOLDEN=1 pytest …` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "golden"


def compare(name: str, text: str) -> None:
    """Assert that `text` is what the golden file `name` says."""
    path = FOLDER / name
    if os.environ.get("UPDATE_GOLDEN"):
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.is_file(), f"no golden file {name}; run with UPDATE_GOLDEN=1 and look at what it writes"
    assert text == path.read_text(encoding="utf-8")
