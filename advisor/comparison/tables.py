"""Tuned tables: what each token count runs with before and after, what would run without the table, and what the audit says."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from advisor.advising import launch_reports
from advisor.advising.choice import predicted_latency
from advisor.advising.table_workers import predictor_of_worker
from advisor.advising.targets import PlannedLaunch, Request, Target
from advisor.advising.targets.table_targets import fused_moe_table, gemm_table
from advisor.comparison.settings import Settings
from advisor.comparison.static import latency_sum, static_row
from advisor.comparison.trees.trees import Entry
from advisor.diagnosis import table_findings
from advisor.gpus.hardware import GpuSpec, match_device_name
from advisor.learned.base import Predictor, predict_each
from advisor.pipelines import configuration_batch
from advisor.result.comparison_schema import CHANGES, Failure, FailureCondition, StaticRow, StaticSide, Subject
from advisor.result.schema import Configuration, Finding, LaunchReport, Problem
from advisor.system import grouped
from advisor.system.errors import AdvisorError, InputError, NotOursError
from advisor.tables import entries as defaults
from advisor.tables.audit import AuditIssue, audit_table
from advisor.tables.names import TableName, parse_table_name
from advisor.tables.tables import Table, clamp, is_number, is_token_count, nearest_key, takes_triton_version

CERTAIN: dict[str, FailureCondition] = {
    "unreadable": "failed",
    "bad-entry": "failed",
    "odd-key": "failed",
    "wrong-scales": "failed",
    "does-not-fit": "cannot-launch",
    "num-warps": "cannot-launch",
    "num-ctas": "cannot-launch",
    "shallow-dot": "cannot-launch",
    "unknown-option": "cannot-launch",
    "split-k": "cannot-launch",
}
"""Checks of the audit that a launch cannot survive. Errors that are none: the stacks take the last of two equal keys, and where a GPU
refuses a table's operands (`refused-dtype`) vLLM runs another kernel, which asks for no table."""


def is_certain(issue: AuditIssue) -> bool:
    """Whether what the audit found makes a launch fail, or its output wrong. Of one check some may be errors and others not: a `SPLIT_K`
    that is ignored does no harm, and whatever `triton_version` says does none where the loader takes it out."""
    if issue.check not in CERTAIN or issue.severity != "error":
        return False
    if issue.key == "triton_version":
        return not takes_triton_version(parse_table_name(issue.path))
    return issue.check != "bad-entry" or issue.key is None or is_token_count(issue.key) or not is_number(issue.key)


def table_failures(new: Iterable[AuditIssue], old: Iterable[AuditIssue], labels: Iterable[str]) -> tuple[Failure, ...]:
    """What fails in the new version of a table, and did not in the old one.

    Args:
        new: What the audit finds in the new version.
        old: The same of the old one: an entry that failed there does not begin to.
        labels: The keys of entries of which a row says it. Where the file as a whole cannot be read, every row does.
    """
    labels = set(labels)
    before = [issue for issue in old if is_certain(issue)]
    known = {issue.key for issue in before if issue.key is not None} | labels
    whole = {issue.message for issue in before if issue.key is None}
    return tuple(
        Failure(condition=CERTAIN[issue.check], what=f"entry {issue.key}" if issue.key is not None else "", reason=issue.message)
        for issue in new
        if is_certain(issue) and (not labels and issue.message not in whole if issue.key is None else issue.key not in known)
    )


def why_it_fails(table: Table | None, issues: Iterable[AuditIssue], tokens: int) -> str:
    """Why what a version of a table launches for a token count is certain to fail; empty where it is not, and where a row says it with
    its own figures (`does-not-fit`)."""
    certain = [issue for issue in issues if is_certain(issue) and issue.check != "does-not-fit"]
    key = str(nearest_key(table.keys, tokens)) if table is not None else None
    matching = next((issue for issue in certain if key is None or issue.key in (None, key)), None)
    if matching is None:
        return ""
    return matching.message if matching.key is not None else matching.message.partition("; ")[0]  # in short, for every row says it


LARGEST_TOKEN_COUNTS = 64
"""Token counts compared per table; the rest is said to be left out."""

_KEY = re.compile(rb'"(\d{1,9})"\s*:')
_STACK_FOLDER = re.compile(r"triton_[0-9A-Za-z_]{1,32}|vllm|sglang")


def named_like_table(path: str) -> bool:
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


def table_request(given: Request, settings: Settings, path: str, former: str | None = None) -> Request:
    """What is known of a table: of its model the command line's word first, then advisor.toml's; the token counts are advisor.toml's.
    Where advisor.toml says nothing of its path, what it says of the `former` one counts."""
    settings_of_table = settings.table(path) or settings.table(former or path)
    given = replace(given, tokens=settings_of_table.get("tokens"))
    if given.model or given.hidden_size:
        return given
    known = {
        name: settings_of_table[name]
        for name in ("model", "hidden_size", "top_k", "tensor_parallel", "expert_parallel")
        if name in settings_of_table
    }
    return replace(given, **known)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Version:
    """One version of a table, read."""

    table: Table | None
    issues: tuple[AuditIssue, ...]
    fallback: str = ""  # how the table is called that runs in place of one that is not there


def read_version(data: bytes | None, path: str, folder: Path) -> _Version | None:
    """A table from its bytes. It is written below `folder` first, because the audit reads files; only the folders that say which
    stack and Triton version it belongs to are kept of its path.

    Raises:
        InputError: The name cannot be a file's.
    """
    if data is None:
        return None
    pure = PurePosixPath(path)
    if pure.name in ("", ".", "..") or "\0" in pure.name or len(pure.name.encode("utf-8", "surrogateescape")) > 250:
        raise InputError("not a file name", path, "a file name of at most 250 bytes")
    place = folder.joinpath(*(part for part in pure.parts[:-1] if _STACK_FOLDER.fullmatch(part)), pure.name)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(data)
    table, issues = audit_table(place)
    return _Version(table=table, issues=issues)


def table_subject(
    path: str,
    change: CHANGES,
    base: bytes | None,
    head: bytes | None,
    *,
    request: Request,
    gpus: Sequence[GpuSpec],
    predictor: Predictor,
    base_path: str | None = None,
    anywhere: bool = False,
    fallback: Fallback | None = None,
    predict: bool = True,
) -> Subject:
    """Compare two versions of one table; either may be missing.

    A table that no launch asks for, or whose GPU is not described, has no rows: whatever was predicted of it would run nowhere.

    Args:
        path: Where the head version lies, as it is shown.
        change: What happened to it.
        base: Content of the old version.
        head: Content of the new version.
        request: What is known of the model; the token counts to compare, where they are not the tables' own.
        gpus: The GPUs to predict for with `anywhere`; else it is that of the table's own name.
        predictor: Where predictions come from.
        base_path: Where the old version lies, if elsewhere.
        anywhere: Predict for `gpus`, whatever the name says.
        fallback: The table that runs on the side that is missing, where one does. The audit is of the files; it has no part in that.
        predict: Whether to predict at all, or only audit.
    """
    with tempfile.TemporaryDirectory(prefix="advisor-compare-") as folder:
        old = read_version(base, base_path or path, Path(folder, "base"))
        new = read_version(head, path, Path(folder, "head"))
        before, after = old, new  # what runs on either side
        name = parse_table_name(path)
        gpu_of_name = match_device_name(name.device_name)
        notes = []
        unasked = change != "compared" and _is_unasked(new or old)
        if unasked:
            notes.append("No launch asks for a table of this name: it changes nothing that runs.")
        elif gpu_of_name is None and not anywhere:
            notes.append(f"The GPU in its name is not described in ceilings/ ({name.device_name}): nothing is predicted.")
        if fallback is not None:
            runs = _read_fallback(fallback, path, Path(folder, "fallback"))
            before, after = (runs, new) if base is None else (old, runs)
            unreadable = ", which cannot be read" if runs is None or runs.table is None else ""
            side = "base" if base is None else "head"
            notes.append(f"The {side} does not have this table: SGLang falls back to {fallback.label} there{unreadable}.")
        rows: list[StaticRow] = []
        for gpu in () if unasked or not predict else tuple(gpus) if anywhere else (gpu_of_name,) if gpu_of_name is not None else ():
            try:
                compared_rows, remarks = _rows(before, after, replace(request, gpu=gpu.name), gpu, predictor)
            except AdvisorError as error:
                compared_rows, remarks = [], [f"No prediction on {gpu.name}: {error}"]
            rows += compared_rows
            notes += [item for item in remarks if item not in notes]
        lines = _entry_lines(head or b"")
        rows = [replace(row, line=lines.get(row.id.removeprefix("M"))) for row in rows]
        return Subject(
            kind="table",
            title=PurePosixPath(path).name,
            path=path,
            change=change,
            static=tuple(rows),
            notes=tuple(notes),
            new_issues=_difference(new, old),
            cured_issues=_difference(old, new) if new is not None and new.table is not None else (),
            failures=()
            if unasked or new is None
            else table_failures(
                new.issues,
                old.issues if old is not None else (),
                labels=(row.id.removeprefix("M") for row in rows if row.verdict in ("failed", "cannot-launch", "never-launches")),
            ),
        )


def table_in_worker(arguments: Mapping[str, Any]) -> Subject | None:
    """In a worker: `table_subject` of its arguments but for what predicts; None: it raises an error."""
    with contextlib.suppress(Exception):
        return table_subject(predictor=predictor_of_worker(), **arguments)
    return None


def _entry_lines(data: bytes) -> dict[str, int]:
    """The line of each entry of a table, by its key."""
    return {lines[1].decode(): data.count(b"\n", 0, lines.start()) + 1 for lines in _KEY.finditer(data)}


def _is_unasked(version: _Version | None) -> bool:
    """Whether no launch asks for a table of its name."""
    return version is not None and any(issue.check == "unreachable-name" for issue in version.issues)


def _read_fallback(fallback: Fallback, path: str, folder: Path) -> _Version | None:
    """A fallback, read under the name that it stands in for: which GEMMs run with a table depends on that."""
    version = read_version(fallback.data, str(PurePosixPath(fallback.path).with_name(PurePosixPath(path).name)), folder)
    return replace(version, fallback=fallback.label) if version is not None else None


def _difference(one: _Version | None, other: _Version | None) -> tuple[Finding, ...]:
    """What the audit finds in one version and not in the other."""
    if one is None:
        return ()
    known = {(issue.key, issue.check, issue.message) for issue in other.issues} if other is not None else set()
    findings = table_findings(issue for issue in one.issues if (issue.key, issue.check, issue.message) not in known)
    return tuple(map(_with_its_entry, findings))


def _with_its_entry(finding: Finding) -> Finding:
    """The finding with the one entry that it is about named in its evidence; of several the evidence names them already."""
    key = finding.scope.removeprefix("entry ").removeprefix("M=")
    named = any(words in finding.evidence for words in (f"entry {key}: ", f"key '{key}'", f"from {key} to"))
    return finding if named or not finding.scope.startswith("entry ") else replace(finding, evidence=f"entry {key}: {finding.evidence}")


def _rows(
    old: _Version | None, new: _Version | None, request: Request, gpu: GpuSpec, predictor: Predictor
) -> tuple[list[StaticRow], list[str]]:
    tables = [version.table for version in (old, new) if version is not None and version.table is not None]
    if not tables:
        return [], []
    tokens, notes = _token_counts(old, new, request.tokens)
    targets = [_target(version, replace(request, tokens=tokens, assume=True)) for version in (old, new)]
    shown = next(target for target in reversed(targets) if target is not None)
    if shown.assumption:
        notes.append(shown.assumption + ".")
    remarks = tuple(f"M = {count}: " for count in tokens if new is not None and why_it_fails(new.table, new.issues, count))
    notes += [warning for target in targets if target is not None for warning in target.warnings if not warning.startswith(remarks)]
    sides = _sides(targets[0], targets[1], predictor)
    pairs = {count: pair for count in tokens if any(pair := [side.get(count) for side in sides])}
    problems = {count: [report.problem for report in pair[1] or pair[0] or []] for count, pair in pairs.items()}
    defaults_by_count = _defaults(tables[-1].name, problems, gpu, predictor)
    rows = []
    for count, pair in pairs.items():
        default = defaults_by_count[count]
        failure = why_it_fails(new.table, new.issues, count) if new is not None else ""
        rows.append(
            static_row(f"M{count}", f"M={count}", gpu.name, pair[0], pair[1], default=default, removed=new is None, failure=failure)
        )
    return rows, notes


def _token_counts(old: _Version | None, new: _Version | None, wanted: Sequence[int] | None) -> tuple[tuple[int, ...], list[str]]:
    """Those that are wanted, else the keys of both versions; where there are too many, those whose entry differs first."""
    entries: list[dict[int, Configuration | None]] = [
        {**dict.fromkeys(version.table.unreadable_keys), **dict(version.table.entries)}
        if version is not None and version.table is not None
        else {}
        for version in (old, new)
    ]
    everything = sorted(wanted or {*entries[0], *entries[1]})
    if len(everything) <= LARGEST_TOKEN_COUNTS:
        return tuple(everything), []
    order = sorted(everything, key=lambda count: (entries[0].get(count) == entries[1].get(count), count))
    note = f"{len(everything) - LARGEST_TOKEN_COUNTS} of {len(everything)} token counts were left out."
    return tuple(sorted(order[:LARGEST_TOKEN_COUNTS])), [note]


def _target(version: _Version | None, request: Request) -> Target | None:
    if version is None or version.table is None:
        return None
    read = fused_moe_table if version.table.name.kind == "fused_moe" else gemm_table
    target = read(version.table, request)
    if not version.fallback:
        return target
    return replace(target, launches=tuple(replace(launch, source=f"{launch.source} of {version.fallback}") for launch in target.launches))


Groups = Mapping[int, Sequence[LaunchReport]]
"""Launch reports by token count."""


def _sides(old: Target | None, new: Target | None, predictor: Predictor) -> tuple[Groups, Groups]:
    """The reports of either version. Launches that are the same in both are looked at once, and without their causes: of these neither
    is new, and neither is cured."""
    if old is None or new is None or not _alike(old, new):
        return _groups(old, predictor), _groups(new, predictor)
    before, after = _by_tokens(old), _by_tokens(new)
    same = {count for count in after if before.get(count) == after[count]}
    shared = _groups(_of(new, same), predictor, diagnosing=False)
    return (
        {**shared, **_groups(_of(old, before.keys() - same), predictor)},
        {**shared, **_groups(_of(new, after.keys() - same), predictor)},
    )


def _alike(old: Target, new: Target) -> bool:
    """Whether what is said of a launch is the same in both, if the launch is; their spaces follow from its problem and these."""
    names = [target.table.name if target.table is not None else None for target in (old, new)]
    return names[0] == names[1] and (old.gpu, old.stack) == (new.gpu, new.stack)


def _by_tokens(target: Target) -> dict[int, list[PlannedLaunch]]:
    by_tokens = grouped((launch.tokens or 0, launch) for launch in target.launches)
    return by_tokens


def _of(target: Target, counts: Collection[int]) -> Target:
    """The target with only the launches of some token counts."""
    return replace(target, launches=tuple(launch for launch in target.launches if (launch.tokens or 0) in counts))


def _groups(target: Target | None, predictor: Predictor, *, diagnosing: bool = True) -> Groups:
    if target is None:
        return {}
    counts = {launch.id: launch.tokens for launch in target.launches}
    groups = grouped((counts[report.id] or 0, report) for report in launch_reports(target, predictor, diagnosing=diagnosing))
    return groups


def _defaults(name: TableName, problems: Mapping[int, Sequence[Problem]], gpu: GpuSpec, predictor: Predictor) -> dict[int, StaticSide]:
    """What the serving stack launches for each token count where it finds no table, all predicted at once."""
    stack = "sglang" if name.stack == "sglang" else "vllm"
    source = f"{_STACKS[stack]}'s default"
    configurations = {count: _default_configuration(name, stack, some[0], gpu) for count, some in problems.items()}
    launched = {count: configuration_batch([clamp(configuration, name)]) for count, configuration in configurations.items()}
    queries = [(problem, launched[count]) for count, some in problems.items() for problem in some]
    predictions = iter(predict_each(predictor, queries, gpu))
    sides = {}
    for count, some in problems.items():
        of_count = [next(predictions) for _ in some]
        reached = all(np.isfinite(prediction.us[0]) for prediction in of_count)
        predicted = latency_sum([predicted_latency(prediction, predictor) for prediction in of_count]) if reached else None
        sides[count] = StaticSide(configuration=configurations[count], source=source, predicted=predicted)
    return sides


_STACKS = {"vllm": "vLLM", "sglang": "SGLang"}


def _default_configuration(name: TableName, stack: str, problem: Problem, gpu: GpuSpec) -> Configuration:
    if name.kind == "gemm":
        return defaults.default_gemm_configuration(stack, name.block_shape)
    options: dict[str, Any] = {
        "dtype": name.dtype,
        "block_shape": name.block_shape,
        "amd": gpu.vendor == "amd",
        "shared_memory_bytes_per_cta": gpu.smem_bytes_per_cta,
    }
    return defaults.default_configuration(stack, problem.sizes["M"], problem.sizes["E"], **options)


_VERSION = re.compile(r"triton_[0-9]+(?:_[0-9]+)*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fallback:
    """The table that runs in place of one that is not there."""

    path: str
    data: bytes

    @property
    def label(self) -> str:
        """`triton_3_5_1/E=….json`: the version is in the folder, not in the name."""
        return "/".join(PurePosixPath(self.path).parts[-2:])


def version_folders(paths: Iterable[str]) -> dict[PurePosixPath, list[PurePosixPath]]:
    """The folders of Triton versions in a tree, by the folder they lie in, the newest version first."""
    folders = grouped((place.parent, place) for place in {PurePosixPath(path).parent for path in paths} if _VERSION.fullmatch(place.name))
    for places in folders.values():
        places.sort(key=lambda place: [int(part) for part in place.name.removeprefix("triton_").split("_")], reverse=True)
    return folders


def fallback_entry(path: str, entries: Mapping[str, Entry], versions: Mapping[PurePosixPath, Sequence[PurePosixPath]]) -> Entry | None:
    """The table that runs in place of one that is not there; None where the stack's default does.

    Args:
        path: Where the table would lie.
        entries: Everything in the tree, by path.
        versions: Its `version_folders`.
    """
    name = parse_table_name(path)
    if name.kind != "fused_moe" or name.stack != "sglang":  # vLLM, and SGLang for GEMMs, open one file or none
        return None
    folder = PurePosixPath(path).parent
    others = versions.get(folder.parent, ()) if _VERSION.fullmatch(folder.name) else ()
    folders = [folder, *(place for place in others if place != folder)]
    for wanted in (name, replace(name, down=False)) if name.down else (name,):
        for place in folders:
            entry = entries.get(str(place / wanted.file_name()))
            if entry is not None and entry.kind == "file":
                return entry
    return None
