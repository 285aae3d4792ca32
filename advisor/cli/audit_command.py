"""Check tuned tables without running anything.

Finds files that cannot be read, names no launch asks for, entries that cannot fit the GPU, block sizes the launcher clamps, holes
between token counts, and entries that are predicted to be slower than a better configuration (a prediction, not a measurement).
Errors stand first. Their count is the last line; --fail-on error makes the exit code 1. Where not one table could be read, it is 2.

examples:
  advisor audit vllm/model_executor/layers/fused_moe/configs
  advisor audit configs --no-regret --fail-on error
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from advisor.cli import options
from advisor.system import grouped
from advisor.system.errors import UsageError, several
from advisor.system.resources import phrase

if TYPE_CHECKING:
    from advisor.advising.audit_regret import EntryRegret
    from advisor.tables.audit import Audit, AuditIssue
    from advisor.tables.names import TableName

REGRET = 0.10
"""Entries predicted this much slower than the best configuration are listed."""

SURE = 0.8
"""... and at least this probably so."""

SLOWEST_SHOWN = 5
"""Tables of the largest regret that are listed."""

SEVERITIES = ("error", "warning", "advice", "info")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor audit`."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="tables, or folders of them")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--weights", metavar="FILE", help="weights that `advisor train` wrote (default: those shipped)")
    parser.add_argument("--no-regret", action="store_true", help="leave predictions out")
    parser.add_argument(
        "--fail-on",
        type=options.gate_conditions,
        default=(),
        metavar="LIST",
        help="checks or severities (error, warning) that make the exit code 1",
    )
    parser.add_argument("--all", action="store_true", help="list advice and remarks too, not only errors, warnings and regret")


def run(arguments: argparse.Namespace) -> int:
    """Check and print."""
    from advisor.advising.audit_regret import regrets as predict_regrets
    from advisor.gpus.hardware import match_device_name
    from advisor.learned import load_predictor
    from advisor.learned.base import unmeasured_vendor
    from advisor.tables.audit import CHECKS, AuditIssue, audit

    gates = arguments.fail_on
    known = {*CHECKS, "predicted-regret", *SEVERITIES}
    for gate in gates:
        if gate not in known:
            raise UsageError("--fail-on names no check", gate, "one of " + ", ".join(sorted(known)))
    if arguments.no_regret and "predicted-regret" in gates:
        raise UsageError("--no-regret leaves out what --fail-on predicted-regret looks for", None, None, "leave one of them out")
    audited = audit(arguments.paths)
    issues = list(audited.issues)
    predicted = 0
    regrets: list[tuple[str, EntryRegret]] = []
    if not arguments.no_regret:
        predictor = load_predictor(Path(arguments.weights) if arguments.weights else None)
        predicted_for = []
        for table, entries in zip(audited.tables, predict_regrets(audited.tables, predictor), strict=True):
            predicted += bool(entries)
            if entries and (gpu := match_device_name(table.name.device_name)) is not None:
                predicted_for.append(gpu)
            for entry in entries:
                if REGRET < entry.regret < float("inf") and entry.probability >= SURE:
                    basis = f", {entry.basis}" if entry.basis else ""
                    regrets.append((table.path, entry))
                    issues.append(
                        AuditIssue(
                            path=table.path,
                            key=str(entry.tokens),
                            check="predicted-regret",
                            severity="advice",
                            message=f"predicted {entry.predicted_us:.1f} µs, {100 * entry.regret:.0f} % over the "
                            f"{entry.ceiling_us:.1f} µs predicted for a better configuration "
                            f"(at least 10 % can be won with probability {entry.probability:.2f}{basis})"
                            + (f"; {entry.predicted_for}" if entry.predicted_for is not None else ""),
                            predicted_for=entry.predicted_for,
                        )
                    )
        for caveat in unmeasured_vendor(predicted_for):
            options.warn(caveat)
    failed = any(issue.check in gates or issue.severity in gates for issue in issues)
    if arguments.format == "json":
        _json(audited, issues, predicted)
    else:
        _text(audited, issues, predicted, regrets, everything=arguments.all)
    if failed:
        print("advisor: gate failed: found what --fail-on names", file=sys.stderr)
        return 1
    if not audited.tables and any(issue.severity == "error" for issue in issues):
        print("advisor: error: nothing that was named can be read as a tuned table", file=sys.stderr)
        return 2
    return 0


def _json(audited: Audit, issues: list[AuditIssue], predicted: int) -> None:
    counts = Counter(issue.check for issue in issues)
    document = {
        "files": audited.files,
        "tables": len(audited.tables),
        "tables_predicted": predicted,
        "counts": dict(counts.most_common()),
        "issues": [dataclasses.asdict(issue) for issue in issues],
    }
    print(json.dumps(document, indent=2, ensure_ascii=False))


def _text(audited: Audit, issues: list[AuditIssue], predicted: int, regrets: list[tuple[str, EntryRegret]], *, everything: bool) -> None:

    from advisor.rendering.figures import clean
    from advisor.tables.audit import CHECKS

    shown = SEVERITIES if everything else ("error", "warning")
    alike: dict[tuple[str, str, str, str], list[str]] = {}  # entries with one and the same fault are one line
    for issue in sorted(issues, key=lambda element: (SEVERITIES.index(element.severity), element.path)):
        if issue.severity in shown:
            message = issue.message.removeprefix(f"entry {issue.key}: ")  # the line names its entries
            alike.setdefault((issue.severity, issue.check, issue.path, message), []).extend([] if issue.key is None else [issue.key])
    for (severity, check, path, message), keys in alike.items():
        where = f" {'entry' if len(keys) == 1 else 'entries'} {clean(', '.join(keys))}" if keys else ""
        print(f"{severity:<8}{check:<18}{clean(path)}{where}: {clean(message)}")
    counts = Counter(issue.check for issue in issues)
    files = {check: len({issue.path for issue in issues if issue.check == check}) for check in counts}
    print(f"\n{several(audited.files, 'file')}, {several(len(audited.tables), 'table')} read, {predicted} predicted")
    slow = f"an entry predicted over {100 * REGRET:.0f} % slower than the best configuration, with probability {SURE}"
    described = {**CHECKS, "predicted-regret": slow}
    for check, count in counts.most_common():
        print(f"  {count:>5} in {files[check]:>3} {'file ' if files[check] == 1 else 'files'}  {check:<18} {described[check]}")
    _by_gpu(audited, issues, regrets)
    slowest = grouped(sorted(regrets, key=lambda item: -item[1].regret))  # by table, each with its largest regret first
    if slowest:
        print("  tables with the largest predicted regret:")
    for path, entries in list(slowest.items())[:SLOWEST_SHOWN]:
        others = f"and {len(entries) - 1} more" if len(entries) > 1 else ""
        basis = f"  ({entries[0].basis})" if entries[0].basis else ""
        print(f"    {100 * entries[0].regret:4.0f} %  M = {entries[0].tokens:<6} {others:<12}{clean(path)}{basis}")
    if not everything and any(issue.severity not in shown for issue in issues):
        listed = any(issue.severity in shown for issue in issues)
        print(f"  ({'errors and warnings are listed above' if listed else 'no error and no warning'}; --all lists the rest)")
    errors = [issue for issue in issues if issue.severity == "error"]
    if errors:
        paths = {issue.path for issue in errors}
        print(phrase("audit.errors", errors=several(len(errors), "error"), files=several(len(paths), "file")))


def _gpu(name: TableName) -> str:
    """The GPU that a table is for, by its short name where it is described."""
    from advisor.gpus.hardware import match_device_name

    gpu = match_device_name(name.device_name)
    return gpu.name if gpu is not None else name.device_name


def _by_gpu(audited: Audit, issues: list[AuditIssue], regrets: list[tuple[str, EntryRegret]]) -> None:
    """A line for each GPU that there are tables of, the one with the most tables in error first; none where there is only one."""
    from advisor.rendering.step_text import aligned
    from advisor.tables.names import is_table_name, parse_table_name

    gpus = {table.path: _gpu(table.name) for table in audited.tables}
    for issue in issues:
        if issue.check == "unreadable" and is_table_name(issue.path):
            gpus.setdefault(issue.path, _gpu(parse_table_name(issue.path)))
    if len(set(gpus.values())) < 2:
        return
    tables = Counter(gpus.values())
    bad = {
        severity: Counter(gpus[path] for path in {item.path for item in issues if item.severity == severity} if path in gpus)
        for severity in ("error", "warning")
    }
    slow = Counter(gpus[path] for path, _ in regrets)
    worst = {gpu: max((entry.regret for path, entry in regrets if gpus[path] == gpu), default=0.0) for gpu in tables}
    columns = ("by GPU", "tables", "with errors", "with warnings", "slow entries", "largest regret")
    shown: list[tuple[str, ...]] = [columns]
    for gpu in sorted(tables, key=lambda name: (-bad["error"][name], -worst[name], -bad["warning"][name], name)):
        largest = f"{100 * worst[gpu]:.0f} %" if worst[gpu] else "-"
        counts = (tables[gpu], bad["error"][gpu] or "-", bad["warning"][gpu] or "-", slow[gpu] or "-", largest)
        shown.append((gpu, *map(str, counts)))
    print("\n".join(f"  {line}" for line in aligned(shown, columns[:1])))
