"""Nothing that a request writes is imported by the process that starts the next one, whatever PYTHONPATH names."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.compiled.compiler import pool
from advisor.compiled.compiler.compile import version
from advisor.compiled.compiler.pool import Worker
from advisor.system import sandbox
from advisor.system.errors import MissingDependencyError
from tests.comparison.repository import Repository

from .rooms import kernel_request, need_walls, python

PLAIN = "import triton\nimport triton.language as tl\n\n\n@triton.constexpr_function\ndef f(n):\n    return n\n"
KERNEL = "".join(f"\n\n@triton.jit\ndef {name}(x, N: tl.constexpr = 16):\n    tl.store(x, f(N))\n" for name in ("k", "second", "third"))
DEEP = """import os
os.chdir(os.environ['HOME'])
os.mkdir('resource'); os.chdir('resource')
top = os.getcwd()
for i in range(12): os.mkdir('d%d' % i)
os.chdir(os.listdir('.')[0])
for i in range(1500): os.mkdir('d'); os.chdir('d')
os.chdir(top)
open('__init__.py', 'w').write({module!r})
"""
"""A module whose name the room imports, beside a folder too deep to remove by recursion, where the worker of old left both."""
ENTRIES = (".", "", "/nowhere", "here/../.", "here", "CHECKOUT/here")
"""What PYTHONPATH may name: the working folder, as a dot, nothing, or a way back to it, and a folder within it. If one of them were read,
what lies there would come before Python's own."""
PATHS = {"unset": None, "every form": ":".join(ENTRIES)}


@pytest.fixture(params=list(PATHS))
def python_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str | None:
    """PYTHONPATH in its forms."""
    value = PATHS[request.param]
    if value is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", value)
    return value


@pytest.fixture
def marker(tmp_path: Path) -> Path:
    """A file that appears where something runs outside; anybody may write it."""
    folder = tmp_path / "outside"
    folder.mkdir()
    for each in (tmp_path.parent, tmp_path, folder):
        each.chmod(0o777)
    return folder / "marker"


def leaving(marker: Path) -> str:
    return DEEP.format(module=f"open({str(marker)!r}, 'a').write('outside')\n")


def test_what_a_request_leaves_is_not_imported(python_path: str | None, marker: Path, own_worker: Worker) -> None:
    """The room alone: Python that runs freely tries to leave a module and what keeps it from being removed."""
    assert "ValueError" in own_worker.ask(python(leaving(marker) + "return 'left'"), 60)["error"]
    assert own_worker.ask(python("return 'a.b'"), 30)["error"].count("a.b") == 1
    assert not marker.exists()


def test_a_pull_request_stays_inside(
    python_path: str | None, marker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A default over several lines, whose rest became the body when headers were copied by lines."""
    need_walls()
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    code = (leaving(marker) + "raise ValueError('done')\n").encode().hex()
    hostile = PLAIN.replace("def f(n):\n", f'def f(n="""\n    exec(bytes.fromhex(\'{code}\').decode()) #""", m=1):\n')
    repository = Repository(tmp_path / "repository")
    repository.commit({"k.py": PLAIN + KERNEL})
    repository.commit({"k.py": hostile + KERNEL})
    monkeypatch.chdir(repository.folder)
    assert main(["compare", "HEAD^", "HEAD", "--gpu", "H100", "--require-sandbox", "--format", "md"]) == 1
    told = capsys.readouterr().out
    assert "k.py::k" in told and "several lines" in told
    assert not marker.exists()


@pytest.mark.parametrize("name", ["triton", "resource", "json"])
def test_modules_of_the_working_folder_are_not_imported(
    name: str, python_path: str | None, marker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_worker: Worker
) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(f"open({str(marker)!r}, 'a').write('outside')\n")
    monkeypatch.chdir(tmp_path)
    assert "a.b" in own_worker.ask(python("return 'a.b'"), 30)["error"]
    assert not marker.exists()


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The place of temporary folders, empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder


def test_temporary_folders_may_be_the_working_folder(folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_walls()
    monkeypatch.setattr(tempfile, "tempdir", ".")  # as TMPDIR=. has it
    monkeypatch.chdir(folders)
    worker = Worker()
    try:
        assert "asm" in worker.ask(kernel_request(), 60)
    finally:
        worker.close()
    assert not list(folders.iterdir())


def test_a_worker_ends_where_a_folder_cannot_be_removed(folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    need_walls()
    request = kernel_request()
    copy = tmp_path / "room.py"
    text = Path(sandbox.__file__).read_text()
    copy.write_text(text + "\n\ndef remove_folder(folder):\n    raise OSError\n")
    monkeypatch.setattr(sandbox, "__file__", str(copy))
    worker = Worker()
    try:
        assert "asm" in worker.ask(request, 60)
        process = worker.process
        assert process is not None and process.wait(20) == 0
        assert "asm" in worker.ask(request, 60)  # of another worker, in another folder
        assert worker.process is not process
    finally:
        worker.close()


def test_a_folder_is_removed_however_deep_and_closed(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    (folder / "0").write_text("in the way of what is moved")
    outside = tmp_path / "kept"
    outside.mkdir()
    (outside / "file").write_text("kept")
    here = os.open(folder, os.O_RDONLY)
    for i in range(3000):
        os.mkdir("d" * 200, dir_fd=here)
        if i % 500 == 0:
            os.symlink(outside, "link", dir_fd=here)
            os.mkdir("closed", 0, dir_fd=here)
        inner = os.open("d" * 200, os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    sandbox.remove_folder(str(folder))
    assert not folder.exists()
    assert (outside / "file").read_text() == "kept"


def test_folders_of_killed_runs_are_removed_by_the_next(folders: Path) -> None:
    abandoned, used, young, other = (folders / name for name in ("advisor-worker-a", "advisor-worker-b", "advisor-worker-c", "x"))
    for each in (abandoned, used, young, other):
        each.mkdir()
    (abandoned / "lock").touch()
    (abandoned / "left").mkdir(mode=0)
    lock = pool._locked(used / "lock", os.O_CREAT)
    pool.remove_abandoned()
    os.close(lock)
    assert sorted(each.name for each in folders.iterdir()) == ["advisor-worker-b", "advisor-worker-c", "x"]


def test_a_python_without_a_safe_path_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = tmp_path / "python3.10"
    python.write_text('#!/bin/sh\necho \'{"version": "3.6.0", "folder": "/x/triton", "python": [3, 10], "too_old": "3.10.12"}\'\n')
    python.chmod(0o755)
    monkeypatch.setenv("ADVISOR_TRITON_PYTHON", str(python))
    with pytest.raises(MissingDependencyError, match=r"too old; got 3\.10\.12; expected Python 3\.11 or newer"):
        version()


@pytest.mark.parametrize("how", ["a console script", "python -m"])
def test_the_command_imports_nothing_from_the_working_folder(how: str, python_path: str | None, marker: Path, tmp_path: Path) -> None:
    """Nor does it where that is the checkout of a pull request."""
    checkout = tmp_path / "checkout"
    (checkout / "here").mkdir(parents=True)
    for module in ("json", "argparse", "numpy", "tomllib", "dataclasses"):
        for folder in (checkout, checkout / "here"):
            (folder / f"{module}.py").write_text(f"open({str(marker)!r}, 'a').write('outside')\n")
    (checkout / "k.py").write_text(PLAIN + KERNEL)
    script = tmp_path / "advisor"
    script.write_text("import sys\nfrom advisor.cli import main\nsys.exit(main())\n")
    start = [sys.executable, str(script)] if how == "a console script" else [sys.executable, "-m", "advisor"]
    environment = os.environ | ({"PYTHONPATH": python_path.replace("CHECKOUT", str(checkout))} if python_path is not None else {})
    command = [*start, "inspect", "k.py::k", "--target", "sm_90", "--untrusted", "--format", "json"]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not marker.exists()
