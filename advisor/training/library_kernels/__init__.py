"""Fitting and judging the models of measured library kernels."""
