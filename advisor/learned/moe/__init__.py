"""The learned model of fused-MoE launches."""
