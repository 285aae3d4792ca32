"""A table in the making: what ran before, what won against that, and what keeps the winners to their neighbourhood."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.result.schema import Configuration, Problem
from advisor.tables.audit import entry_errors
from advisor.tables.defaults import default_configuration, default_fields
from advisor.tables.names import TableName
from advisor.tables.neighbourhood import STANDARD_TOKENS, restated, running
from advisor.tables.tables import Table, merge, new_table

MOST_TOKENS = 1 << 17
"""Of one launch; vLLM and SGLang prefill at most some thousand tokens at a time unless told otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedTable:
    """A table in the making: what ran `before` (the table there was, else the stack's default as one), and what won against that.

    `tuned`: the token counts that were searched for, with and without a winner; `new`: there was no table.
    """

    before: Table
    winners: Mapping[int, Configuration]
    tuned: tuple[int, ...]
    gpu: GpuSpec
    new: bool = False

    @property
    def beside(self) -> str:
        """What is in the table beside what won that was in none before, in a sentence; empty: nothing."""
        name = self.before.name.file_name()
        added = [each for each in self.before.keys if each not in self.winners] if self.new else sorted(self.restated)
        kept = ", ".join(map(str, added))
        if self.new:
            return (
                f"{name}: new; beside what won it has what runs without a table, at M = {kept}: token counts that are nearest to one "
                "of those run as before"
            )
        return (
            (f"{name}: beside what won it now says what ran at M = {kept}: token counts that are nearest to one of those run as before")
            if kept
            else ""
        )

    @property
    def restated(self) -> Mapping[int, Configuration]:
        """What ran before, at the token counts that keep the winners to their neighbourhood."""
        return restated(self.before, self.winners, self.gpu, self.tuned)

    @property
    def table(self) -> Table:
        """Both together, and what keeps the winners to their neighbourhood."""
        return merge(self.before, {**self.restated, **self.winners})

    def merged_into(self, now: Table) -> tuple[Table, tuple[int, ...]]:
        """The winners in a table that others may have changed since `before`, and the token counts whose winner stays out of it.

        A winner was measured against what ran before; where something else runs now, that may be the better one.
        """
        kept, left = {}, []
        for tokens, entry in self.winners.items():
            runs = running(now, tokens)
            if runs == running(self.before, tokens):
                kept[tokens] = entry
            elif runs != entry:
                left.append(tokens)
        return merge(now, {**restated(now, kept, self.gpu, self.tuned), **kept}), tuple(left)


def default_table(name: TableName, problem: Problem, gpu: GpuSpec, tokens: Collection[int]) -> Table:
    """What the stack launches with where it finds no table, as one: without it, the nearest of the tuned token counts would run.

    The default is constant between the token counts at which it changes. With a key on either side of each of those, the nearest key is
    one of the same stretch: a token count runs what it ran, or what won for one of its stretch. The usual keys between them, and those
    that were tuned without a winner, keep a winner to its neighbourhood. What fails without a table as well is left out.

    Args:
        name: The name of the table, which says the stack.
        problem: A launch of the layer, of any number of tokens.
        gpu: What it runs on.
        tokens: Those that are tuned.
    """
    experts, kind = problem.sizes["E"], default_options(problem, gpu)
    fields = np.stack([*default_fields(name.stack, np.arange(1, MOST_TOKENS + 1), experts, **kind).values()])
    last = 1 + np.flatnonzero((fields[:, 1:] != fields[:, :-1]).any(axis=0))
    changes = [int(each) for end in last for each in (end, end + 1)]
    keys = {*STANDARD_TOKENS, *tokens, *changes}
    between = STANDARD_TOKENS[-1]
    while (between := 2 * between) < max(changes, default=0):  # no hole, as audit calls it, before the last of them
        keys.add(between)
    entries = {each: default_configuration(name.stack, each, experts, **kind) for each in keys}
    return new_table(name, {each: entry for each, entry in entries.items() if not entry_errors(entry, name, gpu)}, name.triton_version)


def default_options(problem: Problem, gpu: GpuSpec) -> dict[str, Any]:
    """What the default of a layer hangs on besides tokens and experts, as `default_configuration` takes it."""
    return {
        "dtype": problem.dtype,
        "block_shape": problem.block_shape,
        "amd": gpu.vendor == "amd",
        "shared_memory_bytes_per_cta": gpu.smem_bytes_per_cta,
    }
