"""Check tuned tables without running anything.

Finds files that cannot be read, names no launch asks for, entries that cannot fit the GPU, block sizes the launcher clamps, holes
between token counts, and entries that are predicted to be slower than a better configuration (a prediction, not a measurement).
Where not one table could be read, the exit code is 2.
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
from advisor.errors import UsageError
from advisor.hardware import match_device_name

if TYPE_CHECKING:
    from advisor.audit_regret import EntryRegret
    from advisor.configs.audit import Audit, AuditIssue

HELP = "check tuned tables offline"

REGRET = 0.10
"""Entries predicted this much slower than the best configuration are listed."""

SURE = 0.8
"""... and at least this probably so."""

SEVERITIES = ("error", "warning", "advice", "info")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `advisor audit`."""
    parser.add_argument("paths", nargs="+", metavar="PATH", help="tables, or folders of them")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--weights", metavar="FILE", help="weights that `advisor train` wrote (default: those shipped)")
    parser.add_argument("--no-regret", action="store_true", help="leave predictions out")
    parser.add_argument("--fail-on", type=options.gate_conditions, default=(), metavar="LIST",
                        help="checks or severities (error, warning) that make the exit code 1")  # fmt: skip
    parser.add_argument("--all", action="store_true", help="list advice and remarks too, not only errors, warnings and regret")


def run(arguments: argparse.Namespace) -> int:
    """Check and print."""
    from advisor.configs.audit import CHECKS, AuditIssue, audit

    gates = arguments.fail_on
    known = {*CHECKS, "predicted-regret", *SEVERITIES}
    for gate in gates:
        if gate not in known:
            raise UsageError("--fail-on names no check", gate, "one of " + ", ".join(sorted(known)))
    if arguments.no_regret and "predicted-regret" in gates:
        raise UsageError("--no-regret leaves out what --fail-on predicted-regret looks for", None, None, "leave one of them out")
    found = audit(arguments.paths)
    issues = list(found.issues)
    predicted = 0
    regrets: list[tuple[str, EntryRegret]] = []
    if not arguments.no_regret:
        from advisor.audit_regret import regrets as predict_regrets
        from advisor.learned import load_predictor
        from advisor.learned.caveats import unmeasured_vendor

        predictor = load_predictor(Path(arguments.weights) if arguments.weights else None)
        predicted_for = []
        for table, entries in zip(found.tables, predict_regrets(found.tables, predictor), strict=True):
            predicted += bool(entries)
            if entries and (gpu := match_device_name(table.name.device_name)) is not None:
                predicted_for.append(gpu)
            for entry in entries:
                if REGRET < entry.regret < float("inf") and entry.probability >= SURE:
                    basis = f", {entry.basis}" if entry.basis else ""
                    regrets.append((table.path, entry))
                    issues.append(
                        AuditIssue(
                            path=table.path, key=str(entry.tokens), check="predicted-regret", severity="advice",
                            message=f"predicted {entry.predicted_us:.1f} µs, {100 * entry.regret:.0f} % over the "
                            f"{entry.ceiling_us:.1f} µs predicted for a better configuration "
                            f"(at least 10 % can be won with probability {entry.probability:.2f}{basis})"
                            + (f"; {entry.predicted_for}" if entry.predicted_for is not None else ""),
                            predicted_for=entry.predicted_for,
                        )
                    )  # fmt: skip
        for caveat in unmeasured_vendor(predicted_for):
            options.warn(caveat)
    failed = any(issue.check in gates or issue.severity in gates for issue in issues)
    if arguments.format == "json":
        _json(found, issues, predicted)
    else:
        _text(found, issues, predicted, regrets, everything=arguments.all)
    if failed:
        print("advisor: gate failed: found what --fail-on names", file=sys.stderr)
        return 1
    if not found.tables and any(issue.severity == "error" for issue in issues):
        print("advisor: error: nothing that was named can be read as a tuned table", file=sys.stderr)
        return 2
    return 0


def _json(found: Audit, issues: list[AuditIssue], predicted: int) -> None:
    counts = Counter(issue.check for issue in issues)
    document = {
        "files": found.files, "tables": len(found.tables), "tables_predicted": predicted, "counts": dict(counts.most_common()),
        "issues": [dataclasses.asdict(issue) for issue in issues],
    }  # fmt: skip
    print(json.dumps(document, indent=2, ensure_ascii=False))


def _text(
    found: Audit, issues: list[AuditIssue], predicted: int, regrets: list[tuple[str, EntryRegret]], *, everything: bool
) -> None:
    from advisor.configs.audit import CHECKS
    from advisor.rendering.figures import clean

    shown = SEVERITIES if everything else ("error", "warning")
    by_path: dict[str, list[AuditIssue]] = {}
    for issue in issues:
        by_path.setdefault(issue.path, []).append(issue)
    for path in sorted(by_path):
        for issue in sorted(by_path[path], key=lambda i: SEVERITIES.index(i.severity)):
            if issue.severity in shown:
                where = f" entry {clean(issue.key)}" if issue.key is not None else ""
                print(f"{issue.severity:<8}{issue.check:<18}{clean(path)}{where}: {clean(issue.message)}")
    counts = Counter(issue.check for issue in issues)
    files = {check: len({issue.path for issue in issues if issue.check == check}) for check in counts}
    print(f"\n{found.files} files, {len(found.tables)} tables read, {predicted} predicted")
    slow = f"an entry predicted over {100 * REGRET:.0f} % slower than the best configuration, with probability {SURE}"
    described = {**CHECKS, "predicted-regret": slow}
    for check, count in counts.most_common():
        print(f"  {count:>5} in {files[check]:>3} files  {check:<18} {described[check]}")
    if regrets:
        print("  largest predicted regret:")
        for path, entry in sorted(regrets, key=lambda item: -item[1].regret)[:5]:
            basis = f"  ({entry.basis})" if entry.basis else ""
            print(f"    {100 * entry.regret:4.0f} %  M = {entry.tokens:<6} {clean(path)}{basis}")
    if not everything:
        print("  (errors and warnings are listed above; --all lists the rest)")



