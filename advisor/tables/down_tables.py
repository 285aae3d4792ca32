"""SGLang's `_down` tables: w2 of a layer with entries of its own, beside the table that then is w13's alone.

SGLang 0.5.23 launches w2 with `down_config or config`, where the `_down` table's entry nearest to the same token count gets the
BLOCK_SIZE_M of w13's: one sort of the tokens serves both (`fused_moe_triton_config.try_get_optimal_moe_config`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from advisor.result.schema import Configuration
from advisor.system.errors import AdvisorError
from advisor.tables.tables import Table, inspect_table, select

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
