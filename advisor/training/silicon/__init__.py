"""Fitting and judging what whole layers, library kernels and published operators take, from tables in their publishers' layouts."""
