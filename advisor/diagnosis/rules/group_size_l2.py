"""GROUP_SIZE_M does not suit the L2."""

from __future__ import annotations

from advisor.diagnosis.columns import first
from advisor.diagnosis.context import LaunchContext, Need
from advisor.diagnosis.rule import amount, found, remedy_of, severity_of
from advisor.result.schema import Finding


class GroupSizeL2:
    """The order of the tiles costs DRAM traffic."""

    id = "group-size-l2"
    title = "The order of the tiles (GROUP_SIZE_M) loses re-use in the L2"
    needs: tuple[Need, ...] = ("configuration", "runs", "tiles")

    def check(self, context: LaunchContext) -> Finding | None:
        """Fires where another GROUP_SIZE_M alone saves time."""
        if context.configuration is None or "GROUP_SIZE_M" not in context.configuration.parameters:
            return None
        around = context.neighbours()
        better = around.best(around.only("GROUP_SIZE_M"))
        saving = context.saving(better.us) if better else 0.0
        if better is None or not context.matters(saving, better):
            return None
        asked = context.asked
        return found(
            self,
            context,
            severity_of(context, saving),
            f"GROUP_SIZE_M={context.parameter('GROUP_SIZE_M')} fetches operands from DRAM again",
            evidence=f"{amount(first(asked.dram_bytes))} from and to DRAM for {amount(first(asked.compulsory_bytes))} "
            f"of distinct data, with an L2 of {amount(context.gpu.l2_bytes)}",
            remedy=remedy_of(better, context),
            saving_us=saving,
            better=better,
        )


RULE = GroupSizeL2()
