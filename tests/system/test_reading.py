"""Reading text: files, pipes, packed files, and what is none of these."""

from __future__ import annotations

import gzip
import os
import tracemalloc
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.system import reading
from advisor.system.errors import InputError
from advisor.system.reading import parse_toml, read_text


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("pipe", [False, True])
def test_files_and_pipes(tmp_path: Path, packed: bool, pipe: bool) -> None:
    data = "\ufeffa,b\r\n1,µ\r\n".encode()
    data = gzip.compress(data) if packed else data
    path = tmp_path / "rows.csv"
    path.write_bytes(data)
    if pipe:  # as a shell gives one: `<(command)`
        reading, writing = os.pipe()
        os.write(writing, data)
        os.close(writing)
        path = Path(f"/dev/fd/{reading}")
    assert read_text(path, "rows.csv", "a CSV file", 100, unpack=True) == "a,b\r\n1,µ\r\n"
    if pipe:
        os.close(reading)


def test_a_pipe_that_nobody_writes_to_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(InputError, match="is no file but a pipe or a device"):
            read_text(path, "r", "a list", 10)


def test_a_key_of_many_parts_is_refused_before_it_is_parsed() -> None:
    """Python's parser takes 13 s for 40 kB of them."""
    assert parse_toml(b"[a.b]\nc = [1.5, 2.5]\n", "t.toml") == {"a": {"b": {"c": [1.5, 2.5]}}}
    for text in (b"a" + b".a" * 20_000 + b" = 1", b"[a" + b".a" * 20_000 + b"]", b"a = " + b"[" * 50_000, b"\xff"):
        with pytest.raises(InputError, match=r"t\.toml: is not TOML"):
            parse_toml(text, "t.toml")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"x" * 11, "r: file too large; got over 10 bytes; expected at most 10 bytes"),
        (b"\xff", "r: not UTF-8 text; expected a list"),
        (b"\x28\xb5\x2f\xfd\x00", "r: not UTF-8 text; got zstd's first bytes; expected a list; unpack it first"),
        ("1".encode("utf-16"), "got UTF-16's first bytes; expected a list; save it as UTF-8"),
        (gzip.compress(b"x" * 11, mtime=0), "r: file too large"),
        (gzip.compress(b"1", mtime=0)[:-4], "r: damaged gzip file"),
    ],
)
def test_what_is_no_text(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "r"
    path.write_bytes(data)
    with pytest.raises(InputError) as raised:
        read_text(path, "r", "a list", 10, unpack=True)
    assert said in str(raised.value)


@pytest.mark.parametrize("packed", [False, True])
def test_a_small_file_takes_little_memory_whatever_it_may_hold(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "r"
    path.write_bytes(gzip.compress(b"1") if packed else b"1")
    tracemalloc.start()
    try:
        assert read_text(path, "r", "a list", 1 << 30, unpack=True) == "1"
        assert tracemalloc.get_traced_memory()[1] < 1 << 23
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("name", "said"), [("", "is a directory"), ("none", r"cannot be read \(No such file"), ("\0", "not a path")])
def test_what_is_no_file(tmp_path: Path, name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        read_text(tmp_path / name, name, "a list", 10)


def test_a_mark_and_packed_text_stay_where_they_are_none_of_the_format(tmp_path: Path) -> None:
    path = tmp_path / "r"
    path.write_bytes("\ufeff[]".encode())
    assert read_text(path, "r", "a list", 10, encoding="utf-8") == "\ufeff[]"
    path.write_bytes(gzip.compress(b"[]"))
    with pytest.raises(InputError, match="not UTF-8"):
        read_text(path, "r", "a list", 100)


def test_the_folder_at_hand_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=r"^\.: is a directory"):
        read_text(".", Path().name, "a CSV file", 10)


def test_files_below_are_sorted_and_links_to_folders_not_entered(tmp_path):
    for name in ("b/2.json", "a/1.json", "a/note.txt", "3.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    (tmp_path / "a" / "round").symlink_to(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in reading.files_below(tmp_path, ".json")] == ["3.json", "a/1.json", "b/2.json"]


@pytest.mark.parametrize("command", [["advise"], ["audit"]])
def test_a_folder_of_far_too_many_files_is_named(tmp_path, monkeypatch, capsys, command):
    (tmp_path / "deep").mkdir()
    for i in range(4):
        (tmp_path / "deep" / f"{i}.json").write_text("{}")
    monkeypatch.setattr(reading, "ENTRY_LIMIT", 3)
    with pytest.raises(InputError, match="too many files"):
        reading.files_below(tmp_path, ".json")
    assert main([*command, str(tmp_path)]) == 2
    assert "too many files" in capsys.readouterr().err
