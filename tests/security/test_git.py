"""A repository whose configuration, attributes and objects would run programs, or show other things than they hold, does neither."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest

from advisor.cli import main
from advisor.comparison import Options
from advisor.comparison.sides import in_a_room
from advisor.compiled.compiler import pool
from tests.comparison.repository import Repository

from .rooms import SECRET, need_walls

KERNEL = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(x):\n    tl.store(x, 1.0)\n"
BROKEN = KERNEL + "def (\n"
RUNS = {
    "core.fsmonitor": {},
    "core.sshCommand": {},
    "core.pager": {},
    "core.editor": {},
    "core.hooksPath": {},
    "diff.external": {},
    "diff.evil.textconv": {".gitattributes": "*.py diff=evil\n"},
    "diff.evil.command": {".gitattributes": "*.py diff=evil\n"},
    "filter.evil.smudge": {".gitattributes": "*.py filter=evil\n"},
    "filter.evil.process": {".gitattributes": "*.py filter=evil\n"},
    "merge.evil.driver": {".gitattributes": "*.py merge=evil\n"},
    "gpg.program": {},
    "uploadpack.packObjectsHook": {},
    "credential.helper": {},
}
"""Keys of Git's configuration that name a program -> what is committed so that it would be asked for."""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    need_walls()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "compiled").symlink_to(Path(os.environ["ADVISOR_CACHE_DIR"]) / "compiled")  # the kernels are not what is tried
    monkeypatch.setenv("ADVISOR_CACHE_DIR", str(tmp_path / "cache"))
    found = Repository(tmp_path / "repository")
    monkeypatch.chdir(found.folder)
    return found


def compare(tmp_path: Path) -> str:
    assert main(["compare", "HEAD^", "HEAD", "--gpu", "H100", "--output", str(tmp_path / "out")]) in (0, 1, 4, 5)
    return "".join(path.read_text() for path in (tmp_path / "out").iterdir())


@pytest.mark.parametrize("key", list(RUNS))
def test_what_git_is_configured_to_run_is_not_run(key: str, repository: Repository, tmp_path: Path) -> None:
    canary, program = tmp_path / "canary", tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho > {canary}\ncat\n")
    program.chmod(0o755)
    repository.commit({"k.py": KERNEL})
    repository.commit({"k.py": KERNEL.replace("1.0", "2.0"), **RUNS[key]})
    for hook in ("post-checkout", "reference-transaction", "fsmonitor-watchman"):
        (repository.folder / ".git" / "hooks").mkdir(exist_ok=True)
        (repository.folder / ".git" / "hooks" / hook).write_text(program.read_text())
        (repository.folder / ".git" / "hooks" / hook).chmod(0o755)
    with (repository.folder / ".git" / "config").open("a") as config:
        section, _, name = key.rpartition(".")
        group, _, part = section.partition(".")
        config.write(f"[{group}{f' {chr(34)}{part}{chr(34)}' if part else ''}]\n    {name} = {program}\n")
    canary.unlink(missing_ok=True)
    assert "k.py::k" in compare(tmp_path)
    assert not canary.exists()


def test_a_replaced_object_is_not_what_is_compared(repository: Repository, tmp_path: Path) -> None:
    """`git replace` shows another object in the place of one."""
    repository.commit({"k.py": KERNEL})
    repository.commit({"k.py": KERNEL.replace("1.0", "2.0")})
    blobs = [repository.git("rev-parse", f"{revision}:k.py") for revision in ("HEAD", "HEAD^")]
    repository.git("replace", *blobs)
    assert "k.py::k" in compare(tmp_path)


def test_links_and_submodules_lead_nowhere(repository: Repository, tmp_path: Path) -> None:
    secret = tmp_path / "secret.py"
    secret.write_text(f"{KERNEL}# {SECRET}\n")
    other = Repository(tmp_path / "other")
    commit = other.commit({"k.py": secret.read_text()})
    repository.commit({"k.py": KERNEL})
    repository.commit({"k.py": Path(str(secret)), "E=8,N=1024,device_name=NVIDIA_H100.json": Path("../secret.py")})
    repository.git("update-index", "--add", "--cacheinfo", f"160000,{commit},sub")
    repository.git("commit", "--quiet", "--amend", "-m", "change")
    assert SECRET not in compare(tmp_path)


@pytest.mark.parametrize(
    "name", ["\x1b[2Jk.py", "<img src=x onerror=alert(1)>.py", "`x`](https:x).py", "\u202ek.py", "a\nb.py", "@everyone.py"]
)
def test_names_of_files_stand_as_names(name: str, repository: Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    repository.commit({name: KERNEL.replace("/", "")})
    repository.commit({name: KERNEL.replace("1.0", "2.0")})
    compare(tmp_path)
    comment, page = ((tmp_path / "out" / each).read_text() for each in ("comment.md", "comparison.html"))
    for text in (comment, page, *capfd.readouterr()):
        assert not {"\x1b", "\u202e"} & set(text)
    prose = re.sub(r"(`+)[^`].*?\1(?!`)", "", comment)  # what stands in a code span stands for itself
    assert "<img src=x" not in page and "<img" not in prose
    assert "](https:x)" not in prose


@pytest.mark.parametrize("what", ["bytes", "a file as a folder", "two files of one name"])
def test_a_damaged_tree_is_said_to_be_one(what: str, repository: Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    repository.commit({"k.py": KERNEL})
    data = b"\xff" * 100
    if what != "bytes":
        data = b"40000 k.py\0" + bytes.fromhex(repository.git("rev-parse", "HEAD:k.py"))
    if what == "two files of one name":
        (tmp_path / "bad.py").write_text(BROKEN)
        names = (repository.git("hash-object", "-w", str(tmp_path / "bad.py")), repository.git("rev-parse", "HEAD:k.py"))
        data = b"".join(b"100644 k.py\0" + bytes.fromhex(name) for name in names)
    (tmp_path / "tree").write_bytes(data)
    tree = repository.git("hash-object", "-t", "tree", "--literally", "-w", str(tmp_path / "tree"))
    head = repository.git("commit-tree", tree, "-p", "HEAD", "-m", "change")
    assert main(["compare", "HEAD", head, "--gpu", "H100", "--no-compile"]) == 2
    assert "a tree of the repository is damaged" in capfd.readouterr().err


@pytest.mark.parametrize("form", ["two sides", "a range", "one side"])
def test_folders_that_are_called_like_revisions_are_not_compared_in_their_place(
    form: str, repository: Repository, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    repository.commit({"k.py": KERNEL})
    repository.git("branch", "before")
    repository.commit({"k.py": BROKEN, "before/x.txt": "", "HEAD/x.txt": ""})
    sides = {"two sides": ["before", "HEAD"], "a range": ["before..HEAD"], "one side": ["before"]}[form]
    assert main(["compare", *sides, "--gpu", "H100", "--no-compile"]) == (2 if form == "two sides" else 1)
    assert ("both sides are paths here, and revisions" in capfd.readouterr().err) == (form == "two sides")
    assert main(["compare", "./before", "./HEAD", "--gpu", "H100", "--no-compile"]) == 5


def test_a_file_that_is_called_like_a_revision_takes_no_wall_away(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and folders are one's own, and compiled without walls too; revisions are not."""
    repository.commit({"before": "", "before..HEAD": "", "k.py": KERNEL})
    monkeypatch.setattr(pool, "sandbox_lacks", lambda: "files: no Landlock")
    for sides in (["before"], ["before..HEAD"]):
        assert not in_a_room(Options(compiling=True), sides)[0].compiling
    assert in_a_room(Options(compiling=True), ["before", "k.py"])[0].compiling


@pytest.mark.parametrize("parts", ["objects", "commondir"])
def test_files_of_a_repository_are_no_repository(
    parts: str, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A folder of the change that git takes for a bare repository, with branches and a configuration of its own."""
    repository.commit({"sub/k.py": KERNEL})
    own = {"objects/x": "", "refs/x": ""} if parts == "objects" else {"commondir": "../.git"}
    repository.commit({"sub/k.py": BROKEN} | {f"sub/{name}": text for name, text in {"HEAD": "ref: refs/heads/main\n", **own}.items()})
    (repository.folder / "sub" / "deeper").mkdir()
    for folder in ("sub", "sub/deeper"):
        monkeypatch.chdir(repository.folder / folder)
        assert main(["compare", "HEAD^", "HEAD", "--gpu", "H100", "--no-compile"]) == 2
        assert "git would read this folder of the repository as one of its own" in capfd.readouterr().err
    monkeypatch.chdir(repository.folder)
    assert main(["compare", "HEAD^", "HEAD", "--gpu", "H100", "--no-compile"]) == 1


@pytest.mark.parametrize("way", ["uploadpack", "core.sshCommand"])
def test_a_git_that_fetches_by_itself_runs_nothing(
    way: str, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one before 2.39.4, which knows no GIT_NO_LAZY_FETCH: the stand-in takes it out of the environment."""
    canary, program, real = tmp_path / "canary", tmp_path / "program", shutil.which("git")
    program.write_text(f"#!/bin/sh\necho > {canary}\nexit 1\n")
    program.chmod(0o755)
    repository.commit({"k.py": KERNEL})
    repository.commit({"k.py": KERNEL.replace("1.0", "3.0") + f"# {way}\n"})
    with (repository.folder / ".git" / "config").open("a") as config:
        config.write("[extensions]\n    partialClone = o\n" + "[remote 'o']\n    promisor = true\n".replace("'", '"'))
        url = "ssh://x/y" if way != "uploadpack" else tmp_path / "nowhere"
        config.write(f"    url = {url}\n    uploadpack = {program}\n[core]\n    sshCommand = {program}\n")
    name = repository.git("rev-parse", "HEAD:k.py")
    (repository.folder / ".git" / "objects" / name[:2] / name[2:]).unlink()
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "git").write_text(f'#!/bin/sh\nunset GIT_NO_LAZY_FETCH\nexec {real} "$@"\n')
    (tmp_path / "bin" / "git").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert main(["compare", "HEAD^", "HEAD", "--gpu", "H100", "--no-compile"]) == 2
    assert not canary.exists()
