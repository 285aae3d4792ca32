"""Two sides by their names (files, folders or revisions of git): `advisor.compare`, and what the command does with BASE HEAD."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from advisor.advising.targets import Request
from advisor.comparison.assembling import Options
from advisor.comparison.compare import compare_trees
from advisor.comparison.of_files import compare_files, folder_settings
from advisor.comparison.trees import git
from advisor.comparison.trees.trees import FolderTree, RevisionTree
from advisor.learned import load_predictor
from advisor.learned.base import Predictor
from advisor.result.comparison_schema import ComparisonResult
from advisor.system.errors import InputError, NoRoomError, UsageError


def compare(
    base: str | os.PathLike[str],
    head: str | os.PathLike[str] = "HEAD",
    *,
    gpus: Iterable[str] = (),
    model: str | None = None,
    hidden_size: int | None = None,
    top_k: int | None = None,
    tensor_parallel: int | None = None,
    expert_parallel: int | None = None,
    fail_on: Iterable[str] | None = None,
    compiling: bool = True,
    trust_source: bool = False,
    launches: Iterable[str | os.PathLike[str]] = (),
    repository: str | os.PathLike[str] = ".",
    weights: str | os.PathLike[str] | None = None,
) -> ComparisonResult:
    """What a change does to speed: every table, kernel, result and file of rows that differs. Nothing is checked out, imported or run.

    Args:
        base: A result, a file of rows, a table, a Python file, a folder or a revision of git; or a range of revisions, as for `git diff`.
        head: The other side, of the same kind.
        gpus: To predict for; none: those of `advisor.toml`, else H100 and H200.
        model: The model that tables are for, as for `advisor.advise`; also `hidden_size` and `top_k`, `tensor_parallel`, `expert_parallel`.
        fail_on: What makes `gate.failed` true, such as "regressed" or "ceiling<70"; None: what `advisor.toml` says, else the default.
        compiling: Whether to compile changed kernels for their registers, spills and instruction counts.
        trust_source: Whether to compile kernels of revisions, which may be a stranger's, also where the machine has no sandbox for them.
        launches: Records of `advisor record`: changed kernels are compared on them too.
        repository: Where the git repository lies, for revisions.
        weights: A file that `advisor train` wrote; None: the weights shipped.

    Returns:
        What `advisor compare --format json` prints; latencies are in microseconds.

    Raises:
        AdvisorError: A side is not there, cannot be read, or is of another kind than the other.
    """
    options = Options(
        gpus=tuple(gpus),
        fail_on=None if fail_on is None else tuple(fail_on),
        compiling=compiling,
        launches=tuple(map(Path, launches)),
        request=Request(
            model=model,
            hidden_size=hidden_size,
            top_k=top_k,
            tensor_parallel=tensor_parallel,
            expert_parallel=expert_parallel,
            assume=True,
            distribution="random",
        ),
    )
    is_range = ".." in os.fspath(base) and os.fspath(head) == "HEAD"
    sides = [os.fspath(base)] if is_range else [os.fspath(base), os.fspath(head)]
    options, warning = in_a_room(options, sides, trusted=trust_source)
    result = compare_sides(sides, options, load_predictor(None if weights is None else Path(weights)), repository=Path(repository))
    return replace(result, warnings=(*result.warnings, warning)) if warning else result


def in_a_room(
    options: Options, sides: Sequence[str], *, merge_base: str | None = None, trusted: bool = False, required: bool = False
) -> tuple[Options, str]:
    """The options, with what is said of the room that kernels are compiled in, and a warning where there is none ("" where there is).

    Revisions, which may be a stranger's, are not compiled without one, unless they are `trusted`.

    Raises:
        NoRoomError: A room is `required`, and a wall of it does not stand here.
    """
    if not options.compiling:
        return options, ""
    from advisor.compiled.compiler.pool import room_lacks

    lacks = room_lacks()
    if not lacks:
        room = "kernels are compiled without network, without secrets, and with no file to write or read that is not the compiler's"
        return replace(options, room=room), ""
    if required:
        raise NoRoomError("--require-sandbox: a wall does not stand on this machine", lacks, None, "see `advisor doctor`")
    compiling = trusted or (merge_base is None and all(Path(side).exists() for side in sides))
    said = "compiled all the same" if compiling else "not compiled; --trust-source compiles them"
    room = f"none on the machine that compared ({lacks}): kernels are {said}"
    return replace(options, compiling=compiling, room=room), f"no sandbox for a stranger's kernels on this machine: {lacks}"


def compare_sides(
    sides: Sequence[str], options: Options, predictor: Predictor, *, merge_base: str | None = None, repository: Path = Path()
) -> ComparisonResult:
    """The comparison of two files, two folders, or two revisions; one side alone is a revision or a range, and is compared with HEAD.

    Args:
        sides: BASE and HEAD as on the command line.
        options: What is asked for besides.
        predictor: Where predictions come from.
        merge_base: A revision: HEAD is compared with the commit that it has in common with this one.
        repository: Where the git repository lies.

    Raises:
        UsageError, InputError: There are not two sides of one kind.
    """
    sides, merge_base = _range(list(sides), merge_base)
    if merge_base is None:
        if len(sides) not in (1, 2):
            raise UsageError("compare needs two sides", " ".join(sides) or None, "BASE HEAD", "see `advisor compare --help`")
        paths = [Path(side) for side in sides]
        if len(paths) == 2 and all(path.is_dir() for path in paths):
            base, head = (FolderTree(folder=path, label=side) for path, side in zip(paths, sides, strict=True))
            return compare_trees(base, head, options, predictor)
        if len(paths) == 2 and all(path.is_file() for path in paths):
            return compare_files(paths[0], paths[1], options, predictor, folder_settings(Path()))
        if len(paths) == 2 and all(path.exists() for path in paths):
            raise InputError("the two sides are not of a kind", " and ".join(sides), "two files or two folders")
    elif len(sides) > 1:
        raise UsageError("--merge-base takes one side", " ".join(sides), "HEAD (default: HEAD)")
    return _revisions(sides, options, predictor, merge_base, repository)


def _range(sides: list[str], merge_base: str | None) -> tuple[list[str], str | None]:
    """The sides and the merge base that a range of revisions stands for, read as `git diff` does: BASE..HEAD as the two, BASE...HEAD with
    their merge base; HEAD stands for one that is left out. No revision has two dots in its name."""
    name = sides[0] if len(sides) == 1 else ""
    if ".." not in name or "../" in name or "/.." in name or merge_base is not None or Path(name).exists():
        return sides, merge_base  # no range, or the path of a file that is not there
    base, dots, head = name.partition("..." if "..." in name else "..")
    return ([head or "HEAD"], base or "HEAD") if dots == "..." else ([base or "HEAD", head or "HEAD"], None)


def _revisions(sides: list[str], options: Options, predictor: Predictor, merge_base: str | None, repository: Path) -> ComparisonResult:
    folder = git.repository(repository)
    if folder is None and sides and all(Path(side).exists() for side in sides):
        raise _one_path(sides[0], sides)
    if folder is None:
        missing = next((side for side in sides if not Path(side).exists()), repository)
        raise InputError(
            f"{missing}: no such file, and {repository} is no git repository whose revision it could be",
            remedy="check the path, or name the repository with --repository DIR",
        )
    head_name = (sides[0] if sides else "HEAD") if merge_base else (sides[1] if len(sides) == 2 else "HEAD")
    base_name = merge_base or sides[0]
    commits = {name: git.commit(folder, name) for name in (base_name, head_name)}
    lost = [name for name, commit in commits.items() if commit is None]
    for name in lost:
        if not Path(name).exists():
            raise _lost(folder, name)
    if lost:
        raise _one_path(lost[0], sides)
    base, head, label = commits[base_name] or "", commits[head_name] or "", base_name
    if merge_base:
        base, label = git.merge_base(folder, base, head), f"merge base with {base_name}"
    trees = [RevisionTree(folder=folder, label=name, revision=commit) for name, commit in ((label, base), (head_name, head))]
    return compare_trees(trees[0], trees[1], options, predictor)


def _lost(folder: Path, name: str) -> InputError:
    """That a name is no revision that is here; of a clone without all of its history, how it gets here."""
    what = f"{name}: neither a path nor a revision of this repository"
    if not git.is_shallow(folder):
        return InputError(what, remedy="check the spelling, or fetch it")
    return InputError(
        what,
        "a shallow clone, which lacks a part of the history",
        "a clone that has both commits",
        "run `git fetch --unshallow origin`, or clone all of it (actions/checkout: fetch-depth: 0)",
    )


def _one_path(name: str, sides: list[str]) -> UsageError:
    """That a path has nothing of its kind beside it."""
    return UsageError(
        f"{name} is a path, and is compared with another one",
        " ".join(sides),
        "two files, two folders or two revisions",
        "name the other side, or where its baseline lies with --baseline DIR",
    )
