"""What the environment says, read in one typed place.

ADVISOR_AUTOTUNE      mode of every `@advisor.autotune`, over what the decorator says: measure, predict, cached, exhaustive, off
ADVISOR_CACHE_DIR     folder of the tuning cache (default: $XDG_CACHE_HOME/triton-advisor, else ~/.cache/triton-advisor)
TRITON_DEJAVU_STORAGE folder of triton-dejavu's caches, read where it is set
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from advisor.errors import UsageError

Mode = Literal["measure", "predict", "cached", "exhaustive", "off"]
MODES: tuple[str, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The environment's say, None where it says nothing."""

    mode: Mode | None
    cache_dir: Path
    dejavu_storage: Path | None


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings as they are now; nothing is remembered between calls.

    Raises:
        UsageError: ADVISOR_AUTOTUNE names no mode.
    """
    environment = os.environ if environ is None else environ
    mode = environment.get("ADVISOR_AUTOTUNE", "").strip().lower()
    dejavu = environment.get("TRITON_DEJAVU_STORAGE", "")
    return Settings(
        mode=check_mode(mode, "ADVISOR_AUTOTUNE") if mode else None,
        cache_dir=_cache_dir(environment),
        dejavu_storage=Path(dejavu) if dejavu and dejavu != "none" else None,
    )


def check_mode(mode: str, where: str) -> Mode:
    """`mode`, where it is one.

    Raises:
        UsageError: It is not.
    """
    if mode not in MODES:
        raise UsageError(f"{where}: no such mode", mode, f"one of {', '.join(MODES)}")
    return cast(Mode, mode)


def _cache_dir(environment: Mapping[str, str]) -> Path:
    named = environment.get("ADVISOR_CACHE_DIR", "")
    if named:
        return Path(named).expanduser()
    base = environment.get("XDG_CACHE_HOME", "")
    if base:
        return Path(base) / "triton-advisor"
    try:
        return Path.home() / ".cache" / "triton-advisor"
    except RuntimeError:  # no home folder: a relative path, which is then unwritable or local
        return Path(".cache") / "triton-advisor"
