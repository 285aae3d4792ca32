"""Looking for files below a folder that a user named."""

from __future__ import annotations

import os
from pathlib import Path

from advisor.errors import InputError

ENTRY_LIMIT = 300_000
"""Files and folders looked at before giving up: a checkout of vLLM has some ten thousand, an environment with torch fifty thousand. Who
names / or a home folder by mistake is told within seconds instead of waiting for the disk."""


def files_below(folder: Path, suffix: str) -> list[Path]:
    """Every file below a folder whose name ends in `suffix`, in the order of their paths; links to folders are not entered.

    Raises:
        InputError: The folder holds more than `ENTRY_LIMIT` files and folders.
    """
    seen = 0
    found: list[Path] = []
    for where, folders, names in os.walk(folder):
        seen += len(folders) + len(names)
        if seen > ENTRY_LIMIT:
            raise InputError(f"{folder}: too many files to look through", f"more than {ENTRY_LIMIT:,}", f"at most {ENTRY_LIMIT:,}",
                             "name the folder that holds the tables")  # fmt: skip
        found += [Path(where) / name for name in names if name.endswith(suffix)]
    return sorted(found)
