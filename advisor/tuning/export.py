"""The files of a tuning run: the table under its right name, `triton.Config`s, and the before/after table reviewers ask for."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from advisor.advising.exports import PredictedTable, triton_config
from advisor.rendering.figures import microseconds
from advisor.result.schema import Configuration, Export, Result
from advisor.search.search_report import Winner
from advisor.system import grouped
from advisor.system.writing import replacing, unwritable
from advisor.tables.audit import AuditIssue, entry_errors
from advisor.tables.names import TableName
from advisor.tables.tables import Table, read_table, render_table
from advisor.tables.tuned_table import TunedTable, default_table
from advisor.tuning.order import table_name
from advisor.tuning.plan import Plan

ANOTHER = "choose another --export"


HEADER = ("decision", "before", "before µs", "after", "after µs", "speedup", "trials", "outcome")


def cells(winner: Winner) -> tuple[str, ...]:
    """The outcome of a decision as a row of text."""

    def us(value: float | None) -> str:
        return "unknown" if value is None else microseconds(value)

    def label(configuration: Configuration | None) -> str:
        return "-" if configuration is None else configuration.label()

    before, speedup = winner.decision.incumbent, "-" if winner.speedup is None else f"{winner.speedup:.3f}"
    after = "as before" if winner.configuration == before else label(winner.configuration)
    outcome = f"{winner.outcome}: {winner.note}"
    if winner.candidate is not None:
        takes = "" if winner.best_us is None else f" ({microseconds(winner.best_us)} µs)"
        outcome += f"; the search's best: {label(winner.candidate)}{takes}"
    return (winner.decision.task.id, label(before), us(winner.before_us), after, us(winner.us), speedup, str(winner.tried), outcome)


def markdown(winners: Sequence[Winner], title: str, source: str, warnings: Sequence[str] = ()) -> str:
    """The before/after table for a pull request, losses included, and what to warn of in what is exported."""
    changed = sum(winner.changed for winner in winners)
    lines = [
        f"### {title}",
        "",
        f"{changed} of {len(winners)} decisions changed ({source}). A search's best that did not win against what "
        "runs today is listed with its latency, and not used.",
        "",
        "| " + " | ".join(HEADER) + " |",
        "|" + " --- |" * len(HEADER),
    ]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in cells(winner)) + " |" for winner in winners]
    return "\n".join(lines) + "\n" + "".join(f"\n{warning}\n" for warning in warnings)


def tuned_table(plan: Plan, winners: Mapping[str, Winner]) -> tuple[TunedTable | None, tuple[str, ...]]:
    """The table with every entry that won, and what to warn of in it.

    None: the target is no table, or nothing won that one would have to be made for. No entry goes in that `advisor audit` finds an error
    in; those that were there and are not tuned are the user's, and stay.
    """
    name = table_name(plan.target)
    if name is None:
        return None, ()
    launches = {launch.decision_id: launch for launch in plan.target.launches}
    updates: dict[int, Configuration] = {}
    tuned = tuple(plan.tokens.values())
    warnings = []
    unjudged: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for task, winner in winners.items():
        tokens = plan.tokens.get(task)
        if tokens is None or winner.configuration is None or not winner.changed:
            continue
        entry = plan.launched(winner.configuration, launches[task].id)
        wrong = entry_errors(entry, name, plan.target.gpu)
        if wrong:
            warnings.append(f"{name.file_name()}: the entry found for M = {tokens} is not written: {_messages(wrong)}")
        else:
            updates[tokens] = entry
            unjudged[plan.unjudged.get(task, ())].append(tokens)
    for ops, entries in unjudged.items():
        if ops:
            listed = ", ".join(map(str, entries))
            warnings.append(
                f"{name.file_name()}: {' and '.join(ops)} will run with what won for M = {listed} as well, and was not "
                "measured with it: it may be slower; tune both together before this is used"
            )
    if plan.base_table is None:
        if not updates:
            return None, tuple(warnings)
        target = plan.target
        before = default_table(name, target.launches[0].problem, target.gpu, plan.tokens.values(), target.stack_version)
        return TunedTable(before=before, winners=updates, tuned=tuned, gpu=plan.target.gpu, new=True), tuple(warnings)
    for tokens, entry in plan.base_table.entries:
        wrong = () if tokens in updates else entry_errors(entry, name, plan.target.gpu)
        if wrong:
            warnings.append(f"{name.file_name()}: entry {tokens} is kept as it was, and fails: {_messages(wrong)}")
    return TunedTable(before=plan.base_table, winners=updates, tuned=tuned, gpu=plan.target.gpu), tuple(warnings)


def _messages(issues: Sequence[AuditIssue]) -> str:
    return "; ".join(issue.message for issue in issues)


def exports(plan: Plan, winners: Mapping[str, Winner]) -> tuple[tuple[Export, ...], tuple[str, ...]]:
    """The artefacts, as results carry them, and what to warn of in them."""
    artefacts = []
    table, warnings = tuned_table(plan, winners)
    if table is not None:
        artefacts.append(Export(name=table.table.name.file_name(), kind="table", content=render_table(table.table)))
    known = [w.configuration for w in winners.values() if w.configuration is not None and w.us is not None]
    chosen = dict.fromkeys(triton_config(configuration) for configuration in known)
    if chosen:
        listed = "[\n" + "".join(f"    {config},\n" for config in chosen) + "]\n"
        artefacts.append(Export(name="triton.Config list", kind="triton-configs", content=listed))
    return tuple(artefacts), warnings


def write_exports(
    folder: Path, artefacts: Sequence[Export], before_after: str, tuned: TunedTable | None = None
) -> tuple[list[Path], tuple[str, ...]]:
    """Writes the artefacts and `before-after.md`; the paths, and what to warn of.

    Args:
        folder: Where to; it is made where there is none.
        artefacts: The artefacts.
        before_after: The text of `before-after.md`.
        tuned: The table among them, to be merged into the one that lies there by now: others may have written theirs since the search
            began.

    Raises:
        UsageError: A file cannot be written.
        InputError: The table that lies there by now cannot be read.
    """
    paths, warnings = [], []
    if tuned is not None:
        path = folder / tuned.before.name.file_name()
        with _alone(path):
            table, left = tuned.merged_into(read_table(path)) if path.exists() else (tuned.table, ())
            _write(path, render_table(table))
        paths.append(path)
        if left:
            warnings.append(
                f"{path.name}: what won for M = {', '.join(map(str, left))} is not written: the table was changed in the "
                "meantime, and it was not measured against what runs there now; run it again"
            )
    names = {"triton-configs": "triton_configs.txt"}
    files = {names[export.kind]: export.content for export in artefacts if export.kind in names}
    files["before-after.md"] = before_after + "".join(f"\n{warning}\n" for warning in warnings)
    for name, content in files.items():
        _write(folder / name, content)
        paths.append(folder / name)
    return paths, tuple(warnings)


SIDECAR = "predicted.json"
"""Beside tables whose entries are predicted: which are, and what was predicted of them."""


def table_path(folder: Path, name: TableName) -> Path:
    """Where a stack finds a table below `folder`: vLLM as `VLLM_TUNED_CONFIG_FOLDER`, SGLang as `SGLANG_MOE_CONFIG_DIR`.

    SGLang 0.5.23 looks in `configs/triton_<version>` there (`fused_moe_triton_config.get_moe_configs`).
    """
    if name.stack == "sglang" and name.kind == "fused_moe" and name.triton_version:
        folder = folder / "configs" / f"triton_{name.triton_version.replace('.', '_')}"
    return folder / name.file_name()


def write_predicted(folder: Path, tables: Sequence[PredictedTable], result: Result) -> list[Path]:
    """Writes predicted tables under `folder`, merged into those that lie there, and marks every entry in `predicted.json`; the paths.

    Raises:
        UsageError: A file cannot be written.
        InputError: A table that lies there cannot be read.
    """
    paths, marks = [], {}
    for table in tables:
        path = table_path(folder, table.tuned.before.name)
        with _alone(path):
            merged = table.tuned.merged_into(read_table(path))[0] if path.exists() else table.tuned.table
            _write(path, render_table(merged))
        paths.append(path)
        marks[path.relative_to(folder).as_posix()] = _marks(table, merged, result)
    sidecar = folder / SIDECAR
    with _alone(sidecar):
        known = json.loads(sidecar.read_text(encoding="utf-8"))["tables"] if sidecar.exists() else {}
        document = {"schema_version": "1.0", "tool_version": result.tool_version, "tables": {**known, **marks}}
        _write(sidecar, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    return [*paths, sidecar]


def _marks(predicted: PredictedTable, table: Table, result: Result) -> dict[str, Any]:
    """What the sidecar says of a table: each entry, where it comes from, and per launch what is predicted before and after."""
    rows = grouped((row.tokens, row) for row in predicted.rows)
    otherwise = "what the stack runs without a table" if predicted.tuned.new else "as it was"
    sources = sorted({launch.predicted.source for launch in result.launches if launch.predicted is not None})
    return {
        "origin": "predicted",
        "gpu": result.gpu,
        "model": result.model,
        "predicted_by": sources,
        "command": result.command,
        "entries": {
            str(tokens): {
                "origin": "predicted" if tokens in predicted.tuned.winners else otherwise,
                "launches": [
                    {
                        "launch": row.launch,
                        "before_us": row.before_us,
                        "after_us": row.after_us,
                        "low_us": row.low_us,
                        "high_us": row.high_us,
                        "reason": row.reason,
                    }
                    for row in rows.get(tokens, ())
                ],
            }
            for tokens in table.keys
        },
    }


def _write(path: Path, content: str) -> None:
    with replacing(path, ANOTHER) as place:
        path.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content, encoding="utf-8")


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keeps other runs from a file while it is read, changed and written; one that was killed in between does not hold it up.

    Raises:
        UsageError: Nothing can be written beside it.
    """
    from advisor.search.storage import lock_file

    lock = lock_file(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except (OSError, ValueError) as error:
        raise unwritable(path, error, ANOTHER) from None
    try:
        yield
    finally:
        lock.release()
