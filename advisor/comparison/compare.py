"""From two sides to a `ComparisonResult`: find what differs, compare it, count the verdicts, decide the gate."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from advisor import __version__, result_json
from advisor.comparison import gate as gates
from advisor.comparison import git
from advisor.comparison.changed_files import ChangedFiles, no_longer_readable
from advisor.comparison.files import common_fingerprint, result_subject, rows_subject, title_of
from advisor.comparison.headline import counts, headline, means
from advisor.comparison.importers import reached
from advisor.comparison.kernel_source import mentions_triton, parse
from advisor.comparison.kernels import kernel_subjects
from advisor.comparison.launchers import launched_elsewhere
from advisor.comparison.moves import moved_kernels, moved_tables
from advisor.comparison.recorded import Recorded, read_recorded
from advisor.comparison.resources import Compiling
from advisor.comparison.settings import FILE_NAME, Settings, matches, read_settings
from advisor.comparison.tables import named_like_table, table_request, table_subject
from advisor.comparison.trees import Entry, FileChange, Tree, changes, sized
from advisor.comparison_json import comparison_from_json
from advisor.comparison_schema import Compared, ComparisonResult, Subject
from advisor.configs.names import parse_table_name
from advisor.errors import AdvisorError, InputError, NotOursError, UsageError
from advisor.hardware import GpuSpec, load_gpu, match_device_name
from advisor.learned.base import Predictor
from advisor.measurement.rows import read_measured
from advisor.schema import Fingerprint, Result
from advisor.targets import Request

DEFAULT_GPUS = ("H100", "H200")
LARGEST_CHANGES = 100
"""Changed tables and kernel files compared; of those that a pull request touches besides, only what is certain to fail is looked for."""

OF_MODEL = ("model", "hidden_size", "top_k", "tensor_parallel", "expert_parallel")
"""What a `Request` says of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked for besides the sides.

    Raises:
        UsageError: There is no such condition in `fail_on`.
    """

    gpus: tuple[str, ...] = ()  # empty: advisor.toml's, else DEFAULT_GPUS
    fail_on: tuple[str, ...] | None = None  # None: advisor.toml's, else the default conditions
    compiling: bool = True
    launches: tuple[Path, ...] = ()  # records of `advisor record`, besides those that advisor.toml names
    request: Request = field(default_factory=Request)
    command: str = ""

    def __post_init__(self) -> None:
        gates.conditions(self.fail_on or ())  # here, and not after minutes of comparing


def compare_files(base: Path, head: Path, options: Options, predictor: Predictor, settings: Settings | None = None) -> ComparisonResult:
    """Two results, two files of rows, two versions of a table, or two versions of a kernel file.

    Raises:
        InputError: They are not two of a kind.
    """
    settings = settings or Settings()
    fingerprints: tuple[Fingerprint | None, Fingerprint | None] = (None, None)
    warnings: tuple[str, ...] = ()
    kinds = [_kind(path) for path in (base, head)]
    if kinds[0] != kinds[1]:
        raise InputError("the two sides are not of a kind", f"{base.name} ({kinds[0]}) and {head.name} ({kinds[1]})",
                         "two results, two files of rows, two tables, two Python files, two folders or two revisions")  # fmt: skip
    refuse_unused(options, kinds[0])
    gpus = _gpus(options, settings)
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
        other = _other_problem(base, head)
        as_head = other or not named_like_table(str(base))  # `git show HEAD~1:… > old.json`: what the other one is for
        subjects = [table_subject(place, "compared", _bytes(base), _bytes(head), request=request, gpus=gpus, predictor=predictor,
                                  base_path=str(base.with_name(named) if as_head else base), anywhere=bool(options.gpus))]  # fmt: skip
        warnings = (*other, *(() if options.gpus else _other_gpu(base, head)))
    else:
        sources = [parse(_bytes(path), str(path)) for path in (base, head)]
        files = [(path, Path(path)) for path in settings.launches]
        subjects = kernel_subjects(str(head), "compared", *sources, settings=settings, gpus=gpus, predictor=predictor,
                                   compiling=Compiling(wanted=options.compiling),
                                   recorded=read_recorded([*_given(options), *files]))  # fmt: skip
    sides = [Compared(label=str(path), fingerprint=mark) for path, mark in zip((base, head), fingerprints, strict=True)]
    return assemble(sides[0], sides[1], subjects, options, settings, predictor, gpus, warnings=warnings)


def refuse_unused(options: Options, kind: str) -> None:
    """Refuse what says nothing of two files of a kind (`_kind`): results and rows say themselves which GPU they are for, and only the name
    of a table leaves open of which model it is.

    Raises:
        UsageError: It is asked for all the same.
    """
    if options.gpus and kind in ("result", "rows"):
        raise UsageError("--gpu is for kernels and tables; results and rows say which GPU they are for", ", ".join(options.gpus), None,
                         "leave it out, or make the results with `advisor advise --gpu NAME`")  # fmt: skip
    if options.launches and kind != "kernels":
        raise UsageError("--launches is for kernels that changed", ", ".join(map(str, options.launches)),
                         "files of kernels, folders or revisions", "leave it out")  # fmt: skip
    known = [f"--{name.replace('_', '-')}" for name in OF_MODEL if getattr(options.request, name) is not None]
    if known and kind != "table":
        raise UsageError(f"{', '.join(known)}: only said of tables", None, "two tables, folders or revisions", "leave it out")


def _other_gpu(base: Path, head: Path) -> tuple[str, ...]:
    """A warning where two tables are for two GPUs: what is predicted holds for one."""
    try:
        names = [parse_table_name(path).device_name for path in (base, head)]
    except InputError:  # told where the table is read
        return ()
    found = [match_device_name(name) for name in names]
    known = [name if gpu is None else gpu.name for name, gpu in zip(names, found, strict=True)]
    if known[0] == known[1]:
        return ()
    if found[1] is None:  # nothing is predicted, which a note says
        return ()
    return (f"{base.name} is for {known[0]} and {head.name} for {known[1]}: both are compared as if they ran on {known[1]}",)


def _other_problem(base: Path, head: Path) -> tuple[str, ...]:
    """A warning where two tables are for two problems: a difference between what these take would say nothing of the entries.

    Raises:
        InputError: They are for two kernels.
    """
    try:
        names = [parse_table_name(path) for path in (base, head)]
    except InputError:  # told where the table is read
        return ()
    if names[0].kind != names[1].kind:
        raise InputError("the two tables are for different kernels", f"{base.name} ({names[0].kind}) and {head.name} ({names[1].kind})",
                         "two tables of fused MoE, or two of GEMMs")  # fmt: skip
    said = [(name.E, name.N, name.K, name.dtype, name.block_shape, name.down) for name in names]
    if said[0] == said[1]:
        return ()
    return (f"{base.name} and {head.name} are for different problems: both are compared on those of {head.name}",)


def assemble(
    base: Compared, head: Compared, subjects: Sequence[Subject], options: Options, settings: Settings, predictor: Predictor,
    gpus: Sequence[GpuSpec], *, warnings: Sequence[str] = (), skipped: Sequence[str] = (), unjudged: int = 0,
) -> ComparisonResult:  # fmt: skip
    """The result of the subjects: counts, headline and gate."""
    subjects = _told_apart(subjects)
    wanted = options.fail_on if options.fail_on is not None else settings.fail_on
    conditions = gates.conditions(wanted if wanted is not None else gates.DEFAULT)
    measured, static = counts(subjects)
    measured_mean, static_mean = means(subjects)
    shown = dict.fromkeys(
        gpu for subject in subjects for gpu in (*(row.gpu for row in subject.measured), *(row.gpu for row in subject.static))
    )
    return ComparisonResult(
        tool_version=__version__, command=options.command, base=base, head=head,
        gpus=tuple(shown) or tuple(gpu.name for gpu in gpus), predictor="; ".join(_sources(subjects)) or predictor.name,
        headline=headline(subjects, measured, static), measured_counts=measured, static_counts=static,
        measured_mean=measured_mean, static_mean=static_mean, subjects=tuple(subjects),
        gate=gates.gate(subjects, conditions, unjudged=unjudged),
        warnings=tuple(warnings), skipped=tuple(skipped),
    )  # fmt: skip


def _told_apart(subjects: Sequence[Subject]) -> list[Subject]:
    """The subjects, tables of one name under their paths: SGLang keeps one for each of several versions of Triton."""
    alike = Counter(subject.title for subject in subjects if subject.kind == "table")
    return [replace(subject, title=subject.path) if alike[subject.title] > 1 else subject for subject in subjects]


def _sources(subjects: Sequence[Subject]) -> list[str]:
    """Where the predictions of the rows come from: of a launch far outside what was learned, not from the predictor asked for."""
    sides = [side for subject in subjects for row in subject.static for side in (row.base, row.head, row.default)]
    return list(dict.fromkeys(side.predicted.source for side in sides if side is not None and side.predicted is not None))


def new_result(head: Result, options: Options, predictor: Predictor, label: str) -> ComparisonResult:
    """A result that has no baseline: every launch is new."""
    subject = result_subject(head.target, replace(head, launches=(), table_findings=()), head)
    return assemble(
        Compared(label=label), Compared(label="head", fingerprint=head.fingerprint), [subject], options, Settings(), predictor, (),
    )  # fmt: skip


def compare_trees(base: Tree, head: Tree, options: Options, predictor: Predictor) -> ComparisonResult:
    """Two folders or two revisions: every table, kernel file, result and file of rows that differs, and kernels that import what does.

    What gates and which GPUs matter is the base's word, so that a change cannot excuse itself; where the base has no
    advisor.toml, the head's is taken, and the result says so.
    """
    relevant = [change for change in moved_tables(changes(base, head)) if PurePosixPath(change.path).suffix in (".json", ".py", ".csv")]
    relevant = sized(relevant, base, head)
    base.fetch([change.base for change in relevant if change.base is not None])
    head.fetch([change.head for change in relevant if change.head is not None])
    moved = moved_kernels(relevant, base, head)
    # What has two sides first: compilations are limited.
    relevant.sort(key=lambda change: change.word != "modified" and change.path not in moved.came)
    settings, warnings = _settings(base, head)
    warnings += _unmatched(settings, base, head)
    gpus = _gpus(options, settings)
    importing = reached(base, head, relevant)
    launched = launched_elsewhere(base, head, (*relevant, *importing.changes), importing.names)
    warnings += (*importing.left_out, *launched.left_out)
    files = ChangedFiles(base=base, head=head, request=options.request, settings=settings, gpus=gpus, predictor=predictor,
                         compiling=Compiling(wanted=options.compiling), moved=moved, launched=launched,
                         importing={change.path: by for change, by in importing.changes.items()},
                         recorded=_recorded(base, head, options, settings, warnings))  # fmt: skip
    subjects: list[Subject] = []
    skipped: list[str] = []
    taken = unjudged = 0
    others = launched.unchanged(base, head, (*relevant, *importing.changes))
    looked_at = (*relevant, *others, *importing.changes)
    for number, change in enumerate(looked_at):
        if taken >= LARGEST_CHANGES:
            unjudged, failing = _audited(base, head, relevant[number:], predictor)
            if unjudged:
                warnings.append(f"More than {LARGEST_CHANGES} changed tables and kernel files: {unjudged} were only audited, not judged.")
            subjects += failing
            if importers := len(looked_at) - max(number, len(relevant)):
                warnings.append(f"{importers} unchanged files that import from changed ones, or whose kernels these launch, were left out, "
                                "past the same limit.")  # fmt: skip
            break
        try:
            by = importing.changes.get(change)
            found = files.reached(change, by) if by is not None else files.subjects(change)
        except NotOursError as error:
            skipped.append(str(error))
            continue
        except git.PartialCloneError:
            raise
        except AdvisorError as error:
            broken = no_longer_readable(base, head, change)
            found = [broken or Subject(kind="file", title=change.path, path=change.path, change=change.word, notes=(str(error),))]
        except Exception as error:  # one odd file must not hide what there is to say of the others
            said = f"could not be compared: internal failure ({type(error).__name__}: {error}); please report it"
            found = [Subject(kind="file", title=change.path, path=change.path, change=change.word, notes=(said,))]
        if change.base is not None and change.base.path != change.path:
            found = [replace(subject, notes=(f"Moved here from {change.base.path}.", *subject.notes)) for subject in found]
        taken += bool(found)
        subjects += found
    return assemble(
        Compared(label=base.label, revision=base.revision), Compared(label=head.label, revision=head.revision), subjects, options,
        settings, predictor, gpus, warnings=warnings, skipped=skipped, unjudged=unjudged,
    )  # fmt: skip


def _audited(base: Tree, head: Tree, changed: Sequence[FileChange], predictor: Predictor) -> tuple[int, list[Subject]]:
    """Of changes past the limit: how many hold a table or a kernel, and those of them that are certain to fail."""
    count, failing = 0, []
    for change in changed:
        try:
            found = no_longer_readable(base, head, change)
            if found is None:
                data = [tree.read(entry) if entry is not None else None for tree, entry in ((base, change.base), (head, change.head))]
                if change.path.endswith(".py"):
                    count += any(map(mentions_triton, data))
                    continue
                if not named_like_table(change.path):
                    continue
                found = table_subject(change.path, change.word, *data, request=Request(), gpus=(), predictor=predictor, predict=False)
            count += 1
        except git.PartialCloneError:
            raise
        except AdvisorError:  # another kernel's table, a link, something too large
            continue
        if found.failures:
            failing.append(found)
    return count, failing


def _unmatched(settings: Settings, base: Tree, head: Tree) -> list[str]:
    """What advisor.toml says of tables and kernels that neither side has: most likely misspelled."""
    trees = [(tree, tree.entries()) for tree in (base, head)]
    lost = [f'tables."{pattern}" matches no file of either side; a pattern is of the whole path'
            for pattern in settings.tables if not any(matches(path, pattern) for _, entries in trees for path in entries)]  # fmt: skip
    for key in settings.kernels:
        path, _, name = key.partition("::")
        found = [(tree, entries[path]) for tree, entries in trees if path in entries]
        if not found:
            lost.append(f'kernels."{key}": neither side has a file {path}')
        elif name and not any(_defines(tree, entry, name) for tree, entry in found):
            lost.append(f'kernels."{key}": neither side has a kernel {name} there')
    return [f"{FILE_NAME}: {each}" for each in lost]


def _settings(base: Tree, head: Tree) -> tuple[Settings, list[str]]:
    for tree, warning in ((base, None), (head, f"{FILE_NAME} is new: what gates is what this change says")):
        entry = tree.entries().get(FILE_NAME)
        if entry is not None and entry.kind == "file":
            return read_settings(tree.read(entry)), [warning] if warning else []
    return Settings(), []


def _defines(tree: Tree, entry: Entry, name: str) -> bool:
    """Whether a file holds a kernel; also where it cannot be read or parsed, so that nobody can say it does not."""
    try:
        source = parse(tree.read(entry), entry.path)
    except AdvisorError:
        return True
    return source is not None and name in source.definitions


def _given(options: Options) -> list[tuple[str, Path | bytes]]:
    return [(str(path), path) for path in options.launches]


def _recorded(base: Tree, head: Tree, options: Options, settings: Settings, warnings: list[str]) -> Recorded:
    """The records given, and those that advisor.toml names: of the base, else of the head, read from the tree."""
    found = _given(options)
    for path in settings.launches:
        tree, entry = next(((each, each.entries()[path]) for each in (base, head) if path in each.entries()), (base, None))
        if entry is None:
            warnings.append(f"{FILE_NAME}: launches: {path} is on neither side")
            continue
        try:
            content = tree.read(entry)
            read_recorded([(path, content)])
        except AdvisorError as error:  # what a change brings along must not end the comparison
            warnings.append(f"{FILE_NAME}: launches: {error}")
            continue
        found.append((path, content))
    return read_recorded(found)


def _gpus(options: Options, settings: Settings) -> tuple[GpuSpec, ...]:
    return tuple(load_gpu(name) for name in dict.fromkeys(options.gpus or settings.gpus or DEFAULT_GPUS))


def _kind(path: Path) -> str:
    """What a file is, by its name and, for JSON, its content."""
    if path.name.endswith((".csv", ".csv.gz")):
        return "rows"
    if path.suffix == ".py":
        return "kernels"
    if path.suffix == ".json":
        if b'"schema_version"' in _bytes(path):  # whatever it is called
            return "result"
        return "table" if named_like_table(str(path)) or _holds_entries(path) else "result"
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
    raise InputError(f"{path.name}: what `advisor compare` wrote, not a result", None, "a result.json of `advisor advise`",
                     f"show it with `advisor compare --render {shlex.quote(str(path))}`")  # fmt: skip


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read", error.strerror) from None


def folder_settings(folder: Path) -> Settings:
    """The advisor.toml of a folder; as without one where there is none."""
    path = folder / FILE_NAME
    return read_settings(_bytes(path)) if path.is_file() else Settings()


def missing_baseline(head: Path, label: str, options: Options, predictor: Predictor) -> ComparisonResult:
    """A file of rows without a baseline: every launch is new."""
    rows = list(read_measured(head))
    subject = rows_subject(title_of(str(head)), [], rows, predictor)
    side = Compared(label=str(head), fingerprint=common_fingerprint(rows))
    return assemble(Compared(label=label), side, [subject], options, Settings(), predictor, ())
