"""Reading revisions from git's object store: nothing is checked out, no filter, hook or text conversion runs."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from advisor.gpus.hardware import match_device_name
from advisor.system.errors import InputError, UsageError

if TYPE_CHECKING:
    from advisor.measurement.measured_rows import MeasuredRow
    from advisor.result.schema import Result

TIMEOUT_S = 60.0
MOST_FILES = 300_000
"""Of a commit; Linux has some 90,000. A tree that holds one tree many times over has as many as it likes in a few objects."""

# A repository's own configuration must not make git run programs: hooks, monitors, pagers, lazy fetches.
_SAFE = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "core.pager=cat", "--no-replace-objects", "--no-pager")


EntryKind = Literal["file", "symbolic link", "submodule", "other"]
KINDS: dict[str, EntryKind] = {"100644": "file", "100755": "file", "120000": "symbolic link", "160000": "submodule"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One path of a tree. Equal identities mean equal contents, within one kind of tree. `size_bytes` is 0 of what is no file, or is not on
    this machine."""

    path: str
    kind: EntryKind
    identity: str
    size_bytes: int


def _run(folder: Path, *arguments: str, given: bytes = b"", index: str | None = None) -> bytes:
    """What git prints; `index` is the file of the index that it reads and writes in the place of the repository's."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
    environment |= {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}  # the second for those before 2.39.4, which know no first
    if index is not None:
        environment["GIT_INDEX_FILE"] = index
    try:
        done = subprocess.run(
            ["git", *_SAFE, "-C", str(folder), *arguments],
            capture_output=True,
            env=environment,
            timeout=TIMEOUT_S,
            check=False,
            input=given,
        )
    except FileNotFoundError:
        raise UsageError("comparing revisions needs git, which is not installed", remedy="install git, or name two files") from None
    except subprocess.TimeoutExpired:
        raise InputError(
            f"git {arguments[0]} was given up",
            f"no end after {TIMEOUT_S:g} s",
            "an end by then: no option raises the limit",
            "name two files or folders instead",
        ) from None
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        if any("promisor remote" in line for line in words):  # nothing is fetched: that could run programs, and takes its time
            raise _partial()
        fatal = next((line for line in words if line.startswith("fatal: ")), words[-1] if words else f"exit code {done.returncode}")
        advice = next((line.strip() for line in words if line.strip().startswith("git config ")), None)
        raise InputError(f"git {arguments[0]} failed", fatal.removeprefix("fatal: "), None, f"run `{advice}`" if advice else None)
    return done.stdout


def _partial() -> InputError:
    return InputError("partial clone: files of it are not on this machine", None, "a clone that has them", "clone without --filter")


def repository(folder: Path) -> Path | None:
    """Where git reads the repository that `folder` lies in, bare ones included; None where there is none.

    That is `folder` itself, from which git finds the rest: `safe.directory` lists working trees, and does not cover their `.git`.

    Raises:
        InputError: There is one, but git refuses it; the message is git's. Or it is made of another one's files.
        UsageError: There is no git.
    """
    bare, here = None, folder.resolve()
    for place in (here, *here.parents):
        if os.path.lexists(place / ".git"):
            if bare is not None:
                limit, remedy = "a folder that is no repository itself", "take the files `HEAD`, `objects` and `commondir` out of it"
                raise InputError(f"{bare}: git would read this folder of the repository as one of its own", None, limit, remedy)
            break
        if os.path.lexists(place / "HEAD") and any(os.path.lexists(place / name) for name in ("objects", "commondir")):
            bare = place if ".git" not in place.parts else None  # what is called so is git's own: no commit can hold it
    try:
        _run(folder, "rev-parse", "--git-dir")
    except InputError as error:
        if "not a git repository" in str(error.got) or not folder.is_dir():
            return None
        raise
    return folder


def commit(folder: Path, revision: str) -> str | None:
    """The commit that a revision names; None where it names none.

    Raises:
        InputError: Git says why it names none, or that it will not read the repository.
    """
    if not revision or revision.startswith("-") or "\0" in revision:
        return None
    try:
        output = _run(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except InputError as error:
        if not str(error.got).startswith("exit code "):  # of what merely names nothing it says nothing
            raise
        return None
    return output.decode("ascii", "replace").strip()


def refuse_unknown(names: Sequence[str], place: Path) -> None:
    """Refuse names that are neither paths nor revisions of the repository; of a clone without all of its history, say how they get here.

    Raises:
        InputError: One of them is neither, or there is no repository.
    """
    folder, missing = repository(place), [name for name in names if not Path(name).exists()]
    if folder is None:
        raise InputError(
            f"{next(iter(missing), place)}: no such file, and {place} is no git repository whose revision it could be",
            remedy="check the path, or name the repository with --repository DIR",
        )
    for name in missing:
        if commit(folder, name) is not None:
            continue
        what = f"{name}: neither a path nor a revision of this repository"
        if not is_shallow(folder):
            raise InputError(what, remedy="check the spelling, or fetch it")
        raise InputError(
            what,
            "a shallow clone, which lacks a part of the history",
            "a clone that has both commits",
            "run `git fetch --unshallow origin`, or clone all of it (actions/checkout: fetch-depth: 0)",
        )


def top(folder: Path) -> Path | None:
    """The folder that the files of a repository lie in; None: they lie in none."""
    try:
        return Path(os.fsdecode(_run(folder, "rev-parse", "--show-toplevel").removesuffix(b"\n")))
    except InputError:  # a bare one
        return None


def is_shallow(folder: Path) -> bool:
    """Whether a part of the history was left out when the repository was cloned."""
    return _run(folder, "rev-parse", "--is-shallow-repository").strip() == b"true"


def merge_base(folder: Path, first: str, second: str) -> str:
    """The commit two commits have in common.

    Raises:
        InputError: They have none (in a shallow clone it may not have been fetched).
    """
    try:
        return _run(folder, "merge-base", first, second).decode("ascii", "replace").strip()
    except InputError as error:
        if error.got != "exit code 1":  # which says nothing else
            raise
        raise InputError(
            "the two revisions have no commit in common",
            f"{first[:12]} and {second[:12]}",
            remedy="fetch more history (actions/checkout: fetch-depth: 0)",
        ) from None


@lru_cache(maxsize=4)
def entries(folder: Path, commit_id: str) -> dict[str, Entry]:
    """Every entry of a commit's tree, by path; kept, for a commit does not change, and it is asked for with every file that is followed.

    Raises:
        InputError: The clone is partial, or the tree too large.
    """
    if (count := _count_files(folder, commit_id)) > MOST_FILES:
        raise InputError("the tree is too large", f"{count:,} files", f"at most {MOST_FILES:,} files", "name two files or folders instead")
    out = _run(folder, "ls-tree", "-r", "-l", "-z", "--full-tree", commit_id)
    entries_by_path = {}
    for line in out.split(b"\0"):
        head, tab, raw = line.partition(b"\t")
        if not tab:
            continue
        mode, _, identity, size = head.decode("ascii").split()
        path = raw.decode("utf-8", "surrogateescape")
        if path in entries_by_path:  # which of them is checked out is git's to say
            raise InputError("a tree of the repository is damaged", f"two files by the name of {path}", None, "see `git fsck`")
        kind = KINDS.get(mode, "other")
        entries_by_path[path] = Entry(path=path, kind=kind, identity=identity, size_bytes=int(size) if size.isdigit() else 0)
    return entries_by_path


def attributes(folder: Path, commit_id: str, names: Sequence[str], paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """Path -> name -> value of attributes as git finds them where a commit is checked out: `set`, `unset`, `unspecified` or a text."""
    by_path: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="advisor-compare-") as local:
        index = str(Path(local, "index"))
        _run(folder, "-c", "core.splitIndex=false", "read-tree", commit_id, index=index)
        paths_asked = b"".join(path.encode("utf-8", "surrogateescape") + b"\0" for path in paths)
        out = _run(folder, "check-attr", "--cached", "-z", "--stdin", *names, given=paths_asked, index=index)
    fields = out.decode("utf-8", "surrogateescape").split("\0")
    for path, name, value in zip(fields[::3], fields[1::3], fields[2::3], strict=False):
        by_path.setdefault(path, {})[name] = value
    return by_path


def _count_files(folder: Path, commit_id: str) -> int:
    """Files of a commit, each tree read once however often it occurs."""
    trees: dict[str, list[str]] = {}  # tree -> its own trees
    files: dict[str, int] = {}  # tree -> its own files
    waiting = [f"{commit_id}^{{tree}}"]
    while waiting:
        level = blobs(folder, waiting)
        for name, data in level.items():
            trees[name], files[name] = [], 0
            start = 0
            while start < len(data):
                middle = data.find(b"\0", start)
                end = middle + 1 + len(name) // 2
                if middle < 0 or end > len(data):
                    raise InputError("a tree of the repository is damaged", name, None, "see `git fsck`")
                if data[start:middle].startswith(b"40000 "):
                    trees[name].append(data[middle + 1 : end].hex())
                else:
                    files[name] += 1
                start = end
        waiting = sorted({inner for name in level for inner in trees[name]} - trees.keys())
    counts: dict[str, int] = {}
    top = next(iter(trees))
    order = [top]
    while order:  # a tree is counted after all within it
        name = order[-1]
        if left := [inner for inner in trees[name] if inner not in counts]:
            order += left
        else:
            counts[order.pop()] = files[name] + sum(counts[inner] for inner in trees[name])
    return counts[top]


def blobs(folder: Path, names: Sequence[str]) -> dict[str, bytes]:
    """The contents of objects as they are stored, by identity; each is named by that, or in another way that git knows.

    Raises:
        InputError: One was left out of a partial clone.
    """
    out = _run(folder, "cat-file", "--batch", given="\n".join(names).encode("ascii"))
    contents: dict[str, bytes] = {}
    start = 0
    for _ in names:
        end = out.index(b"\n", start)
        header = out[start:end].split()
        if header[-1] == b"missing":
            raise _partial()
        first, last = end + 1, end + 1 + int(header[-1])
        contents[header[0].decode("ascii")] = out[first:last]
        start = last + 1
    return contents


def _slug(text: str) -> str:
    """Text as one safe part of a path, that no table's name looks like."""
    short = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:120]
    return short or "unnamed"


def baseline_path(folder: Path, gpu: str, triton: str | None, name: str) -> Path:
    """Where the baseline of a GPU, a Triton version and a name lies."""
    return folder / _slug(gpu) / _slug(f"triton-{triton or 'unknown'}") / _slug(name)


def of_result(folder: Path, result: Result) -> Path:
    """Where a result's baseline lies."""
    return baseline_path(folder, result.gpu, result.fingerprint.triton, f"{_slug(result.target.removesuffix('.json'))}.result.json")


def of_rows(folder: Path, rows: list[MeasuredRow], file_name: str) -> Path:
    """Where the baseline of a file of rows lies.

    Raises:
        InputError: Its rows are of several GPUs or Triton versions.
    """
    keys = {(_gpu(row), row.fingerprint.triton if row.fingerprint is not None else None) for row in rows}
    if len(keys) != 1:
        listed = ", ".join(sorted(f"{gpu} / Triton {triton or 'unknown'}" for gpu, triton in keys)) or "no rows"
        raise InputError(f"{file_name}: a baseline holds one GPU and one Triton version", listed, "one", "split the file")
    gpu, triton = keys.pop()
    return baseline_path(folder, gpu, triton, file_name)


def _gpu(row: MeasuredRow) -> str:
    gpu = match_device_name(row.gpu)
    return gpu.name if gpu is not None else row.gpu
