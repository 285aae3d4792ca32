"""Experts get fewer rows than their blocks have."""

from __future__ import annotations

import numpy as np

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import found, microseconds, percent, remedy_of, severity_of
from advisor.pipelines import problem_batch
from advisor.result.schema import Finding


class ExpertPadding:
    """Rows of blocks of experts that hold no token slot."""

    id = "expert-padding"
    title = "Blocks of experts are padded with empty rows"
    needs: tuple[Need, ...] = ("runs", "tiles", "experts")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where a smaller block saves time."""
        block = context.parameter("BLOCK_SIZE_M", 64)
        rows, count = problem_batch([context.problem]).routing
        slots = float((rows * count).sum())
        padded = float((count * np.ceil(rows / block)).sum()) * block
        costs = context.costs(relax=("padding",))
        if padded <= slots or not context.matters(costs):
            return None
        around = context.neighbours()
        better = around.best(
            (around.values["BLOCK_SIZE_M"] < block) & (around.column(around.demand.useful_fraction) > first(context.asked.useful_fraction))
        )
        saving = min(costs, context.saving(better.us)) if better else 0.0
        if better is None or not context.matters(saving, better):
            return None
        active = float((count * (rows > 0)).sum())
        return found(
            self,
            context,
            severity_of(context, saving),
            f"{percent(1 - slots / padded)} of the rows in the blocks are padding",
            evidence=f"{slots:,.0f} token slots on {active:,.0f} active experts are padded to {padded:,.0f} rows "
            f"in blocks of {block}; padding costs {microseconds(costs)} in all",
            remedy=remedy_of(better, context),
            saving_us=saving,
            better=better,
        )


RULE = ExpertPadding()
