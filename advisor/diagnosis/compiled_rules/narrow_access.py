"""Global accesses are narrower than 16 bytes per thread."""

from __future__ import annotations

from advisor.compiled.demand.costs import element_bytes
from advisor.compiled.demand.counts import AccessDemand
from advisor.compiled.ir.slicing import address_operands, needed_values
from advisor.diagnosis.compiled_rules.context import CompiledContext, report
from advisor.result.schema import Finding


class NarrowAccess:
    """Global accesses are narrower than 16 bytes per thread."""

    id = "narrow-access"
    title = "Global accesses are narrower than 16 bytes per thread"

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None."""
        threads = context.compiled.num_warps * context.compiled.target.warp_size
        worst, narrow = None, 0
        for access in context.demand.accesses:
            widths = context.facts.widths.get((access.kind, access.line or 0), ())
            if not widths or access.lanes < 2 * threads or (access.contiguous or 0) < 2:
                continue
            size = element_bytes(access.element)
            possible = min(16, int(size * min(access.contiguous or 1, access.lanes // threads)))
            widest = max(widths)
            if widest * 2 <= possible and (worst is None or access.issued_bytes > worst.issued_bytes):
                worst, narrow = access, widest
        total = context.demand.load_bytes + context.demand.store_bytes
        if worst is None or not total or worst.issued_bytes < 0.05 * total:
            return None
        work = context.work
        untold = _untold(context, worst)
        remedy = "make the size and stride multiples of 16, or assert it with tl.multiple_of / tl.max_contiguous"
        if untold:
            remedy = f"take {', '.join(untold)} out of do_not_specialize of @triton.jit, for which the compiler is not told that it is a "
            remedy += "multiple of 16; or assert it with tl.multiple_of"
        spared = work.access_instructions - work.access_instructions_widest if work is not None else 0.0
        return report(
            self,
            context,
            "warning" if narrow < 4 else "advice",
            f"A {worst.kind} of {worst.argument or 'memory'} moves {narrow} bytes per thread"
            + (", for do_not_specialize" if untold else ""),
            evidence=f"{worst.contiguous} elements of {element_bytes(worst.element):g} bytes lie in a row, and each thread holds "
            f"{worst.lanes // threads}; 16 bytes were possible",
            remedy=remedy,
            line=worst.line,
            file=worst.file,
            saving_us=context.without(issue=spared),
        )


def _untold(context: CompiledContext, access: AccessDemand) -> list[str]:
    """Integer arguments whose values are multiples of 16, which the kernel keeps from the compiler, and that an access goes by."""
    launch, function = context.inspection.launch, context.module.kernel
    values = launch.given.scalars
    aligned = [n for n in launch.source.kernel(launch.kernel).unaligned if type(value := values.get(n)) is int and value % 16 == 0]
    goes_by = needed_values(function, address_operands(access.operation)) if aligned else set()
    names = [name for name, kind in context.compiled.signature.items() if kind != "constexpr"]
    return [name for name, value in zip(names, function.arguments, strict=False) if name in aligned and value in goes_by]


RULE = NarrowAccess()
