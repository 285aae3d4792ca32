"""Rules that look at the compiled code of a kernel, a module for each kind of cause, in the order in which they are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from advisor.compiled.analysis import KernelAnalysis
from advisor.compiled.demand.assembly import CodeFacts
from advisor.compiled.guesses.inference import Guess
from advisor.compiled.launches.launch import Inspection
from advisor.diagnosis.compiled_rules import accesses, arithmetic, limits, products
from advisor.diagnosis.compiled_rules.context import CompiledContext
from advisor.diagnosis.rule import Rule, crashed
from advisor.gpus.hardware import GpuSpec
from advisor.result.schema import Finding

COMPILED_RULES: tuple[Rule[CompiledContext], ...] = (
    limits.cannot_launch,
    limits.block_exceeds_registers,
    limits.register_spills,
    products.dot_without_tensor_instruction,
    products.mma_instead_of_wgmma,
    products.no_async_copy,
    products.single_stage_loop,
    accesses.uncoalesced_access,
    accesses.narrow_access,
    accesses.packable_loads,
    accesses.second_pass,
    accesses.repeated_loads,
    accesses.loads_in_turn,
    accesses.scalar_loads,
    limits.too_few_ctas,
    limits.small_programs,
    products.convert_layout_in_loop,
    arithmetic.atomics_in_loop,
    arithmetic.contended_atomics,
    arithmetic.integer_division_in_loop,
    arithmetic.index_arithmetic,
    arithmetic.double_precision,
    arithmetic.masked_lanes,
    arithmetic.wide_index_in_loop,
    arithmetic.mask_never_binds,
)
STRIDES_DECIDE = frozenset({accesses.uncoalesced_access.id, accesses.narrow_access.id})
"""Rules that hang on strides. Where one is not given, how wide accesses are is not asked: a call with other strides is compiled otherwise;
whether neighbouring threads touch neighbouring addresses is, of contiguous rows, as the prediction has them."""
TOLD_STRIDES_DECIDE = frozenset(
    {limits.register_spills.id, products.no_async_copy.id, products.convert_layout_in_loop.id, arithmetic.wide_index_in_loop.id}
)
"""Rules that are not asked where the compiler was told nothing of a stride: no call is compiled like that. Where it was told nothing of
another integer, which does not decide as much, what they find says so."""


TYPES_DECIDE = frozenset({accesses.narrow_access.id, accesses.packable_loads.id, products.dot_without_tensor_instruction.id})
"""Rules whose findings hang on the types of elements; all findings hang on the constants that a kernel is compiled with."""

MOST_NAMES = 4
"""Of arguments, in a finding's evidence, and in its title."""


def check_compiled(
    inspection: Inspection, facts: CodeFacts, gpu: GpuSpec | None = None, analysis: KernelAnalysis | None = None
) -> tuple[Finding, ...]:
    """Findings of the rules in one inspected kernel; a rule that crashes becomes an error finding, and the run goes on.

    What hangs on strides that are not given is withheld; the inspection's assumptions say so. The title of what hangs on a constant or a
    type that was guessed names it.

    `analysis`, where there is one, says what curing a cause would save.
    """
    context = CompiledContext(inspection=inspection, facts=facts, gpu=gpu, analysis=analysis)
    findings = []
    withheld, assumed_strides = not_judged(inspection), inspection.guess.not_specialized if inspection.launch.divisible is None else ()
    for rule in COMPILED_RULES:
        if rule.id in withheld:
            continue
        try:
            finding = rule.check(context)
        except Exception as error:
            finding = crashed(rule, f"{type(error).__name__}: {error}", "kernel")
        if finding is None:
            continue
        if assumed_strides and rule.id in STRIDES_DECIDE | TOLD_STRIDES_DECIDE:
            text = f"compiled without the values of {_few(assumed_strides)}: multiples of 16 may cure it"
            finding = replace(finding, evidence=f"{finding.evidence}; {text}")
        if guessed := _guessed(inspection.guess, rule.id):
            finding = replace(finding, title=f"{finding.title} (guessed: {_few(guessed)})")
        findings.append(finding)
    return tuple(findings)


def not_judged(inspection: Inspection) -> frozenset[str]:
    """The rules that are not asked of a launch, for strides that they hang on are not given."""
    guess = inspection.guess
    if inspection.launch.divisible is not None or not guess.strides:  # a record, or the user, says of every argument what it divides by
        return frozenset()
    return frozenset({accesses.narrow_access.id}) | (TOLD_STRIDES_DECIDE if guess.strides & set(guess.not_specialized) else frozenset())


def _guessed(guess: Guess, rule: str) -> list[str]:
    """Arguments on whose guessed value or type what a rule finds hangs."""
    constants = [name for name in guess.invented if name not in guess.settled]
    constants += sorted(guess.strides) if rule == accesses.uncoalesced_access.id else ()
    return [*constants, *(sorted(guess.guessed) if rule in TYPES_DECIDE else ())]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")


__all__ = ["COMPILED_RULES", "CompiledContext", "check_compiled", "not_judged"]
