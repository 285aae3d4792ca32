"""Integer arithmetic of indices and masks takes the time."""

from __future__ import annotations

from collections import defaultdict

from advisor.compiled.demand.costs import Cost, cost
from advisor.compiled.demand.machine_work import executions_at
from advisor.compiled.ir.divisors import INTEGER
from advisor.compiled.ir.ir import Operation
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.diagnosis.rule import microseconds
from advisor.pipelines.bound import throughput_per_us
from advisor.result.schema import Finding

LEAST_SHARE = 0.05
"""Of the predicted latency: what costs less is not reported."""
LINES = 3
"""Lines that are named, those that cost most."""
REMEDIES = {
    "divisions": "divide by powers of two that are tl.constexpr, carry rows and columns along in place of dividing, and index with one "
    "flat offset what lies one behind the other",
    "masks": "give the programs that lie inside a path without masks (a branch on the program, or a second launch for the border), or "
    "pad the tensor",
    "addresses": "work the offsets out once and add to them, with strides that are tl.constexpr, and in 32 bits",
}


class IndexArithmetic:
    """Integer arithmetic of indices and masks takes the time."""

    id = "index-arithmetic"
    title = "Integer arithmetic of indices and masks takes the time"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        analysis = context.analysis
        if analysis is None or analysis.predicted is None:
            return None
        lines: dict[tuple[str | None, int | None], Cost] = defaultdict(Cost)
        kinds: dict[str, float] = defaultdict(float)
        total = Cost()
        for op in context.index_operations:
            found = cost(op, context.divisors).times(executions_at(context.demand, op.line, 0.0))
            lines[op.location.file if op.location else None, op.line].add(found)
            kinds[_kind(op)] += found.alu
            total.add(found)
        warp = context.compiled.target.warp_size
        saving = context.without(alu=total.alu, xu=total.xu, issue=(total.alu + total.xu) / warp) if total.alu else None
        if saving is None or saving < LEAST_SHARE * analysis.predicted.us:
            return None
        rate = throughput_per_us(analysis.gpu, analysis.asked.tensor_dtype)["alu"]
        heaviest = sorted((key for key in lines if key[1] is not None), key=lambda key: -lines[key].alu)[:LINES]
        named = ", ".join(f"line {line}: {microseconds(lines[file, line].alu / rate)}" for file, line in heaviest)
        main = max(kinds, key=lambda kind: kinds[kind])
        shares = ", ".join(f"{100 * kinds[kind] / total.alu:.0f} % {kind}" for kind in sorted(kinds, key=lambda kind: -kinds[kind]))
        file, line = heaviest[0] if heaviest else (None, None)
        return report(
            self,
            context,
            "warning",
            f"Index and mask arithmetic keeps the integer units busy for {microseconds(total.alu / rate)}",
            evidence=f"{named}; {shares}, beside one addition for each address",
            remedy=REMEDIES[main],
            line=line,
            file=file,
            saving_us=saving,
        )


def _kind(op: Operation) -> str:
    if op.name in INTEGER:
        return "divisions"
    return "masks" if op.name == "arith.cmpi" or (op.result is not None and op.result.element == "i1") else "addresses"


RULE = IndexArithmetic()
