"""Repositories of every kind: bare ones, partial clones, and those that git refuses."""

from __future__ import annotations

import shutil

import pytest

from advisor.cli import main
from advisor.comparison.trees import git, trees
from advisor.system.errors import InputError

from .conftest import TABLE, entry, table


@pytest.fixture
def history(repository):
    repository.commit({TABLE: table(M64=entry()), "README": "1"})
    repository.commit({TABLE: table(M64=entry(stages=3)), "odd.bin": b"\0" * 100})
    return repository


def test_a_bare_repository_is_compared(history, tmp_path, capsys):
    bare = tmp_path / "bare.git"
    history.git("clone", "--quiet", "--bare", str(history.folder), str(bare))
    assert main(["compare", "HEAD^", "HEAD", "--no-compile", "--repository", str(bare)]) == 0
    assert "M=64" in capsys.readouterr().out


@pytest.mark.parametrize("base", ["HEAD^", "origin/other", "0123456789012345678901234567890123456789"])
def test_of_a_shallow_clone_it_is_said_what_it_lacks(history, tmp_path, capsys, base):
    clone = tmp_path / "clone"
    history.git("clone", "--quiet", "--depth=1", history.folder.as_uri(), str(clone))
    assert main(["compare", base, "HEAD", "--repository", str(clone)]) == 2
    said = capsys.readouterr().err
    assert f"{base}: neither a path nor a revision" in said and "shallow clone" in said and "fetch-depth: 0" in said
    assert main(["compare", base + "x", "HEAD", "--repository", str(history.folder)]) == 2
    said = capsys.readouterr().err
    assert "check the spelling" in said and "shallow" not in said
    if base == "HEAD^":
        history.git("-C", str(clone), "fetch", "--quiet", "--unshallow", "origin")
        assert main(["compare", base, "HEAD", "--no-compile", "--repository", str(clone)]) == 0


def test_a_partial_clone_is_refused_with_what_to_do(history, tmp_path, capsys):
    history.git("config", "uploadpack.allowFilter", "true")
    clone = tmp_path / "clone"
    history.git("clone", "--quiet", "--filter=blob:none", history.folder.as_uri(), str(clone))
    assert main(["compare", "HEAD^", "HEAD", "--no-compile", "--repository", str(clone)]) == 2
    said = capsys.readouterr().err
    assert "partial clone: " in said and "clone without --filter" in said


def test_why_git_refuses_a_repository_is_passed_on(history, capsys):
    (history.folder / ".git/config").write_text("[core\n")
    with pytest.raises(InputError, match=r"git rev-parse failed; got bad config line"):
        git.repository(history.folder)
    assert main(["compare", "HEAD^", "HEAD", "--repository", str(history.folder)]) == 2
    assert "bad config line" in capsys.readouterr().err


@pytest.fixture
def owned_by_another(history, tmp_path, monkeypatch):
    """Every repository is another user's, and git is told to read `history` all the same, as actions/checkout tells it."""
    trusted, fake = tmp_path / "gitconfig", tmp_path / "bin/git"
    trusted.write_text(f"[safe]\n\tdirectory = {history.folder}\n")
    fake.parent.mkdir()
    fake.write_text(
        f"#!/bin/sh\nGIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL='{trusted}' GIT_TEST_ASSUME_DIFFERENT_OWNER=1 "
        f"exec '{shutil.which('git')}' \"$@\"\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(fake.parent), prepend=":")
    return trusted


@pytest.mark.parametrize("below", ["", "folder"])
def test_a_repository_of_another_user_is_compared_where_git_is_told_to_trust_it(history, owned_by_another, capsys, below):
    place = history.folder / below
    place.mkdir(exist_ok=True)
    assert main(["compare", "HEAD^", "HEAD", "--no-compile", "--repository", str(place)]) == 0
    assert "M=64" in capsys.readouterr().out


def test_a_repository_that_git_will_not_read_is_no_unknown_revision(history, owned_by_another):
    owned_by_another.write_text("")
    for asked in (lambda: git.repository(history.folder), lambda: git.commit(history.folder, "HEAD")):
        with pytest.raises(InputError, match=r"dubious ownership.*run `git config --global --add safe\.directory "):
            asked()


def test_what_names_no_commit(history):
    for name in ("nowhere", "HEAD@{99}", "HEAD:README", "a b", ""):
        assert git.commit(history.folder, name) is None
    with pytest.raises(InputError, match="no upstream configured"):
        git.commit(history.folder, "@{upstream}")


def test_where_there_is_no_repository(tmp_path):
    assert git.repository(tmp_path / "nowhere") is None


def test_advice_of_git_is_the_remedy(tmp_path, monkeypatch):
    fake = tmp_path / "git"
    fake.write_text(
        "#!/bin/sh\nprintf \"fatal: detected dubious ownership in '/r'\\nTo add an exception, call:\\n\\n"
        '\\tgit config --global --add safe.directory /r\\n" >&2\nexit 128\n'
    )
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(InputError, match=r"dubious ownership in '/r'; run `git config --global --add safe\.directory /r`"):
        git.repository(tmp_path)


def test_blobs_are_read_at_once(history, monkeypatch):
    """And each once, as long as there is room to keep them."""
    found = trees.RevisionTree(folder=history.folder, label="", revision=history.git("rev-parse", "HEAD").strip()).entries()
    one, other, odd = (found[path] for path in ("README", TABLE, "odd.bin"))
    calls = []
    monkeypatch.setattr(git, "_run", lambda *given, run=git._run, **more: calls.append(given[1:3]) or run(*given, **more))
    kept = trees.Blobs(history.folder)
    kept.fetch([one, other, odd])
    contents = {one.identity: b"1", other.identity: table(M64=entry(stages=3)).encode(), odd.identity: b"\0" * 100}
    assert {identity: kept.read(identity) for identity in contents} == contents and len(calls) == 1
    monkeypatch.setattr(trees, "MOST_KEPT_BYTES", 100)
    kept = trees.Blobs(history.folder)
    kept.fetch([one, odd])
    assert kept.read(odd.identity) == b"\0" * 100 and kept.read(one.identity) == b"1" and len(calls) == 4


def test_what_is_not_here_is_no_content(history):
    with pytest.raises(InputError, match="not on this machine"):
        git.blobs(history.folder, ["0" * 40])


def test_sizes_are_those_of_the_blobs(history):
    assert git.entries(history.folder, "HEAD")["odd.bin"].size_bytes == 100
