"""Look at the tuning cache of @advisor.autotune, take it elsewhere, bring another in, clean it up.

ls       what was decided: kernel, GPU, key, configuration, latency; --timings: every configuration, and why any was left out
export   write it to FILE: JSON to ship in a container
import   read exports, Triton's *.autotune.json and triton-dejavu's cache.json, or folders of them; nothing measured is overwritten
prune    forget problems, by age, kernel or GPU

The cache lies in $ADVISOR_CACHE_DIR, else in ~/.cache/triton-advisor.

examples:
  advisor cache ls
  advisor cache export best.json
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli import options
from advisor.system.errors import InputError, NothingMatchedError, NotOursError, UsageError, agree, several
from advisor.system.reading import files_below
from advisor.system.settings import read_settings

if TYPE_CHECKING:
    from advisor.autotuning.decisions.cache import Cache, ProblemKey
    from advisor.autotuning.decisions.exchange import Entry

DAY_S = 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor cache`."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    ls = actions.add_parser("ls", help="what was decided")
    ls.add_argument("--format", choices=("text", "json"), default="text")
    ls.add_argument("--timings", action="store_true", help="every configuration, and why any was left out")
    export = actions.add_parser("export", help="write it to a file")
    export.add_argument("file", metavar="FILE", help="FILE.json")
    bring = actions.add_parser("import", help="read exports and the caches of other tuners")
    bring.add_argument("paths", metavar="PATH", nargs="+", help="files, or folders of them")
    bring.add_argument("--gpu", metavar="NAME", help="GPU that another tuner's files were measured on (Triton's do not say)")
    prune = actions.add_parser("prune", help="forget")
    prune.add_argument("--older-than", metavar="DAYS", type=options.amount_of_time, help="not used for so many days")
    prune.add_argument("--all", action="store_true", help="everything")
    prune.add_argument("--dry-run", action="store_true", help="say what would be forgotten")
    for sub in (ls, export, prune):
        sub.add_argument("--kernel", metavar="NAME", help="only this kernel")
    for sub in (ls, export, prune):
        sub.add_argument("--gpu", metavar="NAME", help="only this GPU")
    for sub in (ls, export, bring, prune):
        sub.add_argument("--dir", metavar="DIR", help="folder of the cache, in place of ADVISOR_CACHE_DIR")


def run(arguments: argparse.Namespace) -> int:
    """Do what was asked."""
    from advisor.autotuning.decisions.cache import FILE_NAME, Cache, copy_of

    folder = Path(arguments.dir) if arguments.dir else read_settings().cache_dir
    if arguments.action in ("ls", "export", "prune") and not (folder / FILE_NAME).exists():
        raise NothingMatchedError(f"{folder}: there is no tuning cache", None, None, "run a kernel with @advisor.autotune first")
    if arguments.action in ("ls", "export") and (folder / FILE_NAME).stat().st_size:  # what is empty is a cache not yet written to
        copy_of(folder.absolute() / FILE_NAME).close()  # a damaged one is said to be that, and not to hold nothing
    cache = Cache(folder.absolute())
    try:
        return {"ls": _list, "export": _export, "import": _import, "prune": _prune}[arguments.action](cache, arguments)
    finally:
        cache.close()


def _list(cache: Cache, arguments: argparse.Namespace) -> int:

    from advisor.autotuning.decisions.exchange import entries
    from advisor.rendering.figures import clean, microseconds

    cached = list(entries(cache, arguments.kernel, arguments.gpu))
    if arguments.format == "json":
        print(json.dumps([_document(entry) for entry in cached], indent=2, ensure_ascii=False))
    for entry in cached if arguments.format == "text" else ():
        latency = f"{microseconds(entry.best_us)} µs" if entry.best_us is not None else "not measured"
        how = entry.decided[0][2] if entry.decided else "undecided"
        measured = sum(row.us is not None for row in entry.rows)
        key = "  ".join(filter(None, (entry.key.key, entry.key.constants)))
        print(clean(f"{entry.key.kernel}  {entry.key.gpu}  {key}  Triton {entry.key.triton or 'unknown'}"))
        print(clean(f"  {how}: {_label(entry.best)}  {latency}  ({measured} measured, {len(entry.rows) - measured} left out)"))
        for row in entry.rows if arguments.timings else ():
            shown = f"{microseconds(row.us):>10} µs" if row.us is not None else f"{row.state:>13}"
            predicted = f"  predicted {microseconds(row.predicted_us)} µs" if row.predicted_us is not None else ""
            print(clean(f"  {shown}  {_label(row.config)}{predicted}" + (f"  {row.reason}" if row.reason else "")))
    if not cached:
        selection = " on ".join(filter(None, (arguments.kernel, arguments.gpu)))
        if not selection:
            raise NothingMatchedError(f"{cache.path}: the cache is empty", None, None, "run a kernel with @advisor.autotune first")
        raise NothingMatchedError(f"{cache.path}: no problem like it", selection, None, "without --kernel and --gpu it lists them all")
    print(f"advisor: {several(len(cached), 'problem')} in {cache.path}", file=sys.stderr)
    return 0


def _label(config: str | None) -> str:
    if config is None:
        return "nothing measured"
    values = _told(config)
    return " ".join(f"{name}={value}" for name, value in values.items()) if isinstance(values, dict) else config


def _told(text: str | None) -> object:
    """The content of a cache as JSON; where that is damaged, the text itself: a listing is how the damage is found."""
    try:
        return json.loads(text) if text else None
    except (ValueError, RecursionError):
        return text


def _document(entry: Entry) -> dict[str, object]:
    return {
        "kernel": entry.key.kernel,
        "gpu": entry.key.gpu,
        "key": entry.key.key,
        "constants": entry.key.constants,
        "triton": entry.key.triton,
        "family": entry.key.family,
        "problem": _told(entry.key.problem),
        "decided": entry.decided[0][2] if entry.decided else None,
        "configuration": _told(entry.best),
        "latency_us": entry.best_us,
        "timings": [{**row._asdict(), "config": _told(row.config)} for row in entry.rows],
    }


def _export(cache: Cache, arguments: argparse.Namespace) -> int:

    from advisor.autotuning.decisions.exchange import entries, to_json

    cached = list(entries(cache, arguments.kernel, arguments.gpu))
    if not cached:
        raise NothingMatchedError("nothing to export", None, None, "`advisor cache ls` shows what there is")
    path = Path(arguments.file)
    if path.suffix == ".csv":
        raise UsageError("an export is JSON", str(path), "FILE.json", "`advisor measure` writes rows (CSV)")
    options.write_text(path, to_json(cached), "name another file")
    print(f"advisor: {several(len(cached), 'problem')} written to {path}", file=sys.stderr)
    return 0


def _import(cache: Cache, arguments: argparse.Namespace) -> int:

    from advisor.autotuning.decisions.exchange import FILES, import_path

    problems = files = 0
    for path in map(Path, arguments.paths):
        for file in files_below(path, FILES) if path.is_dir() else [path]:
            try:
                problems, files = problems + import_path(cache, file, arguments.gpu), files + 1
            except NotOursError as error:
                if file == path:
                    raise
                options.warn(f"skipped {error}")
    if not files:
        raise NothingMatchedError("nothing to import", " ".join(arguments.paths), "exports, *.autotune.json or cache.json")
    _check_kept(cache)
    brought_in = f"{several(problems, 'problem')} from {several(files, 'file')} {agree(problems, 'is', 'are')}"
    print(f"advisor: {brought_in} in {cache.path}", file=sys.stderr)
    return 0


def _check_kept(cache: Cache) -> None:
    """A cache that cannot be written goes on in memory: right for a kernel that is being tuned, and no use to anybody here.

    Raises:
        InputError: What was done is lost.
    """
    if cache.in_memory:
        raise InputError(
            f"{cache.path}: cannot be written, and is as it was",
            None,
            "a tuning cache in a folder you may write to",
            "make room, or name another folder with --dir; the warning above says which",
        )


def _prune(cache: Cache, arguments: argparse.Namespace) -> int:

    from advisor.gpus.hardware import gpu_model

    if not (arguments.all or arguments.older_than is not None or arguments.kernel or arguments.gpu):
        raise UsageError("prune: say what to forget", None, "--older-than DAYS, --kernel NAME, --gpu NAME or --all")
    before = time.time() - DAY_S * arguments.older_than if arguments.older_than is not None else None
    gpu = gpu_model(arguments.gpu) if arguments.gpu else None

    doomed: dict[ProblemKey, None] = {}

    def chosen(key: ProblemKey, used: float) -> bool:
        excluded = (
            (arguments.kernel and key.kernel != arguments.kernel) or (gpu and key.gpu != gpu) or (before is not None and used >= before)
        )
        if not excluded:
            doomed[key] = None
            print(f"{key.kernel}  {key.gpu}  {key.key}")
        return not excluded and not arguments.dry_run

    cache.forget(chosen)
    if not arguments.dry_run:
        _check_kept(cache)
    print(f"advisor: {several(len(doomed), 'problem')} {'would be ' if arguments.dry_run else ''}forgotten", file=sys.stderr)
    return 0
