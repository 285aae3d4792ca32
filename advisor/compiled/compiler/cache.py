"""Compiled kernels on disk: one compressed JSON per request, named by everything that decides it."""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

from advisor.system.settings import read_settings

MAX_BYTES = 64_000_000


def cache_folder() -> Path:
    """`compiled` in the cache folder that the environment names."""
    return read_settings().cache_dir / "compiled"


def read(key: str) -> dict[str, Any] | None:
    """The answer of an earlier run, or None; a damaged file counts as none."""
    path = cache_folder() / key[:2] / f"{key}.z"
    try:
        raw = path.read_bytes()
        decoder = zlib.decompressobj()
        value = json.loads(decoder.decompress(raw, MAX_BYTES))
    except (OSError, ValueError, zlib.error):
        return None
    return value if isinstance(value, dict) else None


def write(key: str, answer: dict[str, Any]) -> None:
    """Keep an answer; a cache that cannot be written to is no failure."""
    path = cache_folder() / key[:2] / f"{key}.z"
    temporary = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(zlib.compress(json.dumps(answer).encode(), 1))
        temporary.replace(path)
    except OSError:
        return
