"""Rules that look at the compiled code of a kernel, one per file, in the order in which they are checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from advisor.compiled.analysis import KernelAnalysis
from advisor.compiled.demand.assembly import CodeFacts
from advisor.compiled.guesses.inference import Guess
from advisor.compiled.launches.launch import Inspection
from advisor.diagnosis.compiled_rules.atomics_in_loop import RULE as ATOMICS_IN_LOOP
from advisor.diagnosis.compiled_rules.block_exceeds_registers import RULE as BLOCK_EXCEEDS_REGISTERS
from advisor.diagnosis.compiled_rules.cannot_launch import RULE as CANNOT_LAUNCH
from advisor.diagnosis.compiled_rules.contended_atomics import RULE as CONTENDED_ATOMICS
from advisor.diagnosis.compiled_rules.context import CompiledContext, CompiledRule
from advisor.diagnosis.compiled_rules.convert_layout_in_loop import RULE as CONVERT_LAYOUT_IN_LOOP
from advisor.diagnosis.compiled_rules.dot_without_tensor_instruction import RULE as DOT_WITHOUT_TENSOR_INSTRUCTION
from advisor.diagnosis.compiled_rules.index_arithmetic import RULE as INDEX_ARITHMETIC
from advisor.diagnosis.compiled_rules.integer_division_in_loop import RULE as INTEGER_DIVISION_IN_LOOP
from advisor.diagnosis.compiled_rules.mask_never_binds import RULE as MASK_NEVER_BINDS
from advisor.diagnosis.compiled_rules.mma_instead_of_wgmma import RULE as MMA_INSTEAD_OF_WGMMA
from advisor.diagnosis.compiled_rules.narrow_access import RULE as NARROW_ACCESS
from advisor.diagnosis.compiled_rules.no_async_copy import RULE as NO_ASYNC_COPY
from advisor.diagnosis.compiled_rules.packable_loads import RULE as PACKABLE_LOADS
from advisor.diagnosis.compiled_rules.register_spills import RULE as REGISTER_SPILLS
from advisor.diagnosis.compiled_rules.repeated_loads import RULE as REPEATED_LOADS
from advisor.diagnosis.compiled_rules.scalar_loads import RULE as SCALAR_LOADS
from advisor.diagnosis.compiled_rules.single_stage_loop import RULE as SINGLE_STAGE_LOOP
from advisor.diagnosis.compiled_rules.small_programs import RULE as SMALL_PROGRAMS
from advisor.diagnosis.compiled_rules.too_few_ctas import RULE as TOO_FEW_CTAS
from advisor.diagnosis.compiled_rules.uncoalesced_access import RULE as UNCOALESCED_ACCESS
from advisor.diagnosis.compiled_rules.wide_index_in_loop import RULE as WIDE_INDEX_IN_LOOP
from advisor.gpus.hardware import GpuSpec
from advisor.result.schema import Finding

COMPILED_RULES: tuple[CompiledRule, ...] = (
    CANNOT_LAUNCH,
    BLOCK_EXCEEDS_REGISTERS,
    REGISTER_SPILLS,
    DOT_WITHOUT_TENSOR_INSTRUCTION,
    MMA_INSTEAD_OF_WGMMA,
    NO_ASYNC_COPY,
    SINGLE_STAGE_LOOP,
    UNCOALESCED_ACCESS,
    NARROW_ACCESS,
    PACKABLE_LOADS,
    REPEATED_LOADS,
    SCALAR_LOADS,
    TOO_FEW_CTAS,
    SMALL_PROGRAMS,
    CONVERT_LAYOUT_IN_LOOP,
    ATOMICS_IN_LOOP,
    CONTENDED_ATOMICS,
    INTEGER_DIVISION_IN_LOOP,
    INDEX_ARITHMETIC,
    WIDE_INDEX_IN_LOOP,
    MASK_NEVER_BINDS,
)
STRIDES_DECIDE = frozenset({UNCOALESCED_ACCESS.id, NARROW_ACCESS.id})
"""Rules that are not asked where a stride is not given: what they find, a call with other strides has not."""
TOLD_STRIDES_DECIDE = frozenset({REGISTER_SPILLS.id, NO_ASYNC_COPY.id, CONVERT_LAYOUT_IN_LOOP.id, WIDE_INDEX_IN_LOOP.id})
"""Rules that are not asked where the compiler was told nothing of a stride: no call is compiled like that. Where it was told nothing of
another integer, which does not decide as much, what they find says so."""


TYPES_DECIDE = frozenset({NARROW_ACCESS.id, PACKABLE_LOADS.id, DOT_WITHOUT_TENSOR_INSTRUCTION.id})
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
    found = []
    said = inspection.launch.divisible is not None  # of every argument: by a record, or by the user
    strides, untold = (frozenset(), ()) if said else (inspection.guess.strides, inspection.guess.untold)
    withheld = STRIDES_DECIDE if strides else frozenset()
    if strides & set(untold):
        withheld |= TOLD_STRIDES_DECIDE
    for rule in COMPILED_RULES:
        if rule.id in withheld:
            continue
        try:
            finding = rule.check(context)
        except Exception as error:
            finding = Finding(
                rule=rule.id,
                severity="error",
                title=f"The rule {rule.id} failed",
                evidence=f"{type(error).__name__}: {error}",
                remedy="report it; the other findings stand",
                scope="kernel",
            )
        if finding is None:
            continue
        if untold and rule.id in STRIDES_DECIDE | TOLD_STRIDES_DECIDE:
            text = f"compiled without the values of {_few(untold)}: multiples of 16 may cure it"
            finding = replace(finding, evidence=f"{finding.evidence}; {text}")
        if guessed := _guessed(inspection.guess, rule.id):
            finding = replace(finding, title=f"{finding.title} (guessed: {_few(guessed)})")
        found.append(finding)
    return tuple(found)


def _guessed(guess: Guess, rule: str) -> list[str]:
    """Arguments on whose guessed value or type what a rule finds hangs."""
    constants = [name for name in guess.invented if name not in guess.settled]
    return [*constants, *(sorted(guess.guessed) if rule in TYPES_DECIDE else ())]


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:MOST_NAMES]) + (", ..." if len(names) > MOST_NAMES else "")


__all__ = ["COMPILED_RULES", "CompiledContext", "CompiledRule", "check_compiled"]
