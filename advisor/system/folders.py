"""Looking for files below a folder that a user named."""

from __future__ import annotations

import os
from pathlib import Path

from advisor.system.errors import InputError

ENTRY_LIMIT = 300_000
"""Files and folders looked at before giving up: a checkout of vLLM has some ten thousand, an environment with torch fifty thousand. Who
names / or a home folder by mistake is told within seconds instead of waiting for the disk."""


def not_permitted(path: Path) -> InputError:
    """The error for a file or folder that is there, or may be, and cannot be looked at."""
    return InputError(f"{path}: permission denied", None, "a file or folder that you may read", "check its permissions, and its folder's")


def files_below(folder: Path, suffix: str) -> list[Path]:
    """Every file below a folder whose name ends in `suffix`, in the order of their paths; links to folders are not entered.

    Raises:
        InputError: The folder may not be read, or holds more than `ENTRY_LIMIT` files and folders.
    """
    seen = 0
    found: list[Path] = []

    def failed(error: OSError) -> None:
        # Others' folders below it (lost+found, a cache that several people share) are passed over.
        if isinstance(error, PermissionError) and error.filename == os.fspath(folder):
            raise not_permitted(folder) from None

    for where, folders, names in os.walk(folder, onerror=failed):
        seen += len(folders) + len(names)
        if seen > ENTRY_LIMIT:
            raise InputError(
                f"{folder}: too many files to look through",
                f"more than {ENTRY_LIMIT:,}",
                f"at most {ENTRY_LIMIT:,}",
                "name the folder that holds the tables",
            )
        found += [Path(where) / name for name in names if name.endswith(suffix)]
    return sorted(found)
