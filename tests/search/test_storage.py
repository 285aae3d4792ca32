"""Storage URLs: which driver opens them, and what is never shown of them."""

from __future__ import annotations

import sys

import optuna
import pytest

from advisor.cli import main
from advisor.search import storage
from advisor.search.storage import open_storage, without_password
from advisor.system.errors import MissingDependencyError


@pytest.mark.parametrize(
    ("url", "installed", "opened"),
    [
        ("postgresql://me@host/studies", {"psycopg2"}, "postgresql+psycopg2://me@host/studies"),
        ("postgresql://me@host/studies", {"psycopg", "psycopg2"}, "postgresql+psycopg://me@host/studies"),
        ("postgresql+asyncpg://me@host/studies", {"psycopg2"}, "postgresql+asyncpg://me@host/studies"),
        ("sqlite:///studies.db", {"psycopg2"}, "sqlite:///studies.db"),
    ],
)
def test_the_driver_that_is_installed_opens_postgresql(monkeypatch, url, installed, opened):
    asked = []
    monkeypatch.setattr(storage, "find_spec", lambda name: name if name in installed else None)
    monkeypatch.setattr(optuna.storages, "get_storage", asked.append)
    open_storage(url)
    assert asked == [opened]


@pytest.mark.parametrize(
    ("url", "missing", "remedy"),
    [
        ("postgresql://me:secret@127.0.0.1:1/none", "psycopg2", "pip install psycopg2-binary"),
        ("postgresql+nosuchdriver://me:secret@127.0.0.1:1/none", None, ""),
        ("mysql://me:secret@127.0.0.1:1/none", "MySQLdb", "pip install mysqlclient"),
    ],
)
def test_a_driver_that_is_not_installed_is_named(monkeypatch, url, missing, remedy):
    for name in ("psycopg", "psycopg2", "MySQLdb"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(storage, "find_spec", lambda name: None)
    with pytest.raises(Exception, match=r"needs (psycopg2|MySQLdb), which is not installed|cannot be opened") as error:
        open_storage(url)
    assert "secret" not in str(error.value) and isinstance(error.value, MissingDependencyError) == (missing is not None)
    assert missing is None or (missing in str(error.value) and remedy in str(error.value))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://me:secret@host/studies", "postgresql://me@host/studies"),
        ("postgresql://me:sec?secret@host/studies?application_name=a", "postgresql://me@host/studies?application_name=a"),
        ("--storage=postgresql://me:secret@host/studies", "--storage=postgresql://me@host/studies"),
        (
            "postgresql://host/studies?user=me&password=secret&sslmode=require",
            "postgresql://host/studies?user=me&password=***&sslmode=require",
        ),
        ("postgresql://host/studies?sslPassword=secret", "postgresql://host/studies?sslPassword=***"),
        ("mysql://host/studies?user=me@there&passwd=secret", "mysql://host/studies?user=me@there&passwd=***"),
        ("sqlite:///folder/studies.db", "sqlite:///folder/studies.db"),
        ("out/me:x@studies.journal", "out/me:x@studies.journal"),
    ],
)
def test_no_password_is_shown(text, shown):
    assert without_password(text) == shown


def test_reports_do_not_hold_the_password(tmp_path, monkeypatch, capsys):
    """Databases refuse most of what a SQLite URL takes, and are not at hand: what is written is the command line, whatever it opens."""
    url = "postgresql://me:secret@host/studies?password=secret"
    monkeypatch.setattr(storage, "_database", lambda _: optuna.storages.InMemoryStorage())
    arguments = ["tune", "softmax", "--device", "fake,gpu=H200", "--sizes", "B=64,H=512", "--trials", "1", "--storage", url]
    monkeypatch.setattr(sys, "argv", ["advisor", *arguments, "--output", str(tmp_path)])
    assert main(sys.argv[1:]) == 0
    printed = capsys.readouterr().out  # where Optuna's own interface finds the study: without the driver it may look for another
    assert " in postgresql+psycopg" in printed and "://me@host/studies?password=***" in printed and "secret" not in printed
    for name in ("report.html", "result.json"):
        written = (tmp_path / name).read_text()
        assert "me@host/studies" in written and "secret" not in written
