"""The issues of a table's audit as findings of the result."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from advisor.diagnosis.diagnose import order
from advisor.result.schema import Finding, Severity
from advisor.tables.audit import CHECKS, AuditIssue

REMEDIES: dict[str, str] = {
    "unreadable": "restore the file or tune it again",
    "bad-entry": "correct the entry or tune it again",
    "not-ours": "nothing: the advisor has no model of that kernel",
    "unreachable-name": "rename the file to what the serving stack asks for, or remove it",
    "device-alias": "ship a copy under every name that drivers report",
    "odd-key": "write the key as a plain number",
    "duplicate-key": "remove all of them but the one that is meant",
    "unknown-gpu": "describe it in a TOML file (ceilings/README.md), or correct the name",
    "unknown-dtype": "correct the name, or say with --dtype what to reckon with",
    "refused-dtype": "serve bf16 there, or fp8 weights through a kernel that unpacks them (Marlin)",
    "does-not-fit": "fewer num_stages or smaller blocks",
    "num-warps": "take 4 or 8 warps",
    "num-ctas": "leave out num_ctas, or take 2, 4 or 8 where the GPU has clusters",
    "shallow-dot": "take the next larger BLOCK_SIZE_K, or tune it again",
    "clamped-block-k": "write the value that runs, and tune the rest again with it",
    "raised-block-k": "write the value that runs, and tune the rest again with it",
    "wrong-scales": "set BLOCK_SIZE_K to the quantization block or a divisor of it",
    "unknown-option": "remove the option, or tune on this GPU",
    "split-k": "leave SPLIT_K out, or set it to 1 where the kernel asks for it",
    "other-kernel": "nothing: another kernel runs there",
    "hole": "add entries between the two keys",
    "starts-late": "add entries for fewer tokens, where decoding runs",
    "stops-early": "add entries for more tokens, where prefill runs",
    "order": "sort the keys in ascending order",
    "copied": "tune for this GPU or shape, unless the copy is meant",
}
"""What to do about each check of the audit."""

SAID_BY_RULES = frozenset({"clamped-block-k", "does-not-fit", "num-warps", "shallow-dot"})
"""Checks that a rule repeats, with a saving or a remedy, for every launch that is diagnosed."""

_SHOWN = 8


def table_findings(issues: Iterable[AuditIssue], diagnosed: Collection[int] = ()) -> tuple[Finding, ...]:
    """One finding per check of the audit and message kind, naming the entries it concerns.

    Args:
        issues: Of one table.
        diagnosed: Keys whose entries were diagnosed as launches: what their rules say is not said again.

    Returns:
        Errors first; none has a saving, because a table alone says nothing of how often a size is served.
    """
    by_check: dict[str, list[AuditIssue]] = {}
    for issue in issues:
        covered = issue.key is not None and issue.key.isdigit() and int(issue.key) in diagnosed
        if not (issue.check in SAID_BY_RULES and covered):
            by_check.setdefault(issue.check, []).append(issue)
    return tuple(sorted((_finding(check, group) for check, group in by_check.items()), key=order))


def _finding(check: str, group: list[AuditIssue]) -> Finding:
    severities: tuple[Severity, ...] = ("error", "warning", "advice", "info")
    severity = min((issue.severity for issue in group), key=severities.index)
    keys = [issue.key for issue in group if issue.key is not None]
    messages = list(dict.fromkeys(issue.message for issue in group))
    evidence = "; ".join(messages[:2]) + (f"; and {len(messages) - 2} more" if len(messages) > 2 else "")
    scope = "table"
    if len(keys) == 1:
        scope = f"entry M={keys[0]}" if keys[0].isdigit() else f"entry {keys[0]}"
    elif keys:
        scope = "entries " + ", ".join(keys[:_SHOWN]) + (f" and {len(keys) - _SHOWN} more" if len(keys) > _SHOWN else "")
        evidence = f"{scope}: {evidence}"
    title = CHECKS.get(check, check)
    return Finding(
        rule=check,
        severity=severity,
        title=title[:1].upper() + title[1:],
        evidence=evidence,
        remedy=REMEDIES.get(check, "see the message"),
        scope=scope,
    )
