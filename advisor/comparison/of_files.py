"""Two files as a `ComparisonResult`: results, rows, versions of a table or of a kernel file; or one that has no baseline."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from advisor.comparison.assembling import Options, assemble, chosen_gpus
from advisor.comparison.files import common_fingerprint, result_subject, rows_subject, title_of
from advisor.comparison.kernels.kernel_source import parse
from advisor.comparison.kernels.kernels import kernel_subjects
from advisor.comparison.kernels.resources import Compiling
from advisor.comparison.recorded import read_recorded
from advisor.comparison.settings import FILE_NAME, Settings, read_settings
from advisor.comparison.tables import named_like_table, table_request, table_subject
from advisor.gpus.hardware import load_gpu, match_device_name
from advisor.learned.base import Predictor
from advisor.measurement.measured_rows import read_measured
from advisor.result import result_json
from advisor.result.comparison_schema import LARGEST_BYTES, Compared, ComparisonResult, Subject, comparison_from_json
from advisor.result.schema import Fingerprint, Result
from advisor.system.errors import InputError, UsageError
from advisor.system.reading import read_bytes
from advisor.tables.names import parse_table_name

OF_MODEL = ("model", "hidden_size", "top_k", "tensor_parallel", "expert_parallel")
"""What a `Request` says of the model."""


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
        other = _other_problem(base, head)
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
        warnings = (*other, *(() if options.gpus else _other_gpu(base, head)))
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
        raise InputError(
            "the two tables are for different kernels",
            f"{base.name} ({names[0].kind}) and {head.name} ({names[1].kind})",
            "two tables of fused MoE, or two of GEMMs",
        )
    said = [(name.E, name.N, name.K, name.dtype, name.block_shape, name.down) for name in names]
    if said[0] == said[1]:
        return ()
    return (f"{base.name} and {head.name} are for different problems: both are compared on those of {head.name}",)


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
    raise InputError(
        f"{path.name}: what `advisor compare` wrote, not a result",
        None,
        "a result.json of `advisor advise`",
        f"show it with `advisor compare --render {shlex.quote(str(path))}`",
    )


def _bytes(path: Path) -> bytes:
    return read_bytes(path, str(path), "a file to compare", LARGEST_BYTES)


def folder_settings(folder: Path) -> Settings:
    """The advisor.toml of a folder; as without one where there is none."""
    path = folder / FILE_NAME
    return read_settings(_bytes(path)) if path.is_file() else Settings()
