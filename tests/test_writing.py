"""Files are written whole or not at all, and what cannot be written is named with a remedy."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from advisor.errors import UsageError
from advisor.writing import MAKE_ROOM, replacing


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("old")
    said = r"rows\.csv: cannot be written \(No space left on device\)"
    with pytest.raises(UsageError, match=said) as caught, replacing(path, "choose another place") as place:
        place.write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert caught.value.remedy == MAKE_ROOM and caught.value.limit
    assert path.read_text() == "old" and [each.name for each in tmp_path.iterdir()] == ["rows.csv"]


def test_another_reason_has_the_callers_remedy(tmp_path: Path) -> None:
    path = tmp_path / "none" / "rows.csv"
    with pytest.raises(UsageError, match="choose another place"), replacing(path, "choose another place") as place:
        place.write_text("")


def test_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    link = tmp_path / "null"
    link.symlink_to(os.devnull)
    with replacing(link, "") as place:
        place.write_text("gone")
    assert link.is_symlink() and not link.is_file() and len(list(tmp_path.iterdir())) == 1


def test_only_what_the_place_is_to_blame_for_is_blamed_on_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no number"), replacing(tmp_path / "rows.csv", ""):
        raise ValueError("no number")
    with pytest.raises(UsageError, match="null byte"), replacing(tmp_path / "rows\0.csv", "") as place:
        place.write_text("")
    assert not list(tmp_path.iterdir())
