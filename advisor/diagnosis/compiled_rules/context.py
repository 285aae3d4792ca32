"""What a rule on compiled code may look at."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from advisor.compiled.assembly import CodeFacts, CodeLoop, main_loop
from advisor.compiled.demand import KernelDemand
from advisor.compiled.ir import Operation, parse
from advisor.compiled.kernel import CompiledKernel
from advisor.compiled.launch import Inspection, author_file, own_files
from advisor.hardware import GpuSpec
from advisor.schema import Finding, Severity


class CompiledRule(Protocol):
    """One thing that can be wrong with compiled code. `id`, `title` and `explanation` as for `diagnosis.rule.Rule`."""

    @property
    def id(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def explanation(self) -> str: ...

    def check(self, context: CompiledContext) -> Finding | None:
        """The finding, or None where the kernel passes."""
        ...


@dataclass(frozen=True, kw_only=True)
class CompiledContext:
    """One inspected kernel. `gpu` where one is named or fits the target."""

    inspection: Inspection
    facts: CodeFacts
    gpu: GpuSpec | None = None

    @property
    def compiled(self) -> CompiledKernel:
        """What the compiler made."""
        return self.inspection.compiled

    @property
    def demand(self) -> KernelDemand:
        """What was counted."""
        return self.inspection.demand

    @cached_property
    def operations(self) -> tuple[tuple[Operation, int], ...]:
        """Operations of the TTIR with the number of loops around each."""
        from advisor.compiled.demand import loop_depths

        module = parse(self.compiled.ttir, own_files(self.compiled))
        depths = loop_depths(module)
        return tuple((op, depths.get(id(op), 0)) for f in module.functions.values() for op in f.walk())

    @cached_property
    def loop(self) -> CodeLoop | None:
        """The loop of the machine code that matters."""
        return main_loop(self.facts)

    @property
    def capability(self) -> int | None:
        """Compute capability x 10; None on AMD."""
        return int(self.compiled.target.arch) if self.compiled.target.backend == "cuda" else None


def report(
    rule: CompiledRule,
    context: CompiledContext,
    severity: Severity,
    title: str,
    *,
    evidence: str,
    remedy: str,
    line: int | None = None,
    file: str | None = None,
) -> Finding:
    """A finding at a line of the author's source. What it would save is not worked out: the compiler's text does not say."""
    return Finding(
        rule=rule.id, severity=severity, title=title, evidence=evidence, remedy=remedy, saving_us=None, scope="kernel",
        source_file=author_file(context.compiled, file) or str(context.inspection.launch.source.path), source_line=line,
    )  # fmt: skip
