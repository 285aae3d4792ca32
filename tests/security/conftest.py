"""Fixtures of the red team's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.compiled.compiler.pool import Worker

from .rooms import SECRET, need_walls, unguard

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of a runner: a token, by names that say so and names that do not."""
    for name in ("GITHUB_TOKEN", "HARMLESS_CANARY", "TRITON_REDIS_HOST", "http_proxy"):
        monkeypatch.setenv(name, SECRET)


@pytest.fixture(scope="session")
def free_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the files of workers lie that run whatever a source says."""
    return tmp_path_factory.mktemp("free")


@pytest.fixture(scope="session")
def shared_worker() -> Iterator[Worker]:
    """Starts with the first request, within a test, and serves the tests after it: it runs nothing of a request itself, and what answers
    one ends with it (`test_what_one_request_leaves_no_other_finds`)."""
    worker = Worker()
    yield worker
    worker.close()


@pytest.fixture
def room_worker(shared_worker: Worker, free_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Worker:
    """A worker, in whose room the request's Python is free to run."""
    need_walls()
    unguard(free_folder, monkeypatch)
    return shared_worker


@pytest.fixture
def own_worker(free_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Worker]:
    """Such a worker that starts in this test, with the environment and the folder that the test gives it."""
    need_walls()
    unguard(free_folder, monkeypatch)
    worker = Worker()
    yield worker
    worker.close()


@pytest.fixture(params=["guard", "room alone"])
def defence(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """With all defences, and with the guard switched off."""
    need_walls()
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    if request.param == "room alone":
        unguard(tmp_path / "free", monkeypatch)
    return str(request.param)
