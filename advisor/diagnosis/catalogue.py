"""Every rule there is, of closed-form launches and of compiled code: what `advisor rules` and `advisor explain` show."""

from __future__ import annotations

from dataclasses import dataclass

from advisor.diagnosis.compiled_rules import COMPILED_RULES
from advisor.diagnosis.rules import RULES


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleText:
    """A rule in words."""

    id: str
    title: str
    explanation: str


def all_rules() -> tuple[RuleText, ...]:
    """In the order in which they are tried."""
    described = [RuleText(id=rule.id, title=rule.title, explanation=rule.explanation) for rule in RULES]
    known = {rule.id for rule in described}  # a cause that both kinds of rules look for is one
    described += [RuleText(id=rule.id, title=rule.title, explanation=rule.explanation) for rule in COMPILED_RULES if rule.id not in known]
    return tuple(described)
