"""A PostgreSQL server of the test's own; and no test of the search where there is no Optuna."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import IN_CI, missing

# What imports Optuna at its top ends the collection of everything else: a machine with a GPU need not have it for `pytest -m gpu`.
collect_ignore_glob = ["test_*.py"] if importlib.util.find_spec("optuna") is None and not IN_CI else []


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A study's journal waits for the disk with every line, a hundred times a trial: nothing here outlives a loss of power."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """URL of an empty database on a private server: a cluster in a temporary folder, reached through a socket in it."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    initdb = shutil.which("initdb") or next((str(f / "initdb") for f in reversed(folders) if (f / "pg_ctl").exists()), None)
    if initdb is None:
        missing("no PostgreSQL server (tests/setup/system-packages installs it)")
    try:
        import psycopg2  # noqa: F401
    except ImportError:
        missing("psycopg2 is not installed")
    # PostgreSQL refuses to run as root: as root, the account that its package made runs it.
    account = "postgres" if os.getuid() == 0 else None
    folder = Path(tempfile.mkdtemp(prefix="pg"))  # not tmp_path: a socket's path must be short, and its parents open to the account
    if account is not None:
        shutil.chown(folder, account)

    def run(*command: str) -> None:
        done = subprocess.run(command, capture_output=True, text=True, user=account, cwd=folder, check=False, timeout=120)
        assert done.returncode == 0, done.stderr + (folder / "log").read_text() if (folder / "log").exists() else done.stderr

    control = str(Path(initdb).with_name("pg_ctl"))
    data = str(folder / "data")
    try:
        run(initdb, "-D", data, "-U", "tester", "--auth=trust", "-E", "UTF8", "--no-sync")
        run(control, "-D", data, "-w", "-l", str(folder / "log"), "-o", f"-k {folder} -h '' -F", "start")
        yield f"postgresql://tester@/postgres?host={folder}"
    finally:
        subprocess.run([control, "-D", data, "-m", "immediate", "stop"], capture_output=True, user=account, cwd="/", check=False)
        shutil.rmtree(folder, ignore_errors=True)
