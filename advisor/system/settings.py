"""Settings from the environment, read and checked in one typed place.

ADVISOR_AUTOTUNE      mode of every `@advisor.autotune`, over what the decorator says: measure, predict, cached, exhaustive, off
ADVISOR_CACHE_DIR     folder of the tuning cache, and of compiled kernels in `compiled/` (default: triton-advisor in $XDG_CACHE_HOME, or
                      in %LOCALAPPDATA% on Windows, or in ~/.cache)
ADVISOR_DEBUG         where it is set, an internal failure shows its traceback
ADVISOR_CORPUS        folder of tuned tables of the serving stacks, read beside $VLLM_TUNED_CONFIG_FOLDER and $SGLANG_MOE_CONFIG_DIR
TRITON_DEJAVU_STORAGE folder of triton-dejavu's caches, read where it is set

What runs in other interpreters imports nothing of ours, and reads its own:

ADVISOR_COMPILE_MEMORY_BYTES  address space of a compiling worker (`compiled/compiler/worker.py`, which reads ADVISOR_DEBUG too)
ADVISOR_TRITON_PYTHON         the Python whose triton compiles, which runs `triton_install.py` to say what it has (default: this one)
ADVISOR_RECORD                file that launches are recorded in (`compiled/recorder/`)
ADVISOR_AUTOTUNE_INSTALL      where it is set, a program that `advisor run` starts has `advisor.install()` called (`compiled/recorder/`)
ADVISOR_RUN_LOG               file that it tells what became of its tuners
ADVISOR_RECORD_CONTENTS       names of the tensors whose contents are recorded too, separated by commas
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from advisor.system.errors import UsageError

Mode = Literal["measure", "predict", "cached", "exhaustive", "off"]
MODES: tuple[str, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The environment's say, None where it says nothing."""

    autotune: str | None
    cache_dir: Path
    dejavu_storage: Path | None
    table_folders: tuple[Path, ...]
    debug: bool

    @property
    def mode(self) -> Mode | None:
        """The mode of every `@advisor.autotune`; checked here, for it is nothing to those who ask for something else.

        Raises:
            UsageError: ADVISOR_AUTOTUNE names no mode.
        """
        return check_mode(self.autotune, "ADVISOR_AUTOTUNE") if self.autotune else None


def read_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """The settings as they are now; nothing is remembered between calls."""
    environment = os.environ if environ is None else environ
    dejavu = environment.get("TRITON_DEJAVU_STORAGE", "")
    tables = [environment.get(name, "").strip() for name in ("VLLM_TUNED_CONFIG_FOLDER", "SGLANG_MOE_CONFIG_DIR", "ADVISOR_CORPUS")]
    return Settings(
        autotune=environment.get("ADVISOR_AUTOTUNE", "").strip().lower() or None,
        cache_dir=_cache_dir(environment),
        dejavu_storage=Path(dejavu) if dejavu and dejavu != "none" else None,
        table_folders=tuple(Path(name) for name in tables if name),
        debug=bool(environment.get("ADVISOR_DEBUG")),
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
    named = environment.get("ADVISOR_CACHE_DIR")
    base = environment.get("XDG_CACHE_HOME") or (environment.get("LOCALAPPDATA") if sys.platform == "win32" else None)
    if base and not named:
        return Path(base) / "triton-advisor"
    try:
        return Path(named or "~/.cache/triton-advisor").expanduser()
    except RuntimeError:  # no home folder: a relative path, which is then unwritable or local
        return Path(named or ".cache/triton-advisor")
