"""The rules, a module for each kind of cause, in the order in which they are tried and listed."""

from __future__ import annotations

from advisor.diagnosis.context import LaunchContext
from advisor.diagnosis.rule import Rule
from advisor.diagnosis.rules import experts, filling, limits, products

RULES: tuple[Rule[LaunchContext], ...] = (
    limits.cannot_launch,
    limits.below_bound,
    experts.entry_far_from_m,
    experts.clamped_block_k,
    products.not_tensor_dtype,
    experts.expert_padding,
    products.edge_padding,
    filling.too_few_ctas,
    filling.tail_wave,
    filling.low_occupancy,
    products.few_stages,
    products.k_loop_shorter_than_pipeline,
    products.tile_below_matrix_instruction,
    limits.operand_traffic,
    limits.group_size_l2,
    limits.smem_bound,
    limits.slower_than_predicted,
    filling.launch_bound,
    experts.low_rows_per_expert,
    experts.uneven_routing,
)

__all__ = ["RULES"]
