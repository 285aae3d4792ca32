"""Why a launch is slow: the gap split, the rules (in `rules/`, a module for each kind of cause), and what to do first."""

from __future__ import annotations

from advisor.diagnosis.actions import LEAST_GAIN_US, WORTH_CHANGING, actions
from advisor.diagnosis.context import LaunchContext, context
from advisor.diagnosis.diagnose import UNDIAGNOSED, Diagnosis, diagnose, gap_parts, table_findings
from advisor.diagnosis.neighbours import Change
from advisor.diagnosis.pricing import Pricing, Sharing, now_us
from advisor.diagnosis.rule import Rule
from advisor.diagnosis.rules import RULES

__all__ = [
    "LEAST_GAIN_US",
    "RULES",
    "UNDIAGNOSED",
    "WORTH_CHANGING",
    "Change",
    "Diagnosis",
    "LaunchContext",
    "Pricing",
    "Rule",
    "Sharing",
    "actions",
    "context",
    "diagnose",
    "gap_parts",
    "now_us",
    "table_findings",
]
