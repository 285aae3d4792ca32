"""Whole layers and whole models: the operators of a step, its collectives and gaps, and what the step takes."""
