"""Fitting and judging what is learned of library mixture-of-experts layers (`learned.library.moe_kernels`)."""
