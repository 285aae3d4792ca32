"""The entry that runs was tuned for another number of tokens."""

from __future__ import annotations

from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found, microseconds, remedy_of, severity_of
from advisor.result.schema import Finding

FAR = 1.5
"""Ratio of token counts from which an entry counts as far: vLLM's tuner spaces its keys by a factor of 1.33 to 2, so the nearest
key is within 1.5 everywhere inside the table."""


class EntryFarFromM:
    """A hole in the table, or a size beyond its end."""

    id = "entry-far-from-m"
    title = "The entry was tuned for a very different number of tokens"
    needs: tuple[Need, ...] = ("configuration", "runs", "entry_m")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where an entry of its own would save time."""
        tokens, key = context.M, context.entry_m
        if tokens is None or key is None or max(tokens, key) <= FAR * min(tokens, key):
            return None
        around = context.neighbours()
        near = around.best(around.only(*around.values))
        known = [change for change in (context.recommended, near) if change is not None]
        better = min(known, key=lambda change: change.us + sum(change.slower_us.values()), default=None)
        saving = context.saving(better.us) if better is not None else 0.0
        if better is None or not context.matters(saving, better):
            return None
        return found(
            self,
            context,
            severity_of(context, saving),
            f"Tokens {tokens:,} run with the entry tuned for {key:,}",
            evidence=f"the nearest key is {max(tokens, key) / min(tokens, key):.1f} times off; "
            f"{microseconds(context.current_us)} predicted",
            remedy=f'add an entry "{tokens}" with {remedy_of(better, context)}',
            saving_us=saving,
            better=better,
        )


RULE = EntryFarFromM()
