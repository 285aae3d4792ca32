"""Looking for files below a folder."""

from __future__ import annotations

import pytest

from advisor.cli import main
from advisor.system import reading
from advisor.system.errors import InputError


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
