"""The audit of a table as findings."""

from __future__ import annotations

from advisor.diagnosis import table_findings
from advisor.diagnosis.diagnose import REMEDIES
from advisor.result.schema import Severity
from advisor.tables.audit import CHECKS, AuditIssue


def issue(check: str, key: str | None = None, severity: Severity = "warning", message: str = "what was found") -> AuditIssue:
    return AuditIssue(path="t.json", key=key, check=check, severity=severity, message=message)


def test_every_check_has_a_remedy() -> None:
    assert set(REMEDIES) == set(CHECKS)


def test_issues_of_one_check_are_one_finding_that_names_the_entries() -> None:
    found = table_findings([issue("hole", "64", "info"), issue("wrong-scales", "1", "error"), issue("wrong-scales", "2", "error")])
    assert [finding.rule for finding in found] == ["wrong-scales", "hole"]
    assert found[0].scope == "entries 1, 2" and "entries 1, 2" in found[0].evidence
    assert found[1].scope == "entry M=64"
    assert all(finding.saving_us is None and finding.remedy for finding in found)


def test_what_a_rule_says_of_a_launch_is_not_said_again() -> None:
    issues = [issue("clamped-block-k", "64"), issue("clamped-block-k", "128"), issue("hole", "64")]
    found = table_findings(issues, diagnosed={64})
    assert [(finding.rule, finding.scope) for finding in found] == [
        ("clamped-block-k", "entry M=128"),
        ("hole", "entry M=64"),
    ]
    assert {finding.rule for finding in table_findings(issues, diagnosed={64, 128})} == {"hole"}


def test_an_unknown_key_or_many_messages_do_no_harm() -> None:
    many = [issue("bad-entry", f"key {i}", "error", f"message {i}") for i in range(30)]
    (finding,) = table_findings(many, diagnosed={1})
    assert "and 22 more" in finding.evidence and "and 28 more" in finding.evidence
    assert table_findings([]) == ()
