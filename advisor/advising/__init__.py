"""The report on a target: how fast each launch could be, what holds it back, and what to run instead.

`public` is `advisor.advise`. `of_target` makes the report of launches whose work is known in closed form, `of_compiled` that of kernels as
compiled. A launch goes through `choice` (what should run instead), `launch_facts`, `verdict` and `exports`.
`advise_target` and `launch_reports` are loaded on first use: the targets are read without what predicts them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from advisor.advising.table_report import advise_target as advise_target
    from advisor.advising.table_report import launch_reports as launch_reports

__all__ = ["advise_target", "launch_reports"]


def __getattr__(name: str) -> Any:
    if name in ("advise_target", "launch_reports"):
        from advisor.advising import table_report

        return getattr(table_report, name)
    raise AttributeError(f"module 'advisor.advising' has no attribute {name!r}")
