"""A table in the making: what ran before, what won against that, what keeps winners to their neighbourhood; SGLang's tables of w2 alone.

SGLang 0.5.23 launches w2 with `down_config or config`, where the `_down` table's entry nearest to the same token count gets the
BLOCK_SIZE_M of w13's: one sort of the tokens serves both (`fused_moe_triton_config.try_get_optimal_moe_config`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from advisor.gpus.hardware import GpuSpec
from advisor.result.schema import Configuration, Problem
from advisor.system.errors import AdvisorError
from advisor.tables.audit import entry_errors
from advisor.tables.entries import default_configuration, default_fields, version_number
from advisor.tables.launchability import lacks_split_k, refused_ctas, refused_parameters
from advisor.tables.names import SIZE_LIMIT, TableName
from advisor.tables.tables import Table, inspect_table, merge, nearest_key, new_table, select

STANDARD_TOKENS = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096, 8192)
"""The token counts vLLM's and SGLang's tuners use, and 8192, as much as either prefills in one step by default on large GPUs: of 451 tables
of fused MoE in production 374 end at 4096, whose entry then serves what is larger, and 62 hold more, most often 8192."""


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
    keys: set[int] = set()
    for low, high in pairwise((0, *old, SIZE_LIMIT)):
        if any(low < tokens < high for tokens in (*winners, *lost)):
            between = {tokens for tokens in (*STANDARD_TOKENS, *lost) if low < tokens < high and tokens not in winners}
            change = (low + high) // 2 if low in old and high in old else 0
            edges = {item for item in (change, change + 1) if low < item < high}
            keys |= between
            if any(nearest_key((*old, *winners, *between), edge) not in winners for edge in edges):
                keys |= edges - winners.keys()  # both: one alone would reach across the change
    entries = {tokens: running(table, tokens) for tokens in keys}
    return {tokens: entry for tokens, entry in entries.items() if entry is not None and not entry_errors(entry, table.name, gpu)}


SHARED = "BLOCK_SIZE_M"
"""What w13's entry decides for w2."""


def sibling(table: Table) -> Table | None:
    """The other table of a layer (w13's of a `_down` table, and the reverse), where it lies beside it and can be read."""
    path = Path(table.path)
    if table.name.stack != "sglang" or table.name.kind != "fused_moe":
        return None
    other = path.with_name(replace(table.name, down=not table.name.down).file_name())
    try:
        return inspect_table(other)[0] if path.is_file() and other.is_file() else None
    except (AdvisorError, OSError):
        return None


def entry_of_other(other: Table | None, tokens: int) -> tuple[int, Configuration] | None:
    """Key and entry of the other table that run for `tokens`; None where there is none."""
    if other is None:
        return None
    chosen = select(other, tokens)
    return None if chosen.configuration is None else (chosen.key, chosen.configuration)


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
        holding = "new; beside what won it has what runs without a table, at" if self.new else "beside what won it now says what ran at"
        listed = ", ".join(map(str, self._as_before))
        after = "token counts that are nearest to one of those run as before"
        return f"{self.before.name.file_name()}: {holding} M = {listed}: {after}" if listed or self.new else ""

    @property
    def untried(self) -> tuple[int, ...]:
        """The token counts next to what won, between those that were searched for, at which what ran before stays: not known to be best."""
        between = [pair for pair in pairwise(sorted(set(self.tuned))) if self.winners.keys() & pair]
        return tuple(key for low, high in between for key in self._as_before if low < key < high)

    @property
    def _as_before(self) -> list[int]:
        return sorted(set(self.before.keys) - self.winners.keys() if self.new else self.restated)

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
        merged, left = {}, []
        for tokens, entry in self.winners.items():
            runs = running(now, tokens)
            if runs == running(self.before, tokens):
                merged[tokens] = entry
            elif runs != entry:
                left.append(tokens)
        return merge(now, {**restated(now, merged, self.gpu, self.tuned), **merged}), tuple(left)


def default_table(name: TableName, problem: Problem, gpu: GpuSpec, tokens: Collection[int], version: str | None = None) -> Table:
    """What the stack launches with where it finds no table, as one: without it, the nearest of the tuned token counts would run.

    The default is constant between the token counts at which it changes. With a key on either side of each of those, the nearest key is
    one of the same stretch: a token count runs what it ran, or what won for one of its stretch. The usual keys between them, and those
    that were tuned without a winner, keep a winner to its neighbourhood. What fails without a table as well is left out.

    Args:
        name: The name of the table, which says the stack.
        problem: A launch of the layer, of any number of tokens.
        gpu: What it runs on.
        tokens: Those that are tuned.
        version: Of the stack; None: the newest.
    """
    experts, kind = problem.sizes["E"], default_options(problem, gpu, version)
    keys = {*usual_tokens(name.stack, experts, kind), *tokens}
    entries = {key: default_configuration(name.stack, key, experts, **kind) for key in keys}
    return new_table(name, {item: entry for item, entry in entries.items() if not entry_errors(entry, name, gpu)}, name.triton_version)


def usual_tokens(stack: str, experts: int, options: Mapping[str, Any]) -> tuple[int, ...]:
    """The token counts that a table of a stack is made for where none are named: those of its tuner, their doubles up to the last token
    count at which its default changes, and those on either side of each change. `options` are those of `default_options`."""
    changes = _changes(stack, experts, options)
    doubles = [2 * STANDARD_TOKENS[-1]]
    while doubles[-1] <= max(changes, default=0):
        doubles.append(2 * doubles[-1])
    return tuple(sorted({*STANDARD_TOKENS, *doubles[:-1], *(item for end in changes for item in (end, end + 1))}))


def _changes(stack: str, experts: int, options: Mapping[str, Any]) -> list[int]:
    """The token counts after which a stack's default is another."""
    fields = np.stack([*default_fields(stack, np.arange(1, MOST_TOKENS + 1), experts, **options).values()])
    return [int(item) for item in 1 + np.flatnonzero((fields[:, 1:] != fields[:, :-1]).any(axis=0))]


def default_options(problem: Problem, gpu: GpuSpec, version: str | None = None) -> dict[str, Any]:
    """What the default of a layer hangs on besides tokens and experts, as `default_configuration` takes it; `version` of the stack, None:
    the newest."""
    return {
        "version": version_number(version or ""),
        "dtype": problem.dtype,
        "block_shape": problem.block_shape,
        "amd": gpu.vendor == "amd",
        "shared_memory_bytes_per_cta": gpu.smem_bytes_per_cta,
    }


def replacement(
    configuration: Configuration, today: Configuration | None, *, table: TableName | None, gpu: GpuSpec, searched: Collection[str] = ()
) -> Configuration:
    """The configuration as it is launched instead of `today`'s.

    What was not searched (waves_per_eu, USE_TMA, num_ctas, …) stays as it is today, in today's order. An entry of a table loses what the
    launch refuses, and gets the SPLIT_K that its kernel asks for: it would raise the same error with the best blocks. `num_ctas` that no
    launch has goes, and so does `maxnreg` where another tile or other warps take today's place: it is how many registers a thread of
    today's needs.

    Args:
        configuration: What was found.
        today: What runs now; None: nothing to take over.
        table: The table that it becomes an entry of; None: it becomes none, and every parameter is the kernel's own.
        gpu: That it is launched on.
        searched: Launch options that were searched besides num_warps and num_stages.
    """
    if today is None:
        return configuration
    refused = set(refused_parameters(today.parameters, gpu.vendor, table, gpu.compute_capability)) if table is not None else set()
    tile = {name: value for name, value in configuration.parameters.items() if name != "GROUP_SIZE_M"}
    same = configuration.num_warps == today.num_warps and tile.items() <= today.parameters.items()
    if not same:
        refused.add("maxnreg")
    parameters = {
        name: configuration.parameters.get(name, value)
        for name, value in today.parameters.items()
        if name in configuration.parameters or name not in refused
    }
    parameters |= {name: value for name, value in configuration.parameters.items() if name not in parameters}
    if table is not None and lacks_split_k(parameters, table):
        parameters["SPLIT_K"] = 1
    fields: dict[str, Any] = {}
    if "num_ctas" not in searched:
        fields["num_ctas"] = today.num_ctas if refused_ctas(today.num_ctas, gpu.compute_capability) is None else 1
    if "maxnreg" not in searched:
        fields["maxnreg"] = today.maxnreg if same else None
    return replace(configuration, parameters=parameters, **fields)
