"""Whole steps of models: constants fitted to what was measured, and judged on it."""
