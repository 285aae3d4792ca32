"""Reading revisions from git's object store: nothing is checked out, no filter, hook or text conversion runs."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from advisor.errors import InputError, UsageError

TIMEOUT_S = 60.0
LARGEST_LISTING_BYTES = 256 * 1024 * 1024

# A repository's own configuration must not make git run programs: hooks, monitors, pagers, lazy fetches.
_SAFE = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.pager=cat", "--no-replace-objects", "--no-pager")


@dataclass(frozen=True, slots=True, kw_only=True)
class GitEntry:
    """One entry of a tree. `mode` as git writes it: 100644, 100755, 120000 (symbolic link), 160000 (submodule)."""

    path: str
    mode: str
    identity: str
    size_bytes: int | None


def _run(folder: Path, *arguments: str) -> bytes:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            ["git", *_SAFE, "-C", str(folder), *arguments], capture_output=True, env=environment, timeout=TIMEOUT_S, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except FileNotFoundError:
        raise UsageError("comparing revisions needs git, which is not installed", remedy="install git, or name two files") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"git {arguments[0]} was given up", f"no end after {TIMEOUT_S:g} s", "an end by then: no option raises the limit",
                         "name two files or folders instead") from None  # fmt: skip
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        raise InputError(f"git {arguments[0]} failed", words[-1] if words else f"exit code {done.returncode}")
    return done.stdout


def repository(folder: Path) -> Path | None:
    """The top folder of the repository that `folder` lies in; None where there is none."""
    try:
        return Path(_run(folder, "rev-parse", "--show-toplevel").decode(errors="surrogateescape").rstrip("\n"))
    except (InputError, UsageError):
        return None


def commit(folder: Path, revision: str) -> str | None:
    """The commit that a revision names; None where it names none."""
    if not revision or revision.startswith("-") or "\0" in revision:
        return None
    try:
        found = _run(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except InputError:
        return None
    return found.decode("ascii", "replace").strip()


def merge_base(folder: Path, first: str, second: str) -> str:
    """The commit two commits have in common.

    Raises:
        InputError: They have none (in a shallow clone it may not have been fetched).
    """
    try:
        return _run(folder, "merge-base", first, second).decode("ascii", "replace").strip()
    except InputError:
        raise InputError(
            "the two revisions have no commit in common", f"{first[:12]} and {second[:12]}",
            remedy="fetch more history (actions/checkout: fetch-depth: 0)",
        ) from None  # fmt: skip


@lru_cache(maxsize=4)
def entries(folder: Path, commit_id: str) -> dict[str, GitEntry]:
    """Every entry of a commit's tree, by path; a commit does not change, so the listing is kept."""
    out = _run(folder, "ls-tree", "-r", "-z", "--long", "--full-tree", commit_id)
    if len(out) > LARGEST_LISTING_BYTES:
        raise InputError("the tree is too large", f"{len(out):,} bytes of listing", f"at most {LARGEST_LISTING_BYTES:,} bytes")
    found = {}
    for line in out.split(b"\0"):
        head, tab, raw = line.partition(b"\t")
        if not tab:
            continue
        mode, _, identity, size = head.decode("ascii").split()
        path = raw.decode("utf-8", "surrogateescape")
        found[path] = GitEntry(path=path, mode=mode, identity=identity, size_bytes=None if size == "-" else int(size))
    return found


def blob(folder: Path, identity: str) -> bytes:
    """The content of a blob as it is stored."""
    return _run(folder, "cat-file", "blob", identity)
