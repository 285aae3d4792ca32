"""Every rule there is, of closed-form launches and of compiled code: what `advisor rules` and `advisor explain` show."""

from __future__ import annotations

from advisor.diagnosis.compiled_rules import COMPILED_RULES
from advisor.diagnosis.rules import RULES
from advisor.system.resources import folder

TITLES = {rule.id: rule.title for rule in RULES} | {rule.id: rule.title for rule in COMPILED_RULES}
"""Id -> title, in the order in which the rules are tried; a cause that both kinds of rules look for is in it once."""


def explanation(rule_id: str) -> str:
    """The Markdown of `reports/rules/`: what the rule means, how it is computed, what to do, and where that comes from.

    Args:
        rule_id: One of `TITLES`.
    """
    return (folder("reports") / "rules" / f"{rule_id}.md").read_text(encoding="utf-8")
