"""What the environment says is read in one place, and the same for every cache."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from advisor.compiled.compiler.compile import cache_folder
from advisor.system.errors import UsageError
from advisor.system.settings import read_settings


@pytest.mark.parametrize(
    ("environment", "platform", "folder"),
    [
        ({"ADVISOR_CACHE_DIR": "~/c", "XDG_CACHE_HOME": "/x"}, "linux", "HOME/c"),
        ({"XDG_CACHE_HOME": "/x"}, "linux", "/x/triton-advisor"),
        ({"XDG_CACHE_HOME": "", "LOCALAPPDATA": "/local"}, "linux", "HOME/.cache/triton-advisor"),
        ({"XDG_CACHE_HOME": "of/a/checkout"}, "linux", "HOME/.cache/triton-advisor"),
        ({"LOCALAPPDATA": "/local"}, "win32", "/local/triton-advisor"),
    ],
)
def test_every_cache_lies_in_the_folder_that_the_environment_names(monkeypatch, tmp_path, environment, platform, folder):
    for name in ("ADVISOR_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**environment, "HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.platform", platform)
    expected = Path(folder.replace("HOME", str(tmp_path)))
    assert read_settings().cache_dir == expected
    assert cache_folder() == expected / "compiled"


def test_a_missing_home_folder_fails_nothing(monkeypatch):
    def no_home(self: Path) -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "expanduser", no_home)
    monkeypatch.delenv("ADVISOR_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path("/.cache/triton-advisor/compiled")


def test_a_wrong_mode_is_told_to_those_who_ask_for_it():
    settings = read_settings({"ADVISOR_AUTOTUNE": "sometimes", "ADVISOR_DEBUG": "1"})
    assert settings.debug and not read_settings({}).debug and read_settings({}).mode is None
    with pytest.raises(UsageError, match="ADVISOR_AUTOTUNE: no such mode"):
        settings.mode  # noqa: B018


def test_how_long_compilations_may_take() -> None:
    assert read_settings({}).compile_limits_s == (120.0, math.inf)
    assert read_settings({"ADVISOR_COMPILE_LIMIT": "5"}).compile_limits_s == (5.0, math.inf)
    assert read_settings({"ADVISOR_COMPILE_LIMIT": " 5,60 "}).compile_limits_s == (5.0, 60.0)
    for text in ("soon", "0", "1,2,3", "5,-1"):
        with pytest.raises(UsageError, match="ADVISOR_COMPILE_LIMIT: no limits"):
            _ = read_settings({"ADVISOR_COMPILE_LIMIT": text}).compile_limits_s
