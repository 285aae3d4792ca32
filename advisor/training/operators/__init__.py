"""Fitting and judging what is learned of the published operators (`learned.operators`)."""
