"""Which token counts an entry of a tuned table serves, and how to add entries without changing what runs elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import pairwise

from advisor.gpus.hardware import GpuSpec
from advisor.result.schema import Configuration
from advisor.tables.audit import entry_errors
from advisor.tables.names import SIZE_LIMIT
from advisor.tables.tables import Table, merge, nearest_key, select

STANDARD_TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096)
"""The token counts vLLM's and SGLang's tuners use: what a table has entries for."""


def running(table: Table, tokens: int) -> Configuration | None:
    """The configuration that runs for `tokens`; None: the table is empty."""
    return select(table, tokens).configuration if table.keys else None


def restated(table: Table, winners: Mapping[int, Configuration], gpu: GpuSpec, tuned: Collection[int] = ()) -> dict[int, Configuration]:
    """Entries that keep today's configurations running around the keys that winners add, by token count.

    An added key takes over half of the way to its neighbours, of which it is not known what it does to them. So the usual token counts in
    between get what ran there, and so do the two at which that changes, where the winner is not the nearest of all. Where a key has an
    entry already, whoever made the table chose how far that reaches, but not over token counts for which nothing won. What fails, or is
    another kernel's, is not said again.

    Args:
        table: What runs.
        winners: What is to run, by token count.
        gpu: What it runs on.
        tuned: The token counts that were searched for, with and without a winner.
    """
    if not table.keys:
        return {}
    old, won = sorted(table.keys), merge(table, winners)
    lost = {tokens for tokens in tuned if tokens not in winners and running(won, tokens) != running(table, tokens)}
    found: set[int] = set()
    for low, high in pairwise((0, *old, SIZE_LIMIT)):
        if any(low < tokens < high for tokens in (*winners, *lost)):
            between = {tokens for tokens in (*STANDARD_TOKENS, *lost) if low < tokens < high and tokens not in winners}
            change = (low + high) // 2 if low in old and high in old else 0
            edges = {each for each in (change, change + 1) if low < each < high}
            found |= between
            if any(nearest_key((*old, *winners, *between), each) not in winners for each in edges):
                found |= edges - winners.keys()  # both: one alone would reach across the change
    entries = {tokens: running(table, tokens) for tokens in found}
    return {tokens: entry for tokens, entry in entries.items() if entry is not None and not entry_errors(entry, table.name, gpu)}
