"""Files are written whole or not at all, and what cannot be written is named with a remedy."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from advisor.system.errors import UsageError
from advisor.system.writing import MAKE_ROOM, replacing, temporary_folder


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


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_and_the_file_it_leads_to_is_replaced(tmp_path: Path, there: bool) -> None:
    folder, link = tmp_path / "folder", tmp_path / "link.csv"
    folder.mkdir()
    if there:
        (folder / "real.csv").write_text("old")
    (folder / "other.csv").symlink_to("real.csv")
    link.symlink_to(Path("folder", "other.csv"))
    with replacing(link, "") as place:
        place.write_text("new")
        assert place.parent.samefile(folder) and (folder / "real.csv").exists() == there
    assert link.is_symlink() and (folder / "other.csv").is_symlink() and (folder / "real.csv").read_text() == "new"
    assert len(list(folder.iterdir())) == 2


@pytest.mark.skipif(os.name != "posix", reason="needs file modes")
@pytest.mark.parametrize("linked", [True, False])
def test_a_private_file_stays_private(tmp_path: Path, linked: bool) -> None:
    path, link = tmp_path / "rows.csv", tmp_path / "link.csv"
    path.write_text("old")
    path.chmod(0o600)
    link.symlink_to(path)
    with replacing(link if linked else path, "") as place:
        place.write_text("new")
        assert place.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o600


@pytest.mark.skipif(os.name != "posix", reason="needs file modes")
def test_a_file_that_was_not_to_be_written_to_is_replaced_and_stays_so(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("old")
    path.chmod(0o444)
    with replacing(path, "") as place:
        place.write_text("new")
    assert path.read_text() == "new" and path.stat().st_mode & 0o777 == 0o444


def test_links_in_a_circle_are_told(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(UsageError, match="cannot be written"), replacing(tmp_path / "a", "") as place:
        place.write_text("")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs Linux's /proc")
def test_standard_output_in_a_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    path, link = tmp_path / "out.txt", tmp_path / "stdout"  # /dev/stdout is such a link
    with path.open("w") as stream:
        link.symlink_to(f"/proc/self/fd/{stream.fileno()}")
        with replacing(link, "") as place:
            place.write_text("rows")
        assert link.is_symlink() and os.fstat(stream.fileno()).st_ino == path.stat().st_ino
    assert path.read_text() == "rows" and len(list(tmp_path.iterdir())) == 2


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs Linux's /dev/shm")
def test_a_link_in_shared_memory_is_a_link_as_any_other() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path, link = Path(folder, "real.csv"), Path(folder, "link.csv")
        path.write_text("old")
        link.symlink_to(path)
        with pytest.raises(UsageError), replacing(link, "") as place:
            place.write_text("half")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        assert path.read_text() == "old" and link.is_symlink() and len(list(Path(folder).iterdir())) == 2


def test_only_what_the_place_is_to_blame_for_is_blamed_on_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no number"), replacing(tmp_path / "rows.csv", ""):
        raise ValueError("no number")
    with pytest.raises(UsageError, match="null byte"), replacing(tmp_path / "rows\0.csv", "") as place:
        place.write_text("")
    assert not list(tmp_path.iterdir())


HOLD = """
from advisor.system.writing import temporary_folder
with temporary_folder("test") as folder:
    print(folder, flush=True)
    input()
"""


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def holder() -> tuple[subprocess.Popen, Path]:
    """A process with a folder of its own."""
    process = subprocess.Popen([sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    folder = Path(process.stdout.readline().strip())
    (folder / "inside").touch()
    return process, folder


def test_what_a_killed_process_left_is_removed_by_the_next(place):
    (place / "advisor-test-of-somebody").mkdir()
    (dead, left), (alive, kept) = holder(), holder()
    dead.send_signal(signal.SIGKILL)
    dead.communicate()
    assert left.exists()
    with temporary_folder("other") as own:
        assert own.is_dir() and not left.exists() and (kept / "inside").exists()
    assert not own.exists() and (place / "advisor-test-of-somebody").exists()
    alive.communicate("\n")
    assert alive.returncode == 0 and not kept.exists()
