"""The rules on fused-MoE launches, one per file."""
