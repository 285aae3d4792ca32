"""What is certain to fail in head, by the audit and the parser alone: whether or not anything could be predicted of it."""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterable

from advisor.comparison.kernels.kernel_source import LARGEST_SOURCE_BYTES, mentions_triton
from advisor.result.comparison_schema import CHANGES, Failure, FailureCondition, Subject
from advisor.result.schema import Finding
from advisor.tables.audit import AuditIssue
from advisor.tables.names import parse_table_name
from advisor.tables.tables import Table, is_token_count, nearest_key, takes_triton_version

CERTAIN: dict[str, FailureCondition] = {
    "unreadable": "failed",
    "bad-entry": "failed",
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
    return issue.check != "bad-entry" or issue.key is None or is_token_count(issue.key) or not _is_integer(issue.key)


def _is_integer(key: str) -> bool:
    """Whether the stacks, which ask no more of a key, can read it: "0" and "-1" too, though no launch has so many tokens."""
    try:
        int(key)
    except ValueError:
        return False
    return True


def table_failures(new: Iterable[AuditIssue], old: Iterable[AuditIssue], told: Iterable[str]) -> tuple[Failure, ...]:
    """What fails in the new version of a table, and did not in the old one.

    Args:
        new: What the audit finds in the new version.
        old: The same of the old one: an entry that failed there does not begin to.
        told: The keys of entries of which a row says it. Where the file as a whole cannot be read, every row does.
    """
    told = set(told)
    before = [issue for issue in old if is_certain(issue)]
    known = {issue.key for issue in before if issue.key is not None} | told
    whole = {issue.message for issue in before if issue.key is None}
    return tuple(
        Failure(condition=CERTAIN[issue.check], what=f"entry {issue.key}" if issue.key is not None else "", reason=issue.message)
        for issue in new
        if is_certain(issue) and (not told and issue.message not in whole if issue.key is None else issue.key not in known)
    )


def why_it_fails(table: Table | None, issues: Iterable[AuditIssue], tokens: int) -> str:
    """Why what a version of a table launches for a token count is certain to fail; empty where it is not, and where a row says it with
    its own figures (`does-not-fit`)."""
    certain = [issue for issue in issues if is_certain(issue) and issue.check != "does-not-fit"]
    key = str(nearest_key(table.keys, tokens)) if table is not None else None
    found = next((issue for issue in certain if key is None or issue.key in (None, key)), None)
    if found is None:
        return ""
    return found.message if found.key is not None else found.message.partition("; ")[0]  # in short, for every row says it


def is_kernel_source(data: bytes) -> bool:
    """Whether a file can hold a kernel, and can be parsed."""
    return mentions_triton(data) and len(data) <= LARGEST_SOURCE_BYTES and _refused(data) is None


def broken_source(path: str, change: CHANGES, head: bytes) -> Subject | None:
    """A kernel file that was Python and no longer is; None where that cannot be said."""
    if (why := _refused(head)) is None:
        return None
    reason = f"{why}, says Python {sys.version_info.major}.{sys.version_info.minor}"
    return unreadable(
        path,
        change,
        "The file is no longer Python",
        reason,
        "correct the syntax; where it is that of a newer Python, compare with that one",
    )


def unreadable(path: str, change: CHANGES, title: str, reason: str, remedy: str) -> Subject:
    """A file that could be read and no longer can: whatever launches with it is not known any more, and that gates."""
    issue = Finding(
        rule="unreadable",
        severity="error",
        title=title,
        evidence=reason,
        remedy=remedy,
        scope="kernel" if path.endswith(".py") else "table",
    )
    return Subject(
        kind="file",
        title=path,
        path=path,
        change=change,
        new_issues=(issue,),
        failures=(Failure(condition="failed", what="", reason=reason),),
    )


def _refused(data: bytes) -> str | None:
    """Why Python refuses a file, None where it does not; as bytes, for the file may say its own encoding."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(data)
    except SyntaxError as error:
        return f"line {error.lineno}: {error.msg}" if error.lineno else error.msg
    except ValueError as error:
        return str(error)
    except (RecursionError, MemoryError):  # nothing is certain of these
        return None
    return None
