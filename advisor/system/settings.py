"""Settings from the environment, read and checked in one typed place.

ADVISOR_AUTOTUNE      mode of every `@advisor.autotune`, over what the decorator says: measure, predict, cached, exhaustive, off
ADVISOR_CACHE_DIR     folder of the tuning cache, and of compiled kernels in `compiled/` (default: triton-advisor in $XDG_CACHE_HOME, or
                      in %LOCALAPPDATA% on Windows, or in ~/.cache)
ADVISOR_COMPILE_LIMIT seconds that one compilation may take, and all of a command together: "120" (the default), "60,600"
XDG_CONFIG_HOME       its triton-advisor/weights.npz (default: in ~/.config) is read in place of the shipped weights, as are %APPDATA%'s
ADVISOR_DEBUG         where it is set, an internal failure shows its traceback
ADVISOR_TRY_FOR       seconds for which other configurations of a kernel are tried where `--try-for` does not say (default: no time limit,
                      but 24 configurations; 0: none)
ADVISOR_CORPUS        folder of tuned tables of the serving stacks, read beside $VLLM_TUNED_CONFIG_FOLDER and $SGLANG_MOE_CONFIG_DIR

What runs in other interpreters imports nothing of ours, and reads its own:

ADVISOR_COMPILE_MEMORY_BYTES  address space of a compiling worker (`compiled/compiler/worker.py`, which reads ADVISOR_DEBUG too)
ADVISOR_TRITON_PYTHON         the Python whose triton compiles, which runs `triton_install.py` to say what it has (default: this one)
ADVISOR_RECORD                file that launches are recorded in (`compiled/recorder/`)
ADVISOR_RECORD_CONTENTS       names of the tensors whose contents are recorded too, separated by commas
ADVISOR_RECORD_FIRST          of each kernel, how many distinct launches are recorded (empty: all)
"""

from __future__ import annotations

import math
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast, get_args

from advisor.system.errors import UsageError

Mode = Literal["measure", "predict", "cached", "exhaustive", "off"]
COMPILE_LIMIT_S = 120.0
"""Of one compilation. Huge tiles take minutes, and say nothing until then."""
MODES: tuple[str, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The environment's say, None where it says nothing."""

    autotune: str | None
    cache_dir: Path
    config_dir: Path
    table_folders: tuple[Path, ...]
    debug: bool
    try_for: str
    compile_limit: str = ""

    @property
    def try_s(self) -> float | None:
        """Seconds for which other configurations of a kernel are tried; None: nothing was said.

        Raises:
            UsageError: ADVISOR_TRY_FOR is no such number.
        """
        if not self.try_for:
            return None
        if not re.fullmatch(r"\d{1,7}(\.\d+)?", self.try_for):
            raise UsageError("ADVISOR_TRY_FOR: not a number of seconds", self.try_for, "0 or more", "correct or unset it")
        return float(self.try_for)

    @property
    def compile_limits_s(self) -> tuple[float, float]:
        """Seconds that one compilation may take, and all of a command together.

        Raises:
            UsageError: ADVISOR_COMPILE_LIMIT is not one or two positive numbers.
        """
        return check_compile_limit(self.compile_limit, "ADVISOR_COMPILE_LIMIT") if self.compile_limit else (COMPILE_LIMIT_S, math.inf)

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
    tables = [environment.get(name, "").strip() for name in ("VLLM_TUNED_CONFIG_FOLDER", "SGLANG_MOE_CONFIG_DIR", "ADVISOR_CORPUS")]
    return Settings(
        autotune=environment.get("ADVISOR_AUTOTUNE", "").strip().lower() or None,
        cache_dir=_folder(environment, environment.get("ADVISOR_CACHE_DIR"), "XDG_CACHE_HOME", "LOCALAPPDATA", ".cache"),
        config_dir=_folder(environment, None, "XDG_CONFIG_HOME", "APPDATA", ".config"),
        table_folders=tuple(Path(name) for name in tables if name),
        debug=bool(environment.get("ADVISOR_DEBUG")),
        try_for=environment.get("ADVISOR_TRY_FOR", "").strip(),
        compile_limit=environment.get("ADVISOR_COMPILE_LIMIT", "").strip(),
    )


def check_compile_limit(text: str, where: str) -> tuple[float, float]:
    """The seconds in `60` or `60,600`: of one compilation, and of all together.

    Raises:
        UsageError: It is something else.
    """
    try:
        limits = [float(part) for part in text.split(",")]
    except ValueError:
        limits = []
    if not 1 <= len(limits) <= 2 or not all(seconds > 0 for seconds in limits):
        raise UsageError(f"{where}: no limits in seconds", text, "of one compilation, or of one and of all together, as in 60,600")
    return limits[0], limits[1] if len(limits) > 1 else math.inf


def check_mode(mode: str, where: str) -> Mode:
    """`mode`, where it is one.

    Raises:
        UsageError: It is not.
    """
    if mode not in MODES:
        raise UsageError(f"{where}: no such mode", mode, f"one of {', '.join(MODES)}")
    return cast(Mode, mode)


def _folder(environment: Mapping[str, str], named: str | None, variable: str, on_windows: str, usual: str) -> Path:
    """`named`, else triton-advisor in the folder that the variable names, or in the user's usual one.

    What nobody named is no relative path, which would be a stranger's in a stranger's checkout.
    """
    base = environment.get(variable) or (environment.get(on_windows) if sys.platform == "win32" else None)
    if base and not named and os.path.isabs(base):  # noqa: PTH117
        return Path(base) / "triton-advisor"
    try:
        return Path(named or f"~/{usual}/triton-advisor").expanduser()
    except RuntimeError:  # no home folder: that of a user without a name
        return Path(named or f"{os.sep}{usual}/triton-advisor")
