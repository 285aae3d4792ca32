"""Two files as a `ComparisonResult`: results, rows, versions of a table or of a kernel file; or one that has no baseline."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from advisor.advising.targets import Request
from advisor.comparison.assembling import Options, assemble, chosen_gpus
from advisor.comparison.compare import compare_trees
from advisor.comparison.files import common_fingerprint, result_subject, rows_subject, title_of
from advisor.comparison.kernels.attempts import Compiling
from advisor.comparison.kernels.importers import parse
from advisor.comparison.kernels.kernels import kernel_subjects
from advisor.comparison.settings import FILE_NAME, Settings, read_recorded, settings_file
from advisor.comparison.tables import named_like_table, table_request, table_subject
from advisor.comparison.trees import git
from advisor.comparison.trees.trees import FolderTree, RevisionTree
from advisor.gpus.hardware import load_gpu, match_device_name
from advisor.learned import load_predictor
from advisor.learned.base import Predictor
from advisor.measurement.measured_rows import read_measured
from advisor.result import result_json
from advisor.result.comparison_schema import LARGEST_BYTES, Compared, ComparisonResult, Subject, comparison_from_json
from advisor.result.schema import Fingerprint, Result
from advisor.system.errors import InputError, NoSandboxError, UsageError
from advisor.system.reading import read_bytes
from advisor.tables.names import parse_table_name

OF_MODEL = ("model", "hidden_size", "top_k", "tensor_parallel", "expert_parallel")
"""What a `Request` says of the model."""


def compare_files(base: Path, head: Path, options: Options, predictor: Predictor, settings: Settings | None = None) -> ComparisonResult:
    """Two results, two files of rows, two versions of a table, or two versions of a kernel file.

    Raises:
        InputError: They are not two of a kind.
    """
    settings = settings or (settings_file(options.settings) if options.settings is not None else Settings())
    settings = replace(settings, args=options.args)
    fingerprints: tuple[Fingerprint | None, Fingerprint | None] = (None, None)
    warnings: tuple[str, ...] = ()
    kinds = [_kind(path) for path in (base, head)]
    if kinds[0] != kinds[1]:
        raise InputError(
            "the two sides are not of a kind",
            f"{base.name} ({kinds[0]}) and {head.name} ({kinds[1]})",
            "two results, two files of rows, two tables, two Python files, two folders or two revisions",
        )
    refuse_unused(options, kinds[0])
    gpus = chosen_gpus(options, settings)
    subjects: Sequence[Subject]
    if kinds[0] == "result":
        old, new = _result(base), _result(head)
        fingerprints = (old.fingerprint, new.fingerprint)
        subjects = [result_subject(new.target, old, new)]
        gpus = tuple(load_gpu(name) for name in dict.fromkeys([old.gpu, new.gpu]) if match_device_name(name))
    elif kinds[0] == "rows":
        rows = [list(read_measured(path)) for path in (base, head)]
        fingerprints = (common_fingerprint(rows[0]), common_fingerprint(rows[1]))
        subjects = [rows_subject(title_of(str(head)), rows[0], rows[1], predictor)]
    elif kinds[0] == "table":
        named = next((path.name for path in (head, base) if named_like_table(str(path))), head.name)
        place = str(head.with_name(named))
        request = table_request(options.request, settings, place)
        other = _other_name(base, head)
        as_head = other or not named_like_table(str(base))  # `git show HEAD~1:… > old.json`: what the other one is for
        subjects = [
            table_subject(
                place,
                "compared",
                _bytes(base),
                _bytes(head),
                request=request,
                gpus=gpus,
                predictor=predictor,
                base_path=str(base.with_name(named) if as_head else base),
                anywhere=bool(options.gpus),
            )
        ]
        warnings = other
    else:
        sources = [parse(_bytes(path), str(path)) for path in (base, head)]
        files = [(path, Path(path)) for path in settings.launches]
        subjects = kernel_subjects(
            str(head),
            "compared",
            *sources,
            settings=settings,
            gpus=gpus,
            predictor=predictor,
            compiling=Compiling(wanted=options.compiling),
            recorded=read_recorded([*options.records, *files]),
        )
    sides = [Compared(label=str(path), fingerprint=mark) for path, mark in zip((base, head), fingerprints, strict=True)]
    return assemble(sides[0], sides[1], subjects, options, settings, predictor, gpus, warnings=warnings)


def refuse_unused(options: Options, kind: str) -> None:
    """Refuse what says nothing of two files of a kind (`_kind`): results and rows say themselves which GPU they are for, and only the name
    of a table leaves open of which model it is.

    Raises:
        UsageError: It is asked for all the same.
    """
    if options.gpus and kind in ("result", "rows"):
        raise UsageError(
            "--gpu is for kernels and tables; results and rows say which GPU they are for",
            ", ".join(options.gpus),
            None,
            "leave it out, or make the results with `advisor advise --gpu NAME`",
        )
    if options.launches and kind != "kernels":
        raise UsageError(
            "--launches is for kernels that changed",
            ", ".join(map(str, options.launches)),
            "files of kernels, folders or revisions",
            "leave it out",
        )
    if options.args and kind != "kernels":
        raise UsageError(
            "--arg is for kernels that changed", ", ".join(options.args), "files of kernels, folders or revisions", "leave it out"
        )
    known = [f"--{name.replace('_', '-')}" for name in OF_MODEL if getattr(options.request, name) is not None]
    if known and kind != "table":
        raise UsageError(f"{', '.join(known)}: only said of tables", None, "two tables, folders or revisions", "leave it out")


def _other_name(base: Path, head: Path) -> tuple[str, ...]:
    """A warning where the names of two tables say two problems or GPUs: a difference between what these take would say nothing of the
    entries.

    Raises:
        InputError: They are for two kernels.
    """
    try:
        names = [parse_table_name(path) for path in (base, head)]
    except InputError:  # told where the table is read
        return ()
    if names[0].kind != names[1].kind:
        raise InputError(
            "the two tables are for different kernels",
            f"{base.name} ({names[0].kind}) and {head.name} ({names[1].kind})",
            "two tables of fused MoE, or two of GEMMs",
        )
    launches = [(name.E, name.N, name.K, name.dtype, name.block_shape, name.down, name.device_name) for name in names]
    return (
        ()
        if launches[0] == launches[1]
        else (f"{base.name} and {head.name} are for different launches: both are compared on those of {head.name}",)
    )


def new_result(head: Result, options: Options, predictor: Predictor, label: str) -> ComparisonResult:
    """A result that has no baseline: every launch is new."""
    subject = result_subject(head.target, replace(head, launches=(), table_findings=()), head)
    return assemble(
        Compared(label=label),
        Compared(label="head", fingerprint=head.fingerprint),
        [subject],
        options,
        Settings(),
        predictor,
        (),
    )


def missing_baseline(head: Path, label: str, options: Options, predictor: Predictor) -> ComparisonResult:
    """A file of rows without a baseline: every launch is new."""
    rows = list(read_measured(head))
    subject = rows_subject(title_of(str(head)), [], rows, predictor)
    side = Compared(label=str(head), fingerprint=common_fingerprint(rows))
    return assemble(Compared(label=label), side, [subject], options, Settings(), predictor, ())


def _kind(path: Path) -> str:
    """What a file is, by its name and, for JSON, its content."""
    if path.name.endswith((".csv", ".csv.gz")):
        return "rows"
    if path.suffix == ".py":
        return "kernels"
    if path.suffix == ".json":
        result = b'"schema_version"' in _bytes(path)  # whatever it is called
        return "table" if not result and (named_like_table(str(path)) or _holds_entries(path)) else "result"
    raise InputError(f"{path.name}: neither a result, a table, rows nor a Python file", path.suffix or path.name, ".json, .csv or .py")


def _holds_entries(path: Path) -> bool:
    """Whether a JSON file has a table's entries, whatever it is called: configurations by token counts."""
    try:
        document = json.loads(_bytes(path))
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and any(isinstance(value, dict) for key, value in document.items() if key.isdecimal())


def _result(path: Path) -> Result:
    """A result; of what `compare` wrote it says how to look at it.

    Raises:
        InputError: It is none.
    """
    data = _bytes(path)
    try:
        comparison_from_json(data, name=path.name)
    except InputError:
        return result_json.from_json(data, name=path.name)
    raise InputError(
        f"{path.name}: what `advisor compare` wrote, not a result",
        None,
        "a result.json of `advisor advise`",
        f"show it with `advisor compare --render {shlex.quote(str(path))}`",
    )


def _bytes(path: Path) -> bytes:
    return read_bytes(path, str(path), "a file to compare", LARGEST_BYTES)


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
    settings: str | os.PathLike[str] | None = None,
    args: Mapping[str, Any] | None = None,
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
        settings: An `advisor.toml` that counts in place of the sides' own; None: that of the base, of two files the one that lies here.
        args: Values of arguments and constants of changed kernels by name, before those of `advisor.toml`.
        repository: Where the git repository lies, for revisions.
        weights: A file that `advisor train` wrote; None: the weights shipped.

    Returns:
        What `advisor compare --format json` prints; latencies are in microseconds.

    Raises:
        AdvisorError: A side is not there, cannot be read, or is of another kind than the other.

    >>> import advisor
    >>> found = advisor.compare("tests/data/compare/before.json", "tests/data/compare/after.json")
    >>> isinstance(found.gate.failed, bool)
    True
    """
    options = Options(
        gpus=tuple(gpus),
        fail_on=None if fail_on is None else tuple(fail_on),
        compiling=compiling,
        launches=tuple(map(Path, launches)),
        settings=None if settings is None else Path(settings),
        args=dict(args or {}),
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
        NoSandboxError: A room is `required`, and a wall of it does not stand here.
    """
    if not options.compiling:
        return options, ""
    from advisor.compiled.compiler.pool import sandbox_lacks

    lacks = sandbox_lacks()
    if not lacks:
        room = "kernels are compiled without network, without secrets, and with no file to write or read that is not the compiler's"
        return replace(options, room=room), ""
    if required:
        raise NoSandboxError("--require-sandbox: a layer of the sandbox does not work on this machine", lacks, None, "see `advisor doctor`")
    compiling = trusted or (merge_base is None and len(sides) == 2 and all(Path(side).exists() for side in sides))
    treatment = "compiled all the same" if compiling else "not compiled; --trust-source compiles them"
    room = f"none on the machine that compared ({lacks}): kernels are {treatment}"
    return replace(options, compiling=compiling, room=room), f"no sandbox for untrusted kernels on this machine: {lacks}"


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
    given, (sides, merge_base) = list(sides), _range(list(sides), merge_base)
    if merge_base is None:
        if len(sides) not in (1, 2):
            raise UsageError("compare needs two sides", " ".join(sides) or None, "BASE HEAD", "see `advisor compare --help`")
        paths = [Path(side) for side in given]
        if len(paths) == 2 and all(path.exists() for path in paths) and _are_revisions(sides, repository):
            limit, remedy = "names that can mean one thing only", "write paths as `./main`, and revisions as `git rev-parse` prints them"
            raise UsageError("both sides are paths here, and revisions", " and ".join(sides), limit, remedy)
        if len(paths) == 2 and all(path.is_dir() for path in paths):
            base, head = (FolderTree(folder=path, label=side) for path, side in zip(paths, sides, strict=True))
            return compare_trees(base, head, options, predictor)
        if len(paths) == 2 and all(path.is_file() for path in paths):
            here = Path(FILE_NAME)
            options = replace(options, settings=options.settings or (here if here.is_file() else None))
            return compare_files(paths[0], paths[1], options, predictor)
        if len(paths) == 2 and all(path.exists() for path in paths):
            raise InputError("the two sides are not of a kind", " and ".join(sides), "two files or two folders")
    elif len(sides) > 1:
        raise UsageError("--merge-base takes one side", " ".join(sides), "HEAD (default: HEAD)")
    return _revisions(sides, options, predictor, merge_base, repository)


def _are_revisions(sides: Sequence[str], repository: Path) -> bool:
    """Whether all sides are names of commits: a change may bring folders that are called as these are."""
    try:
        folder = git.repository(repository)
        return folder is not None and all(git.commit(folder, side) is not None for side in sides)
    except (InputError, UsageError):  # no git, or none that reads what is here
        return False


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
    head_name = (sides[0] if sides else "HEAD") if merge_base else (sides[1] if len(sides) == 2 else "HEAD")
    base_name = merge_base or sides[0]
    git.refuse_unknown((base_name, head_name), repository)
    assert folder is not None
    commits = {name: git.commit(folder, name) for name in (base_name, head_name)}
    if lost := [name for name, commit in commits.items() if commit is None]:
        raise _one_path(lost[0], sides)
    base, head, label = commits[base_name] or "", commits[head_name] or "", base_name
    if merge_base:
        base, label = git.merge_base(folder, base, head), f"merge base with {base_name}"
    trees = [RevisionTree(folder=folder, label=name, revision=commit) for name, commit in ((label, base), (head_name, head))]
    return compare_trees(trees[0], trees[1], options, predictor)


def _one_path(name: str, sides: list[str]) -> UsageError:
    """That a path has nothing of its kind beside it."""
    return UsageError(
        f"{name} is a path, and is compared with another one",
        " ".join(sides),
        "two files, two folders or two revisions",
        "name the other side, or where its baseline lies with --baseline DIR",
    )
