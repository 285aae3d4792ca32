"""A git repository made for a test: commits of files given as bytes, links included; and two of them compared."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from advisor.comparison import Options, compare_trees
from advisor.comparison.trees.trees import RevisionTree
from advisor.learned.base import Predictor
from advisor.result.comparison_schema import ComparisonResult

Content = bytes | str | Path | None
"""What a path becomes: bytes or text of a file, the target of a symbolic link (a Path), or nothing (None removes it)."""

ENVIRONMENT = {
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
}


class Repository:
    """A repository in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        """Makes what `git init --initial-branch=main` makes, but for examples of hooks: tests start git thousands of times as it is."""
        self.folder, own = folder, folder / ".git"
        (own / "refs" / "heads").mkdir(parents=True)
        (own / "objects").mkdir()
        (own / "HEAD").write_text("ref: refs/heads/main\n")
        (own / "config").write_text("[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n")

    def git(self, *arguments: str) -> str:
        """Runs git, and gives what it prints."""
        done = subprocess.run(
            ["git", "-C", str(self.folder), *arguments], capture_output=True, text=True, check=True, env={**os.environ, **ENVIRONMENT}
        )
        return done.stdout.strip()

    def commit(self, files: Mapping[str, Content], message: str = "change") -> str:
        """Writes files, commits them, and gives the commit."""
        for name, content in files.items():
            path = self.folder / name
            if path.is_symlink() or path.exists():
                path.unlink()
            if content is None:
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, Path):
                path.symlink_to(content)
            else:
                path.write_bytes(content.encode() if isinstance(content, str) else content)
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "-m", message)
        head = (self.folder / ".git" / "HEAD").read_text().strip()
        return (self.folder / ".git" / head.removeprefix("ref: ")).read_text().strip() if head.startswith("ref: ") else head


def compared(repository: Repository, base: str, head: str, predictor: Predictor, **options: Any) -> ComparisonResult:
    """Two commits, compared; nothing is compiled unless that is asked for."""
    trees = [RevisionTree(folder=repository.folder, label=name, revision=commit) for name, commit in (("base", base), ("head", head))]
    return compare_trees(*trees, Options(**{"compiling": False, **options}), predictor)


def compared_files(
    repository: Repository, predictor: Predictor, base: Mapping[str, Content], head: Mapping[str, Content], **options: Any
) -> ComparisonResult:
    """What two commits of these files come to, on one GPU unless others are asked for."""
    return compared(repository, repository.commit(base), repository.commit(head), predictor, **{"gpus": ("H100",), **options})
