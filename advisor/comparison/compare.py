"""Two folders or two revisions as a `ComparisonResult`: find what differs, and compare it file by file."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import PurePosixPath

from advisor.advising.table_workers import table_workers
from advisor.comparison.around_kernels import changed_functions
from advisor.comparison.assembling import DEFAULT_GPUS, Options, assemble, chosen_gpus
from advisor.comparison.changed_files import ChangedFiles, moved_kernels, moved_tables, no_longer_readable
from advisor.comparison.gate import DEFAULT
from advisor.comparison.kernels.attempts import SPENT, Compiling
from advisor.comparison.kernels.importers import launched_elsewhere
from advisor.comparison.settings import FILE_NAME, Recorded, Settings, matches, read_recorded, read_settings, settings_file
from advisor.comparison.tables import table_in_worker
from advisor.comparison.trees.trees import FileChange, Tree, changes, changes_behind_links, holds
from advisor.comparison.unseen import changed_by_imports, taken_instead, written_otherwise
from advisor.compiled.compiler.compile import cache_folder
from advisor.learned.base import Predictor
from advisor.rendering.comparison_words import AUDITED
from advisor.result.comparison_schema import Compared, ComparisonResult, Failure, Subject
from advisor.system.errors import AdvisorError, NotOursError, UsageError

LARGEST_CHANGES = 100
"""Tables and kernel files that changed, or launch otherwise, and are compared; the rest is counted."""


LISTS = re.compile(r"(tun|config)[^/]*\.ya?ml$")
"""Files in which a library keeps configurations of its kernels (FlagGems' `tune_configs.yaml`)."""


def compare_trees(base: Tree, head: Tree, options: Options, predictor: Predictor) -> ComparisonResult:
    """Two folders or two revisions: every table, kernel file, result and file of rows that differs, and kernels that these launch.

    What gates, which GPUs matter and at which launches kernels are judged is the base's word, so that a change cannot excuse itself; where
    the base has no advisor.toml, the head's can add to what gates, and the result says so.
    """
    if any(holds(tree, cache_folder()) for tree in (base, head)):  # what it kept could be anybody's
        limit, remedy = "a folder of neither side", "name another one in ADVISOR_CACHE_DIR"
        raise UsageError("the cache of compiled kernels is a part of what is compared", str(cache_folder()), limit, remedy)
    with Compiling(wanted=options.compiling) as compiling, ExitStack() as workers:  # its budget runs from here
        return _compared(base, head, options, predictor, compiling, workers)


def _compared(base: Tree, head: Tree, options: Options, predictor: Predictor, compiling: Compiling, workers: ExitStack) -> ComparisonResult:
    differing = changes_behind_links(base, head, changes(base, head))
    relevant = [change for change in moved_tables(differing) if PurePosixPath(change.path).suffix in (".json", ".py", ".csv")]
    base.fetch([change.base for change in relevant if change.base is not None])
    head.fetch([change.head for change in relevant if change.head is not None])
    moved = moved_kernels(relevant, base, head)
    # What has two sides first: compilations are limited.
    relevant.sort(key=lambda change: change.word != "modified" and change.path not in moved.came)
    settings, warnings = (settings_file(options.settings), []) if options.settings is not None else _settings(base, head)
    settings = replace(settings, args=options.args)
    lists = (change.path for change in differing if LISTS.search(change.path))
    warnings += [f"{path} changed: what kernels are tuned over is not read from it." for path in lists]
    warnings += _unmatched(settings, base, head) + _unnamed(options.args, relevant, base, head)
    gpus = chosen_gpus(options, settings)
    launched = launched_elsewhere(base, head, relevant)
    warnings += launched.left_out
    files = ChangedFiles(
        base=base,
        head=head,
        request=options.request,
        settings=settings,
        gpus=gpus,
        predictor=predictor,
        compiling=compiling,
        moved=moved,
        launched=launched,
        recorded=_recorded(base, head, options, settings, warnings),
    )
    imported, unread = changed_by_imports(base, head, relevant)
    warnings += unread
    subjects: list[Subject] = [*written_otherwise(base, head, differing), *taken_instead(head, differing)]
    skipped: list[str] = []
    taken = unjudged = 0
    looked_at = (*relevant, *launched.unchanged(base, head, relevant))
    tables = files.predicted(looked_at[:LARGEST_CHANGES] if options.processes else ())
    answers = workers.enter_context(table_workers(len(tables), options.weights, predictor))(table_in_worker, tables.values())
    for number, change in enumerate(looked_at):
        if taken >= LARGEST_CHANGES:
            unjudged = len(looked_at) - number
            warnings.append(f"More than {LARGEST_CHANGES} tables and kernel files to compare: {unjudged} more are not compared.")
            subjects += files.failing(looked_at[number:])
            break
        try:
            answer = next(answers) if change in tables else None
            found_subjects = files.subjects(change) if answer is None else [answer]
        except NotOursError as error:
            skipped.append(str(error))
            continue
        except AdvisorError as error:
            broken = no_longer_readable(base, head, change)
            found_subjects = [broken or Subject(kind="file", title=change.path, path=change.path, change=change.word, notes=(str(error),))]
        except Exception as error:  # one odd file must not hide what there is to say of the others
            failure_text = f"could not be compared: internal failure ({type(error).__name__}: {error}); please report it"
            failure = Failure(condition="failed", what="", reason=failure_text)  # what cannot be judged does not pass
            found_subjects = [
                Subject(kind="file", title=change.path, path=change.path, change=change.word, notes=(failure_text,), failures=(failure,))
            ]
        if change.base is not None and change.base.path != change.path:
            found_subjects = [
                replace(subject, notes=(f"Moved here from {change.base.path}.", *subject.notes)) for subject in found_subjects
            ]
        taken += bool(found_subjects)
        subjects += found_subjects
    paths = {subject.path for subject in subjects}
    subjects += [subject for subject in imported if subject.path not in paths]
    if audited := sum(any(AUDITED in note for note in subject.notes) for subject in subjects):
        warnings.append(f"{audited} tables were audited, and not predicted: {SPENT}.")
    around, left_out = changed_functions(base, head, relevant)
    warnings += left_out
    return assemble(
        Compared(label=base.label, revision=base.revision),
        Compared(label=head.label, revision=head.revision),
        subjects,
        options,
        settings,
        predictor,
        gpus,
        warnings=warnings,
        skipped=skipped,
        unjudged=unjudged,
        renamed=files.renamed,
        around=[item.text for item in around],
    )


def _unmatched(settings: Settings, base: Tree, head: Tree) -> list[str]:
    """What advisor.toml says of tables and kernel files that neither side has: most likely misspelled."""
    paths = {*base.entries(), *head.entries()}
    lost = [
        f'tables."{pattern}" matches no file of either side; a pattern is of the whole path'
        for pattern in settings.tables
        if not any(matches(path, pattern) for path in paths)
    ]
    for key in settings.kernels:
        if (path := key.partition("::")[0]) not in paths:
            lost.append(f'kernels."{key}": neither side has a file {path}')
    return [f"{FILE_NAME}: {item}" for item in lost]


def _unnamed(args: Iterable[str], relevant: Iterable[FileChange], base: Tree, head: Tree) -> list[str]:
    """Arguments of `--arg` that no changed Python file names: most likely misspelled."""
    args = list(args)
    files = [change for change in relevant if args and change.path.endswith(".py")]
    texts = [tree.read(entry) for c in files for tree, entry in ((base, c.base), (head, c.head)) if entry is not None]
    return [f"--arg {name}: no changed Python file has this name" for name in args if not any(name.encode() in text for text in texts)]


def _settings(base: Tree, head: Tree) -> tuple[Settings, list[str]]:
    """What the base's advisor.toml says. Where only the head has one, no more of it than what can make more gate: what is judged says
    neither by what it is, nor at which launch."""
    old, new = (tree.entries().get(FILE_NAME) for tree in (base, head))
    if old is not None and old.kind == "file":
        changed = new is not None and new.identity != old.identity
        warning = f"{FILE_NAME} changed: what the base's says counts, and what it says now once that is the base's"
        return read_settings(base.read(old)), [warning] if changed else []
    if new is None or new.kind != "file":
        return Settings(), []
    settings = read_settings(head.read(new))
    more = [word for word in settings.fail_on or () if word != "none"]
    added = Settings(
        fail_on=tuple(dict.fromkeys((*DEFAULT, *more))) if settings.fail_on is not None else None,
        gpus=tuple(dict.fromkeys((*DEFAULT_GPUS, *settings.gpus))),
        tables=settings.tables,
    )
    warning = f"{FILE_NAME} is new: until it is the base's it adds GPUs and what gates; what it says of kernels and launches is not taken"
    return added, [warning]


def _recorded(base: Tree, head: Tree, options: Options, settings: Settings, warnings: list[str]) -> Recorded:
    """The records given, and those that advisor.toml names: of the base, else of the head, read from the tree."""
    records = options.records
    for path in settings.launches:
        tree, entry = next(((side, side.entries()[path]) for side in (base, head) if path in side.entries()), (base, None))
        if entry is None:
            warnings.append(f"{FILE_NAME}: launches: {path} is on neither side")
            continue
        try:
            content = tree.read(entry)
            read_recorded([(path, content)])
        except AdvisorError as error:  # what a change brings along must not end the comparison
            warnings.append(f"{FILE_NAME}: launches: {error}")
            continue
        records.append((path, content))
    return read_recorded(records)
