"""Whole layers and whole models: the kernels of a layer, the operators of a step, its collectives and gaps, and what they take."""
