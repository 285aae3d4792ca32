"""The rules, one per file, in the order in which they are tried and listed."""

from __future__ import annotations

from advisor.diagnosis.moe_rules import clamped_block_k, entry_far_from_m, expert_padding, low_rows_per_expert, uneven_routing
from advisor.diagnosis.rule import Rule
from advisor.diagnosis.rules import (
    below_bound,
    cannot_launch,
    edge_padding,
    few_stages,
    group_size_l2,
    k_loop_shorter_than_pipeline,
    launch_bound,
    low_occupancy,
    not_tensor_dtype,
    operand_traffic,
    register_spills_likely,
    rows_read_twice,
    slower_than_predicted,
    small_ctas,
    smem_bound,
    split_k_traffic,
    tail_wave,
    tile_below_matrix_instruction,
    too_few_ctas,
    widened_operands,
)

RULES: tuple[Rule, ...] = (
    cannot_launch.RULE,
    below_bound.RULE,
    entry_far_from_m.RULE,
    clamped_block_k.RULE,
    not_tensor_dtype.RULE,
    expert_padding.RULE,
    edge_padding.RULE,
    too_few_ctas.RULE,
    tail_wave.RULE,
    small_ctas.RULE,
    low_occupancy.RULE,
    few_stages.RULE,
    k_loop_shorter_than_pipeline.RULE,
    tile_below_matrix_instruction.RULE,
    operand_traffic.RULE,
    group_size_l2.RULE,
    smem_bound.RULE,
    split_k_traffic.RULE,
    rows_read_twice.RULE,
    register_spills_likely.RULE,
    slower_than_predicted.RULE,
    launch_bound.RULE,
    low_rows_per_expert.RULE,
    uneven_routing.RULE,
    widened_operands.RULE,
)

__all__ = ["RULES"]
