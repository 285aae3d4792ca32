"""From two sides to a `ComparisonResult`: find what differs, compare it, count the verdicts, decide the gate."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from advisor import __version__, result_json
from advisor.comparison import gate as gates
from advisor.comparison.fallbacks import Fallback, fallback_entry
from advisor.comparison.files import result_subject, rows_subject, title_of
from advisor.comparison.headline import counts, headline, means
from advisor.comparison.kernels import LARGEST_SOURCE_BYTES, kernel_subjects, mentions_triton, parse
from advisor.comparison.recorded import Recorded, read_recorded
from advisor.comparison.resources import Compiling
from advisor.comparison.settings import FILE_NAME, Settings, read_settings
from advisor.comparison.tables import table_subject
from advisor.comparison.trees import Entry, FileChange, FolderTree, RevisionTree, Tree, changes, check_readable
from advisor.comparison_schema import Compared, ComparisonResult, Subject
from advisor.configs.names import parse_table_name
from advisor.configs.source import SourceFile
from advisor.errors import AdvisorError, InputError, NotOursError, UsageError
from advisor.hardware import GpuSpec, load_gpu, match_device_name
from advisor.learned.base import Predictor
from advisor.measurement.rows import read_measured
from advisor.schema import Fingerprint, Result
from advisor.targets import Request

DEFAULT_GPUS = ("H100", "H200")
LARGEST_CHANGES = 100
"""Changed tables and kernel files compared; a pull request that touches more gets a sentence that says so."""

LARGEST_SIBLINGS = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the user asked for besides the sides."""

    gpus: tuple[str, ...] = ()  # empty: advisor.toml's, else DEFAULT_GPUS
    fail_on: tuple[str, ...] | None = None  # None: advisor.toml's, else the default conditions
    compiling: bool = True
    launches: tuple[Path, ...] = ()  # records of `advisor record`, besides those that advisor.toml names
    request: Request = field(default_factory=Request)
    command: str = ""


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
    if kinds[0] in ("result", "rows"):
        refuse_gpus(options)
    gpus = _gpus(options, settings)
    subjects: Sequence[Subject]
    if kinds[0] == "result":
        old, new = _result(base), _result(head)
        fingerprints = (old.fingerprint, new.fingerprint)
        subjects = [result_subject(new.target, old, new)]
        gpus = tuple(load_gpu(name) for name in dict.fromkeys([old.gpu, new.gpu]) if match_device_name(name))
    elif kinds[0] == "rows":
        subjects = [rows_subject(title_of(str(head)), list(read_measured(base)), list(read_measured(head)), predictor)]
    elif kinds[0] == "table":
        request = _request(options, settings, str(head))
        subjects = [table_subject(str(head), "compared", _bytes(base), _bytes(head), request=request, gpus=gpus, predictor=predictor,
                                  base_path=str(base), anywhere=bool(options.gpus))]  # fmt: skip
        warnings = () if options.gpus else _other_gpu(base, head, gpus)
    else:
        sources = [parse(_bytes(path), str(path)) for path in (base, head)]
        named = [(path, Path(path)) for path in settings.launches]
        subjects = kernel_subjects(str(head), "compared", *sources, settings=settings, gpus=gpus, predictor=predictor,
                                   compiling=Compiling(wanted=options.compiling),
                                   recorded=read_recorded([*_given(options), *named]))  # fmt: skip
    sides = [Compared(label=str(path), fingerprint=mark) for path, mark in zip((base, head), fingerprints, strict=True)]
    return assemble(sides[0], sides[1], subjects, options, settings, predictor, gpus, warnings=warnings)


def refuse_gpus(options: Options) -> None:
    """Results and rows say which GPU they are for: refuse another word on it.

    Raises:
        UsageError: A GPU is asked for.
    """
    if options.gpus:
        raise UsageError("--gpu is for kernels and tables; results and rows say which GPU they are for", ", ".join(options.gpus), None,
                         "leave it out, or make the results with `advisor advise --gpu NAME`")  # fmt: skip


def _other_gpu(base: Path, head: Path, gpus: Sequence[GpuSpec]) -> tuple[str, ...]:
    """A warning where two tables are for two GPUs: what is predicted holds for one."""
    try:
        names = [parse_table_name(path).device_name for path in (base, head)]
    except InputError:  # told where the table is read
        return ()
    found = [match_device_name(name) for name in names]
    known = [name if gpu is None else gpu.name for name, gpu in zip(names, found, strict=True)]
    if known[0] == known[1]:
        return ()
    on = found[1].name if found[1] is not None else ", ".join(gpu.name for gpu in gpus)
    return (f"{base.name} is for {known[0]} and {head.name} for {known[1]}: both are compared as if they ran on {on}",)


def assemble(
    base: Compared, head: Compared, subjects: Sequence[Subject], options: Options, settings: Settings, predictor: Predictor,
    gpus: Sequence[GpuSpec], *, warnings: Sequence[str] = (), skipped: Sequence[str] = (),
) -> ComparisonResult:  # fmt: skip
    """The result of the subjects: counts, headline and gate."""
    wanted = options.fail_on if options.fail_on is not None else settings.fail_on
    conditions = gates.conditions(wanted if wanted is not None else gates.DEFAULT)
    measured, static = counts(subjects)
    measured_mean, static_mean = means(subjects)
    shown = dict.fromkeys(
        gpu for subject in subjects for gpu in (*(row.gpu for row in subject.measured), *(row.gpu for row in subject.static))
    )
    return ComparisonResult(
        tool_version=__version__, command=options.command, base=base, head=head,
        gpus=tuple(shown) or tuple(gpu.name for gpu in gpus), predictor=predictor.name,
        headline=headline(subjects, measured, static), measured_counts=measured, static_counts=static,
        measured_mean=measured_mean, static_mean=static_mean, subjects=tuple(subjects), gate=gates.gate(subjects, conditions),
        warnings=tuple(warnings), skipped=tuple(skipped),
    )  # fmt: skip


def compare_results(base: Result | None, head: Result, options: Options, predictor: Predictor, label: str) -> ComparisonResult:
    """A result against its baseline; without one every launch is new."""
    old = base if base is not None else _without_launches(head)
    subject = result_subject(head.target, old, head)
    return assemble(
        Compared(label=label, fingerprint=base.fingerprint if base else None), Compared(label="head", fingerprint=head.fingerprint),
        [subject], options, Settings(), predictor, (),
    )  # fmt: skip


def _without_launches(result: Result) -> Result:
    return replace(result, launches=(), table_findings=())


def compare_trees(base: Tree, head: Tree, options: Options, predictor: Predictor) -> ComparisonResult:
    """Two folders or two revisions: every table, kernel file, result and file of rows that differs.

    What gates and which GPUs matter is the base's word, so that a change cannot excuse itself; where the base has no
    advisor.toml, the head's is taken, and the result says so.
    """
    differing = changes(base, head)
    settings, warnings = _settings(base, head)
    gpus = _gpus(options, settings)
    context = _Context(base=base, head=head, options=options, settings=settings, gpus=gpus, predictor=predictor,
                       compiling=Compiling(wanted=options.compiling),
                       recorded=_recorded(base, head, options, settings, warnings))  # fmt: skip
    relevant = [change for change in differing if PurePosixPath(change.path).suffix in (".json", ".py", ".csv")]
    relevant.sort(key=lambda change: change.word != "modified")  # what has two sides first: compilations are limited
    subjects: list[Subject] = []
    skipped: list[str] = []
    taken = 0
    for change in relevant:
        if taken >= LARGEST_CHANGES:
            warnings.append(f"More than {LARGEST_CHANGES} changed tables and kernel files: the rest was left out.")
            break
        try:
            found = context.subjects(change)
        except NotOursError as error:
            skipped.append(str(error))
            continue
        except AdvisorError as error:
            found = [Subject(kind="file", title=change.path, path=change.path, change=change.word, notes=(str(error),))]
        except Exception as error:  # one odd file must not hide what there is to say of the others
            said = f"could not be compared: internal failure ({type(error).__name__}: {error}); please report it"
            found = [Subject(kind="file", title=change.path, path=change.path, change=change.word, notes=(said,))]
        taken += bool(found)
        subjects += found
    return assemble(
        Compared(label=base.label, revision=base.revision), Compared(label=head.label, revision=head.revision), subjects, options,
        settings, predictor, gpus, warnings=warnings, skipped=skipped,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Context:
    """What the comparison of one changed file needs."""

    base: Tree
    head: Tree
    options: Options
    settings: Settings
    gpus: tuple[GpuSpec, ...]
    predictor: Predictor
    compiling: Compiling
    recorded: Recorded

    def subjects(self, change: FileChange) -> list[Subject]:
        """What there is to say of a changed file; nothing where it is neither a table nor holds a kernel."""
        odd = self._odd_kind(change)
        if odd is not None:
            return odd
        suffix = PurePosixPath(change.path).suffix
        if suffix == ".py":
            return self._kernels(change)
        if suffix == ".csv" or not _named_like_table(change.path):
            return self._plain(change)
        base, head = (self._bytes(tree, entry) for tree, entry in ((self.base, change.base), (self.head, change.head)))
        request = _request(self.options, self.settings, change.path)
        return [table_subject(change.path, change.word, base, head, request=request, gpus=self.gpus, predictor=self.predictor,
                              fallback=self._fallback(change))]  # fmt: skip

    @cached_property
    def _entries(self) -> tuple[dict[str, Entry], dict[str, Entry]]:
        return self.base.entries(), self.head.entries()

    def _fallback(self, change: FileChange) -> Fallback | None:
        """What runs in place of a table on the side that does not have it."""
        for tree, entries, own in zip((self.base, self.head), self._entries, (change.base, change.head), strict=True):
            if own is None and (entry := fallback_entry(change.path, entries)) is not None:
                return Fallback(path=entry.path, data=tree.read(entry))
        return None

    def _odd_kind(self, change: FileChange) -> list[Subject] | None:
        """Symbolic links, submodules and the like: named, never followed."""
        odd = [(word, entry) for word, entry in (("base", change.base), ("head", change.head)) if entry and entry.kind != "file"]
        if not odd:
            return None
        if not (_named_like_table(change.path) or change.path.endswith(".py")):
            return []
        notes = tuple(f"{word}: a {entry.kind}, which is not followed" for word, entry in odd)
        return [Subject(kind="file", title=change.path, path=change.path, change=change.word, notes=notes)]

    def _bytes(self, tree: Tree, entry: Entry | None) -> bytes | None:
        return tree.read(entry) if entry is not None else None

    def _plain(self, change: FileChange) -> list[Subject]:
        """A result or a file of rows in a folder; only where both sides have it."""
        if change.base is None or change.head is None or isinstance(self.head, RevisionTree):
            return []
        assert isinstance(self.base, FolderTree) and isinstance(self.head, FolderTree)
        paths = [tree.folder / change.path for tree in (self.base, self.head)]
        if change.path.endswith(".csv"):
            return [rows_subject(change.path, list(read_measured(paths[0])), list(read_measured(paths[1])), self.predictor)]
        data = [self._bytes(self.base, change.base), self._bytes(self.head, change.head)]
        if not all(each is not None and b'"schema_version"' in each for each in data):
            return []
        results = [result_json.from_json(each or b"", name=change.path) for each in data]
        return [result_subject(change.path, results[0], results[1])]

    def _kernels(self, change: FileChange) -> list[Subject]:
        """The kernels of a changed file, read in folders of their own with the files beside them, so that imports are found there
        and nowhere else."""
        for entry in (change.base, change.head):
            if entry is not None:
                check_readable(entry, LARGEST_SOURCE_BYTES)
        with tempfile.TemporaryDirectory(prefix="advisor-compare-") as folder:
            sources: list[SourceFile | None] = []
            for word, tree, entry in (("base", self.base, change.base), ("head", self.head, change.head)):
                data = self._bytes(tree, entry)
                if not mentions_triton(data):
                    sources.append(None)
                    continue
                place = _place(Path(folder, word), change.path)
                _siblings(tree, change.path, place.parent)
                sources.append(self._parsed(data, place, change.path))
            if not any(sources):
                return []
            found = kernel_subjects(change.path, change.word, sources[0], sources[1], settings=self.settings, gpus=self.gpus,
                                    predictor=self.predictor, compiling=self.compiling, recorded=self.recorded)  # fmt: skip
            return [_without_folder(subject, folder) for subject in found]

    @staticmethod
    def _parsed(data: bytes | None, place: Path, path: str) -> SourceFile | None:
        source = parse(data, path)
        return replace(source, path=place) if source is not None else None


def _place(folder: Path, path: str) -> Path:
    """Where a path of a tree is written to, below `folder`.

    Raises:
        InputError: The path would lead out of it.
    """
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or any(part in ("..", "") or len(part.encode("utf-8", "surrogateescape")) > 250 for part in parts):
        raise InputError("not a path inside the tree", path)
    return folder.joinpath(*parts)


def _siblings(tree: Tree, path: str, folder: Path) -> None:
    """Writes the plain Python files that lie beside a file: kernels import each other. They are parsed, never imported."""
    folder.mkdir(parents=True, exist_ok=True)
    parent = PurePosixPath(path).parent
    beside = [
        entry for other, entry in tree.entries().items()
        if PurePosixPath(other).parent == parent and other.endswith(".py") and entry.kind == "file"
        and entry.size_bytes <= LARGEST_SOURCE_BYTES
    ]  # fmt: skip
    for entry in beside[:LARGEST_SIBLINGS]:
        (folder / PurePosixPath(entry.path).name).write_bytes(tree.read(entry))


def _without_folder(subject: Subject, folder: str) -> Subject:
    """The subject with the temporary folder taken out of its texts."""
    def clean(text: str) -> str:
        for side in ("base", "head"):
            text = text.replace(f"{folder}/{side}/", "")
        return text

    rows = tuple(replace(row, reason=clean(row.reason)) for row in subject.resources)
    return replace(subject, notes=tuple(map(clean, subject.notes)), resources=rows)


def _named_like_table(path: str) -> bool:
    """Whether a file is named like a table we know.

    Raises:
        NotOursError: It is the table of another kernel.
    """
    if not path.endswith(".json"):
        return False
    try:
        parse_table_name(path)
    except NotOursError:
        raise
    except InputError:
        return False
    return True


def _settings(base: Tree, head: Tree) -> tuple[Settings, list[str]]:
    for tree, warning in ((base, None), (head, f"{FILE_NAME} is new: what gates is what this change says")):
        entry = tree.entries().get(FILE_NAME)
        if entry is not None and entry.kind == "file":
            return read_settings(tree.read(entry)), [warning] if warning else []
    return Settings(), []


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


def _request(options: Options, settings: Settings, path: str) -> Request:
    """What is known of a table: of its model the command line's word first, then advisor.toml's; the token counts are advisor.toml's."""
    said = settings.table(path)
    given = replace(options.request, tokens=said.get("tokens"))
    if given.model or given.hidden_size:
        return given
    known = {name: said[name] for name in ("model", "hidden_size", "top_k", "tensor_parallel", "expert_parallel") if name in said}
    return replace(given, **known)


def _kind(path: Path) -> str:
    """What a file is, by its name and, for JSON, its content."""
    if path.name.endswith((".csv", ".csv.gz")):
        return "rows"
    if path.suffix == ".py":
        return "kernels"
    if path.suffix == ".json":
        if b'"schema_version"' in _bytes(path):  # whatever it is called
            return "result"
        return "table" if _named_like_table(str(path)) else "result"
    raise InputError(f"{path.name}: neither a result, a table, rows nor a Python file", path.suffix or path.name, ".json, .csv or .py")


def _result(path: Path) -> Result:
    return result_json.from_json(_bytes(path), name=path.name)


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
    subject = rows_subject(title_of(str(head)), [], list(read_measured(head)), predictor)
    return assemble(Compared(label=label), Compared(label=str(head)), [subject], options, Settings(), predictor, ())
