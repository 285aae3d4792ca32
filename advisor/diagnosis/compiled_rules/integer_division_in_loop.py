"""Integer division in the loop."""

from __future__ import annotations

from advisor.compiled.demand.costs import cost
from advisor.compiled.demand.machine_work import executions_at
from advisor.compiled.ir.divisors import INTEGER
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.result.schema import Finding


class IntegerDivisionInLoop:
    """Integer division in the loop."""

    id = "integer-division-in-loop"
    title = "Integer division in the loop"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        found = [op for op, depth in context.operations if depth > 0 and op.name in INTEGER and context.divisors[id(op)].constant is None]
        if not found:
            return None
        worst = max(found, key=lambda op: op.result.elements if op.result else 1)
        elements = worst.result.elements if worst.result else 1
        alu = xu = 0.0
        for op in found:
            often = executions_at(context.demand, op.location.line if op.location else None, 0.0)
            once = cost(op, context.divisors)
            alu, xu = alu + once.alu * often, xu + once.xu * often
        warp = context.compiled.target.warp_size
        saving = context.without(alu=alu, xu=xu, issue=(alu + xu) / warp) if alu else None
        if saving is None and context.predicts_savings:
            return None  # one division for each tile of a persistent kernel, say
        return report(
            self,
            context,
            "advice" if elements == 1 else "warning",
            f"{len(found)} integer division{'s' if len(found) > 1 else ''} in a loop",
            evidence=f"{worst.name.split('.')[1]} of {elements:,} element{'s' if elements > 1 else ''}, divisor not a constant",
            remedy="make the divisor a tl.constexpr, carry the quotient along, or divide before the loop",
            saving_us=saving,
            line=worst.location.line if worst.location else None,
            file=worst.location.file if worst.location else None,
        )


RULE = IntegerDivisionInLoop()
